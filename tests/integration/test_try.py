"""`trainperf try`, whole: a script that nobody edited, and what is left of its trials."""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainperf.errors import TrainperfError
from trainperf.prove import same_training, sandbox
from trainperf.prove.changes import Change
from trainperf.prove.epochs import later
from trainperf.prove.trial import Asked, Command, Trials

PROGRAMS = Path(__file__).parents[1] / "programs" / "prove"
TRY = [sys.executable, "-m", "trainperf", "try"]
LIVE = pytest.mark.live  # a dozen seconds each


@contextlib.contextmanager
def nothing_stays_in(made: Path) -> Iterator[Path]:
    """Where the script lies, with a checkpoint of an earlier training; nothing of a trial may stay in it."""
    made.mkdir(exist_ok=True)
    (made / "train.py").write_text((PROGRAMS / "sleeping_loader.py").read_text())
    (made / "last.pt").write_text("keep")
    yield made
    assert (made / "last.pt").read_text() == "keep"
    assert {f.name for f in made.iterdir()} <= {"train.py", "last.pt", "fix.patch"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with nothing_stays_in(tmp_path / "work") as made:
        yield made


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Trials]]:
    made, tmp = tmp_path_factory.mktemp("forked"), tmp_path_factory.mktemp("tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        temporary_in(tmp, patch)
        trials = Trials(Command("train.py")).__enter__()
        trials.warm()
    yield made, tmp, trials
    trials.__exit__(None, None, None)
    assert leftovers(tmp) == []


@pytest.fixture
def trials(forked: tuple[Path, Path, Trials], monkeypatch: pytest.MonkeyPatch) -> Iterator[Trials]:
    """Of the script in the current folder, as the test has written it: what forks trials takes seconds to start."""
    made, tmp, running = forked
    monkeypatch.chdir(made)
    before = leftovers(tmp)
    with nothing_stays_in(made):
        yield running
    assert leftovers(tmp) == before


def environment(tmp: Path) -> dict[str, str]:
    tmp.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(tmp)}


def temporary_in(tmp: Path, patch: pytest.MonkeyPatch) -> None:
    """For this process and its children."""
    patch.setenv("TMPDIR", str(tmp))
    patch.setattr(tempfile, "tempdir", None)


def leftovers(tmp: Path) -> list[str]:
    return [p.name for p in tmp.iterdir() if not p.name.startswith("torchinductor")] + processes(tmp)


