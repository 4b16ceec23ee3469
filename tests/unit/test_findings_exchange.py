"""What is said of an exchange between even ranks: its size, and how to exchange less."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from runfiles import RunFile
from torch import nn
from trainperf.findings import engine
from trainperf.findings.model import Finding, Said
from trainperf.hooks.describe import describe_ddp, describe_optimizer
from trainperf.ranks import open_job, ranks
from verdicts import TRAIN, Make

MB = 2**20


def waits(file: RunFile, *below: str, standing: str = "even") -> Finding:
    file.meta(world_size="2", process_group="1").steps(100, {("backward", "blocked"): 4.0, ("backward", "native"): 6.0})
    file.detail(
        "sample", 390, phase="backward", state="blocked", code=202, stack=file.stack(*below, f"{TRAIN}:31 train")
    )
    with file.open() as run:
        return next(f for f in engine.find(run, standing=standing).findings if f.id == "TP301")  # type: ignore[arg-type]


BACKWARD = "/x/site-packages/torch/autograd/graph.py:829 _engine_run_backward"
REDUCE = "/x/site-packages/torch/distributed/distributed_c10d.py:9 all_reduce"


SYNC = Said("no_sync", {"at_times": False})
HALF = Said("compress", {"hook": "fp16_compress_hook"})
BUFFERS = {"gradient_bytes": 4 * MB, "buffer_bytes": 3 * MB, "broadcast_buffers": True}


@pytest.mark.parametrize(
    ("ddp", "less"),
    [
        (
            {"gradient_bytes": 400 * MB, "bucket_bytes": 25 * MB},
            (SYNC, HALF, Said("larger_buckets", {"mb": 50, "buckets": 16})),
        ),
        (
            {"gradient_bytes": 20 * MB, "bucket_bytes": 25 * MB, "hooks": 1},
            (SYNC, Said("smaller_buckets", {"mb": 5})),
        ),
        ({"gradient_bytes": 100 * MB, "bucket_bytes": 25 * MB}, (SYNC, HALF)),
        (BUFFERS, (SYNC, HALF, Said("no_buffers", {"option": "broadcast_buffers"}))),
        (
            {**BUFFERS, "buffers_option": "forward_sync_buffers"},
            (SYNC, HALF, Said("no_buffers", {"option": "forward_sync_buffers"})),
        ),
        ({**BUFFERS, "broadcast_buffers": False}, (SYNC, HALF)),
    ],
)
def test_even_ranks_are_told_to_exchange_less(make: Make, ddp: dict[str, object], less: tuple[Said, ...]) -> None:
    f = waits(make(ddp=json.dumps(ddp)), BACKWARD)
    assert f.variant == "even_ranks" and f.params["ddp"] == less
    assert f.params["gradients"] == ddp["gradient_bytes"]
    assert f.params["buffers"] == (3 * MB if ddp.get("broadcast_buffers") else None)


def test_of_gradients_that_are_exchanged_by_hand_the_optimizer_tells_the_size(make: Make) -> None:
    file = make()
    file.object(1, "optimizer", gradient_bytes=37_000_000)
    f = waits(file, REDUCE)
    assert (f.variant, f.params["ddp"], f.params["known"], f.finds_out) == ("collective", None, True, False)
    assert (f.params["gradients"], f.params["rate"]) == (37_000_000, pytest.approx(9.25e9))
    alone = waits(make(), REDUCE, standing="")
    assert not alone.params["known"] and alone.finds_out


@pytest.mark.parametrize("ddp", ["{", "[]", '{"gradient_bytes": "x", "buffer_bytes": -1, "hooks": true}'])
def test_a_damaged_description_tells_nothing(make: Make, ddp: str) -> None:
    f = waits(make(ddp=ddp), BACKWARD)
    assert f.params["gradients"] is None and f.params["ddp"] == (SYNC, HALF)


def test_what_the_hooks_describe() -> None:
    frozen = nn.Linear(4, 4).requires_grad_(False)
    unused = nn.LazyLinear(4)  # its weights have no size yet
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8, affine=False), frozen, unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert describe_optimizer(optimizer)["gradient_bytes"] == 4 * 8 * 4
    found = describe_ddp(model)
    assert (found["gradient_bytes"], found["buffer_bytes"]) == (4 * 8 * 4, 2 * 8 * 4 + 8)


@pytest.mark.parametrize(("steps", "even"), [(10, True), (600, False)])
def test_a_difference_that_chance_makes_in_a_second_is_none(tmp_path: Path, steps: int, even: bool) -> None:
    for number, own in enumerate((93.0, 100.0)):
        file = RunFile(tmp_path / f"a.rank{number}.tpr", world_size="2", rank=str(number))
        file.steps(steps, compute=own, collective=110.0 - own).build()
    with open_job(tmp_path) as job:
        found = ranks(job.runs)
    assert found is not None and found.even == even, found.sentence
