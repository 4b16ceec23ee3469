"""Places in the user's source that a finding can say more of: loops over weights, one by one, and what they do to each;
tensors made item by item; arrays that are copied whole to grow; files of text that are written anew; calls of a
database that leave no frame of Python's; and who locks a file."""

from __future__ import annotations

import ast
import functools
import json
import os
import sys
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence

_MOST_BYTES = 400_000  # of source, in all: a second of parsing at most
_LOOPS = (ast.For, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_OF_WEIGHTS = {"parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "grad", "param_groups"}
_DATABASES = {"sqlite3", "duckdb", "psycopg", "psycopg2", "MySQLdb", "mysql", "pyodbc", "oracledb"}
_ASK_DATABASE = {"execute", "executemany", "executescript", "commit", "fetchone", "fetchmany", "fetchall"}
_JOINS = {"concatenate", "concat", "cat", "stack", "vstack", "hstack", "dstack", "column_stack", "row_stack"}
_CONVERTS = {"tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor"}
_STATISTICS = {"norm", "mean", "std", "var", "abs", "max", "min", "sum", "pow", "square"}


def source_marks() -> str:
    """{file: [[first line, last line, kind]]} as JSON, of what is imported and the user's."""
    found: dict[str, tuple[tuple[int, int, str], ...]] = {}
    left = _MOST_BYTES
    for file in dict.fromkeys(_files()):
        try:
            status = os.stat(file)
        except OSError:
            continue
        if status.st_size <= left:
            left -= status.st_size
            if marks := _marks_of_file(file, status.st_mtime_ns, status.st_size):
                found[file] = marks
    return json.dumps(found)


@functools.lru_cache(maxsize=4096)  # the next watch of the process finds most files as they were
def _marks_of_file(file: str, _mtime_ns: int, _size: int) -> tuple[tuple[int, int, str], ...]:
    try:
        with tokenize.open(file) as source:
            return tuple(marks_of(source.read()))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def marks_of(source: str) -> Iterator[tuple[int, int, str]]:
    """First and last line of each, and its kind: see findings/source_marks.py."""
    tree = ast.parse(source)
    uses_database = any(_imports_database(node) for node in ast.walk(tree))
    for node in ast.walk(tree):
        kind = ""
        if isinstance(node, _LOOPS):
            kind = _kind(node) or ("convert" if _converts(node) else "")
        elif isinstance(node, (ast.With, ast.Call)) and _rewrites(node):
            kind = "rewrite"
        elif uses_database and isinstance(node, (ast.With, ast.Call)) and _asks_database(node):
            kind = "database"
        elif isinstance(node, ast.Call) and _locks_file(node):
            kind = "file_lock"
        elif isinstance(node, ast.Assign) and _joins_to_itself(node):
            kind = "join"
        if kind and isinstance(node, (ast.stmt, ast.expr)):
            yield node.lineno, node.end_lineno or node.lineno, kind


def _files() -> Iterator[str]:
    """The script first."""
    library = [os.path.realpath(sysconfig.get_paths()[key]) for key in ("stdlib", "purelib", "platlib")]
    library.append(os.path.dirname(os.path.realpath(__file__)))
    real_folder = functools.cache(os.path.realpath)  # of thousands of files there are hundreds
    for module in (sys.modules.get("__main__"), *list(sys.modules.values())):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        folder, name = os.path.split(file)
        real = os.path.realpath(file) if os.path.islink(file) else os.path.join(real_folder(folder), name)
        packaged = "site-packages" in real or "dist-packages" in real
        if not packaged and not any(real.startswith(f"{folder}{os.sep}") for folder in library):
            yield os.path.abspath(file)


def _kind(loop: ast.AST) -> str:
    """What is done to each weight: as in findings/source_marks.py; "" for another loop."""
    over, body = _parts(loop)
    nodes = [n for b in body for n in ast.walk(b)]
    calls = {name for n in nodes if (name := _method(n))}
    of_grad = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes)
    if "backward" in calls:
        return ""
    if calls & {"lerp_", "lerp"} or _blends(nodes) or _scales_and_adds(nodes):
        return "lerp"
    if of_grad and (kind := _kind_of_gradients(calls, nodes)):
        return kind
    if not of_grad and not _words(over) & _OF_WEIGHTS:
        return ""
    if "mul_" in calls or any(map(_multiplies, nodes)):
        return "scale" if of_grad else "decay"
    if calls & {"copy_"}:
        return "copy"
    if calls & _STATISTICS:
        return "statistics"
    return ""


def _multiplies(node: ast.AST) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult)


def _kind_of_gradients(calls: set[str], nodes: Sequence[ast.AST]) -> str:
    if calls & {"clamp_", "clip_"}:
        return "clip_value"
    if calls & {"norm", "pow", "square", "vector_norm"}:
        return "clip"
    return "update" if calls & {"add_", "sub_", "addcdiv_"} or any(map(_subtracts, nodes)) else ""


