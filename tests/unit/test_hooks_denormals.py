"""What looks for denormals record, of layers and of optimizers, and that they leave the training as it is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import warm
from torch import nn
from torch.nn.modules import module as torch_module
from trainperf import _native
from trainperf.hooks import denormals
from trainperf.hooks.context import Ticker
from trainperf.hooks.denormals import DenormalsHook

TINY = 1e-39
NONE: dict[str, Any] = {"model": {}, "optimizer": {}}


class Watch:
    """The hook, its ticker and a clock of its own; the program's optimizers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(denormals, "may_compile", lambda: False)
        self.now = 1000.0
        monkeypatch.setattr(denormals, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: self.now}))
        self.optimizers: list[Any] = []
        self.failed: list[str] = []
        self.meta: dict[str, str] = {}
        self.overhead: dict[str, int] = {}
        session = SimpleNamespace(set_meta=self.meta.__setitem__, set_overhead=self.overhead.__setitem__)
        context: Any = SimpleNamespace(native=_native, session=session)
        context.ends_of_looks = []
        context.objects = SimpleNamespace(alive=lambda kind: self.optimizers)
        context.fail = lambda hook, error: self.failed.append(f"{hook}: {error!r}")
        context.ticker = self.ticker = Ticker(context, lambda: self.now)
        self.hook = DenormalsHook()
        self.hook.install(context)

    def look(self, step: Callable[[], object] = int, after_s: float = 100.0) -> dict[str, Any]:
        self.now += after_s
        self.ticker.tick()
        step()
        self.now += denormals._LOOK_S
        self.ticker.tick()
        return dict(json.loads(self.meta["denormals"]))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    found = Watch(monkeypatch)
    yield found
    found.hook.remove()
    assert not torch_module._global_forward_hooks and not torch_module._global_forward_pre_hooks and not found.failed


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Others wait for a CPU where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def slow_here() -> None:
    """Skips where the CPU is as fast with denormals."""
    if not denormals._is_slow():
        pytest.skip("this CPU multiplies denormals as fast as others")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))  # type: ignore[no-any-return]


@pytest.mark.usefixtures("slow_here")
def test_a_layer_that_is_slow_by_its_inputs_is_named(watch: Watch) -> None:
    net, inputs = Net(), torch.full((64, 256), TINY)
    before = {name: p.clone() for name, p in net.state_dict().items()}
    random = torch.get_rng_state()
    net(inputs)  # first uses take longer
    found = watch.look(lambda: net(inputs))
    assert found["seen"]["model"]["input of Linear fc1"] == 1.0
    assert found["forward"] > 0.5 and found["optimizer"] == 0.0
    assert watch.overhead["denormals"] > 0
    assert torch.equal(random, torch.get_rng_state()) and bool((inputs == TINY).all())
    assert all(torch.equal(before[name], p) for name, p in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.usefixtures("slow_here")
def test_a_layer_whose_gradient_is_denormal_is_slow_in_backward(watch: Watch) -> None:
    net, inputs = Net(), torch.ones(64, 256)
    net(inputs)

    def step() -> None:
        net(inputs)
        net.fc1.weight.grad = torch.full((256, 256), TINY)

    found = watch.look(step)
    assert found["seen"]["model"] == {"gradient of Linear fc1": 1.0}
    assert found["backward"] > 0.5 and found["forward"] == 0.0


def test_of_many_calls_those_kept_are_of_each_layer() -> None:
    for every in (2, 8, 32):
        kept = [number for number in range(1, 3001) if denormals._is_kept(number, every)]
        assert 0.8 < len(kept) * every / 3000 < 1.25
        assert {number % 4 for number in kept} == {0, 1, 2, 3}
        assert set(kept) >= {number for number in range(1, 3001) if denormals._is_kept(number, 2 * every)}


def test_a_layer_with_none_or_few_is_not(watch: Watch) -> None:
    net, inputs = Net(), torch.ones(64, 256)
    assert watch.look(lambda: net(inputs))["seen"] == NONE
    inputs[0, :64] = TINY  # 0.4 %
    found = watch.look(lambda: net(inputs))
    assert (found["looks"], found["forward"], found["seen"]) == (2, 0.0, NONE)


@pytest.mark.usefixtures("slow_here")
def test_momentum_that_is_denormal_is_named(watch: Watch) -> None:
    table = nn.Embedding(4000, 32)
    optimizer = torch.optim.Adam(table.parameters())
    watch.optimizers.append(optimizer)
    table(torch.arange(8)).sum().backward()
    optimizer.step()
    assert watch.look()["seen"] == NONE
    optimizer.state[table.weight]["exp_avg"].fill_(TINY)
    found = watch.look()
    assert found["seen"]["optimizer"] == {"exp_avg of Adam": 1.0} and found["optimizer_ns"] > 0
    # Not in the first half of the time, and from then on more and more: when it began is not known.
    assert 0.1 < found["optimizer"] <= 0.25
    assert optimizer.state[table.weight]["exp_avg"][0, 0] == torch.tensor(TINY)


@pytest.mark.usefixtures("slow_here")
@pytest.mark.parametrize("where", ["weights", "inputs"])
def test_a_layer_that_computes_no_numbers_is_not_timed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    net, inputs = Net(), torch.full((64, 256), TINY)
    with torch.no_grad():
        if where == "weights":
            net.fc1.weight.fill_(float("nan"))
        else:
            inputs[::3] = float("inf")
    monkeypatch.setattr(denormals, "_saved_by_zeros", lambda call, args: 0.9)
    found = watch.look(lambda: net(inputs))
    assert (found["forward"], found["backward"], found["seen"]) == (0.0, 0.0, NONE)


def test_a_layer_that_is_slow_the_first_time_only_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([0.6e-3, 0.2e-3, 0.2e-3])  # once, with zeros, and again
    monkeypatch.setattr(denormals, "_least", lambda work, times: next(took))
    layer, inputs = nn.Linear(256, 256), torch.full((64, 256), TINY)
    assert denormals._saved_by_zeros(denormals._Call(layer, layer, 0.5e-3), (inputs,)) == 0.0
    assert next(took, None) is None


def test_looks_cost_no_more_than_their_share(watch: Watch) -> None:
    net = Net()
    watch.look(lambda: net(torch.ones(64, 256)))
    watch.hook._cost_s, began = 0.9, watch.hook._began
    watch.look(lambda: net(torch.ones(64, 256)))
    again = began + watch.hook._cost_s / denormals._SHARE
    assert again >= began + 300
    for watch.now, looks in ((again - 1, False), (again + 1, True)):
        watch.ticker.tick()
        assert bool(torch_module._global_forward_hooks) is looks


def test_nothing_is_slow_on_a_thread_that_flushes(watch: Watch) -> None:
    net, inputs, found = Net(), torch.full((64, 256), TINY), list[dict[str, Any]]()

    def flushing() -> None:
        torch.set_flush_denormal(True)
        found.append(watch.look(lambda: net(inputs)))

    thread = threading.Thread(target=flushing)  # its mode ends with it
    thread.start()
    thread.join()
    assert (found[0]["looks"], found[0]["forward"], found[0]["seen"]) == (1, 0.0, NONE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_denormals_are_counted_by_their_bits(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, tiny, tiny / 4, -tiny / 4, float("inf"), float("nan")], dtype=dtype)
    assert denormals._counts(values, 16) == (9, 2, False) and denormals._counts(values[:7], 16) == (7, 2, True)
    zeroed = denormals._zeroed(values)
    assert [float(value) for value in zeroed[:7]] == [0, 0, 1, -1, 0, 0, 0] and values[5] != 0
    assert denormals._zeroed(values * 2.0**30)[4] == tiny * 2.0**30  # the products of those are none


def test_tensors_whose_memory_is_not_theirs_alone_are_left_out() -> None:
    plain = torch.ones(4, 6)
    assert denormals._is_read(plain) and denormals._is_read(plain.t()) and denormals._is_read(nn.Parameter(plain))
    freed = torch.ones(4, 6)
    freed.untyped_storage().resize_(0)
    others = [
        plain[:, ::2], plain[:, :3], plain[:1].expand(3, 6), plain.long(), plain.half(), torch.ones(1), freed,
        plain.to_sparse(), torch.ones(4, 6, device="meta"),
    ]  # fmt: skip
    assert not any(map(denormals._is_read, others))
    images = torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last)
    assert denormals._is_read(images) and torch.equal(denormals._zeroed(images), images)
    assert torch.vmap(lambda x: x * int(denormals._is_read(x)))(plain).sum() == 0


