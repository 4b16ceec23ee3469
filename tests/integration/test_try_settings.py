"""Each setting of `trainperf try`: it takes effect in a trial, as the script itself sees, or is said not to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainperf.prove import same_training
from trainperf.prove.changes import SETTINGS, Change
from trainperf.prove.trial import Asked, Command, Trial, Trials

SCRIPT = """
import gc, json, os, sys, tracemalloc
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(2)
torch.autograd.set_detect_anomaly(True)
torch.use_deterministic_algorithms(True, warn_only=True)
tracemalloc.start()
gc.set_debug(gc.DEBUG_UNCOLLECTABLE)
def main():
    data = TensorDataset(torch.randn(64, 8), torch.zeros(64, dtype=torch.long))
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False))  # no C++ to compile
    optimizer = torch.optim.Adam(model.parameters())
    other = DataLoader(data, batch_size=4)
    loader = DataLoader(data, batch_size=4)
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad(set_to_none=False)
        output = model(x)
        if step == 3:
            group = optimizer.param_groups[0]
            print(json.dumps({
                "num_workers": loader.num_workers, "persistent_workers": loader.persistent_workers,
                "prefetch_factor": loader.prefetch_factor,
                "context": getattr(loader.multiprocessing_context, "_name", None),
                "others": other.num_workers, "threads": torch.get_num_threads(), "gc": gc.isenabled(),
                "frozen": gc.get_freeze_count() > 0, "threshold": gc.get_threshold()[0],
                "switch": round(sys.getswitchinterval(), 6), "precision": torch.get_float32_matmul_precision(),
                "dtype": str(output.dtype), "fused": bool(group["fused"]), "foreach": group["foreach"],
                "grads": [p.grad is None for p in model.parameters()][0], "anomaly": torch.is_anomaly_enabled(),
                "strategy": torch.multiprocessing.get_sharing_strategy(), "variable": os.environ.get("SOME_VARIABLE"),
                "graphs": counters["stats"].get("unique_graphs", 0), "flushes": float("1e-310") * step == 0,
                "deterministic": torch.are_deterministic_algorithms_enabled(), "traced": tracemalloc.is_tracing(),
                "debug": gc.get_debug() > 0,
            }))
        nn.functional.cross_entropy(output.float(), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "train.py"


@pytest.fixture(scope="module")
def running(script: Path) -> Iterator[Trials]:
    """Of the script as a test has written it: what forks trials takes seconds to start."""
    with Trials(Command(str(script))) as trials:
        yield trials


@pytest.fixture(scope="module")
def first(script: Path, running: Trials) -> Trial:
    script.write_text(SCRIPT)
    return running.run(Asked(batches=6))


@pytest.fixture
def trials(script: Path, running: Trials, first: Trial) -> tuple[Trials, Trial]:
    """And a first trial, of the script as it is."""
    script.write_text(SCRIPT)
    return running, first


def seen(trial: Trial) -> dict[str, Any]:
    return dict(json.loads(trial.log.splitlines()[0]))


TAKE_EFFECT = {
    "num_workers=1,prefetch_factor=3,persistent_workers=True": {
        "num_workers": 1, "prefetch_factor": 3, "persistent_workers": True, "others": 0,
    },
    "num_workers=1,multiprocessing_context=spawn": {"num_workers": 1, "context": "spawn"},
    "threads=1": {"threads": 1},
    "gc=off": {"gc": False, "frozen": True},
    "gc=freeze": {"frozen": True},
    "gc_threshold=12345": {"threshold": 12345},
    "switch_interval=0.001": {"switch": 0.001},
    "matmul_precision=high": {"precision": "high"},
    "autocast=bfloat16": {"dtype": "torch.bfloat16"},
    "fused=True": {"fused": True},
    "foreach=False": {"foreach": False},
    "zero_grad=set_to_none": {"grads": True},
    "compile=default": {"graphs": 1},
    "anomaly=off": {"anomaly": False},
    "deterministic=off": {"deterministic": False},
    "tracemalloc=off": {"traced": False},
    "gc_debug=off": {"debug": False},
    "flush_denormal=on": {"flushes": True},
    "sharing_strategy=file_system": {"strategy": "file_system"},
    "SOME_VARIABLE=x": {"variable": "x"},
}  # fmt: skip
# Here is no CUDA, no memory to pin, and no fork server.
ELSEWHERE = {"pin_memory", "non_blocking", "cudnn_benchmark", "forkserver_preload"}


def test_each_setting_is_tested() -> None:
    tested = {part.partition("=")[0] for change in TAKE_EFFECT for part in change.split(",")}
    assert set(SETTINGS) == (tested - {"SOME_VARIABLE"}) | ELSEWHERE


@pytest.mark.parametrize("text", TAKE_EFFECT)
def test_a_setting_takes_effect(trials: tuple[Trials, Trial], text: str) -> None:
    running, first = trials
    before = seen(first)
    change = Change.parse(text)
    trial = running.run(Asked(change, first.loader, batches=6, fresh=bool(change.environment)))
    assert trial.finished and trial.record["unproven"] == [], trial
    after = seen(trial)
    for key, value in TAKE_EFFECT[text].items():
        assert (after[key] == value and before[key] != value) or key == "others", (key, before[key], after[key])
    if change.numbers == "same":
        assert trial.record["losses"] == first.record["losses"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("non_blocking=True", "non_blocking: no pinned tensor was copied"),
        ("cudnn_benchmark=True", "cudnn_benchmark: nothing runs on cuDNN"),
        ("forkserver_preload=torch", "forkserver_preload: no worker is forked by a server"),
    ],
)
def test_one_without_effect_is_said_to_have_none(trials: tuple[Trials, Trial], text: str, why: str) -> None:
    running, first = trials
    assert running.run(Asked(Change.parse(text), first.loader, batches=6)).record["unproven"] == [why]


