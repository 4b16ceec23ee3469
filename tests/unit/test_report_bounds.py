"""A run file comes from elsewhere: whatever is in it, the page stays small and says what it leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from runfiles import RunFile
from trainperf.notebook.page import frame
from trainperf.report import console, model
from trainperf.report.html import render
from trainperf.report.svg import palette, steps
from trainperf.report.svg.base import script_safe

LONG = "x" * 10_000
HARD_LIMIT = 1_000_000  # bytes; docs/report.md


def long_names(file: RunFile) -> None:
    odd = "🚀\u202e\x1b[31m\0日本語 ƒ"
    file.steps(200, compute=5, gil_wait=5)
    file.meta(name=LONG, host=odd, torch=LONG, python=LONG, platform=LONG, argv=json.dumps([LONG]), exception=LONG)
    file.note(LONG).tier("stacks", "off", LONG).loader(7, fetches=3, wait=3, dataset=LONG, sampler=LONG)
    for i in range(300):
        file.detail("sample", 5, stack=file.stack(f"/u/{LONG}{i}.py:{i} {LONG}{i}"))
        file.detail("gil_wait", 5, thread=file.thread(f"{LONG}{i}"), stack=file.stack(f"/u/{LONG}{i}.py:{i} {odd}{i}"))


def one_long_hog(file: RunFile) -> None:
    """Its name is in the title, the evidence and what is to be done."""
    hog, line = file.thread(LONG * 6), file.stack(f"/u/{LONG * 6}.py:3 {LONG * 6}")
    file.steps(100, compute=5, gil_wait=5).detail("gil_wait", 500, thread=hog, stack=line, count=100)


def many_rows(file: RunFile) -> None:
    file.steps(100, compute=5).overhead(**{f"place{i}": 5 for i in range(5000)})
    file.dropped(**{f"what{i}": 5 for i in range(5000)})
    for i in range(1500):
        file.note(f"{LONG[:900]} {i}").tier(f"probe{i}", "off", LONG[:900])


def many_devices(file: RunFile) -> None:
    for id in range(200):
        file.device(id, f"{LONG[:400]} {id}")
    file.steps(30, compute=5, devices={id: {"busy": 2.0, "idle": {"python": 1.0}} for id in range(200)})
    for i in range(1000):
        file.copy(f"h2d {LONG[:300]} {i}", 50, src="pageable", dst="device")


def many_pieces(file: RunFile) -> None:
    hog = file.thread(LONG)
    for id in range(40):
        file.device(id)
    file.steps(30, compute=50, devices={id: {"busy": 20.0} for id in range(40)})
    for step in range(8):
        waits = [("forward" if i % 2 else "backward", "gil_wait" if i % 3 else "unknown", 0.04) for i in range(1200)]
        file.keep(step, "worst", *waits, thread=hog)
        for id in range(40):
            file.keep_device(step, id, *[("kernel" if i % 2 else "copy", LONG[:700], 1.01) for i in range(48)])


@pytest.mark.parametrize(
    ("fill", "said"),
    [
        (long_names, ["🚀", "日本語"]),
        (one_long_hog, ["TP201"]),
        (
            many_rows,
            ["and 1,480 more notes.", "and 1,465 more.", ">and 4,960 more.", "what1032 and 4,960 more."],
        ),
        (many_devices, ["and 184 more devices", "and 970 more kinds."]),
        (many_pieces, ["and 32 more devices."]),
    ],
)
def test_a_page_has_an_end_and_says_what_it_leaves_out(
    tmp_path: Path, fill: Callable[[RunFile], None], said: list[str]
) -> None:
    file = RunFile(tmp_path / "a.tpr")
    fill(file)
    with file.open() as run:
        text = render(run)
    assert len(text.encode()) < HARD_LIMIT / 2
    assert not set(text) & {"\u202e", "\x1b", "\0"}
    for words in said:
        assert words in text, words


def test_show_has_an_end_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    for fill, said in ((many_rows, "and 1,480 more notes, which --json has"), (one_long_hog, "gil-hog (critical): ")):
        file = RunFile(tmp_path / "a.tpr")
        fill(file)
        with file.open() as run:
            shown = console.to_plain(console.show_lines(model.build(run), width=80))
        assert said in shown and len(shown.splitlines()) < 150 and max(map(len, shown.splitlines())) < 320


def test_an_endless_verdict_does_not_fill_a_cell() -> None:
    output = frame("page", LONG, "Why")
    assert len(output) < 2000 and output.count("xxx...xxx") == 2


def test_json_in_a_page_is_cut_only_where_it_is_endless() -> None:
    usual = {"notes": ["x" * 900] * 100, "share": 0.5, "name": None, "rows": [{"rank": i} for i in range(100)]}
    assert json.loads(script_safe(usual)) == usual
    cut = json.loads(script_safe({"notes": [LONG] * 1000, "tiers": {f"p{i}": i for i in range(1000)}, LONG: 1}))
    assert len(cut["notes"]) == 129 and cut["notes"][-1] == "and 872 more" and len(cut["notes"][0]) == 1000
    assert len(cut["tiers"]) == 129 and cut["tiers"]["and 872 more"] is None
    assert max(map(len, cut)) == 1000


def test_a_step_of_very_many_pieces_tells_the_longest_and_draws_the_rest() -> None:
    look = palette.look("gil_wait")
    lanes = [[steps.Piece(i / 40, (i + 0.9) / 40, "name", look, "a" * 600) for i in range(40)] for _ in range(3)]
    narrow = [steps.Piece(i / 900, (i + 0.6) / 900, "name", look, "narrow") for i in range(900)]
    drawn = [*(steps.Lane("GPU", p) for p in lanes), steps.Lane("waits", narrow)]
    svg = steps.timeline(drawn, label="x", description="")
    assert svg.count(f"<title>{'a' * 79}") == 80 and "narrow" not in svg
    assert len(re.findall(r"M\d+ 0h", svg)) == 40 + 500  # of 2,000 strokes each of the four lanes has a quarter


def test_neighbours_of_one_look_are_one_stroke() -> None:
    look = palette.look("gil_wait")
    pieces = [steps.Piece(i / 100, (i + 1) / 100, "name", look, "text") for i in range(10)]
    svg = steps.timeline(
        [steps.Lane("waits", [*pieces, steps.Piece(0.5, 0.51, "name", look, "")])], label="", description=""
    )
    assert re.findall(r"M\d+ 0h\d+", svg) == ["M0 0h200", "M1000 0h20"]
