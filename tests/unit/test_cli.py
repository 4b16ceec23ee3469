"""The command line: exit codes, one-line errors, and `trainperf run` beside plain python."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.findings.rules import ALL

ROOT = Path(__file__).resolve().parents[2]
Result = subprocess.CompletedProcess[str]


def trainperf(*words: str, cwd: Path, **environ: str) -> Result:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINPERF_")} | environ
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (str(ROOT / "python"), environ.get("PYTHONPATH", "")) if p)
    return subprocess.run(
        [sys.executable, "-m", "trainperf", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def python(*words: str, cwd: Path) -> Result:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


# Usage and errors


@pytest.mark.parametrize(
    "words",
    [[], ["nonsense"], ["show"], ["show", "a", "b"], ["run"], ["run", "-x", "a.py"], ["run", "-m"], ["show", "--no"]],
)
def test_wrong_usage_is_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: trainperf" in capsys.readouterr().err


def test_steps_without_json_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(RunFile(tmp_path / "a.tpr").build()), "--steps"]) == 2


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    import trainperf as package

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"trainperf {package.__version__}\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("run", "show", "explain", "doctor"))


def files_that_are_no_runs(tmp_path: Path) -> list[Path]:
    (tmp_path / "empty.tpr").write_bytes(b"")
    (tmp_path / "text.tpr").write_text("epoch,loss\n1,0.3\n" * 100)
    whole = RunFile(tmp_path / "whole.tpr").steps(500, compute=3.0).build().read_bytes()
    (tmp_path / "cut.tpr").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "bad.tpr").write_bytes(whole[:200] + bytes(len(whole) - 200))
    (tmp_path / "folder").mkdir()
    names = ["missing.tpr", "folder", "empty.tpr", "text.tpr", "cut.tpr", "bad.tpr"]
    return [tmp_path / name for name in names]


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("options", [[], ["--json", "--steps"]])
def test_a_file_that_is_no_run_is_one_line(
    tmp_path: Path, number: int, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = files_that_are_no_runs(tmp_path)[number]
    assert main(["show", str(path), *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("trainperf show: ") and captured.err.count("\n") == 1


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(50, compute=5.0, gc=5.0).tier("throttling", "off", "no cgroup")
    assert main(["show", str(file.build())]) == 0
    out = capsys.readouterr().out
    assert out.startswith("trainperf  gc-pauses, 5.0 ms/step (50%)")
    assert "TP303 gc-pauses (critical)" in out and "TP308 throttled: throttling off: no cgroup" in out


def test_show_into_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    path = RunFile(tmp_path / "a.tpr").steps(5000, compute=5.0).build()
    command = f"{sys.executable} -m trainperf show {path} --json --steps | head -c 10"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )
    assert done.stderr == ""


# explain


@pytest.mark.parametrize("word", ["TP101", "tp101", "data-starved", "data_starved"])
def test_explain(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    page = (ROOT / "docs" / "findings" / "TP101.md").read_text()
    assert capsys.readouterr().out.startswith(page.rstrip())


def test_explain_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(":")[0] for row in rows] == [f"{r.id} {r.slug}" for r in sorted(ALL, key=lambda r: r.id)]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("TP110", "'TP110': trainperf explain lists all"),
        ("TP999", "'TP999': trainperf explain lists all"),
        ("gil-hogg", "did you mean gil-hog?"),
        ("host", "did you mean host-python or host-compute?"),
        ("TP3", "'TP3': trainperf explain lists all"),
        ("x", "lists all"),
    ],
)
def test_explain_of_something_else(word: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 1
    assert near in capsys.readouterr().err


# run: the same as python


PROBE = """
import sys, os, json
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "name": __name__, "file": __file__, "package": __package__,
    "spec": __spec__ and __spec__.name, "main": sys.modules["__main__"].__dict__ is globals(),
    "annotations": "__annotations__" in globals(), "doc": __doc__, "builtins": str(type(__builtins__)),
}))
"""


@pytest.mark.parametrize("how", ["script", "link", "module", "package", "folder", "zip"])
def test_the_script_sees_what_it_would_see_under_python(tmp_path: Path, how: str) -> None:
    script(tmp_path, PROBE, "sub/train.py")
    if how == "link":
        (tmp_path / "link.py").symlink_to(tmp_path / "sub" / "train.py")
    script(tmp_path, "", "pack/__init__.py")
    script(tmp_path, PROBE, "pack/__main__.py")
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("__main__.py", PROBE)
    words = {
        "script": ["sub/train.py"],
        "link": ["link.py"],
        "module": ["-m", "sub.train"],
        "package": ["-m", "pack"],
        "folder": ["pack"],
        "zip": ["job.zip"],
    }[how]
    words = [*words, "--lr", "3", "-v", "--", "-o", "x"]
    plain = python(*words, cwd=tmp_path)
    watched = trainperf("run", "-o", "a.tpr", *words, cwd=tmp_path)
    assert plain.returncode == watched.returncode == 0, watched.stderr
    assert watched.stdout == plain.stdout


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit()",
        "sys.exit(0)",
        "sys.exit(3)",
        "sys.exit(True)",
        "sys.exit(-1)",
        "sys.exit('no data')",
        "raise ValueError('bad lr')",
        "import nothing_of_that_name",
        "def f():\n    g()\ndef g():\n    1 / 0\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('outer') from e",
        "sys.excepthook = lambda *a: print('hook', a[0].__name__, file=sys.stderr)\n1 / 0",
        "os._exit(7)",
        "class E(BaseException): pass\nraise E('x')",
    ],
)
def test_the_exit_code_and_the_traceback_are_the_scripts(tmp_path: Path, ending: str) -> None:
    (tmp_path / "train.py").write_text("import os, sys\nprint('out', flush=True)\n" + ending + "\n")
    plain = python("train.py", cwd=tmp_path)
    watched = trainperf("run", "-o", "a.tpr", "train.py", cwd=tmp_path)
    assert watched.returncode == plain.returncode
    assert watched.stdout == plain.stdout
    assert watched.stderr.endswith(plain.stderr)
    assert str(ROOT / "python") not in watched.stderr


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--epoch", "x"], 2)])
def test_a_script_that_only_reads_its_arguments_is_left_alone(tmp_path: Path, words: list[str], code: int) -> None:
    read = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epoch', type=int)\np.parse_args()\n"
    script(tmp_path, read)
    plain, watched = python("train.py", *words, cwd=tmp_path), trainperf("run", "train.py", *words, cwd=tmp_path)
    assert watched.returncode == plain.returncode == code
    assert (watched.stdout, watched.stderr) == (plain.stdout, plain.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_script_that_has_an_option_h_of_its_own_is_told_of(tmp_path: Path) -> None:
    """Its few steps have not closed when it ends."""
    script(tmp_path, "import sys, trainperf\nfor _ in range(8): trainperf.step()\nsys.exit(0)\n")
    done = trainperf("run", "-o", "a.tpr", "train.py", "-h", "128", cwd=tmp_path)
    assert (done.returncode, done.stderr[:9]) == (0, "trainperf") and (tmp_path / "a.tpr").exists()


def test_a_syntax_error_is_shown_as_python_does(tmp_path: Path) -> None:
    script(tmp_path, "x = (\n")
    plain, watched = python("train.py", cwd=tmp_path), trainperf("run", "-o", "a.tpr", "train.py", cwd=tmp_path)
    assert watched.returncode == plain.returncode == 1
    assert watched.stderr.endswith(plain.stderr) and "SyntaxError" in plain.stderr


def test_ctrl_c_is_130(tmp_path: Path) -> None:
    script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n")
    done = trainperf("run", "-o", "a.tpr", "train.py", cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt") and "runpy" not in done.stderr


def test_spawned_children_find_the_main_module(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import multiprocessing as mp

        def square(x):
            return x * x

        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.map(square, [2, 3]))
        """,
    )
    for words in (["train.py"], ["-m", "train"]):
        done = trainperf("run", "-f", "-o", "a.tpr", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "[4, 9]\n"), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["missing.py"],
        ["-m", "missing_module"],
        ["-m", "empty_package"],
        ["empty_package"],
        ["-o", "taken.tpr", "train.py"],
        ["-o", "no/such/folder/a.tpr", "train.py"],
    ],
)
def test_what_cannot_run_is_one_line_before_the_script_starts(tmp_path: Path, words: list[str]) -> None:
    script(tmp_path, "print('ran')")
    script(tmp_path, "", "empty_package/__init__.py")
    (tmp_path / "taken.tpr").write_text("mine")
    done = trainperf("run", *words, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("trainperf run: ") and done.stderr.count("\n") == 1
    assert (tmp_path / "taken.tpr").read_text() == "mine"


def test_where_the_run_file_goes(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    assert trainperf("run", "train.py", cwd=tmp_path).returncode == 0
    assert [p.name.startswith("train-") for p in tmp_path.glob("*.tpr")] == [True]
    assert trainperf("run", "train.py", cwd=tmp_path, TRAINPERF_DIR="runs").returncode == 0
    assert len(list((tmp_path / "runs").glob("train-*.tpr"))) == 1 and len(list(tmp_path.glob("*.tpr"))) == 1
    (tmp_path / "a.tpr").write_text("mine")
    done = trainperf("run", "-f", "-o", "a.tpr", "--name", "first", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    shown = trainperf("show", "a.tpr", cwd=tmp_path)
    assert shown.returncode == 0 and "no training step was seen" in shown.stdout


def test_doctor_names_every_probe(tmp_path: Path) -> None:
    done = trainperf("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gil_waits" in done.stdout and "gil_holds" in done.stdout and "torch was not imported" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_doctor_as_json_leaves_no_run_file(tmp_path: Path) -> None:
    done = trainperf("doctor", "--json", cwd=tmp_path, TRAINPERF_DIR=str(tmp_path / "runs"))
    document = json.loads(done.stdout)
    assert {"gil_waits", "gil_holds", "cuda"} <= document["tiers"].keys() and document["torch"][0].isdigit()
    assert list(tmp_path.rglob("*.tpr")) == []


def test_the_commands_import_no_torch_and_no_rich(tmp_path: Path) -> None:
    code = (
        "import sys; from trainperf.cli.main import main; main(['--version']); main(['explain']); "
        "assert not {'torch', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_run_gives_way_to_a_scripts_own_watch(tmp_path: Path) -> None:
    script, own, outer = tmp_path / "train.py", tmp_path / "own.tpr", tmp_path / "outer.tpr"
    body = f"with trainperf.watch({str(own)!r}) as run:\n    run.step()"
    script.write_text(f"import trainperf\n{body}\nprint('trained')\n")
    command = [sys.executable, "-m", "trainperf", "run", "-o", str(outer), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    assert own.exists()
    assert not outer.exists()
    assert f"{script} watches itself, so {outer} was not written" in done.stderr


# Errors of the system


def test_a_run_file_that_exists_names_the_option(tmp_path: Path) -> None:
    script(tmp_path, "print('trained')")
    (tmp_path / "a.tpr").touch()
    done = trainperf("run", "-o", "a.tpr", "train.py", cwd=tmp_path)
    assert done.returncode == 1 and "a.tpr exists already: give another name, or -f to replace it" in done.stderr
    assert "overwrite=True" not in done.stderr and done.stdout == ""


def test_what_is_there_already_is_told_in_one_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trainperf as package

    run, taken = str(RunFile(tmp_path / "a.tpr").build()), str(tmp_path / "taken.csv")
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}')
    Path(taken).touch()
    for words in (["report", run], ["export", run], ["analyze", str(trace)]):
        assert main([*words, "-o", taken]) == 1
        told = capsys.readouterr().err
        assert told == f"trainperf {words[0]}: {taken} exists already: give another name, or -f to replace it\n"
    told = f"{taken} exists already: give another name, or overwrite=True to replace it"
    with pytest.raises(FileExistsError, match=f"^{re.escape(told)}$"):
        package.start(taken)
    with pytest.raises(FileExistsError, match=f"^{re.escape(told)}$"):
        package.open(run).report(taken)


def test_a_folder_in_a_files_place_is_told_in_one_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trainperf as package

    run, folder = RunFile(tmp_path / "a.tpr").build(), tmp_path / "folder"
    folder.mkdir()
    for words in (["show", str(folder)], ["report", str(folder)], ["export", str(folder), "-o", "a.csv"]):
        assert main(words) == 1
        told = capsys.readouterr().err
        assert told == f"trainperf {words[0]}: {folder} is a folder without run files (*.tpr): name a run file\n"
    (folder / "b.tpr").write_bytes(run.read_bytes())
    with pytest.raises(package.RunFileError, match=r"is a folder: name one run file in it$"):
        package.open(folder)
    with pytest.raises(IsADirectoryError, match=r"is a folder: name a file in it, such as .*/folder/report\.html$"):
        package.open(run).report(folder)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "trainperf", "explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "trainperf explain: writing the output: No space left on device\n"
