"""Each step's loss, time and learning rate are kept as numbers, and nothing else is. Nothing is wrong."""

import time

from _common import Classifier, for_seconds


def main() -> None:
    trainer = Classifier(width=256)
    history: dict[str, list[float]] = {"loss": [], "time": [], "rate": []}
    for step in for_seconds():
        history["loss"].append(trainer.step(*trainer.batch()).item())
        history["time"].append(time.perf_counter())
        history["rate"].append(1e-3 / (1 + step))
    print('TRUTH {"finding": null}')


if __name__ == "__main__":
    main()