WITHOUT_LOADER = """
import json
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

first, last = nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False)  # no one module calls both
second = nn.Linear(8, 8, bias=False)
parameters = [*first.parameters(), *second.parameters(), *last.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
y = torch.zeros(4, dtype=torch.long)
for step in range(8):
    optimizer.zero_grad()
    output = last(checkpoint(second, first(torch.randn(4, 8)), use_reentrant=False))
    loss = nn.functional.cross_entropy(output.float(), y)
    loss.backward()
    optimizer.step()
    if step == 4:
        seen = {"dtype": str(output.dtype), "between": torch.is_autocast_enabled("cpu")}
        print(json.dumps({**seen, "graphs": counters["stats"].get("unique_graphs", 0)}))
"""


@pytest.mark.parametrize(
    ("text", "dtype", "graphs"),
    [
        ("compile=default", "float32", 1),
        ("autocast=bfloat16", "bfloat16", 0),
        # Casts are compiled C++, which takes ten seconds.
        pytest.param("compile=default,autocast=bfloat16", "bfloat16", 1, marks=pytest.mark.live),
    ],
)
def test_models_are_reached_without_a_loader(script: Path, running: Trials, text: str, dtype: str, graphs: int) -> None:
    script.write_text(WITHOUT_LOADER)
    trial = running.run(Asked(Change.parse(text), batches=8))
    assert trial.finished and trial.record["unproven"] == [], trial
    assert seen(trial) == {"dtype": f"torch.{dtype}", "between": False, "graphs": graphs}


STATEFUL = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

def main():
    data = TensorDataset(torch.randn(32, 8), torch.zeros(32, dtype=torch.long))
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = StatefulDataLoader(data, batch_size=4, shuffle=False)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("shuffle", "kind"), [(False, "same"), (True, "other")])
def test_torchdatas_loader_is_reached(script: Path, running: Trials, shuffle: bool, kind: str) -> None:
    """Shuffled, it draws another order where it has workers, and that is found out."""
    pytest.importorskip("torchdata.stateful_dataloader")
    script.write_text(STATEFUL.replace("shuffle=False", f"shuffle={shuffle}"))
    first = running.run(Asked(batches=20))
    assert first.loader is not None and first.loader["class"] == "StatefulDataLoader"
    for text in ("num_workers=2", "num_workers=2,persistent_workers=True"):
        trial = running.run(Asked(Change.parse(text), first.loader, batches=20))
        assert trial.finished and trial.record["unproven"] == [], trial
        assert [len(epoch["delivered"]) for epoch in trial.record["epochs"]] == [8, 8, 4]
        assert same_training.compare([first.record], trial.record, "same").kind == kind


OF_TORCH = STATEFUL.replace("torchdata.stateful_dataloader", "torch.utils.data").replace("Stateful", "")
KEPT = "num_workers=1, prefetch_factor=3, persistent_workers=True, multiprocessing_context='fork', timeout=60"


def test_no_workers_need_nothing_that_workers_have(script: Path, running: Trials) -> None:
    """And the loader draws the same orders as one that keeps its workers, which draws no seed for new ones."""
    script.write_text(OF_TORCH.replace("shuffle=False", f"shuffle=True, {KEPT}"))
    first = running.run(Asked(batches=20))
    none = running.run(Asked(Change.parse("num_workers=0"), first.loader, batches=20))
    assert none.finished and none.record["unproven"] == [], none.error
    assert none.loader is not None and none.loader["options"]["prefetch_factor"] is None
    assert [len(epoch["delivered"]) for epoch in none.record["epochs"]] == [8, 8, 4]
    assert same_training.compare([first.record], none.record, "same").kind == "same"


def test_turns_go_on_without_workers(script: Path, running: Trials) -> None:
    script.write_text(OF_TORCH.replace("shuffle=False", KEPT).replace("range(3)", "range(10_000)"))
    first = running.run(Asked(batches=12))
    paired = {"now": 1, "other": 0, "alpha": 0.01, "seconds": 1.0}
    turns = running.run(Asked(Change(), first.loader, 12, turns={"policy": {"paired": paired}, "epochs": {}}))
    assert turns.ended == "steps" and turns.record["turns"]["pairs"], turns.error


@pytest.mark.parametrize("made", ["{n: DataLoader(d, 4) for n, d in two}", "{n: make(d) for n, d in two}"])
def test_other_loaders_of_the_same_call_are_seen(script: Path, running: Trials, made: str) -> None:
    helper = "make = lambda d: DataLoader(d, 4)\n    two = [('train', data), ('val', TensorDataset(torch.zeros(4)))]\n"
    one = "loader = DataLoader(data, batch_size=4, shuffle=False)"
    script.write_text(OF_TORCH.replace(one, f"{helper}    loader = {made}['train']"))
    both = running.run(Asked(batches=4))
    script.write_text(OF_TORCH)
    alone = running.run(Asked(batches=4))
    assert both.loader is not None and both.loader["beside"] == 1, both.error
    assert alone.loader is not None and alone.loader["beside"] == 0
