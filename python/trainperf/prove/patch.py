"""A change of a DataLoader's arguments as a patch of the call that makes it: all else stays as it is, to the byte.

`ast` finds the call, and libcst edits it alone, so that comments and layout stay.
"""

from __future__ import annotations

import ast
import difflib
import io
import os
import re
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainperf.errors import TrainperfError
from trainperf.prove.changes import WITHOUT_WORKERS, implied_by

if TYPE_CHECKING:
    import libcst as cst

# Of DataLoader's own arguments, by their place.
_POSITIONAL = {5: "num_workers", 7: "pin_memory", 9: "timeout", 11: "multiprocessing_context"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")  # as Python counts them: a form feed ends none
_PYTHON = "/lib/python3"  # whose own modules may stand in between: typing, of DataLoader[int](...)
_PACKAGES = ("site-packages", "dist-packages")


def why_no_libcst() -> str:
    """How to get it; "" where it is there."""
    try:
        import libcst  # noqa: F401
    except ImportError:
        return "fix.patch needs libcst: pip install 'trainperf[try]'"
    return ""


def user_call(chain: Sequence[Sequence[Any]]) -> tuple[str, int] | None:
    """(file, line) of the call that makes the loader, if that is the user's own code."""
    for file, line in chain:
        library = any(part in file for part in _PACKAGES) or not os.path.isfile(file)
        if library or _PYTHON not in file:
            return None if library else (file, line)
    return None


def base_of(file: str) -> str:
    """The folder to apply a patch in: the current one, or that of a file which is not in it."""
    here = os.getcwd()
    return here if os.path.realpath(file).startswith(os.path.realpath(here) + os.sep) else os.path.dirname(file)


def diff(file: str, line: int, arguments: Mapping[str, Any], *, kind: str) -> bytes:
    """The patch, as `git apply` and `patch -p1` take it in the folder base_of(file): in the encoding of the file.

    `kind`: the class of the loader, which the call at `line` names. Raises TrainperfError where there is no such call,
    or several, or one whose arguments are not known.
    """
    before = Path(file).read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(before).readline)
    source = before.decode(encoding)
    if source.encode(encoding) != before:
        raise TrainperfError(f"its encoding, {encoding}, does not give back the same bytes")
    after = edit(source, line, arguments, kind=kind).encode(encoding)
    name = os.fsencode(os.path.relpath(os.path.realpath(file), os.path.realpath(base_of(file))))
    # Git's lines end with \n alone.
    sides = [text.split(b"\n") for text in (before, after)]
    lines = [[part + b"\n" for part in side[:-1]] + [part for part in side[-1:] if part] for side in sides]
    made = difflib.diff_bytes(difflib.unified_diff, lines[0], lines[1], b"a/" + name, b"b/" + name)
    return b"".join(part if part.endswith(b"\n") else part + b"\n\\ No newline at end of file\n" for part in made)


def edit(source: str, line: int, arguments: Mapping[str, Any], *, kind: str = "DataLoader") -> str:
    """`source` with these arguments in the call of `kind` at `line`, and without those that they do not allow."""
    import libcst as cst

    call = _call(source, line, kind.rpartition(".")[2])
    begin, end = _span(source, call)
    text = source[begin:end]
    around = cst.Module([], default_newline="\r\n" if "\r\n" in text else "\n")
    parsed = cst.parse_expression(text)
    if not isinstance(parsed, cst.Call) or around.code_for_node(parsed) != text:
        raise TrainperfError(f"the call at line {line} cannot be rewritten")
    new = parsed.with_changes(args=_with(parsed.args, arguments, around))
    edited = source[:begin] + around.code_for_node(new) + source[end:]
    try:
        ast.parse(edited)
    except SyntaxError:
        raise TrainperfError(f"the call at line {line} takes no further argument as it is written") from None
    return edited


def _call(source: str, line: int, kind: str) -> ast.Call:
    """The one of `kind`, or of DataLoader itself, at `line`."""
    at_line = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    calls = [call for call in at_line if _name(call.func) in (kind, "DataLoader")]
    inner = [call for call in calls if not any(other in calls for other in ast.walk(call) if other is not call)]
    on_line = [call for call in inner if call.lineno == line] or inner
    if len(on_line) == 1:
        return on_line[0]
    if on_line:
        raise TrainperfError(f"line {line} has {len(on_line)} calls of {kind}")
    if any(_name(call.func) == "__init__" for call in at_line):
        raise TrainperfError(f"{kind} has an __init__ of its own, which calls DataLoader's")
    raise TrainperfError(f"line {line} does not call {kind} by its name")


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    if isinstance(function, ast.Subscript):  # DataLoader[tuple[...]](...)
        return _name(function.value)
    return function.id if isinstance(function, ast.Name) else ""


