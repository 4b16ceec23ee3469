"""A script's or module's name as python takes it: what it compiles, and which folder it looks for modules in."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Sequence

from trainperf.errors import TrainperfError


class Program:
    """What python would make of a script's or module's name."""

    def __init__(
        self, argv0: str, path0: str | None, module: types.ModuleType, code: Callable[[], types.CodeType]
    ) -> None:
        self.argv0 = argv0
        self.path0 = path0
        self.module = module
        self.code = code  # compiled inside the watch, so that a SyntaxError is shown as the script's

    def become_main(self, arguments: Sequence[str]) -> None:
        """Makes this process look as if python had been started with the program; it is not run yet."""
        sys.argv = [self.argv0, *arguments]
        set_path(self.path0)
        sys.modules["__main__"] = self.module


def of_script(name: str) -> Program:
    if os.path.isdir(name) or (os.path.isfile(name) and not name.endswith(".py") and _is_zip(name)):
        spec = importlib.machinery.PathFinder.find_spec("__main__", [os.path.abspath(name)])
        if spec is None:
            raise TrainperfError(f"{name} has no __main__.py: give a script")
        return Program(name, os.path.abspath(name), *_of_spec(spec, ""))
    if not os.path.isfile(name):
        raise TrainperfError(f"there is no script {name}")
    path = os.path.abspath(name)
    module = _new_main()
    module.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )

    def code() -> types.CodeType:
        with io.open_code(path) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    # Through a link, python looks for modules beside the real script.
    return Program(name, os.path.dirname(os.path.realpath(path)), module, code)


def of_module(name: str) -> Program:
    cwd = os.getcwd()
    set_path(cwd)
    try:
        spec = importlib.util.find_spec(name)
        package = ""
        if spec is not None and spec.submodule_search_locations is not None:
            package = name
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise TrainperfError(f"there is no module {name}: {error}") from error
    if spec is None:
        raise TrainperfError(
            f"{package} is a package without __main__: it cannot be run" if package else f"there is no module {name}"
        )
    module, code = _of_spec(spec, spec.parent or "")
    return Program(spec.origin or name, cwd, module, code)


def _of_spec(
    spec: importlib.machinery.ModuleSpec, package: str
) -> tuple[types.ModuleType, Callable[[], types.CodeType]]:
    module = _new_main()
    module.__dict__.update(
        __file__=spec.origin,
        __builtins__=builtins,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=package,
        __spec__=spec,
    )

    def code() -> types.CodeType:
        get_code = getattr(spec.loader, "get_code", None)
        found = get_code(spec.name) if get_code is not None else None
        if not isinstance(found, types.CodeType):
            raise TrainperfError(f"{spec.name} has no Python code to run")
        return found

    return module, code


def _new_main() -> types.ModuleType:
    module = types.ModuleType("__main__")
    if sys.version_info < (3, 14):  # as python makes it for the main module only
        module.__annotations__ = {}
    return module


def _is_zip(name: str) -> bool:
    import zipfile

    return zipfile.is_zipfile(name)


def set_path(path0: str | None) -> None:
    """Puts the script's folder where python puts it: in place of our own."""
    if path0 is None or getattr(sys.flags, "safe_path", False):
        return
    if sys.path:
        sys.path[0] = path0
    else:
        sys.path.append(path0)
