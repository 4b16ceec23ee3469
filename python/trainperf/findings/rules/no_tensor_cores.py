"""TP512: matrix products and convolutions run on kernels that leave the tensor cores idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gpu
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class NoTensorCores(DeviceRule):
    id = "TP512"
    slug = "no-tensor-cores"
    limits = Limits(limit("no_tensor_core_share"), None)

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        major = device.compute_major
        if 0 < major < 7:
            return None  # it has none
        eligible = [k for k in device.kernels if k.eligible]
        without = [k for k in eligible if k.kind == "no_tensor_core"]
        ns = sum(k.ns for k in without)
        unclear = sum(k.ns for k in eligible if k.kind == "unknown")
        severity = facts.grade(ns, self.limits)
        if severity is None:
            if facts.grade(ns + unclear, self.limits) is None:
                return None
            return Abstained(
                self.id, self.slug, "the names of its matrix products do not tell whether they use tensor cores"
            )
        has_tf32 = major == 0 or major >= 8
        tf32 = 'torch.set_float32_matmul_precision("high")  # TF32; and, for more:\n' if has_tf32 else ""
        dtype = "torch.float16" if major == 7 else "torch.bfloat16"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="compute",
            claims={},
            title=f"{facts.share(ns):.0%} of step time are matrix products without tensor cores",
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                *(
                    f"{gpu.short_kernel(k.name)}: {ms(k.ns / facts.steps)} a step, {plural(k.count, 'time')}"
                    for k in without[:3]
                ),
                f"{device.device.name} has tensor cores" if major else "",
            ),
            why="float32 without TF32, or sizes that are no multiple of 8, run on the ordinary units",
            fix=f'{tf32}with torch.autocast("cuda", dtype={dtype}): ...  # and sizes that are multiples of 8',
            will_not_help="more launches in flight, CUDA graphs: the kernels themselves are slow",
        )
