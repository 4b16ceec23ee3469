"""A logger keeps what it logged, with a histogram of the weights, for the whole run. FIXED=1: the last 50 records."""

from typing import Any

import torch
from _common import FIXED, Classifier, for_seconds, tell_growth


class RunLog:
    """Keeps records until they are asked for."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def write(self, step: int, loss: float, weights: torch.Tensor) -> None:
        counts = torch.histc(weights, 500).tolist()
        self.records.append({"step": step, "loss": loss, "weights": counts})  # trouble
        if FIXED:
            del self.records[:-50]


def main() -> None:
    trainer, log = Classifier(width=128), RunLog()
    for step in for_seconds():
        loss = trainer.step(*trainer.batch())
        log.write(step, loss.item(), trainer.model[2].weight.detach())
    tell_growth()


if __name__ == "__main__":
    main()
