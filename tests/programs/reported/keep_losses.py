"""Losses are kept for a plot, each with its graph. FIXED=1: without."""

from _common import FIXED, Classifier, for_seconds, tell_growth
from torch import nn


def main() -> None:
    trainer, losses = Classifier(width=256), []
    for _ in for_seconds():
        inputs, labels = trainer.batch()
        trainer.step(inputs, labels)
        loss = nn.functional.cross_entropy(trainer.model(inputs), labels)
        if FIXED:
            loss = loss.detach()
        losses.append(loss)  # trouble
    tell_growth()


if __name__ == "__main__":
    main()
