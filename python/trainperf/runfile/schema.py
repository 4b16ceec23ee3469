"""The run file's schema as the reader knows it, and the opening of a file that may be anything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trainperf.errors import RunFileError

APPLICATION_ID: Final = 0x54505246  # "TPRF"
# What cpp/trainperf/run/schema.sql writes; older ones are read too, from OLDEST_SCHEMA_VERSION.
SCHEMA_VERSION: Final = 9
OLDEST_SCHEMA_VERSION: Final = 1

# In the order of cpp/trainperf/event/event.h. Kept here too, so that a run can be read where the core cannot be loaded.
PHASES: Final = (
    "fetch",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "checkpoint",
    "validation",
    "logging",
    "other",
)
MECHANISMS: Final = (
    *("gil_wait", "stop_the_world", "object_lock", "gc", "gpu_wait", "launch", "cuda_alloc", "module_load", "copy"),
    *("collective", "throttled", "descheduled", "blocked", "python", "native", "unknown"),
)
CAUSES: Final = (
    *("data_wait", "h2d_copy", "gpu_wait", "launch", "cuda_alloc", "module_load", "collective", "gil_wait"),
    *(
        "stop_the_world",
        "object_lock",
        "gc",
        "checkpoint",
        "validation",
        "logging",
        "descheduled",
        "throttled",
        "blocked_io",
        "python",
        "compute",
        "unknown",
    ),
)
# These keep their name in every phase; the rest of an OWNED phase takes the phase's cause.
KEEP_NAME: Final = frozenset({"gil_wait", "stop_the_world", "object_lock", "gc", "descheduled", "throttled"})
MACHINE: Final = ("descheduled", "throttled")  # none of the loop's doing
ON_CPU: Final = ("python", "native", "gc", "copy")  # mechanisms of a thread that works
# Of a sample's state, for those that tell what the thread did.
MECHANISM_OF: Final = {"python": "python", "native": "native", "parallel": "native", "blocked": "blocked"}
OWNED: Final = {
    "fetch": "data_wait",
    "transfer": "h2d_copy",
    "checkpoint": "checkpoint",
    "validation": "validation",
    "logging": "logging",
}
_BY_MECHANISM: Final = {
    "copy": "h2d_copy",
    "blocked": "blocked_io",
    "python": "python",
}
DETAIL_KINDS: Final = (
    *("gil_wait", "sample", "hold", "gc", "call", "idle_gil_wait", "beside", "stop_the_world", "object_lock"),
)
SPAN_KINDS: Final = ("loader_start", "first_fetch", "validation", "checkpoint", "logging", "compile", "gc", "callback")

STEP_COLUMNS: Final = (
    *("first_step", "steps", "start_ns", "wall_ns", "wall_min_ns", "wall_max_ns", "flags", "fetches", "backwards"),
    *("optimizer_steps", "compile_ns"),
    *(f"{cause}_ns" for cause in CAUSES),
    *(f"phase_{phase}_ns" for phase in PHASES),
)
DEVICE_STEP_COLUMNS: Final = (
    *("first_step", "device", "wall_ns", "busy_ns", "kernels", "kernel_ns", "launches", "copies", "copy_ns"),
    *("exposed_copy_ns", "collective_ns", "exposed_collective_ns", "tiny_kernels", "starved_gaps", "between_ns"),
    *("first_kernels", "first_kernel_ns", "queue_depth", "incomplete", "untraced", "untraced_ns"),
    *(f"idle_{cause}_ns" for cause in CAUSES),
)
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "meta": ("key", "value"),
    "step": STEP_COLUMNS,
    "kept_step": (*STEP_COLUMNS, "why"),
    "segment": ("step", "seq", "start_ns", "end_ns", "phase", "mechanism", "thread", "stack"),
    "section": ("id", "first_step", "steps", "wall_ns"),
    "phase_mechanism": ("section", "phase", "mechanism", "ns"),
    "detail": ("id", "section", "kind", "phase", "state", "thread", "stack", "code", "ns", "count", "steps", "folded"),
    "span": ("id", "kind", "step", "start_ns", "end_ns", "cpu_ns", "object", "value", "thread"),
    "span_total": ("kind", "count", "ns", "steps", "value"),
    "fetch": (
        *("loader", "count", "wall_ns", "cpu_ns", "gil_wait_ns", "max_ns", "first_count", "first_wall_ns"),
        *("off_thread_count", "off_thread_wall_ns", "validation_count", "validation_wall_ns"),
        *("exhausted_count", "exhausted_wall_ns"),
    ),
    "fetch_ready": ("loader", "ready", "count", "wall_ns"),
    "fetch_awaited": ("loader", "worker", "reading", "count", "wait_ns"),
    "worker": (
        *("id", "loader", "pid", "first_ns", "last_ns", "first_cpu_ns", "last_cpu_ns", "readings"),
        *("at_work_ns", "at_work_cpu_ns"),
    ),
    "worker_state": ("worker", "state", "readings"),
    "worker_wait": ("worker", "call", "shared", "looks"),
    "worker_stack": ("loader", "stack", "state", "call", "samples"),
    "child": ("id", "pid", "first_ns", "last_ns", "cpu_ns", "name", "command"),
    "child_stack": ("child", "stack", "state", "call", "samples"),
    "thread": ("id", "native_tid", "name", "role", "gil_wait_ns", "gil_waits"),
    "object": ("id", "kind", "description"),
    "site": ("id", "file", "function", "line"),
    "stack": ("id", "parent", "site"),
    "host": (
        *("at_ns", "process_cpu_ns", "machine_busy_ns", "machine_idle_ns", "throttled_ns", "rss_bytes", "threads"),
        *("runnable", "faults", "system_ns", "returned_bytes"),
    ),
    "counter": ("id", "name"),
    "machine": ("counter", "at_ns", "so_far"),
    "tier": ("probe", "tier", "why"),
    "overhead": ("place", "ns"),
    "dropped": ("what", "count"),
    "note": ("id", "text", "count"),
    "wall_histogram": ("warm_up", "lower_ns", "upper_ns", "steps", "wall_ns"),
    "cause_share": ("cause", "percent", "steps"),
    "device": ("id", "name", "description", "lead_ns_median"),
    "device_step": DEVICE_STEP_COLUMNS,
    "device_kernel": (
        *("device", "position", "name", "kind", "eligible", "count", "ns", "max_ns", "tiny", "steps", "folded"),
    ),
    "device_copy": ("device", "direction", "src", "dst", "count", "bytes", "ns", "exposed_ns", "small", "steps"),
    "device_segment": ("step", "device", "seq", "start_ns", "end_ns", "what", "cause", "name"),
    "call": ("thread", "call", "count", "failed", "ns", "max_ns", "steps"),
}
TABLES_SINCE: Final[Mapping[str, int]] = {  # a version after the first
    **dict.fromkeys(("device", "device_step", "device_kernel", "device_copy", "device_segment", "call"), 2),
    "fetch_awaited": 4,
    "worker_wait": 5,
    "worker_stack": 7,
    "counter": 8,
    "machine": 8,
    "child": 9,
    "child_stack": 9,
}
# Those that files of this version may lack: older ones of it do, and who wrote these reads newer ones as well.
OPTIONAL_TABLES: Final = frozenset({"child", "child_stack"})
COLUMNS_SINCE: Final[Mapping[tuple[str, str], int]] = {  # a version after the first
    ("host", "faults"): 3,
    ("host", "system_ns"): 3,
    ("host", "returned_bytes"): 3,
    ("worker", "at_work_ns"): 4,
    ("worker", "at_work_cpu_ns"): 4,
    **{(table, f"{cause}_ns"): 6 for table in ("step", "kept_step") for cause in ("stop_the_world", "object_lock")},
    ("device_step", "idle_stop_the_world_ns"): 6,
    ("device_step", "idle_object_lock_ns"): 6,
    ("device_step", "untraced"): 9,
    ("device_step", "untraced_ns"): 9,
}

# No run that trainperf wrote comes near these: what does is damaged, or was made to cost its reader hours.
MOST_BYTES: Final = 256 << 20  # of the file, and of its log
_LONGEST_TEXT: Final = 64 << 10  # characters of a name
_LONGEST_FACT: Final = 4 << 20  # of what may be JSON: meta, a description, a note
_FACTS: Final = frozenset({"meta", "object", "device", "note", "tier"})
_DEEPEST: Final = 32  # levels of JSON
_NESTING: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

_LOG_SUFFIXES: Final = ("-wal", "-journal")


def columns_of(table: str, version: int) -> tuple[str, ...]:
    """Of a table in files of that version; none where it had no such table."""
    if version < TABLES_SINCE.get(table, 1):
        return ()
    return tuple(c for c in TABLES[table] if version >= COLUMNS_SINCE.get((table, c), 1))


def selected(table: str, columns: Sequence[str], version: int) -> str:
    """These columns for a SELECT; 0 in place of those that files of that version do not have."""
    of_file = columns_of(table, version)
    return ", ".join(column if column in of_file else f"0 AS {column}" for column in columns)


class RunDatabase:
    """A run file, checked and opened read-only. Every failure is a RunFileError of one line that names the file.

    A run that is still being written, or was killed, has a write-ahead log: file and log are copied, so that all reads
    see one moment, and the writer is neither held up nor locked out. Nothing is ever created beside the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._lacks: frozenset[str] = frozenset()
        _check_header(path)
        try:
            self._connection = _connect(_real(path))
            self.schema_version = self._check_identity()
            self._check_tables()
        except sqlite3.Error as error:
            self.close()
            raise self.damaged(str(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()  # Python 3.13 warns of a connection that is dropped open; a run need not be closed

    def damaged(self, why: str) -> RunFileError:
        # SQLite quotes the schema, of many lines.
        return RunFileError(f"{self.path} is damaged, or was not written by trainperf: {' '.join(why.split())[:300]}")

    def check(self) -> None:
        """Raises RunFileError when any page is damaged, whether what was read so far lies on it or not."""
        found = str(self._scalar("PRAGMA quick_check(1)"))
        if found != "ok":
            raise self.damaged(found.splitlines()[-1])

    @contextlib.contextmanager
    def cursor(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[sqlite3.Cursor]:
        if self._connection is None:
            raise RunFileError(f"{self.path}: this run has been closed; open it again with trainperf.open()")
        try:
            with contextlib.closing(self._connection.execute(sql, parameters)) as cursor:
                yield cursor
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise self.damaged(str(error)) from error

    def rows(self, table: str, types: str, *, columns: Sequence[str] = (), order: str = "") -> list[tuple[Any, ...]]:
        """Rows of a table; each value checked: `types` has a letter per column, i (int) or s (str)."""
        of_file = columns_of(table, self.schema_version)
        if not of_file or table in self._lacks:
            return []
        columns = columns or of_file
        expected = tuple(int if letter == "i" else str for letter in types)
        with self.cursor(f"SELECT {', '.join(columns)} FROM {table} {order}") as cursor:
            rows = cursor.fetchall()
        for column, values, type_ in zip(columns, zip(*rows, strict=True), expected, strict=False):
            for found in set(map(type, values)) - {type_}:  # by column: a quarter of the time of a look at each value
                kind = "NULL" if found is type(None) else f"a {found.__name__}"
                raise self.damaged(f"{table}.{column} holds {kind} where {type_.__name__} belongs")
            if type_ is str:
                self._check_texts(table, column, values)
        return rows

    def _check_texts(self, table: str, column: str, values: Sequence[str]) -> None:
        longest, most = max(map(len, values), default=0), _LONGEST_FACT if table in _FACTS else _LONGEST_TEXT
        if longest > most:
            raise self.damaged(f"{table}.{column} holds a text of {longest:,} characters, and {most:,} are the most")
        if table in _FACTS and any(too_deep(value) for value in values):
            raise self.damaged(f"{table}.{column} holds JSON of more than {_DEEPEST} levels, which are the most")

    def _scalar(self, sql: str) -> Any:
        with self.cursor(sql) as cursor:
            row = cursor.fetchone()
        return row[0] if row else None

    def _check_identity(self) -> int:
        application = self._scalar("PRAGMA application_id")
        if application != APPLICATION_ID:
            raise RunFileError(f"{self.path} is an SQLite file, but not a trainperf run")
        version = int(self._scalar("PRAGMA user_version"))
        if version > SCHEMA_VERSION:
            try:
                writer = str(self._scalar("SELECT value FROM meta WHERE key = 'trainperf'") or "a newer version")
            except RunFileError:
                writer = "a newer version"
            raise RunFileError(
                f"{self.path} was written by trainperf {writer[:40]}, run file schema {version}; this one reads up to "
                f"{SCHEMA_VERSION}: upgrade trainperf"
            )
        if version < OLDEST_SCHEMA_VERSION:
            raise self.damaged(f"it has run file schema {version}, which no release of trainperf wrote")
        return version

    def _check_tables(self) -> None:
        # A view or virtual table under a table's name would run its own code when read.
        with self.cursor("SELECT name, type, sql FROM sqlite_master") as cursor:
            entries = cursor.fetchall()
        tables = {
            name for name, kind, sql in entries if kind == "table" and str(sql).upper().startswith("CREATE TABLE")
        }
        names = {name for name, _, _ in entries}
        self._lacks = OPTIONAL_TABLES - names
        for table in TABLES.keys() - self._lacks:
            columns = columns_of(table, self.schema_version)
            if columns and table not in tables:
                raise self.damaged(f"table {table} is missing")
            with self.cursor(f"PRAGMA table_xinfo({table})") as cursor:
                present = {row[1] for row in cursor.fetchall() if row[6] == 0}  # 0: neither hidden nor generated
            missing = [column for column in columns if column not in present]
            if missing:
                raise self.damaged(f"column {table}.{missing[0]} is missing")


def too_deep(text: str) -> bool:
    """Whether it is JSON of more levels than a reader's recursion should follow."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return False
    level = 0
    for found in _NESTING.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if level > _DEEPEST:
            return True
    return False


def json_object(text: str) -> Mapping[str, Any]:
    """A description, as the core wrote it."""
    value = _json(text)
    return value if isinstance(value, dict) else {"text": text}


def described(meta: Mapping[str, str], key: str) -> dict[str, Any]:
    """A description among the facts about a run; {} where there is none, or none that can be read."""
    found = _json(meta.get(key, ""))
    return found if isinstance(found, dict) else {}


def listed(meta: Mapping[str, str], key: str) -> list[Any]:
    """Likewise a list."""
    found = _json(meta.get(key, ""))
    return found if isinstance(found, list) else []


def count(value: object) -> int:
    """Of a description; 0 where it is not known."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def cause_of(phase: str, mechanism: str, *, feeds_device: bool) -> str:
    """What a phase and a mechanism are told as: the table of cpp/trainperf/event/names.h; a test compares the two."""
    if mechanism in KEEP_NAME:
        return mechanism
    if phase in OWNED:
        return OWNED[phase]
    if mechanism == "native":
        return "launch" if feeds_device else "compute"
    return _BY_MECHANISM.get(mechanism, mechanism)


def not_one_run(folder: Path) -> RunFileError:
    """The error of a folder where a run file is to be named."""
    if any(p.is_file() for p in folder.glob("*.tpr")):
        return RunFileError(f"{folder} is a folder: name one run file in it")
    return RunFileError(f"{folder} is a folder without run files (*.tpr): name a run file")


def _check_header(path: Path) -> None:
    """Distinguishes, before SQLite sees the file, what SQLite would report alike."""
    try:
        if path.is_dir():
            raise not_one_run(path)
        if path.exists() and not path.is_file():
            raise RunFileError(f"{path} is not a regular file")
        with path.open("rb") as file:
            head = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise RunFileError(f"{path}: no such file; trainperf history FOLDER lists the runs of a folder") from None
    except (OSError, ValueError) as error:
        raise RunFileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if size + _log_size(path) > MOST_BYTES:
        mb = (size + _log_size(path)) >> 20
        raise RunFileError(
            f"{path} has {mb:,} MB, and a run file has at most {MOST_BYTES >> 20} MB: it was not written by trainperf"
        )
    if not head:
        raise RunFileError(f"{path} is empty: the run was killed as it began, or never wrote to it")
    if not head.startswith(b"SQLite format 3\0"):
        raise RunFileError(f"{path} is not a trainperf run file (a profiler's trace is for trainperf analyze)")
    page_size = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    # A file with a log may lack pages that the log still has.
    if len(head) < 100 or (size < pages * (65536 if page_size == 1 else page_size) and not _has_log(path)):
        raise RunFileError(f"{path} is truncated: it has {size} bytes and should have more; copy it again")


def _connect(path: Path) -> sqlite3.Connection:
    if _has_log(path):
        return _copy_in_memory(path)
    with path.open("rb") as file:
        wants_log = file.read(20)[18:] == b"\2\2"
    # A file that left its log behind cannot change, and `immutable` keeps SQLite from making a new log beside it.
    return _configured(path, "mode=ro&immutable=1" if wants_log else "mode=ro")


def _real(path: Path) -> Path:
    """SQLite keeps a log next to the file itself, not next to a link to it."""
    return Path(os.path.realpath(path))


def _log_size(path: Path) -> int:
    size = 0
    for suffix in _LOG_SUFFIXES:
        with contextlib.suppress(OSError):
            size += os.stat(f"{_real(path)}{suffix}").st_size
    return size


def _has_log(path: Path) -> bool:
    path = _real(path)
    return any(path.with_name(path.name + suffix).exists() for suffix in _LOG_SUFFIXES)


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """The run as of now. No locks are needed: while the log is the same one, all that it lacks is in the file."""
    for _ in range(20):
        with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
            copy = Path(folder) / "run.tpr"
            log_before = _log_identity(path)
            try:
                shutil.copyfile(path, copy)
                for suffix in _LOG_SUFFIXES:
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
            except OSError as error:
                raise RunFileError(f"{path} could not be copied to {folder} to read it: {error.strerror}") from error
            if _log_identity(path) != log_before:
                continue  # the writer has begun a new log: file and log may not belong together
            with contextlib.closing(sqlite3.connect(copy)) as source:
                memory = sqlite3.connect(":memory:", check_same_thread=False)
                try:
                    source.backup(memory)
                    return _restricted(memory)
                except BaseException:
                    memory.close()
                    raise
    raise RunFileError(f"{path} is being written too fast to be read; try again")


def _log_identity(path: Path) -> tuple[bytes, ...]:
    """What distinguishes one log from the next: the header has random salts, new for each round."""
    heads = []
    for suffix in _LOG_SUFFIXES:
        try:
            with path.with_name(path.name + suffix).open("rb") as file:
                heads.append(file.read(32))
        except FileNotFoundError:
            heads.append(b"none")
    return tuple(heads)


def _configured(path: Path, options: str) -> sqlite3.Connection:
    quoted = urllib.parse.quote(os.fsencode(path.absolute()))
    connection = sqlite3.connect(f"file:{quoted}?{options}", uri=True, timeout=5, check_same_thread=False)
    try:
        return _restricted(connection)
    except BaseException:
        connection.close()
        raise


def _restricted(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The file may come from anywhere: its schema may run no code, and nothing is written."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection
