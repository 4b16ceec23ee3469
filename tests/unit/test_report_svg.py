"""The charts by themselves: well-formed, in proportion, in few characters, and safe whatever text they are given."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from trainperf.report.svg import bars, distribution, flame, palette, spark, stack, steps
from trainperf.report.svg.base import duration, num, short, ticks
from trainperf.runfile.schema import CAUSES, PHASES

NASTY = '"><script>&\0\x1b' + "é" * 500


def parse(svg: str) -> ET.Element:
    return ET.fromstring(f"<div>{svg}</div>")


def contrast(a: str, b: str) -> float:
    """WCAG 2: (lighter + 0.05) / (darker + 0.05)."""

    def luminance(colour: str) -> float:
        text = colour.lstrip("#")
        text = "".join(c * 2 for c in text) if len(text) == 3 else text
        parts = [int(text[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    first, second = sorted((luminance(a), luminance(b)))
    return (second + 0.05) / (first + 0.05)


def test_numbers_are_short() -> None:
    assert [num(v) for v in (0, -0.001, 1.5, 100.0, 0.126, -2.5)] == ["0", "0", "1.5", "100", "0.13", "-2.5"]
    texts = [duration(v) for v in (0, 0.0004, 0.25, 8.12, 812.3, 1240, 200_000)]
    assert texts == ["0 ms", "0.4 µs", "0.25 ms", "8.1 ms", "812 ms", "1.24 s", "3.3 min"]
    assert len(short("x" * 10_000)) <= 160


@pytest.mark.parametrize("top", [0.003, 0.7, 1.0, 9.7, 14, 99, 1234.5])
def test_ticks_are_round_and_in_range(top: float) -> None:
    found = ticks(top)
    assert found[0] == 0 and 3 <= len(found) <= 6 and found[-1] <= top * 1.001
    assert len({round(b - a, 9) for a, b in itertools.pairwise(found)}) == 1


def test_every_cause_and_phase_has_a_look_of_its_own() -> None:
    assert set(palette.CAUSE_LOOKS) == set(CAUSES) and set(palette.PHASE_LOOKS) == set(PHASES)
    for looks in (palette.CAUSE_LOOKS, palette.PHASE_LOOKS):
        assert len({(a.colour, a.pattern) for a in looks.values()}) == len(looks)
    for a in (*palette.CAUSE_LOOKS.values(), *palette.PHASE_LOOKS.values(), *palette.DEVICE_LOOKS.values()):
        assert contrast(a.colour, a.ink) >= 4.5, a
    ids = re.findall(r'id="(\w+)"', palette.definitions())
    used = {palette.fill(a) for a in palette.CAUSE_LOOKS.values() if a.pattern}
    assert len(ids) == len(set(ids)) and used <= {f"url(#{id})" for id in ids}


def heights(svg: str, fill: str, bins: int) -> list[float]:
    """The outline of a layer: its height above the floor in each of `bins`."""
    path = next(p.get("d") or "" for p in parse(svg).iter("path") if p.get("fill") == fill)
    path = path.removeprefix("M0 240").removesuffix("V240z")
    floor, at, unit, out = 240, 0.0, round(1000 / bins), []
    for kind, number in re.findall(r"([Vvh])(-?[\d.]+)", path):
        if kind == "V":
            at = float(number)
        elif kind == "v":
            at += float(number)
        else:
            out += [floor - at] * round(float(number) / unit)
    return out


def test_stack_adds_up() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.uniform(1, 5, 50), rng.uniform(1, 5, 50)
    looks = palette.CAUSE_LOOKS["compute"], palette.CAUSE_LOOKS["gil_wait"]
    chart = stack.timeline([("compute", looks[0], first), ("gil_wait", looks[1], second)], top_ms=12)
    for look, expected in ((looks[1], first + second), (looks[0], first)):
        found = heights(chart.svg, palette.fill(look), 50)
        assert np.abs(np.array(found) / 240 * 12 - expected).max() < 12 / 240
    assert chart.ticks[0] == (0.0, "0")


def test_stack_clips_what_is_longer_and_marks_it() -> None:
    values = np.ones(10)
    values[4] = 500.0
    mark = stack.Mark(4.5, 500, f"step 4 {NASTY}", "step-4")
    chart = stack.timeline([("compute", palette.look("compute"), values)], top_ms=2, marks=[mark])
    assert max(heights(chart.svg, palette.fill(palette.look("compute")), 10)) == 240
    assert 'class="mark over"' in chart.svg and "bottom:100%" in chart.svg and 'href="#step-4"' in chart.svg
    parse(chart.svg)


def test_words_of_a_mark_near_the_right_edge_lie_to_its_left() -> None:
    """So marks apart by more than their words may meet: 0.69 and 0.86 of the width do, 0.45 and 0.69 do not."""
    extents = [stack.Mark(bin, 1, "step").extent(100) for bin in (45, 69, 86)]
    assert extents[1][1] > extents[2][0] and extents[0][1] < extents[1][0]
    assert min(extents)[0] >= 0 and max(end for _, end in extents) <= 1


def test_stack_of_many_bins_is_small() -> None:
    rng = np.random.default_rng(1)
    layers = [(c, palette.look(c), rng.uniform(0, 2, 1000)) for c in CAUSES[:10]]
    assert len(stack.timeline(layers, top_ms=25).svg) < 110_000
    flat = [(c, palette.look(c), np.full(1000, 2.0)) for c in CAUSES[:10]]
    assert len(stack.timeline(flat, top_ms=25).svg) < 2_000  # equal neighbours are one


def test_nothing_to_draw_is_no_error() -> None:
    assert "no steps" in stack.timeline([], top_ms=0).svg
    for svg in (
        bars.bar([], whole=0, label="x"),
        steps.timeline([], label="x", description=""),
        flame.flame([], label="x", description=""),
        distribution.histogram([], [], description=""),
    ):
        parse(svg)
    assert spark.spark([1.0], top=1, label="x", description="") == ""


def test_bar_is_in_proportion() -> None:
    look = palette.look("compute")
    parts = [bars.Part("a", look, 30, "t"), bars.Part("b", look, 10, "t"), bars.Part("tiny", look, 0.001, "t")]
    pieces = [e for e in parse(bars.bar(parts, whole=80, label="x")).iter() if "%" in e.get("x", "")]
    assert [(p.get("x"), p.get("width")) for p in pieces] == [("0%", "37.5%"), ("37.5%", "12.5%")]


def test_texts_are_escaped_everywhere() -> None:
    look = palette.look("gil_wait")
    for svg in (
        bars.bar([bars.Part(NASTY, look, 1, NASTY)], whole=1, label=NASTY, description=NASTY, wide=10**5),
        steps.timeline([steps.Lane(NASTY, [steps.Piece(0, 1, NASTY, look, NASTY)])], label=NASTY, description=NASTY),
        flame.flame([flame.FlameFrame(0, 0, 1, NASTY, NASTY, "user")], label=NASTY, description=NASTY),
        distribution.histogram([distribution.Bar(0, 1, 3, NASTY)], [(NASTY, 0.5)], description=NASTY),
        spark.spark([1, 2], top=2, label=NASTY, description=NASTY),
        stack.timeline(
            [(NASTY, look, np.ones(3))], top_ms=1, hover=[(0, 3, NASTY)], label=NASTY, description=NASTY
        ).svg,
    ):
        parse(svg)  # as XML: an unescaped < or & is an error
        assert "<script" not in svg and "\0" not in svg and "\x1b" not in svg
        assert 'role="img"' in svg and "<title>" in svg and "<desc>" in svg
    data = flame.callers([flame.Caller(0, NASTY, 1.0, 3, "root"), flame.Caller(1, NASTY, 0.33337, 1, "user")])
    inner = data.removeprefix('<script type="application/json">').removesuffix("</script>")
    assert not set("<>&\0\x1b") & set(inner) and len(inner) < 2 * len(NASTY) + 1000
    assert json.loads(inner)["rows"] == [[0, 0, 10000, 3], [1, 1, 3333, 1]] and json.loads(inner)["kinds"] == ["r", "u"]


def test_step_leaves_out_what_cannot_be_seen() -> None:
    look = palette.look("gil_wait")
    lane = steps.Lane("waits", [steps.Piece(0.1, 0.5, "a", look, "t"), steps.Piece(0.6, 0.6001, "b", look, "t")])
    pieces = [e for e in parse(steps.timeline([lane], label="x", description="")).iter("svg") if e.get("x")]
    assert [p.get("x") for p in pieces] == ["10%"]


def test_spark_is_thinned_to_its_peaks() -> None:
    values = [0.0] * 5000
    values[2500] = 9.0
    svg = spark.spark(values, top=9, label="x", description="")
    assert 'd="M0 26 59 26 60 2 61 26 119 26"' in svg  # of level stretches only the ends


def test_a_name_that_fits_a_desk_only_is_left_away_on_a_phone() -> None:
    look = palette.CAUSE_LOOKS["compute"]
    parts = [bars.Part("compute", look, 85, "a"), bars.Part("optimizer", look, 15, "b")]
    drawn = bars.bar(parts, whole=100, label="x")
    assert drawn.count('<g class="desk">') == 1 and ">optimizer</text></g>" in drawn
