"""Reading run files: what they say, and what is refused, in one clear line."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runfiles import SCHEMA_SQL, RunFile
from runfiles_causes import cause_of
from trainperf.errors import RunFileError
from trainperf.run import Run
from trainperf.runfile import ALL_SECTIONS, DATA_STARVED, OUTSIDE_STEPS, WARM_UP, schema

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def file(tmp_path: Path) -> RunFile:
    return RunFile(tmp_path / "a.tpr")


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA synchronous = OFF; PRAGMA legacy_alter_table = ON;" + ";".join(statements))
    connection.commit()
    connection.close()


# What a run says.


def test_steps_sum_exactly(file: RunFile) -> None:
    file.steps(7, compute=1.1, gil_wait=0.3).steps(
        5, {("fetch", "gil_wait"): 2.0, ("other", "unknown"): 0.1}, data_wait=3
    )
    for width in (1, 4):
        with file.merge_steps(width).open() as run:
            steps = run.steps
            assert np.array_equal(steps.causes_ns.sum(axis=1), steps.wall_ns)
            assert np.array_equal(steps.phases_ns.sum(axis=1), steps.wall_ns)
            assert run.wall_ns == 7 * 1_400_000 + 5 * 5_100_000
            assert run.step_count == 12 and len(steps.index) == 12 // width
            assert run.cause_ns("gil_wait") == 7 * 300_000 + 5 * 2_000_000
            assert run.phase_ns("fetch") == 5 * 5_000_000
            assert run.matrix_ns.sum() == run.wall_ns
            assert sum(section.steps for section in run.sections) == 12


def test_quantiles_of_single_rows_and_of_the_histogram(file: RunFile) -> None:
    file.step(compute=500, flags=WARM_UP)
    for ms in range(1, 100):
        file.step(compute=float(ms))
    with file.open() as run:
        assert run.wall_ms_quantile(0.5) == 50.0
        assert run.wall_ms_quantile(1) == 99.0
        assert run.wall_ms_quantile(1, warm_up=True) == 500.0
        with pytest.raises(ValueError, match="between 0 and 1"):
            run.wall_ms_quantile(50)
    with file.merge_steps(8).open() as run:
        assert run.wall_ms_quantile(0.5) == pytest.approx(50, rel=0.016)
        assert run.wall_ms_quantile(0.95) == pytest.approx(94.1, rel=0.016)
        assert run.wall_ms_quantile(1, warm_up=True) == pytest.approx(500, rel=0.016)


def test_a_run_without_steps(file: RunFile) -> None:
    with file.open() as run:
        assert run.step_count == 0 and run.wall_ns == 0 and run.cause_ns("gc") == 0
        assert np.isnan(run.wall_ms_quantile(0.5))
        assert run.steps_with("gc") == 0 and run.sections == () and run.worst_steps == ()
        assert run.matrix_ns.shape == (9, 16)
        assert run.segments(0) == () and run.stack(0) == () and run.details("gc") == () and run.spans("gc") == ()


def test_steps_with_a_cause(file: RunFile) -> None:
    file.steps(18, compute=10).steps(6, compute=9, data_wait=1).steps(8, compute=8, data_wait=2)
    for width in (1, 8):
        with file.merge_steps(width).open() as run:
            assert run.steps_with("data_wait") == 14
            assert run.steps_with("data_wait", share=0.11) == 8
            assert run.steps_with("compute", share=0.9) == 24
            assert run.steps_with("gc") == 0


def test_details(file: RunFile) -> None:
    hog = file.thread("hog")
    line = file.stack("train.py:41 crunch", "threading.py:1012 run")
    file.steps(200, compute=10)
    file.detail("gil_wait", 900, thread=hog, stack=line, phase="forward", count=90, steps=80)
    file.detail("gil_wait", 50, phase="backward", section=3).detail("gil_wait", 7, section=OUTSIDE_STEPS)
    file.detail("sample", 100, state="blocked", code=202).detail("sample", 3, state="blocked", folded=9, section=0)
    with file.open() as run:
        assert len(run.sections) == 50
        assert sum(detail.ns for detail in run.details("gil_wait")) == 950_000_000
        assert [detail.section for detail in run.details("gil_wait", phase="backward")] == [3]
        assert [detail.ns for detail in run.details("gil_wait", section=OUTSIDE_STEPS)] == [7_000_000]
        total, backward = run.detail_totals("gil_wait")
        assert (total.ns, total.count, total.steps, total.section) == (900_000_000, 90, 80, ALL_SECTIONS)
        assert total.thread is not None and total.thread.name == "hog"
        assert [frame.function for frame in run.stack(total.stack)] == ["crunch", "run"]
        assert run.stack(total.stack) is run.stack(total.stack)  # rules ask for each dozens of times
        assert backward.thread is None and backward.stack == 0
        assert [detail.folded for detail in run.detail_totals("sample")] == [0, 9]
        assert run.detail_totals("sample")[0].code == 202


def test_everything_else(file: RunFile) -> None:
    file.steps(10, compute=10, flags=DATA_STARVED).keep(4, "worst", ("forward", "native", 10))
    file.span("checkpoint", 30, step=3, value=100).span("checkpoint", 10, step=1, value=100)
    file.loader(5, fetches=9, wait=90, ready={0: (4, 80.0), 2: (5, 10.0)}, first=(1, 40), num_workers=2)
    file.worker(5, 77, cpu_share=0.5, seconds=10, states={"R": 5, "S": 5}).worker(
        5, 78, cpu_share=0, seconds=0, states={}
    )
    file.object(9, "optimizer", type="SGD").overhead(marks=1, sampler=2).dropped(marks=3).note("a").note("b", 2)
    file.host(3, process_cpus=1.5).tier("gil_waits", "off", "no CPython").meta(incomplete_steps="2", lead_ns="5")
    with file.open() as run:
        assert run.ended == "normally" and run.incomplete == 2 and run.lead_ns == 5
        assert [span.step for span in run.spans("checkpoint")] == [1, 3]
        assert run.span_total("checkpoint").value == 200 and run.span_total("gc").count == 0
        loader = run.loaders[5]
        assert loader.description["num_workers"] == 2 and loader.fetches.ready == {0: 4, 2: 5}
        assert loader.fetches.ready_wall_ns == {0: 80_000_000, 2: 10_000_000} and loader.fetches.first_count == 1
        assert [worker.cpu_share for worker in loader.workers] == [0.5, None]
        assert run.objects[9] == ("optimizer", {"type": "SGD"})
        assert run.overhead_ns == {"marks": 1_000_000, "sampler": 2_000_000} and run.dropped == {"marks": 3}
        assert run.notes == ("a", "b (2 times)")
        assert run.host[-1].process_cpu_ns == 4_500_000_000
        assert run.tiers["gil_waits"].why == "no CPython"
        assert run.worst_steps == (4,) and run.segments(4)[0].mechanism == "native"
        assert run.kept_steps.index.tolist() == [4]
        assert run.step_thread is not None and run.step_thread.role == "step"
        assert run.schema_version == 9


def test_a_description_that_is_no_object(file: RunFile) -> None:
    file.steps(1, compute=1).loader(5)
    path = file.build()
    change(path, "UPDATE object SET description = 'not json'")
    with Run(path) as run:
        assert run.loaders[5].description == {"text": "not json"}


def test_closed_runs_keep_what_was_read(file: RunFile) -> None:
    with file.steps(3, compute=1).open() as run:
        assert run.step_count == 3
    assert run.step_count == 3
    with pytest.raises(RunFileError, match="closed"):
        _ = run.threads


def test_a_run_need_not_be_closed(file: RunFile) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert file.steps(3, compute=1).open().step_count == 3
        gc.collect()


# Files that are no runs, or not whole ones.


def refusal(path: Path) -> str:
    """The one line that says why the run cannot be read."""
    with pytest.raises(RunFileError) as caught, Run(path) as run:
        _ = (
            run.steps,
            run.kept_steps,
            run.sections,
            run.threads,
            run.loaders,
            run.objects,
            run.meta,
            run.tiers,
            run.host,
        )
        _ = (run.worst_steps, run.segments(0), run.overhead_ns, run.dropped, run.notes, run.lead_ns, run.incomplete)
        _ = ([run.details(kind) for kind in schema.DETAIL_KINDS], [run.spans(kind) for kind in schema.SPAN_KINDS])
        _ = (run.span_total("gc"), run.wall_ms_quantile(0.5), run.steps_with("gc"), run.stack(2), run.wall_histogram)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 300 and str(path) in text
    return text


def test_no_file_at_all(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "a.tpr")
    assert "is a folder" in refusal(tmp_path)
    assert "not a regular file" in refusal(Path("/dev/null"))
    (tmp_path / "empty").touch()
    assert "is empty" in refusal(tmp_path / "empty")
    (tmp_path / "text").write_text("a log\n" * 1000)
    assert "not a trainperf run" in refusal(tmp_path / "text")
    (tmp_path / "short").write_bytes(b"SQLite format 3\0")
    assert "truncated" in refusal(tmp_path / "short")
    with pytest.raises(RunFileError, match="cannot be read"):
        Run("a\0b")


def test_foreign_sqlite(tmp_path: Path) -> None:
    change(tmp_path / "a.db", "CREATE TABLE step (a)", "CREATE TABLE meta (key, value)")
    assert "not a trainperf run" in refusal(tmp_path / "a.db")
    change(tmp_path / "a.db", f"PRAGMA application_id = {schema.APPLICATION_ID}")
    assert "schema 0" in refusal(tmp_path / "a.db")
    change(tmp_path / "a.db", "PRAGMA user_version = 1")
    assert "damaged" in refusal(tmp_path / "a.db")


def test_children(file: RunFile) -> None:
    child = file.child(70, cpus=0.5, seconds=4, name="ForkPoolWorker-1", command="python train.py")
    file.within(child, 30, "/u/train.py:31 augment").child(71, cpus=0.1, seconds=1, command="ffmpeg")
    file.worker(file.loader(1, fetches=1, wait=1), 72, cpu_share=0.5, seconds=1, states={"R": 1})
    file.child(72, cpus=0.5, seconds=1)  # seen before it was known as a worker
    with Run(file.build()) as run:
        first, second = run.children
        assert (first.pid, first.name, first.command, first.cpu_seconds) == (
            70,
            "ForkPoolWorker-1",
            "python train.py",
            2,
        )
        assert [(run.stack(s.stack)[0].function, s.count) for s in first.inside] == [("augment", 30)]
        assert (second.command, second.inside) == ("ffmpeg", [])


def test_a_file_of_its_version_may_lack_the_tables_of_children(file: RunFile) -> None:
    path = file.build()
    connection = sqlite3.connect(path)
    for table in schema.OPTIONAL_TABLES:
        connection.execute(f"DROP TABLE {table}")
    connection.commit()
    with Run(path) as run:
        assert run.children == []
    connection.execute("CREATE VIEW child AS SELECT * FROM worker")  # would run code of its own
    connection.commit()
    connection.close()
    with pytest.raises(RunFileError, match="table child is missing"):
        Run(path)


def test_newer_schema_says_upgrade(file: RunFile) -> None:
    path = file.meta(trainperf="7.1.0").build()
    change(path, "PRAGMA user_version = 10", "DROP TABLE step")
    assert "written by trainperf 7.1.0, run file schema 10; this one reads up to 9: upgrade trainperf" in refusal(path)
    change(path, "DROP TABLE meta")
    assert "upgrade trainperf" in refusal(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated(file: RunFile, keep: float) -> None:
    path = file.steps(500, compute=1).build()
    os.truncate(path, int(path.stat().st_size * keep))
    assert "truncated" in refusal(path)


def test_bytes_turned_over_never_crash(file: RunFile) -> None:
    """Either the run is read, or it is refused by name."""
    path = file.steps(200, compute=1).detail("sample", 50, stack=file.stack("a.py:1 f", "b.py:2 g")).build()
    whole = path.read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for position in random.integers(100, len(whole), 200):
            damaged[position] = int(random.integers(256))
        path.write_bytes(damaged)
        try:
            with Run(path) as run:
                _ = (run.steps, run.sections, run.details("sample"), run.loaders, run.host, run.stack(2), run.meta)
        except RunFileError:
            refused += 1
    assert refused >= 30


HOSTILE = {
    "huge ints": "UPDATE step SET (wall_ns, compute_ns, phase_backward_ns) = (1 << 62, 1 << 62, 1 << 62)",
    "ints beyond 64 bits": "UPDATE step SET wall_ns = 1e300",
    "text for a number": "UPDATE step SET wall_ns = 'long'",
    "a blob for a number": "UPDATE step SET start_ns = x'00ff'",
    "sums that are off": "UPDATE step SET gil_wait_ns = gil_wait_ns + 1 WHERE first_step = 3",
    "negative time": "UPDATE step SET wall_ns = -1, compute_ns = -1, phase_backward_ns = -1",
    "no steps in a row": "UPDATE step SET steps = 0",
    "a blob for a text": "UPDATE thread SET name = x'ff00'",
    "text that is not UTF-8": "UPDATE thread SET name = CAST(x'ff41' AS TEXT)",
    "a text for a number elsewhere": "UPDATE detail SET ns = 'x'",
    "a fraction": "UPDATE detail SET ns = 0.5",
    "a phase of its own": "UPDATE phase_mechanism SET phase = 'lunch'",
    "a circle of callers": "UPDATE stack SET parent = 2",
    "an empty histogram bin": "UPDATE wall_histogram SET steps = 0",
    "a meta that is no number": "UPDATE meta SET value = 'soon' WHERE key = 'lead_ns'",
    "a missing table": "DROP TABLE host",
    "a missing column": "ALTER TABLE host DROP COLUMN runnable",
    "a view for a table": "DROP TABLE tier; CREATE VIEW tier AS WITH RECURSIVE n(i) AS"
    " (SELECT 1 UNION ALL SELECT i FROM n) SELECT 'a' AS probe, 'b' AS tier, 'c' AS why FROM n",
    "a computed column": "DROP TABLE note;"
    " CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT AS (zeroblob(1000000000)), count)",
    "a virtual table": "DROP TABLE note; CREATE VIRTUAL TABLE note USING fts5(id, text, count)",
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(file: RunFile, what: str) -> None:
    file.stack("a.py:1 f", "b.py:2 g")
    path = file.steps(10, compute=1, gil_wait=1).detail("sample", 50).host(3, process_cpus=1).note("a").build()
    with Run(path) as run:
        assert run.step_count == 10
    change(path, HOSTILE[what])
    assert "damaged" in refusal(path)


def test_null_where_a_number_belongs(file: RunFile) -> None:
    path = file.steps(3, compute=1).build()
    change(path, "CREATE TABLE step2 AS SELECT * FROM step", "DROP TABLE step", "ALTER TABLE step2 RENAME TO step")
    change(path, "UPDATE step SET gc_ns = NULL")
    assert "damaged" in refusal(path)


# Runs that are being written, were killed, or lie where nothing may be written.

WRITER = """
import sqlite3, sys, time
path, schema = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA locking_mode = EXCLUSIVE"); db.execute("PRAGMA synchronous = OFF")
db.executescript(open(schema).read())
db.execute("PRAGMA journal_mode = WAL")
columns = len(db.execute("PRAGMA table_info(step)").fetchall())
i = 0
while True:
    db.execute("BEGIN")
    for _ in range(10):
        row = [0] * columns
        row[0:6] = i, 1, i * 100, 100, 100, 100
        row[11] = row[11 + 20] = 100
        db.execute("INSERT INTO step VALUES (" + ", ".join("?" * columns) + ")", row)
        i += 1
    db.execute("REPLACE INTO meta VALUES ('lead_ns', ?)", (str(i),))
    db.execute("COMMIT")
    print(i, flush=True)
    time.sleep(0.005)
