"""Each rule on a run made by hand: what it must say, and a twin about which it must be silent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.findings.engine import Findings, cost_text, find
from trainperf.findings.model import Finding

Make = Callable[..., RunFile]
TRAIN = "/home/me/job/train.py"
LINUX = "Linux-6.1.0-x86_64-with-glibc2.36"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(**meta: str) -> RunFile:
        return RunFile(tmp_path / "a.tpr", **({"cwd": "/home/me/job", "platform": LINUX, "cpus": "4"} | meta))

    return build


def said(file: RunFile) -> Findings:
    with file.open() as run:
        return find(run)


def only(file: RunFile) -> Finding:
    """The one warning or critical."""
    found = [f for f in said(file).findings if f.severity != "info"]
    assert [f.slug for f in found] == [found[0].slug] if found else found, found
    assert found, said(file).verdict
    return found[0]


def loud(file: RunFile) -> list[str]:
    return [f.slug for f in said(file).findings if f.severity != "info"]


# Data


def test_data_starved_names_the_users_line_and_says_that_it_computes(make: Make) -> None:
    file = make()
    at = file.stack(f"{TRAIN}:41 Slow.__getitem__", "/x/site-packages/torch/utils/data/_utils/fetch.py:54 fetch")
    file.steps(100, {("fetch", "python"): 5.0, ("fetch", "native"): 1.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, dataset="Slow", dataset_at=f"{TRAIN}:39")
    file.detail("sample", 590, phase="fetch", state="python", stack=at)
    f = only(file)
    assert (f.id, f.severity, f.where) == ("TP101", "critical", "train.py:41")
    assert f.share == pytest.approx(0.5) and f.cost_ms_per_step == pytest.approx(6.0)
    assert "Slow.__getitem__ (train.py:41) computes" in f.why
    assert "num_workers=2" in f.fix and "pin_memory" in f.will_not_help
    assert f.confidence == "high"


def test_data_starved_says_what_it_waits_in(make: Make) -> None:
    file = make()
    at = file.stack(f"{TRAIN}:44 Slow.__getitem__")
    file.steps(100, {("fetch", "blocked"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, dataset="Slow")
    file.detail("sample", 590, phase="fetch", state="blocked", stack=at, code=17)
    f = only(file)
    assert f.id == "TP101" and "waits (file: pread64)" in f.why and "faster CPU" in f.will_not_help


def test_data_starved_names_the_dataset_where_no_sample_does(make: Make) -> None:
    """By what the hook really writes of a loader."""
    data = pytest.importorskip("torch.utils.data")
    from trainperf.hooks.describe import describe_loader

    class Slow(data.Dataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> int:
            return index

        def __len__(self) -> int:
            return 8

    file = make(cwd=str(Path(__file__).parent)).steps(100, {("fetch", "python"): 6.0}, compute=6.0)
    file.loader(1, fetches=100, wait=600, **describe_loader(data.DataLoader(Slow())))
    assert only(file).where == f"test_findings.py:{Slow.__getitem__.__code__.co_firstlineno}"


def test_data_starved_on_one_cpu_does_not_advise_workers(make: Make) -> None:
    file = make(cpus="1").steps(50, {("fetch", "python"): 6.0}, compute=6.0)
    file.loader(1, fetches=50, wait=300)
    assert "num_workers" in only(file).will_not_help


def test_a_small_in_process_fetch_is_no_warning(make: Make) -> None:
    file = make().steps(500, {("fetch", "python"): 0.3}, compute=1.1)
    file.loader(1, fetches=500, wait=150)
    found = said(file)
    assert [(f.id, f.severity) for f in found.findings] == [("TP101", "info")]
    assert found.verdict.finding == "" and "compute-bound" in found.verdict.text


@pytest.mark.parametrize(
    ("share", "cpus", "expected"),
    [
        (0.97, "8", ("compute all the time", "num_workers=4", "pin_memory")),
        (0.97, "2", ("2 CPUs", "cheaper", "more workers")),
        (0.05, "8", ("wait themselves", "num_workers=", "cheaper transforms")),
    ],
)
def test_workers_too_slow(make: Make, share: float, cpus: str, expected: tuple[str, str, str]) -> None:
    says, fix, wont = expected
    file = make(cpus=cpus).steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=2, dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=share, seconds=2, states={"R": 3} if share > 0.5 else {"S": 2, "D": 1})
    f = only(file)
    assert f.id == "TP102" and f.where == "train.py:9"
    assert says in f.why and fix in f.fix and wont in f.will_not_help
    assert f.cost_ns == 800_000_000


def test_workers_that_are_kept_from_the_cpus_are_not_said_to_wait(make: Make) -> None:
    file = make(cpus="8").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=1)
    file.worker(1, 71, cpu_share=0.3, seconds=5, states={"R": 9, "S": 1})
    f = only(file)
    assert "get a CPU only 30%" in f.why and "more workers" in f.will_not_help


def test_workers_that_were_not_seen_lower_the_confidence(make: Make) -> None:
    file = make().steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2)
    assert only(file).confidence == "medium"


def test_ready_but_not_delivered_names_who_holds_the_gil(make: Make) -> None:
    file = make()
    hog = file.thread("pin_memory")
    at = file.stack("/x/site-packages/torch/utils/data/_utils/pin_memory.py:60 pin_memory", f"{TRAIN}:7 pin")
    file.steps(100, {("fetch", "gil_wait"): 6.0, ("fetch", "blocked"): 2.0}, compute=10.0)
    file.loader(1, fetches=100, wait=800, gil_wait=600, ready={2: (100, 800)}, num_workers=2, pin_memory=True)
    file.detail("gil_wait", 600, phase="fetch", thread=hog, stack=at)
    f = only(file)
    assert f.id == "TP103" and "pin_memory holds the GIL" in f.why and "more workers" in f.will_not_help
    assert f.cost_ns == 800_000_000


def test_a_hog_that_is_everywhere_is_not_told_as_delivery(make: Make) -> None:
    file = make()
    hog = file.thread("hog")
    file.steps(100, {("fetch", "gil_wait"): 3.0, ("fetch", "native"): 1.5, ("forward", "gil_wait"): 9.0}, compute=5.0)
    file.loader(1, fetches=100, wait=450, gil_wait=300, ready={2: (100, 450)}, num_workers=2)
    file.detail("gil_wait", 1200, thread=hog)
    assert loud(file) == ["gil-hog"]


def test_deserialising_is_no_starvation(make: Make) -> None:
    file = make().steps(300, {("fetch", "native"): 1.5}, compute=1.5)
    file.loader(1, fetches=300, wait=450, ready={2: (300, 450)}, num_workers=2)
    assert [(f.slug, f.severity) for f in said(file).findings] == [("delivery-cost", "info")]


def test_worker_startup_counts_its_steps_and_never_says_typical(make: Make) -> None:
    file = make()
    for step in range(24):
        start = step % 12 == 0
        file.step(data_wait=900.0 if start else 0.1, compute=4.0)
        if start:
            file.span("loader_start", 300, step=step, object=1)
            file.span("first_fetch", 600, step=step, object=1)
    file.loader(1, fetches=22, wait=2.2, ready={2: (22, 2.2)}, first=(2, 1200), num_workers=2, persistent_workers=False)
    found = said(file)
    f = only(file)
    assert f.id == "TP104" and "persistent_workers=True" in f.fix and "more workers" in f.will_not_help
    assert "2 of 24 steps" in found.verdict.text and "900 ms each" in found.verdict.text
    assert "typical" not in found.verdict.text


def test_stopping_the_workers_belongs_to_starting_them(make: Make) -> None:
    file = make()
    for step in range(24):
        file.step(data_wait={0: 500.0, 11: 300.0, 12: 500.0, 23: 300.0}.get(step, 0.1), compute=4.0)
        if step in (0, 12):
            file.span("first_fetch", 500, step=step, object=1)
    file.loader(1, fetches=22, wait=2, ready={2: (22, 2)}, first=(2, 1000), num_workers=1)
    f = only(file)
    assert (
        f.id == "TP104"
        and f.cost_ns == pytest.approx(1600e6, rel=0.01)
        and any("to stop them" in e for e in f.evidence)
    )


def test_one_start_up_of_persistent_workers_is_no_warning(make: Make) -> None:
    file = make()
    file.step(data_wait=900.0, compute=4.0, flags=16)
    file.steps(40, compute=4.0, data_wait=0.1)
    file.span("first_fetch", 900, step=0, object=1)
    file.loader(1, fetches=40, wait=4, ready={2: (40, 4)}, first=(1, 900), num_workers=2, persistent_workers=True)
    assert loud(file) == []


# The GIL


def test_gil_hog_names_thread_function_and_line(make: Make) -> None:
    file = make()
    hog = file.thread("metrics-writer")
    at = file.stack("/usr/lib/python3.11/json/encoder.py:200 JSONEncoder.encode", f"{TRAIN}:88 dump_metrics")
    file.steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=hog, stack=at)
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP201", "train.py:88", ("metrics-writer",))
    assert "json.encoder.JSONEncoder.encode called by dump_metrics" in f.why
    assert "more DataLoader workers" in f.will_not_help


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ((f"{TRAIN}:88 index.<locals>.<genexpr>", f"{TRAIN}:89 build"), "submit(index, ...)"),
        ((f"{TRAIN}:88 <genexpr>", f"{TRAIN}:89 Exporter.build"), "submit(build, ...)"),
        ((f"{TRAIN}:88 <module>",), "submit(your_function, ...)"),
    ],
)
def test_the_snippet_calls_a_function_that_has_a_name(make: Make, frames: tuple[str, ...], call: str) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=file.thread("writer"), stack=file.stack(*frames))
    assert call in only(file).fix


@pytest.mark.parametrize(
    ("segments", "waits", "proposed", "denied"),
    [
        # One C call of 10 ms: slices of 5 ms follow each other.
        ([("forward", "gil_wait", 5.0), ("forward", "gil_wait", 5.0)], 30, False, True),
        # What is left of such a call is 5 ms on average, but half of the waits are longer.
        ([("forward", "gil_wait", 1.0), ("forward", "native", 1.0), ("forward", "gil_wait", 8.0)], 60, False, True),
        # Python: each wait is the switch interval, and a little.
        ([("forward", "gil_wait", 5.1), ("forward", "native", 1.0), ("forward", "gil_wait", 5.2)], 60, True, False),
        # The same, where the holder lacks a CPU: once it takes longer.
        ([("forward", "gil_wait", 5.1), ("forward", "native", 1.0), ("forward", "gil_wait", 9.0)], 40, True, False),
        # Short holds, of the one or the other kind.
        ([("forward", "gil_wait", 0.5), ("forward", "native", 1.0), ("forward", "gil_wait", 0.4)], 600, False, False),
        ([], 60, False, False),
    ],
)
def test_the_switch_interval_is_proposed_only_where_it_helps(
    make: Make, segments: list[tuple[str, str, float]], waits: int, proposed: bool, denied: bool
) -> None:
    file = make()
    hog = file.thread("writer")
    file.steps(100, compute=8.0, gil_wait=3.0).keep(50, "worst", *segments, thread=hog)
    file.detail("gil_wait", 300, thread=hog, stack=file.stack(f"{TRAIN}:88 dump"), count=waits)
    f = only(file)
    assert ("setswitchinterval" in f.fix, "setswitchinterval" in f.will_not_help) == (proposed, denied)
    assert any(e.startswith(f"{waits} waits of ") for e in f.evidence)


def test_a_hold_that_nobody_waited_for_to_its_end_has_no_average(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=file.thread("writer"), count=0)
    assert not any("on average" in e for e in only(file).evidence)


def test_many_holders(make: Make) -> None:
    file = make()
    file.steps(100, compute=8.0, gil_wait=3.0)
    for i in range(3):
        file.detail("gil_wait", 100, thread=file.thread(f"poller-{i}"), stack=file.stack(f"{TRAIN}:{50 + i} poll"))
    f = only(file)
    assert f.id == "TP202" and set(f.who) == {"poller-0", "poller-1", "poller-2"} and f.where.startswith("train.py:5")


def test_an_estimate_is_said_to_be_one(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    file.tier("gil_waits", "procfs", "the slot is not where it should be")
    file.detail("gil_wait", 300, thread=file.thread("hog"))
    f = only(file)
    assert f.confidence == "medium" and "procfs" in f.confidence_why


@pytest.mark.parametrize("tier", ["off", "busy-only"])
def test_gil_rules_abstain_without_their_probe(make: Make, tier: str) -> None:
    found = said(make().steps(100, compute=8.0).tier("gil_waits", tier, "free-threaded"))
    assert {a.id for a in found.abstained} >= {"TP201", "TP202"}
    assert "GIL was not measured" in found.verdict.text


# The host


@pytest.mark.parametrize(
    ("code", "frames", "says"),
    [
        (230, (f"{TRAIN}:30 pause",), "sleeps (clock_nanosleep)"),
        (202, ("/usr/lib/python3.11/threading.py:327 Condition.wait", f"{TRAIN}:31 wait_for_lock"), "waits for a lock"),
        (202, ("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:32 next_batch"), "waits for a queue"),
        (45, ("/usr/lib/python3.11/socket.py:706 SocketIO.readinto", f"{TRAIN}:33 send"), "waits for a socket"),
        (74, (f"{TRAIN}:34 flush",), "waits for a file (fsync)"),
        (
            61,
            ("/usr/lib/python3.11/subprocess.py:2011 Popen._try_wait", f"{TRAIN}:35 git"),
            "waits for a child process",
        ),
        (
            7,
            ("/usr/lib/python3.11/subprocess.py:2021 Popen._communicate", f"{TRAIN}:36 git"),
            "for a child process (poll)",
        ),
        (7, (f"{TRAIN}:38 listen",), "waits for a socket (poll)"),
        (1, (f"{TRAIN}:37 report",), "waits for a file or pipe (write)"),
    ],
)
def test_blocked_says_in_what(make: Make, code: int, frames: tuple[str, ...], says: str) -> None:
    file = make().steps(100, compute=8.0, blocked_io=4.0)
    file.detail("sample", 390, phase="other", state="blocked", code=code, stack=file.stack(*frames))
    f = only(file)
    assert f.id == "TP301" and says in f.why and f.where == f"train.py:{frames[-1].split(':')[1].split()[0]}"


def test_a_queue_that_a_background_loader_feeds(make: Make) -> None:
    file = make().steps(100, compute=2.0, blocked_io=6.0)
    at = file.stack("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:32 next_batch")
    file.detail("sample", 590, phase="other", state="blocked", code=202, stack=at)
    file.loader(1, off_thread=(100, 780))
    f = only(file)
    assert f.id == "TP301" and "background loader" in f.title and "num_workers" in f.fix


def test_host_python_is_the_users_own(make: Make) -> None:
    file = make().steps(100, compute=6.0, python=4.0)
    file.detail("sample", 350, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens"))
    file.detail("sample", 50, state="python", stack=file.stack("/x/site-packages/torch/nn/functional.py:1 relu"))
    f = only(file)
    assert f.id == "TP302" and f.where == "train.py:60" and f.cost_ms_per_step == pytest.approx(3.5, abs=0.01)


def test_torchs_own_python_is_no_warning(make: Make) -> None:
    file = make().steps(1000, compute=0.7, python=0.7)
    torch = file.stack("/x/site-packages/torch/nn/functional.py:1 relu", f"{TRAIN}:12 Net.forward")
    file.detail("sample", 700, state="python", stack=torch)
    assert [(f.slug, f.severity) for f in said(file).findings] == [("framework-python", "info")]


def metric(make: Make, *, optimizer: float = 2.0, **options: str) -> RunFile:
    """A metric in NumPy: native code in a function of the user's, outside of the phases."""
    file = make(**options).steps(100, {("other", "native"): 37.0, ("optimizer", "native"): optimizer}, compute=5.0)
    clip = file.stack("/x/site-packages/torch/nn/utils/clip_grad.py:40 clip_grad_norm_", f"{TRAIN}:9 <module>")
    file.detail("sample", 200, phase="other", state="native", stack=clip)
    at = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1133 argsort", f"{TRAIN}:4 auc", f"{TRAIN}:15 <module>")
    return file.detail("sample", 3500, phase="other", state="native", stack=at)


