"""What other programs get: pandas, Parquet, DuckDB, CSV, JSON, TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.errors import TrainperfError
from trainperf.export import FORMATS, choose
from trainperf.export.metrics import per_step
from trainperf.export.table import columns
from trainperf.opened import OpenedRun
from trainperf.run import Run
from trainperf.runfile.schema import CAUSES, PHASES

ROOT = Path(__file__).resolve().parents[2]


def build(path: Path, *, steps: int = 40, rank: str = "", wait: float = 3.0, merge: int = 1) -> Path:
    file = RunFile(path, name="resnet", **({"rank": rank} if rank else {}))  # type: ignore[arg-type]
    for step in range(steps):
        file.step(compute=5.0, data_wait=wait if step % 2 else 0.0, flags=16 if step == 0 else step % 2)
    return file.merge_steps(merge).build()


def test_the_table_is_the_run_to_the_nanosecond(tmp_path: Path) -> None:
    with Run(build(tmp_path / "a.tpr")) as run:
        table = columns(run)
    assert (
        sum(table[f"{name}_ns"].sum() for name in CAUSES) == table["wall_ns"].sum() == 40 * 5_000_000 + 20 * 3_000_000
    )
    assert sum(table[f"phase_{name}_ns"].sum() for name in PHASES) == table["wall_ns"].sum()
    assert table["warm_up"].tolist() == [True] + [False] * 39 and table["data_starved"].sum() == 20
    assert {len(values) for values in table.values()} == {40}


def test_a_run_that_is_damaged_elsewhere_is_written_as_far_as_it_goes_and_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, table = build(tmp_path / "a.tpr"), tmp_path / "a.csv"
    with contextlib.closing(sqlite3.connect(path)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'detail'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    assert main(["export", str(path), "-o", str(table)]) == 0 and " is damaged" not in capsys.readouterr().err
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(data)
    assert main(["export", str(path), "-o", str(table), "-f"]) == 1
    wrote, told = capsys.readouterr().err.splitlines()
    assert wrote == f"wrote {table} (csv)" and told.startswith(f"trainperf export: {path} is damaged, or was not")
    assert len(table.read_text(encoding="utf-8").splitlines()) == 41


def test_pandas(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    with OpenedRun(build(tmp_path / "a.tpr", merge=4)) as run:
        frame = run.to_pandas()
    assert isinstance(frame, pd.DataFrame) and frame.index.name == "step" and frame.index.tolist()[:3] == [0, 4, 8]
    assert frame.steps.sum() == 40 and frame.wall_ns.dtype == np.int64 and frame.warm_up.dtype == np.bool_
    assert frame.data_wait_ns.sum() / frame.wall_ns.sum() == pytest.approx(60 / 260)
    assert frame.attrs["trainperf"]["name"] == "resnet"


def test_pandas_of_a_run_without_steps(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with OpenedRun(RunFile(tmp_path / "a.tpr").build()) as run:
        assert len(run.to_pandas()) == 0


def test_csv_and_json(tmp_path: Path) -> None:
    a = build(tmp_path / "a.tpr")
    assert main(["export", str(a), "-o", str(tmp_path / "a.csv")]) == 0
    assert main(["export", str(a), "-o", str(tmp_path / "a.json")]) == 0
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    document = json.loads((tmp_path / "a.json").read_text())
    assert len(rows) == len(document["per_step"]) == 40
    assert [int(row["wall_ns"]) for row in rows] == [step["wall_ns"] for step in document["per_step"]]
    assert rows[1]["data_starved"] == "1" and document["verdict"]["finding"]


def test_parquet_keeps_the_meta(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    a = build(tmp_path / "a.tpr")
    assert main(["export", str(a), "-o", str(tmp_path / "a.parquet")]) == 0
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == 40 and json.loads(table.schema.metadata[b"trainperf"])["torch"] == "2.13.0"
    assert table.column("wall_ns").to_pylist()[:2] == [5_000_000, 8_000_000]


def fleet(tmp_path: Path) -> Path:
    """Two runs of two ranks; rank 1 of the second waits for data."""
    files = [build(tmp_path / f"{run}.rank{rank}.tpr", rank=str(rank), wait=9.0 if (run, rank) == ("b", 1) else 1.0)
             for run in "ab" for rank in (0, 1)]  # fmt: skip
    folder = tmp_path / "steps"
    assert main(["export", *map(str, files), "-o", f"{folder}/"]) == 0
    return folder


def test_a_data_set_by_run_and_rank_as_the_documentation_queries_it(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    folder = fleet(tmp_path)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.parquet")) == [
        f"run={run}/rank={rank}/steps.parquet" for run in "ab" for rank in (0, 1)
    ]
    queries = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "exports.md").read_text(), re.S)
    assert len(queries) >= 3
    with duckdb.connect() as connection:
        answers = [connection.execute(query.replace("steps/", f"{folder}/")).fetchall() for query in queries]
    worst = answers[0][0]
    assert worst[:2] == ("b", 1) and worst[2] == pytest.approx(20 * 9 / (39 * 5 + 20 * 9), abs=0.001)
    assert all(answers)


def test_many_runs_need_a_folder_and_what_exists_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    a, b = build(tmp_path / "a.tpr"), build(tmp_path / "b.tpr")
    (tmp_path / "x.csv").write_text("mine")
    (tmp_path / "there").mkdir()
    for words, said in (
        ([a, b, "-o", tmp_path / "x.csv", "-f"], "holds one run: give a folder"),
        ([a, "-o", tmp_path / "x.csv"], "exists already: give another name, or -f to"),
        (
            [a, "-o", tmp_path / "x.xlsx"],
            "x.xlsx fits no format: end it as one of these, chrome (.json.gz",
        ),
        ([a, "-o", a, "-f", "--format", "csv"], "is the input itself"),
        ([a, "-o", tmp_path / "no" / "such" / "x.csv"], "such does not exist: make it first"),
    ):
        assert main(["export", *map(str, words)]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, error
    assert (tmp_path / "x.csv").read_text() == "mine" and Run(a).step_count == 40
    for expected in (0, 1):
        assert main(["export", str(a), str(b), "-o", str(tmp_path / "there")]) == expected
    assert "steps.parquet exists already: give another name, or -f to" in capsys.readouterr().err
    assert main(["export", str(a), "-f", "-o", str(tmp_path / "there")]) == 0
    assert not list(tmp_path.rglob(".trainperf-*"))


def test_names_that_mean_something_to_hive(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    evil = build(tmp_path / "a=b%2F\U0001f642.tpr")
    assert main(["export", str(evil), "-o", f"{tmp_path}/out/"]) == 0
    (made,) = (tmp_path / "out").iterdir()
    assert made.name == "run=a%3Db%252F%F0%9F%99%82"


def test_metrics_are_means_and_only_of_causes_that_are_there(tmp_path: Path) -> None:
    with Run(build(tmp_path / "a.tpr", merge=4)) as run:
        rows = list(per_step(run))
    assert [step for step, _ in rows] == list(range(0, 40, 4))
    assert rows[1][1] == {"trainperf/step_ms": 6.5, "trainperf/data_wait_ms": 1.5, "trainperf/compute_ms": 5.0}


def in_a_process(*words: str) -> str:
    """Where tensorboard's imports may warn: here warnings are errors."""
    command = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_tensorboard_shows_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    a, logs = str(build(tmp_path / "a.tpr")), str(tmp_path / "logs")
    reader = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainperf.cli.main import main
