"""The line that adds to what has a name, by the source alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from trainperf.keeping import lines
from trainperf.keeping.names import Name


def found(folder: Path, source: str, name: Name, *running: int, replaces: bool = False) -> tuple[int, str] | None:
    """The line, counted from 1, and its text. `running`: lines that frames are on."""
    file = folder / "train.py"
    file.write_text(textwrap.dedent(source).strip() + "\n")
    at = [(str(file), line) for line in running]
    sources, named = lines.Sources(), Name(name.of, name.name, name.owner, str(file), name.line, name.inside)
    line = lines.replacing_line(sources, named, at) if replaces else lines.adding_line(sources, [named], at)
    return None if line is None else (line.line, line.text)


def local(name: str, line: int = 1, inside: int = 0) -> Name:
    return Name("local", name, "main", "", line, inside)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("kept.append(loss)", "kept.append(loss)"),
        ("kept.append({'secret': loss})", "kept.append({...})"),
        ("kept.append(model(batch['secret']).loss)", "kept.append(model(batch[...]).loss)"),
        ("kept[step] = loss", "kept[...] = loss"),
        ("kept['secret'] = 'secret'", "kept[...] = ..."),
        ("kept += [loss]", "kept += [loss]"),
        ("kept.update(step=loss)", "kept.update(step=...)"),
        ("heapq.heappush(kept, loss)", "heapq.heappush(kept, loss)"),
    ],
)
def test_what_adds_is_told_by_its_names_alone(tmp_path: Path, statement: str, text: str) -> None:
    source = f"def main():\n    kept = []\n    for step in data:\n        {statement}\n"
    assert found(tmp_path, source, local("kept")) == (4, text)


def test_a_list_in_a_dict(tmp_path: Path) -> None:
    source = """
        def main():
            kept = {"loss": []}
            for step in data:
                kept["loss"].append(loss)
                other["loss"].append(loss)
        """
    assert found(tmp_path, source, local("kept", inside=1)) == (4, "kept[...].append(loss)")
    assert found(tmp_path, source, local("kept")) is None


def test_an_attribute_is_looked_for_in_its_class(tmp_path: Path) -> None:
    source = """
        class Log:
            def write(self, row):
                self.rows.append(row)

        class Other:
            def write(self, row):
                self.rows.append(row)
        """
    assert found(tmp_path, source, Name("attribute", "rows", "Log", "")) == (3, "self.rows.append(row)")


def test_a_function_of_another_name_has_a_variable_of_its_own(tmp_path: Path) -> None:
    source = """
        def main():
            kept = []
            def inner(loss):
                kept.append(loss)
        def other():
            kept.append(1)
        """
    assert found(tmp_path, source, local("kept")) == (4, "kept.append(loss)")


def test_of_two_lines_the_one_in_the_loop_that_runs(tmp_path: Path) -> None:
    source = """
        def main():
            for item in first:
                kept.append(item)
            for epoch in range(3):
                for batch in data:
                    kept.append(loss)
                    loss.backward()
        """
    assert found(tmp_path, source, local("kept")) is None
    assert found(tmp_path, source, local("kept"), 7) == (6, "kept.append(loss)")


def test_two_lines_that_may_both_run_are_none(tmp_path: Path) -> None:
    source = """
        def main():
            for batch in data:
                kept.append(loss)
                kept.append(other)
                loss.backward()
        """
    assert found(tmp_path, source, local("kept"), 5) is None


def test_a_function_that_the_loop_of_a_script_calls(tmp_path: Path) -> None:
    source = """
        def remember(x):
            kept.append(x)
        kept.append(first)
        for batch in data:
            remember(batch)
        """
    name = Name("global", "kept", "__main__", "")
    assert found(tmp_path, source, name, 5) == (2, "kept.append(x)")


@pytest.mark.parametrize(
    ("statements", "line"),
    [
        (["total += loss"], 3),
        (["total = total + loss"], 3),
        (["out, total = model(x, total)"], 3),
        (["fresh = model(x, total)", "total = fresh"], 4),
        (["total = loss"], None),
        (["total = model(x)", "loss = f(total)"], None),
    ],
)
def test_what_is_carried_from_step_to_step(tmp_path: Path, statements: list[str], line: int | None) -> None:
    source = "def main():\n    for x in data:\n" + "".join(f"        {s}\n" for s in statements)
    at = found(tmp_path, source, local("total"), replaces=True)
    assert (at and at[0]) == line


def test_what_is_no_source_has_no_line(tmp_path: Path) -> None:
    assert found(tmp_path, "def main(:\n", local("kept")) is None
    assert lines.adding_line(lines.Sources(), [Name("local", "kept", "f", str(tmp_path / "gone.py"), 1)], []) is None
    large = tmp_path / "large.py"
    large.write_text("def main():\n    kept.append(1)\n")
    name = Name("local", "kept", "main", str(large), 1)
    assert lines.adding_line(lines.Sources(most_bytes=10), [name], []) is None
    assert lines.adding_line(lines.Sources(), [name], []) is not None


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("self.cache[i] = x", 6),
        ("self.cache.setdefault(i, x)", 6),
        ("x.append(i)", None),
        ("self.cache[i] = x\n        self.seen.add(i)", None),
    ],
)
def test_the_only_line_of_a_class_that_adds_to_its_objects(tmp_path: Path, body: str, line: int | None) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"""class Data:
    def __init__(self):
        self.names[0] = 1

    def __getitem__(self, i):
        {body}
""")
    found = lines.only_growing_line(lines.Sources(), str(file), "make.<locals>.Data")
    assert (found and found.line) == line
