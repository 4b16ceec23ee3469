"""Settings with a price: each row wrong and fine on runs made by hand, what the watch reads, and how it is shown."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runfiles import RunFile
from trainperf import process_settings as read
from trainperf.cli.main import main
from trainperf.findings.facts import Facts
from trainperf.findings.messages import TEXTS
from trainperf.findings.rules.settings import TABLE, Checked, check
from trainperf.prove.changes import Change
from verdicts import TRAIN, Make, only, said

FORMAT = "/x/site-packages/torch/fx/traceback.py:503 format_stack"
LINEAR = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"


def checked(file: RunFile) -> dict[str, Checked]:
    with file.open() as run:
        return {c.id: c for c in check(Facts(run), run.judged.findings, run.judged.abstained)}


def with_read(make: Make, **settings: Any) -> RunFile:
    """A run whose watch read these settings as it ended."""
    return make(process_settings=json.dumps(settings)).steps(100, compute=5.0)


# Each row, both ways: what was read, where it is wrong and where it is fine, and the state of a wrong one.
READ = [
    ("malloc_debug", {"malloc_debug": True}, {"malloc_debug": False}, "unpriced"),
    ("gc_debug", {"gc_debug": gc.DEBUG_STATS}, {"gc_debug": 0}, "unpriced"),
    ("python_debug", {"debug_build": True}, {"debug_build": False}, "unpriced"),
    ("torch_debug", {"torch_debug": True}, {"torch_debug": False}, "unpriced"),
    ("torch_logs", {"logs": ["TORCH_LOGS"]}, {"logs": []}, "unpriced"),
    ("distributed_debug", {"distributed_debug": True}, {"distributed_debug": False}, "unpriced"),
    (
        "instructions",
        {"instructions": {"ATEN_CPU_CAPABILITY": "default"}},
        {"instructions": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "ALL"}},
        "unpriced",
    ),
    ("blas", {"blas": "generic"}, {"blas": "mkl"}, "unpriced"),
    ("governor", {"governor": ["powersave", "acpi-cpufreq"]}, {"governor": ["powersave", "intel_pstate"]}, "unpriced"),
    ("descriptors", {"descriptors": [600, 1024]}, {"descriptors": [60, 1024]}, "risk"),
]


@pytest.mark.parametrize(("id", "wrong", "fine", "state"), READ, ids=[row[0] for row in READ])
def test_what_was_read_is_wrong_or_fine(
    make: Make, id: str, wrong: dict[str, Any], fine: dict[str, Any], state: str
) -> None:
    found = checked(with_read(make, **wrong))[id]
    assert (found.state, found.cost_ns) == (state, None) and found.why and found.fix
    assert checked(with_read(make, **fine))[id].state == "fine"
    missing = checked(make().steps(100, compute=5.0))[id]
    assert missing.state == "not seen" and missing.why


@pytest.mark.parametrize("value", [None, "x", 3, [], {}, [1], ["a", "b"], {"a": 1}])
@pytest.mark.parametrize("key", ["governor", "descriptors", "shared_memory", "instructions", "logs", "blas"])
def test_what_was_damaged_is_no_reason_to_fail(make: Make, key: str, value: Any) -> None:
    assert len(checked(with_read(make, **{key: value}))) == len(TABLE)


@pytest.mark.parametrize("id", ["anomaly", "tracer", "profiler", "deterministic", "tracemalloc"])
def test_a_mode_is_wrong_when_it_was_on_for_long(make: Make, id: str) -> None:
    key = {"tracer": "traced", "profiler": "profiled"}.get(id, id) + "_percent"
    for percent, state in (("0", "fine"), ("9", "fine"), ("40", "unpriced")):
        assert checked(make(**{key: percent}).steps(100, compute=5.0))[id].state == state
    assert checked(make(torch="").meta(source="trace").steps(100, compute=5.0))[id].state == "not seen"


def test_the_price_is_that_of_the_finding_which_reports_it(make: Make) -> None:
    file = make(anomaly_percent="100").steps(100, {("forward", "python"): 8.0, ("backward", "native"): 2.0})
    stack = file.stack(FORMAT, LINEAR, f"{TRAIN}:12 train")
    file.detail("sample", 800, phase="forward", state="python", stack=stack)
    found = checked(file)["anomaly"]
    assert (found.state, found.cost_ns, found.cost_is, found.finding) == ("costs", 800_000_000, "at least", "TP313")


SLOWS_PYTHON = [
    ("tracer", {"traced_percent": "100"}),
    ("tracemalloc", {"tracemalloc_percent": "100"}),
    ("malloc_debug", {"process_settings": json.dumps({"malloc_debug": True})}),
    ("python_debug", {"process_settings": json.dumps({"debug_build": True})}),
]
PYTHON = {
    ("forward", "python"): 2.0,
    ("other", "gil_wait"): 1.0,
    ("other", "gc"): 0.5,
    ("fetch", "blocked"): 3.0,
    ("backward", "native"): 9.0,
}


@pytest.mark.parametrize(("id", "meta"), SLOWS_PYTHON, ids=[row[0] for row in SLOWS_PYTHON])
def test_what_slows_python_costs_at_most_what_python_takes(make: Make, id: str, meta: dict[str, str]) -> None:
    found = checked(make(**meta).steps(100, PYTHON))[id]
    assert (found.state, found.cost_is, found.cost_ns) == ("costs", "up to", 350_000_000) and found.why and found.fix
    with_workers = make(**meta).steps(100, PYTHON).object(1, "loader", num_workers=2)
    assert checked(with_workers)[id].cost_ns == 650_000_000  # they run Python too
    unknown = make(**meta).steps(100, PYTHON).tier("gil_holds", "off", "no sampler")
    assert (checked(unknown)[id].state, checked(unknown)[id].cost_ns) == ("unpriced", None)


def test_flags_of_gc_cost_at_most_what_collections_take(make: Make) -> None:
    file = make(process_settings=json.dumps({"gc_debug": gc.DEBUG_STATS})).steps(100, PYTHON)
    found = checked(file)["gc_debug"]
    assert (found.state, found.cost_is, found.cost_ns) == ("costs", "up to", 50_000_000)


@pytest.mark.parametrize(
    ("id", "meta", "change"),
    [
        ("malloc_debug", {"process_settings": json.dumps({"malloc_debug": True})}, "PYTHONMALLOC=pymalloc"),
        (
            "instructions",
            {"process_settings": json.dumps({"instructions": {"ATEN_CPU_CAPABILITY": "default"}})},
            "ATEN_CPU_CAPABILITY=",
        ),
        (
            "torch_logs",
            {"process_settings": json.dumps({"logs": ["TORCH_LOGS", "TORCH_TRACE"]})},
            "TORCH_LOGS=,TORCH_TRACE=",
        ),
        ("anomaly", {"anomaly_percent": "100"}, "anomaly=off"),
        ("deterministic", {"deterministic_percent": "100"}, "deterministic=off"),
        ("tracemalloc", {"tracemalloc_percent": "100"}, "tracemalloc=off"),
    ],
)
def test_what_has_no_exact_price_names_the_trial_that_measures_it(
    make: Make, id: str, meta: dict[str, str], change: str
) -> None:
    found = checked(make(**meta).steps(100, PYTHON))[id]
    assert found.prove == f"trainperf try --change {change} -- python train.py"
    assert Change.parse(change).settings  # as try takes it
    assert not checked(make().steps(100, PYTHON))[id].prove


def test_launches_block_only_where_there_are_some(make: Make) -> None:
    for device, on, state in (("1", "1", "unpriced"), ("1", "0", "fine"), ("0", "1", "not seen")):
        file = make(feeds_device=device, launch_blocking=on).steps(100, compute=5.0)
        assert checked(file)["launch_blocking"].state == state


@pytest.mark.parametrize(
    ("free", "size", "workers", "state"),
    [(60e6, 64 << 20, 2, "risk"), (60e6, 64 << 20, 0, "fine"), (8e9, 16e9, 2, "fine"), (1e9, 16e9, 2, "risk")],
)
def test_shared_memory_matters_where_there_are_workers(
    make: Make, free: float, size: float, workers: int, state: str
) -> None:
    file = with_read(make, shared_memory=[int(free), int(size)]).object(1, "loader", num_workers=workers)
    assert checked(file)["shared_memory"].state == state


@pytest.mark.parametrize(
    ("read", "start", "state"),
    [
        ({"tokenizers_parallelism": False}, "fork", "risk"),
        ({"tokenizers_parallelism": True}, "fork", "fine"),
        ({"tokenizers_parallelism": False}, "spawn", "fine"),
        ({}, "fork", "not seen"),
    ],
)
def test_tokenizers_matter_where_workers_are_forked(make: Make, read: dict[str, bool], start: str, state: str) -> None:
    file = with_read(make, **read).object(1, "loader", num_workers=2, multiprocessing_context=start)
    assert checked(file)["tokenizers"].state == state


# Settings that samples give a price: TP314

OPTIMIZER = "/x/site-packages/torch/optim/optimizer.py"
ZEROING = json.dumps({OPTIMIZER: {"Optimizer.zero_grad": [1069, 1085]}})
LOOP = f"{TRAIN}:12 train"
PARALLEL = "/x/site-packages/torch/nn/parallel"
MODULE = "/x/site-packages/torch/nn/modules/module.py:1779 Module._call_impl"
AT_WORK = [
    ("zero_grad", [f"{OPTIMIZER}:1069 Optimizer.zero_grad"], [f"{OPTIMIZER}:1063 Optimizer.zero_grad"]),
    (
        "gradcheck",
        [LINEAR, "/x/site-packages/torch/autograd/gradcheck.py:2053 gradcheck"],
        ["/home/me/gradcheck.py:3 gradcheck"],
    ),
    (
        "data_parallel",
        [f"{PARALLEL}/replicate.py:120 replicate", f"{PARALLEL}/data_parallel.py:193 DataParallel.forward", MODULE],
        [LINEAR, MODULE, f"{PARALLEL}/data_parallel.py:191 DataParallel.forward", MODULE],
    ),
    (
        "torch_logs",
        ["/usr/lib/python3.11/logging/__init__.py:1113 emit", "/x/site-packages/torch/_dynamo/utils.py:9 log"],
        ["/usr/lib/python3.11/logging/__init__.py:1113 emit"],
    ),
]


def at_work(make: Make, *frames: str, ms: float = 300.0) -> RunFile:
    """100 steps of 10 ms, 300 ms of all in these frames."""
    read = json.dumps({"logs": ["TORCH_LOGS"]})
    file = make(zeroing_lines=ZEROING, process_settings=read).steps(100, {("other", "native"): 10.0})
    file.detail("sample", ms, phase="other", state="native", stack=file.stack(*frames, LOOP))
    rest = file.stack("/x/site-packages/torch/_tensor.py:5 backward", LOOP)
    return file.detail("sample", 1000 - ms, phase="other", state="native", stack=rest)


@pytest.mark.parametrize(("id", "works", "other"), AT_WORK, ids=[row[0] for row in AT_WORK])
def test_a_setting_that_samples_show_has_a_price(make: Make, id: str, works: list[str], other: list[str]) -> None:
    f = next(f for f in said(at_work(make, *works)).findings if f.id == "TP314")
    assert (f.variant, f.severity, f.cost_ms_per_step, f.where) == (id, "critical", 3.0, "train.py:12")
    assert f.saves_more
    row = checked(at_work(make, *works))[id]
    assert (row.state, row.cost_ns, row.cost_is, row.finding) == ("costs", 300_000_000, "at least", "TP314")
    elsewhere = at_work(make, *other)
    assert "TP314" not in [f.id for f in said(elsewhere).findings]
    assert checked(elsewhere)[id].state == ("unpriced" if id == "torch_logs" else "fine")


def test_a_small_price_is_listed_and_no_finding(make: Make) -> None:
    file = at_work(make, f"{OPTIMIZER}:1085 Optimizer.zero_grad", ms=40.0)
    assert "TP314" not in [f.id for f in said(file).findings]
    row = checked(file)["zero_grad"]
    assert (row.state, row.cost_ns, row.finding) == ("costs", 40_000_000, "")


def test_of_two_the_costlier_is_the_finding(make: Make) -> None:
    file = at_work(make, f"{OPTIMIZER}:1069 Optimizer.zero_grad", ms=200.0)
    works = file.stack(*AT_WORK[1][1], LOOP)
    file.detail("sample", 500, phase="other", state="native", stack=works)
    assert only(file).variant == "gradcheck" and checked(file)["zero_grad"].state == "costs"


# Denormals: TP315


SEEN = {"model": {"input of Linear fc1": 0.8}, "optimizer": {"exp_avg of Adam": 0.5}}


def with_denormals(make: Make, cells: dict[tuple[str, str], float], **found: Any) -> RunFile:
    """100 steps, in which looks found this."""
    told = {
        "looks": 3,
        "forward": 0.0,
        "backward": found.get("forward", 0.0),
        "optimizer": 0.0,
        "optimizer_ns": 0,
        "seen": SEEN,
    }
    return make(denormals=json.dumps(told | found)).steps(100, cells, optimizer_steps=1)


STEP = {("forward", "native"): 4.0, ("backward", "native"): 4.0, ("optimizer", "native"): 2.0}


def test_layers_with_denormals_cost_their_share_of_forward_and_backward(make: Make) -> None:
    file = with_denormals(make, STEP, forward=0.75)
    f = only(file)
    assert (f.id, f.variant, f.severity, f.cause, f.share) == ("TP315", "in_model", "critical", "compute", 0.6)
    assert f.claims == {("forward", "native"): 300_000_000, ("backward", "native"): 300_000_000}
    assert f.params["most"] == "input of Linear fc1"
    assert f.params["model"] == 6e6 and f.params["optimizer"] is None
    row = checked(file)["denormals"]
    assert (row.state, row.cost_ns, row.finding) == ("costs", 600_000_000, "TP315")


def test_backward_alone_may_have_them(make: Make) -> None:
    f = only(with_denormals(make, STEP, forward=0.0, backward=0.9))
    assert (f.variant, f.claims) == ("in_model", {("backward", "native"): 360_000_000})


def test_of_forward_only_what_modules_compute_counts(make: Make) -> None:
    file = with_denormals(make, STEP, forward=0.5)
    module = file.stack(LINEAR, "/x/site-packages/torch/nn/modules/module.py:1779 Module._call_impl", LOOP)
    file.detail("sample", 100, phase="forward", state="native", stack=module)
    file.detail("sample", 300, phase="forward", state="native", stack=file.stack(LOOP))
    f = next(f for f in said(file).findings if f.id == "TP315")
    assert f.claims["forward", "native"] == 50_000_000 and f.claims["backward", "native"] == 200_000_000


def test_what_samples_took_for_python_is_of_the_layers_too(make: Make) -> None:
    cells = {("forward", "native"): 3.0, ("forward", "python"): 3.0, ("other", "native"): 4.0}
    assert only(with_denormals(make, cells, forward=0.75)).claims == {
        ("forward", "native"): 300_000_000,
        ("forward", "python"): 150_000_000,
    }


@pytest.mark.parametrize(("ns", "ms"), [(500_000, 0.5), (5_000_000, 1.6)])
def test_an_optimizer_saves_no_more_than_multiplications_do(make: Make, ns: int, ms: float) -> None:
    cells = {("forward", "native"): 3.0, ("optimizer", "native"): 2.0}
    f = next(f for f in said(with_denormals(make, cells, optimizer=0.8, optimizer_ns=ns)).findings if f.id == "TP315")
    assert (f.variant, f.cost_ms_per_step, f.params["most"]) == ("in_optimizer", ms, "exp_avg of Adam")
    assert f.claims == {("optimizer", "native"): round(ms * 1e8)}
    assert "layers" not in f.confidence_why  # none was run for it
    both = {**cells, ("forward", "native"): 3.0}
    f = next(f for f in said(with_denormals(make, both, forward=0.5, optimizer=0.8, optimizer_ns=ns)).findings)
    assert f.params["model"] and f.params["optimizer"]
    assert "running layers again, and multiplying" in f.confidence_why


def test_denormals_that_cost_little_are_no_finding(make: Make) -> None:
    for found, state in (
        ({"forward": 0.06}, "unpriced"),
        ({"forward": 0.01}, "fine"),
        ({"seen": {"model": {}, "optimizer": {}}}, "fine"),
    ):
        file = with_denormals(make, {("forward", "native"): 1.0, ("other", "python"): 9.0}, **found)
        assert "TP315" not in [f.id for f in said(file).findings] and checked(file)["denormals"].state == state
    assert checked(make().steps(100, compute=5.0))["denormals"].state == "not seen"


DAMAGED = [
    {},
    {"seen": 3},
    {"seen": {"model": []}},
    {"seen": SEEN | {"model": {"a": 7}}},
    {"seen": SEEN, "forward": -1},
]
RATES = {"forward": 0.9, "backward": 0.9, "optimizer": 0, "optimizer_ns": 0}


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"forward": "x"}', *(json.dumps(RATES | of) for of in DAMAGED)])
def test_a_damaged_record_of_denormals_tells_nothing(make: Make, damaged: str) -> None:
    file = make(denormals=damaged).steps(100, STEP)
    assert "TP315" not in [f.id for f in said(file).findings]
    assert checked(file)["denormals"].state == "not seen"


def test_lines_of_zero_grad_are_those_that_keep_gradients() -> None:
    import linecache

    import torch

    found = read.zeroing_lines()
    assert {f for functions in found.values() for f in functions} >= {"Optimizer.zero_grad", "Module.zero_grad"} or (
        sys.version_info < (3, 11)
    )
    assert torch.optim.Optimizer.zero_grad.__module__ == "torch.optim.optimizer"
    lines = [linecache.getline(file, n) for file, of in found.items() for each in of.values() for n in each]
    assert any("zero_()" in line for line in lines) and not any("grad = None" in line for line in lines)


def test_each_row_has_its_words() -> None:
    assert len({row.id for row in TABLE}) == len(TABLE)
    told = {f"setting_{row.id}{part}" for row in TABLE for part in ("", "_why", "_fix", "_unseen")}
    assert {key for key in TEXTS if key.startswith("setting_")} - told == {
        "setting_unseen",
        "setting_unseen_in_traces",
        "setting_try",
        *(row.slows.why for row in TABLE if row.slows is not None),
    }
    for row in TABLE:
        assert f"setting_{row.id}" in TEXTS
        assert row.findings or {f"setting_{row.id}_why", f"setting_{row.id}_fix"} <= TEXTS.keys(), row.id


def test_each_row_is_on_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "check.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {word.strip(" `") for row in rows for word in row.split(",")}
    assert {row.id for row in TABLE} <= listed


def test_what_trainperf_itself_ran_is_proven_without_it(make: Make) -> None:
    words = ["trainperf", "run", "-o", "a.tpr", "train.py", "--lr", "0.1"]
    file = make().steps(100, PYTHON).meta(tracemalloc_percent="100", command=json.dumps(words))
    found = checked(file.meta(argv=json.dumps(["train.py", "--lr", "0.1"])))["tracemalloc"]
    assert found.prove == "trainperf try --change tracemalloc=off -- python train.py --lr 0.1"


# What the watch reads


def test_reading_imports_nothing_and_takes_no_time() -> None:
    program = (
        "import sys, json\nfrom trainperf import process_settings as p\n"
        "read = p.process_settings()\n"
        "print(json.dumps([read, sorted(m for m in sys.modules if m.partition('.')[0] in "
        "('torch', 'numpy', 'tokenizers', 'multiprocessing'))]))"
    )
    environ = {"PYTHONMALLOC": "debug", "TORCH_LOGS": "dynamo", "ATEN_CPU_CAPABILITY": "default"}
    out = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, "PYTHONPATH": str(Path(read.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    found, modules = json.loads(out.stdout)
    assert modules == []
    assert found["malloc_debug"] and found["logs"] == ["TORCH_LOGS"] and found["gc_debug"] == 0
    assert found["instructions"] == {"ATEN_CPU_CAPABILITY": "default"} and "blas" not in found


def test_flags_of_the_garbage_collector_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read.process_settings()["gc_debug"]
    monkeypatch.setattr(gc, "get_debug", lambda: gc.DEBUG_SAVEALL)
    assert read.process_settings()["gc_debug"] == gc.DEBUG_SAVEALL


def test_torch_is_asked_without_cuda() -> None:
    import torch

    found = read.process_settings()
    assert found["torch_debug"] is False and found["blas"] and found["sharing"]
    assert not torch.cuda.is_initialized()


# How it is shown


def test_check_in_a_terminal_and_as_json(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    file = with_read(make, malloc_debug=True, descriptors=[900, 1024], gc_debug=0)
    file.build()
    assert main(["check", str(file.path)]) == 0
    out = capsys.readouterr().out
    assert "1 wrong, price not known; 1 risk (100 steps, 5 ms each)" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80 and "\nwrong " in out and "\nrisk " in out and "\nfine " in out
    assert main(["check", str(file.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["steps"] == 100 and [s["id"] for s in document["settings"]] == [row.id for row in TABLE]
    states = {s["id"]: s["state"] for s in document["settings"]}
    assert (states["malloc_debug"], states["descriptors"], states["gc_debug"]) == ("unpriced", "risk", "fine")


def test_a_run_without_steps_is_checked_too(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    file = make(process_settings="{}")
    file.build()
    assert main(["check", str(file.path)]) == 0
    assert "(0 steps)" in capsys.readouterr().out


@pytest.mark.parametrize(("epochs", "state"), [(1, "fine"), (4, "costs")])
def test_workers_that_start_once_are_nothing_to_set(make: Make, epochs: int, state: str) -> None:
    file = make()
    for _ in range(epochs):
        step = file.step(data_wait=900.0, compute=4.0)
        file.steps(40, compute=4.0, data_wait=0.1).span("first_fetch", 900, step=step, object=1)
    ready = {2: (40 * epochs, 4 * epochs)}
    file.loader(1, fetches=40 * epochs, wait=4 * epochs, ready=ready, first=(epochs, 900 * epochs), num_workers=2)
    assert [f.id for f in said(file).findings] == ["TP104"]
    assert checked(file)["persistent_workers"].state == state