"""


def writer(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(SCHEMA_SQL)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "10\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()


def test_reads_a_run_while_it_is_written(tmp_path: Path) -> None:
    process = writer(tmp_path / "a.tpr")
    try:
        seen = 0
        for _ in range(15):
            assert process.stdout is not None
            process.stdout.readline()
            with Run(tmp_path / "a.tpr") as run:
                assert run.ended == "killed"
                assert run.step_count == run.lead_ns >= seen, "all of one moment"
                seen = run.step_count
        assert seen >= 150
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tpr", "a.tpr-wal"]
    finally:
        kill(process)


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 10, 30])
def test_reads_a_killed_run_and_leaves_no_trace(tmp_path: Path, milliseconds: int) -> None:
    process = writer(tmp_path / "a.tpr")
    time.sleep(milliseconds / 1000)
    kill(process)
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    with Run(tmp_path / "a.tpr") as run:
        assert run.ended == "killed" and run.step_count == run.lead_ns >= 10
    assert before == {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}


def test_reads_a_copy_without_its_log(tmp_path: Path) -> None:
    process = writer(tmp_path / "a.tpr")
    kill(process)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "a.tpr", tmp_path / "copy")
    with Run(tmp_path / "copy" / "a.tpr") as run:
        assert run.step_count == run.lead_ns
    assert [entry.name for entry in (tmp_path / "copy").iterdir()] == ["a.tpr"]


WATCHED = """
import sys
from trainperf import _native as core
session = core.Session(sys.argv[1], gil="off", sampler_hz=0)
session.set_meta("torch", "none")
while True:
    for bracket in (core.FETCH, core.BACKWARD, core.OPTIMIZER):
        core.begin(bracket, 1)
        core.end(bracket)
    if session.steps_closed > 100:
        session.flush()
        print(session.steps_closed, flush=True)
