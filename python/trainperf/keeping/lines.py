"""The line that adds to what has a name, by the source: `losses.append(loss)`. Only where it is the only one."""

from __future__ import annotations

import ast
import os
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trainperf.keeping.names import Name

_MOST_BYTES = 50_000  # of source, in all: 30 ms
_ADDERS = {"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "push", "put"}
_PUSHERS = {"heappush", "insort", "insort_left", "insort_right", "push"}
_LONGEST = 60  # characters of a call
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SIGNS: Mapping[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.BitOr: "|"}
_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef)

IsIt = Callable[[ast.AST], bool]


class Line(NamedTuple):
    file: str
    line: int
    text: str  # names alone: `losses.append(loss)`, `cache[...] = ...`
    argument: str = ""  # what is appended, if that is a name: "loss"


class Sources:
    """Files, parsed when they are first asked for, up to a limit in all."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._left = most_bytes
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, file: str) -> ast.Module | None:
        if file not in self._trees:
            self._trees[file] = self._parse(file)
        return self._trees[file]

    def _parse(self, file: str) -> ast.Module | None:
        try:
            size = os.path.getsize(file)
            if size > self._left:
                return None
            self._left -= size
            with tokenize.open(file) as source:
                return ast.parse(source.read())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def adding_line(sources: Sources, names: Sequence[Name], running: Iterable[tuple[str, int]]) -> Line | None:
    """The only line that adds elements to what has these names; None: there are several, or none was found.

    running: file and line of each frame, which tell one of several loops.
    """
    return _only([line for name in names for line in _places(sources, name, _adds)], sources, running)


def replacing_line(sources: Sources, name: Name, running: Iterable[tuple[str, int]]) -> Line | None:
    """The only line that computes its next value from the one before: `total += loss`, `out, h = model(x, h)`."""
    return _only(list(_places(sources, name, _carries)), sources, running)


def is_carried(sources: Sources, name: Name) -> bool:
    return any(True for _ in _places(sources, name, _carries))


def only_growing_line(sources: Sources, file: str, owner: str) -> Line | None:
    """The only line of a class, beside __init__, that adds to any of its objects' attributes."""
    tree = sources.tree(file)
    last, found = owner.rpartition(".")[2], set()
    for kind in ast.walk(tree) if tree is not None else ():
        if not isinstance(kind, ast.ClassDef) or kind.name != last:
            continue
        for method in kind.body:
            if isinstance(method, _OWN_SCOPE) and method.name != "__init__":
                nodes = list(ast.walk(method))
                found |= {line._replace(file=file) for node in nodes for line in _adds(node, _is_own_attribute, nodes)}
    return found.pop() if len(found) == 1 else None


def _is_own_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _only(found: list[Line], sources: Sources, running: Iterable[tuple[str, int]]) -> Line | None:
    lines = {line[:2]: line for line in found}
    if len(lines) > 1:
        loops = dict(_loops(sources, running))
        lines = {key: line for key, line in lines.items() if _may_run(sources, line, loops)}
    return next(iter(lines.values())) if len(lines) == 1 else None


_Scope = tuple[str, int]  # file, and the first line of a function; 0 for what is in none


def _loops(sources: Sources, running: Iterable[tuple[str, int]]) -> Iterator[tuple[_Scope, ast.stmt]]:
    """Of each function that runs, the outermost loop that does."""
    for file, line in dict.fromkeys(running):
        tree = sources.tree(file)
        if tree is None:
            continue
        scope = _scope_of(tree, line)
        loops = (n for n in _in_scope(scope) if isinstance(n, (ast.For, ast.While, ast.AsyncFor)) and _has(n, line))
        if (outermost := next(loops, None)) is not None:
            yield (file, getattr(scope, "lineno", 0)), outermost


def _may_run(sources: Sources, line: Line, loops: Mapping[_Scope, ast.stmt]) -> bool:
    """It is in the loop that runs, or in a function that the loop may call."""
    tree = sources.tree(line.file)
    scope = None if tree is None else loops.get((line.file, getattr(_scope_of(tree, line.line), "lineno", 0)))
    return scope is None or _has(scope, line.line)


