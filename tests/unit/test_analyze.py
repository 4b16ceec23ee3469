"""`trainperf analyze`: exit codes, files, ranks, and one line for whatever is no trace."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trainperf
from trainperf.cli.main import main
from trainperf.traces import analyze, rank_in_name, stem


def job(steps: int = 30, *, rank: int | None = None, device: bool = True) -> dict[str, Any]:
    """Each step of 10 ms fetches for 6 ms, launches one kernel of 2 ms, and waits for it."""
    events: list[dict[str, Any]] = []

    def span(category: str, name: str, ts: float, dur: float, **args: Any) -> None:
        where = {"pid": 0, "tid": 7} if "stream" in args else {"pid": 50, "tid": 51}
        events.append({"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, **where, "args": args})

    for i in range(steps):
        at = 1_700_000_000_000_000.125 + i * 10_000
        span("user_annotation", f"ProfilerStep#{i + 5}", at, 9_999.5)
        span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 100, 6_000)
        span("cpu_op", "aten::linear", at + 6_200, 300)
        if device:
            span("cuda_runtime", "cudaLaunchKernel", at + 6_300, 50, correlation=i + 1)
            span("kernel", "ampere_sgemm_64x64", at + 6_400, 2_000, device=0, stream=7, correlation=i + 1)
            span("cuda_runtime", "cudaDeviceSynchronize", at + 6_600, 1_810, correlation=9_000 + i)
    document: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": 4}
    return document


def write(path: Path, document: Any) -> Path:
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where private run files go."""
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_says_what_a_job_waits_for(tmp_path: Path, private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "t.json.gz", job())
    assert main(["analyze", str(trace)]) == 0
    told = capsys.readouterr().out
    assert "data" in told.splitlines()[0]
    assert "GPU" in told
    assert "trainperf show" not in told and "trainperf report" not in told, "a private file cannot be shown again"
    assert list(private.iterdir()) == []


