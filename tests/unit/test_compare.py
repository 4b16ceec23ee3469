"""Comparing two runs: what is told, what is noise, and what cannot be told."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from compared_runs import COMPUTE, compared, noisy, pair, write
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.comparison.bootstrap import Floats, draw, mean_per_step, ratio_interval, replicates
from trainperf.comparison.sample import rows_of, sample
from trainperf.report.compare_html import render
from trainperf.runfile.schema import CAUSES

# What is told


@pytest.mark.parametrize(("scale", "kind"), [(1.1, "slower"), (0.9, "faster"), (1.0, "same")])
def test_ten_percent_is_found_and_nothing_is_not(tmp_path: Path, scale: float, kind: str) -> None:
    result = compared(*pair(tmp_path, seed=4, scale=scale))
    assert result.kind == kind, result.verdict
    assert result.relative is not None
    change, low, high = result.relative
    assert low < scale - 1 < high and low < change < high


def test_the_cause_that_changed_is_the_first_and_causes_sum_to_the_step(tmp_path: Path) -> None:
    result = compared(*pair(tmp_path, gil_wait=30.0))
    assert result.kind == "slower" and result.causes[0].name == "gil_wait" and result.causes[0].told
    assert result.causes[0].difference == pytest.approx(30.0)
    assert result.total is not None
    for field in ("before", "after", "difference"):
        assert sum(getattr(c, field) for c in result.causes) == pytest.approx(getattr(result.total, field))
    assert result.verdict.endswith("compute-bound -> gil-many")
    assert result.new == ("TP202 gil-many",) and result.gone == ()


def test_warm_up_steps_are_left_out(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    file = RunFile(b)
    for i in range(300):
        file.step(compute=COMPUTE if i > 5 else 5000.0, flags=16 if i <= 5 else 0)
    result = compared(a, file.host(5, process_cpus=1, idle_cpus=1).build())
    assert result.kind == "same" and result.after.left_out == 6, result.verdict


def test_the_same_pair_gives_the_same_words_and_seeds_differ_little(tmp_path: Path) -> None:
    a, b = pair(tmp_path, scale=1.1)
    assert compared(a, b) == compared(a, b)
    relative = [compared(a, b, seed=seed).relative for seed in (1, 2)]
    assert relative[0] != relative[1]
    assert np.allclose(relative[0] or (), relative[1] or (), atol=0.01)


def test_turned_around_it_says_the_opposite(tmp_path: Path) -> None:
    a, b = pair(tmp_path, scale=1.2)
    there, back = compared(a, b), compared(b, a)
    assert (there.kind, back.kind) == ("slower", "faster")
    assert there.total is not None and back.total is not None
    assert there.total.difference == pytest.approx(-back.total.difference)


# How often it is wrong


def alarms(
    make: Callable[[np.random.Generator], Floats], scale: float, pairs: int, between_runs: float, paired: bool = False
) -> float:
    found = 0
    for seed in range(pairs):
        rng = np.random.default_rng(seed)
        a, b = make(rng)[:, None], scale * make(rng)[:, None]
        count = np.ones(len(a))
        means = mean_per_step(a, count)[0], mean_per_step(b, count)[0]
        drawn = replicates(a, count, draw(2 * seed)), replicates(b, count, draw(2 * seed + 1 - paired))
        low, high = ratio_interval(drawn[0][:, 0], drawn[1][:, 0], math.log(means[1] / means[0]), between_runs)
        found += low > 0 or high < 0
    return found / pairs


def independent(rng: np.random.Generator) -> Floats:
    return rng.gamma(9.0, 1 / 9, 400)


def test_the_interval_alone_holds_its_95_percent() -> None:
    """Without the allowance for what runs differ by beside their steps: close to the one in twenty that it promises."""
    rates = alarms(independent, 1.0, 400, 0.0), alarms(lambda rng: noisy(rng, 400), 1.0, 400, 0.0)
    rates = (*rates, alarms(lambda rng: noisy(rng, 400), 1.0, 400, 0.0, paired=True))
    print(
        f"false alarms: independent steps {rates[0]:.3f}, correlated and drifting {rates[1]:.3f}, paired {rates[2]:.3f}"
    )
    assert max(rates) < 0.08
    assert rates[0] > 0.01  # an interval that is never left is too wide


def test_with_the_allowance_false_alarms_are_rare_and_a_slow_down_is_found() -> None:
    def make(rng: np.random.Generator) -> Floats:
        return noisy(rng, 400)

    rates = alarms(make, 1.0, 300, 0.05), alarms(make, 1.12, 200, 0.05)
    print(f"false alarms {rates[0]:.3f}; a slow-down by 12 % found {rates[1]:.3f}")
    assert rates[0] < 0.02 and rates[1] > 0.95


def test_what_changes_alike_in_both_runs_is_no_noise(tmp_path: Path) -> None:
    """The second half of the program is slower, in both runs; one of them is slower by 10 % besides."""
    rng = np.random.default_rng(8)
    course = np.where(np.arange(400) < 220, COMPUTE, 1.5 * COMPUTE)
    a = write(tmp_path / "a.tpr", course * noisy(rng, 400))
    b = write(tmp_path / "b.tpr", course * noisy(rng, 400))
    c = write(tmp_path / "c.tpr", 1.1 * course * noisy(rng, 400))
    shorter = write(tmp_path / "shorter.tpr", 1.1 * course[:300] * noisy(rng, 300))
    assert (compared(a, b).kind, compared(a, c).kind) == ("same", "slower")
    assert compared(a, shorter).kind != "slower"  # which half has more of it cannot be told from the program


def test_a_single_stall_is_noise(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a = write(tmp_path / "a.tpr", noisy(rng, 300, COMPUTE))
    stalled = noisy(rng, 300, COMPUTE)
    stalled[150] += 20_000
    result = compared(a, write(tmp_path / "b.tpr", stalled))
    assert result.kind == "unknown" and "too few steps for this much noise" in result.verdict


# Long runs


def test_rows_of_many_steps_are_observations_of_their_mean(tmp_path: Path) -> None:
    import trainperf

    rng = np.random.default_rng(3)
    single, other = noisy(rng, 2048, COMPUTE), noisy(rng, 2048, COMPUTE)
    a = RunFile(tmp_path / "a.tpr").host(10, process_cpus=1, idle_cpus=1)
    for ms in single:
        a.step(compute=float(ms))
    with trainperf.open(a.merge_steps(8).build()) as run:
        merged = sample(run, rows_of([run]))
    assert (merged.steps, merged.rows, merged.steps_per_row) == (2048, 256, 8)
    assert merged.mean("wall") == pytest.approx(single.mean(), rel=1e-6)
    b = write(tmp_path / "b.tpr", other)
    result = compared(a.path, b)
    assert result.kind == "same" and result.before.steps_per_row == 8, result.verdict
    # As sure as of single steps: blocks are as long in steps.
    c = write(tmp_path / "c.tpr", single)
    assert result.relative is not None
    whole = compared(c, b).relative
    assert whole is not None
    assert result.relative[2] - result.relative[1] == pytest.approx(whole[2] - whole[1], rel=0.3)


# The machine


def test_a_busy_machines_time_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(5)
    a = write(tmp_path / "a.tpr", noisy(rng, 300, COMPUTE), host=(1.0, 0.6), descheduled=20.0)
    b = write(tmp_path / "b.tpr", noisy(rng, 300, COMPUTE), host=(1.0, 0.6), descheduled=40.0)
    result = compared(a, b)
    assert result.kind == "same" and result.machine_left_out, result.verdict
    assert "CPU contention excluded" in result.verdict and "20 -> 40 ms/step" in result.verdict
    assert any("other processes used 0.6 CPUs" in note for note in result.notes)
    assert result.wall is not None and result.wall.difference == pytest.approx(20.0, abs=4.0) and result.wall.told
    assert main(["compare", str(a), str(b)]) == 0
    table = capsys.readouterr().out.partition("ms/step   ")[2]
    rows = [row.split()[0] for row in table.splitlines()[1:]]
    assert rows[:3] == ["step", "the", "compute"] and rows[3] == "descheduled"
    legend = render(result).partition('<ul class="legend small">')[2].partition("</ul>")[0]
    assert "<b>descheduled</b>" in legend  # which the bars show


def test_a_run_that_hardly_ran_is_not_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a = write(tmp_path / "a.tpr", noisy(rng, 300, COMPUTE), host=(1.0, 0.6))
    b = write(tmp_path / "b.tpr", noisy(rng, 300, 3 * COMPUTE), host=(0.4, 1.6), descheduled=300.0)
    assert "CPU contention took 6" in compared(a, b).verdict


def test_time_kept_off_the_cpus_by_its_own_threads_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a = write(tmp_path / "a.tpr", noisy(rng, 300, COMPUTE), host=(1.0, 0.0), descheduled=2.0)
    b = write(tmp_path / "b.tpr", noisy(rng, 300, COMPUTE), host=(2.0, 0.0), descheduled=40.0)
    result = compared(a, b)
    assert result.kind == "slower" and not result.machine_left_out and result.causes[0].name == "descheduled"


def test_others_on_cpus_that_it_may_not_use_keep_it_off_none(tmp_path: Path) -> None:
    """Two of a node's 16 CPUs are the run's."""
    rng = np.random.default_rng(5)
    files = []
    for waits in (2.0, 40.0):
        file = RunFile(tmp_path / f"{waits}.tpr", cpus="2").host(10, process_cpus=1.0, other_cpus=5.0, idle_cpus=10.0)
        for ms in noisy(rng, 300, COMPUTE):
            file.step(compute=float(ms), descheduled=waits)
        files.append(file.build())
    result = compared(*files)
    assert result.kind == "slower" and not result.machine_left_out, result.verdict


def test_processes_that_it_starts_are_its_own_doing(tmp_path: Path) -> None:
    """Beside others that are there in both runs."""
    rng = np.random.default_rng(5)
    files = []
    for name, children, waits in (("a", 0.0, 2.0), ("b", 1.0, 40.0)):
        file = RunFile(tmp_path / f"{name}.tpr", children_cpu_before_ns="0")
        for ms in noisy(rng, 300, COMPUTE):
            file.step(compute=float(ms), descheduled=waits)
        file.meta(children_cpu_after_ns=str(round(children * (300 * (COMPUTE + waits) * 1e6))))
        files.append(file.host(10, process_cpus=0.6, other_cpus=0.4 + children).build())
    result = compared(*files)
    assert result.kind == "slower" and not result.machine_left_out and result.causes[0].name == "descheduled"


def test_when_nobody_knows_who_used_the_cpus_it_cannot_be_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a = write(tmp_path / "a.tpr", noisy(rng, 300, COMPUTE), host=None)
    b = write(tmp_path / "b.tpr", noisy(rng, 300, COMPUTE), host=None, descheduled=40.0)
    assert compared(a, b).verdict.startswith("cannot tell: +")


def test_another_machine_altogether(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a = write(tmp_path / "a.tpr", noisy(rng, 300, COMPUTE), host=(0.9, 0.0))
    b = write(tmp_path / "b.tpr", noisy(rng, 300, COMPUTE * 1.15), host=(0.9, 1.1))
    assert "the machine was not the same" in compared(a, b).verdict
    assert "the machine was not the same" in compared(a, b, between_runs=0.05).verdict


@pytest.mark.parametrize("host", [(0.9, 0.0), (0.9, 1.0), None])
def test_the_noise_that_was_given_is_told_as_the_reason(tmp_path: Path, host: tuple[float, float] | None) -> None:
    rng = np.random.default_rng(5)
    a, b = (write(tmp_path / f"{name}.tpr", noisy(rng, 300, COMPUTE), host=host) for name in "ab")
    told = "cannot tell: --noise says that two runs of one program differ by 30% here; anything from "
    assert compared(a, b, between_runs=0.3).verdict.startswith(told)
    assert compared(a, b).kind == "same"


# What cannot be compared


def test_too_few_steps_are_one_line_with_their_numbers(tmp_path: Path) -> None:
    a, b = pair(tmp_path, steps=300)
    few = write(tmp_path / "few.tpr", [COMPUTE])
    assert compared(a, few).verdict == (
        "cannot tell: too few steps: the second run has 1 step after 1 of warm-up; at least 20 are needed"
    )
    assert compared(few, few).verdict.count("run has 1 step") == 2
    none = RunFile(tmp_path / "none.tpr").build()
    assert compared(none, b).verdict == f"cannot tell: no training step was seen in the first run ({none})"


def test_different_loops(tmp_path: Path) -> None:
    a = RunFile(tmp_path / "a.tpr").steps(50, compute=5.0).build()
    b = RunFile(tmp_path / "b.tpr").steps(50, data_wait=5.0).build()
    assert "different loops: no cause has time in both" in compared(a, b).verdict
    c = RunFile(tmp_path / "c.tpr").steps(50, compute=5.0, backwards=4).build()
    assert (
        "a step is not the same thing in both: 1 backwards in the first run, 4 in the second" in compared(a, c).verdict
    )


def test_what_else_differs_is_noted(tmp_path: Path) -> None:
    a, b = tmp_path / "a.tpr", tmp_path / "b.tpr"
    for path, size, meta in ((a, 8, {"host": "box"}), (b, 64, {"host": "other", "argv": json.dumps(["/x/eval.py"])})):
        file = RunFile(path, **meta).steps(60, compute=5.0)  # type: ignore[arg-type]
        file.loader(1, fetches=60, wait=6, batch_size=size)
        file.build()
    notes = "\n".join(compared(a, b).notes)
    assert "not the same host: box -> other" in notes and "not the same script: train.py -> eval.py" in notes
    assert "not the same batch size: 8 -> 64" in notes


# The command


@pytest.mark.parametrize(
    ("scale", "options", "code"),
    [
        (1.0, [], 0),
        (1.2, [], 5),
        (0.8, [], 5),
        (1.2, ["--fail-over", "5%"], 3),
        (1.2, ["--fail-over", "50 %"], 0),
        (0.8, ["--fail-over", "5"], 0),
        (1.0, ["--fail-over=5%"], 0),
    ],
)
def test_exit_codes(tmp_path: Path, scale: float, options: list[str], code: int) -> None:
    a, b = pair(tmp_path, seed=4, scale=scale)
    assert main(["compare", str(a), str(b), *options]) == code


@pytest.mark.parametrize("options", [[], ["--fail-over", "5%"], ["--json"]])
def test_what_cannot_be_told_is_four(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    a, _ = pair(tmp_path)
    assert main(["compare", str(a), str(RunFile(tmp_path / "none.tpr").build()), *options]) == 4
    assert "cannot tell" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["five", "-5%", "0", "nan", ""])
def test_a_limit_that_is_none_is_wrong_usage(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a.tpr", "b.tpr", f"--fail-over={text}"]) == 2
    assert "is not a percentage" in capsys.readouterr().err


def test_a_run_alone_is_wrong_usage_and_says_which_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a.tpr"]) == 2
    assert capsys.readouterr().err.endswith("arguments are required: B\n")


def test_a_missing_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, _ = pair(tmp_path)
    assert main(["compare", str(a), str(tmp_path / "no.tpr")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("trainperf compare: ") and error.count("\n") == 1


def test_the_table_and_the_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path, gil_wait=30.0)
    main(["compare", str(a), str(b), "--json"])
    document = json.loads(capsys.readouterr().out)
    main(["compare", str(a), str(b)])
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert " ".join(text.split()[1:12]).startswith(document["verdict"]["text"][:30])
    assert document["verdict"]["kind"] == "slower" and set(document["causes"]) <= set(CAUSES)
    assert document["causes"]["gil_wait"]["difference_ms"] == pytest.approx(30.0)
    assert "gil_wait         0.00     30.00    +30.00   +28." in text, text
    assert document["findings"]["new"] == ["TP202 gil-many"] and "New   TP202 gil-many" in text


def test_names_of_a_file_move_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path)
    evil = a.rename(tmp_path / ("\x1b[31m<script>" + "x" * 100 + "🙂.tpr"))
    assert main(["compare", str(evil), str(b)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and all(len(line) <= 80 for line in out.splitlines())


# The page


def page(*words: str) -> tuple[int, str]:
    code = main(["compare", *words])
    path = Path(words[words.index("-o") + 1])
    return code, path.read_text() if path.exists() else ""


def test_the_page_is_one_file_that_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path, gil_wait=30.0)
    code, text = page(str(a), str(b), "-o", str(tmp_path / "c.html"), "--json")
    document = json.loads(capsys.readouterr().out)
    assert code == 5 and len(text) < 60_000
    assert document["verdict"]["text"][1:] in text.replace("-&gt;", "->")
    assert not re.search(
        r"(?:src|href)=[\"']?(?:https?:|//)|<script(?! type=\"application/json\")|@import|url\(h", text
    )
    data = text.partition('id="trainperf-compare">')[2].partition("</script>")[0]
    assert json.loads(data) == document
    assert text.count('<th scope="row">gil_wait') == 1 and "TP202 gil-many" in text


def test_a_page_of_what_cannot_be_told_and_of_evil_names(tmp_path: Path) -> None:
    a = RunFile(tmp_path / "<script>alert(1)<'.tpr", name="</title><script>x" + "\U0001f642" * 9000).build()
    code, text = page(str(a), str(a), "-o", str(tmp_path / "c.html"))
    assert code == 4 and "cannot tell" in text.lower()
    assert "<script>" not in text and "</title><script" not in text and len(text) < 60_000


def test_a_page_that_exists_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path)
    (tmp_path / "c.html").write_text("mine")
    assert page(str(a), str(b), "-o", str(tmp_path / "c.html")) == (1, "mine")
    assert "give another name, or -f to replace it" in capsys.readouterr().err
    assert page(str(a), str(b), "-f", "-o", str(tmp_path / "c.html"))[0] == 0


def test_what_devices_idled_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gpu_run(name: str, wait: float) -> Path:
        file = RunFile(tmp_path / name).host(5, process_cpus=1, idle_cpus=1)
        for _ in range(60):
            file.step(
                {("fetch", "blocked"): wait, ("other", "gpu_wait"): 6.0},
                devices={0: {"busy": 6.0, "idle": {"data_wait": wait}}},
            )
        return file.build()

    a, b = gpu_run("a.tpr", 4.0), gpu_run("b.tpr", 1.0)
    result = compared(a, b)
    assert result.kind == "faster"
    assert [(x.name, round(x.before, 3), round(x.after, 3)) for x in result.devices] == [
        ("device busy", 6.0, 6.0), ("device idle", 4.0, 1.0), ("data_wait", 4.0, 1.0),
    ]  # fmt: skip
    code, text = page(str(a), str(b), "-o", str(tmp_path / "c.html"))
    assert code == 5 and "idle for data_wait" in text
    assert "      device idle        4.00      1.00     -3.00" in capsys.readouterr().out
    c = RunFile(tmp_path / "c.tpr").steps(60, data_wait=4.0, gpu_wait=6.0).build()
    assert compared(a, c).devices == ()


@pytest.mark.parametrize("words", [["compare"], ["export", "-o", "x.csv"], ["export", "-o", "x/"]])
def test_files_of_the_future_and_of_nobody_are_one_line(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, _ = pair(tmp_path)
    newer = RunFile(tmp_path / "newer.tpr", trainperf="9.9").steps(30, compute=1.0).build()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    (tmp_path / "text.tpr").write_text("epoch,loss\n" * 100)
    for path, said in (
        (newer, "was written by trainperf 9.9, run file schema 99"),
        (tmp_path / "text.tpr", "is not a trainperf run file"),
        (tmp_path / "no.tpr", "no such file"),
    ):
        assert main([words[0], *([str(a)] if words[0] == "compare" else []), str(path), *words[1:]]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert not list(tmp_path.glob("x*"))
