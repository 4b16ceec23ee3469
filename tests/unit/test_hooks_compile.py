"""torch.compile with all hooks in: no more graph breaks, no more compiles, and the marks are still there.

Each program runs in a process of its own, twice: with the hooks and without. Dynamo's own counters must agree. From
torch 2.15 on Dynamo leaves what calls Optimizer.step to Python as soon as anybody has a hook on steps, even one that
does nothing: so there the program without ours has such a one.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import warm

PROGRAM = """
import json, sys
sys.path.insert(0, {tests!r})
import torch
from torch import nn
from torch.utils.data import DataLoader
from recorder import Recorder, Session
from trainperf.hooks import Hooks

torch.manual_seed(0)
torch.set_num_threads(1)
recorder, session = Recorder(), Session()
hooks = Hooks(recorder, session)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
batches = [torch.randn(3, 4) for _ in range(5)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if {hooked}:
    hooks.install()
elif tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    register_optimizer_step_pre_hook(lambda *arguments: None)
{body}
hooks.remove()
from torch._dynamo.utils import counters, get_compilation_metrics
print(json.dumps({{
    "compiled": [(m.co_name, m.co_filename, m.co_firstlineno, m.compile_id) for m in get_compilation_metrics()],
    "stats": dict(counters["stats"]),
    "breaks": sum(counters["graph_break"].values()), "why": dict(counters["graph_break"]),
    "recompiles": sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
    "weights": [p.sum().item() for p in model.parameters()],
    "words": recorder.words("BACKWARD", "OPTIMIZER", "COMPILE", "FETCH", "EVAL"), "notes": session.notes}}))
"""

MODEL = """
compiled = torch.compile(model, backend="eager", fullgraph=True)
for x in DataLoader(batches, batch_size=None):
    compiled(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

TRAIN_STEP = """
@torch.compile(backend="eager")
def train_step(x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss

for x in DataLoader(batches, batch_size=None):
    train_step(x)
"""

BY_FUNCTION = """
@torch.compile(backend="eager")
def forward_and_backward(x):
    torch.autograd.backward(model(x).sum())

for x in batches:
    forward_and_backward(x)
    optimizer.step()
"""

OPTIMIZER_STEP = """
step = torch.compile(optimizer.step, backend="eager")
for x in batches:
    model(x).sum().backward()
    step()
    optimizer.zero_grad()
"""

EVAL_INSIDE = """
@torch.compile(backend="eager")
def evaluate(x):
    model.eval()
    out = model(x)
    model.train()
    return out

for x in batches:
    evaluate(x)
    model(x).sum().backward()
    optimizer.step()
"""

FETCHES = """
def by_attribute(it):
    return it.__next__().sum()

def by_next(it):
    return next(it).sum()

def by_for(loader):
    total = 0
    for x in loader:
        total = total + x.sum()
    return total

loader = DataLoader(torch.arange(8.0), batch_size=2)
it = iter(loader)
got = [torch.compile(ask, backend="eager")(it).item() for ask in (by_attribute, by_next, by_attribute, by_next)]
assert got == [1.0, 5.0, 9.0, 13.0], got
assert torch.compile(by_for, backend="eager")(loader).item() == 28.0
"""

# The iterators are older than the hooks, and what they are made of has tensors right in it.
FETCHES_FROM_BEFORE = """
hooks.remove()
hooks = Hooks(recorder, session)
def by_next(it):
    return next(it).sum()

iterators = [iter(DataLoader(data, batch_size=2)) for data in (torch.arange(8.0), [torch.ones(2)] * 8)]
if {hooked}:
    hooks.install()
fetch = torch.compile(by_next, backend="eager")
assert [[fetch(it).item() for _ in range(4)] for it in iterators] == [[1.0, 5.0, 9.0, 13.0], [4.0] * 4]
"""

# Looks begin now and then while another model trains: by global hooks, which Dynamo guards on.
LOOKS = """
import time
from torch.nn.modules import module as of_modules
other = nn.Linear(4, 1)
{before}
end = time.monotonic() + 3
while {hooked} and time.monotonic() < end and not of_modules._global_forward_hooks:
    other(batches[0]).sum().backward()
    optimizer.step()
    time.sleep(0.005)
looked = bool(of_modules._global_forward_hooks)
{after}
for _ in range(150):
    compiled(batches[0]).sum().backward()
    optimizer.step()
    time.sleep(0.01)
assert looked == ({hooked} and {during})
"""


@functools.cache
def run(body: str, *, hooked: bool, dynamo_is_there: bool = True) -> dict[str, Any]:
    """Without Dynamo at first it takes three times as long."""
    tests = str(Path(__file__).parents[1])
    program = PROGRAM.format(tests=tests, hooked=hooked, body=textwrap.dedent(body).replace("{hooked}", str(hooked)))
    if dynamo_is_there:
        done = warm.run(["-c", program])
    else:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize(
    ("body", "backwards", "steps"),
    [
        pytest.param(MODEL, 5, 5, id="model, fullgraph"),
        pytest.param(TRAIN_STEP, 5, None, id="a whole train step"),
        pytest.param(BY_FUNCTION, 5, 5, id="torch.autograd.backward"),
        pytest.param(OPTIMIZER_STEP, 5, None, id="optimizer.step"),
        pytest.param(EVAL_INSIDE, 5, 5, id="eval and train inside"),
    ],
)
def test_dynamo_does_the_same_with_hooks(body: str, backwards: int, steps: int | None) -> None:
    plain, hooked = run(body, hooked=False), run(body, hooked=True)
    assert hooked["notes"] == [] and plain["compiled"]
    for what in ("compiled", "stats", "breaks", "recompiles", "weights"):
        assert hooked[what] == plain[what], (what, hooked["why"], plain["why"])
    assert hooked["words"].count("begin BACKWARD") == hooked["words"].count("end BACKWARD") == backwards
    if steps is not None:
        assert hooked["words"].count("begin OPTIMIZER") == hooked["words"].count("end OPTIMIZER") == steps
    assert hooked["words"].count("begin COMPILE") == hooked["words"].count("end COMPILE") >= 1
    assert plain["words"] == []


def test_dynamo_is_imported_after_the_hooks_were_installed() -> None:
    plain, hooked = run(TRAIN_STEP, hooked=False), run(TRAIN_STEP, hooked=True, dynamo_is_there=False)
    assert hooked["notes"] == [] and hooked["compiled"] and hooked["breaks"] == plain["breaks"]
    assert hooked["words"].count("begin BACKWARD") == hooked["words"].count("end BACKWARD") == 5
    assert hooked["words"].count("begin COMPILE") == hooked["words"].count("end COMPILE") >= 1


def test_batches_that_compiled_code_fetches() -> None:
    plain, hooked = run(FETCHES, hooked=False), run(FETCHES, hooked=True)
    assert hooked["notes"] == [] and plain["compiled"] == hooked["compiled"]
    assert hooked["words"].count("begin FETCH") == hooked["words"].count("end FETCH") == 4 + 5


def test_batches_that_compiled_code_fetches_from_an_iterator_that_was_there_before() -> None:
    plain, hooked = (run(FETCHES_FROM_BEFORE, hooked=hooked) for hooked in (False, True))
    assert hooked["notes"] == [] and plain["compiled"] == hooked["compiled"]
    assert hooked["words"].count("begin FETCH") == hooked["words"].count("end FETCH") == 2 * 4


def test_compiled_before_the_watch_is_not_compiled_again() -> None:
    body = MODEL + "hooks.install()\n" + MODEL.split("\n", 2)[2]
    assert run(body, hooked=False)["words"].count("begin COMPILE") == 0


@pytest.mark.parametrize("asked", ["before", "during"])
def test_no_look_at_modules_makes_dynamo_compile_again(asked: str) -> None:
    body = LOOKS.replace("{during}", str(asked == "during"))
    compiles = 'compiled = torch.compile(model, backend="eager")'
    body = body.replace("{before}", compiles if asked == "before" else "")
    body = body.replace("{after}", compiles if asked == "during" else "")
    plain, hooked = run(body, hooked=False), run(body, hooked=True)
    assert hooked["notes"] == []
    for what in ("compiled", "stats", "breaks", "recompiles"):
        assert hooked[what] == plain[what], what


def test_compiles_are_seen_after_dynamo_was_reset() -> None:
    body = MODEL + "import time; time.sleep(0.25)\ntorch._dynamo.reset()\n" + MODEL + "time.sleep(0.25)\n" + MODEL
    body += "torch._dynamo.reset()\noptimizer.step()\ntime.sleep(0.25)\nhooks.context.ticker.tick()\n" + MODEL
    assert run(body, hooked=True)["words"].count("begin COMPILE") == 2
