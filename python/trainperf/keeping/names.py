"""What the program calls its objects: local variables of what runs, its modules' globals, attributes of its objects.

Nothing of the program's runs for it. So no object is asked isinstance(), which reads its `__class__`: a proxy, a lazy
module or a deprecated name may do anything then.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

_MOST_FRAMES = 64  # of a thread
_MOST_VALUES = 2_000  # of a module or an object that are looked at
_OURS = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep


class Reader(Protocol):
    """The part of the core that this needs."""

    def frame_locals(self, frame: types.FrameType, /) -> dict[str, Any]: ...
    def container_length(self, thing: object, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or an attribute of a class's objects."""

    of: Literal["local", "global", "attribute"]
    name: str
    owner: str  # the function, module or class
    file: str  # of the owner's source; "": not known
    line: int = 0  # of a local: the first of its function
    inside: int = 0  # levels below: 1 for the list in `history["loss"]`


@lru_cache(maxsize=4096)
def is_programs(file: str) -> bool:
    """Neither Python's own nor installed; a notebook's cell is the program's."""
    if not file or (file.startswith("<") and not file.startswith("<ipython-input")):
        return False
    if _is_installed(file) or _is_ours(file):
        return False
    real = os.path.realpath(file)  # reads each folder on the way: not for the thousands of files of libraries
    return not _is_installed(real)


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or file.startswith(_library())


@lru_cache(maxsize=4096)
def _is_ours(file: str) -> bool:
    return file.startswith(_OURS) or os.path.realpath(file).startswith(_OURS)


@lru_cache(maxsize=1)
def _library() -> tuple[str, ...]:
    folders = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders.append(os.path.dirname(os.__file__))
    return tuple({form + os.sep for folder in folders for form in (folder, os.path.realpath(folder))})


def frames() -> list[types.FrameType]:
    """Of all threads, the innermost first, without ours."""
    found = []
    for innermost in sys._current_frames().values():
        frame: types.FrameType | None = innermost
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            if not _is_ours(frame.f_code.co_filename):
                found.append(frame)
            frame = frame.f_back
    return found


def qualified(code: types.CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def local_values(reader: Reader, frame: types.FrameType) -> Iterator[tuple[Name, Any]]:
    code = frame.f_code
    for name, value in reader.frame_locals(frame).items():
        yield Name("local", name, qualified(code), code.co_filename, code.co_firstlineno), value


def global_values() -> Iterator[tuple[Name, Any]]:
    """Of the program's modules; what they import is no value of theirs."""
    seen: set[int] = set()
    installed: dict[str, bool] = {}  # by the name of a package: thousands of modules are in a few
    for title, module in list(sys.modules.items()):
        package = title.partition(".")[0]
        if package not in installed:
            installed[package] = package != "__main__" and _is_installed(_file_of(sys.modules.get(package)))
        if installed[package] or not is_module(module) or id(module) in seen:
            continue
        seen.add(id(module))
        names, file = globals_of(module), _file_of(module)
        if not is_programs(file) and not (title == "__main__" and "get_ipython" in names):
            continue
        for name, value in list(names.items())[:_MOST_VALUES]:
            if not name.startswith("__") and not is_module(value):
                yield Name("global", name, title, file), value


def attributes(thing: Any) -> Iterator[tuple[Name, Any]]:
    """Those that an object has of its own, without a word of its class's; of a class, those that it gives."""
    kind = thing if is_class(thing) else type(thing)
    owner, file = type_name(kind), source_of(kind)
    for name, value in list(own_values(thing).items())[:_MOST_VALUES]:
        yield Name("attribute", name, owner, file), value


def is_class(thing: object) -> bool:
    return issubclass(type(thing), type)


def is_module(thing: object) -> bool:
    return issubclass(type(thing), types.ModuleType)


def globals_of(module: object) -> dict[str, Any]:
    held: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return held


def _file_of(module: object) -> str:
    file = globals_of(module).get("__file__") if is_module(module) else None
    return file if type(file) is str else ""


def own_values(thing: Any) -> Mapping[str, Any]:
    kind = type(thing)
    if issubclass(kind, type):
        return types.MappingProxyType(dict(type.__getattribute__(thing, "__dict__")))
    values: dict[str, Any] = {}
    for base in type.__getattribute__(kind, "__mro__"):
        for name, slot in type.__getattribute__(base, "__dict__").items():
            if type(slot) is types.MemberDescriptorType and base is not object:
                try:
                    values[name] = slot.__get__(thing)
                except AttributeError:
                    continue  # it has no value
            elif name == "__dict__":
                if type(slot) is not types.GetSetDescriptorType:
                    return values  # a class of the program's answers for it
                held = slot.__get__(thing)
                if type(held) is dict:
                    values.update(held)
    return values


def type_name(kind: type) -> str:
    return str(type.__getattribute__(kind, "__qualname__")).rpartition("<locals>.")[2]


def source_of(kind: type) -> str:
    """The file that a class is written in; "" where that is not known."""
    for value in type.__getattribute__(kind, "__dict__").values():
        if type(value) is types.FunctionType and is_programs(value.__code__.co_filename):
            return value.__code__.co_filename
    return _file_of(sys.modules.get(str(type.__getattribute__(kind, "__module__"))))


def is_programs_object(thing: Any) -> bool:
    kind = type(thing)
    return not issubclass(kind, (type, types.FunctionType, types.ModuleType)) and is_programs(source_of(kind))


def named_values(reader: Reader) -> Iterator[tuple[Name, Any]]:
    """Local variables of the program's functions that run, its globals, and the attributes of the objects in both."""
    seen: set[int] = set()
    roots: list[tuple[Name, Any]] = []
    for frame in frames():
        if is_programs(frame.f_code.co_filename):
            roots += local_values(reader, frame)
    roots += global_values()
    for name, value in roots:
        yield name, value
        if id(value) not in seen and is_programs_object(value):
            seen.add(id(value))
            yield from attributes(value)
