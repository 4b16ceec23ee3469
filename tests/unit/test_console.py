"""The verdict as text: at most 15 lines, within the width, adding up, plain when it must be."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.report import console, model
from trainperf.report.text import fit_clauses, fit_places, in_one_line, wrap
from trainperf.report.tiers import is_amiss


def busy(path: Path, *, name: str = "train.py") -> RunFile:
    """As much trouble as a run can have."""
    file = RunFile(path, cwd="/home/me/job", platform="Linux-x86_64", ended="exception", cpus="2")
    hog = file.thread("a-thread-with-a-rather-long-name-that-somebody-chose")
    at = file.stack(f"/home/me/job/deep/er/{name}:41 Collector.<locals>.crunch_everything_at_once")
    for step in range(60):
        file.step(
            {("fetch", "python"): 30.0},
            gil_wait=40.0,
            gc=12.0,
            checkpoint=100.0 if step % 20 == 0 else 0,
            logging=11.0,
            blocked_io=25.0,
            python=14.0,
            compute=40.0,
            descheduled=22.0,
            throttled=12.0,
            unknown=0.2,
            h2d_copy=0.3,
        )
    file.detail("gil_wait", 2400, thread=hog, stack=at)
    file.loader(1, fetches=60, wait=1800)
    file.tier("gil_waits", "procfs", "the import table is not where it should be, for a reason that takes a line")
    file.tier("throttling", "off", "no cgroup").dropped(marks=3, samples=2).overhead(marks=5.0, collector=2.0)
    return file


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", ["train.py", "a_very_long_module_name_" * 8 + ".py"])
def test_fits_fifteen_lines_and_the_width(tmp_path: Path, width: int, name: str) -> None:
    path = tmp_path / ("x" * 100 + ".tpr")
    with busy(path, name=name).open() as run:
        lines = console.summary(run, width=width).splitlines()
        shown = console.to_plain(console.show_lines(model.build(run), width=width)).splitlines()
    assert len(lines) <= console.MAX_LINES
    # What is there to be copied is never cut: the path, and the code to paste.
    assert lines[-1].removeprefix(f"More  trainperf show {path}") in ("", "  # note: fewer samples")
    assert max(map(len, lines[:-1])) <= width
    assert [row for row in shown if len(row) > width and not row.startswith(("More  ", "Fix", "      "))] == []


def tree_rows(text: str) -> list[tuple[str, float, int]]:
    found = re.findall(r"^ {6}(\w[\w+ ]*?) +([\d,]+\.?\d*) ms +(\d+)%", text, re.M)
    return [(name, float(ms.replace(",", "")), int(percent)) for name, ms, percent in found]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_tree_adds_up(tmp_path: Path, width: int) -> None:
    with busy(tmp_path / "a.tpr").open() as run:
        text = console.summary(run, width=width)
        mean = run.wall_ns / run.step_count / 1e6
    rows = tree_rows(text)
    assert sum(percent for *_, percent in rows) == 100
    assert sum(ms for _, ms, _ in rows) == pytest.approx(mean, abs=0.051)
    assert rows[-1][0].endswith("others")
    assert all(percent >= 1 for *_, percent in rows)


def test_what_a_finding_tells_keeps_its_row_and_the_last_one_names_the_rest(tmp_path: Path) -> None:
    """Also where the verdict's text leaves few rows: the largest, then those that are told of."""
    file = RunFile(tmp_path / "a.tpr")
    file.steps(100, compute=20.0, launch=3.2, python=2.8, gil_wait=1.5, logging=2.6, checkpoint=2.5, gc=2.4)
    with file.open() as run:
        found = model.build(run)
        text, narrow = console.summary(run), console.summary(run, width=55)
    assert [f.id for f in found.findings if f.severity != "info"] == ["TP305", "TP304", "TP303"]
    assert "launch" in [name for name, *_ in tree_rows(text)]
    assert [name for name, *_ in tree_rows(narrow)] == ["python+compute", "logging", "checkpoint", "3 others"]
    assert re.search(r"^ +3 others .*<- TP303$", narrow, re.M)