def processes(tmp: Path) -> list[str]:
    """Those that were started with this TMPDIR, or one in it, and still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*"):
        try:
            if any(v.startswith(f"TMPDIR={tmp}".encode()) for v in (status / "environ").read_bytes().split(b"\0")):
                found.append((status / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_each_change_gets_its_verdict_and_the_proven_one_a_patch(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    changes = ["prefetch_factor=3", "zero_grad=set_to_none", "num_workers=6,persistent_workers=True"]
    words = [*TRY, "--json", "--budget", "100s"]
    for change in changes:
        words += ["--change", change]
    tmp = tmp_path / "tmp"
    done = subprocess.run(
        [*words, "--", "train.py"], cwd=folder, env=environment(tmp), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    failed, without_effect, proven = result["changes"]
    assert failed["verdict"] == "failed" and failed["reason"].startswith("ValueError: prefetch_factor")
    assert without_effect["verdict"] == "not_applied" and "none already" in without_effect["reason"]
    assert proven["verdict"] == "proven" and proven["gain"] > 1.5 and proven["pairs"] >= 4, proven
    assert any("other random orders" in note for note in proven["notes"])
    assert result["accepted"] == {"num_workers": 6, "persistent_workers": True}
    subprocess.run(["git", "apply", "fix.patch"], cwd=folder, check=True)
    edited = (folder / "train.py").read_text()
    assert "DataLoader(Waits(), batch_size=8, shuffle=True, num_workers=6, persistent_workers=True)" in edited
    assert edited.count("num_workers") == 1
    assert leftovers(tmp) == []


def test_a_patch_is_applied_in_the_trial_alone(trials: Trials, tmp_path: Path) -> None:
    if sandbox.why_not():
        pytest.skip(f"no overlay here: {sandbox.why_not()}")
    lines = Path("train.py").read_text().splitlines(keepends=True)
    edited = [line.replace("batch_size=8", "batch_size=4") for line in lines]
    (tmp_path / "my.diff").write_text("".join(difflib.unified_diff(lines, edited, "a/train.py", "b/train.py")))
    (tmp_path / "bad.diff").write_text("nothing")
    trial = trials.run(Asked(Change(patch=str(tmp_path / "my.diff")), batches=5))
    assert trial.finished and set(trial.record["epochs"][0]["samples"]) == {4}
    bad = trials.run(Asked(Change(patch=str(tmp_path / "bad.diff")), batches=5))
    assert bad.ended == "error" and bad.error.startswith("git apply: error: No valid patches")
    assert Path("train.py").read_text() == "".join(lines)


def test_another_script_is_another_training(trials: Trials, tmp_path: Path) -> None:
    first, again = (trials.run(Asked(batches=5)) for _ in range(2))
    for rate, kind in (("0.01", "same"), ("0.02", "other")):
        (tmp_path / "other.py").write_text(Path("train.py").read_text().replace("lr=0.01", f"lr={rate}"))
        trial = trials.run(Asked(Change(against=(str(tmp_path / "other.py"),)), first.loader, batches=5))
        assert trial.finished, trial.error
        found = same_training.compare([first.record, again.record], trial.record, "same")
        assert found.kind == kind and found.reason.startswith("the loss of step 2 is ") == (kind == "other"), found


@LIVE
def test_another_training_is_refused(folder: Path, tmp_path: Path) -> None:
    other = (folder / "train.py").read_text().replace("lr=0.01", "lr=0.02")
    (tmp_path / "other.py").write_text(other)
    words = [*TRY, "--json", "--against", str(tmp_path / "other.py"), "--", "train.py"]
    done = subprocess.run(
        words, cwd=folder, env=environment(tmp_path / "tmp"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 5, done.stderr
    (change,) = json.loads(done.stdout)["changes"]
    assert change["verdict"] == "changes_results" and change["reason"].startswith("the loss of step 2 is ")


@pytest.mark.parametrize(
    ("number", "trial"),
    [
        (signal.SIGHUP, 2),
        *(pytest.param(n, trial, marks=LIVE) for n, trial in ((signal.SIGTERM, 1), (signal.SIGINT, 3))),
    ],
)
def test_a_signal_leaves_no_process_and_no_file(folder: Path, tmp_path: Path, number: int, trial: int) -> None:
    """In the midst of the first run, of one that goes on by turns, and of one with workers."""
    tmp = tmp_path / "tmp"
    words = [*TRY, "--change", "num_workers=2", "--", "train.py"]
    heeds = functools.partial(signal.signal, number, signal.SIG_DFL)  # also where nohup runs the tests
    child = subprocess.Popen(words, cwd=folder, env=environment(tmp), stderr=subprocess.PIPE, preexec_fn=heeds)  # noqa: PLW1509
    deadline = time.monotonic() + 120
    while not list(tmp.glob(f"trainperf-try-*/{trial}.spec")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # into it, as far as that goes
    child.send_signal(number)
    _, error = child.communicate(timeout=30)
    assert child.returncode in (128 + number, 130) and b"Traceback" not in error
    assert leftovers(tmp) == []


def test_the_end_of_the_process_that_forks_trials_is_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of a trial, and before the next one."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    temporary_in(tmp, monkeypatch)
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    with Trials(Command("train.py")) as trials:
        for _ in range(2):
            with pytest.raises(TrainperfError, match=r"the process that starts the trials was killed by SIGKILL"):
                trials.run(Asked(batches=5))
    assert leftovers(tmp) == []


@pytest.mark.parametrize(
    "room", ["20k", pytest.param("300k", marks=LIVE)]
)  # for nothing at all, and for a part of a run file
def test_a_full_disk_is_one_line(folder: Path, tmp_path: Path, room: str) -> None:
    alone = ["unshare", "--mount", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    before = set(Path("/tmp").glob("trainperf-*.tpr"))
    tmp = tmp_path / "tmp"
    script = f'mount -t tmpfs -o size={room} tmpfs {tmp} && {{ "$@"; code=$?; ls -A {tmp}; exit $code; }}'
    done = subprocess.run(
        [*alone, "sh", "-c", script, "sh", *TRY, "--", "train.py"],
        cwd=folder,
        env=environment(tmp),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    said = f"trainperf try: trials write to {tmp}, which is full: set TMPDIR to a folder with room"
    assert done.stderr.splitlines()[-1] == said
    assert set(done.stdout.split()) <= {"torchinductor_root"} and leftovers(tmp) == []
    assert set(Path("/tmp").glob("trainperf-*.tpr")) <= before


@LIVE
def test_two_at_once_do_not_meet(folder: Path, tmp_path: Path) -> None:
    words = [*TRY, "--json", "--change", "prefetch_factor=3", "--", "train.py"]
    tmps = [tmp_path / "one", tmp_path / "two"]
    both = [subprocess.Popen(words, cwd=folder, env=environment(tmp), stdout=subprocess.PIPE) for tmp in tmps]
    for child, tmp in zip(both, tmps, strict=True):
        answer, _ = child.communicate(timeout=200)
        (change,) = json.loads(answer)["changes"]
        assert child.returncode == 5 and change["reason"].startswith("ValueError: prefetch_factor")
        assert leftovers(tmp) == []


def test_a_port_is_free_again_for_the_next_trial(trials: Trials) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = (
        f"import torch\ntorch.distributed.init_process_group('gloo', 'tcp://127.0.0.1:{port}', rank=0, world_size=1)\n"
    )
    source = Path("train.py").read_text()
    Path("train.py").write_text(source.replace("def main():\n", group + "\ndef main():\n"))
    first = trials.run(Asked(batches=5))
    for workers in (1, 0, 1):  # which inherit it
        trial = trials.run(Asked(Change.parse(f"num_workers={workers}"), first.loader, batches=5))
        assert trial.ended == "steps", trial.error


def test_a_script_that_crashes_under_a_change_says_how(trials: Trials) -> None:
    """And leaves nothing that the next trial would meet."""
    source = Path("train.py").read_text()
    for crash, said in (
        ("os.abort()", "RuntimeError: DataLoader worker (pid"),
        ("os.kill(os.getppid(), 11)", "it was killed by SIGSEGV"),
        ("raise ValueError('not here')", "ValueError: not here (train.py:"),
    ):
        crashes = source.replace("time.sleep(0.001)", f"if get_worker_info(): {crash}")
        Path("train.py").write_text(f"import os\nfrom torch.utils.data import get_worker_info\n{crashes}")
        first = trials.run(Asked(batches=5))
        trial = trials.run(Asked(Change.parse("num_workers=1"), first.loader, batches=5, timeout_s=60))
        assert trial.ended == "error" and trial.error.startswith(said), trial.error
    assert trials.run(Asked(batches=5)).ended == "steps"


@LIVE
def test_a_script_that_ends_after_fewer_steps_than_before_is_one_line(folder: Path, tmp_path: Path) -> None:
    """In each trial but the first run, which no process forks."""
    source = (folder / "train.py").read_text()
    forked = "int('zygote' in open(f'/proc/{os.getppid()}/cmdline').read())"
    less = source.replace("return 3200", f"return (3200, 40)[{forked}]").replace("range(3)", "range(1)")
    (folder / "train.py").write_text(f"import os\n{less}")
    words = [*TRY, "--change", "num_workers=1", "--", "train.py"]
    env = environment(tmp_path / "tmp")
    done = subprocess.run(words, cwd=folder, env=env, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and leftovers(tmp_path / "tmp") == []
    said = "trainperf try: the script ends after fewer steps than before: give it a fixed number of them"
    assert done.stderr.splitlines()[-1] == said


def test_what_trials_write_elsewhere_is_removed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files in no sandbox, and the temporary ones of multiprocessing, which outlive a process that ends at once."""
    elsewhere, tmp = tmp_path / "elsewhere", tmp_path / ("tmp" * 20)  # too long for the sockets of workers
    (folder / "train.py").write_text(f"open({str(elsewhere)!r}, 'w').write('x')\n" + (folder / "train.py").read_text())
    tmp.mkdir()
    monkeypatch.chdir(folder)
    temporary_in(tmp, monkeypatch)
    with Trials(Command("train.py")) as trials:
        first = trials.run(Asked(batches=5))
        trial = trials.run(Asked(Change.parse("num_workers=1"), first.loader, batches=5))
        assert trial.finished and trial.record["unproven"] == []
    assert not elsewhere.exists() and leftovers(tmp) == []