run, logs = sys.argv[1:]
assert main(["export", run, "--format", "tensorboard", "-o", logs]) == 0
events = EventAccumulator(f"{logs}/a", size_guidance={"scalars": 0})
events.Reload()
waits = events.Scalars("trainperf/data_wait_ms")
print([(e.step, round(e.value, 3)) for e in waits[:3]], len(events.Scalars("trainperf/step_ms")))
"""
    assert in_a_process("-c", reader, a, logs).splitlines()[-1] == "[(0, 0.0), (1, 3.0), (2, 0.0)] 40"
    assert main(["export", a, "--format", "tensorboard", "-o", logs]) == 1
    assert "exists already: give another name, or -f to" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pandas", "pyarrow", "tensorboard", "mlflow", "wandb"])
def test_a_package_that_is_missing_is_one_line(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow.entities", "pyarrow": "pyarrow.parquet"}
    monkeypatch.setitem(sys.modules, blocked.get(name, name), None)
    monkeypatch.setitem(sys.modules, name, None)
    with OpenedRun(build(tmp_path / "a.tpr")) as run, pytest.raises(TrainperfError, match=f"needs {name}.*pip install"):
        if name == "pandas":
            run.to_pandas()
        else:
            chosen = choose("x", {"pyarrow": "parquet"}.get(name, name))
            chosen.write(run, str(tmp_path / "x"))


def test_mlflow_gets_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is not installed: scripts/setup.sh --tests")
    # Files are what mlflow-skinny can write by itself; mlflow wants to be asked for them.
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    uri = (tmp_path / "mlruns").as_uri()
    reader = """
import os, sys
from mlflow.tracking import MlflowClient
from trainperf.cli.main import main
export = ["export", sys.argv[2], "--format", "mlflow", "-o", sys.argv[1]]
sys.stderr = sys.stdout
assert main(export) == 1
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
assert main(export) == 0
print("written")
client = MlflowClient(sys.argv[1])
(made,) = client.search_runs([client.get_experiment_by_name("trainperf").experiment_id])
waits = client.get_metric_history(made.info.run_id, "trainperf/data_wait_ms")
print(made.info.status, made.info.run_name, [(m.step, m.value) for m in waits[:2]], len(waits))
"""
    said = in_a_process("-c", reader, uri, str(build(tmp_path / "a.tpr")))
    assert said.startswith("trainperf export: mlflow cannot write to file:///") and "Traceback" not in said
    assert said.partition("written\n")[2].strip() == "FINISHED resnet [(0, 0.0), (1, 3.0)] 40"


def test_wandb_gets_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed: scripts/setup.sh --tests")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for key, value in {"HOME": str(tmp_path), "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(key, value)
    export = ["-m", "trainperf", "export", str(build(tmp_path / "a.tpr")), "--format", "wandb", "-o", "project"]
    with pytest.raises(subprocess.CalledProcessError) as nobody_is_logged_in:
        in_a_process(*export)
    said = nobody_is_logged_in.value.stderr
    assert "trainperf export: wandb cannot begin a run: " in said and "WANDB_MODE=offline" in said
    monkeypatch.setenv("WANDB_MODE", "offline")
    in_a_process(*export)
    (made,) = tmp_path.rglob("*.wandb")
    assert b"trainperf/data_wait_ms" in made.read_bytes()


def test_each_format_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "exports.md").read_text()
    assert all(f"`{format.name}`" in text for format in FORMATS)


def test_a_name_of_no_format_is_answered_by_all_of_them_and_how_each_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(build(tmp_path / "a.tpr")), "-o", str(tmp_path / "tb")]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and all(f" {f.name} (" in told for f in FORMATS), told
    for known in FORMATS:
        assert known.suffixes or f"--format {known.name} ({known.option})" in told
    assert "tensorboard (-o is the log folder)" in told and "dataset (a folder: /)" in told and "csv (.csv)" in told
