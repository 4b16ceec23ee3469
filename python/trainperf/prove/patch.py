"""A change of a DataLoader's arguments as a patch of the line that makes it, by libcst: comments and layout stay."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    import libcst as cst


def why_no_libcst() -> str:
    """How to get it; "" where it is there."""
    try:
        import libcst  # noqa: F401
    except ImportError:
        return "fix.patch needs libcst: pip install 'trainperf[try]'"
    return ""


def user_call(chain: Sequence[Sequence[Any]]) -> tuple[str, int] | None:
    """(file, line) of the call that makes the loader, if that is the user's own code."""
    if not chain:
        return None
    file, line = chain[0]
    library = any(part in file for part in ("site-packages", "dist-packages")) or not os.path.isfile(file)
    return None if library else (file, line)


def base_of(file: str) -> str:
    """The folder to apply a patch in: the current one, or that of a file which is not in it."""
    here = os.getcwd()
    return here if os.path.realpath(file).startswith(os.path.realpath(here) + os.sep) else os.path.dirname(file)


def diff(file: str, line: int, arguments: Mapping[str, Any], *, kind: str) -> str:
    """The patch, as `git apply` and `patch -p1` take it in the folder base_of(file).

    `kind`: the class of the loader, which the call at `line` names. Raises TrainperfError where there is no such call,
    or several.
    """
    before = Path(file).read_bytes().decode()
    after = edit(before, line, arguments, kind=kind)
    name = os.path.relpath(os.path.realpath(file), os.path.realpath(base_of(file)))
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in lines)


def edit(source: str, line: int, arguments: Mapping[str, Any], *, kind: str = "DataLoader") -> str:
    """`source` with these keyword arguments in the call of `kind` at `line`."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    wrapper = MetadataWrapper(cst.parse_module(source))
    positions = wrapper.resolve(PositionProvider)
    calls = [
        node
        for node, at in positions.items()
        if isinstance(node, cst.Call)
        and at.start.line <= line <= at.end.line
        and _name(node.func) in (kind, "DataLoader")
    ]
    inner = [c for c in calls if not any(d is not c and _holds(positions[c], positions[d]) for d in calls)]
    on_line = [c for c in inner if positions[c].start.line == line] or inner
    if len(on_line) != 1:
        what = "no call" if not on_line else f"{len(on_line)} calls"
        raise TrainperfError(f"{what} of {kind} at line {line}: edit it by hand")
    call = on_line[0]
    new = call.with_changes(args=_with(call.args, arguments))
    edited = wrapper.module.deep_replace(call, new)
    assert isinstance(edited, cst.Module)
    return edited.code


def _with(args: Sequence[cst.Arg], arguments: Mapping[str, Any]) -> list[cst.Arg]:
    import libcst as cst

    left = dict(arguments)
    kept: list[cst.Arg] = []
    for arg in args:
        name = arg.keyword.value if arg.keyword is not None else None if arg.star else _POSITIONAL.get(len(kept))
        if name in left:
            kept.append(arg.with_changes(value=cst.parse_expression(repr(left.pop(name)))))
        else:
            kept.append(arg)
    at = next((i for i, arg in enumerate(kept) if arg.star == "**"), len(kept))
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    new = [
        cst.Arg(keyword=cst.Name(name), value=cst.parse_expression(repr(value)), equal=equal)
        for name, value in left.items()
    ]
    return _separated(kept, at, new)


def _separated(args: list[cst.Arg], at: int, new: list[cst.Arg]) -> list[cst.Arg]:
    """`new` among `args`, with commas as between the first two: each on a line of its own, or not."""
    import libcst as cst

    if not new or not args:
        return [*args, *new]
    like = args[0].comma if len(args) > 1 or isinstance(args[0].comma, cst.Comma) else None
    between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    if isinstance(like, cst.Comma) and isinstance(like.whitespace_after, cst.ParenthesizedWhitespace):
        bare = like.whitespace_after.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
        between = cst.Comma(whitespace_after=bare)
    if at < len(args):
        return [*args[:at], *(arg.with_changes(comma=between) for arg in new), *args[at:]]
    last = args[-1]  # what follows it closes the call, and moves behind the new ones
    inner = [last.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace("")), *new[:-1]]
    inner = [inner[0], *(arg.with_changes(comma=between) for arg in inner[1:])]
    closing = new[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return [*args[:-1], *inner, closing]


_POSITIONAL = {5: "num_workers", 7: "pin_memory"}  # of DataLoader's own arguments


def _name(function: cst.BaseExpression) -> str:
    import libcst as cst

    if isinstance(function, cst.Attribute):
        return function.attr.value
    if isinstance(function, cst.Subscript):  # DataLoader[tuple[...]](...)
        return _name(function.value)
    return function.value if isinstance(function, cst.Name) else ""


def _holds(outer: Any, inner: Any) -> bool:
    a, b, c, d = outer.start, outer.end, inner.start, inner.end
    return (a.line, a.column) <= (c.line, c.column) and (d.line, d.column) <= (b.line, b.column)
