"""What a run keeps of its process, and of the PyTorch that it saw."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from typing import Any

import pytest
from trainperf.meta import process_meta, torch_meta
from trainperf.settings import Settings

torch = pytest.importorskip("torch")


BIN = sys.executable.rpartition("/")[0]


@pytest.mark.parametrize(
    ("started", "command"),
    [
        (["train.py", "--lr", "0.1"], ["python", "train.py", "--lr", "0.1"]),
        (["-u", "-m", "pkg.train"], ["python", "-m", "pkg.train"]),
        ([f"{BIN}/trainperf", "run", "train.py"], ["trainperf", "run", "train.py"]),
        (["/elsewhere/train.py"], ["python", "/elsewhere/train.py"]),
        ([], ["python"]),
    ],
)
def test_the_command_that_started_it(monkeypatch: pytest.MonkeyPatch, started: list[str], command: list[str]) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *started])
    assert json.loads(process_meta(Settings(), "1")["command"]) == command
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert json.loads(process_meta(Settings(), "1")["command"])[:2] == ["torchrun", "..."]


def _lines() -> dict[str, list[int]]:
    (of_functions,) = json.loads(torch_meta()["forward_lines"]).values()
    return of_functions  # type: ignore[no-any-return]


@pytest.mark.parametrize("hooked", [False, True])
def test_the_lines_from_which_a_module_calls_its_forward_and_not_its_hooks(hooked: bool) -> None:
    """Of the torch that is installed: another name in it would silence TP310 of hooks."""
    lines: dict[str, int] = {}

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            lines["forward"] = sys._getframe(1).f_lineno
            return x

    def hook(*_: Any) -> None:
        lines["hook"] = sys._getframe(1).f_lineno

    net = Net()
    if hooked:
        net.register_forward_pre_hook(hook)
    net(1)
    known = {line for of in _lines().values() for line in of}
    assert lines["forward"] in known and lines.get("hook") not in known


def test_what_a_wrapper_of_module_calls_holds_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    original = torch.nn.Module._call_impl

    def wrapped(self: Any, *args: Any, held: Held = held, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Module, "_call_impl", wrapped)
        assert "forward_lines" in torch_meta()
    del wrapped, held
    gc.collect()
    assert gone() is None
