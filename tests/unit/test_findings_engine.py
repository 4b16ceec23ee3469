"""Grades, sums and verdicts, on runs made by hand."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from verdicts import Make, loud, only, said


def test_few_steps_are_warned_of_but_never_critical(make: Make) -> None:
    file = make().steps(10, compute=2.0, blocked_io=8.0)
    assert only(file).severity == "warning" and only(file).confidence != "high"


def test_one_step_is_too_few(make: Make) -> None:
    found = said(make().steps(1, compute=2.0, blocked_io=8.0))
    assert found.findings == () and "too few" in found.verdict.text


@pytest.mark.parametrize(
    ("steps", "ended", "told"), [(2, "normally", False), (3, "normally", True), (3, "exception", False)]
)
def test_the_first_step_and_one_that_an_exception_cut_are_none_to_warn_by(
    make: Make, steps: int, ended: str, told: bool
) -> None:
    found = said(make(ended=ended).steps(steps, compute=2.0, blocked_io=8.0))
    assert [f.id for f in found.findings] == (["TP301"] if told else [])
    assert (f"only {steps} steps seen: too few for a verdict" in found.verdict.text) == (not told)


def test_two_steps_of_a_trace_are_enough(make: Make) -> None:
    assert loud(make(source="trace").steps(2, compute=2.0, blocked_io=8.0)) == ["blocked"]


def test_a_stray_run_step_that_swallows_the_loop_is_named(make: Make) -> None:
    for optimizer_steps, told in ((60, True), (2, False)):
        text = said(make().steps(1, compute=60.0, optimizer_steps=optimizer_steps)).verdict.text
        assert ("60 optimizer steps ran in it: once run.step() is called" in text) == told


def test_no_step_no_findings_and_every_rule_abstains(make: Make) -> None:
    from trainperf.findings.rules import ALL

    found = said(make())
    assert found.findings == () and "no training step" in found.verdict.text
    assert "no backward, no optimizer step and no loop over a DataLoader ran in this process" in found.verdict.text
    assert {a.id for a in found.abstained} == {r.id for r in ALL}


def test_a_cost_below_our_own_is_no_finding(make: Make) -> None:
    assert loud(make().steps(100, compute=8.0, blocked_io=1.2).overhead(marks=200.0)) == []


def test_a_cost_below_the_floor_is_no_finding(make: Make) -> None:
    assert loud(make().steps(1000, compute=0.1, blocked_io=0.04)) == []


def test_no_nanosecond_is_counted_twice(make: Make) -> None:
    file = make()
    hog = file.thread("hog")
    file.steps(60, {("fetch", "blocked"): 4.0}, gil_wait=3.0, gc=2.0, blocked_io=2.0, compute=1.0)
    file.steps(60, {("fetch", "blocked"): 14.0}, gil_wait=3.0, gc=2.0, blocked_io=2.0, compute=1.0)
    # More is claimed by the loaders than there is: fetches also wait outside of steps.
    file.loader(1, fetches=60, wait=4000, ready={0: (60, 4000)}, num_workers=2)
    file.loader(2, fetches=60, wait=4000)
    file.detail("gil_wait", 360, thread=hog)
    found = said(file)
    with file.open() as run:
        assert sum(f.cost_ns for f in found.findings) <= run.wall_ns
        for cause in ("data_wait", "gil_wait", "gc", "blocked_io"):
            assert sum(f.cost_ns for f in found.findings if f.cause == cause) <= run.cause_ns(cause)


def test_costliest_first_and_the_verdict_is_about_it(make: Make) -> None:
    file = make().steps(100, compute=4.0, gc=3.0, checkpoint=5.0, logging=1.0)
    found = said(file)
    assert [f.slug for f in found.findings] == ["checkpoint", "gc-pauses", "logging"]
    assert found.verdict.finding == "TP304"


def test_healthy(make: Make) -> None:
    file = make().steps(300, compute=9.3, python=0.3, data_wait=0.2, gil_wait=0.05, descheduled=0.15)
    file.detail("sample", 2800, phase="backward", state="native")
    found = said(file)
    assert found.findings == ()
    assert (
        found.verdict.text
        == "compute-bound: 93% of step time is compute, most of it in backward; no trouble found above 10%"
    )
    spread = make().steps(100, {("forward", "native"): 5.0, ("backward", "native"): 5.0})
    spread.detail("sample", 1000, phase="backward", state="native")
    assert said(spread).verdict.text == "compute-bound: 100% of step time is compute; no trouble found above 10%"


@pytest.mark.parametrize(
    ("mode", "named"), [("anomaly_percent", "anomaly detection"), ("profiled_percent", "profiler")]
)
def test_a_run_in_a_mode_that_slows_its_operations_is_not_called_healthy(make: Make, mode: str, named: str) -> None:
    file = make(**{mode: "60"}).steps(300, compute=9.3, python=0.3)
    verdict = said(file.detail("sample", 2800, phase="backward", state="native")).verdict
    assert verdict.kind == "partly" and named in verdict.text and verdict.text.endswith("it took is not known"), verdict
    briefly = make(**{mode: "4"}).steps(300, compute=9.3, python=0.3)
    assert said(briefly.detail("sample", 2800, phase="backward", state="native")).verdict.kind == "healthy"


def test_unknown_time_is_said_in_the_verdict(make: Make) -> None:
    assert "not known" in said(make().steps(100, compute=5.0, unknown=5.0)).verdict.text


def test_a_hook_that_failed_makes_its_rule_abstain(make: Make) -> None:
    found = said(make().steps(100, compute=5.0).tier("hook_gc", "off", "AttributeError: callbacks"))
    assert "AttributeError" in next(a.why for a in found.abstained if a.id == "TP303")


def test_a_busy_machine_does_not_hide_the_loops_own_trouble(make: Make) -> None:
    file = make().steps(100, compute=16.0, data_wait=6.0, descheduled=76.0).host(3, process_cpus=0.4, other_cpus=1.6)
    file.loader(1, fetches=100, wait=600)
    found = {f.id: f for f in said(file).findings}
    assert found["TP307"].severity == "critical" and found["TP101"].severity == "warning"
    assert any("27% of runnable time (CPU contention excluded)" in e for e in found["TP101"].evidence)


@pytest.mark.parametrize(("kept_off", "first"), [(9.0, "TP101"), (14.0, "TP307")])
def test_the_runs_own_trouble_leads_before_what_other_programs_do(make: Make, kept_off: float, first: str) -> None:
    """Unless that is much smaller; then the verdict is about the others, and says so."""
    file = make().steps(100, compute=8.0, data_wait=6.0, descheduled=kept_off)
    file.host(3, process_cpus=0.4, other_cpus=1.6).loader(1, fetches=100, wait=600)
    found = said(file)
    assert found.verdict.finding == found.findings[0].id == first
    assert {f.id for f in found.findings} == {"TP101", "TP307"}
    assert ("; in addition, other processes use the CPUs: 39%" in found.verdict.text) == (first == "TP101")
    of_its_own = make().steps(100, compute=8.0, data_wait=6.0, descheduled=9.0)
    of_its_own.host(3, process_cpus=1.9).loader(1, fetches=100, wait=600)
    assert said(of_its_own).verdict.finding == "TP307"  # its own threads'


@pytest.mark.parametrize(("own", "others", "first"), [(0.9, 1.1, "TP101"), (1.6, 0.4, "TP307")])
def test_what_others_do_with_threads_of_the_run_is_whose_it_mostly_is(
    make: Make, own: float, others: float, first: str
) -> None:
    file = make(cpus="2", torch_threads="1").steps(300, compute=5.0, data_wait=3.7, descheduled=5.9)
    file.host(5, process_cpus=own, other_cpus=others).loader(1, fetches=300, wait=1110)
    verdict = said(file).verdict
    assert verdict.finding == first, verdict
    if first == "TP101":
        assert verdict.text.endswith("; in addition, other processes and the process's own threads compete: 40%")


def test_an_info_of_the_runs_own_does_not_lead_before_what_others_do(make: Make) -> None:
    """Validation that costs more, but less than what is worth a warning, is work that was asked for."""
    file = make(cpus="2", torch_threads="1").steps(300, compute=16.0, validation=9.0, descheduled=8.3)
    found = said(file.host(5, process_cpus=0.4, other_cpus=1.6))
    assert [(f.id, f.severity) for f in found.findings] == [("TP307", "critical"), ("TP306", "info")]
    assert found.verdict.finding == "TP307"


@pytest.mark.parametrize("others", [True, False])
def test_a_stretch_that_other_programs_slowed_is_not_in_the_headline(make: Make, others: bool) -> None:
    """They vary anyway. A stretch in which the run's own threads did so is."""
    file = make().steps(100, compute=10.0, descheduled=4.0).steps(100, compute=10.0, descheduled=16.0)
    file.host(5, process_cpus=0.4 if others else 1.9, other_cpus=1.6 if others else 0.0)
    found = said(file)
    assert found.verdict.finding == "TP307" and found.findings[0].by_others == others
    assert any(f.id == "TP401" and f.cause == "descheduled" for f in found.findings)
    assert ("is slow because of it" in found.verdict.text) == (not others)