def test_host_compute_names_the_users_function(make: Make) -> None:
    f = only(metric(make))
    assert (f.id, f.severity, f.where) == ("TP310", "critical", "train.py:4")
    assert f.cost_ms_per_step == pytest.approx(37 * 35 / 37, abs=0.1) and "argsort called by auc (train.py:4)" in f.why


def test_host_compute_is_not_said_where_it_cannot_be_told(make: Make) -> None:
    for off in (metric(make).tier("stacks", "off", "no"), metric(make, feeds_device="1")):
        found = said(off)
        assert "TP310" in {a.id for a in found.abstained} and not [f for f in found.findings if f.id == "TP310"]
    by_hand = said(metric(make, optimizer=0.0))  # its update of the weights is in `other` too
    assert [(f.id, f.severity) for f in by_hand.findings] == [("TP310", "info")]
    few = make().steps(100, {("other", "native"): 37.0, ("optimizer", "native"): 2.0})
    assert "0 samples" in next(a.why for a in said(few).abstained if a.id == "TP310")


def test_host_python_abstains_without_samples(make: Make) -> None:
    few = make().steps(100, compute=6.0, python=4.0)
    few.detail("sample", 8, state="python", count=2, stack=few.stack(f"{TRAIN}:60 f"))
    assert "2 samples" in next(a.why for a in said(few).abstained if a.id == "TP302")
    off = make().steps(100, compute=6.0, unknown=4.0).tier("gil_holds", "off", "sampler_hz=0")
    assert "sampler_hz=0" in next(a.why for a in said(off).abstained if a.id == "TP302")