def test_causes_below_a_percent_are_one_line(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(50, compute=99.0, python=0.4, gc=0.3, data_wait=0.3)
    file.detail("sample", 500, phase="backward", state="native")
    with file.open() as run:
        rows = tree_rows(console.summary(run))
    assert [(name, percent) for name, _, percent in rows] == [("compute", 99), ("3 others", 1)]


def test_says_what_is_not_exact_what_was_lost_and_how_it_ended(tmp_path: Path) -> None:
    with busy(tmp_path / "a.tpr").open() as run:
        text = console.summary(run, width=200)
    assert "gil_waits procfs" in text and "5 events dropped" in text and "ended by an exception" in text
    assert "throttling off" in text and "will not help: " in text and "trainperf show " in text


@pytest.mark.parametrize(
    ("exception", "says"), [("SystemExit", "ended by sys.exit"), ("ValueError", "ended by ValueError")]
)
def test_says_which_exception_ended_it(tmp_path: Path, exception: str, says: str) -> None:
    file = RunFile(tmp_path / "a.tpr", ended="exception", exception=exception).steps(50, compute=9.0)
    with file.open() as run:
        assert says in console.summary(run)


def test_a_line_is_cut_at_a_word() -> None:
    assert wrap("TP401 uneven: slower than the rest", 26, 1) == ["TP401 uneven: slower ..."]
    assert wrap("TP401 uneven; slower than", 17, 1) == ["TP401 uneven ..."]
    assert wrap("abcdefghijkl mnopqr", 12, 1) == ["abcdefgh ..."]


def test_a_batch_that_was_not_trained_on_is_no_incomplete_step(tmp_path: Path) -> None:
    for count, says in (("1", "1 batch was never trained on"), ("3", "3 batches were never trained on")):
        with RunFile(tmp_path / f"{count}.tpr", incomplete_steps=count).steps(50, compute=9.0).open() as run:
            text = console.summary(run, width=200)
        assert says in text and "incomplete" not in text


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("notes", [1, 2, 5])
def test_notes_reach_the_user_and_the_verdict_stays_short(tmp_path: Path, width: int, notes: int) -> None:
    file = busy(tmp_path / "a.tpr")
    for i in range(notes):
        file.note(f"note {i} {'is long ' * 30}")
    with file.open() as run:
        lines = console.summary(run, width=width, notes=["saved elsewhere"]).splitlines()
        shown = console.to_plain(console.show_lines(model.build(run), width=width))
    assert len(lines) <= console.MAX_LINES and max(map(len, lines[:-1])) <= width
    (note,) = [line for line in lines if line.startswith("Note  ")]
    assert "saved elsewhere" in note
    assert [f"note {i} " in shown for i in range(notes)] == [True] * notes and shown.count("note 0 ") == 1


def test_of_the_other_findings_those_of_the_machine_are_last_and_all_have_their_cost(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr", cpus="2").steps(
        60, python=1.0, compute=5.0, gc=5.0, logging=1.0, descheduled=4.0
    )
    with file.host(3, process_cpus=0.4, other_cpus=1.6).open() as run:
        report, text = model.build(run), " ".join(console.summary(run).split())
    assert [f.id for f in report.findings] == ["TP303", "TP307", "TP305"]
    assert "Also TP305 logging 1.0 ms/step (6%); TP307 descheduled 4.0 ms/step (25%) Step" in text


def test_each_of_several_notes_is_whole_and_the_others_are_counted(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(60, compute=5.0)
    file.note("the first says this; and a second clause which makes it much too long for one line of eighty")
    with file.note("the second").note("the third").note("the fourth").open() as run:
        lines = console.summary(run).splitlines()
        private = console.summary(run, keep=False)
    at = lines.index("Note  the first says this")
    assert lines[at + 1] == "      the second; and 2 more in show"
    assert "and 2 more" in private and "show" not in private  # there is no file to show


def test_own_cost_is_a_share_of_the_whole_watch(tmp_path: Path) -> None:
    """Of 10 s that were watched the loop took 1: a tenth of our cost is the loop's."""
    file = RunFile(tmp_path / "a.tpr", wall_ns=str(10 * 10**9)).steps(100, compute=10.0).overhead(collector=100.0)
    with file.open() as run:
        report = model.build(run)
    assert report.overhead_share == pytest.approx(0.01)
    assert report.overhead_ms_per_step == pytest.approx(0.1)


def test_a_private_file_is_not_offered(tmp_path: Path) -> None:
    with RunFile(tmp_path / "a.tpr").steps(50, compute=9.0).open() as run:
        assert "trainperf show" not in console.summary(run, keep=False)


def test_a_verdict_of_compute_says_that_compute_itself_is_not_judged(tmp_path: Path) -> None:
    """Steps of denormal numbers, 40 times as slow, were "compute-bound; no trouble found" and no word more."""
    computes = RunFile(tmp_path / "a.tpr").steps(100, compute=10)
    waits = RunFile(tmp_path / "b.tpr").steps(100, compute=10, blocked_io=10)
    for file, told in ((computes, True), (waits, False)):
        with file.detail("sample", 400, phase="backward", state="native").open() as run:
            text = " ".join(console.summary(run).split())
        assert ("Next torch.profiler shows which operators compute: whether these could be faster" in text) == told


def test_few_steps_are_never_called_typical(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    for step in range(24):
        file.step(compute=5.0, checkpoint=100.0 if step % 12 == 5 else 0.0)
    with file.open() as run:
        text = console.summary(run)
    assert "2 of 24 steps, 100 ms each" in " ".join(text.split()) and "saves up to 200 ms of this run" in text
    assert "typical" not in text


@pytest.mark.parametrize(
    ("cell", "id", "kept_off", "says"),
    [
        (("checkpoint", "native"), "TP304", 0.5, "saves up to 20.0"),
        (("checkpoint", "native"), "TP304", 9.0, "saves about 20.0"),
        (("other", "blocked"), "TP301", 9.0, "saves about 20.0"),
        (("forward", "gil_wait"), "TP202", 9.0, "saves about 20.0"),
    ],
)
def test_where_cpus_are_short_a_cost_is_no_upper_bound(
    tmp_path: Path, cell: tuple[str, str], id: str, kept_off: float, says: str
) -> None:
    """What the code itself waits for a CPU is told as descheduled, so mending it saves that too; not so of a wait."""
    file = RunFile(tmp_path / "a.tpr").steps(60, {cell: 20.0}, compute=20.0, descheduled=kept_off)
    with file.open() as run:
        report, text = model.build(run), " ".join(console.summary(run).split())
    assert report.verdict.finding == id and says in text
    apart = "its waits for a CPU are excluded: 18% of the run, reported separately"
    more = cell[1] == "native" and "about" in says
    assert (", more while CPUs are short: " in text) == (apart in report.findings[0].evidence) == more
    waits = next((f for f in report.findings if f.id == "TP307"), None)
    assert waits is None or not waits.waits_apart


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"cause": "python"}, "about"),
        ({"cause": "compute"}, "about"),
        ({"cause": "python", "fix_share": 0.9}, "up to"),  # some of it stays
        ({"cause": "python", "idle_ns": 10**9}, "up to"),  # what a device lost by it
        ({"cause": "blocked_io"}, "about"),  # and what its calls compute in the kernel
        ({"cause": "data_wait"}, "up to"),
    ],
)
def test_what_no_longer_runs_frees_caches_too(tmp_path: Path, other: dict[str, Any], says: str) -> None:
    with RunFile(tmp_path / "a.tpr").steps(60, compute=20.0, blocked_io=20.0).open() as run:
        report = model.build(run)
    f = dataclasses.replace(report.findings[0], fix="# do it once", **{"fix_share": 1.0, **other})
    text = console.to_plain(console.summary_lines(dataclasses.replace(report, findings=(f,))))
    assert f"saves {says} " in text


