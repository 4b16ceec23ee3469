"""Scenarios for the GIL probes, for any CPython, without torch. `python gil_scenarios.py MODULE_DIR NAME` prints JSON.

A process each, since they fork, exit in the middle and leave threads behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])
import gil_truth as truth

GIL_WAIT, SAMPLE, HOLD = 3, 4, 5  # EventKind
TAKE, HAND_OFF, ESTIMATE = 0, 1, 2  # GilWaitKind
STATES = ("python", "native", "parallel", "blocked", "gil_wait", "unknown")


def pin(cpu: int) -> None:
    cpus = sorted(os.sched_getaffinity(os.getpid()))
    os.sched_setaffinity(0, {cpus[cpu % len(cpus)]})


@contextlib.contextmanager
def running(*bodies: Callable[[threading.Event], None]) -> Iterator[None]:
    """Each body on its own thread, told by an event when to stop."""
    stop = threading.Event()
    threads = [threading.Thread(target=body, args=(stop,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def hog(hold_ns: int, away_ns: int, cpu: int) -> Callable[[threading.Event], None]:
    def hog_body(stop: threading.Event) -> None:
        pin(cpu)
        while not stop.is_set():
            truth.spin(hold_ns)  # MARK hold
            if away_ns:
                truth.spin_without_gil(away_ns)

    return hog_body


def line_of_mark(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (i for i, text in enumerate(lines, 1) if text.endswith(f"# MARK {mark}"))
    return number


def compare(count: int, away_ns: int, *hogs: Callable[[threading.Event], None]) -> dict[str, Any]:
    """The probe's sum of waits against the natively timed one, on this thread."""
    pin(0)
    truth.begin()
    truth.install()
    truth.watch_this_thread()
    with running(*hogs):
        truth.spin_without_gil(20_000_000)
        truth.drain_rings()
        sum_ = truth.timed_acquires(count, away_ns)
        events = truth.drain_rings()
        me = truth.this_thread()
        totals = truth.threads()[me]
    stats = truth.waits_stats()
    truth.uninstall()
    inside = [e for e in events if e["kind"] == GIL_WAIT and sum_.begin_ns <= e["start_ns"] < sum_.end_ns]
    take = [e for e in inside if e["what"] == TAKE]
    threads = truth.threads()
    where: dict[str, int] = {}
    for e in take:
        frames = truth.stack(e["stack"])
        if frames:
            key = f"{Path(frames[0][0]).name}:{frames[0][1]}:{frames[0][2]}:{len(frames)}"
            where[key] = where.get(key, 0) + e["end_ns"] - e["start_ns"]
    truth.end()
    probe_ns = sum(e["end_ns"] - e["start_ns"] for e in take)
    return {
        "truth_ns": sum_.take_ns,
        "probe_ns": probe_ns,
        "count": count,
        "events": len(take),
        "hand_off_truth_ns": sum_.release_ns,
        "hand_off_ns": sum(e["end_ns"] - e["start_ns"] for e in inside if e["what"] == HAND_OFF),
        "hand_offs": sum(e["what"] == HAND_OFF for e in inside),
        "diff": (probe_ns - sum_.take_ns) / sum_.take_ns,
        "per_acquire_ns": (probe_ns - sum_.take_ns) / count,
        "where": where,
        "mark": line_of_mark("hold"),
        "held_by": {str(threads[e["object"]][0]): 1 for e in take if e["object"]},
        "self": os.getpid(),
        "run_delay_ns": sum(e["run_delay_ns"] for e in take),
        "total_ns": totals[2],
        "stats": stats,
    }


def truth_20ms() -> dict[str, Any]:
    return compare(25, 1_000_000, hog(20_000_000, 0, 1))


def truth_2ms() -> dict[str, Any]:
    return compare(300, 200_000, hog(2_000_000, 50_000, 1))


def truth_100us() -> dict[str, Any]:
    return compare(2_000, 20_000, hog(100_000, 20_000, 1))


