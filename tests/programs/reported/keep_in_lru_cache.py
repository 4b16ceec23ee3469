"""Positions are encoded by a function with a cache that never has the same argument twice. FIXED=1: 64 entries."""

import functools

import torch
from _common import FIXED, Classifier, for_seconds, tell_growth


@functools.lru_cache(maxsize=64 if FIXED else None)  # trouble
def encoding(offset: float) -> torch.Tensor:
    return torch.sin(torch.arange(4096, dtype=torch.float32) + offset)


def main() -> None:
    trainer = Classifier(width=256)
    for step in for_seconds():
        inputs, labels = trainer.batch()
        trainer.step(inputs + encoding(step / 7)[:64], labels)
    tell_growth()


if __name__ == "__main__":
    main()
