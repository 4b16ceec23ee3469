"""The verdict printed by another process, which has a GIL of its own: for where a thread's C calls keep this one's.

To judge a run gives the GIL up some thousands of times, and each time such a thread has it for a whole call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from trainperf.log import log

_TRIES, _KEPT_S = 5, 0.002
_TIMEOUT_S = 60
_TOLD = "told"  # an exit status can be lost, where the program ignores or reaps its children
_PROGRAM = f"""
import json, sys
sys.path[:], encoding, path, keep, notes = json.loads(sys.argv[1])
sys.stdout.reconfigure(encoding=encoding)
from trainperf.report.console import print_verdict
from trainperf.run import Run
print_verdict(Run(path), file=sys.stdout, keep=keep, notes=notes)
print({_TOLD!r}, end="", file=sys.stderr)
"""


def gil_is_kept() -> bool:
    """Whether to have the GIL back takes 2 ms or more on average, though turns are short. Takes it five times."""
    begin = time.perf_counter()
    for _ in range(_TRIES):
        time.sleep(0)
    return time.perf_counter() - begin >= _TRIES * _KEPT_S


def print_in_child(path: str, *, keep: bool, notes: Sequence[str]) -> bool:
    """Prints to stderr as report.console.print_verdict() does. False: it did not work, or printed a part at most."""
    stderr, python = sys.stderr, sys.executable
    if stderr is None or not python or "python" not in os.path.basename(python).lower():
        return False  # where Python is embedded or frozen, that is the program itself
    import subprocess  # takes as long as the rest of `import trainperf`

    to_terminal = stderr is sys.__stderr__  # not a notebook's, or a test's
    encoding = getattr(stderr, "encoding", None) or "utf-8"
    files = [folder for folder in sys.path if isinstance(folder, str)]
    try:
        if to_terminal:
            stderr.flush()
        done = subprocess.run(
            # Isolated: it imports from where this process does, and from nowhere else.
            [python, "-I", "-c", _PROGRAM, json.dumps([files, encoding, path, keep, list(notes)])],
            stdin=subprocess.DEVNULL,
            stdout=stderr.fileno() if to_terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
        said = done.stderr.decode(errors="replace")
        if said.endswith(_TOLD):
            if not to_terminal:
                stderr.write(done.stdout.decode(encoding, "replace"))
                stderr.flush()
            return True
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: at Python's end
        said = f"{type(error).__name__}: {error}"
    log.info("this process prints the verdict, as another could not: %s", said)
    return False
