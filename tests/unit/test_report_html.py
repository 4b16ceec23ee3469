"""The HTML report: everything in it, nothing that breaks out of it, small, and all or nothing when it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import trainperf
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.report import json as as_json
from trainperf.report.html import render, write
from trainperf.report.model import build
from trainperf.report.sharing import hostless
from trainperf.runfile import HAS_CHECKPOINT, WARM_UP

VOID = {"meta", "link", "br", "hr", "img", "input"}
SECTIONS = ("findings", "steps", "worst", "gil", "loaders", "stacks", "host", "method")


class Page(HTMLParser):
    """What a browser would see: tags in balance, ids, texts, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "script":
            self.scripts.append((found, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attrs, text = self.scripts.pop()
            self.scripts.append((attrs, text + data))
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def rich(path: Path, *, hog: str = "metrics-writer", function: str = "write_metrics", note: str = "") -> RunFile:
    """A run with something of everything: its first third is slow, because a thread holds the GIL."""
    file = RunFile(path)
    thread = file.thread(hog)
    line = file.stack(f"/u/train.py:41 {function}", "/usr/lib/python3.11/threading.py:1012 run")
    own = file.stack("/u/train.py:7 fit", "/u/train.py:90 <module>")
    deep = file.stack("/v/site-packages/torch/nn/modules/linear.py:3 Linear.forward", "/u/train.py:7 fit")
    file.step(compute=90, flags=WARM_UP)
    for i in range(399):
        slow = i < 133
        file.step(
            {("fetch", "native"): 0.5},
            compute=6 + (i % 7) * 0.1,
            gil_wait=9 if slow else 0.4,
            checkpoint=30 if i % 100 == 99 else 0,
            flags=HAS_CHECKPOINT if i % 100 == 99 else 0,
        )
    file.detail("gil_wait", 1300, thread=thread, stack=line, count=600)
    file.detail("hold", 1500, thread=thread, stack=line)
    file.detail("sample", 900, stack=own, state="python")
    file.detail("sample", 2400, stack=deep, state="native", phase="backward")
    file.detail("sample", 100, phase="other", folded=9)
    for step in (300, 100, 200, 13):
        file.keep(
            step,
            "worst",
            ("fetch", "unknown", 0.5),
            ("forward", "gil_wait", 3.0),
            ("backward", "unknown", 6.0),
            thread=thread,
        )
    loader = file.loader(
        1, fetches=399, wait=200, cpu=150, longest=4, ready={0: (300, 180), 2: (99, 20)}, num_workers=2
    )
    file.worker(loader, 4321, cpu_share=0.97, seconds=5, states={"R": 40, "S": 3})
    file.host(6, process_cpus=1.2, other_cpus=0.3, idle_cpus=0.5)
    file.overhead(collector=20, marks=4)
    file.tier("throttling", "off", "no cgroup")
    if note:
        file.note(note)
    return file


def test_says_everything_the_model_says(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr", note="something happened").open() as run:
        page, model = Page(render(run)), build(run)
    words = page.words
    assert model.findings
    for f in model.findings:
        assert all(text in words for text in (f.id, f.slug, f.severity, *f.evidence, f.confidence_why)), f.id
        assert " ".join(f.fix.split()) in words
    assert model.findings[0].title[1:] in words and model.findings[0].where in words
    for text in ("2.13.0", "400", "something happened", "no cgroup", "trainperf’s own cost", "Dropped events"):
        assert text in words, text
    assert set(SECTIONS) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    for name in ("metrics-writer", "write_metrics", "/u/train.py:41", "4321"):
        assert name in words, name


def test_slow_first_third_is_said_and_drawn(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr").open() as run:
        text = render(run)
    words = Page(text).words
    assert re.search(
        r"Steps 0 to 133 took 15\.\d ms each, steps 134 to 399 took 7(\.\d)? ms: \d\.\d times faster", words
    )
    assert "mostly gil_wait (−8.6 ms)" in words
    assert text.count('class="level"') >= 2


def test_json_in_the_page_is_what_show_prints(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr").open() as run:
        page, expected = Page(render(run)), hostless(as_json.to_dict(build(run)))
    *_, (attributes, text), ours = page.scripts  # before them the numbers of flame graphs
    assert ours[0] == {}  # flame.js
    assert attributes == {"type": "application/json", "id": "trainperf-report"}
    assert json.loads(text) == json.loads(json.dumps(expected))


def test_only_our_script_may_run(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr").open() as run:
        page = Page(render(run))
    policy = next(str(a["content"]) for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert all(a == {"type": "application/json"} for a, _ in page.scripts[:-2])
    script = page.scripts[-1][1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy and f"script-src 'sha256-{digest}'" in policy
    assert not re.search(r"eval\(|innerHTML|Function\(|fetch\(|import", script)
    short = RunFile(tmp_path / "b.tpr")
    short.step(compute=1)
    with short.open() as run:
        assert len(Page(render(run)).scripts) == 1  # nothing to zoom into


def test_loads_nothing(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr").open() as run:
        text = render(run)
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form"), tag
        for name, value in attributes.items():
            assert not name.startswith("on"), name
            if name in ("href", "src", "xlink:href"):
                assert (value or "").startswith("#"), value
    assert "//" not in text.partition("<style>")[2].partition("</style>")[0]
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert "@import" not in text
    refers = set(re.findall(r"url\(#(\w+)\)", text)) | {str(a["href"])[1:] for t, a in page.tags if t == "a"}
    assert refers <= set(page.ids)


HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}${x}&amp;"


def test_names_do_not_break_out(tmp_path: Path) -> None:
    file = rich(tmp_path / "a.tpr", hog=HOSTILE, function=HOSTILE.replace(" ", "_"), note=HOSTILE)
    file.meta(
        name=HOSTILE, host=HOSTILE, torch=HOSTILE, argv=json.dumps([HOSTILE]), exception=HOSTILE, platform=HOSTILE
    )
    file.loader(7, fetches=3, wait=3, dataset=HOSTILE, sampler=HOSTILE)
    with file.open() as run:
        page = Page(render(run))
    graphs = [json.loads(text) for _, text in page.scripts[:-2]]
    assert len(graphs) == 2 and any("<script>alert(1)" in name for graph in graphs for name in graph["names"])
    assert json.loads(page.scripts[-2][1])["run"]["name"] == HOSTILE
    assert not [t for t, _ in page.tags if t == "img"]
    assert "{{7*7}}" in page.words  # a template does not run what is in a name
    assert "<script>alert(1)</script>" in page.words  # shown, as text


def test_runs_with_little_in_them(tmp_path: Path) -> None:
    for name, file in {
        "none": RunFile(tmp_path / "none.tpr"),
        "one": RunFile(tmp_path / "one.tpr").steps(1, compute=3),
        "warm": RunFile(tmp_path / "warm.tpr").steps(3, compute=3, flags=WARM_UP),
        "zero": RunFile(tmp_path / "zero.tpr").steps(3, compute=0),
        "flagged": RunFile(tmp_path / "flagged.tpr").steps(30, data_wait=3, compute=1, flags=1),
        "bare": RunFile(tmp_path / "bare.tpr", tiers=False, ended="killed", host="", torch="").steps(40, unknown=1),
        "same": RunFile(tmp_path / "same.tpr").steps(500, compute=2),
    }.items():
        with file.open() as run:
            page = Page(render(run))
        assert {"findings", "host", "method"} <= set(page.ids), name
        assert "nan" not in page.words.lower().split(), name
        assert ("no training step was seen" in page.words) == (name == "none"), name
    assert Page(render(trainperf.open(tmp_path / "one.tpr"))).words.count("step 0") >= 1


def test_the_badge_does_not_deny_a_large_info(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(100, compute=10, validation=3)
    with file.detail("sample", 400, phase="backward", state="native").open() as run:
        words = Page(render(run)).words
    assert "no warning, one thing to look at" in words and "no warning, but validation takes 23%" in words
    assert "nothing found" not in words
    quiet = RunFile(tmp_path / "b.tpr").steps(100, compute=10)
    with quiet.detail("sample", 400, phase="backward", state="native").open() as run:
        words = Page(render(run)).words
        assert "nothing found" in words and "whether these could be faster is not judged here" in words


def test_a_run_without_samples_or_rows_gets_no_good_badge(tmp_path: Path) -> None:
    with RunFile(tmp_path / "a.tpr").steps(100, compute=10).open() as run:
        assert "no verdict" in Page(render(run)).words
    with RunFile(tmp_path / "b.tpr", ended="killed").open() as run:
        words = Page(render(run)).words
    assert "nothing of its steps was written yet" in words and "no training step was seen" not in words


def test_what_could_not_be_judged_or_was_not_all_seen_gets_no_good_badge(tmp_path: Path) -> None:
    unseen = RunFile(tmp_path / "a.tpr")
    unseen.device(0, "NVIDIA H200")
    for _ in range(100):
        unseen.step(launch=10, devices={0: {"busy": 5.0, "kernels": 50, "idle": {"unknown": 5.0}}})
    with unseen.detail("sample", 400, phase="backward", state="native").open() as run:
        words, shown = Page(render(run)).words, as_json.to_dict(build(run))
    assert "no clear verdict" in words and "no verdict" in words and "nothing found" not in words
    assert shown["verdict"]["kind"] == "none"
    off = RunFile(tmp_path / "b.tpr").steps(100, compute=10).tier("gil_waits", "off", "another interpreter")
    with off.detail("sample", 400, phase="backward", state="native").open() as run:
        words, shown = Page(render(run)).words, as_json.to_dict(build(run))
    assert "the GIL was not measured" in words and "some checks skipped" in words and "nothing found" not in words
    assert shown["verdict"]["kind"] == "partly"


def test_a_run_that_is_still_written(tmp_path: Path) -> None:
    path = rich(tmp_path / "a.tpr", note="x").meta(wall_ns="0").build()
    with sqlite3.connect(path) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("DELETE FROM meta WHERE key = 'ended'")
        writer.commit()
        with trainperf.open(path) as run:
            words = Page(render(run)).words
    writer.close()
    assert "killed, or still running" in words


def test_many_steps_are_binned_and_the_worst_stay(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    for i in range(6000):
        file.step(compute=2 + (i * 7 % 13) / 10, blocked_io=400 if i == 4711 else 0)
    file.keep(4711, "worst", ("other", "unknown", 402))
    with file.open() as run:
        text = render(run)
    assert "step 4,711: 40" in text and 'class="highest"' in text and 'id="step-4711"' in text
    assert len(text.encode()) < 200_000


def test_of_400_steps_is_at_most_200_kb(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr").open() as run:
        assert len(render(run).encode()) <= 200_000


# Writing.


def test_write_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    assert write("one", target) == str(target)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write("two", target)
    assert target.read_text() == "one"
    write("two", target, overwrite=True)
    assert target.read_text() == "two"
    assert stat.S_IMODE(target.stat().st_mode) & 0o400 and os.listdir(tmp_path) == ["a.html"]
    with pytest.raises(IsADirectoryError, match=r"report\.html"):
        write("x", tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist: make it first"):
        write("x", tmp_path / "no" / "a.html")
    write("lone surrogate \udcff", tmp_path / "b.html")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").symlink_to("/dev/full")  # the link is what the failed write removes
    made = (os.open(tmp_path, os.O_RDONLY), str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: made)
    with pytest.raises(OSError, match=r"a\.html cannot be written \(No space left on device\)"):
        write("page", tmp_path / "a.html")


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "a.html").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write("x", tmp_path / "a.html")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="name a file in a folder that can be"):
        write("x", tmp_path / "a.html")


def test_run_report(tmp_path: Path) -> None:
    with rich(tmp_path / "a.tpr").open() as run:
        assert run.report(tmp_path / "a.html") == str(tmp_path / "a.html")
        with pytest.raises(FileExistsError):
            run.report(tmp_path / "a.html")
        run.report(tmp_path / "a.html", overwrite=True)


# The command.


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rich(tmp_path / "a.tpr").build()
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "a.html")
    assert main(["report", str(run)]) == 1
    err = capsys.readouterr().err
    assert "a.html exists already: give another name, or -f to replace it" in err
    assert main(["report", str(run), "-f", "-o", str(tmp_path / "b.html")]) == 0
    assert main(["report", str(run), "-f"]) == 0


def test_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = rich(tmp_path / "newer.tpr").build()
    with sqlite3.connect(newer) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()
    assert main(["report", str(newer)]) == 1
    assert "upgrade trainperf" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 1
    assert "empty is a folder without run files" in capsys.readouterr().err
    assert not (tmp_path / "newer.html").exists()


def ranks(folder: Path, slow: int = 2) -> None:
    folder.mkdir()
    for rank in range(4):
        file = RunFile(folder / f"a.rank{rank}.tpr", rank=str(rank), world_size="4", host=f"node{rank // 2}")
        own = 14.0 if rank == slow else 9.0
        file.steps(60, data_wait=own - 8, compute=8, collective=15 - own).build()


def test_ranks_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks(tmp_path / "job")
    (tmp_path / "job" / "a.rank4.tpr").write_bytes(b"")
    assert main(["report", str(tmp_path / "job")]) == 0
    captured = capsys.readouterr()
    assert "a.rank4.tpr is empty" in captured.err
    words = Page(Path(captured.out.strip()).read_text()).words
    assert "Rank 2 is the straggler: 14.0 ms a step of its own work, the others 9.0 ms" in words
    assert "mostly data_wait (+5.0 ms)" in words
    assert "15.0 ms 9.0 ms" in words  # as the sentence says it
    assert main(["show", str(tmp_path / "job")]) == 0
    out = capsys.readouterr().out
    assert "More  trainperf report " in out and "/job\n" in out and ".rank2.tpr" not in out
    assert "node1" not in words and "host 2" in words and "a.rank4.tpr is empty" in words
    assert (
        "this is rank 2" in words and "data-starved" in words.partition("The mean step")[0]
    )  # its verdict comes first


def test_of_very_many_ranks_the_ends_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job").mkdir()
    for rank in range(60):
        file = RunFile(tmp_path / "job" / f"a.rank{rank}.tpr", rank=str(rank), world_size="60")
        file.steps(100, compute=8 + rank * 0.1 + (5 if rank == 33 else 0), collective=16 - rank * 0.1).build()
    assert main(["report", str(tmp_path / "job")]) == 0
    words = Page(Path(capsys.readouterr().out.strip()).read_text()).words
    assert "60 ranks Rank 33 is the straggler" in words and "and 20 more" in words


def test_even_ranks_have_no_straggler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks(tmp_path / "job", slow=-1)
    assert main(["report", str(tmp_path / "job")]) == 0
    assert "4 ranks are even" in Page(Path(capsys.readouterr().out.strip()).read_text()).words


def test_a_folder_of_several_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.rank0", "b.rank0"):
        RunFile(tmp_path / f"{name}.tpr").steps(3, compute=1).build()
    assert main(["report", str(tmp_path)]) == 1
    assert "several runs" in capsys.readouterr().err


def test_imports_nothing_of_it_early() -> None:
    code = "import sys, trainperf; sys.exit(any(m in sys.modules for m in ('jinja2', 'markupsafe', 'numpy', 'html')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Devices.


def test_devices_and_what_they_waited_for(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    file.device(0, "NVIDIA <H200>", lead_us=120)
    hog = file.thread("uploader")
    line = file.stack("/u/train.py:88 upload", "/usr/lib/python3.11/threading.py:9 run")
    sync = file.stack("/v/site-packages/torch/_tensor.py:3 item", "/u/train.py:30 loss_item", "/u/train.py:7 fit")
    for _ in range(100):
        device = {
            "busy": 6.0,
            "kernels": 210,
            "kernel": 5.0,
            "launches": 210,
            "idle_gil_wait": 3.0,
            "exposed_copy": 0.5,
        }
        file.step({("forward", "native"): 5, ("backward", "gpu_wait"): 3}, gil_wait=4, devices={0: device})
    file.keep(7, "worst", ("forward", "gil_wait", 4), ("backward", "unknown", 8), thread=hog)
    file.keep_device(7, 0, ("kernel", "gemm_bf16", 6), ("idle", "gil_wait", 4), ("copy", "h2d", 2))
    file.kernel(
        "void at::native::fill_kernel<4, Functor<float>>(int)", 400, kind="no_tensor_core", eligible=True, count=9
    )
    file.copy("h2d", 60, src="pageable", dst="device", count=100, bytes=10**9, exposed=50)
    file.call("stream_sync", 300, count=100, failed=3, longest=9, steps=100)
    file.detail("call", 280, phase="backward", state="stream_sync", stack=sync)
    file.detail("idle_gil_wait", 270, thread=hog, stack=line).detail("gil_wait", 400, thread=hog, stack=line)
    with file.open() as run:
        text = render(run)
    words = Page(text).words
    for said in (
        *("NVIDIA <H200>: busy 50% of the time", "idle: gil_wait 3.0 ms 25%", "kernels a step 210", "0.12 ms (median)"),
        *("fill_kernel 400 ms", "no tensor cores, could use them", "h2d, pageable to device not pinned", "1.0 GB"),
        *("stream_sync MainThread 100 300 ms 9.0 ms 3", "loss_item (/u/train.py:30) stream_sync 280 ms"),
        "uploader upload (/u/train.py:88) 270 ms",
    ):
        assert said in words, said
    opened = text.partition('id="step-7"')[2].partition("</details>")[0]
    for said in (
        "gemm_bf16: 6.0 ms",
        "idle, because of gil_wait: 4.0 ms",
        "held by uploader: 4.0 ms",
        "<span>GPU</span>",
    ):
        assert said in opened, said


def test_a_run_read_from_a_trace_says_so(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr", source="trace", torch="", python="", host="")
    file.steps(30, compute=3, launch=4)
    file.keep(3, "worst", ("forward", "launch", 4), ("backward", "native", 3))
    with file.open() as run:
        text = render(run)
    words = Page(text).words
    assert "none: read from a trace" in words and "not imported" not in words
    assert "the profiler that recorded it slowed the host down" in words
    assert "<span>cause</span>" in text  # a trace knows the cause of each piece, not of waits alone
