"""Damages valid run files at random, and looks at each with every view: an error of one line, or a view; no more.

python -m tests.fuzz SECONDS [FIRST_SEED]
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from trainperf.comparison import compare_jobs
from trainperf.errors import TrainperfError
from trainperf.export import choose
from trainperf.history import Past
from trainperf.ranks import open_job
from trainperf.report import compare_console, compare_html, compare_json, console, html, model
from trainperf.report import json as as_json
from trainperf.run import Run
from trainperf.runfile.schema import TABLES

RECORDED: Final = Path(__file__).resolve().parents[1] / "replay" / "runs"
LONGEST_SECONDS: Final = 20.0  # of all views of one file

_NUMBERS: Final = (0, 1, -1, 2, 63, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 10**15)
_TEXTS: Final = (
    *(
        "",
        "x",
        "\x1b[2J",
        "\u202e",
        "a" * 70_000,
        "\x00",
        "/" * 500,
        "</script>",
        "{{7*7}}",
        "%s%n",
        "-1",
        "nan",
        "1e999",
    ),
    *("9" * 5000, "[" * 5000 + "]" * 5000, '{"a":' * 900 + "1" + "}" * 900, "[]", "{}", "null", "[null]", '"x"', "0"),
    *('{"a": null}', '{"a": [1, "x", null]}', '{"a": {"b": [[1, 2, 3]]}}', '[["a"]]', '{"batch_size": "x"}'),
)


def base_files(folder: Path, limit: int | None = None) -> list[Path]:
    """The recorded runs, unpacked."""
    found = []
    for packed in sorted(RECORDED.glob("*.tpr.xz"))[:limit]:
        target = folder / packed.stem
        with lzma.open(packed) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        found.append(target)
    return found


def damage(source: Path, target: Path, rng: random.Random) -> str:
    """Writes a damaged copy, and says how it was damaged."""
    shutil.copyfile(source, target)
    if rng.random() < 0.25:
        return _damage_bytes(target, rng)
    done: list[str] = []
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        for _ in range(rng.choice((1, 1, 2, 5))):
            with contextlib.suppress(sqlite3.Error):  # a constraint of the schema's
                done.append(_damage_rows(database, rng))
    return "; ".join(done)


def _damage_bytes(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 4, 64))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)
    return "bytes"


def _damage_rows(database: sqlite3.Connection, rng: random.Random) -> str:
    table = rng.choice(["meta", *TABLES])
    (rows,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    if not rows:
        return ""
    kind = rng.random()
    if kind < 0.1:
        database.execute(f"DELETE FROM {table}")
        return f"no {table}"
    column = "value" if table == "meta" else rng.choice(TABLES[table])
    (rowid, value) = database.execute(
        f"SELECT rowid, {column} FROM {table} LIMIT 1 OFFSET ?", (rng.randrange(rows),)
    ).fetchone()
    every = kind < 0.3
    new = _other(value, rng)
    where = "" if every else " WHERE rowid = :rowid"
    database.execute(f"UPDATE {table} SET {column} = :new{where}", {"new": new, "rowid": rowid})
    return f"{table}.{column} {'of all' if every else rowid} = {str(new)[:40]!r}"


def _other(value: Any, rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.05:
        return rng.choice((None, b"\xff\xfe", 1.5, "x", 7))
    if isinstance(value, int):
        return rng.choice((*_NUMBERS, value + rng.randrange(-100, 100), -value))
    text = str(value)
    if text[:1] in ("{", "[") and kind < 0.6:
        with contextlib.suppress(ValueError):
            return json.dumps(_other_json(json.loads(text), rng))
    return rng.choice(_TEXTS)


def _other_json(value: Any, rng: random.Random) -> Any:
    """One value within, replaced by one of another kind."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        return value | {key: _other_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], _other_json(value[at], rng), *value[at + 1 :]]
    return rng.choice((None, [], {}, "", "x", -1, 0, 1e308, 10**30, [[]], {"a": []}, True, ["x", 1], [1, 2, 3]))


def views(healthy: Path, folder: Path) -> Sequence[tuple[str, Callable[[Path], object]]]:
    """By name: each looks at a run file as a command does."""

    def with_run(look: Callable[[Run], object]) -> Callable[[Path], object]:
        def view(path: Path) -> None:
            with Run(path) as run:
                look(run)

        return view

    def compare(a: Path, b: Path) -> None:
        with open_job(a) as before, open_job(b) as after:
            found = compare_jobs(before, after)
        compare_html.render(found)
        json.dumps(compare_json.to_dict(found), allow_nan=False)
        console.emit(compare_console.lines(found, width=80), io.StringIO())

    def export(name: str) -> Callable[[Path], object]:
        return with_run(lambda run: choose("", name).write(run, str(folder / "exported")))

    def show(run: Run) -> None:
        report = model.build(run)
        console.emit(console.show_lines(report, width=80), io.StringIO())
        json.dumps(as_json.to_dict(report) | {"per_step": as_json.per_step(run)}, allow_nan=False)

    return (
        ("show", with_run(show)),
        ("report", with_run(html.render)),
        ("history", with_run(lambda run: Past.parse(run.meta.get("history", "")))),
        *((name, export(name)) for name in ("csv", "json", "chrome")),
        ("compare with it", lambda path: compare(healthy, path)),
        ("compare it", lambda path: compare(path, healthy)),
    )


def try_one(seed: int, bases: Sequence[Path], folder: Path) -> str:
    """Of one seed: what went wrong; "" where nothing did."""
    rng = random.Random(seed)
    source, target = rng.choice(bases), folder / "damaged.tpr"
    how = damage(source, target, rng)
    began = time.process_time()
    for name, view in views(bases[0], folder):
        try:
            view(target)
        except TrainperfError as error:
            if "\n" in str(error).strip() or len(str(error)) > 1000:
                return f"seed {seed}, {source.name}: {name}: not one line: {str(error)[:300]!r} ({how})"
        except OSError:
            continue
        except Exception as error:
            at = error.__traceback__
            while at is not None and at.tb_next is not None:
                at = at.tb_next
            place = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
            return f"seed {seed}, {source.name}: {name}: {type(error).__name__}: {str(error)[:200]} at {place} ({how})"
    seconds = time.process_time() - began
    if seconds > LONGEST_SECONDS:
        return f"seed {seed}, {source.name}: {seconds:.0f} s ({how})"
    return ""
