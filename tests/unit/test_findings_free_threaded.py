"""Rules about what takes the GIL's place on a free-threaded Python."""

from __future__ import annotations

import pytest
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, only, said


def test_stop_the_world_names_who_collects(make: Make) -> None:
    file = make()
    file.tier("gil_waits", "off", "this build of CPython has no GIL")
    file.tier("interpreter_waits", "exact")
    thread = file.thread("metrics-writer")
    at = file.stack(f"{TRAIN}:88 collect_results")
    file.steps(100, compute=8.0, stop_the_world=3.0)
    file.detail("stop_the_world", 300, thread=thread, stack=at)
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP203", "train.py:88", ("metrics-writer",))
    assert f.variant == "collects" and f.params["each"] == 3e6
    assert {a.id for a in said(file).abstained} >= {"TP201", "TP202"}


def test_a_tracer_that_is_set_is_no_collection(make: Make) -> None:
    file = make()
    file.tier("interpreter_waits", "exact")
    at = file.stack("/usr/lib/python3.14/threading.py:60 settrace_all_threads", f"{TRAIN}:12 watch_calls")
    file.steps(100, compute=8.0, stop_the_world=3.0)
    file.detail("stop_the_world", 300, thread=file.thread("debugger"), stack=at)
    f = only(file)
    assert (f.id, f.variant) == ("TP203", "traces")


def test_object_lock_names_the_line_that_waits_and_who_held_it(make: Make) -> None:
    file = make()
    file.tier("interpreter_waits", "exact")
    at = file.stack(f"{TRAIN}:40 add_result")
    file.steps(100, compute=8.0, object_lock=3.0)
    file.detail("object_lock", 200, thread=file.thread("collector"), stack=at)
    file.detail("object_lock", 100, stack=at)
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP204", "train.py:40", ("collector",))
    assert f.params["holders"] == (
        {"name": Said("named_thread", {"name": "collector"}), "share": pytest.approx(2 / 3)},
    )


def test_with_a_gil_nothing_is_said_of_them(make: Make) -> None:
    file = make()
    file.steps(100, compute=8.0)
    assert not {f.id for f in said(file).findings} & {"TP203", "TP204"}


@pytest.mark.parametrize("gil", [True, False])
def test_python_holds_a_gil_where_there_is_one(make: Make, gil: bool) -> None:
    file = make().tier("gil_holds", "sampled").tier("gil_waits", "exact" if gil else "off", "no GIL")
    file.steps(100, compute=8.0, python=3.0)
    file.detail("sample", 300, state="python", stack=file.stack(f"{TRAIN}:4 count_tokens"))
    f = only(file)
    assert (f.id, f.variant, f.params["gil"]) == ("TP302", "runs", gil)
    assert ("GIL" in " ".join((*f.evidence, f.why, f.fix, f.will_not_help))) == gil


def test_who_could_not_be_read_is_not_named(make: Make) -> None:
    file = make()
    file.tier("interpreter_waits", "exact")
    file.steps(100, compute=8.0, stop_the_world=3.0)
    f = only(file)
    assert (f.id, f.variant, f.params["pauses"]) == ("TP203", "unread", None)
    file = make()
    file.tier("interpreter_waits", "exact")
    file.steps(100, compute=8.0, object_lock=3.0)
    file.detail("object_lock", 300, stack=file.stack(f"{TRAIN}:40 add_result"))
    f = only(file)
    assert (f.id, f.where, f.who) == ("TP204", "train.py:40", ())
    assert f.variant == "unread"