def test_gc_pauses(make: Make) -> None:
    file = make()
    for _ in range(10):
        file.steps(9, compute=9.0)
        file.span("gc", 20, step=file.step(gc=20.0, compute=9.0), value=2)
    file.detail("gc", 200, code=2, count=10)
    found = said(file)
    f = only(file)
    assert f.id == "TP303" and f.steps_affected == 10 and "gc.freeze" in f.fix and "gc.disable" in f.will_not_help
    assert "10 of 100 steps, 20.0 ms each" in found.verdict.text


@pytest.mark.parametrize(("younger", "named"), [(0, True), (12, False)])
def test_a_call_of_gc_collect_is_named(make: Make, younger: int, named: bool) -> None:
    """Full collections alone are asked for; among younger ones they come by themselves, whatever line that hits."""
    file = make().steps(100, {("other", "gc"): 2.0}, compute=8.0)
    file.detail("gc", 200, phase="other", code=2, count=5)
    if younger:
        file.detail("gc", 1, phase="other", code=1, count=younger)
    file.detail("sample", 200, phase="other", stack=file.stack(f"{TRAIN}:88 train_epoch"))
    file.detail("sample", 20, phase="other", stack=file.stack(f"{TRAIN}:20 build"))
    f = only(file)
    assert f.id == "TP303" and f.where == ("train.py:88" if named else "")
    assert ("gc.collect()" in f.title) == ("train_epoch (train.py:88)" in f.why) == named