def _scope_of(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function that a line is in."""
    inner = [n for n in ast.walk(tree) if isinstance(n, _OWN_SCOPE) and _has(n, line)]
    return max(inner, key=lambda n: n.lineno, default=tree)


def _has(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
    return first <= line <= last


def _places(
    sources: Sources, name: Name, of: Callable[[ast.AST, IsIt, list[ast.AST]], Iterator[Line]]
) -> Iterator[Line]:
    tree = sources.tree(name.file)
    if tree is None:
        return
    for scope in _scopes(tree, name):
        nodes = list(ast.walk(scope))
        for node in nodes:
            for line in of(node, _is(name), nodes):
                yield line._replace(file=name.file)


def _scopes(tree: ast.Module, name: Name) -> list[ast.AST]:
    if name.of == "local":
        return [n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS) and _first_line(n) == name.line]
    if name.of == "attribute":
        last = name.owner.rpartition(".")[2]
        classes: list[ast.AST] = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == last]
        return classes or [tree]
    return [tree]


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    """As its code has it: its first decorator's."""
    decorators = () if isinstance(function, ast.Lambda) else function.decorator_list
    return min([function.lineno, *(d.lineno for d in decorators)])


def _is(name: Name) -> IsIt:
    """Whether an expression is what the name is of: itself, or so many levels in it."""

    def is_it(node: ast.AST) -> bool:
        for _ in range(name.inside):
            if isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr not in ("setdefault", "get"):
                    return False
                node = node.func.value
            else:
                return False
        if name.of == "attribute":
            return isinstance(node, ast.Attribute) and node.attr == name.name
        return isinstance(node, ast.Name) and node.id == name.name

    return is_it


def _adds(node: ast.AST, is_it: IsIt, _: list[ast.AST]) -> Iterator[Line]:
    if isinstance(node, ast.Call):
        called, first = node.func, node.args[0] if node.args else None
        if isinstance(called, ast.Attribute) and called.attr in _ADDERS and is_it(called.value):
            argument = _said(node.args[-1]) if node.args else ""
            plain = argument if node.args and isinstance(node.args[-1], (ast.Name, ast.Attribute)) else ""
            yield Line("", node.lineno, _call(node), plain)
        elif first is not None and is_it(first) and _last_name(called) in _PUSHERS:
            yield Line("", node.lineno, _call(node))
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and is_it(target.value):
                yield Line("", node.lineno, f"{_said(target)} = {_short(node.value)}")
    elif isinstance(node, ast.AugAssign) and is_it(node.target):
        yield Line("", node.lineno, f"{_said(node.target)} {_sign(node.op)}= {_short(node.value)}")


def _carries(node: ast.AST, is_it: IsIt, nodes: list[ast.AST]) -> Iterator[Line]:
    if isinstance(node, ast.AugAssign) and is_it(node.target):
        value = node.value
        plain = _said(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""
        yield Line("", node.lineno, f"{_said(node.target)} {_sign(node.op)}= {_short(value)}", plain)
    elif isinstance(node, ast.Assign):
        targets = [inner for target in node.targets for inner in _parts(target)]
        if any(map(is_it, targets)) and _follows(node.value, is_it, nodes):
            text = f"{', '.join(_said(t) for t in targets)} = {_short(node.value)}"
            yield Line("", node.lineno, text if len(text) <= _LONGEST else f"{_said(targets[0])} = ...")


def _follows(value: ast.AST, is_it: IsIt, nodes: list[ast.AST]) -> bool:
    """Whether it is computed from that, by way of other variables too."""
    assigned: dict[str, list[ast.AST]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in _parts(target):
                    if isinstance(part, ast.Name):
                        assigned.setdefault(part.id, []).append(node.value)
    waiting, met = [value], set()
    for expression in waiting:  # grows
        for node in ast.walk(expression):
            if is_it(node):
                return True
            if isinstance(node, ast.Name) and node.id not in met:
                met.add(node.id)
                waiting += assigned.get(node.id, ())
    return False


def _parts(target: ast.AST) -> list[ast.AST]:
    return [p for e in target.elts for p in _parts(e)] if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _in_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in it, the outermost first, without the functions in it."""
    waiting = list(ast.iter_child_nodes(scope))
    for node in waiting:  # grows
        if not isinstance(node, _FUNCTIONS):
            yield node
            waiting += ast.iter_child_nodes(node)


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _sign(operator: ast.AST) -> str:
    return _SIGNS.get(type(operator), "?")


def _call(node: ast.Call) -> str:
    arguments = ", ".join([*map(_said, node.args), *(f"{k.arg}=..." for k in node.keywords if k.arg)])
    text = f"{_said(node.func)}({arguments})"
    return text if len(text) <= _LONGEST else f"{_said(node.func)}(...)"


def _short(node: ast.AST) -> str:
    text = _said(node)
    return text if len(text) <= _LONGEST - 10 else "..."


def _said(node: ast.AST) -> str:
    """Names alone, and what is done to them: whatever the program writes as a value is left out."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_said(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _call(node)
    if isinstance(node, ast.Subscript):
        return f"{_said(node.value)}[...]"
    if isinstance(node, ast.Starred):
        return f"*{_said(node.value)}"
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return f"{_said(node.left)} {_sign(node.op)} {_said(node.right)}"
    if isinstance(node, (ast.Tuple, ast.List)):
        inner = ", ".join(map(_said, node.elts))
        return f"[{inner}]" if isinstance(node, ast.List) else f"({inner})"
    return "{...}" if isinstance(node, ast.Dict) else "lambda ..." if isinstance(node, ast.Lambda) else "..."
