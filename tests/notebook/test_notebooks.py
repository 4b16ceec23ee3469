"""Notebooks, run by a real kernel: the examples, and a watch in cells that fail, are interrupted or run again."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
pytest.importorskip("ipykernel", reason="needs ipykernel")
run_sync = pytest.importorskip("jupyter_core.utils").run_sync

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))

# A kernel asks for its sockets to be encrypted, which is not ours to say.
pytestmark = pytest.mark.filterwarnings("default")


class Run(Protocol):
    def __call__(self, notebook: Any, *, errors: bool = False) -> Any: ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a notebook's cells, all in one kernel: to start one and import torch in it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_DATA_DIR"):
            patch.setenv(variable, str(tmp_path_factory.mktemp(variable)))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        kernel = nbclient.NotebookClient(cells(), kernel_name="python3").create_kernel_manager()

        def execute(notebook: Any, *, errors: bool = False) -> Any:
            first = cells("get_ipython().reset()")  # nothing is defined then, and the next cell is In [1]
            client = nbclient.NotebookClient(first, km=kernel)
            with client.setup_kernel():
                client.execute_cell(first.cells[0], 0, store_history=False)
            client.kc.stop_channels()
            client = nbclient.NotebookClient(notebook, km=kernel, timeout=100, allow_errors=errors)
            client.execute()
            client.kc.stop_channels()
            return notebook

        yield execute
        run_sync(kernel.shutdown_kernel)(now=True)


def cells(*sources: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def data(cell: Any, mime: str = "text/plain") -> list[str]:
    return [o["data"][mime] for o in cell.outputs if "data" in o and mime in o["data"]]


def stream(cell: Any) -> str:
    return "".join(o["text"] for o in cell.outputs if o.output_type == "stream")


def pages(cell: Any) -> list[str]:
    """The reports in a cell's frames."""
    found = [re.search(r'srcdoc="([^"]*)"', text) for text in data(cell, "text/html")]
    return [html.unescape(m[1]) for m in found if m]


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda p: p.stem)
def example(request: pytest.FixtureRequest, run: Run) -> tuple[str, Any]:
    return request.param.stem, run(nbformat.read(request.param, as_version=4))


def test_examples_run_and_show_their_report(example: tuple[str, Any]) -> None:
    name, notebook = example
    shown = [cell for cell in notebook.cells if cell.cell_type == "code" and pages(cell)]
    assert len(shown) == 1
    (page,) = pages(shown[0])
    assert [t for t in data(shown[0]) if t.startswith("trainperf")]
    assert page.startswith("<!doctype html>") and "http" not in page.partition("<style>")[2].partition("</style>")[0]
    assert len(page) < 200_000 and "ipykernel_launcher" not in page
    if name == "find_and_fix":
        (found,) = data(notebook.cells[5])
        assert "data-starved" in found and "'In [2]:1" in found  # on a busy machine not the first
        # The line of the cell, by the number that the notebook shows, and the magic's own line counted.
        assert re.search(r"__getitem__ \(In \[2\]:1[01]\)", page), re.findall(r"In \[\d+\]:\d+", page)[:5]
        (before, after) = re.findall(r"[\d.]+ ms", stream(notebook.cells[-1]))
        assert float(after.split()[0]) < 0.5 * float(before.split()[0])


def test_examples_are_committed_without_outputs() -> None:
    assert len(EXAMPLES) >= 2
    for path in EXAMPLES:
        for cell in nbformat.read(path, as_version=4).cells:
            assert cell.cell_type != "code" or (not cell.outputs and cell.execution_count is None), path.name


def test_nbconvert_keeps_the_report(example: tuple[str, Any]) -> None:
    nbconvert = pytest.importorskip("nbconvert", reason="needs nbconvert")
    page, _ = nbconvert.HTMLExporter().from_notebook_node(example[1])
    (found,) = re.findall(r"""<iframe [^>]*srcdoc=(?:"([^"]*)"|'([^']*)')""", page)  # it writes attributes anew
    assert html.unescape("".join(found)).startswith("<!doctype html>")


def test_an_untrusted_notebook_still_says_the_verdict(example: tuple[str, Any]) -> None:
    """A front end that does not trust a notebook takes out frames and scripts."""
    cell = next(c for c in example[1].cells if c.cell_type == "code" and pages(c))
    (text,) = data(cell, "text/html")
    stripped = re.sub(r"<iframe.*?</iframe>", "", text, flags=re.S)
    assert "<script" not in stripped
    verdict = next(t for t in data(cell) if t.startswith("trainperf")).split()[1].rstrip(",:")
    assert verdict in stripped and "ms/step" in stripped and "<pre>trainperf" in stripped
    assert re.search(r'<iframe [^>]*\bsandbox="allow-scripts" srcdoc="', text)  # kept: cut off from the notebook