def test_a_full_collection_per_step_is_asked_for_also_without_a_sample(make: Make) -> None:
    file = make().steps(100, gc=5.0, compute=8.0)
    file.detail("gc", 500, code=2, count=100).detail("gc", 0.1, code=0, count=1)
    f = only(file)
    assert "gc.collect() is called in the loop (100 times)" in f.title and f.fix.startswith("# remove gc.collect()")
    assert "gc.freeze" not in f.fix
    file.detail("gc", 1, code=1, count=300)
    by_itself = only(file)
    assert "gc.collect()" not in by_itself.title and "gc.freeze" in by_itself.fix


def test_checkpoint_says_bytes_speed_and_how_often(make: Make) -> None:
    file = make()
    at = file.stack("/x/site-packages/torch/serialization.py:900 save", f"{TRAIN}:70 save")
    for step in range(24):
        file.step(compute=10.0, checkpoint=60.0 if step % 12 == 11 else 0.0)
    for step in (11, 23):
        file.span("checkpoint", 60, step=step, value=120_000_000)
    file.detail("sample", 110, phase="checkpoint", state="blocked", stack=at)
    f = only(file)
    assert f.id == "TP304" and f.where == "train.py:70" and f.steps_affected == 2
    assert "120.0 MB each, 2.0 GB/s" in f.evidence[1] and "2 saves in 24 steps" in f.evidence[0]


