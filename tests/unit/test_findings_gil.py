"""Rules about the GIL, on runs made by hand: what they say, and when they must be silent."""

from __future__ import annotations

import pytest
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, only, said


def test_gil_hog_names_thread_function_and_line(make: Make) -> None:
    file = make()
    hog = file.thread("metrics-writer")
    at = file.stack("/usr/lib/python3.11/json/encoder.py:200 JSONEncoder.encode", f"{TRAIN}:88 dump_metrics")
    file.steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=hog, stack=at)
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP201", "train.py:88", ("metrics-writer",))
    place = "json.encoder.JSONEncoder.encode called by dump_metrics (train.py:88)"
    assert f.variant == "beside" and f.params["at"] == Said("in", {"place": place})


def test_what_a_thread_was_started_with_is_started_in_a_process_and_not_submitted(make: Make) -> None:
    file = make()
    hog, helper = file.thread("writer"), file.thread("helper")
    file.steps(100, compute=8.0, gil_wait=3.0)
    run = "/usr/lib/python3.11/threading.py:982 Thread.run"
    file.detail("gil_wait", 240, thread=hog, stack=file.stack(f"{TRAIN}:88 write", run))
    file.detail("gil_wait", 60, thread=helper, stack=file.stack(f"{TRAIN}:99 dump", run))
    assert only(file).params["fix"] == Said("run_body", {"body": "write", "name": "write"})
    file = make()
    file.steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=file.thread("w"), stack=file.stack(f"{TRAIN}:88 dump", f"{TRAIN}:9 write", run))
    assert only(file).params["fix"] == Said("run_function", {"function": "dump"})


