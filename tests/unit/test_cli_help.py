"""What a person meets before the first result: help, completion, progress."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runfiles import RunFile
from trainperf.cli import progress
from trainperf.cli.main import COMMANDS, main
from trainperf.findings.rules import ALL

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_help_has_examples_that_parse(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    from trainperf.cli.main import make_parser

    name = command.name  # type: ignore[attr-defined]
    assert main([name, "-h"]) == 0
    assert "example" in capsys.readouterr().out or name == "completion"
    epilog = command.epilog  # type: ignore[attr-defined]
    examples = re.findall(rf"trainperf {name}(?:(?!  )[^|)#:\n]|(?<=\w):(?=/))*", epilog)
    parser, _ = make_parser()
    for example in examples:
        assert parser.parse_args(shlex.split(example)[1:]).command == name
    assert examples, "no example in the help"


@pytest.mark.parametrize("words", [[], *([c.name] for c in COMMANDS)], ids=lambda words: "".join(words) or "main")
def test_help_fits_a_terminal(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


# What is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "no.tpr"], "no.tpr: no such file; trainperf history FOLDER lists the runs"),
        (["report", "text.tpr"], "text.tpr is not a trainperf run file (a profiler's trace is for trainperf analyze)"),
        (["history", "text.tpr"], "text.tpr is a file: trainperf show reads one"),
        (["history", "nowhere"], "nowhere does not exist: name one that has run files"),
        (
            ["export", "a.tpr", "-o", "nowhere/x.csv"],
            "nowhere/x.csv cannot be written: the folder nowhere",
        ),
        (["report", "a.tpr", "-o", "nowhere/x.html"], "the folder nowhere does not exist: make it first"),
        (["compare", "a.tpr", "a.tpr", "-o", "/proc/x.html"], "/proc/x.html cannot be written ("),
        (["export", "a.tpr", "-o", "/proc/x.csv"], "): name a file in a folder that can be"),
    ],
)
def test_a_refusal_is_one_line_that_names_the_mend(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFile(tmp_path / "a.tpr").steps(30, compute=5).build()
    (tmp_path / "text.tpr").write_text("epoch,loss\n" * 100)
    assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith(f"trainperf {words[0]}: ") and said in captured.err
    assert ".trainperf-" not in captured.err and sorted(p.name for p in tmp_path.iterdir()) == ["a.tpr", "text.tpr"]


@pytest.mark.parametrize("words", [["doctor", "no"], ["show", "a.tpr", "--bogus"], ["run", "--bogus", "x.py"]])
def test_wrong_usage_shows_the_usage_of_that_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: trainperf {words[0]} ") and f"trainperf {words[0]}: error: unrecognized" in err


def test_each_command_is_in_the_main_help_and_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    main(["-h"])
    out, text = capsys.readouterr().out, (ROOT / "docs" / "cli.md").read_text()
    for command in COMMANDS:
        assert re.search(rf"^ +{command.name} ", out, re.M) and f"## `trainperf {command.name}" in text, command.name


# Completion


def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = tmp_path / f"completion.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def shell(*words: str) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


WORDS = [
    ("trainperf comp", {"compare", "completion"}),
    ("trainperf compare --fail", {"--fail-over"}),
    ("trainperf -v explain TP10", {r.id for r in ALL if r.id.startswith("TP10")}),
    ("trainperf explain gil-h", {"gil-hog"}),
    ("trainperf export a.tpr --format par", {"parquet"}),
    ("trainperf completion z", {"zsh"}),
]


@pytest.mark.parametrize(("line", "wanted"), WORDS)
def test_bash(line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("bash", tmp_path, capsys)
    words = line.split()
    code = f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _trainperf; echo ${{COMPREPLY[@]}}"
    assert set(shell("bash", "-uc", code).split()) == wanted


@pytest.mark.parametrize(("line", "wanted"), WORDS)
def test_fish(line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("fish", tmp_path, capsys)
    out = shell("fish", "--no-config", "-c", f"source {path}; complete -C {shlex.quote(line)}")
    assert {row.split("\t")[0] for row in out.splitlines()} == wanted


def test_zsh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loads, and is what the completion system calls; what it would offer needs a terminal."""
    path = script("zsh", tmp_path, capsys)
    code = f"autoload -Uz compinit; compinit -u -d {tmp_path}/dump; source {path}; print -r -- $_comps[trainperf]"
    assert shell("zsh", "-fc", code) == "_trainperf\n"


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_says_so_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress.working("reading runs") as at:
        at("3 of 7")
        deadline = time.monotonic() + 20
        while "3 of 7" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "reading runs, 3 of 7 ... 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("how", ["no terminal", "dumb", "short"])
def test_where_it_would_disturb_it_says_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb" if how == "dumb" else "xterm")
    monkeypatch.setattr(progress, "AFTER_SECONDS", 60.0 if how == "short" else 0.0)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO() if how == "no terminal" else Terminal())
    with progress.working("reading"):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_no_colour_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from runfiles import RunFile

    path = str(RunFile(tmp_path / "a.tpr").steps(50, compute=5.0, gc=5.0).build())
    for words in (["show", path], ["compare", path, path], ["history", str(tmp_path)]):
        for variable in ("", "1"):
            monkeypatch.setenv("NO_COLOR", variable)
            monkeypatch.setenv("TERM", "xterm-256color")
            monkeypatch.setattr(sys, "stdout", terminal := Terminal())
            main(words)
            assert ("\x1b[" in terminal.getvalue()) == (variable == ""), words