def test_a_cost_in_all_steps_is_not_said_to_be_in_the_few_that_show_it(make: Make) -> None:
    file = make()
    for step in range(100):
        file.step(compute=16.0, data_wait=6.0, descheduled=10.0 if step < 7 else 80.0)
    file.loader(1, fetches=100, wait=600)
    found = {f.id: f for f in said(file).findings}
    assert found["TP101"].steps_affected == 100


def test_few_steps_are_named_only_when_they_hold_the_cost_and_each_is_their_own_mean(make: Make) -> None:
    nearly_all = make()
    for step in range(100):
        nearly_all.step(compute=5.0, blocked_io=1000.0 if step % 10 < 3 else (150.0 if step % 10 < 9 else 0.0))
    f = only(nearly_all)
    assert f.steps_affected == 100 and "390 ms/step" in said(nearly_all).verdict.text
    few = make()
    for step in range(100):
        few.step(compute=5.0, blocked_io=60.0 if step % 10 == 0 else 0.3)
    f = only(few)
    assert f.steps_affected == 10 and any("10 of 100 steps, 60.0 ms each" in e for e in f.evidence)
    assert "10 of 100 steps, 60.0 ms each (" in said(few).verdict.text
    spread = make()
    for step in range(100):
        spread.step(compute=50.0, blocked_io=60.0 if step % 10 == 0 else 4.0)  # 4 of 54 ms: felt in few, held by all
    assert only(spread).steps_affected == 100