def truth_two_hogs() -> dict[str, Any]:
    return compare(40, 1_000_000, hog(6_000_000, 0, 1), hog(3_000_000, 0, 1))


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


def short_lived_threads() -> dict[str, Any]:
    """Threads come and go while others contend: nobody's wait is lost, and ids are not mixed up."""
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    with running(hog(200_000, 50_000, 1)):
        for _ in range(150):
            threads = [threading.Thread(target=truth.spin, args=(100_000,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    tids = [tid for tid, *_ in truth.threads().values()]
    result = {"threads": len(tids), "without_tid": tids.count(0), "sampler": truth.sampler_stats()}
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return result


def forks() -> dict[str, Any]:
    """Children are forked while threads fight for the GIL in the hook; they use the GIL, and end well."""
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    failed = []
    with running(hog(100_000, 10_000, 0), hog(50_000, 5_000, 1)):
        for i in range(200):
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                child = threading.Thread(target=truth.spin, args=(200_000,))
                child.start()
                truth.spin_without_gil(1000)
                child.join()
                if i % 2:
                    truth.uninstall()
                    truth.stop_sampler()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            if status:
                failed.append(status)
    calls = truth.waits_stats()["hook_calls"]
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return {"failed": failed, "hook_calls": calls}


def fork_watches_again() -> dict[str, Any]:
    """A child may begin a watch of its own."""
    truth.begin()
    truth.install()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        truth.uninstall()
        result = compare(50, 100_000, hog(1_000_000, 10_000, 1))
        os._exit(0 if abs(result["diff"]) < 0.02 and result["events"] > 20 else 1)
    _, status = os.waitpid(pid, 0)
    truth.uninstall()
    truth.end()
    return {"status": status}


def exit_child() -> dict[str, Any]:
    """Exits with daemon threads in the hook and nothing taken out."""
    truth.begin()
    truth.install()
    truth.start_sampler(300_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    for i in range(3):
        threading.Thread(target=hog(50_000 * (i + 1), 20_000, i), args=(threading.Event(),), daemon=True).start()
    truth.spin_without_gil(3_000_000)
    return {"done": True}


def exits() -> dict[str, Any]:
    failed = []
    for _ in range(60):
        done = subprocess.run(
            [sys.executable, __file__, sys.argv[1], "exit_child"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if done.returncode or done.stderr:
            failed.append((done.returncode, done.stderr[-300:]))
    return {"failed": failed[:3], "failures": len(failed)}


def installs() -> dict[str, Any]:
    """Installed and taken out again under contention; nothing is recorded, and nothing patched, in between."""
    library = ctypes.CDLL(None)
    truth.begin()
    slots = []
    with running(hog(100_000, 10_000, 0), hog(50_000, 5_000, 1)):
        for _ in range(10):
            truth.install()
            truth.watch_this_thread()
            truth.timed_acquires(20, 1000)
            truth.uninstall()
            truth.drain_rings()
            truth.timed_acquires(20, 1000)
            slots.append(len(truth.drain_rings()))
        truth.install()
        second = ""
        try:
            truth.install()
        except RuntimeError as error:
            second = str(error)
        truth.uninstall()
    open_waits = [since for *_, since in truth.threads().values() if since]
    truth.end()
    return {"after_uninstall": sum(slots), "second": second, "open_waits": open_waits, "libc": bool(library)}


def hold_shares() -> dict[str, Any]:
    """The sampler against two hogs of known shares, each on its own core, that rarely meet."""
    truth.begin()
    held = {}

    def measured(name: str, hold_ns: int, away_ns: int, cpu: int) -> Callable[[threading.Event], None]:
        def body(stop: threading.Event) -> None:
            pin(cpu)
            total = 0
            while not stop.is_set():
                begin = truth.now_ns()
                truth.spin(hold_ns)
                total += truth.now_ns() - begin
                truth.spin_without_gil(away_ns)
            held[name] = (threading.get_native_id(), total)

        return body

    truth.start_sampler(1_000_000)
    begin = truth.now_ns()
    with running(measured("long", 3_000_000, 7_000_000, 0), measured("short", 300_000, 2_100_000, 1)):
        truth.drain_sampler()
        time.sleep(3)
    wall = truth.now_ns() - begin
    events = truth.drain_sampler()
    stats = truth.sampler_stats()
    truth.stop_sampler()
    threads = truth.threads()
    sampled: dict[int, int] = {}
    for e in events:
        if e["kind"] == HOLD:
            tid = threads[e["object"]][0]
            sampled[tid] = sampled.get(tid, 0) + e["end_ns"] - e["start_ns"]
    truth.end()
    return {
        name: {"true": total / wall, "sampled": sampled.get(tid, 0) / wall} for name, (tid, total) in held.items()
    } | {"stats": stats, "wall_ns": wall}


def procfs() -> dict[str, Any]:
    """The estimate of waits without the hook, against the timed truth."""
    pin(0)
    truth.begin()
    truth.watch_this_thread()
    truth.start_sampler(1_000_000, estimate_waits=True)
    truth.watch(truth.this_thread())
    with running(hog(2_000_000, 500_000, 1)):
        truth.spin_without_gil(20_000_000)
        truth.drain_sampler()
        sum_ = truth.timed_acquires(700, 1_500_000)
        events = truth.drain_sampler()
    stats = truth.sampler_stats()
    truth.stop_sampler()
    waits = [e for e in events if e["kind"] == GIL_WAIT]
    wall = sum_.end_ns - sum_.begin_ns
    names = {frames[0][1].rpartition(".")[2] for e in waits if (frames := truth.stack(e["stack"]))}
    truth.end()
    return {
        "true": sum_.take_ns / wall,
        "estimated": sum(e["end_ns"] - e["start_ns"] for e in waits) / wall,
        "whats": sorted({e["what"] for e in waits}),
        "names": sorted(names),
        "stats": stats,
    }


def spin_in_python(until_ns: int) -> int:
    x = 0
    while truth.now_ns() < until_ns:
        for _ in range(500):
            x += 1
    return x


def states() -> dict[str, Any]:
    """What the watched thread is seen doing, in four acts; and its stack."""
    truth.begin()
    truth.install()
    truth.start_sampler(1_000_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    lock = threading.Lock()
    lock.acquire()

    def act(body: Callable[[], object]) -> dict[str, Any]:
        truth.drain_sampler()
        body()
        events = [e for e in truth.drain_sampler() if e["kind"] == SAMPLE]
        seen: dict[str, int] = {}
        functions: dict[str, int] = {}
        for e in events:
            state = STATES[e["what"]]
            seen[state] = seen.get(state, 0) + 1
            names = [name.rpartition(".")[2] for _, name, _ in truth.stack(e["stack"])]
            for name in set(names):
                functions[name] = functions.get(name, 0) + 1
        return {
            "samples": len(events),
            "seen": seen,
            "functions": functions,
            "codes": {str(e["value"]) for e in events},
        }

    result: dict[str, Any] = {
        "python": act(lambda: spin_in_python(truth.now_ns() + 300_000_000)),
        "native": act(lambda: truth.spin_without_gil(300_000_000)),
        "sleep": act(lambda: time.sleep(0.3)),
        "lock": act(lambda: lock.acquire(timeout=0.3)),
    }
    with running(hog(20_000_000, 0, 1)):
        result["gil_wait"] = act(lambda: truth.timed_acquires(15, 1_000))
    for value in result.values():
        value["codes"] = sorted(value["codes"])
    result["stats"] = truth.sampler_stats()
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return result


def deep_cost() -> dict[str, Any]:
    """What a tick costs with 20 frames on both stacks."""
    truth.begin()
    truth.start_sampler(4_000_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())

    def down(depth: int, body: Callable[[], object]) -> object:
        return down(depth - 1, body) if depth else body()

    def deep_hog(stop: threading.Event) -> None:
        def body() -> None:
            while not stop.is_set():
                truth.spin(300_000)

        down(20, body)

    costs = []
    with running(deep_hog):
        for _ in range(4):
            before = truth.sampler_stats()
            down(20, lambda: [truth.spin_without_gil(300_000) for _ in range(700)])
            after = truth.sampler_stats()
            costs.append((after["cpu_ns"] - before["cpu_ns"]) / (after["samples"] - before["samples"]))
    stats = truth.sampler_stats()
    truth.stop_sampler()
    truth.end()
    return {"ns_per_tick": costs, "stats": stats}


def no_gil_to_look_at() -> dict[str, Any]:
    """Without a look at the GIL, states and stacks of the watched thread are still there."""
    truth.begin()
    truth.start_sampler(1_000_000, look_at_gil=False)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())
    time.sleep(0.2)
    events = truth.drain_sampler()
    truth.stop_sampler()
    stacks_read = sum(1 for e in events if any(name == "no_gil_to_look_at" for _, name, _ in truth.stack(e["stack"])))
    truth.end()
    return {"kinds": sorted({e["kind"] for e in events}), "samples": len(events), "stacks": stacks_read}


def cost() -> dict[str, Any]:
    """An uncontended release and acquire, and how fast two threads fight for the GIL, with the hook and without."""
    pin(0)
    truth.begin()

    def throughput() -> float:
        counts = [0, 0]

        def fight(index: int) -> Callable[[threading.Event], None]:
            def body(stop: threading.Event) -> None:
                pin(index)
                n = 0
                while not stop.is_set():
                    truth.spin(20_000)
                    truth.spin_without_gil(10_000)
                    n += 1
                counts[index] = n

            return body

        begin = truth.now_ns()
        with running(fight(0), fight(1)):
            time.sleep(0.4)
        return sum(counts) / (truth.now_ns() - begin)

    pairs: dict[str, list[float]] = {"without": [], "with": []}
    rates: dict[str, list[float]] = {"without": [], "with": []}
    for rounds, measure, into in ((20, lambda: truth.uncontended_ns(20_000), pairs), (5, throughput, rates)):
        for _ in range(rounds):
            into["without"].append(measure())
            truth.install()
            into["with"].append(measure())
            stats = truth.waits_stats()
            truth.uninstall()
    truth.end()

    def middle(values: list[float]) -> float:
        return sorted(values)[len(values) // 2]

    return {
        "uncontended_ns": {name: middle(values) for name, values in pairs.items()},
        "throughput_ratio": middle([b / a for a, b in zip(rates["without"], rates["with"], strict=True)]),
        "cost_per_call_ns": stats["cost_ns"] / max(1, stats["hook_calls"]),
        "stats": stats,
    }


def subinterpreter() -> dict[str, Any]:
    """Threads of a legacy sub-interpreter share the GIL; nothing breaks, and the main one's waits are still timed."""
    import importlib

    try:
        interpreters: Any = importlib.import_module("_xxsubinterpreters")
    except ImportError:
        interpreters = importlib.import_module("_interpreters")
    truth.begin()
    truth.install()
    truth.start_sampler(500_000)
    truth.watch_this_thread()
    truth.watch(truth.this_thread())

    def churn(stop: threading.Event) -> None:
        while not stop.is_set():
            made = interpreters.create()
            interpreters.run_string(made, "x = sum(range(20000))")
            interpreters.destroy(made)

    with running(churn):
        for _ in range(300):
            truth.spin(1_000_000)
            truth.spin_without_gil(1_000_000)
    calls = truth.waits_stats()["hook_calls"]
    truth.stop_sampler()
    truth.uninstall()
    truth.end()
    return {"hook_calls": calls}


if __name__ == "__main__":
    outcome = globals()[sys.argv[2]]()
    if sys.argv[2] != "exit_child":
        print(json.dumps(outcome))