def test_logging(make: Make) -> None:
    file = make()
    for _ in range(100):
        file.span("logging", 2, step=file.step(compute=8.0, logging=2.0))
    file.detail(
        "sample", 190, phase="logging", state="blocked", code=1, stack=file.stack(f"{TRAIN}:5 SlowHandler.emit")
    )
    f = only(file)
    assert f.id == "TP305" and f.where == "train.py:5" and "QueueHandler" in f.fix
    assert "100 log calls of 1 ms or more in 100 of 100 steps, 2.0 ms each" in f.evidence


def test_log_calls_without_a_span_are_not_divided_among_those_with_one(make: Make) -> None:
    file = make().steps(100, compute=8.0, logging=4.0)
    assert any("no single log call takes 1 ms" in e for e in only(file).evidence)
    file.span("logging", 3, step=50)
    f = only(file)
    assert "1 log call of 1 ms or more in 1 of 100 steps, 3.0 ms each" in f.evidence
    assert f.steps_affected == 100 and "4.0 ms of each step's 12.0 ms the training thread writes logs" in f.evidence


def test_validation_is_mentioned_then_warned_of(make: Make) -> None:
    some = make().steps(40, compute=10.0, validation=3.0)
    assert [(f.slug, f.severity) for f in said(some).findings] == [("validation", "info")]
    much = make().steps(40, compute=10.0, validation=12.0)
    assert [(f.slug, f.severity) for f in said(much).findings] == [("validation", "warning")]


