"""What writes logs and metrics, in brackets of logging."""

from __future__ import annotations

import inspect
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorder import Recorder, Session
from trainperf.hooks.loggers import LoggerHook, TensorBoardHook, WandbHook

Install = Callable[..., Session]


def test_a_log_record_is_a_bracket(hooked: Install, recorder: Recorder) -> None:
    hooked(LoggerHook())
    logger = logging.getLogger("test.of.the.hook")
    logger.setLevel(logging.INFO)
    logger.debug("not enabled")
    assert recorder.words() == []
    logger.info("hello")
    assert recorder.words() == ["begin LOGGING"] * 2 + ["end LOGGING"] * 2  # it is made, and within that handled


def test_a_record_keeps_the_line_of_who_logs(hooked: Install, caplog: pytest.LogCaptureFixture) -> None:
    hooked(LoggerHook())
    logger = logging.getLogger("test.of.the.line")

    def helper() -> None:
        logger.warning("by the helper's caller", stacklevel=2)

    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    logger.warning("here")
    helper()
    logging.LoggerAdapter(logger, {}).warning("by an adapter")
    assert [(r.filename, r.lineno - line) for r in caplog.records] == [(Path(__file__).name, n) for n in (1, 2, 3)]


def test_a_handler_that_raises(hooked: Install, recorder: Recorder) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk")

    hooked(LoggerHook())
    logger = logging.getLogger("test.broken")
    handler = Broken()
    logger.addHandler(handler)
    with pytest.raises(OSError, match="disk"):
        logger.error("x")
    logger.removeHandler(handler)
    assert recorder.words() == ["begin LOGGING"] * 2 + ["end LOGGING"] * 2


@pytest.mark.parametrize(
    ("hook", "at"),
    [
        (TensorBoardHook, "torch.utils.tensorboard.writer:SummaryWriter.add_scalar"),
        (WandbHook, "wandb.sdk.wandb_run:Run.log"),
    ],
)
def test_writers_of_metrics(
    hook: type[LoggerHook], at: str, hooked: Install, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a stand-in of the same shape: the real ones need not be installed."""
    module_name, _, rest = at.partition(":")
    class_name, _, method = rest.partition(".")
    module = types.ModuleType(module_name)
    calls: list[Any] = []
    writer = type(class_name, (), {method: lambda self, *a, **k: calls.append((a, k)) or "done"})
    setattr(module, class_name, writer)
    monkeypatch.setitem(sys.modules, module_name, module)
    parts = module_name.split(".")
    for i in range(1, len(parts)):
        if ".".join(parts[:i]) not in sys.modules:
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    hooked(hook())
    assert getattr(writer(), method)("loss", 0.5, step=3) == "done"
    assert calls == [(("loss", 0.5), {"step": 3})]
    assert recorder.words() == ["begin LOGGING", "end LOGGING"]