@pytest.mark.parametrize(
    ("outer", "fix"),
    [
        ((f"{TRAIN}:9 main.<locals>.<lambda>",), Said("run_body", {"body": "drain", "name": "drain"})),
        ((f"{TRAIN}:9 <lambda>",), Said("run_body", {"body": "drain", "name": "drain"})),
        # CPython 3.10 knows no class.
        ((f"{TRAIN}:9 run",), Said("run_class", {"body": Said("that_thread"), "name": "..."})),
    ],
)
def test_what_a_thread_runs_may_have_no_name_or_no_class(make: Make, outer: tuple[str, ...], fix: Said) -> None:
    """Never is it the function that started the thread: that trains."""
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    hog = file.thread("w")
    run = (f"{TRAIN}:20 drain", *outer, "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("gil_wait", 180, thread=hog, stack=file.stack(f"{TRAIN}:88 dump", *run))
    file.detail("gil_wait", 120, thread=hog, stack=file.stack(f"{TRAIN}:99 sort", *run))
    assert only(file).params["fix"] == fix


def test_of_a_thread_of_a_package_no_function_is_to_be_moved(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    board = "/x/site-packages/tensorboard"
    at = file.stack(
        f"{board}/compat/tensorflow_stub/pywrap_tensorflow.py:141 crc_update",
        f"{board}/summary/writer/event_file_writer.py:9 _AsyncWriterThread.run",
        "/usr/lib/python3.11/threading.py:982 Thread._bootstrap",
    )
    f = only(file.detail("gil_wait", 300, thread=file.thread("Thread-1"), stack=at))
    assert f.params["fix"] == Said("run_package", {"package": "tensorboard"})


def test_a_thread_whose_function_is_named_run_is_told_by_its_class(make: Make) -> None:
    file = make().steps(100, data_wait=8.0, gil_wait=3.0)
    take = file.stack("/usr/lib/python3.11/queue.py:171 Queue.get", f"{TRAIN}:9 train")
    file.detail("sample", 800, phase="fetch", state="blocked", stack=take)
    run = (f"{TRAIN}:20 Prefetcher.run", "/usr/lib/python3.11/threading.py:982 Thread._bootstrap")
    hog = file.thread("loader")
    put = file.stack("/usr/lib/python3.11/queue.py:140 Queue.put", *run)
    file.detail("gil_wait", 300, thread=hog, stack=file.stack(f"{TRAIN}:19 decode", *run))
    file.detail("beside", 400, phase="fetch", thread=hog, stack=put, count=40)
    f = next(f for f in said(file).findings if f.id == "TP201")
    assert f.params["fix"] == Said("run_several", {"body": "Prefetcher.run"})


def test_a_lambda_is_not_called_by_the_function_that_it_stands_in(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    run = (f"{TRAIN}:9 main.<locals>.<lambda>", "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("gil_wait", 300, thread=file.thread("w"), stack=file.stack(*run))
    assert only(file).params["fix"] == Said("run_lambda")


def test_a_holder_of_several_functions_is_told_with_two_and_all_of_it_is_moved(make: Make) -> None:
    """A writer that serializes, cleans and sorts, in turn: the process of one of them would leave the others."""
    file = make()
    hog = file.thread("writer")
    file.steps(100, compute=8.0, gil_wait=3.0)
    run = (f"{TRAIN}:60 Writer.run", "/usr/lib/python3.11/threading.py:1045 Thread._bootstrap_inner")
    file.detail("gil_wait", 150, thread=hog, stack=file.stack(f"{TRAIN}:88 Writer.clean", *run))
    file.detail("gil_wait", 110, thread=hog, stack=file.stack(f"{TRAIN}:92 Writer.dump", *run))
    file.detail("gil_wait", 40, thread=hog, stack=file.stack(f"{TRAIN}:99 Writer.sort", *run))
    f = only(file)
    places = {"place": "Writer.clean (train.py:88)", "second": "Writer.dump (train.py:92)"}
    shares = {"share": 0.5, "second_share": pytest.approx(110 / 300)}
    assert f.params["at"] == Said("in_two", {**shares, **places})
    assert f.where == "train.py:88" and f.fix_share == 1.0
    assert f.params["fix"] == Said("run_class", {"body": "Writer.run", "name": "Writer"})


def test_what_other_threads_hold_is_not_saved(make: Make) -> None:
    file = make()
    hog, other = file.thread("sorter"), file.thread("dumper")
    file.steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 240, thread=hog, stack=file.stack(f"{TRAIN}:88 sort"))
    file.detail("gil_wait", 60, thread=other, stack=file.stack(f"{TRAIN}:99 dump"))
    f = only(file)
    assert f.who == ("sorter",) and f.fix_share == pytest.approx(0.8)


@pytest.mark.parametrize("name", ["", "Thread-7 (job)", "python"])
def test_threads_that_run_the_same_one_after_another_are_one_hog(make: Make, name: str) -> None:
    """Nobody could ask for the name of one that lived for some milliseconds."""
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    for _ in range(30):
        thread = file.thread(name)
        file.detail("gil_wait", 8, thread=thread, stack=file.stack("/usr/lib/python3.11/threading.py:382 notify"))
        file.detail("gil_wait", 2, thread=thread, stack=file.stack(f"{TRAIN}:88 dump", f"{TRAIN}:80 job"))
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP201", "train.py:88", ("a thread that runs job",))


def test_threads_of_one_name_one_after_another_are_one_hog(make: Make) -> None:
    """Such as one for each checkpoint; some end before they are asked for their name."""
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    for i in range(30):
        thread = file.thread("" if i % 5 == 0 else "ckpt-writer")
        file.detail("gil_wait", 10, thread=thread, stack=file.stack(f"{TRAIN}:88 dump", f"{TRAIN}:80 job"))
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP201", "train.py:88", ("a thread named 'ckpt-writer'",))


def test_a_few_threads_of_one_name_may_be_there_at_once(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    for _ in range(8):
        file.detail(
            "gil_wait", 37, thread=file.thread("loader"), stack=file.stack(f"{TRAIN}:88 dump", f"{TRAIN}:80 job")
        )
    f = only(file)
    assert (f.id, f.params["holders_count"]) == ("TP202", 8)


def test_threads_of_one_name_that_run_different_things_are_many(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    for i in range(30):
        stack = file.stack(f"{TRAIN}:{88 + i % 3} dump", f"{TRAIN}:80 job{i % 3}")
        file.detail("gil_wait", 10, thread=file.thread("worker"), stack=stack)
    assert only(file).id == "TP202"


@pytest.mark.parametrize("functions", [1, 2])
def test_threads_that_are_met_as_they_begin(make: Make, functions: int) -> None:
    """Who starts one waits for it while it begins; it goes on to what it is to run, and that keeps the GIL."""
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    begins = file.stack("/usr/lib/python3.11/threading.py:382 notify", "/usr/lib/python3.11/threading.py:1009 start")
    for i in range(30):
        runs = file.stack(f"{TRAIN}:88 job{i % functions}", "/usr/lib/python3.11/threading.py:1009 start")
        file.detail("gil_wait", 7, thread=file.thread("python"), stack=begins)
        file.detail("gil_wait", 3, thread=file.thread(""), stack=runs)
    f = only(file)
    if functions == 1:
        assert (f.id, f.where, f.who) == ("TP201", "train.py:88", ("a thread that runs job0",))
    else:
        assert (f.id, f.who[0]) == ("TP201", "threads as they begin")


def test_of_threads_that_were_too_many_what_they_ran_is_known(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 280, thread=0, stack=file.stack(f"{TRAIN}:88 dump", f"{TRAIN}:80 job"))
    file.detail("gil_wait", 20, thread=0)
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP201", "train.py:88", ("a thread that runs job",))


@pytest.mark.parametrize(
    ("puts", "taken_by", "feeds"),
    [
        (True, (f"{TRAIN}:16 <module>",), True),
        (False, (f"{TRAIN}:16 <module>",), False),
        # What the pin-memory thread has put there.
        (True, ("/x/site-packages/torch/utils/data/dataloader.py:1120 _try_get_data", f"{TRAIN}:16 <module>"), False),
    ],
)
def test_a_hog_that_makes_the_batches_needs_several_processes(
    make: Make, puts: bool, taken_by: tuple[str, ...], feeds: bool
) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    hog, other = file.thread("prefetcher"), file.thread("log-writer")
    put = file.stack("/usr/lib/python3.11/queue.py:152 Queue.put", f"{TRAIN}:9 loader")
    take = file.stack("/usr/lib/python3.11/queue.py:171 Queue.get", *taken_by)
    file.detail("gil_wait", 290, thread=hog, stack=file.stack(f"{TRAIN}:6 parse_rows", f"{TRAIN}:9 loader"))
    file.detail("hold", 10, thread=hog if puts else other, stack=put)
    file.detail("sample", 100, state="gil_wait", stack=take)
    f = only(file)
    assert (f.id, f.variant) == ("TP201", "feeding" if feeds else "beside")
    fix = f.params["fix"]
    assert isinstance(fix, Said) and (fix.key == "run_several") == feeds


@pytest.mark.parametrize(
    ("frames", "function"),
    [
        ((f"{TRAIN}:88 index.<locals>.<genexpr>", f"{TRAIN}:89 build"), "index"),
        ((f"{TRAIN}:88 <genexpr>", f"{TRAIN}:89 Exporter.build"), "build"),
        ((f"{TRAIN}:88 <module>",), "your_function"),
    ],
)
def test_the_snippet_calls_a_function_that_has_a_name(make: Make, frames: tuple[str, ...], function: str) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=file.thread("writer"), stack=file.stack(*frames))
    assert only(file).params["fix"] == Said("run_function", {"function": function})


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
    assert (f.params["yields"] is True, f.params["keeps"], f.params["waits"]) == (proposed, denied, waits)


def test_a_hold_that_nobody_waited_for_to_its_end_has_no_average(make: Make) -> None:
    file = make().steps(100, compute=8.0, gil_wait=3.0)
    file.detail("gil_wait", 300, thread=file.thread("writer"), count=0)
    assert only(file).params["wait"] is None


def test_many_holders(make: Make) -> None:
    file = make()
    file.steps(100, compute=8.0, gil_wait=3.0)
    for i in range(3):
        file.detail("gil_wait", 100, thread=file.thread(f"poller-{i}"), stack=file.stack(f"{TRAIN}:{50 + i} poll"))
    f = only(file)
    assert f.id == "TP202" and set(f.who) == {"poller-0", "poller-1", "poller-2"} and f.where.startswith("train.py:5")


@pytest.mark.parametrize("holders", [1, 3])
@pytest.mark.parametrize(("workers", "helps"), [(0, True), (2, False)])
def test_workers_help_where_the_loop_makes_its_batches_and_waits_there(
    make: Make, holders: int, workers: int, helps: bool
) -> None:
    """A pool of threads in collate_fn."""
    file = make().steps(100, {("forward", "native"): 8.0, ("fetch", "gil_wait"): 3.0})
    file.loader(1, fetches=100, num_workers=workers)
    for i in range(holders):
        at = file.stack(f"{TRAIN}:{50 + i} decode")
        file.detail("gil_wait", 300 / holders, thread=file.thread(f"pool-{i}"), stack=at)
    f = next(f for f in said(file).findings if f.id in ("TP201", "TP202"))
    assert f.variant == ("fetching" if helps else "beside")


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