@pytest.mark.parametrize(
    ("meta", "workers", "others", "says"),
    [
        ({"cpus": "2", "torch_threads": "2"}, 0, 1.6, "other processes use the CPUs"),
        ({"cpus": "2", "torch_threads": "1"}, 4, 0.0, "more workers than CPUs"),
        ({"cpus": "2", "torch_threads": "8"}, 0, 0.0, "more threads than CPUs"),
    ],
)
def test_descheduled_says_by_whom(make: Make, meta: dict[str, str], workers: int, others: float, says: str) -> None:
    file = make(**meta).steps(100, compute=8.0, descheduled=3.0)
    file.loader(1, num_workers=workers, fetches=100, ready={2: (100, 20)}, wait=20)
    file.host(3, process_cpus=0.8 if others else 1.9, other_cpus=others)
    f = only(file)
    assert f.id == "TP307" and f.title == says


def competing(file: RunFile, *, others: float) -> RunFile:
    """A thread of the process is busy while the training thread waits for a CPU."""
    file.steps(400, compute=3.0, descheduled=5.0).host(3, process_cpus=1.2, other_cpus=others)
    at = file.stack(f"{TRAIN}:41 spin", "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("hold", 900, thread=file.thread("poller"), stack=at)
    return file.detail("hold", 950, thread=file.step_thread, stack=file.stack(f"{TRAIN}:9 step"))


def test_descheduled_by_a_thread_of_the_process_names_it(make: Make) -> None:
    f = only(competing(make(torch_threads="1"), others=0.1))
    assert f.title == "the training thread waits for a CPU: this process' own threads compete"
    assert f.who == ("MainThread", "poller") and f.where == "train.py:41"
    assert "poller in spin (train.py:41)" in f.why and "28% of the time" in f.why
    assert "poller" in f.fix and "spin" in f.fix and "taskset" not in f.fix
    both = only(competing(make(torch_threads="1"), others=0.6))
    assert both.title.endswith("own threads and other processes compete") and "other processes 0.6" in both.why


def test_torchs_threads_are_not_own_threads_that_compete(make: Make) -> None:
    file = make(torch_threads="2").steps(400, compute=5.0, descheduled=3.0).host(3, process_cpus=1.2, other_cpus=0.8)
    assert only(file).title == "other processes use the CPUs"


@pytest.mark.parametrize(
    ("cpus", "threads", "fix"),
    [
        ("2", "2", "torch.set_num_threads(1)"),
        ("2", "1", "another time"),
        ("3", "1", "taskset -c 0-1 "),
        ("16", "4", "taskset -c 0-3 "),
        ("8", "8", "torch.set_num_threads(6)"),
    ],
)
def test_no_more_cpus_are_offered_than_there_are(make: Make, cpus: str, threads: str, fix: str) -> None:
    file = make(cpus=cpus, torch_threads=threads).steps(100, compute=8.0, descheduled=3.0)
    assert fix in only(file.host(3, process_cpus=0.8, other_cpus=1.6)).fix


def test_without_run_delay_nothing_is_said_to_be_descheduled_and_blocked_is_less_sure(make: Make) -> None:
    file = make().steps(100, compute=8.0, blocked_io=3.0)
    file.detail("sample", 300, phase="other", state="blocked", stack=file.stack(f"{TRAIN}:9 wait"), code=202)
    assert only(file).confidence == "high"
    found = said(file.tier("run_delay", "off", "no schedstat"))
    assert ("TP307", "run_delay off: no schedstat") in [(a.id, a.why) for a in found.abstained]
    (blocked,) = [f for f in found.findings if f.id == "TP301"]
    assert blocked.confidence == "medium" and "no schedstat" in blocked.confidence_why


def test_causes_are_the_files_own_also_with_a_device(make: Make) -> None:
    """The tree and the verdict must not call the same time by two names."""
    file = make(feeds_device="1").steps(100, compute=8.0)
    found = said(file)
    with file.open() as run:
        assert run.cause_ns("compute") == run.wall_ns
    assert found.verdict.text.startswith("compute-bound: 100% of step time is compute")


def test_throttled(make: Make) -> None:
    file = make().steps(100, compute=8.0, throttled=3.0).host(3, process_cpus=1.0, throttled=300)
    f = only(file)
    assert f.id == "TP308" and "1.0 CPUs" in f.evidence[1]
    off = make().steps(100, compute=8.0).tier("throttling", "off", "no cgroup")
    assert next(a.why for a in said(off).abstained if a.id == "TP308").endswith("no cgroup")


# The run as a whole


def test_uneven_the_founding_case(make: Make) -> None:
    file = make()
    hog = file.thread("indexer")
    at = file.stack(f"{TRAIN}:21 build_index")
    file.steps(100, compute=5.0, gil_wait=7.0).steps(200, compute=5.0, gil_wait=0.05)
    for section in range(32):
        file.detail("gil_wait", 22, thread=hog, stack=at, section=section)
    found = said(file)
    by_id = {f.id: f for f in found.findings}
    assert set(by_id) == {"TP201", "TP401"}
    assert "the first third of the run" in by_id["TP401"].title and "gil_wait" in by_id["TP401"].title
    assert by_id["TP401"].where == "train.py:21" and by_id["TP401"].steps_affected == pytest.approx(100, abs=8)
    assert found.verdict.finding == "TP201"
    assert any("is in steps 0 to" in e for e in by_id["TP201"].evidence)
    assert sum(f.cost_ns for f in found.findings) <= 710_000_000


def test_uneven_that_another_finding_tells_is_an_info_without_a_cost_of_its_own(make: Make) -> None:
    file = make().steps(100, compute=5.0, blocked_io=20.0).steps(200, compute=5.0, blocked_io=4.0)
    by_id = {f.id: f for f in said(file).findings}
    assert by_id["TP301"].severity == "critical" and by_id["TP401"].severity == "info"
    assert by_id["TP401"].cost_ns == 0
    assert cost_text(by_id["TP401"]) == "costs 1,600 ms in all, told by TP301"


def test_an_even_run_and_single_slow_steps_are_not_uneven(make: Make) -> None:
    file = make()
    for step in range(200):
        file.step(compute=5.0 + (step * 7919 % 13) / 20 + (60.0 if step in (3, 60, 110) else 0.0))
    assert loud(file) == []


def test_uneven_abstains_on_short_runs(make: Make) -> None:
    found = said(make().steps(12, compute=5.0))
    assert "12 steps are too few" in next(a.why for a in found.abstained if a.id == "TP401")
    one = said(make().steps(1, compute=5.0))
    assert "1 step is too few" in next(a.why for a in one.abstained if a.id == "TP401")


def test_uneven_in_a_long_run_of_merged_rows(make: Make) -> None:
    file = make().steps(400, compute=5.0).steps(400, compute=5.0, data_wait=5.0).merge_steps(8)
    f = next(f for f in said(file).findings if f.id == "TP401")
    assert "the last half" in f.title and f.cause == "data_wait"


def test_compile_is_a_warm_up_and_recompiling_a_warning(make: Make) -> None:
    once = make()
    once.step(python=3000.0, compute=5.0, compile=2990.0, flags=16)
    once.steps(30, compute=5.0)
    once.span("compile", 2990, step=0)
    assert [(f.slug, f.severity) for f in said(once).findings] == [("compile-warmup", "info")]
    assert said(once).findings[0].share == pytest.approx(2990 / 3155, abs=0.01)
    waits = make()
    waits.step(blocked_io=3000.0, compute=5.0, compile=2990.0, flags=16)
    waits.steps(30, compute=5.0)
    assert loud(waits) == []
    again = make()
    for step in range(30):
        again.step(python=50.0 if step < 12 else 0.0, compute=5.0, compile=49.0 if step < 12 else 0.0)
        if step < 12:
            again.span("compile", 49, step=step)
    assert "compile-warmup" in loud(again)


# Grades, sums and verdicts


def test_few_steps_are_warned_of_but_never_critical(make: Make) -> None:
    file = make().steps(10, compute=2.0, blocked_io=8.0)
    assert only(file).severity == "warning" and only(file).confidence != "high"


def test_one_step_is_too_few(make: Make) -> None:
    found = said(make().steps(1, compute=2.0, blocked_io=8.0))
    assert found.findings == () and "too few" in found.verdict.text


def test_no_step_no_findings_and_every_rule_abstains(make: Make) -> None:
    from trainperf.findings.rules import ALL

    found = said(make())
    assert found.findings == () and "no training step" in found.verdict.text
    assert "no torch.autograd.backward and no optimizer step ran" in found.verdict.text
    assert "autograd.grad is not seen" in found.verdict.text
    assert {a.id for a in found.abstained} == {r.id for r in ALL}


def test_a_cost_below_our_own_is_no_finding(make: Make) -> None:
    assert loud(make().steps(100, compute=8.0, blocked_io=1.2).overhead(marks=200.0)) == []


def test_a_cost_below_the_floor_is_no_finding(make: Make) -> None:
    assert loud(make().steps(1000, compute=0.1, blocked_io=0.04)) == []


def test_no_nanosecond_is_counted_twice(make: Make) -> None:
    file = make()
    hog = file.thread("hog")
    file.steps(60, {("fetch", "blocked"): 4.0}, gil_wait=3.0, gc=2.0, blocked_io=2.0, compute=1.0)
    file.steps(60, {("fetch", "blocked"): 14.0}, gil_wait=3.0, gc=2.0, blocked_io=2.0, compute=1.0)
    # More is claimed by the loaders than there is: fetches also wait outside of steps.
    file.loader(1, fetches=60, wait=4000, ready={0: (60, 4000)}, num_workers=2)
    file.loader(2, fetches=60, wait=4000)
    file.detail("gil_wait", 360, thread=hog)
    found = said(file)
    with file.open() as run:
        assert sum(f.cost_ns for f in found.findings) <= run.wall_ns
        for cause in ("data_wait", "gil_wait", "gc", "blocked_io"):
            assert sum(f.cost_ns for f in found.findings if f.cause == cause) <= run.cause_ns(cause)


def test_costliest_first_and_the_verdict_is_about_it(make: Make) -> None:
    file = make().steps(100, compute=4.0, gc=3.0, checkpoint=5.0, logging=1.0)
    found = said(file)
    assert [f.slug for f in found.findings] == ["checkpoint", "gc-pauses", "logging"]
    assert found.verdict.finding == "TP304"


def test_healthy(make: Make) -> None:
    file = make().steps(300, compute=9.3, python=0.3, data_wait=0.2, gil_wait=0.05, descheduled=0.15)
    found = said(file)
    assert found.findings == ()
    assert (
        found.verdict.text
        == "compute-bound: 93% of step time is compute, most of it in backward; nothing found above 10%"
    )
    spread = make().steps(100, {("forward", "native"): 5.0, ("backward", "native"): 5.0})
    assert said(spread).verdict.text == "compute-bound: 100% of step time is compute; nothing found above 10%"


def test_unknown_time_is_said_in_the_verdict(make: Make) -> None:
    assert "not known" in said(make().steps(100, compute=5.0, unknown=5.0)).verdict.text


def test_a_hook_that_failed_makes_its_rule_abstain(make: Make) -> None:
    found = said(make().steps(100, compute=5.0).tier("hook_gc", "off", "AttributeError: callbacks"))
    assert "AttributeError" in next(a.why for a in found.abstained if a.id == "TP303")


def test_a_busy_machine_does_not_hide_the_loops_own_trouble(make: Make) -> None:
    file = make().steps(100, compute=16.0, data_wait=6.0, descheduled=76.0).host(3, process_cpus=0.4, other_cpus=1.6)
    file.loader(1, fetches=100, wait=600)
    found = {f.id: f for f in said(file).findings}
    assert found["TP307"].severity == "critical" and found["TP101"].severity == "warning"
    assert any("27% of the time in which the machine let the run go on" in e for e in found["TP101"].evidence)


def test_a_cost_in_all_steps_is_not_said_to_be_in_the_few_that_show_it(make: Make) -> None:
    file = make()
    for step in range(100):
        file.step(compute=16.0, data_wait=6.0, descheduled=10.0 if step < 7 else 80.0)
    file.loader(1, fetches=100, wait=600)
    found = {f.id: f for f in said(file).findings}
    assert found["TP101"].steps_affected == 100


def test_few_steps_are_named_only_when_they_hold_the_cost_and_each_is_their_own_mean(make: Make) -> None:
    nearly_all = make()
    for step in range(100):
        nearly_all.step(compute=5.0, blocked_io=1000.0 if step % 10 < 3 else (150.0 if step % 10 < 9 else 0.0))
    f = only(nearly_all)
    assert f.steps_affected == 100 and "390 ms/step" in said(nearly_all).verdict.text
    few = make()
    for step in range(100):
        few.step(compute=5.0, blocked_io=60.0 if step % 10 == 0 else 0.3)
    f = only(few)
    assert f.steps_affected == 10 and any("10 of 100 steps, 60.0 ms each" in e for e in f.evidence)
    assert "10 of 100 steps, 60.0 ms each (" in said(few).verdict.text
    spread = make()
    for step in range(100):
        spread.step(compute=50.0, blocked_io=60.0 if step % 10 == 0 else 4.0)  # 4 of 54 ms: felt in few, held by all
    assert only(spread).steps_affected == 100


def test_a_large_cause_that_no_rule_is_sure_of_is_not_denied(make: Make) -> None:
    file = make().steps(20, compute=4.0, descheduled=4.0).overhead(collector=100.0)
    found = said(file)
    assert found.findings == () and found.verdict.text.startswith("no clear verdict: 50% descheduled of step time")


def test_an_info_counts_as_told(make: Make) -> None:
    text = said(make().steps(40, compute=10.0, validation=3.0)).verdict.text
    assert text.startswith("compute-bound: 77%")