def test_what_is_saved_never_pushes_the_advice_out(tmp_path: Path) -> None:
    """The settings of TP603 are as long as two rows: what comes before them is shortened, and they are not."""
    pad = "MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TOP_PAD_=268435456 python train.py"
    with RunFile(tmp_path / "a.tpr").steps(60, compute=20.0, blocked_io=20.0, descheduled=9.0).open() as run:
        report = model.build(run)
    fix = f"MALLOC_TRIM_THRESHOLD_=1099511627776 {pad}  # glibc's malloc reads them as Python starts"
    for apart in (True, False):
        f = dataclasses.replace(report.findings[0], fix=fix, waits_apart=apart)
        lines = console.to_plain(console.summary_lines(dataclasses.replace(report, findings=(f,)))).splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("Next"))
        assert lines[at].endswith("MALLOC_TRIM_THRESHOLD_=1099511627776") and lines[at + 1].strip() == pad


def test_code_has_a_third_row_and_ends_where_it_does(tmp_path: Path) -> None:
    """The option that mends it came last, and was cut off."""
    file = RunFile(tmp_path / "a.tpr").steps(40, compute=10.0, validation=12.0)
    file.loader(2, dataset="Test", validation=(40, 400))
    with file.open() as run:
        found = model.build(run)
    (told,) = found.findings
    code = "TrainingArguments(dataloader_num_workers=2, dataloader_persistent_workers=True)"
    fixed = dataclasses.replace(told, fix=f"{code}  # of the validation's loader; or less of it")
    text = console.to_plain(console.summary_lines(dataclasses.replace(found, findings=(fixed,)), width=72))
    shown = text[text.index("\nNext") : text.index("\n      will not help")]
    assert len(shown.strip().splitlines()) == 3 and code in " ".join(shown.split())