def test_a_layer_that_draws_numbers_or_keeps_some_is_not_run_again(watch: Watch) -> None:
    calls = []

    class Own(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return super().forward(input)

    model = nn.Sequential(Own(256, 256), nn.BatchNorm1d(256), nn.Dropout(0.5))
    torch.manual_seed(3)
    expected = torch.rand(64, 256)
    torch.manual_seed(3)
    watch.look(lambda: model(torch.full((64, 256), TINY)))
    drawn = torch.empty(64, 256).bernoulli_(0.5)
    assert len(calls) == 1 and model[1].num_batches_tracked == 1
    torch.manual_seed(3)
    torch.empty(64, 256).bernoulli_(0.5)  # Dropout's, once
    assert torch.equal(drawn, torch.empty(64, 256).bernoulli_(0.5)) and expected.shape == drawn.shape


@pytest.mark.parametrize("mode", ["dispatch", "function", "profiler"])
def test_no_operation_of_its_own_is_seen_by_a_mode(watch: Watch, mode: str) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    def step() -> int:
        seen.clear()
        with {"dispatch": Dispatch, "function": Function, "profiler": torch.autograd.profiler.profile}[mode]() as p:
            layer(inputs)
        events = p.function_events if mode == "profiler" else seen
        return sum("linear" in str(getattr(e, "name", e)) or "addmm" in str(getattr(e, "name", e)) for e in events)

    layer, inputs = nn.Linear(256, 256), torch.full((64, 256), TINY)
    plain = step()
    watched: list[int] = []
    watch.look(lambda: watched.append(step()))
    assert watched == [plain] and plain


SCRIPT = """
import sys, torch, trainperf
from torch import nn
if sys.argv[2] == "flush":
    torch.set_flush_denormal(True)
torch.set_num_threads(1)
with trainperf.watch(sys.argv[1]) as run:
    model = nn.Sequential(nn.Linear(256, 128), nn.Tanh(), nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = (torch.ones(64, 256).view(torch.int32) * 0 + 700000).view(torch.float32)
    import time
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.usefixtures("slow_here")
@pytest.mark.parametrize("mode", ["plain", "flush"])
def test_a_training_that_flushes_denormals_has_none(tmp_path: Any, mode: str) -> None:
    import trainperf

    path = tmp_path / "a.tpr"
    done = warm.run(["-c", SCRIPT, str(path), mode])
    assert done.returncode == 0, done.stderr
    with trainperf.open(path) as run:
        assert ("TP315" in [f.id for f in run.findings]) == (mode == "plain")