"""


def test_a_killed_watch_leaves_a_run(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(tmp_path / "a.tpr")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    flushed = int(process.stdout.readline())
    kill(process)
    with Run(tmp_path / "a.tpr") as run:
        assert run.ended == "killed"
        assert run.step_count >= flushed > 100
        assert run.meta["torch"] == "none"
        assert run.phase_ns("optimizer") > 0


def test_reading_leaves_no_file_open(file: RunFile) -> None:
    path = file.steps(5, compute=1).build()
    for name in ("with space?.tpr", "pro%cent#.tpr", "ü.tpr"):
        other = path.with_name(name)
        shutil.copy(path, other)
        with Run(other) as run:
            assert run.step_count == 5
    assert not [link for link in Path("/proc/self/fd").iterdir() if str(path.parent) in os.path.realpath(link)]


# The schema, its names and its page.


def core_names(source: str, array: str) -> tuple[str, ...]:
    text = (ROOT / "cpp" / "trainperf" / source).read_text()
    match = re.search(array + r"\s*=\s*\{([^}]*)\}", text)
    assert match, array
    return tuple(re.findall(r'"(\w+)"', match[1]))


def test_names_are_the_cores() -> None:
    assert core_names("event/names.h", "kPhaseNames") == schema.PHASES
    assert core_names("event/names.h", "kMechanismNames") == schema.MECHANISMS
    assert core_names("event/names.h", "kCauseNames") == schema.CAUSES
    assert core_names("run/words.h", "kDetailKindNames") == schema.DETAIL_KINDS
    assert core_names("run/words.h", "kSpanKindNames") == schema.SPAN_KINDS
    assert {cause_of(phase, mechanism) for phase in schema.PHASES for mechanism in schema.MECHANISMS} == set(
        schema.CAUSES
    )


def schema_objects(kind: str) -> dict[str, list[str]]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA_SQL.read_text())
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,))]
    columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}
    connection.close()
    return columns


def test_the_reader_knows_every_table_and_column() -> None:
    in_schema = {table: sorted(columns) for table, columns in schema_objects("table").items()}
    assert in_schema == {table: sorted(columns) for table, columns in schema.TABLES.items()}


@pytest.mark.parametrize("kind", ["table", "view"])
def test_the_page_has_every_table_and_view_and_no_other(kind: str) -> None:
    page = (ROOT / "docs" / "run-file.md").read_text()
    section = page.split(f"## {kind.capitalize()}s")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(schema_objects(kind))


def test_the_pages_queries_run(file: RunFile) -> None:
    queries = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "run-file.md").read_text(), re.DOTALL)
    assert len(queries) >= 5
    file.steps(20, compute=9, gil_wait=1).detail(
        "gil_wait", 20, thread=file.thread("hog"), stack=file.stack("a.py:1 f")
    )
    file.keep(3).span("checkpoint", 3, step=2).loader(1, fetches=20, wait=9)
    file.step(compute=9, devices={0: {"busy": 5.0, "idle": {"launch": 4.0}}})
    file.kernel("sgemm", 5.0)
    file.within(file.child(70, cpus=0.5, seconds=4), 30, "a.py:31 augment")
    connection = sqlite3.connect(file.build())
    rows = [connection.execute(query).fetchall() for query in queries]
    connection.close()
    assert all(rows), "each query of the page finds something in such a run"


# Speed.


def median_seconds(action: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def test_a_full_run_loads_fast(file: RunFile) -> None:
    """16k rows in 100 ms on a quiet machine; here against a bare read of the same rows, since machines differ."""
    path = file.steps(16_384, compute=1, gil_wait=0.3).build()

    def bare() -> None:
        connection = sqlite3.connect(path)
        connection.execute("SELECT * FROM step").fetchall()
        connection.close()

    def read() -> None:
        with Run(path) as run:
            assert run.steps.count.sum() == 16_384

    assert median_seconds(read) < 5 * median_seconds(bare)
