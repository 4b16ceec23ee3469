"""What ranks exchange at each step, by the optimizer and DistributedDataParallel, and how to exchange less."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import json_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainperf.runfile import RunReader

_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
_NEW_OPTION, _OLD_OPTION = "forward_sync_buffers", "broadcast_buffers"
_MANY_BUCKETS = 8
_SMALL = 4 << 20  # bytes that no buckets are worth it for


@dataclass(frozen=True, slots=True)
class Exchange:
    """In bytes; 0: not known."""

    gradients: int
    buffers: int  # that DistributedDataParallel broadcasts before each forward
    bucket: int  # of DistributedDataParallel, at most
    buffers_option: str  # that switches their broadcast off
    compressed: bool  # it has a communication hook

    @classmethod
    def of(cls, run: RunReader) -> Exchange:
        ddp = json_object(run.meta.get("ddp", "{}"))
        described = [_number(of.get("gradient_bytes")) for kind, of in run.objects.values() if kind == "optimizer"]
        return cls(
            gradients=_number(ddp.get("gradient_bytes")) or sum(described),
            buffers=_number(ddp.get("buffer_bytes")) if ddp.get("broadcast_buffers") is True else 0,
            bucket=_number(ddp.get("bucket_bytes")),
            buffers_option=_NEW_OPTION if ddp.get("buffers_option") == _NEW_OPTION else _OLD_OPTION,
            compressed=_number(ddp.get("hooks")) > 0,
        )

    def evidence(self, steps: int, cost_ns: int) -> str:
        """The gradients' size, and how fast they went if each of these steps, which wait, exchanged them all."""
        if not self.gradients:
            return ""
        rate = self.gradients * steps / cost_ns if cost_ns else 0.0  # bytes per ns: GB/s
        buffers = f", and {_size(self.buffers)} of buffers are broadcast" if self.buffers else ""
        at = f"{rate:.2g} GB/s where each step that waits exchanges all"
        return f"all gradients are {_size(self.gradients)}{buffers}: {at}"

    def ddp_fixes(self, *, device: bool, accumulates: bool) -> Iterator[str]:
        """For DistributedDataParallel, as lines of code. `accumulates`: not every step waits for an exchange."""
        often = "over more batches than now" if accumulates else "exchange them in every Nth step only"
        yield f"with model.no_sync(): ...  # accumulate gradients: {often}"
        if not self.compressed:
            hook = "bf16_compress_hook" if device else "fp16_compress_hook"
            yield f"model.register_comm_hook(None, {_HOOKS}.{hook})  # half the bytes"
        if self.buffers >= limit("half_share") * self.gradients > 0:
            why = f"{_size(self.buffers)} of buffers go out before each forward"
            yield f"DistributedDataParallel(model, {self.buffers_option}=False)  # {why}"
        buckets = math.ceil(self.gradients / self.bucket) if self.bucket else 0
        if buckets > _MANY_BUCKETS:
            larger = math.ceil(self.gradients / _MANY_BUCKETS / 2**20)
            yield f"DistributedDataParallel(model, bucket_cap_mb={larger})  # fewer, larger exchanges: now {buckets}"
        elif buckets == 1 and self.gradients > _SMALL:
            smaller = max(1, self.gradients // 4 // 2**20)
            yield f"DistributedDataParallel(model, bucket_cap_mb={smaller})  # several exchanges: backward hides most"


def _size(count: int) -> str:
    return f"{count / 1e6:.3g} MB" if count < 999.5e6 else f"{count / 1e9:.3g} GB"


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
