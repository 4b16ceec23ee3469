"""Outputs are kept for the metrics of an epoch, and let go at its end. Nothing is wrong."""

from _common import Classifier, for_seconds
from torch import Tensor


def main() -> None:
    trainer = Classifier(width=768, classes=256)
    outputs: list[Tensor] = []
    for step in for_seconds():
        inputs, labels = trainer.batch()
        trainer.step(inputs, labels)
        outputs.append(trainer.model(inputs).detach())
        if step % 400 == 399:
            outputs.clear()
    print('TRUTH {"finding": null}')


if __name__ == "__main__":
    main()
