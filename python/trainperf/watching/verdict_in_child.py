"""The verdict told by another process, which has a GIL of its own: for where a thread's C calls keep this one's.

To judge a run gives the GIL up some two thousand times, and each time such a thread has it for a whole call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from trainperf.log import log

_TRIES, _KEPT_S = 5, 0.002
_TIMEOUT_S = 60
_PROGRAM = """
import json, sys
sys.path[:], path, keep, notes = json.loads(sys.argv[1])
from trainperf.report.console import print_verdict
from trainperf.run import Run
print_verdict(Run(path), file=sys.stdout, keep=keep, notes=notes)
"""


def gil_is_kept() -> bool:
    """Whether to have the GIL back takes 2 ms or more on average, though turns are short. Takes it five times."""
    begin = time.perf_counter()
    for _ in range(_TRIES):
        time.sleep(0)
    return time.perf_counter() - begin >= _TRIES * _KEPT_S


def print_in_child(path: str, *, keep: bool, notes: Sequence[str]) -> bool:
    """Prints to stderr as report.console.print_verdict() does. False: it did not work, or printed a part at most."""
    import subprocess  # takes as long as the rest of `import trainperf`

    to_terminal = sys.stderr is not None and sys.stderr is sys.__stderr__  # not a notebook's, or a test's
    try:
        if to_terminal:
            sys.stderr.flush()
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps([sys.path, path, keep, list(notes)])],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if to_terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: at Python's end
        said = getattr(error, "stderr", None) or b""
        log.info("the verdict is told in this process: %s %s", error, said.decode(errors="replace"))
        return False
    if not to_terminal:
        print(done.stdout.decode(errors="replace"), end="", file=sys.stderr, flush=True)
    return True
