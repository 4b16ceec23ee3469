"""The words of findings about the run as a whole: what is slower in a part of it, or grows, or is done once."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_UNEVEN: Final = Message(
    title="{part} runs {ratio:.1f} times slower than the rest[[mostly?, because of {cause}]]"
    "[[!mostly?; {cause} is {share} of the difference]]",
    why="in steps {first} to {last} {cause} takes {cause_inside} a step, elsewhere {cause_outside}"
    "[[ ({holder} in {place})]]",
    evidence=(
        "steps {first} to {last}: median {inside}; the others: {outside}",
        "{cause} is {share} of the difference",
        "other processes used {cpus:.1f} CPUs then, and {cpus_elsewhere:.1f} in the rest of the run",
        "at the others' pace the run would take {excess} less ({excess_share})",
    ),
    fix="# {hint}",
    will_not_help="what speeds up every step alike: that part stays slower than the rest",
)

MESSAGES: Final[Messages] = {
    "TP401": {
        "mostly": _UNEVEN,
        "partly": _UNEVEN,
        "busier": _UNEVEN.but(fix="# it may be CPUs that others use, which are slower (caches, clock); or {hint}"),
    },
}

TEXTS: Final = {
    "first_part": "the first {of} of the run",
    "last_part": "the last {of} of the run",
    "stretch": "the stretch of steps {first} to {last}",
    "may_be_the_machine": "it may be the machine",
    # What to look for in a slower part, by cause.
    "uneven_gil_wait": "look for a thread that runs Python in that part: a prefetch, a preload, an upload",
    "uneven_data_wait": "cold caches, or larger samples in that part: warm the cache, or shuffle",
    "uneven_descheduled": "something else used the CPUs then: a start-up, a preprocessing job",
    "uneven_throttled": "the quota was used up then",
    "uneven_python": "the loop's own code does more then",
    "uneven_blocked_io": "the loop waited for a lock, a file or the network then",
    "uneven_gpu_wait": "the GPU has more to do then (longer inputs, larger batches), or takes longer for the same (its "
    "clock)",
    "uneven_compute": "more work then (longer inputs or lists, larger batches), or the same on slower CPUs "
    "(clock, caches)",
    "uneven_other": "look at {cause} in steps {first} to {last}",
}

UNSURE: Final[Doubts] = {
    "uneven_few_steps": "{steps:step} [[several?are]][[!several?is]] too few to compare parts of the run",
    "uneven_by_chance": "steps differ as much in random order: steps {first} to {last} may be slower by chance",
    "uneven_unexplained": "no cause explains why steps {first} to {last} are slower",
    "uneven_short": "steps {first} to {last} are slower for {seconds:.1f} s only: it may be the machine, run longer",
}
