"""What trials write: the overlays that take it, and the guard where there are none."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from trainperf.errors import TrainperfError
from trainperf.prove import sandbox

OVERLAYS = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"no overlay here: {sandbox.why_not()}")


def in_sandbox(code: str, folders: list[Path], real: list[Path], scratch: list[Path]) -> str:
    """What `code` prints, which runs in the first of the folders."""
    for place in scratch:
        place.mkdir(exist_ok=True)
    enters = (
        "import json, os, sys; from trainperf.prove import sandbox\n"
        "folders, real, scratch = json.loads(sys.argv[1])\n"
        "os.chdir(folders[0]); assert sandbox.enter(folders, real, scratch) == {}\n"
    )
    words = json.dumps([[str(p) for p in paths] for paths in (folders, real, scratch)])
    return subprocess.run(
        [sys.executable, "-c", enters + code, words], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


@OVERLAYS
def test_what_is_written_in_the_sandbox_vanishes(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    (shown / "run").mkdir(parents=True)
    (shown / "run" / "best.pt").write_text("keep")
    (shown / "last.pt").write_text("keep")
    code = (
        "import shutil, subprocess\n"
        "open('last.pt', 'a').write('!'); subprocess.run('echo 1 > new', shell=True, check=True)\n"
        "shutil.rmtree('run'); os.makedirs('run')\n"
        "print(open('last.pt').read(), sorted(os.listdir('.')), os.listdir('run'))"
    )
    assert in_sandbox(code, [shown], [], [tmp_path / "scratch"]) == "keep! ['last.pt', 'new', 'run'] []\n"
    assert (shown / "last.pt").read_text() == "keep" and not (shown / "new").exists()
    assert (shown / "run" / "best.pt").read_text() == "keep"


@OVERLAYS
def test_caches_and_sockets_in_a_sandbox_are_the_real_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = tmp_path / "shown"
    (shown / "cache").mkdir(parents=True)
    monkeypatch.chdir(shown)  # a socket's name has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(shown, "s") if len(str(shown)) < 100 else "s")
        server.listen()
        code = "import socket; open('cache/x', 'w'); socket.socket(socket.AF_UNIX).connect('s'); open('y', 'w')"
        in_sandbox(code, [shown], [shown / "cache"], [tmp_path / "scratch"])
    assert (shown / "cache" / "x").exists() and not (shown / "y").exists()


@OVERLAYS
def test_a_sandbox_of_the_folder_that_its_scratch_lies_in_writes_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    in_sandbox("open('x', 'w')", [tmp_path / "here"], [], [tmp_path / "here" / "scratch", tmp_path / "beside"])
    assert os.listdir(tmp_path / "here") == ["scratch"] and os.listdir(tmp_path / "here" / "scratch") == []


@OVERLAYS
def test_trying_out_says_which_folders_can_have_no_overlay(tmp_path: Path) -> None:
    shown, scratch = tmp_path / "shown", tmp_path / "scratch"
    shown.mkdir()
    scratch.mkdir()
    gone = str(tmp_path / "gone")  # since it was found
    folders = [gone, str(shown), "/proc/self/fdinfo"]
    assert list(sandbox.try_out(folders, [gone], [str(scratch)])) == ["/proc/self/fdinfo"]
    assert list(shown.iterdir()) == list(scratch.iterdir()) == []


def test_a_scratch_folder_goes_with_what_its_own_user_may_not_read(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "work" / "work").mkdir(parents=True)
    (scratch / "work" / "work" / "#1").touch()
    (scratch / "link").symlink_to(tmp_path)
    (scratch / "work" / "work").chmod(0)
    sandbox.remove(str(scratch))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_mount_inside_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_mounts", lambda: {"/": "ext4", "/srv/a/data": "nfs"})
    assert sandbox.folders_of(["/srv/b"]) == ["/srv/b"]
    with pytest.raises(TrainperfError, match="/srv/a/data is mounted inside /srv/a"):
        sandbox.folders_of(["/srv/a"])


def test_folders_of_a_sandbox_are_the_outermost() -> None:
    assert sandbox.folders_of(["/srv/a/b"], ["/srv/a", "/srv/c"]) == ["/srv/a", "/srv/c"]
    with pytest.raises(TrainperfError, match="all of /"):
        sandbox.folders_of(["/"])


def test_folders_that_are_written_are_those_around_what_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/mounted", "a/other", "b"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(sandbox, "_mounts", lambda: {"/": "ext4", "/proc": "proc", str(tmp_path / "a/mounted"): "nfs"})
    found = {f for f in sandbox.all_that_is_written() if f.startswith(str(tmp_path))}
    assert found == {str(tmp_path / name) for name in ("a/mounted", "a/other", "b")}
    monkeypatch.setattr(sandbox, "_mounts", lambda: {"/": "ext4"})
    written = sandbox.all_that_is_written()
    assert sandbox.around(str(tmp_path), written) and not sandbox.around("/usr/bin", written)


@pytest.mark.parametrize(
    ("does", "path"),
    [
        ("open('old', 'a')", "old"),
        ("open('link', 'w')", "old"),
        ("os.open('old', os.O_RDWR)", "old"),
        ("os.remove('link')", "link"),
        ("os.remove('old', dir_fd=os.open('.', os.O_RDONLY))", "old"),
        ("os.remove('inner', dir_fd=os.open('full', os.O_RDONLY))", "full/inner"),
        ("shutil.rmtree('full')", "full"),
        ("os.rename('full', 'moved')", "full"),
        ("open('new', 'w'); os.replace('new', 'old', dst_dir_fd=os.open('.', os.O_RDONLY))", "old"),
        ("os.rmdir('empty')", "empty"),
        ("os.truncate('old', 0)", "old"),
        ("sqlite3.connect('old')", "old"),
        ("sqlite3.connect('file:old?cache=shared', uri=True)", "old"),
        ("sqlite3.connect('file:old?mode=ro', uri=True)", ""),
        ("open('old').read(), os.listdir('full'), os.makedirs('full', exist_ok=True)", ""),
        ("os.mkdir('made'); open('made/x', 'w').write('x'); open('made/x', 'w'); shutil.rmtree('made')", ""),
        ("open('cache/x', 'w')", ""),
        ("open('cache/installed/x', 'w')", "cache/installed/x"),
    ],
)
def test_the_guard_stops_before_anything_that_was_there_changes(tmp_path: Path, does: str, path: str) -> None:
    for folder in ("full", "empty", "cache/installed"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("old", "full/inner", "cache/x", "cache/installed/x"):
        (tmp_path / name).write_text("keep")
    (tmp_path / "link").symlink_to("old")
    code = (
        "import os, shutil, sqlite3, sys; from trainperf.prove.writes import Guard\n"
        "os.chdir(sys.argv[1])\n"
        "def stop(path): print(path, end=''); sys.stdout.flush(); os._exit(0)\n"
        "Guard(stop, made=sys.argv[2], free=['cache'], guarded=['cache/installed']).install()\n"
    )
    command = [sys.executable, "-c", code + does, str(tmp_path), str(tmp_path / "made.txt")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == (str(tmp_path / path) if path else "")
    assert (tmp_path / "old").read_text() == (tmp_path / "full" / "inner").read_text() == "keep"


def test_the_paths_that_a_trial_makes_outlive_it(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from trainperf.prove.writes import Guard\n"
        "os.chdir(sys.argv[1]); Guard(print, made='made.txt').install()\n"
        "os.makedirs('run/a'); open('run/a/x', 'w'); os.symlink('a', 'run/last'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    told = [json.loads(line) for line in (tmp_path / "made.txt").read_text().splitlines()]
    assert told == [str(tmp_path / name) for name in ("run", "run/a", "run/a/x", "run/last")]
