"""Stacks and lines of other threads against what the interpreter says."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import running, truth


def blocked_deep(depth: int, lock: threading.Lock) -> None:
    if depth:
        blocked_deep(depth - 1, lock)
    else:
        with lock:
            pass


def frames_of(frame: types.FrameType | None) -> list[tuple[str, str, int]]:
    found = []
    while frame is not None:
        code = frame.f_code
        found.append((code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno))
        frame = frame.f_back
    return found


def stacks() -> dict[str, Any]:
    """A thread that stands still: what we read is what the interpreter says, by each way of reading."""
    truth.begin()

    def generator(depth: int, lock: threading.Lock) -> Iterator[None]:
        yield from (blocked_deep(depth, lock) for _ in range(1))

    names = {"größe": 1, "naïve_é中文🙂": 2}
    source = "def größe(f):\n    return (lambda: [f() for _ in range(1)])()\n"
    scope: dict[str, Any] = {}
    exec(compile(source, "/tmp/ünï/文件.py", "exec"), scope)
    result: dict[str, Any] = {"names": len(names)}
    for depth in (0, 5, 20, 60, 200):
        lock = threading.Lock()
        with lock:
            thread = threading.Thread(
                target=scope["größe"], args=(lambda d=depth, k=lock: list(generator(d, k)),), daemon=True
            )
            thread.start()
            wanted: list[tuple[str, str, int]] = []
            while wanted[:1] != [(__file__, "blocked_deep", line_of_blocked())]:
                time.sleep(0.01)
                wanted = frames_of(sys._current_frames()[thread.ident])
            time.sleep(0.05)
            for way in ("vm_read", "proc_mem"):
                seen, ns = truth.read_stacks(thread.ident, 200, way)
                ((stack, times),) = seen.items()
                got = truth.stack(stack)
                key = f"{depth}_{way}"
                result[key] = {"equal": got == wanted[:96], "depth": len(wanted), "ns": ns, "times": times}
                if got != wanted[:96]:
                    result[key].update(got=got[:12], wanted=wanted[:12])
        thread.join()
    with contextlib.suppress(RuntimeError):
        truth.read_stacks(threading.get_ident(), 1, "none")
        result["none"] = "read"
    truth.end()
    return result


def deep_through_c() -> dict[str, Any]:
    """A thread that stands still 90 calls deep, each through C: whose frames spread over the C stack."""
    truth.begin()

    def down(depth: int, stop: threading.Event) -> object:
        return next(map(down, (depth - 1,), (stop,))) if depth else stop.wait()

    with running(lambda stop: down(90, stop)):
        (thread,) = (t for t in threading.enumerate() if t is not threading.current_thread())
        time.sleep(0.05)
        seen, _ = truth.read_stacks(thread.ident, 200, "vm_read")
        wanted = frames_of(sys._current_frames()[thread.ident])
    truth.end()
    return {"rejected": seen.pop(0, 0), "right": [truth.stack(stack) == wanted[:96] for stack in seen]}


def line_of_blocked() -> int:
    return blocked_deep.__code__.co_firstlineno + 4


def lines() -> dict[str, Any]:
    """The lines of all instructions of much of the standard library."""
    checked = wrong = 0

    def check(code: types.CodeType) -> None:
        nonlocal checked, wrong
        for start, end, line in code.co_lines():
            if start == end:
                continue
            for offset in (start, end - 2):
                checked += 1
                wanted = -1 if line is None else line
                wrong += truth.line_of(code.co_linetable, code.co_firstlineno, offset) != wanted
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                check(constant)

    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:80]:
        check(compile(path.read_bytes(), str(path), "exec"))
    return {"checked": checked, "wrong": wrong}


def astray() -> dict[str, Any]:
    """What a garbage pointer to a frame leads to: the sampler must not follow it."""
    return {"led": truth.led_astray()}


def torn() -> dict[str, Any]:
    """Stacks of threads that make and free code and frames as fast as they can."""
    truth.begin()

    def churn(stop: threading.Event) -> None:
        i = 0
        while not stop.is_set():
            i += 1
            scope: dict[str, Any] = {}
            body = "    return f(n - 1) if n else (lambda: n)()\n"
            exec(compile(f"def f(n):\n{chr(10) * (i % 50)}{body}", f"<made {i % 97}>", "exec"), scope)
            scope["f"](i % 60)
            sum(x for x in range(i % 5))

    counts = {"read": 0, "rejected": 0, "implausible": 0}
    with running(churn, churn):
        others = [t for t in threading.enumerate() if t is not threading.current_thread()]
        for _ in range(10):
            for thread in others:
                seen, _ = truth.read_stacks(thread.ident, 4000, "vm_read")
                for stack, times in seen.items():
                    counts["read"] += times
                    counts["rejected"] += times if stack == 0 else 0
                    for file, _, line in truth.stack(stack):
                        known = file.startswith(("<made", "<frozen")) or file.endswith(".py")
                        counts["implausible"] += not (known and 0 <= line < 100_000)
    truth.end()
    return counts


def other_layouts() -> dict[str, Any]:
    """As a distribution's patch would have them: from a stack of several functions and lines."""
    truth.begin()

    def deep(depth: int) -> dict[str, Any]:
        if depth:
            return deep(depth - 1)
        return {str(by): truth.said_of_other_layouts(by) for by in (8, 16)}

    return deep(5)