def test_advice_that_only_finds_out_more_saves_nothing(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(100, data_wait=8.0, compute=5.0)
    file.loader(1, fetches=100, wait=800, ready={0: (100, 800)}, num_workers=2)
    with file.open() as run:
        text = " ".join(console.summary(run).split())
    assert "Next run longer to see whether the workers compute or wait" in text


def test_advice_to_do_nothing_saves_nothing(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    file.step(python=300.0, compute=5.0, compile=290.0, flags=16)
    with file.steps(300, compute=5.0).span("compile", 290, step=0).open() as run:
        text = console.summary(run)
    assert "Next  no action needed: one-time cost; between runs" in text and "saves" not in text, text


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {("backward", "native"): 5.0},
            "Phase forward (with what runs before it) 10.0 ms (67%), backward 5.0 ms (33%)",
        ),
        ({}, "Phase between fetches 10.0 ms (100%)"),
    ],
)
def test_what_runs_before_the_model_is_not_called_forward_alone(
    tmp_path: Path, more: dict[tuple[str, str], float], says: str
) -> None:
    with RunFile(tmp_path / "a.tpr").steps(60, {("forward", "native"): 10.0, **more}).open() as run:
        text = " ".join(console.to_plain(console.show_lines(model.build(run))).split())
    assert says in text


def test_one_step_has_no_median(tmp_path: Path) -> None:
    with RunFile(tmp_path / "a.tpr").steps(1, compute=5.0).open() as run:
        text = console.summary(run)
    assert "Step  5.0 ms/step (1 step)" in text.splitlines()


def test_every_finding_is_named_where_there_is_room(tmp_path: Path) -> None:
    """By its id at least, which `explain` takes."""
    file = RunFile(tmp_path / "a.tpr", cpus="2")
    file.steps(60, python=1.0, compute=5.0, gc=3.0, logging=3.0, checkpoint=2.0, descheduled=4.0)
    file.host(3, process_cpus=0.4, other_cpus=1.6)
    with file.open() as run:
        report = model.build(run)
        text = console.summary(run)
    others = [f.id for f in report.findings if f.id != report.verdict.finding]
    assert len(others) > 2 and [i for i in others if i not in text] == []
    also = text[text.index("\nAlso") : text.index("\nStep")]
    assert [i for i in others if i not in also] == [] and "more" not in also
    assert len(text.splitlines()) <= console.MAX_LINES


