"""What is written for the user replaces regular files alone, never what is read, and keeps their permissions."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.errors import TrainperfError
from trainperf.output import check_target, replacing, run_file_target


def build(path: Path, **meta: str) -> Path:
    return RunFile(path, **meta).steps(40, compute=5.0).build()  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build(tmp_path / "r.tpr")


def writers(run: Path, target: str) -> list[list[str]]:
    return [
        ["report", str(run), "-f", "-o", target],
        ["compare", str(run), str(run), "-f", "-o", target],
        *(["export", str(run), "-f", "--format", name, "-o", target] for name in ("csv", "json", "chrome")),
    ]


def special_files(folder: Path) -> list[Path]:
    pipe, link, listener = folder / "pipe", folder / "to_pipe", folder / "socket"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(listener))
    made = [pipe, link, listener]
    with contextlib.suppress(PermissionError):
        os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        made.append(folder / "null")
    return made


def test_devices_pipes_and_sockets_stay(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.json"
    trace.write_text('{"traceEvents": []}')
    monkeypatch.chdir(tmp_path)
    for special in special_files(Path(".")):
        before = os.lstat(special)
        for words in [*writers(run, str(special)), ["analyze", str(trace), "-f", "-o", str(special)]]:
            assert main(words) == 1, words
            error = capsys.readouterr().err
            assert "only regular files are replaced: give another name" in error and error.count("\n") == 1
        after = os.lstat(special)
        assert (before.st_ino, before.st_mode, before.st_rdev) == (after.st_ino, after.st_mode, after.st_rdev)
    assert not list(tmp_path.glob(".trainperf-*"))


def other_names(run: Path) -> list[str]:
    (run.parent / "soft").symlink_to(run)
    os.link(run, run.parent / "hard")
    (run.parent / "sub").mkdir()
    return [str(run), "r.tpr", "./sub/../r.tpr", "soft", "hard"]


def test_no_input_is_replaced_by_whatever_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    content = run.read_bytes()
    for target in other_names(run):
        for words in writers(run, target):
            assert main(words) == 1, words
            error = capsys.readouterr().err
            assert error == f"trainperf {words[0]}: {target} is the input itself: give another name\n"
    assert run.read_bytes() == content and os.path.islink("soft") and os.stat("hard").st_ino == run.stat().st_ino


def test_nor_any_of_several_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = tmp_path / "job"
    ranks.mkdir()
    files = [build(ranks / f"a.rank{n}.tpr", rank=str(n), world_size="3") for n in range(2)]
    broken = ranks / "a.rank2.tpr"
    broken.write_text("half a copy")
    other = build(tmp_path / "b.tpr")
    for target in (*files, broken):
        for words in (["report", str(ranks)], ["compare", str(other), str(ranks)], ["compare", str(ranks), str(other)]):
            assert main([*words, "-f", "-o", str(target)]) == 1
            assert f"{target} is the input itself" in capsys.readouterr().err
    assert broken.read_text() == "half a copy"
    page = build(tmp_path / "c.html")  # a run whose report would be called as the run is
    assert main(["report", str(page), "-f"]) == 1 and "c.html is the input itself" in capsys.readouterr().err
    assert page.read_bytes().startswith(b"SQLite")


def test_what_sqlite_keeps_next_to_an_input_is_a_part_of_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        target = f"{run}{suffix}"  # whether it is there just now or not
        assert main(["report", str(run), "-o", target]) == 1
        assert f"{target} belongs to the input {run}: give another name" in capsys.readouterr().err
    log = run.with_name("t.tpr-wal")
    log.write_text("{}")
    with pytest.raises(TrainperfError, match="belongs to the input"):  # a new t.tpr would remove it
        run_file_target(str(run.with_name("t.tpr")), overwrite=True, inputs=[log])


def test_a_tracking_database_is_not_made_in_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for uri in (f"sqlite:///{run}", f"sqlite:///{run}?mode=rw"):
        assert main(["export", str(run), "--format", "mlflow", "-o", uri]) == 1
        assert "is the input itself" in capsys.readouterr().err


def test_a_trace_is_not_replaced_by_the_run_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "a.tpr"):
        (tmp_path / name).write_text('{"traceEvents": []}')
    words = ["analyze", str(tmp_path / "a.json"), str(tmp_path / "a.tpr"), "-f", "-o", str(tmp_path)]
    assert main(words) == 1 and "a.tpr is the input itself" in capsys.readouterr().err
    assert (tmp_path / "a.tpr").read_text() == '{"traceEvents": []}'


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_replaced_file_keeps_its_permissions(run: Path, tmp_path: Path, mode: int) -> None:
    target = tmp_path / "mine"
    for words in writers(run, str(target)):
        target.touch()
        target.chmod(mode)
        assert main(words) == 0
        assert stat.S_IMODE(target.stat().st_mode) == mode and target.stat().st_size > 0
        target.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    target.touch(mode=0o600)
    os.chown(target, 12345, 23456)
    with replacing(str(target), overwrite=True) as made:
        Path(made).write_text("new")
    assert (target.stat().st_uid, target.stat().st_gid, target.read_text()) == (12345, 23456, "new")


def test_a_link_to_a_file_stays_and_the_file_has_the_new_content(run: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.html", tmp_path / "link.html"
    for words in writers(run, str(link)):
        real.write_text("old")
        real.chmod(0o600)
        link.unlink(missing_ok=True)
        link.symlink_to("far/real.html")
        assert main(words) == 0
        assert os.readlink(link) == "far/real.html" and real.read_bytes() not in (b"", b"old")
        assert stat.S_IMODE(real.stat().st_mode) == 0o600 and os.listdir(real.parent) == ["real.html"]


def test_a_link_to_nowhere_is_replaced_only_when_asked(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        check_target(str(link), overwrite=False)
    with replacing(str(link), overwrite=True) as made:
        Path(made).write_text("new")
    assert not link.is_symlink() and link.read_text() == "new" and os.listdir(tmp_path) == ["link"]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing(str(target), overwrite=True) as made:
        Path(made).write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and os.listdir(tmp_path) == ["a.html"]
