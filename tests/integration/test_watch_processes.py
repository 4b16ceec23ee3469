"""A watched program that forks, spawns workers or starts others: each process has its own watch, or none."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import trainperf
import warm
from children import CHILD, child, train


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tpr"


def test_fork_inside(path: Path) -> None:
    """The child reports nothing, leaves nothing patched, prints nothing, and may watch itself."""
    body = """
        plain = torch.autograd.backward
        with trainperf.watch(path) as run:
            train(5)
            pid = os.fork()
            if pid == 0:
                ok = torch.autograd.backward is plain and not run.running
                train(100)
                run.step()
                run.stop()
                with trainperf.watch(path + ".child", verbose=False) as own:
                    train(3)
                ok = ok and own.run.step_count == 3 and own.run.step_thread.name == "MainThread"
                sys.stderr.flush()
                if not ok:
                    os._exit(1)
                sys.exit(0)   # leaves by the parent's with, and runs atexit
            assert os.waitpid(pid, 0)[1] == 0
            train(5)
    """
    done = child(body, path)
    run = trainperf.open(path)
    assert run.step_count == 10 and run.ended == "normally"
    assert done.stderr.count("trainperf show") == 1
    assert trainperf.open(f"{path}.child").step_count == 3


def test_many_forks_while_threads_run(path: Path) -> None:
    body = """
        done = threading.Event()
        def churn():
            while not done.is_set():
                (weight * 1).sum().backward()
        threads = [threading.Thread(target=churn) for _ in range(2)]
        with trainperf.watch(path, verbose=False):
            for thread in threads: thread.start()
            for i in range(30):
                pid = os.fork()
                if pid == 0:
                    trainperf.stop()
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            done.set()
            for thread in threads: thread.join()
        print("fine")
    """
    assert child(body, path).stdout == "fine\n"


SLOW_TO_START = (pytest.param(method, marks=pytest.mark.live) for method in ("spawn", "forkserver"))


@pytest.mark.parametrize("method", ["fork", *SLOW_TO_START])
def test_workers(path: Path, tmp_path: Path, method: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        CHILD.replace("path = sys.argv[1]", "")
        + textwrap.dedent(f"""
            if __name__ == "__main__":
                with trainperf.watch(sys.argv[1]):
                    train(10, num_workers=2, multiprocessing_context={method!r})
        """)
    )
    done = warm.run([str(script), str(path)])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trainperf show") == 1
    run = trainperf.open(path)
    assert run.step_count == 10
    assert next(iter(run.loaders.values())).description["multiprocessing_context"] == method


def test_a_main_module_that_spawned_workers_import_again(path: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, torch, trainperf
            from torch.utils.data import DataLoader

            class Data:
                def __len__(self): return 12
                def __getitem__(self, i):
                    if i >= 12: raise IndexError
                    return torch.ones(1)

            watch = trainperf.start(sys.argv[1], overwrite="again" in sys.argv)
            weight = torch.ones(1, requires_grad=True)

            def main():
                for batch in DataLoader(Data(), batch_size=1, num_workers=1, multiprocessing_context="spawn"):
                    (weight * batch).sum().backward()

            if __name__ == "__main__":
                main()
                watch.stop()
            """
        )
    )
    for again in ([], ["again"]):
        done = warm.run([str(script), str(path), *again])
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("trainperf show") == 1 and "was saved to" not in done.stderr, done.stderr
        assert trainperf.open(path).step_count == 12


def test_subprocess_inside(path: Path) -> None:
    with trainperf.watch(path, verbose=False):
        train(3)
        done = subprocess.run([sys.executable, "-c", "print('hello')"], capture_output=True, text=True, check=True)
        assert done.stdout == "hello\n" and done.stderr == ""
        train(2)
    assert trainperf.open(path).step_count == 5
