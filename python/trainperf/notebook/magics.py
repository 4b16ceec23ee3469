"""`%%trainperf`, which watches a cell, and `%trainperf`, which watches a line.

%load_ext trainperf

%%trainperf --name resnet
for batch in loader: ...
run
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from trainperf.notebook import cells
from trainperf.output import by_options

if TYPE_CHECKING:
    from trainperf.watch import Watch

_VARIABLE: Final = "run"


def load(shell: Any) -> None:
    """`%load_ext trainperf`. Loading it twice is loading it once."""
    # Since IPython 8.11: a `;` at the end silences a cell's value, as it does without us.
    silenceable = getattr(importlib.import_module("IPython.core.magic"), "output_can_be_silenced", None)
    shell.register_magic_function(silenceable(_magic) if silenceable else _magic, "line_cell", "trainperf")


def unload(shell: Any) -> None:
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("trainperf", None)


def _magic(line: str, cell: str | None = None) -> Any:
    """Watch a cell (or one line) that trains, and show the report below it.

    %%trainperf [-o FILE] [-f] [--name NAME] [--as VARIABLE] [--no-report]

    -o FILE         keep the run in this file (a.tpr); without it the run goes when its variable does
    -f              overwrite the file if it exists
    --name NAME     what the run is called in reports
    --as VARIABLE   put the watch into this variable instead of `run`
    --no-report     print the verdict only, unless the last line is `run`

    The watch is in the variable `run` from the cell's first line on: run.step(), run.phase("transfer") in it, and
    run.findings, run.report("a.html") after it. A `run` of your own stays what it is; then give --as.
    What the cell prints, its progress bars and its last value are shown as usual. An exception is the cell's own.
    """
    from trainperf.watch import watch as new_watch

    __tracebackhide__ = True  # IPython leaves our frames out of the cell's traceback
    shell = cells.shell()
    options = _Options(prog="%trainperf" if cell is None else "%%trainperf", add_help=False)
    options.add_argument("-o", "--output")
    options.add_argument("-f", "--force", action="store_true")
    options.add_argument("--name")
    options.add_argument("--as", dest="variable")
    options.add_argument("--no-report", action="store_true")
    if cell is None:
        options.add_argument("statement", nargs=argparse.REMAINDER)
    args = options.parse_args(_words(line, whole=cell is not None))
    if args.variable is not None and not args.variable.isidentifier():
        options.error(f"--as {args.variable}: give the name of a variable")
    source = cell if cell is not None else " ".join(args.statement)
    if not source.strip():
        options.error("there is nothing to run: put it below %%trainperf, or behind %trainperf")
    cells.close_all_left_open("%%trainperf begins another")
    run = _compiled(shell, source)  # before there is a watch: a SyntaxError leaves none
    watch = new_watch(args.output, name=args.name, overwrite=args.force, verbose=False)
    began = asked = ours = False
    try:
        with watch:
            began = True
            ours = _bind(shell, watch, args.variable)
            value = run()
        asked = value is watch  # `run` as the last line; shown below, where the watch has ended
        return None if asked else value
    except FileExistsError as error:
        if began:
            raise
        raise _usage_error(by_options(str(error))) from None
    except AttributeError as error:
        of_watch = error.name is not None and hasattr(watch, error.name)
        if began and not ours and of_watch and error.obj is shell.user_ns.get(_VARIABLE):
            print(f"trainperf: `{_VARIABLE}` is a variable of yours, not the watch: give --as NAME", file=sys.stderr)
        raise
    finally:
        if began:  # else it could not, and says why by itself
            _show(watch, report=asked or not args.no_report)


def _bind(shell: Any, watch: Watch, variable: str | None) -> bool:
    """Before the cell's first line, so that it can call run.step(). A `run` that is not ours is the user's own."""
    from trainperf.run import Run
    from trainperf.watch import Watch

    if variable is not None or isinstance(shell.user_ns.get(_VARIABLE, watch), (Watch, Run)):
        shell.user_ns[variable or _VARIABLE] = watch
        return True
    return False


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _usage_error(f"{self.prog}: {message} (see %trainperf?)")


def _usage_error(text: str) -> Exception:
    """IPython shows it as one line, without a traceback."""
    error: Exception = importlib.import_module("IPython.core.error").UsageError(text)
    return error


def _words(line: str, *, whole: bool) -> list[str]:
    """Of a line, only what looks like an option is taken apart: a statement's quotes are its own."""
    if whole:
        return shlex.split(line)
    words, rest = [], line.strip()
    while rest.startswith("-"):
        option, _, rest = rest.partition(" ")
        words.append(option)
        rest = rest.lstrip()
        if option in ("-o", "--output", "--name", "--as"):
            value, _, rest = rest.partition(" ")
            words.append(value)
            rest = rest.lstrip()
    return [*words, rest] if rest else words


def _compiled(shell: Any, source: str) -> Any:
    """A function that runs the source as a cell of this notebook, and gives the value of its last expression.

    It is compiled under a cell's name, so that tracebacks and findings name the cell's own lines.
    """
    code = "\n" + shell.transform_cell(source)  # line 1 is the magic's
    name = shell.compile.cache(code, cells.execution(shell), raw_code=source)
    tree = shell.transform_ast(ast.parse(code, name))
    last: ast.Expression | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    body = compile(tree, name, "exec", flags, dont_inherit=True)
    value = compile(last, name, "eval", flags, dont_inherit=True) if last is not None else None
    if any(c is not None and c.co_flags & inspect.CO_COROUTINE for c in (body, value)):
        raise _usage_error("%%trainperf cannot run a cell with await: use `with trainperf.watch() as run:` in it")

    def run() -> Any:
        __tracebackhide__ = True
        exec(body, shell.user_ns)
        return eval(value, shell.user_ns) if value is not None else None

    return run


def _show(watch: Watch, *, report: bool) -> None:
    if report and watch.path:
        importlib.import_module("IPython.display").display(watch)
    else:
        print(watch.summary())