LOOP = """
import torch, trainperf
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps=8, fail=None):
    for i in range(steps):
        optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
        if i == fail: raise KeyboardInterrupt
"""


def test_cells_that_fail_are_interrupted_or_run_again(run: Run) -> None:
    notebook = run(
        cells(
            LOOP + "%load_ext trainperf\n%load_ext trainperf",
            "left = trainperf.start(verbose=False)\ntrain(fail=3)",
            "left.running, left.run.ended, list(left.run.notes)",
            "again = trainperf.start(verbose=False)\ntrain()",
            "again = trainperf.start(verbose=False)\ntrain()",  # the same cell, run again
            "other = trainperf.start()",  # another cell, while one watches: that is the program's own affair
            "%%trainperf --no-report --as w\ntrain()\n40 + 2",
            "w.run.step_count, again.running, list(again.run.notes), trainperf.stop()",
            "%%trainperf --as w\nfor i in range(3): print(f'\\r{i}/3', end='')\ntrain(fail=2)",  # as a progress bar
            "w.run.ended, w.run.step_count, w.running",
            "%trainperf --as w train(5)",
            "w.run.step_count",
            "%%trainperf --nonsense\ntrain()",
            "%%trainperf\nawait something()",
            "%%trainperf\nthis is no python",
            "trainperf.stop()",
            "%%trainperf -o /nowhere/at/all/a.tpr\ntrain()",
            "'_after_cell' in str(get_ipython().events.callbacks['post_run_cell'])",
            "%unload_ext trainperf",
        ),
        errors=True,
    ).cells
    assert data(notebook[2]) == [
        "(False,\n 'exception',\n ['cell In [2] ended by KeyboardInterrupt and left this watch open; it was closed'])"
    ]
    assert "left this watch open" in stream(notebook[1])
    assert "cell In [4] left this watch open, and was run again" in stream(notebook[4])
    assert [o.ename for o in notebook[5].outputs] == ["AlreadyWatchingError"]
    assert data(notebook[6]) == ["42"] and "8 steps" in stream(notebook[6])
    (text,) = data(notebook[7])
    assert text.startswith("(8,") and "False" in text and "%%trainperf begins another; it was closed" in text
    assert text.rstrip().endswith("None)")
    assert stream(notebook[8]).startswith("\r0/3\r1/3\r2/3") and len(pages(notebook[8])) == 1
    failed = next(o for o in notebook[8].outputs if o.output_type == "error")
    assert failed.ename == "KeyboardInterrupt" and "magics.py" not in "".join(failed.traceback)
    assert data(notebook[9]) == ["('exception', 3, False)"]
    assert data(notebook[11]) == ["5"]
    assert "unrecognized arguments: --nonsense" in stream(notebook[12])
    assert "cannot run a cell with await" in stream(notebook[13])
    assert next(o for o in notebook[14].outputs if o.output_type == "error").ename == "SyntaxError"
    assert data(notebook[15]) == []
    (failed,) = notebook[16].outputs
    assert failed.output_type == "error" and "/nowhere/at/all" in failed.evalue and "During handling" not in str(failed)
    assert data(notebook[17]) == ["False"]  # no watch runs, and nothing of ours is left in the shell
    assert not [o for o in notebook[18].outputs if o.output_type == "error"]


def test_the_verdict_is_there_once(run: Run) -> None:
    """In the report where the cell's last line shows it; else printed as the watch ends."""
    notebook = run(
        cells(
            LOOP,
            "with trainperf.watch() as run:\n    train()\nrun",
            "with trainperf.watch() as run:\n    train()\nrun;",
            "with trainperf.watch() as run:\n    train()\nrun.run.step_count",
            "for _ in range(2):\n    with trainperf.watch() as run:\n        train()\nrun",
            "with trainperf.watch() as run:\n    train(fail=3)\nrun",
            "with trainperf.watch() as run:\n    with trainperf.watch() as run:\n        pass\nrun",
            "other = run\nwith trainperf.watch() as run:\n    train()\nother",
        ),
        errors=True,
    ).cells
    printed = [stream(cell).count("trainperf  ") for cell in notebook[1:]]
    assert printed == [0, 1, 1, 2, 1, 1, 1], printed
    assert len(pages(notebook[1])) == 1 and data(notebook[1])[0].startswith("trainperf  ")
    assert not pages(notebook[2]) and len(pages(notebook[4])) == 1