def test_what_another_finding_tells_wholly_is_not_named_beside_the_verdict(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    file.steps(100, compute=5.0, blocked_io=20.0).steps(200, compute=5.0, blocked_io=4.0)
    with file.open() as run:
        report, text = model.build(run), console.summary(run)
    assert [f.id for f in report.findings] == ["TP301", "TP401"] and report.findings[1].told_by == ("TP301",)
    assert "TP401" not in text and "the first third of the run is slow because of it" in " ".join(text.split())


def test_plain_where_there_is_no_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    with busy(tmp_path / "a.tpr").open() as run:
        console.print_verdict(run, file=out)
        assert out.getvalue() == console.summary(run) + "\n"


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_when_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    out = Terminal()
    with busy(tmp_path / "a.tpr").open() as run:
        console.print_verdict(run, file=out)
    assert "\x1b" not in out.getvalue()


def test_styled_text_is_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    with busy(tmp_path / "a.tpr").open() as run:
        console.print_verdict(run, file=out)
        plain = console.summary(run, width=100)
    assert "\x1b[" in out.getvalue()
    bare = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert [row.rstrip() for row in bare.splitlines()] == plain.splitlines()


def test_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    hog = file.thread("evil\x1b[2J\x07\nname\u202e")
    file.steps(50, compute=5.0, gil_wait=5.0)
    file.detail("gil_wait", 250, thread=hog, stack=file.stack("/x/\x1b[31mtrain.py:3 f"))
    with file.open() as run:
        text = console.to_plain(console.show_lines(model.build(run)))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text) and "evil?[2J??name?" in text


def test_a_stream_that_cannot_encode(tmp_path: Path) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    file = RunFile(tmp_path / "a.tpr")
    hog = file.thread("größter-schreiber")
    file.steps(50, compute=5.0, gil_wait=5.0).detail("gil_wait", 250, thread=hog)
    with file.open() as run:
        console.print_verdict(run, file=out)
    assert b"gr??ter-schreiber" in raw.getvalue()