def test_a_large_cause_that_no_rule_is_sure_of_is_not_denied(make: Make) -> None:
    file = make().steps(20, compute=4.0, descheduled=4.0).overhead(collector=100.0)
    found = said(file)
    assert found.findings == () and found.verdict.text.startswith(
        "no clear verdict: step time is 50% descheduled, which is"
    )


def test_an_info_tells_no_more_of_a_cause_than_its_part(make: Make) -> None:
    """The CPU that compiling waited for is told, the rest is not."""
    file = make().overhead(collector=2000.0)  # so that nobody is sure who keeps the loop waiting
    file.step(python=300.0, descheduled=300.0, compute=5.0, compile=600.0, flags=16)
    found = said(file.steps(30, compute=20.0, descheduled=20.0))
    assert [f.causes for f in found.findings] == [("python", "descheduled")]
    assert found.verdict.text.endswith("; 33% descheduled is unexplained")


def test_an_info_counts_as_told(make: Make) -> None:
    file = make().steps(40, compute=10.0, validation=3.0)
    text = said(file.detail("sample", 400, phase="backward", state="native")).verdict.text
    assert text.startswith("compute-bound: 77%") and text.endswith(
        "; no warning, but validation takes 23% of step time"
    )


def test_a_step_too_short_for_a_sample_says_why_it_is_unknown_and_what_to_do(make: Make) -> None:
    only, call = "only 1 step seen: too few for a verdict", ", or call run.step() after each"
    short = said(make().steps(1, unknown=2.4)).verdict.text
    assert short.startswith(f"{only}; 100% of it unknown: too short for a sample of what ran; run more{call}")
    fed = make().steps(1, unknown=2.4)
    fed.loader(1, fetches=1, wait=0.1)
    assert "run more" in said(fed).verdict.text and call not in said(fed).verdict.text
    off = said(make().steps(1, unknown=2.4).tier("gil_holds", "off", "sampler_hz=0")).verdict.text
    assert "100% of it unknown: gil_holds off: sampler_hz=0; run more" in off
    assert said(make().steps(1, compute=2.4).detail("sample", 2, state="native")).verdict.text == only