def _rewrites(node: ast.With | ast.Call) -> bool:
    """`with open(path, "w") as file:` that writes rows or JSON; `path.write_text(json.dumps(rows))`,
    `frame.to_csv(path)`. Not of what pickles, as a checkpoint does."""
    if isinstance(node, ast.Call):
        if _method(node) == "write_text":
            return any(_method(n) == "dumps" for n in ast.walk(node))
        modes = [k.value for k in node.keywords if k.arg == "mode"]
        return _method(node) == "to_csv" and not any(isinstance(m, ast.Constant) and m.value == "a" for m in modes)
    opened = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    if not any(_opens_to_write(call) for call in opened):
        return False
    calls = {name for b in node.body for n in ast.walk(b) if (name := _method(n))}
    return bool(calls & {"dump", "writerow", "writerows", "write", "writelines"})


def _imports_database(node: ast.AST) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.partition(".")[0] in _DATABASES for name in names)


def _asks_database(node: ast.With | ast.Call) -> bool:
    """`cursor.execute(...)`, or `with connection:` around it, which commits at its end."""
    if isinstance(node, ast.Call):
        return _method(node) in _ASK_DATABASE
    held = all(isinstance(item.context_expr, (ast.Name, ast.Attribute)) for item in node.items)
    return held and any(_method(n) in _ASK_DATABASE for b in node.body for n in ast.walk(b))


def _locks_file(call: ast.Call) -> bool:
    """`fcntl.flock(file, fcntl.LOCK_EX)`, not what unlocks it."""
    name = call.func.id if isinstance(call.func, ast.Name) else _method(call)
    return name in ("flock", "lockf") and "LOCK_UN" not in _words(list(call.args))


def _joins_to_itself(node: ast.Assign) -> bool:
    """`self.rows = np.concatenate([self.rows, new])`, `rows = np.append(rows, new)`: not of a list's append."""
    call = node.value
    if not isinstance(call, ast.Call) or not call.args:
        return False
    name = call.func.id if isinstance(call.func, ast.Name) else _method(call)
    if name not in _JOINS and not (name in ("append", "insert") and len(call.args) > 1):
        return False
    first = call.args[0]
    parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
    return any(ast.unparse(target) == ast.unparse(part) for target in node.targets for part in parts)


def _converts(loop: ast.AST) -> bool:
    """`[torch.tensor(row) for row in rows]`."""
    if isinstance(loop, ast.For):
        return False  # it may go over batches
    return any(_method(n) in _CONVERTS for value in _parts(loop)[1] for n in ast.walk(value))


def _opens_to_write(call: ast.Call) -> bool:
    """As text, from the beginning."""
    by_name = isinstance(call.func, ast.Name) and call.func.id == "open"
    if not by_name and _method(call) != "open":
        return False
    if any(isinstance(n, ast.JoinedStr) for a in call.args for n in ast.walk(a)):
        return False  # another file each time
    modes = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
    return any(isinstance(m, ast.Constant) and m.value in ("w", "wt", "w+", "tw") for m in modes)


def _parts(loop: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """What it goes over, and what it does."""
    if isinstance(loop, ast.For):
        return [loop.iter], list(loop.body)
    over: list[ast.AST] = [g.iter for g in getattr(loop, "generators", ())]
    values = [getattr(loop, name, None) for name in ("elt", "key", "value")]
    return over, [value for value in values if value is not None]


def _method(node: ast.AST) -> str:
    """ "add_" of `x.add_(y)`; "" of what is no such call."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _words(nodes: list[ast.AST]) -> set[str]:
    return {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, (ast.Attribute, ast.Name))
    }


def _blends(nodes: list[ast.AST]) -> bool:
    """`a * m + b * (1 - m)`: a sum of products with factors that are each other's rest."""
    for n in nodes:
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Add) and _product(n.left) and _product(n.right):
            factors = [{ast.dump(p.left), ast.dump(p.right)} for p in (n.left, n.right) if isinstance(p, ast.BinOp)]
            rests = [{_rest_of(p.left), _rest_of(p.right)} for p in (n.left, n.right) if isinstance(p, ast.BinOp)]
            if (factors[0] & rests[1]) or (factors[1] & rests[0]) or _constants(n.left, n.right):
                return True
    return False


def _scales_and_adds(nodes: list[ast.AST]) -> bool:
    """`a.mul_(m)`, and `.add_(b, alpha=1 - m)` or `.add_((1 - m) * b)`."""
    scaled = {ast.dump(n.args[0]) for n in nodes if isinstance(n, ast.Call) and _method(n) == "mul_" and n.args}
    for n in nodes:
        if isinstance(n, ast.Call) and _method(n) == "add_" and scaled:
            inside = {_rest_of(m) for m in ast.walk(n)} - {""}
            values = [k.value for k in n.keywords if k.arg == "alpha"]
            if inside & scaled or any(isinstance(v, ast.Constant) for v in values):
                return True
    return False


def _product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _rest_of(node: ast.AST) -> str:
    """ "m" of `1 - m`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
        return ast.dump(node.right)
    return ""


def _constants(*products: ast.AST) -> bool:
    """Each has a number for a factor, and these add up to one."""
    numbers = [
        n.value
        for p in products
        if isinstance(p, ast.BinOp)
        for n in (p.left, p.right)
        if isinstance(n, ast.Constant) and isinstance(n.value, (int, float))
    ]
    return len(numbers) == len(products) and abs(sum(numbers) - 1) < 1e-9


def _subtracts(node: ast.AST) -> bool:
    """`w -= lr * w.grad`, `w.data = w.data - ...`."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Sub)
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Sub)
