"""What workers do, by samples of their stacks: by activity, and the line that TP102 names."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from trainperf.findings.facts import Facts
from trainperf.findings.loaders import activity_of, inside
from trainperf.runfile import Frame
from verdicts import TRAIN, Make, only

SITE = "/venv/lib/python3.11/site-packages"
DATA = f"{SITE}/torch/utils/data/_utils"
STDLIB = "/usr/lib/python3.11"
LOOP = (f"{DATA}/worker.py:349 _worker_loop", f"{STDLIB}/multiprocessing/process.py:108 BaseProcess.run")
FETCH = (f"{DATA}/fetch.py:52 _MapDatasetFetcher.fetch", *LOOP)
SAMPLE = (f"{TRAIN}:88 Images.__getitem__", f"{DATA}/fetch.py:52 _MapDatasetFetcher.fetch.<locals>.<listcomp>", *FETCH)
OPEN, SLEEP, POLL = 257, 230, 7  # x86-64


def frames(*texts: str) -> list[Frame]:
    found = []
    for text in texts:
        place, _, function = text.partition(" ")
        file, _, line = place.rpartition(":")
        found.append(Frame(file, function, int(line)))
    return found


@pytest.mark.parametrize(
    ("stack", "activity"),
    [
        (SAMPLE, "samples"),
        ((f"{SITE}/PIL/Image.py:3400 open", *SAMPLE), "samples"),
        ((f"{SITE}/torchvision/transforms/functional.py:470 resize", *SAMPLE), "transforms"),
        ((f"{TRAIN}:20 augment", *SAMPLE), "transforms"),
        ((f"{DATA}/collate.py:398 default_collate", *FETCH), "collate"),
        ((f"{TRAIN}:40 pad", *FETCH), "collate"),
        (
            (
                f"{SITE}/torch/storage.py:380 UntypedStorage._new_shared",
                f"{DATA}/collate.py:270 collate_tensor_fn",
                *FETCH,
            ),
            "shared memory",
        ),
        (
            (
                f"{STDLIB}/multiprocessing/connection.py:947 wait",
                f"{STDLIB}/multiprocessing/queues.py:113 Queue.get",
                *LOOP,
            ),
            "idle",
        ),
        ((f"{STDLIB}/multiprocessing/queues.py:89 Queue.put", *LOOP), "queue"),
        (LOOP, "other"),
        ((f"{STDLIB}/multiprocessing/process.py:108 BaseProcess.run",), "other"),
    ],
)
def test_what_a_worker_is_doing_is_told_by_its_stack(stack: tuple[str, ...], activity: str) -> None:
    assert activity_of(frames(*stack)) == activity


def slow(make: Make) -> RunFile:
    file = make(cpus="8", machine="x86_64").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=2, dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.4, seconds=5, states={"R": 4, "S": 3})
    return file


def test_the_line_that_takes_the_workers_time_is_named(make: Make) -> None:
    file = slow(make)
    opens = (f"{SITE}/PIL/Image.py:3400 open", *SAMPLE)
    file.inside(1, 432, *opens, state="blocked", call=OPEN).inside(1, 288, *opens, state="native")
    file.inside(1, 280, f"{TRAIN}:90 Images.__getitem__", *SAMPLE[1:], state="python")
    file.inside(1, 500, f"{STDLIB}/multiprocessing/queues.py:113 Queue.get", *LOOP, state="blocked", call=POLL)
    f = only(file)
    assert f.id == "TP102" and f.where == "train.py:88"
    assert "; 72% of the busy time is in PIL.Image.open, called at Images.__getitem__ (train.py:88)" in f.why
    assert "at Images.__getitem__ (train.py:88): waiting for a file 60%, CPU 40%" in f.evidence
    assert f.fix.split("\n")[-1].startswith("# images: resize them once on disk")


def test_a_line_without_a_frame_below_it_is_named_itself(make: Make) -> None:
    f = only(slow(make).inside(1, 100, *SAMPLE, state="blocked", call=SLEEP))
    assert "; 100% of the busy time is at Images.__getitem__ (train.py:88)" in f.why
    assert "at Images.__getitem__ (train.py:88): sleeping 100%" in f.evidence


@pytest.mark.parametrize("samples", [0, 49])
def test_few_samples_name_no_line(make: Make, samples: int) -> None:
    file = slow(make)
    if samples:
        file.inside(1, samples, *SAMPLE)
    f = only(file)
    assert f.where == "train.py:9" and "of the work" not in f.why


def test_time_that_many_lines_share_names_none(make: Make) -> None:
    file = slow(make)
    for line in range(10):
        file.inside(1, 100, f"{TRAIN}:{100 + line} Images.__getitem__", *SAMPLE[1:])
    assert "of the work" not in only(file).why


def test_a_forked_workers_stack_goes_on_into_the_training_and_that_is_left_out(make: Make) -> None:
    collates = f"{DATA}/collate.py:398 default_collate"
    file = slow(make).inside(1, 60, collates, *FETCH, f"{TRAIN}:30 main")
    (line,) = inside(Facts(file.open()), file.open().loaders.values()).lines
    assert (line.activity, line.frame.function) == ("collate", "default_collate")


def test_stacks_that_were_not_read_count_for_nothing(make: Make) -> None:
    file = slow(make).inside(1, 60, *SAMPLE).inside(1, 1000)
    found = inside(Facts(file.open()), file.open().loaders.values())
    assert (found.samples, found.busy) == (60, 60)


@pytest.mark.parametrize(
    ("call", "others", "says"),
    [
        (SLEEP, 100, "2 workers of Digits are blocked, mostly sleeping (on the CPU only 2% of the time)"),
        (OPEN, 100, "2 workers of Digits are blocked, mostly waiting for a file (on the CPU only 2% of the time)"),
        (OPEN, 900, "2 workers of Digits are blocked by storage, network, a lock or a sleep (on the CPU only 2% of"),
        (999, 100, "2 workers of Digits are blocked by storage, network, a lock or a sleep (on the CPU only 2% of"),
    ],
)
def test_what_blocks_workers_is_named_where_samples_show_it(make: Make, call: int, others: int, says: str) -> None:
    file = make(cpus="8", machine="x86_64").steps(100, data_wait=8.0, compute=8.0)
    file.loader(1, fetches=100, wait=800, ready={0: (95, 795), 1: (5, 5)}, num_workers=2, dataset_at=f"{TRAIN}:9")
    for pid in (71, 72):
        file.worker(1, pid, cpu_share=0.02, seconds=5, states={"S": 7})
    file.inside(1, 900, *SAMPLE, state="blocked", call=call).inside(1, others, *SAMPLE, state="blocked", call=POLL)
    f = only(file)
    assert f.variant == "waiting" and says in f.why, f.why
