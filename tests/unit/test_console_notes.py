"""What a verdict says beside its finding: notes, rules that could not look, and a run without steps."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.report import console, model
from trainperf.report import json as as_json
from trainperf.report.html import render


def crowded(path: Path, **meta: str) -> RunFile:
    """Where the headline, Why and Next take two lines and more, and the second finding is critical."""
    file = RunFile(path, cpus="2", cwd="/home/me/job", platform="Linux-x86_64", **meta)
    hog = file.thread("a-prefetching-thread-with-a-long-name")
    file.steps(60, compute=10.0, descheduled=30.0, gil_wait=24.0, python=1.0, logging=6.0, unknown=1.0)
    file.steps(60, compute=10.0, descheduled=70.0, gil_wait=24.0, python=1.0, logging=6.0, unknown=1.0)
    at = file.stack("/home/me/job/deep/er/train.py:41 Collector.<locals>.crunch_everything_at_once")
    file.detail("gil_wait", 1680, thread=hog, stack=at).detail("gil_hold", 3000, thread=hog, stack=at)
    file.host(3, process_cpus=1.5, other_cpus=0.5)
    return file


def test_the_notes_go_before_the_other_findings_and_a_critical_one_stays(tmp_path: Path) -> None:
    with crowded(tmp_path / "b.tpr", anomaly_percent="100").note("fewer samples").open() as run:
        assert "\nNote  anomaly detection was on for 100 % of the time: it slows" in console.summary(run)
        assert "Note  anomaly detection was on" in console.to_plain(console.show_lines(model.build(run)))
    with crowded(tmp_path / "c.tpr", profiled_percent="97").open() as run:
        assert "\nNote  PyTorch's profiler was on for 97 % of the time: it slows" in console.summary(run)
    with crowded(tmp_path / "d.tpr", profiled_percent="4").open() as run:
        assert "profiler was on" not in console.summary(run)
    with crowded(tmp_path / "a.tpr").note("fewer samples").note("passed before the first step").open() as run:
        report, lines = model.build(run), console.summary(run).splitlines()
        urgent = console.summary(run, notes=["saved elsewhere"]).splitlines()
        shown = console.to_plain(console.show_lines(report))
    others = [f for f in report.findings if f.id != report.verdict.finding]
    assert [f.severity for f in others][:1] == ["critical"], others
    for text in (lines, urgent):
        assert len(text) <= console.MAX_LINES
        (also,) = [row for row in text if row.startswith("Also")]
        assert f"{others[0].id} {others[0].slug} {others[0].cost_ms_per_step:.1f} ms/step (" in also
    assert not any(row.startswith("Note") for row in lines) and "fewer samples" in shown
    assert [row for row in urgent if row.startswith("Note")] == ["Note  saved elsewhere"]


def test_no_steps(tmp_path: Path) -> None:
    with RunFile(tmp_path / "a.tpr").open() as run:
        text = console.summary(run)
    assert "no training step was seen" in text and "trainperf.step()" in text and len(text.splitlines()) <= 5
    assert "the process that trains" in " ".join(text.split()) and "create_graph=True" in " ".join(text.split())


def test_that_the_run_was_killed_before_a_step_is_said_once(tmp_path: Path) -> None:
    with RunFile(tmp_path / "a.tpr", ended="killed").open() as run:
        assert console.summary(run).count("was killed, or still runs") == 1
    with RunFile(tmp_path / "b.tpr", ended="exception", exception="KeyError").open() as run:
        assert "\nRun   ended by KeyError\n" in console.summary(run)


def test_no_step_is_told_alike_in_every_view(tmp_path: Path) -> None:
    """In one line that names the cause and the mend; nothing of it is left to a list of probes, or to be guessed."""
    for torch, cause in (
        ("", "PyTorch was never imported in this process"),
        ("2.5.1", "no backward, no optimizer step and no loop"),
    ):
        file = RunFile(tmp_path / f"a{torch}.tpr", torch=torch)
        if not torch:
            file.tier("torch_hooks", "off", "torch was not imported while the watch ran")
        with file.open() as run:
            report, printed, html = model.build(run), console.summary(run), render(run)
            shown = console.to_plain(console.show_lines(report))
            bundle = run._repr_mimebundle_()
        told = report.verdict.text
        assert cause in told and "trainperf.step()" in told and re.search("the (one|process) that trains", told)
        for text in (printed, shown, bundle["text/plain"], bundle["text/html"]):
            assert told in " ".join(text.split()), text[:300]
        head, _, rest = told.partition(": ")
        assert re.search(f">{head.capitalize()}</h1>\\s*<p[^>]*>[PN]{re.escape(rest[1:9])}", html)
        assert "torch_hooks" not in html.partition("<main>")[0] and " a step</small>" not in html
        assert "torch_hooks" not in printed and f"all {len(report.abstained)} rules: no step was seen" in shown
        assert as_json.to_dict(report)["verdict"]["text"] == told


def test_rules_that_could_not_look_have_their_reason(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr", source="trace").steps(60, compute=5.0)
    file.tier("cuda", "off", "the trace holds no device")
    with file.open() as run:
        report = model.build(run)
        for width in (40, 80):
            shown = " ".join(console.to_plain(console.show_lines(report, width=width)).split())
            for why in {a.why for a in report.abstained}:
                assert why in shown.partition("Checks skipped:")[2].partition("Tiers")[0], (width, why)


def test_the_note_after_which_nothing_is_to_be_done_is_the_last(tmp_path: Path) -> None:
    file = crowded(tmp_path / "a.tpr").note(f"{model.LOOKS_LESS}, and more").note("a hook is off")
    with file.open() as run:
        assert model.build(run).notes[-2:] == ("a hook is off", f"{model.LOOKS_LESS}, and more")


def test_that_fewer_samples_are_taken_is_said_in_plain_words(tmp_path: Path) -> None:
    core = "to stay below 1 %: in one second it cost more; times stay exact, places are coarser, and nothing needs"
    with crowded(tmp_path / "a.tpr").note(f"{model.LOOKS_LESS}, {core} to be done").open() as run:
        note = model.build(run).notes[-1]
    assert note.startswith(
        "trainperf samples less often to keep its own cost below 1 %: no action needed; times stay exact"
    )


def test_notes_for_which_there_is_no_room_are_counted(tmp_path: Path) -> None:
    with crowded(tmp_path / "a.tpr").note("one").note("two").open() as run:
        text = console.summary(run)
        assert text.splitlines()[-1].endswith("# 2 notes: one; ...") and len(text.splitlines()) <= console.MAX_LINES


def test_a_note_that_is_too_long_ends_with_a_clause(tmp_path: Path) -> None:
    note = "2.8 s passed before the first step: no figure here includes them; without a DataLoader that step begins at "
    file = RunFile(tmp_path / "a.tpr").steps(60, compute=9.0)
    with file.note(f"{note}its backward: what its body did before it is not in it").open() as run:
        text = " ".join(console.summary(run).split())
    assert "Note 2.8 s passed before the first step: no figure here includes them More" in text


def test_an_urgent_note_is_whole_beside_others(tmp_path: Path) -> None:
    urgent = (
        "the run was saved to /tmp/b.tpr: it was removed or replaced while it was being written (a.tpr is not complete)"
    )
    with RunFile(tmp_path / "a.tpr").note("fewer samples").steps(60, compute=9.0).open() as run:
        text = " ".join(console.summary(run, notes=[urgent]).split())
    assert urgent in text and text.endswith("# note: fewer samples") and "Note  fewer" not in text
