"""The patch edits the loader's own call, and leaves all else as it is."""

from __future__ import annotations

import ast
import os
import subprocess
import textwrap
import typing
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from trainperf.cli.trial_options import write_patch
from trainperf.errors import TrainperfError
from trainperf.prove import patch

pytest.importorskip("libcst")
TWO = {"num_workers": 2, "persistent_workers": True}


def edited(source: str, line: int, arguments: dict[str, object] = TWO, kind: str = "DataLoader") -> str:
    return patch.edit(textwrap.dedent(source), line, arguments, kind=kind)


def test_arguments_are_added_behind_the_others() -> None:
    assert edited("a = DataLoader(data, batch_size=4)  # note\n", 1) == (
        "a = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)  # note\n"
    )
    assert edited("DataLoader(data)\n", 1) == "DataLoader(data, num_workers=2, persistent_workers=True)\n"


def test_one_that_is_there_is_replaced_whatever_its_value() -> None:
    assert edited("DataLoader(d, num_workers=args.workers, shuffle=True)\n", 1) == (
        "DataLoader(d, num_workers=2, shuffle=True, persistent_workers=True)\n"
    )
    assert edited("DataLoader(d, 32, True, None, None, 0)\n", 1, {"num_workers": 2}) == (
        "DataLoader(d, 32, True, None, None, 2)\n"
    )


def test_lines_of_a_long_call_stay_lines() -> None:
    source = """\
    loader = torch.utils.data.DataLoader(
        data,  # what is read
        batch_size=4,
    )
    """
    assert edited(source, 1) == textwrap.dedent("""\
    loader = torch.utils.data.DataLoader(
        data,  # what is read
        batch_size=4,
        num_workers=2,
        persistent_workers=True,
    )
    """)


NONE = {"num_workers": 0}


@pytest.mark.parametrize(
    ("call", "arguments", "made"),
    [
        ("DataLoader(d, **cfg['a'])", {"num_workers": 2}, """DataLoader(d, **{**cfg['a'], "num_workers": 2})"""),
        (
            "DataLoader(d, **a or b, shuffle=True, **c)",
            {"num_workers": 2},
            """DataLoader(d, **{**(a or b), **c, "num_workers": 2}, shuffle=True)""",
        ),
        ("DataLoader(d, num_workers=1, **options)", {"num_workers": 2}, "DataLoader(d, num_workers=2, **options)"),
        (
            "DataLoader(d, num_workers=1, **o)",
            NONE,
            """DataLoader(d, num_workers=0, **{**o, "prefetch_factor": None, "persistent_workers": False, """
            """"multiprocessing_context": None, "timeout": 0})""",
        ),
    ],
)
def test_a_mapping_may_hold_what_is_set(call: str, arguments: dict[str, object], made: str) -> None:
    assert edited(call + "\n", 1, arguments) == made + "\n"
    options = {"num_workers": 1, "prefetch_factor": 4, "persistent_workers": True, "batch_size": 8}
    names = {"d": [1], "cfg": {"a": options}, "a": {}, "b": options, "c": {"drop_last": True}}
    held = {k: v for k, v in options.items() if k != "num_workers"} if "num_workers=" in call else options
    loader = eval(made, {**names, "o": held, "options": held, "DataLoader": DataLoader})
    assert loader.num_workers == arguments["num_workers"] and loader.batch_size in (1, 8)


@pytest.mark.parametrize(
    ("call", "made"),
    [
        (
            "DataLoader(d, num_workers=4, prefetch_factor=2, shuffle=True, persistent_workers=True)",
            "DataLoader(d, num_workers=0, shuffle=True)",
        ),
        ("DataLoader(d, prefetch_factor=args.ahead)", "DataLoader(d, num_workers=0)"),
        (
            "DataLoader(d, 4, None, None, None, 2, None, False, False, 30, None, 'fork')",
            "DataLoader(d, 4, None, None, None, 0, None, False, False, 0, None, None)",
        ),
        (
            "DataLoader(\n    d,  # data\n    num_workers=4,  # many\n    timeout=9,  # s\n)",
            "DataLoader(\n    d,  # data\n    num_workers=0,  # many\n)",
        ),
        ("DataLoader(\n    d,\n    num_workers=4,\n    timeout=9\n)", "DataLoader(\n    d,\n    num_workers=0,\n)"),
    ],
)
def test_what_a_loader_without_workers_refuses_is_dropped(call: str, made: str) -> None:
    assert edited(call + "\n", 1, NONE) == made + "\n"
    assert eval(made, {"d": [1], "DataLoader": DataLoader}).num_workers == 0


def test_only_the_call_at_the_line_is_edited() -> None:
    source = "val = DataLoader(v)\ntrain = DataLoader(t)\n"
    assert edited(source, 2, {"num_workers": 2}) == "val = DataLoader(v)\ntrain = DataLoader(t, num_workers=2)\n"


