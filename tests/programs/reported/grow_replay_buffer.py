"""Transitions fill a buffer, which forgets the oldest ones when it is full. Nothing is wrong."""

import collections

import torch
from _common import Classifier, for_seconds
from torch import Tensor


def main() -> None:
    trainer = Classifier(width=768)
    buffer: collections.deque[Tensor] = collections.deque(maxlen=1500)
    for _ in for_seconds():
        inputs, labels = trainer.batch()
        buffer.append(torch.randn(20_000))
        trainer.step(inputs, labels)
    print('TRUTH {"finding": null}')


if __name__ == "__main__":
    main()