@pytest.mark.parametrize("cause", ["python", "compute"])
def test_few_samples_do_not_tell_python_from_compute(make: Make, cause: str) -> None:
    file = make().steps(30, **{cause: 0.99, "data_wait": 0.01})
    state = "python" if cause == "python" else "native"
    few = said(file.detail("sample", 8, state=state, count=2)).verdict.text
    told = few.startswith("on the CPU for 99% of step time; too few samples to tell Python from compute")
    assert told and few.endswith("; no other trouble found above 10%") == (cause == "compute")
    enough = said(file.detail("sample", 32, state=state, count=8)).verdict.text
    assert enough.startswith("mostly python" if cause == "python" else "compute-bound")


def test_a_run_that_was_killed_before_anything_was_written_is_not_said_to_have_no_steps(make: Make) -> None:
    found = said(make(ended="killed"))
    assert found.verdict.text == "the run was killed, or still runs: nothing of its steps was written yet"
    assert said(make(ended="exception")).verdict.text.startswith("no training step was seen")
    assert said(make(ended="killed").steps(30, blocked_io=5.0)).verdict.finding == "TP301"


def seen(file: RunFile) -> RunFile:
    """With samples enough to tell native code from Python."""
    return file.detail("sample", 800, phase="backward", state="native").detail("sample", 20, phase="forward")


def test_validation_that_is_not_worth_a_word_yet_keeps_no_verdict_from_being_clear(make: Make) -> None:
    """It is work that was asked for: as large as a warning of others, it is named, and nothing is unsure."""
    verdict = said(seen(make().steps(100, {("backward", "native"): 8.2}, validation=1.8))).verdict
    assert verdict.kind == "healthy" and verdict.text == (
        "compute-bound: 82% of step time is compute, most of it in backward; validation takes 18% of step time; "
        "no other trouble found above 10%"
    )
    little = said(seen(make().steps(100, {("backward", "native"): 9.5}, validation=0.5))).verdict
    assert little.text.endswith("; no trouble found above 10%") and "validation" not in little.text


def test_a_verdict_that_is_not_clear_names_the_largest_part(make: Make) -> None:
    """What no rule is sure of may be the smaller part of a step."""
    smaller = make().steps(100, {("backward", "native"): 4.0, ("forward", "python"): 3.0}, module_load=3.0)
    both = said(smaller).verdict.text
    assert both == "no clear verdict: step time is 70% python+compute; 30% module_load is unexplained"
    one = said(seen(smaller)).verdict.text
    assert one == "no clear verdict: step time is 40% compute; 30% module_load is unexplained"
    larger = said(make().steps(100, compute=4.0, module_load=6.0)).verdict
    assert larger.text == "no clear verdict: step time is 60% module_load, which is unexplained"


@pytest.mark.parametrize(("validation", "told"), [(3.0, "; in addition, validation costs 30%"), (0.8, "")])
def test_what_is_no_warning_and_costs_more_than_it_is_in_the_verdict(make: Make, validation: float, told: str) -> None:
    file = make().steps(200, compute=6.1, checkpoint=0.9, validation=validation)
    verdict = said(file).verdict
    assert verdict.finding == "TP304" and verdict.text.endswith(f"checkpoints to be written{told}"), verdict.text


def test_what_varies_by_itself_is_not_in_the_headline(make: Make) -> None:
    """Larger inputs, in two fifths of the run: TP401 tells that nothing in the loop is wrong."""
    file = make().steps(300, compute=10.0, checkpoint=1.6).steps(200, compute=17.0, checkpoint=1.6)
    found = said(file)
    save, uneven = found.findings
    assert (save.id, uneven.id) == ("TP304", "TP401") and uneven.cost_ns > save.cost_ns
    assert found.verdict.text.endswith("checkpoints to be written"), found.verdict.text
