"""Batches get larger as planned, and so do the losses that are kept as numbers. Nothing is wrong."""

from _common import Classifier, for_seconds


def main() -> None:
    trainer, losses = Classifier(width=256), []
    for step in for_seconds():
        losses.append(trainer.step(*trainer.batch(32 + step // 4)).item())
    print('TRUTH {"finding": null}')


if __name__ == "__main__":
    main()