def test_processes_of_other_sessions_are_ended_too(folder: Path, tmp_path: Path) -> None:
    """As torchrun starts its ranks; whether the trial hangs, or has ended before them."""
    sleeper = "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    words = [*TRY, "--budget", "10s", "--", "train.py"]
    tmp = tmp_path / "tmp"
    told = []
    for rest in ("", "time.sleep(1000)\n"):
        (folder / "train.py").write_text(f"{sleeper}\n{rest}")
        done = subprocess.run(
            words, cwd=folder, env=environment(tmp), stderr=subprocess.PIPE, text=True, check=False, timeout=100
        )
        told.append(done.stderr.splitlines()[-1])
        assert done.returncode == 1 and leftovers(tmp) == []
    assert "no training step was seen" in told[0]
    assert told[1].endswith("it had started other processes: if one of these trains, its steps are not seen")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print(1)", "no training step was seen"),
        (
            "x = input()",
            "the script fails without a change: EOFError: EOF when reading a line (train.py:1) (a trial has no stdin: ",
        ),
        ("import sys; sys.exit('no data here')", "the script fails without a change: it left with no data here"),
    ],
)
def test_a_script_that_cannot_be_tried_is_one_line(folder: Path, tmp_path: Path, program: str, said: str) -> None:
    (folder / "train.py").write_text(program + "\n")
    done = subprocess.run(
        [*TRY, "--", "train.py"],
        cwd=folder,
        env=environment(tmp_path / "tmp"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"trainperf try: {said}"), done.stderr
    assert leftovers(tmp_path / "tmp") == []


def no_overlay(*_: object) -> None:
    raise TrainperfError("it is a test")


def test_without_a_sandbox_nothing_that_exists_is_overwritten(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """In this process, with a system that allows no overlay."""
    source = (folder / "train.py").read_text().replace("3200", "160")  # an epoch of 20 batches: it saves soon
    (folder / "train.py").write_text(
        source.replace("def main():\n", "def main():\n    open('log.txt', 'w').write('x')\n")
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sandbox, "try_out", no_overlay)
    with Trials(Command("train.py")) as trials:
        assert trials.sandboxed == []
        trial = trials.run(Asked(batches=30, fresh=True))
        assert (trial.ended, trial.error) == ("overwrite", str(folder / "last.pt"))
        made = folder / "log.txt"  # new: it may be written, and goes when the trial ends
        assert not made.exists()


def test_a_trial_that_hangs_leaves_no_new_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    makes = f"import os, time\nos.makedirs({str(elsewhere / 'run')!r})\nopen({str(elsewhere / 'run' / 'pid')!r}, 'w')\n"
    (folder / "train.py").write_text(f"{makes}open({str(elsewhere / 'ready')!r}, 'w').write('x')\ntime.sleep(1000)\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sandbox, "try_out", no_overlay)
    with Trials(Command("train.py")) as trials:
        waited = trials.run(Asked(batches=5, fresh=True, timeout_s=15))
    assert waited.ended == "hung" and list(elsewhere.iterdir()) == []


def test_batches_that_take_no_time_and_a_loader_alone(trials: Trials) -> None:
    """What the sweep's floor and --data-only are made of."""
    Path("train.py").write_text(Path("train.py").read_text().replace("3200", "160"))  # 20 batches an epoch
    cached = trials.run(Asked(batches=45, cached=3))
    read = trials.run(Asked(data_only=5.0))
    first, second, *_ = cached.record["epochs"]
    assert (len(first["delivered"]), len(second["delivered"])) == (20, 20)  # as long as they are
    assert len(set(first["codes"][4:] + second["codes"])) == 3
    assert second["end"] - second["begin"] < 0.5 * (read.record["read"]["seconds"])
    assert (
        read.record["read"]["batches"] == 17 and read.record["read"]["samples"] == 17 * 8
    )  # but the first two, and one


def test_a_file_elsewhere_makes_the_sandbox_larger(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox.why_not():
        pytest.skip(f"no overlay here: {sandbox.why_not()}")
    monkeypatch.setattr(trials, "sandboxed", [os.getcwd()])  # as in a folder of another user's; and put back at the end
    monkeypatch.setattr(trials, "named", [os.getcwd()])
    elsewhere = tmp_path / "elsewhere" / "log.txt"
    elsewhere.parent.mkdir()
    elsewhere.write_text("keep")
    source = Path("train.py").read_text()
    Path("train.py").write_text(source.replace("def main():", f"def main():\n    open({str(elsewhere)!r}, 'w')"))
    assert trials.run(Asked(batches=5)).ended == "steps"
    assert trials.sandboxed == sorted([os.getcwd(), str(elsewhere.parent)], key=lambda p: (len(p), p))
    assert elsewhere.read_text() == "keep"


def test_what_a_trial_changes_elsewhere_is_as_it_was(trials: Trials, tmp_path: Path) -> None:
    """By Python, SQLite, C++ and a subprocess; of files that were there, and new ones."""
    if sandbox.why_not():
        pytest.skip(f"no overlay here: {sandbox.why_not()}")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "run").mkdir(parents=True)
    for name in ("run/best.pt", "jit.pt", "by_shell.txt"):
        (elsewhere / name).write_text("keep")
    sqlite3.connect(elsewhere / "metrics.sqlite").execute("create table m (x)").connection.close()
    before = {f: f.read_bytes() for f in elsewhere.rglob("*") if f.is_file()}
    changes = f"""
import os, shutil, sqlite3, subprocess, torch
os.chdir({str(elsewhere)!r})
shutil.rmtree("run")
os.makedirs("run", exist_ok=False)
open("run/new.txt", "w").write("new")
with sqlite3.connect("metrics.sqlite") as database:
    database.execute("insert into m values (1)")
torch.jit.script(torch.nn.Linear(2, 2)).save("jit.pt")
subprocess.run("echo other > by_shell.txt; echo new > new_by_shell.txt", shell=True, check=True)
"""
    source = Path("train.py").read_text()
    for _ in range(2):  # the second one must begin as the first did
        Path("train.py").write_text(changes + source)
        trial = trials.run(Asked(batches=5))
        assert trial.ended == "steps", trial.error
        assert {f: f.read_bytes() for f in elsewhere.rglob("*") if f.is_file()} == before


def test_modules_of_the_current_folder_are_not_imported_before_the_script(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `python elsewhere/train.py`, which does not look there either."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "random.py").write_text("raise ImportError('nobody asked for this one')")
    monkeypatch.chdir(here)
    with Trials(Command(str(folder / "train.py"))) as trials:
        for fresh in (True, False):
            assert trials.run(Asked(batches=5, fresh=fresh)).ended == "steps"


def test_a_loader_that_is_made_for_each_epoch_is_one(trials: Trials) -> None:
    source = Path("train.py").read_text().replace("3200", "160").replace("in loader:", "in make():")
    Path("train.py").write_text(source.replace("loader = DataLoader(", "make = lambda: DataLoader("))
    first = trials.run(Asked(batches=45))
    trial = trials.run(Asked(Change.parse("num_workers=1"), first.loader, batches=45))
    paired = {"now": 0, "other": 1, "alpha": 0.01, "seconds": 2.0}
    turns = trials.run(Asked(Change(), first.loader, 12, turns={"policy": {"paired": paired}, "epochs": {}}))
    assert turns.ended == "steps" and turns.record["turns"]["pairs"], turns.error
    assert [len(e["delivered"]) for e in first.record["epochs"]] == [20, 20, 5]
    assert trial.ended == "steps" and trial.record["unproven"] == []
    assert [e["codes"] for e in trial.record["epochs"]] == [e["codes"] for e in first.record["epochs"]]


@pytest.mark.parametrize(
    ("kind", "change", "found"),
    [
        ("alike", "num_workers=2,persistent_workers=True", ""),
        ("grows", "num_workers=2", ""),
        ("grows", "num_workers=2,persistent_workers=True", "batch 1 of epoch 2 differs, though no random numbers"),
        ("copies", "num_workers=2", "draws from a random generator that it keeps"),
        ("keeps", "num_workers=2", "the dataset keeps what it makes"),
        ("once", "num_workers=2", "reads its loader once"),
    ],
)
def test_what_later_epochs_do_otherwise_is_seen(trials: Trials, kind: str, change: str, found: str) -> None:
    source = (PROGRAMS / "later_epochs.py").read_text()
    Path("train.py").write_text(source.replace('else "alike"', f'else "{kind}"'))
    first = trials.run(Asked(batches=12))
    seen = later(trials, Change.parse(change), Asked(Change(), first.loader), first.record, step_s=0.02)
    assert found in " ".join([seen.other, *seen.notes]) and bool(found) == bool(seen.other or seen.notes), seen
    assert bool(seen.other) == (kind in ("grows", "copies") and bool(found))


def test_a_sweep_finds_more_workers_than_cpus_for_a_loader_that_sleeps(folder: Path, tmp_path: Path) -> None:
    words = [*TRY[:-1], "sweep", "--json", "--budget", "100s", "--", "train.py"]
    env = environment(tmp_path / "tmp")
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["headroom_ms"] > 0.8 * found["step_ms"]
    assert found["best"]["num_workers"] >= 3 and found["changes"][0]["verdict"] == "proven", found
    tried = [p for p in found["grid"] if p["measured_ms"] is not None]
    assert tried[0] == min(found["grid"], key=lambda p: p["num_workers"]) and len(tried) >= 4
    assert leftovers(tmp_path / "tmp") == []
