"""Each step hooks the layer whose output it wants to see, and never takes the hook out. FIXED=1: it does."""

import torch
from _common import FIXED, Classifier, for_seconds, tell_growth


def main() -> None:
    trainer, seen = Classifier(width=256), torch.zeros(256)
    layer = trainer.model[2]
    for _ in for_seconds():
        inputs, labels = trainer.batch()
        scale = torch.rand(16_384)
        handle = layer.register_full_backward_hook(lambda module, given, got, scale=scale: None)  # trouble
        trainer.step(inputs, labels)
        seen += scale[:256]
        if FIXED:
            handle.remove()
    tell_growth()


if __name__ == "__main__":
    main()