def test_a_long_time_before_the_first_step_is_told_once_and_in_one_line(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr", lead_ns=str(2_800_000_000), wall_ns=str(3_400_000_000)).steps(100, compute=6.0)
    file.span("compile", 2600, step=-1)
    told = "2.8 s passed before the first step, 2.6 s of it compiling: no figure here includes them"
    with file.open() as run:
        assert model.build(run).notes == (told,)
        assert told in " ".join(console.summary(run).split())
    short = RunFile(tmp_path / "b.tpr", lead_ns=str(900_000_000), wall_ns=str(1_500_000_000)).steps(100, compute=6.0)
    with short.open() as run:
        assert model.build(run).notes == ()


@pytest.mark.parametrize(("steps", "meta", "cut"), [(3, {}, True), (30, {}, False), (3, {"framework": "x"}, False)])
def test_of_few_steps_it_is_told_that_the_first_is_cut_at_its_front(
    tmp_path: Path, steps: int, meta: dict[str, str], cut: bool
) -> None:
    """Without a DataLoader nothing tells where the first body begins."""
    file = RunFile(tmp_path / "a.tpr", lead_ns=str(1_300_000_000), wall_ns=str(5_000_000_000), **meta)
    with file.steps(steps, compute=3000 / steps).open() as run:
        (note,) = model.build(run).notes
    assert note.startswith("1.3 s passed before the first step") and ("the means of 3 steps" in note) == cut
    file.loader(1, fetches=steps)
    with file.open() as run:
        assert "missing" not in model.build(run).notes[0]


def test_bullets_hang_and_large_counts_have_commas(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(1500, compute=6, gil_wait=4)
    at = file.stack("/u/a/rather/long/path/to/train.py:41 write_metrics_to_somewhere_else")
    file.detail("gil_wait", 6000, thread=file.thread("metrics-writer"), stack=at, count=1200)
    with file.open() as run:
        shown = console.to_plain(console.show_lines(model.build(run), width=80)).splitlines()
    text = " ".join(" ".join(shown).split())
    assert "1,500 of 1,500 steps lose 10% or more" in text and "1,200 waits of 5.0 ms" in text
    first = next(i for i, line in enumerate(shown) if "metrics-writer' held it" in line)
    assert shown[first].startswith("      - ") and re.match(r" {8}\S", shown[first + 1])


def test_what_a_fix_says_fits_and_its_code_is_left_alone(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    file.steps(100, compute=5.0, gil_wait=7.0).steps(200, compute=5.0, gil_wait=0.05)
    hog = file.thread("hog")
    file.detail("gil_wait", 700, thread=hog, stack=file.stack("/u/t.py:4 a_function_with_a_long_name_to_be_told"))
    with file.open() as run:
        shown = console.to_plain(console.show_lines(model.build(run), width=60))
    said = "run\n      # a_function_with_a_long_name_to_be_told (/u/t.py:4)\n      # in a process\n"
    assert f"Fix   # stop thread 'hog' in that part, or {said}" in shown
    code = {
        "      pool = concurrent.futures.ProcessPoolExecutor(1)  # once, before the loop",
        "      pool.submit(a_function_with_a_long_name_to_be_told, ...)",
    }
    assert {line for line in shown.splitlines() if len(line) > 60 and not line.startswith("More")} == code


def test_endless_names_take_no_time(tmp_path: Path) -> None:
    """A run file comes from elsewhere."""
    start = time.process_time()
    for name in ("x" * 300_000, "x. " * 100_000, "a; b, " * 60_000):
        assert max(map(len, wrap(fit_places(f"{name} (train.py:41) called by {name} (t.py:3)", 74, 2), 74, 2))) <= 74
        assert max(map(len, wrap(fit_clauses(name, 74, 2), 74, 2))) <= 74
    assert time.process_time() - start < 10  # minutes, if it went with the square
    assert "(train.py:41)" in fit_places(f"{'x' * 300_000} (train.py:41)", 74, 2)


def test_a_row_says_what_its_finding_says(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(100, compute=66.35, gil_wait=33.45, gc=0.2)
    file.detail("gil_wait", 3345, thread=file.thread("hog"), stack=file.stack("/u/t.py:4 hold"), count=100)
    with file.open() as run:
        text = console.summary(run)
    assert "gil-hog, 33.5 ms/step (33%)" in text or "gil-hog, 33.4 ms/step (33%)" in text
    assert [percent for name, _, percent in tree_rows(text) if name == "gil_wait"] == [33]
    assert sum(percent for *_, percent in tree_rows(text)) == 100


@pytest.mark.parametrize(
    ("fix", "says"),
    [
        ("# make it cheaper:\nclass A:\n    def f(self): ...", "make it cheaper"),
        ("DataLoader(..., num_workers=3)\ntorch.set_num_threads(1)", "DataLoader(..., num_workers=3)"),
        ("class A:\n    def f(self):\n        return 1", "class A: def f(self): return 1"),
        ("import os\nfrom a import b\nb(os)\nb()", "b(os)"),
        ("import faulthandler", "import faulthandler"),
        ("", ""),
    ],
)
def test_a_fix_of_several_lines_says_in_one_what_to_do(fix: str, says: str) -> None:
    assert in_one_line(fix) == says


@pytest.mark.parametrize(
    ("width", "mark"), [(120, "<- TP101, TP104, TP401"), (80, "<- TP101, TP104 +1"), (53, "<- TP101 +2"), (45, "")]
)
def test_a_row_that_several_findings_tell_of_names_them_whole(tmp_path: Path, width: int, mark: str) -> None:
    """As many as fit, and how many more there are."""
    file = RunFile(tmp_path / "r.tpr").steps(60, data_wait=16.0, compute=20.0)
    file.loader(1, fetches=60, wait=960)
    with file.open() as run:
        found = model.build(run)
    (told,) = found.findings
    several = tuple(dataclasses.replace(told, id=id) for id in ("TP101", "TP104", "TP401"))
    lines = console.to_plain(console.summary_lines(dataclasses.replace(found, findings=several), width=width))
    (row,) = (line for line in lines.splitlines() if "data_wait  " in line)
    assert len(row) <= width and row[row.index("%") + 1 :].strip(" #") == mark


def test_that_there_was_no_line_to_look_for_is_not_amiss() -> None:
    assert not is_amiss("kept_memory", "off: memory stopped growing between two looks")
    assert is_amiss("kept_memory", "off: a look would take too long")
