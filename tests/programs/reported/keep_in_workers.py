"""Each worker keeps what it has decoded, for an epoch that never ends. FIXED=1: it keeps nothing."""

from collections.abc import Iterator

import torch
from _common import FIXED, Classifier, for_seconds, tell_growth
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset


class Decoded(IterableDataset[Tensor]):
    """Samples without an end."""

    def __init__(self) -> None:
        self.cache: dict[int, Tensor] = {}

    def __iter__(self) -> Iterator[Tensor]:
        number = 0
        while True:
            sample = torch.randn(2_000)
            if not FIXED:
                self.cache[number] = sample  # trouble
            number += 1
            yield sample


def main() -> None:
    trainer = Classifier(width=256)
    loader = iter(DataLoader(Decoded(), batch_size=8, num_workers=2))
    for _ in for_seconds():
        inputs, labels = trainer.batch()
        inputs[:8] = next(loader)[:, :64]
        trainer.step(inputs, labels)
    tell_growth()


if __name__ == "__main__":
    main()