def _span(source: str, node: ast.expr) -> tuple[int, int]:
    """Where it begins and ends in `source`; ast counts bytes of UTF-8 in a line."""
    lines = _LINE.findall(source)

    def offset(line: int, column: int) -> int:
        before = lines[line - 1].encode()[:column].decode()
        return sum(map(len, lines[: line - 1])) + len(before)

    return offset(node.lineno, node.col_offset), offset(node.end_lineno or 0, node.end_col_offset or 0)


def _with(args: Sequence[cst.Arg], arguments: Mapping[str, Any], around: cst.Module) -> list[cst.Arg]:
    import libcst as cst

    set_to = implied_by(arguments) | dict(arguments)
    found: list[cst.Arg] = []
    dropped: list[cst.Arg] = []
    for arg, name in zip(args, _names(args), strict=True):
        if name not in set_to:
            found.append(arg)
            continue
        value = set_to.pop(name)
        found.append(arg.with_changes(value=cst.parse_expression(repr(value))))
        if arg.keyword is not None and name in WITHOUT_WORKERS and value == WITHOUT_WORKERS[name]:
            dropped.append(found[-1])  # it is so by default
    mappings = [arg for arg in found if arg.star == "**"]
    if not mappings:  # what is so by default need not be said
        set_to = {name: value for name, value in set_to.items() if name in arguments}
    if set_to and any(arg.star == "*" for arg in found):
        raise TrainperfError("the call passes its arguments on as *args")
    if mappings and set_to:  # which may hold them too
        found[found.index(mappings[0])] = _merged(mappings, set_to, around)
        dropped += mappings[1:]
        set_to = {}
    for arg in dropped:
        found = _without(found, found.index(arg))
    return _behind(found, set_to)


def _names(args: Sequence[cst.Arg]) -> list[str]:
    """Of each argument; "" where it has none that counts here."""
    plain = next((i for i, arg in enumerate(args) if arg.star), len(args))
    return [
        arg.keyword.value if arg.keyword is not None else _POSITIONAL.get(i, "") if i < plain else ""
        for i, arg in enumerate(args)
    ]


def _merged(mappings: Sequence[cst.Arg], values: Mapping[str, Any], around: cst.Module) -> cst.Arg:
    """One mapping with all that these have, and the values."""
    import libcst as cst

    parts = [f"**{_operand(arg.value, around)}" for arg in mappings]
    parts += [f'"{name}": {value!r}' for name, value in values.items()]
    return mappings[0].with_changes(value=cst.parse_expression(f"{{{', '.join(parts)}}}"))


def _operand(value: cst.BaseExpression, around: cst.Module) -> str:
    """As it can stand behind ** in a dict, where not all is allowed that a call takes there."""
    import libcst as cst

    text = around.code_for_node(value)
    plain = isinstance(value, cst.Name | cst.Attribute | cst.Subscript | cst.Call | cst.Dict)
    return text if plain or value.lpar else f"({text})"


def _without(args: list[cst.Arg], at: int) -> list[cst.Arg]:
    """What follows the last one closes the call, and moves behind the one before it."""
    import libcst as cst

    gone = args[at]
    if not 0 < at == len(args) - 1:
        return [*args[:at], *args[at + 1 :]]
    last = args[at - 1]
    between = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else None
    closing = gone.comma.whitespace_after if isinstance(gone.comma, cst.Comma) else gone.whitespace_after_arg
    if isinstance(between, cst.ParenthesizedWhitespace) and isinstance(closing, cst.ParenthesizedWhitespace):
        assert isinstance(last.comma, cst.Comma)  # each on a line of its own: its comment stays
        between = between.with_changes(last_line=closing.last_line, indent=closing.indent)
        return [*args[: at - 1], last.with_changes(comma=last.comma.with_changes(whitespace_after=between))]
    return [*args[: at - 1], last.with_changes(comma=gone.comma, whitespace_after_arg=gone.whitespace_after_arg)]


def _behind(args: list[cst.Arg], new: Mapping[str, Any]) -> list[cst.Arg]:
    """`new` behind `args`, with commas as between the first two: each on a line of its own, or not."""
    import libcst as cst

    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    added = [
        cst.Arg(keyword=cst.Name(name), value=cst.parse_expression(repr(value)), equal=equal)
        for name, value in new.items()
    ]
    if not added or not args:
        return [*args, *added]
    like = args[0].comma if len(args) > 1 or isinstance(args[0].comma, cst.Comma) else None
    between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    if isinstance(like, cst.Comma) and isinstance(like.whitespace_after, cst.ParenthesizedWhitespace):
        bare = like.whitespace_after.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
        between = cst.Comma(whitespace_after=bare)
    last = args[-1]  # what follows it closes the call, and moves behind the new ones
    inner = [last.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace("")), *added[:-1]]
    inner = [inner[0], *(arg.with_changes(comma=between) for arg in inner[1:])]
    closing = added[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return [*args[:-1], *inner, closing]
