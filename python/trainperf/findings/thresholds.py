"""Every number that a verdict depends on, each with its source. docs/thresholds.md is made from it."""

from __future__ import annotations

from trainperf.findings.threshold import Threshold
from trainperf.findings.thresholds_between_runs import BETWEEN_RUNS
from trainperf.findings.thresholds_of_devices import OF_DEVICES
from trainperf.findings.thresholds_of_memory import OF_MEMORY

_TABLE = (
    Threshold(
        "warn_share", 0.10, "share of the run", "a cause is worth a warning", "TraceML 0.5: warns at 10 % of the step"
    ),
    Threshold(
        "critical_share", 0.20, "share of the run", "a cause is critical", "TraceML 0.5: critical at 20 % of the step"
    ),
    Threshold(
        "rare_warn_share",
        0.05,
        "share of the run",
        "warning for trouble that is pure loss and cheap to mend (GC, checkpoints, logging, start-up, throttling)",
        "TensorBoard's profiler advised from 5 %; CheckFreq (FAST '21) bounds checkpoints at 3.5 %",
    ),
    Threshold(
        "framework_part_share",
        0.03,
        "share of the run",
        "one callback, logger or chore of the framework is worth a warning",
        "pure loss, known by name and easily moved; CheckFreq (FAST '21) bounds what a checkpoint may cost at 3.5 %",
    ),
    Threshold(
        "descheduled_warn_share",
        0.10,
        "share of the run",
        "warning for time spent waiting for a CPU",
        "a desktop's background work costs 1 to 5 % (measured on 2 cores)",
    ),
    Threshold(
        "others_lead_ratio",
        2.0,
        "ratio of costs",
        "what other programs mostly do leads the verdict only if it costs so much more than a warning of the run's own",
        "a choice: the run's own can be mended by who reads it, and repeats on every machine",
    ),
    Threshold(
        "validation_info_share",
        0.20,
        "share of the run",
        "validation is mentioned",
        "it is work that was asked for, so twice the usual",
    ),
    Threshold(
        "validation_warn_share",
        0.40,
        "share of the run",
        "validation is worth a warning",
        "beyond it, validating less is the largest gain",
    ),
    Threshold(
        "least_share",
        0.02,
        "share of the run",
        "a cost below it is never a finding, however busy the machine was",
        "warnings are measured against the time that the machine left to the run, criticals against all of it",
    ),
    Threshold(
        "warn_min_steps",
        2,
        "steps",
        "fewest steps for a warning, beside the first of a watch and one that an exception cut short",
        "TraceML 0.5",
    ),
    Threshold("critical_min_steps", 20, "steps", "fewest steps for a critical, and for high confidence", "TraceML 0.5"),
    Threshold(
        "min_cost_ms",
        0.05,
        "ms/step",
        "a cost below it is never a finding",
        "TraceML warns of its own cost on a healthy 1.4 ms loop; ours is under 0.02 ms",
    ),
    Threshold(
        "now_and_then_min_s",
        0.1,
        "s",
        "waits in some of the steps, which take less than this in all, are mentioned, not warned of",
        "a healthy run of 0.07 s slept 14 ms in one step, for a page; a longer run tells whether it repeats",
    ),
    Threshold(
        "in_process_min_ms",
        1.0,
        "ms/batch",
        "in-process loading below it is mentioned, not warned of",
        "a batch that a worker has ready still costs 1.2 to 1.9 ms of next(): workers would not pay",
    ),
    Threshold(
        "ready_batch_ms",
        1.2,
        "ms/batch",
        "what workers make ahead is not saved below it: the batch is to be taken out of their queue",
        "measured: 1.2 to 1.9 ms of next(), the least of it, as what is promised is the most that can be saved",
    ),
    Threshold(
        "overlapping_share",
        0.33,
        "share of the wait",
        "workers are advised for data that only waits from this saving on; for data that computes from half_share",
        "measured: two workers saved 22 % of steps whose samples slept for 2 ms a batch",
    ),
    Threshold(
        "threads_of_a_name",
        10,
        "threads",
        "so many of one name that run one function are told as one, which holds the GIL",
        "a choice: a pool's are numbered, and fewer may be there at once; 40 that wrote a checkpoint each were",
    ),
    Threshold(
        "in_process_dominant_share",
        0.40,
        "share of the run",
        "in-process loading is a warning whatever it costs",
        "the largest cause of nearly any run; batched indexing still pays",
    ),
    Threshold(
        "skipped_ratio",
        10.0,
        "ratio, to the median step's",
        "a step that fetched this many times as many batches, or more, trained on few of them",
        "gradient accumulation and several loaders raise the median, too; a resume drops hundreds",
    ),
    Threshold(
        "dropped_ratio",
        3.0,
        "ratio of a loader's batches to backward passes",
        "the loop may drop most of them",
        "a choice: pairs of batches, as of two views or of a GAN, are two",
    ),
    Threshold(
        "restart_batches",
        2,
        "batches",
        "a loader that begins again after so many or fewer, before its end, does so for each batch",
        "the shortest epochs that are worth a prefetch queue have several",
    ),
    Threshold(
        "restart_min_starts",
        10,
        "starts",
        "fewest such starts, in half of the steps or more, that are a habit",
        "a validation batch or a look at the data each N steps is rarer",
    ),
    Threshold(
        "ready_wait_ms",
        4.0,
        "ms/fetch",
        "a fetch that finds a batch ready and takes longer was not delivered",
        "twice the 1.2 to 1.9 ms of deserialising a ready batch",
    ),
    Threshold(
        "lone_fetches",
        8,
        "fetches",
        "so many must wait for one worker alone, or for those that still read, before it is told",
        "of 8 that fall on 2 workers by chance all fall on one in 1 of 128 runs",
    ),
    Threshold(
        "cpu_bound_share",
        0.70,
        "share of a CPU",
        "a worker that uses this much is CPU-bound; one that leaves this much waits",
        "1.0 less its waits on the queue",
    ),
    Threshold(
        "hog_share", 0.60, "share of the waits", "one holder causes this much: one hog, else many", "a clear majority"
    ),
    Threshold(
        "one_function_share",
        0.10,
        "share of the run",
        "Python on the CPU counts when the user's own functions take this much",
        "warn_share; PyTorch's own Python is overhead of small steps, not a bottleneck to hunt",
    ),
    Threshold(
        "several_functions_share",
        0.12,
        "share of the run",
        "Python on the CPU counts when functions that the loop calls take this much together, none of them notable",
        "a choice: more than one_function_share, as a loop needs some; metrics of 19 to 25 % were sampled at 12 to 20",
    ),
    Threshold(
        "backward_ratio",
        3,
        "times forward",
        "backward is longer than that of a model and its loss",
        "1.0 to 2.0 in 100 trainings of known trouble or none; 3.8 with a loss computed by class and sample; "
        "of what else is in forward (TP302) 9 with a loss by pairs in Python",
    ),
    Threshold(
        "untrained_ratio",
        1.7,
        "times backward",
        "a line whose layers run for so long, less the error of its samples, has no backward, or for little of it",
        "at most 1.6 in 100 trainings, mostly 0.4 to 0.8; from 2.0 on in 10 that evaluate, mine or ask a teacher so",
    ),
    Threshold(
        "longer_forward_ratio",
        3,
        "times backward",
        "in a step whose forward is longer than the median by so much a model runs without a backward",
        "at most 1.6 in 100 trainings, 5.4 in a rollout",
    ),
    Threshold(
        "same_time_share",
        0.25,
        "share of the time",
        "what a place takes in all, by samples, is what forward takes more of in few steps",
        "the error of 50 samples is 14 %",
    ),
    Threshold(
        "between_ratio",
        2,
        "ratio of times",
        "up to so much native code between a function's Python, before the backward, is told with it",
        "measured: 1.2 where .item() reads each element; 20 and more in operations on a whole batch, as in a loss",
    ),
    Threshold(
        "before_model_ratio",
        2,
        "ratio of times",
        "work before the model's modules that takes more of their time may be the model, unless backward is too short",
        "a choice: backward takes 1 to 2 times what it goes through; a model is hardly mostly outside of its modules",
    ),
    Threshold(
        "framework_share",
        0.40,
        "share of the run",
        "PyTorch's own Python is mentioned",
        "a healthy 1.4 ms loop spends 10 to 30 % there",
    ),
    Threshold(
        "optimizer_share",
        0.30,
        "share of the run",
        "the optimizer's step is told where it could be fewer operations; it is a warning with many groups only",
        "20 to 34 % in small healthy loops with Adam; 55 % with a group for each of 122 parameters",
    ),
    Threshold(
        "optimizer_groups",
        16,
        "groups of parameters",
        "so many, and one for every four parameters or fewer, are many",
        "a choice: two groups are usual (with weight decay, without), four with a backbone; measured with 24 and 122",
    ),
    Threshold(
        "optimizer_saves",
        0.9,
        "share of the cost",
        "what fused=True, or few groups, save of the optimizer's step at most",
        "measured on the CPU with 24 to 122 parameters: 0.6 to 0.9 (torch 2.13, Adam, AdamW, SGD)",
    ),
    Threshold(
        "metric_calls_ms",
        3.0,
        "ms/step",
        "Lightning's self.log is warned of from this on",
        "measured: a call takes 0.3 to 0.5 ms, on busy CPUs up to 1.2 ms (Lightning 2.6); a few calls are no fault",
    ),
    Threshold(
        "min_samples",
        10,
        "samples",
        "fewest samples before a function is named",
        "binomial: 10 of 10 is at least 74 % (95 %)",
    ),
    Threshold(
        "min_looks",
        10,
        "looks",
        "fewest looks at a loader's workers, one a second at each, before it is said what they do",
        "min_samples; the first seconds of a worker are its start",
    ),
    Threshold(
        "good_samples", 50, "samples", "samples for high confidence", "binomial: a share is known to +-14 points (95 %)"
    ),
    Threshold(
        "split_width",
        0.28,
        "share of the time on the CPU",
        "Python is told from native code where its share is known to an interval (95 %) no wider than this",
        "min_samples that agree, or good_samples of which one half is Python: Wilson's interval",
    ),
    Threshold(
        "uneven_ratio",
        1.30,
        "ratio of medians",
        "a part of the run is slower by this much",
        "3x the spread of quiet runs",
    ),
    Threshold(
        "uneven_explained",
        0.25,
        "share of a difference",
        "the cause that is told of a slower part explains this much of what it is slower by",
        "a choice: where several causes share it the largest has a quarter or more",
    ),
    Threshold(
        "uneven_min_steps", 30, "steps", "fewest steps to compare parts of a run", "6 bins of 5 steps, a median each"
    ),
    Threshold(
        "uneven_chance",
        0.01,
        "share of random orders",
        "a slower stretch that the same steps have more often in random order is not told",
        "one run in a hundred: without it 257 of 480 series of 40 to 1,000 random lengths had one, with it 1",
    ),
    Threshold(
        "uneven_min_s",
        1.0,
        "s",
        "a slower stretch that is shorter is not told, but of waits for the GIL; of Python or native code twice of it",
        "a healthy loop of 0.7 s on a shared machine ran 1.8 times slower for 0.25 s, one of 4 s 1.4 times for 1 s",
    ),
    Threshold(
        "busier_share",
        0.25,
        "share of the usable CPUs",
        "a part of the run in which others use this much more than in the rest may be slower for that reason",
        "a choice: half of a CPU of two; on many CPUs what one more process uses slows the others little",
    ),
    Threshold(
        "shared_cpu_ratio",
        1.7,
        "ratio of medians",
        "a part of the run in which others use more of the CPUs may be slower by this much for that reason",
        "beside another program on two CPUs a function that did the same each time took 1.4 to 1.6 times as long",
    ),
    Threshold("uneven_warn_share", 0.05, "share of the run", "time that the slow part cost", "TensorBoard's 5 %"),
    Threshold("compile_share", 0.05, "share of the run", "compiling is mentioned", "TensorBoard's 5 %"),
    Threshold(
        "lead_s", 1.0, "s", "a shorter time before the first step is not told", "what a person does not wait for"
    ),
    Threshold(
        "lead_share", 0.2, "share of the run", "a longer time before the first step is told", "as much as a step's"
    ),
    Threshold(
        "growth_min_steps",
        40,
        "steps",
        "fewest steps to say that the step grows",
        "10 parts of 4 steps: their medians rise in order by chance in less than one run in a thousand",
    ),
    Threshold(
        "growth_min_s",
        1.0,
        "s",
        "growth within a shorter run is not reported",
        "CPU clocks and caches settle for up to a second",
    ),
    Threshold(
        "growth_ratio",
        1.3,
        "ratio of levels",
        "the last level of a phase that grows to its first, and to what the steadiest other phase slowed down by",
        "as uneven_ratio; a warming CPU or a busier machine slows all phases alike",
    ),
    Threshold(
        "growth_of_inputs",
        0.25,
        "ratio of rises",
        "forward and backward that both grow, the lesser by this much of the other, may have larger inputs",
        "backward costs one to three times its forward",
    ),
    Threshold(
        "recompile_steps",
        4,
        "steps",
        "compiling in more steps is recompiling, wherever in the run they are",
        "torch.compile: static, then dynamic shapes; two graphs",
    ),
    Threshold(
        "recompile_gap_steps",
        10,
        "steps",
        "so many steps without compiling end the warm-up: what compiles later compiles again",
        "graphs of one warm-up follow each other within a few steps, those of automatic dynamic shapes too",
    ),
    Threshold(
        "once_min_s",
        0.5,
        "s",
        "a cost that sits in one step of a shorter run is an information",
        "a healthy run of 0.3 s had one garbage collection of 0.1 s: once is no rate",
    ),
    Threshold(
        "most_share",
        0.60,
        "share of a cause",
        "this much is most of it: of a cause in one phase, of a wait at one place, of the work in one cause",
        "a clear majority",
    ),
    Threshold(
        "half_share",
        0.50,
        "share of the whole",
        "half of it: of a wait asleep, in backward, for the GIL; of collecting in one call; of a device's time",
        "the half",
    ),
    Threshold(
        "delivery_gil_share",
        0.25,
        "share of the waits",
        "waits for the GIL that are this much of a late delivery are named as its reason",
        "a choice: less would leave most of the wait without a reason; not measured",
    ),
    Threshold(
        "asked_collections",
        3,
        "collections",
        "so many full garbage collections, with fewer of the generation below, are asked for, and not Python's own",
        "by itself Python makes one after ten of the generation below; one or two may have been due as the run began",
    ),
    Threshold(
        "competing_cpus",
        0.50,
        "CPUs",
        "what is beside the run, and uses this much (of one CPU a child process half of it) and half of what the run "
        "uses, is who takes the CPUs",
        "a choice: half of a CPU, as free_cpus; not measured",
    ),
    Threshold(
        "own_threads_cpus",
        0.25,
        "CPUs",
        "threads of the process that use this much compete with training",
        "a choice: a thread that runs a quarter of the time; not measured",
    ),
    Threshold(
        "free_cpus",
        0.5,
        "CPUs",
        "fewer free CPUs, on average, are no room for one more worker that computes",
        "a choice: half of what such a worker takes; not measured",
    ),
    Threshold(
        "full_cpus",
        0.90,
        "share of the CPUs",
        "who used the CPUs is told of more than one when together they used this much",
        "what is left is too little to be the cause",
    ),
    Threshold(
        "awaited_share",
        0.80,
        "share of looks",
        "a thread that runs where waits end, and not beside, is said to be waited for",
        "measured: 0.98 of who sleeps with a lock in hand, at most 0.5 of timers of 0.2 to 2 times the wait",
    ),
    Threshold(
        "alike_ratio",
        5.0,
        "ratio, the longest to the mean",
        "a hook is not said to take its time at every call; a batch is called long, beside the median",
        "1.5 to 4.4 in five hooks that work in each call, on 2 shared cores; 10 in two that work in each tenth",
    ),
    Threshold("felt_share", 0.10, "share of a step", "a step is affected by a cause", "warn_share, of the step itself"),
    Threshold(
        "held_share",
        0.90,
        "share of the cost",
        "fewer than half of the steps that hold this much are said to have it, with their own mean",
        "what is left is below warn_share of the cost",
    ),
    Threshold(
        "show_share",
        0.01,
        "share of the run",
        "causes below it are shown as one line",
        "1 % is the most that a reader can act on",
    ),
    Threshold(
        "unknown_share", 0.10, "share of the run", "time without a known cause is said in the verdict", "warn_share"
    ),
    Threshold(
        "clustered_share",
        0.80,
        "share of the cost",
        "a cost this concentrated in half the run or less is said to be",
        "a clear majority",
    ),
    Threshold(
        "straggles_share",
        0.05,
        "share of a step",
        "ranks whose own work differs by less are even",
        "a choice: half of warn_share, as what one rank takes longer all of them wait for",
    ),
    Threshold(
        "host_readings_s",
        1.0,
        "s",
        "from the first reading of the CPUs to the last, or half of a shorter watch: less does not tell who used them",
        "a reading a second; what a short run does between two of them need not be what it does",
    ),
    *BETWEEN_RUNS,
    *OF_DEVICES,
    *OF_MEMORY,
)

TABLE: dict[str, Threshold] = {t.name: t for t in _TABLE}


def limit(name: str) -> float:
    """The value of a threshold; KeyError for a name that is not in the table."""
    return TABLE[name].value
