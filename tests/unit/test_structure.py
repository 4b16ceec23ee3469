"""How the package's modules hang together: no import circle, whenever and for whatever an import is made."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "python"


def imports(root: Path) -> dict[str, set[str]]:
    """Of each module below `root`, the modules that it imports: at its top, within a function, for its types alone."""
    files = {_name(path, root): path for path in root.rglob("*.py")}
    found = {}
    for module, path in files.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno} imports relatively"
                whole = node.module or ""
                inner = {f"{whole}.{alias.name}" for alias in node.names}
                names |= inner & files.keys() or ({whole} if f"{whole}._native" not in inner else set())
        found[module] = names & files.keys() - {module}
    return found


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, in the order of its imports; [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_import_circle() -> None:
    graph = imports(ROOT)
    assert len(graph) > 100
    assert not circle(graph)


def test_a_circle_is_found_wherever_it_is_closed(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").write_text("")
    (tmp_path / "p" / "a.py").write_text("from p import b\n")
    (tmp_path / "p" / "b.py").write_text("def f():\n    from p.c import g\n")
    (tmp_path / "p" / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a\n")
    found = circle(imports(tmp_path))
    assert found[0] == found[-1] and set(found) == {"p.a", "p.b", "p.c"}