def test_the_variable_of_a_magic_is_there_within_its_cell(run: Run, tmp_path: Path) -> None:
    """And as the cell's last line it shows the report, once, of the run that has ended."""
    step = "train(4); run.step()\n"
    notebook = run(
        cells(
            LOOP + "%load_ext trainperf",
            f"%%trainperf\n{step}with run.phase('transfer'): pass\nprint(run)\nrun",
            "run.running, run.run.ended, run.run.step_count > 0",
            "%%trainperf --as w\ntrain(4); w.step()\nw",
            "%%trainperf --no-report\ntrain(4)\nrun",
            "%%trainperf --no-report\ntrain(4)\nrun.running",
            "run = 'mine'",
            "%%trainperf\ntrain(4)\nrun",
            "run = w\n%trainperf run.step()",
            f"%%trainperf -o {tmp_path}/a.tpr\ntrain(1)",
            f"%%trainperf -o {tmp_path}/a.tpr\ntrain(1)",
        ),
        errors=True,
    ).cells
    assert not [o for cell in notebook[:-1] for o in cell.outputs if o.output_type == "error"]
    assert "<trainperf.Watch running " in stream(notebook[1])
    for cell in (notebook[1], notebook[3], notebook[4]):
        assert len(pages(cell)) == 1 and "killed, or still" not in data(cell)[0]
        assert "trainperf  " not in stream(cell)  # the verdict is in the report
    assert data(notebook[2]) == ["(False, 'normally', True)"]
    assert not pages(notebook[5]) and data(notebook[5]) == ["True"] and stream(notebook[5]).count("trainperf  ") == 1
    assert "'mine'" in data(notebook[7]) and len(pages(notebook[7])) == 1  # the user's own stays
    assert "a.tpr exists already: give another name, or -f to replace it" in stream(notebook[10])


def test_what_is_between_two_cells_is_in_no_step(run: Run) -> None:
    """Nor is what another cell does, or to look at the watch while it runs; and that look says what the end does."""
    loop = "for x, in loader:\n    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()"
    slow = (
        "import time\n"
        "class Slow(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 320\n"
        "    def __getitem__(self, i): return torch.tensor([float(k) for k in range(8 * i // (i + 1), 4000)])[:8],\n"
        "loader = torch.utils.data.DataLoader(Slow(), batch_size=4)"
    )
    notebook = run(
        cells(
            LOOP + slow,
            f"w = trainperf.start(verbose=False)\n{loop}",
            "import gc; gc.collect(); time.sleep(2); gc.collect()",
            "print(w.summary())",
            loop,
            "time.sleep(1)",
            "w.stop(); print(w.summary())",
            "frame = w.to_pandas(); print(frame.wall_ns.max() / 1e9, w.run.step_count)",
        )
    ).cells
    live, after = stream(notebook[3]), stream(notebook[6])
    assert "the watch still runs" in live and "killed" not in live and "took 0.000 ms" not in live
    for text in (live, after):
        assert "data-starved" in text.splitlines()[0] and "Slow.__getitem__ (In [1]:" in text, text
    longest, steps = stream(notebook[7]).split()
    assert float(longest) < 1 and int(steps) == 160


def test_a_semicolon_silences_the_value_of_a_cell(run: Run) -> None:
    notebook = run(
        cells(
            LOOP + "%load_ext trainperf",
            "%%trainperf --no-report\ntrain(4)\n40 + 2",
            "%%trainperf --no-report\ntrain(4)\n40 + 2;",
            "%trainperf --no-report 40 + 2;",
        )
    )
    shown = [data(cell) for cell in notebook.cells[1:]]
    assert shown == [["42"], [], []]
    assert all("trainperf" in stream(cell) for cell in notebook.cells[1:])


def test_a_variable_run_of_the_users_own_is_not_the_watch(run: Run) -> None:
    notebook = run(
        cells(
            LOOP + "%load_ext trainperf\nrun = None",
            "%%trainperf --no-report\nrun.step()",
            "%%trainperf\ntrain.nope",
            "%%trainperf\nNone.nope",
        ),
        errors=True,
    ).cells
    assert [o.ename for o in notebook[1].outputs if o.output_type == "error"] == ["AttributeError"]
    assert "`run` is a variable of yours, not the watch: give --as NAME" in stream(notebook[1])
    assert all("variable of yours" not in stream(cell) for cell in notebook[2:])
