"""Many log records in a row, whose time is summed: all of it is told as logging, whatever else happens meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import trainperf

STEPS = 12


class Waits(logging.Handler):
    """Of warnings it is long, in pieces: each ends with a wait for the GIL, where another thread wants it too."""

    def emit(self, record: logging.LogRecord) -> None:
        self.format(record)
        if record.levelno == logging.WARNING:
            for _ in range(60):
                time.sleep(0.001)


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = logging.getLogger("test.of.bursts")
    made.setLevel(logging.INFO)
    made.propagate = False
    handler = Waits()
    made.addHandler(handler)
    yield made
    made.removeHandler(handler)


def logged_ms(path: Path, write: Callable[[], None]) -> tuple[float, float]:
    """Of steps that write logs: in truth, and as told."""
    model, x = torch.nn.Linear(64, 64), torch.randn(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    spent = 0.0
    with trainperf.watch(path, verbose=False):
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            start = time.perf_counter()
            write()
            spent += time.perf_counter() - start
    with trainperf.open(path) as run:
        assert run.dropped["late_events"] == 0
        asleep = [d for d in run.detail_totals("sample") if d.state == "blocked"]
        asleep_ns = sum(d.ns for d in asleep)
        elsewhere_ns = sum(d.ns for d in asleep if d.phase != "logging")
        assert asleep_ns and elsewhere_ns <= 0.2 * asleep_ns  # else other findings would name its lines
        return spent * 1e3, run.phase_ns("logging") / 1e6


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.live)])
def test_a_long_record_after_short_ones(log: logging.Logger, tmp_path: Path, beside: bool) -> None:
    stop = threading.Event()

    def hog() -> None:
        while not stop.is_set():
            sum(range(20000))

    def write() -> None:
        for number in range(15):
            log.info("parameter %d", number)
        log.warning("slow")

    thread = threading.Thread(target=hog, daemon=True)
    if beside:
        thread.start()
    try:
        spent, told = logged_ms(tmp_path / "a.tpr", write)
    finally:
        stop.set()
    if beside:
        thread.join()
    assert told == pytest.approx(spent, rel=0.05)


def test_records_that_the_program_makes_itself(log: logging.Logger, tmp_path: Path) -> None:
    record = logging.makeLogRecord({"levelno": logging.WARNING, "name": log.name, "msg": "slow"})
    spent, told = logged_ms(tmp_path / "a.tpr", lambda: log.handle(record))
    assert told == pytest.approx(spent, rel=0.05)
