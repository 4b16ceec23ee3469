"""What DataLoader workers do, by samples of their main threads: by activity, and by line of the user's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from trainperf.findings import frames
from trainperf.findings.places import library_call
from trainperf.findings.syscalls import syscall_name, waiting_kind
from trainperf.findings.text import Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Frame, Loader

Activity = Literal["samples", "transforms", "collate", "shared memory", "queue", "idle", "other"]

_LOOP: Final = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]worker\.py$")
_FETCH: Final = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]fetch\.py$")
_COLLATE: Final = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]collate\.py$")
_QUEUE: Final = re.compile(r"[/\\](multiprocessing[/\\](queues|connection)|queue)\.py$")
_SHARES: Final = re.compile(r"_new_shared|share_memory|_share_|^reduce_")
_TRANSFORMS: Final = re.compile(
    r"[/\\](torchvision[/\\]transforms|torchaudio[/\\]transforms|albumentations|kornia|monai[/\\]transforms|imgaug)[/\\]"
)
_TRANSFORM: Final = re.compile(r"transform|augment", re.IGNORECASE)

_RUNNING: Final = frozenset({"python", "native", "unknown"})
# What a wait is for, by kind of system call.
_WAITS: Final = {
    "file": "waiting for a file",
    "socket": "waiting for the network",
    "sleep": "sleeping",
    "lock": "waiting for a lock",
    "process": "waiting for a process",
    "page": "waiting for a page of memory",
    "gil": "waiting for the GIL",
    "other": "waiting",
}


@dataclass(slots=True)
class Line:
    """A line of the user's, and what it calls there."""

    activity: Activity
    frame: Frame  # of the user's; of a library where the stack has none
    calls: str  # "PIL.Image.open"; "": its own code, or a function without Python frames
    states: Counter[str] = field(default_factory=Counter)  # samples: "CPU", or as in _WAITS

    @property
    def count(self) -> int:
        return sum(self.states.values())

    def spent(self) -> str:
        """ "waiting for a file 60%, CPU 40%"."""
        shares = ((state, n / self.count) for state, n in self.states.most_common())
        return ", ".join(f"{state} {Share(share)}" for state, share in shares if share >= limit("rare_warn_share"))


@dataclass(frozen=True, slots=True)
class Inside:
    """The samples of one loader's workers at work, or of several loaders of a kind."""

    samples: int
    activities: Counter[Activity]
    lines: Sequence[Line]  # most samples first; none of idle workers

    @property
    def busy(self) -> int:
        return self.samples - self.activities["idle"]

    @property
    def told(self) -> bool:
        """Whether there is enough to give shares of."""
        return self.busy >= limit("good_samples")

    def main(self) -> Line | None:
        """The line that most of the busy time goes to, if that is enough to name it."""
        if not self.told or not self.lines:
            return None
        return self.lines[0] if self.lines[0].count >= limit("critical_share") * self.busy else None


def inside(facts: Facts, found: Iterable[Loader]) -> Inside:
    activities: Counter[Activity] = Counter()
    lines: dict[tuple[Activity, str, int, str], Line] = {}
    for sample in (s for loader in found for s in loader.inside):
        stack = _of_worker(facts.run.stack(sample.stack))
        if not stack:
            continue
        activity = activity_of(stack)
        activities[activity] += sample.count
        if activity == "idle":
            continue
        frame = _frame(stack)
        calls = library_call(stack, frame) if frames.is_users(frame, stack) else ""
        line = lines.setdefault((activity, frame.file, frame.line, calls), Line(activity, frame, calls))
        line.states[_state(sample.state, sample.syscall, facts.machine)] += sample.count
    return Inside(sum(activities.values()), activities, sorted(lines.values(), key=lambda v: -v.count))


def _of_worker(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Without the callers of a worker's loop: of a forked one they are the training's."""
    loop = next((i for i, f in enumerate(stack) if _LOOP.search(f.file)), len(stack))
    return stack[: loop + 1]


def activity_of(stack: Sequence[Frame]) -> Activity:
    """`stack`: innermost frame first."""
    loop = next((i for i, f in enumerate(stack) if _LOOP.search(f.file)), None)
    if loop is None:
        return "other"
    below = stack[:loop]
    if _SHARES.search(" ".join(f.function.rpartition(".")[2] for f in below if "/torch/" in f.file)):
        return "shared memory"
    fetch = next((i for i, f in enumerate(below) if _FETCH.search(f.file)), None)
    if fetch is None:
        if below and _QUEUE.search(below[-1].file):
            return "idle" if below[-1].function.rpartition(".")[2] == "get" else "queue"
        return "other"
    if any(_COLLATE.search(f.file) for f in below) or frames.collating(stack) is not None:
        return "collate"
    if any(_is_transform(f, stack) for f in below[:fetch]):
        return "transforms"
    return "samples"


def _is_transform(frame: Frame, stack: Sequence[Frame]) -> bool:
    if _TRANSFORMS.search(frame.file):
        return True
    return frames.is_users(frame, stack) and _TRANSFORM.search(frame.function) is not None


def _frame(stack: Sequence[Frame]) -> Frame:
    """The innermost of the user's; else what the loader called; else the innermost."""
    for f in stack:
        if frames.is_users(f, stack):
            return f
    fetch = next((i for i, f in enumerate(stack) if _FETCH.search(f.file)), 0)
    return stack[max(0, fetch - 1)]


def _state(state: str, syscall: int, machine: str) -> str:
    if state in _RUNNING:
        return "CPU"
    if state == "gil_wait":
        return _WAITS["gil"]
    return _WAITS["page" if syscall < 0 else waiting_kind(syscall_name(syscall, machine))]
