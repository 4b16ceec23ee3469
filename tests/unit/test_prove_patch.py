"""The patch edits the loader's own call, and leaves all else as it is."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
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


def test_keywords_stand_before_those_that_are_passed_on() -> None:
    assert edited("DataLoader(d, **options)\n", 1, {"num_workers": 2}) == "DataLoader(d, num_workers=2, **options)\n"


def test_only_the_call_at_the_line_is_edited() -> None:
    source = "val = DataLoader(v)\ntrain = DataLoader(t)\n"
    assert edited(source, 2, {"num_workers": 2}) == "val = DataLoader(v)\ntrain = DataLoader(t, num_workers=2)\n"


def test_a_subclass_of_the_users_is_found_by_its_name() -> None:
    assert edited("a = Mine(d)\n", 1, {"num_workers": 1}, kind="Mine") == "a = Mine(d, num_workers=1)\n"


@pytest.mark.parametrize("source", ["make(data)\n", "a, b = DataLoader(x), DataLoader(y)\n"])
def test_what_is_not_clear_is_refused(source: str) -> None:
    with pytest.raises(TrainperfError, match="edit it by hand"):
        edited(source, 1)


@pytest.mark.parametrize("inside", [True, False])
def test_git_applies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool) -> None:
    file = tmp_path / "sub" / "train.py"
    file.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    file.write_text("import x\n\nloader = DataLoader(d)")  # no newline at its end
    monkeypatch.chdir(tmp_path if inside else tmp_path / "elsewhere")
    text = patch.diff(str(file), 3, {"num_workers": 2}, kind="DataLoader")
    assert ("a/sub/train.py" in text) == inside
    Path("fix.patch").write_text(text)
    subprocess.run(["git", "-C", patch.base_of(str(file)), "apply", Path("fix.patch").resolve()], check=True)
    assert file.read_text() == "import x\n\nloader = DataLoader(d, num_workers=2)"


def test_a_librarys_call_is_nobodys_to_edit(tmp_path: Path) -> None:
    mine = tmp_path / "train.py"
    mine.touch()
    assert patch.user_call([[str(mine), 3]]) == (str(mine), 3)
    assert patch.user_call([["/v/site-packages/transformers/trainer.py", 9], [str(mine), 3]]) is None
    assert patch.user_call([]) is None
