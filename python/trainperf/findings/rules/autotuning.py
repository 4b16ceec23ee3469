"""TP514: kernels are tuned by trial while steps run: cuDNN's benchmark mode, Triton's and Inductor's autotuners."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import gpu
from trainperf.findings.facts import ms
from trainperf.findings.model import Abstained, Cell, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.text import NOTHING
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu
    from trainperf.runfile import Detail, Frame

# Functions that time candidates and do nothing else. Their callers also launch the kernel that was found, each step.
_TUNERS: Final = (
    (re.compile(r"triton[/\\]runtime[/\\]autotuner\.py$"), {"_bench", "benchmark"}, "Triton"),
    (re.compile(r"triton[/\\]testing\.py$"), {"do_bench", "do_bench_cudagraph"}, "Triton"),
    (
        re.compile(r"torch[/\\]_inductor[/\\]runtime[/\\]triton_heuristics\.py$"),
        {"bench", "benchmark_all_configs", "autotune_to_one_config", "coordinate_descent_tuning"},
        "Inductor",
    ),
    (
        re.compile(r"torch[/\\]_inductor[/\\]runtime[/\\]benchmarking\.py$"),
        {"benchmark", "benchmark_gpu", "benchmark_gpu_with_cuda_graph"},
        "Inductor",
    ),
    (
        re.compile(r"torch[/\\]_inductor[/\\]select_algorithm\.py$"),
        {"do_autotuning", "autotune", "benchmark_choices", "benchmark_in_current_process", "benchmark_in_sub_process"},
        "Inductor",
    ),
)
# A convolution waits for the device only to time its algorithms (or when device memory has run out).
_CONV: Final = re.compile(r"torch[/\\]nn[/\\]modules[/\\]conv\.py$")
_CONV_OPS: Final = re.compile(r"aten::(cudnn_convolution|convolution_backward)")
_FIXES: Final = {
    "cuDNN": "torch.backends.cudnn.benchmark = False  # or pad batches to a few shapes",
    "Triton": "# fewer distinct shapes in @triton.autotune(key=[...]): pad, or round the key up; cache_results=True",
    "Inductor": "torch.compile(model, dynamic=True)  # or pad to a few shapes; mode without 'max-autotune'",
}
_MECHANISMS: Final = {  # what a sample or a call was, as the step's time is told
    "python": "python", "native": "native", "parallel": "native", "blocked": "blocked",
    "stream_sync": "gpu_wait", "event_sync": "gpu_wait", "device_sync": "gpu_wait", "queue_full": "gpu_wait",
    "launch_kernel": "launch", "launch_graph": "launch", "memset": "launch", "memcpy": "copy",
    "alloc": "cuda_alloc", "free": "cuda_alloc", "pinned_alloc": "cuda_alloc", "pinned_free": "cuda_alloc",
    "module_load": "module_load", "jit": "module_load",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tuned:
    detail: Detail
    by: str


class Autotuning(DeviceRule):
    id = "TP514"
    slug = "autotuning"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        details = [d for kind in ("sample", "call") for d in facts.run.details(kind)]
        if not any(d.stack for d in details):
            return Abstained(self.id, self.slug, "no sample says in which function the training thread was")
        found = list(_tuned(facts, details, retried=device.calls("alloc").failed > 0))
        claims = _claims(facts, found)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        # What only the first half has is a warm-up.
        sections = facts.run.sections
        late = {section.index for section in sections[len(sections) // 2 :]}
        late_ns = sum(t.detail.ns for t in found if t.detail.section in late)
        lasts = facts.share(2 * late_ns) >= self.limits.warn
        tuners = {t.by: sum(u.detail.ns for u in found if u.by == t.by) for t in found}
        most = max(tuners, key=lambda by: tuners[by])
        spots = facts.spots(t.detail for t in found)
        top = spots[0] if spots else None
        samples = sum(t.detail.count for t in found)
        return facts.finding(
            (self.id, self.slug),
            severity=severity if lasts else "info",
            cause="gpu_wait",
            claims=claims,
            by_device=False,
            title=f"{most} tunes kernels again and again" if lasts else f"{most} tuned kernels at the run's start",
            affected=min(max(t.detail.steps for t in found) if not lasts else facts.steps, facts.steps),
            confidence=facts.confidence(samples=samples, doubts=device.doubts),
            evidence=(
                *(f"{ms(ns)} in the autotuner of {by}" for by, ns in sorted(tuners.items(), key=lambda x: -x[1])),
                f"{ms(late_ns)} of it in the run's second half" if lasts else "hardly any in the run's second half",
                "each new shape of input is tuned once more: shapes keep changing" if lasts else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{most} tries out kernels" + (f" for {facts.label(top)}" if top is not None else ""),
            fix=_FIXES[most] if lasts else NOTHING,
            fix_share=1.0 if lasts else 0.0,
            will_not_help="a larger batch, more DataLoader workers",
        )


def _tuned(facts: Facts, details: Sequence[Detail], *, retried: bool) -> Iterator[_Tuned]:
    for detail in details:
        stack = facts.run.stack(detail.stack) if detail.stack else ()
        by = _tuner(stack)
        if not by and not retried and detail.kind == "call" and detail.state in gpu.SYNCS and _in_convolution(stack):
            by = "cuDNN"
        if by:
            yield _Tuned(detail, by)


def _tuner(stack: Sequence[Frame]) -> str:
    for frame in stack:
        for file, functions, by in _TUNERS:
            if frame.function in functions and file.search(frame.file):
                return by
    return ""


def _in_convolution(stack: Sequence[Frame]) -> bool:
    if not stack:
        return False
    return _CONV.search(stack[0].file) is not None or _CONV_OPS.match(stack[0].function) is not None


def _claims(facts: Facts, found: Sequence[_Tuned]) -> dict[Cell, int]:
    """Its time by (phase, mechanism), as far as nobody has told that."""
    claims: dict[Cell, int] = {}
    for tuned in found:
        cell = (tuned.detail.phase, _MECHANISMS.get(tuned.detail.state, "unknown"))
        claims[cell] = claims.get(cell, 0) + tuned.detail.ns
    return {cell: ns for cell, n in claims.items() if (ns := min(n, facts.ledger.left(cell))) > 0}
