"""Every shape of training loop, as a real torch loop with a known number of steps; each is cut right, wall to wall."""

from __future__ import annotations

import copy
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from loops import N, Task, batch, watch
from torch.utils.data import DataLoader, IterableDataset
from trainperf import runfile

# With a DataLoader


def test_plain(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader():
            task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == N and run.incomplete == 0
    assert (run.steps.fetches == 1).all() and (run.steps.backwards == 1).all()
    assert (run.steps.optimizer_steps == 1).all()


def test_several_epochs(tmp_path: Path) -> None:
    task = Task()
    loader = task.loader()

    def loop(_: Any) -> None:
        for _epoch in range(3):
            for b in loader:
                task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == 3 * N and run.incomplete == 0
    starts = (run.steps.flags & runfile.HAS_LOADER_START) != 0
    assert [int(i) for i in run.steps.index[starts]] == [0, N, 2 * N]
    assert len(run.loaders) == 1


def test_a_new_loader_each_epoch(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for _epoch in range(3):
            for b in task.loader():
                task.train(b)

    assert watch(loop, tmp_path).step_count == 3 * N


def test_two_loaders_zipped(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for one, two in zip(task.loader(), task.loader(), strict=True):
            task.optimizer.zero_grad()
            (task.loss(one) + task.loss(two)).backward()
            task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N and (run.steps.fetches == 2).all()


@pytest.mark.parametrize("every", [1, 4])
def test_gradient_accumulation(tmp_path: Path, every: int) -> None:
    """A step is one batch; the optimizer steps in every fourth."""
    task = Task()

    def loop(_: Any) -> None:
        for i, b in enumerate(task.loader()):
            task.loss(b).backward()
            if (i + 1) % every == 0:
                task.optimizer.step()
                task.optimizer.zero_grad()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert int(run.steps.optimizer_steps.sum()) == N // every


def test_a_backward_for_each_sample(tmp_path: Path) -> None:
    """As for gradients clipped one by one (DP-SGD)."""
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader():
            for _ in range(40):
                task.loss(b).backward()
            task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N and (run.steps.backwards == 40).all()


def test_gan(tmp_path: Path) -> None:
    generator, critic = Task(), Task(torch.optim.Adam)

    def loop(_: Any) -> None:
        for b in generator.loader():
            critic.train(b)
            generator.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert (run.steps.backwards == 2).all() and (run.steps.optimizer_steps == 2).all()


@pytest.mark.parametrize("with_loader", [True, False])
def test_sharpness_aware(tmp_path: Path, with_loader: bool) -> None:
    """SAM: forward and backward, a climb by hand, forward and backward again from there, and one optimizer step."""
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader() if with_loader else (batch() for _ in range(N)):
            task.optimizer.zero_grad()
            task.loss(b).backward()
            climbs = [0.05 * p.grad for p in task.model.parameters() if p.grad is not None]
            for sign in (1, -1):
                with torch.no_grad():
                    for p, climb in zip(task.model.parameters(), climbs, strict=True):
                        p.add_(climb, alpha=sign)
                if sign == 1:
                    task.optimizer.zero_grad()
                    task.loss(b).backward()
            task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N and run.incomplete == 0
    assert (run.steps.backwards == 2).all() and (run.steps.optimizer_steps == 1).all()


def test_lbfgs(tmp_path: Path) -> None:
    task = Task(torch.optim.LBFGS, max_iter=4)

    def loop(_: Any) -> None:
        for b in task.loader():

            def closure() -> torch.Tensor:
                task.optimizer.zero_grad()
                loss = task.loss(b)  # noqa: B023
                loss.backward()
                return loss

            task.optimizer.step(closure)  # type: ignore[arg-type]

    run = watch(loop, tmp_path)
    assert run.step_count == N
    # Most of its own work lies between its closures, which are quick here.
    assert run.phase_ns("optimizer") > run.phase_ns("forward")
    assert (run.steps.optimizer_steps == 1).all() and int(run.steps.backwards.max()) > 1


def test_sam_two_backwards_and_two_steps_a_batch(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader():
            task.train(b)
            task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == N and (run.steps.backwards == 2).all()


def test_iterable_dataset(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for _ in range(N * 4):
                yield torch.randn(8), torch.randn(1)

    task = Task()

    def loop(_: Any) -> None:
        for b in DataLoader(Stream(), batch_size=4):
            task.train(b)

    assert watch(loop, tmp_path).step_count == N


def test_workers(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader(num_workers=2):
            task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == N
    (loader,) = run.loaders.values()
    assert loader.description["num_workers"] == 2
    assert set(loader.fetches.ready) <= set(range(64))


def test_next_inside_of_the_step(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        it = iter(task.loader())
        for _i in range(N):
            task.train(next(it))

    assert watch(loop, tmp_path).step_count == N


def test_grad_scaler(tmp_path: Path) -> None:
    task = Task()
    scaler = torch.amp.GradScaler("cpu")

    def loop(_: Any) -> None:
        for b in task.loader():
            task.optimizer.zero_grad()
            scaler.scale(task.loss(b)).backward()
            scaler.step(task.optimizer)
            scaler.update()

    run = watch(loop, tmp_path)
    assert run.step_count == N and (run.steps.optimizer_steps == 1).all()


def test_teacher(tmp_path: Path) -> None:
    """A teacher is in eval mode, under no_grad, in every step: forward, and no validation."""
    task = Task()
    teacher = copy.deepcopy(task.model)

    def loop(_: Any) -> None:
        teacher.eval()
        for b in task.loader():
            with torch.no_grad():
                target = teacher(b[0])
            task.optimizer.zero_grad()
            (task.model(b[0]) - target).square().mean().backward()
            task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert run.phase_ns("validation") == 0


def test_two_steps_per_batch(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader():
            for part in range(2):
                task.train([t[part * 2 : part * 2 + 2] for t in b])

    run = watch(loop, tmp_path)
    assert run.step_count == N and (run.steps.optimizer_steps == 2).all()


def test_loader_read_by_a_background_thread(tmp_path: Path) -> None:
    """The step thread meets no DataLoader: one step per iteration of its optimizer."""
    task = Task()

    def loop(_: Any) -> None:
        batches: queue.Queue[Any] = queue.Queue(maxsize=2)

        def read() -> None:
            for b in task.loader():
                batches.put(b)
            batches.put(None)

        thread = threading.Thread(target=read, name="reader")
        thread.start()
        while (b := batches.get()) is not None:
            task.train(b)
        thread.join()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    (loader,) = run.loaders.values()
    assert loader.fetches.off_thread_count == N


def test_training_on_a_thread_that_is_not_the_main_one(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        def train() -> None:
            for b in task.loader():
                task.train(b)

        thread = threading.Thread(target=train, name="trainer")
        thread.start()
        thread.join()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert run.step_thread is not None and run.step_thread.name == "trainer"


def test_two_threads_that_train_at_once_are_told_of(tmp_path: Path) -> None:
    both, one = threading.Barrier(2), threading.Lock()

    def train() -> None:
        task = Task()
        for b in task.loader():
            with one:  # a backward within the other's may be a part of that
                task.train(b)
            both.wait(10)

    def loop(_: Any) -> None:
        threads = [threading.Thread(target=train) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run = watch(loop, tmp_path)
    assert "another thread trains too: steps are one thread's at a time" in run.notes


def test_a_batch_that_is_thrown_away(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for i, b in enumerate(task.loader(4 * N)):
            if i == 40:
                continue  # a batch that is thrown away
            task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == int(run.steps.backwards.sum()) == 4 * N - 1
    assert run.steps.fetches[40] == 2 and run.incomplete == 1


# Without a DataLoader


def test_no_loader(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for _i in range(N):
            task.train(batch())

    assert watch(loop, tmp_path).step_count == N


def test_no_loader_and_micro_batches_fetched_ahead(tmp_path: Path) -> None:
    """nanoGPT's loop: the next batch is got between forward and backward."""
    task = Task()

    def loop(_: Any) -> None:
        b = batch()
        for _i in range(N):
            for _micro in range(4):
                loss = task.loss(b) / 4
                b = batch()
                loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad(set_to_none=True)

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert (run.steps.backwards == 4).all() and (run.steps.optimizer_steps == 1).all()


def test_no_optimizer_at_all(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for _i in range(N):
            task.loss(batch()).backward()
            with torch.no_grad():
                for p in task.model.parameters():
                    assert p.grad is not None
                    p.sub_(p.grad, alpha=0.01)
                    p.grad = None

    assert watch(loop, tmp_path).step_count == N


# Explicit


@pytest.mark.parametrize("optimizer", [False, True])
def test_grad_in_place_of_backward(tmp_path: Path, optimizer: bool) -> None:
    task = Task()
    parameters = list(task.model.parameters())

    def loop(_: trainperf.Watch) -> None:
        for b in task.loader():
            gradients = torch.autograd.grad(task.loss(b), parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if optimizer:
                    parameter.grad = gradient
                else:
                    parameter.data -= 0.01 * gradient
            if optimizer:
                task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert (run.steps.backwards == 1).all() and (run.steps.fetches == 1).all()


def test_gradient_penalty(tmp_path: Path) -> None:
    """autograd.grad inside of a step, of the input and of the parameters, also before the first backward."""
    task = Task()

    def loop(_: trainperf.Watch) -> None:
        for x, y in task.loader():
            x.requires_grad_()
            loss = task.loss((x, y))
            norms = torch.autograd.grad(loss, list(task.model.parameters()), retain_graph=True)  # to balance losses
            (penalty,) = torch.autograd.grad(loss, x, create_graph=True)
            task.optimizer.zero_grad()
            (loss / norms[0].norm() + penalty.square().sum()).backward()
            task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N and (run.steps.fetches == 1).all()
    assert (run.steps.backwards[1:] == 1).all()


def test_run_step_overrides_everything(tmp_path: Path) -> None:
    task = Task()

    def loop(run: trainperf.Watch) -> None:
        run.step()
        for i, b in enumerate(task.loader()):
            task.train(b)
            if i % 3 == 2:
                run.step()

    assert watch(loop, tmp_path).step_count == N // 3


def test_phases_by_hand(tmp_path: Path) -> None:
    task = Task()

    def loop(run: trainperf.Watch) -> None:
        for b in task.loader():
            with run.phase("transfer"):
                time.sleep(0.002)
            task.train(b)
            with trainperf.phase("checkpoint"), run.phase("logging"):
                time.sleep(0.001)

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert run.phase_ns("transfer") >= N * 2_000_000
    assert run.phase_ns("logging") >= N * 1_000_000
    assert run.cause_ns("h2d_copy") > 0


# torch.compile


def test_compiled_fullgraph(tmp_path: Path) -> None:
    """One compile in the first step: a warm-up, named and kept out of the median."""
    task = Task()
    compiled = torch.compile(task.model, backend="aot_eager", fullgraph=True)

    def loop(_: Any) -> None:
        for b in task.loader():
            task.optimizer.zero_grad()
            task.loss(b, compiled).backward()
            task.optimizer.step()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    compiling = run.steps.compile_ns > 0
    assert [int(i) for i in run.steps.index[compiling]] == [0]
    assert int(run.steps.flags[0]) & runfile.WARM_UP
    assert run.wall_ms_quantile(0.5) < run.steps.compile_ns[0] / 1e6
    assert run.span_total("compile").count >= 1


@pytest.mark.parametrize("first", [True, False])
def test_as_many_calls_of_step_are_as_many_steps_wherever_in_the_body(tmp_path: Path, first: bool) -> None:
    """Without backward, optimizer and DataLoader: nothing else tells of steps."""
    path = tmp_path / "run.tpr"
    with trainperf.watch(path, verbose=False) as run:
        for _ in range(12):
            if first:
                run.step()
            time.sleep(0.05)
            if not first:
                run.step()
    with trainperf.open(path) as told:
        assert told.step_count == 12