def test_the_run_file_is_an_ordinary_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = write(tmp_path / "t.json", job()), tmp_path / "a.tpr"
    assert main(["analyze", str(trace), "-o", str(out)]) == 0
    assert "trainperf report" in capsys.readouterr().out
    assert main(["show", str(out)]) == 0
    capsys.readouterr()
    assert main(["show", str(out), "--json", "--steps"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["steps"]["count"] == 30
    assert document["per_step"][0]["index"] == 5
    assert main(["analyze", str(trace), "-o", str(out)]) == 1, "there already"
    assert "-f" in capsys.readouterr().err
    assert main(["analyze", str(trace), "-o", str(out), "-f", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"][0]["id"] == 0
    before = trace.read_bytes()
    assert main(["analyze", str(trace), "-o", str(trace), "-f"]) == 1, "the trace itself"
    assert trace.read_bytes() == before
    with trainperf.open(out) as run:
        assert run.meta["source"] == "trace"
        assert run.tiers["gil_waits"].tier == "off"
        assert int(run.steps.wall_ns[0]) == 10_000_000
        # 2 ms of each 10 ms step, whatever a double makes of its stamps.
        assert run.devices[0].steps.busy_ns.tolist() == [2_000_000] * 30
        assert run.cause_ns("data_wait") == 30 * 6_000_000


def test_ranks_become_run_files_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces, out = tmp_path / "traces", tmp_path / "runs"
    traces.mkdir()
    for rank in (0, 1, 2):
        write(traces / f"job_rank{rank}.pt.trace.json.gz", job(rank=rank))
    (traces / "broken.json").write_text("{}")
    (traces / "notes.txt").write_text("not looked at")
    assert main(["analyze", str(traces), "-o", str(out)]) == 1, "one of them is no trace"
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "broken.json" in said.err
    assert "rank 2" in said.out
    assert sorted(p.name for p in out.iterdir()) == ["job_rank0.tpr", "job_rank1.tpr", "job_rank2.tpr"]
    for rank in (0, 1, 2):
        with trainperf.open(out / f"job_rank{rank}.tpr") as run:
            assert run.meta["rank"] == str(rank)
    (traces / "broken.json").unlink()
    assert main(["analyze", str(traces), "-o", str(out), "-f", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_a_trace_without_a_device_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(write(tmp_path / "t.json", job(device=False)))]) == 0
    told = capsys.readouterr().out
    assert "data" in told.splitlines()[0]
    assert "no device" in told


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.json", b"", "is empty"),
        ("text.json", b"hello", "no JSON"),
        ("other.json", b'{"a": 1}', "no traceEvents"),
        ("none.json", b'{"traceEvents": []}', "no events"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": []}', mtime=0)[:12], "compressed data"),
        ("zip.json.gz", b"PK\x03\x04", "no JSON"),
        ("deep.json", b"[" * 100_000, "no events"),
        ("binary.json", bytes(range(256)) * 10, "no JSON"),
    ],
)
def test_what_is_no_trace_is_one_line(
    name: str, content: bytes, says: str, *, tmp_path: Path, private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["analyze", str(tmp_path / name)]) == 1
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(private.iterdir()) == []


def test_other_bad_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze"]) == 2
    assert main(["analyze", str(tmp_path / "none.json")]) == 1
    assert main(["analyze", str(tmp_path)]) == 1
    assert "without traces" in capsys.readouterr().err
    trace = write(tmp_path / "t.json", job(2))
    assert main(["analyze", str(trace), str(trace), "-o", str(trace)]) == 1, "a file where a folder is needed"
    assert main(["analyze", str(trace), "-o", str(tmp_path / "no" / "a.tpr")]) == 1


def test_half_a_trace_is_used_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(job()).encode()
    (tmp_path / "t.json").write_bytes(text[: len(text) // 2])
    assert main(["analyze", str(tmp_path / "t.json"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert 10 <= document["steps"]["count"] <= 16
    assert any("cut" in note for note in document["notes"])


def test_an_error_of_the_caller_ends_it(tmp_path: Path, private: Path) -> None:
    # The first call comes after 100 ms: what takes longer is not the events but what stands behind them.
    trace = write(tmp_path / "t.json", job(10) | {"pad": [" " * 1_000_000] * 80})

    def stop(share: float) -> None:
        assert 0 <= share <= 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyze(str(trace), str(tmp_path / "a.tpr"), progress=stop)
    assert not (tmp_path / "a.tpr").exists()
    assert list(private.iterdir()) == []


def test_beside_a_watch(tmp_path: Path) -> None:
    """Stacks of the trace do not mix with those of a watch that runs."""
    trace = write(tmp_path / "t.json", job())
    with trainperf.watch(tmp_path / "w.tpr", verbose=False) as watch:
        watch.step()
        done = analyze(str(trace), str(tmp_path / "a.tpr"))
        watch.step()
    with trainperf.open(done.path) as run:
        assert run.step_count == 30
    with trainperf.open(tmp_path / "w.tpr") as run:
        assert run.step_count >= 1


def test_names() -> None:
    assert stem("a/host_7.1700.pt.trace.json.gz") == "host_7.1700"
    assert stem("a/.json") == "trace"
    assert rank_in_name("job_rank12.json") == 12
    assert rank_in_name("Rank-3.pt.trace.json.gz") == 3
    assert rank_in_name("frank.json") is None
    assert rank_in_name("rank0/job.json") is None


def test_a_trace_that_inflates_without_end_is_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    member = gzip.compress(b"a" * (1 << 20))
    trace = tmp_path / "bomb.json.gz"
    trace.write_bytes(gzip.compress(b'{"host": "') + member * 500)  # half a GB
    assert main(["analyze", str(trace)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "it inflates to more than 200 times its size, as no trace does" in error


EXITS = """
import sys, threading, time
from trainperf import _native

def analyzes(number):
    while True:
        _native.analyze_trace(sys.argv[1], f"{sys.argv[2]}/{number}.tpr", overwrite=True, progress=lambda share: None)
        done.set()

done = threading.Event()
for number in range(4):
    threading.Thread(target=analyzes, args=(number,), daemon=True).start()
done.wait()
time.sleep(float(sys.argv[3]))
"""


def test_a_process_may_exit_while_daemon_threads_analyze(tmp_path: Path) -> None:
    """CPython before 3.14 ended them as they asked for the GIL: the process was aborted in half of its exits."""
    trace = write(tmp_path / "t.json", job(3_000))
    for i in range(8):
        command = [sys.executable, "-c", EXITS, str(trace), str(tmp_path), str(i / 250)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
