"""Batches are of random lengths: the allocator grows up to the largest of them. Nothing is wrong."""

import torch
from _common import Classifier, for_seconds


def main() -> None:
    trainer = Classifier(width=256)
    for _ in for_seconds():
        trainer.step(*trainer.batch(int(torch.randint(16, 1500, ()))))
    print('TRUTH {"finding": null}')


if __name__ == "__main__":
    main()