def test_a_subclass_of_the_users_is_found_by_its_name() -> None:
    assert edited("a = Mine(d)\n", 1, {"num_workers": 1}, kind="Mine") == "a = Mine(d, num_workers=1)\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("make(data)", "line 1 does not call DataLoader by its name"),
        ("a, b = DataLoader(x), DataLoader(y)", "line 1 has 2 calls of DataLoader"),
        ("DataLoader(*args)", r"the call passes its arguments on as \*args"),
        ("DataLoader(i for i in x)", "the call at line 1 takes no further argument"),
    ],
)
def test_what_is_not_clear_is_refused(source: str, why: str) -> None:
    with pytest.raises(TrainperfError, match=why):
        edited(source, 1)


@pytest.mark.parametrize("inside", [True, False])
def test_git_applies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool) -> None:
    file = tmp_path / "sub" / "train.py"
    file.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    file.write_text("import x\n\nloader = DataLoader(d)")  # no newline at its end
    monkeypatch.chdir(tmp_path if inside else tmp_path / "elsewhere")
    text = patch.diff(str(file), 3, {"num_workers": 2}, kind="DataLoader")
    assert (b"a/sub/train.py" in text) == inside
    Path("fix.patch").write_bytes(text)
    subprocess.run(["git", "-C", patch.base_of(str(file)), "apply", Path("fix.patch").resolve()], check=True)
    assert file.read_text() == "import x\n\nloader = DataLoader(d, num_workers=2)"


def test_a_librarys_call_is_nobodys_to_edit(tmp_path: Path) -> None:
    mine = tmp_path / "train.py"
    mine.touch()
    assert patch.user_call([[str(mine), 3]]) == (str(mine), 3)
    assert patch.user_call([["/v/site-packages/transformers/trainer.py", 9], [str(mine), 3]]) is None
    assert patch.user_call([[typing.__file__, 9], [str(mine), 3]]) == (str(mine), 3)  # DataLoader[int](...)
    assert patch.user_call([]) is None


@pytest.mark.parametrize(
    "source",
    [
        "# -*- coding: latin-1 -*-\n# Ren\xe9e\n{}\n".encode("latin-1"),
        "\ufeff# Ren\xe9e\nx = 'Ren\xe9e'; {}\n".encode(),
        b"x = 1\r\n{}\r\ny = 2\r\n",
        "x = '\x1c \x85 \u2028'  # \x0c \x1c \x85 \u2028\n{}\n".encode(),
        b"x = 1\n\x0c{}\n\x0c\nclass A: pass\n",
        b"x = 1\ry = 2\n{}\n",
    ],
    ids=["latin-1", "BOM", "CRLF", "separators", "form feed", "CR"],
)
def test_git_applies_it_to_any_bytes_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my trai\xf1.py"
    newline = "\r\n" if b"\r\n" in source else "\n"
    before, after = (
        f"l = DataLoader(d,{newline}    batch_size=8{more})" for more in ("", f",{newline}    num_workers=2")
    )
    file.write_bytes(source.replace(b"{}", before.encode()))
    line = next(n.lineno for n in ast.walk(ast.parse(file.read_bytes())) if isinstance(n, ast.Call))
    text = patch.diff(str(file), line, {"num_workers": 2}, kind="DataLoader")
    Path("fix.patch").write_bytes(text)
    subprocess.run(["git", "apply", "fix.patch"], check=True)
    assert file.read_bytes() == source.replace(b"{}", after.encode())


def written(source: str, arguments: dict[str, object], **loader: object) -> str:
    """What is said of the patch of a loader that is made at the line with DataLoader."""
    Path("train.py").write_text(source)
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "# here" in text)
    chain = [[os.path.abspath("train.py"), line]]
    return write_patch(arguments, {"chain": chain, "class": "DataLoader", **loader}, "fix.patch", overwrite=True).note


def test_why_there_is_no_patch_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = "class Mine(DataLoader):\n    def __init__(self, d, workers):\n        super().__init__(d)  # here\n"
    assert written(mine, {"num_workers": 4}, **{"class": "f.<locals>.Mine"}) == (
        "none: Mine has an __init__ of its own, which calls DataLoader's; "
        "set num_workers=4 where DataLoader is called: train.py:3"
    )
    options = {"num_workers": 4, "prefetch_factor": 2, "persistent_workers": False}
    assert written("make()  # here", NONE, options=options).endswith(
        "set num_workers=0, prefetch_factor=None where DataLoader is called: train.py:1"
    )
    broken = written("DataLoader(d  # here", {"num_workers": 4})  # edited while the trials ran
    assert broken.startswith("none: SyntaxError: '(' was never closed") and "train.py:1" in broken
    monkeypatch.setattr(patch, "edit", lambda *_, **__: "\u20ac")
    unwritable = written("# coding: ascii\nDataLoader(d)  # here", {"num_workers": 4})
    assert unwritable.startswith("none: UnicodeEncodeError: ") and not Path("fix.patch").exists()


def test_other_loaders_that_the_same_call_makes_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "loaders = {name: DataLoader(d) for name in names}  # here"
    assert written(source, {"num_workers": 4}, beside=0) == "fix.patch: git apply fix.patch"
    assert written(source, {"num_workers": 4}, beside=1) == (
        "fix.patch: git apply fix.patch; the call at train.py:1 also makes another loader, "
        "which gets num_workers=4 too: no trial tested that"
    )
