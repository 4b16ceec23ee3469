"""The words of findings about the device."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages import waits
from trainperf.findings.messages.general import NOTHING
from trainperf.findings.text import Doubts, Message, Messages

_SIZES: Final = (
    "{kernels:,.0f} kernels a step of {kernel_us:.0f} us on average; "
    "{tiny} are tiny (under 10 us, or shorter than the launch itself)"
)
_WARM_UP: Final = "early? the run's second half has little of it: a warm-up"

_IDLE: Final = Message(
    title="{gpu} is idle while {thread} {doing}",
    why="{thread_name} {doing}, with nothing queued meanwhile",
    evidence=(
        "{gpu} was idle {each} a step because of {cause}: {of_idle} of its idle time",
        "{thread} spends {host} of each step's {step} in {cause}",
        "{place_share} of its samples then are in {place}",
        "idle for other causes, per step: {others:,}",
    ),
    will_not_help="a faster GPU: it would idle longer",
)
# What the host does meanwhile, by cause, and what to do about it.
_DOING: Final = {
    "h2d_copy": ("copies data to the device", "copy from pinned memory, with non_blocking=True"),
    "launch": ("prepares its next kernels", "torch.compile(model), or larger batches"),
    "cuda_alloc": ("allocates memory", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    "module_load": ("loads kernels", "use fewer shapes; warm up before the run"),
    "gil_wait": ("waits for the GIL", "find the thread that holds it: py-spy top --gil --pid PID"),
    "gc": ("collects garbage", "gc.freeze() after the model is built"),
    "checkpoint": ("writes a checkpoint", "write it from a thread"),
    "validation": ("validates", "validate less often"),
    "logging": ("writes its log", "log less often, or from a thread"),
    "descheduled": ("waits for a CPU", "use fewer threads or workers"),
    "throttled": ("is throttled by its CPU quota", "raise the quota, or use fewer threads"),
    "blocked_io": (
        "is blocked (a lock, file, socket or sleep)",
        "[[{place} blocks: do that in another thread]][[!place?find where: py-spy dump --pid PID]]",
    ),
    "python": ("runs Python", "run less Python between launches, or use torch.compile(model)"),
    "compute": ("computes on the CPU", "move that to the device, or to a worker"),
}

_STARVED: Final = Message(
    title="{gpu} is idle while the loop waits for its next batch",
    why="the next batch is not ready when {gpu} has finished the last one",
    evidence=(
        "{gpu} was idle {each} a step because of data loading: {of_idle} of its idle time",
        "the loop spends {host} of each step's {step} fetching",
        "a step's first kernel starts {first_kernel} after the step does",
        "{cpus:CPU} usable",
    ),
    fix="[[full?# the {have} workers already share {cpus:CPU}: make samples cheaper (Dataset.__getitem__), "
    "or add CPUs]]"
    "[[!full?DataLoader(..., num_workers={workers}, pin_memory=True, persistent_workers=True)]]"
    "[[waiting?  # more than CPUs: workers mostly wait for I/O]]",
    will_not_help="a faster GPU, mixed precision, torch.compile: {gpu} is idle",
)
_SYNC: Final = Message(
    title="host-device sync drains the queue of {gpu}",
    why="[[{place} waits until {gpu} is done]][[unplaced?{thread} waits until {gpu} is done, {often} a step]]",
    evidence=(
        "{gpu} was idle {each} a step after synchronizations: a host that waits launches nothing new",
        "{syncs:synchronization} in {steps} steps, {rate} a step",
        "{small} copies of 16 bytes or less to the host, {small_rate} a step: scalars, from .item(), "
        "float(tensor), `if tensor` or nonzero()",
        "{spots.share} of its {spots.samples:sample} in {spots.place}",
    ),
    fix="# wait later, or not at all:\n"
    "copy = tensor.to('cpu', non_blocking=True); copied = torch.cuda.Event(); copied.record()\n"
    "copied.synchronize()  # a step later, before you read copy",
    will_not_help="a faster GPU: it would be idle for longer",
)
_LAUNCH: Final = Message(
    title="{gpu} waits for the host to launch its kernels",
    why="the host launches {kernels:,.0f} kernels a step[[ ({launches:launch|launches})]], more slowly than "
    "{gpu} runs them",
    evidence=(
        "{gpu} was idle {each} a step between kernels, {gap_us:.0f} us each time, while the host ran Python and "
        "launched the next",
        "kernels start {lead_us:.0f} us after their launch (median): the queue is empty",
        _SIZES,
    ),
    fix="model = torch.compile(model)  # fewer, larger kernels; or a larger batch, and a fused optimizer",
    will_not_help="a faster GPU, mixed precision, more DataLoader workers: the host sets the pace",
)
_TINY: Final = Message(
    title="{tiny} of the kernels are tiny",
    why="each small operation is a kernel of its own, and none of them fills the device",
    evidence=(_SIZES, "most often: {names:,}"),
    fix='model = torch.compile(model, mode="reduce-overhead")  # fuses them; or a larger batch',
    will_not_help="a faster GPU: such kernels do not get shorter on it",
)
_CHURN: Final = Message(
    title="device memory is allocated and freed [[early?early in the run]][[!early?while steps run]]",
    why="each cudaMalloc and cudaFree stops the host, and cudaFree waits for the device[[; called by {place}]]",
    evidence=(
        "{gpu} was idle {each} a step because of it",
        "{allocs} allocations ({failed} failed) and {frees} frees of device memory in {steps} steps",
        "{pinned} of pinned host memory",
        _WARM_UP,
    ),
    fix="{command}  # and pad batches to fewer shapes",
    will_not_help="torch.cuda.empty_cache(): it causes more",
)
_LOADING: Final = Message(
    title="kernels are loaded while steps run",
    why="the driver loads kernels that were not used before[[, for {place}]]",
    evidence=(
        "{gpu} was idle {each} a step because of it",
        "{loads:CUDA module} loaded ({load}), {jits:kernel} JIT-compiled ({jit})",
        _WARM_UP,
    ),
    fix="# pad to fewer shapes; torch.compile(model, dynamic=True); torch.backends.cudnn.benchmark = False",
    will_not_help="a larger batch, more DataLoader workers",
)
_LOADED_FIX: Final = f"{NOTHING}; CUDA_MODULE_LOADING=EAGER moves it to startup"
_COMPILING: Final = _LOADING.but(
    title="kernels are compiled while steps run",
    why="the driver compiles kernels that were not used before[[, for {place}]]",
)
_EXPOSED: Final = Message(
    title="{gpu} waits for other ranks: communication not overlapped by compute",
    why="gradients are exchanged only after the compute that could have overlapped with it",
    evidence=(
        "collectives run {whole} a step, {exposed} of it with nothing else on {gpu} ({hidden} is overlapped)",
        "{kernels.name}: {kernels.each} a step, {kernels.count:launch|launches} in {steps} steps",
        "a collective also waits for the slowest rank: compare the ranks' runs before you blame the network",
    ),
    fix="# sync less often (no_sync() during accumulation), or in other bucket sizes:\n"
    "DistributedDataParallel(model, bucket_cap_mb=50, gradient_as_bucket_view=True)",
    will_not_help="a faster GPU: it would be idle for longer",
)
_TUNING: Final = Message(
    title="{by} keeps autotuning kernels",
    why="{by} times candidate kernels[[ in {place}]]",
    evidence=(
        "{tuners.ns} in {tuners.by}'s autotuner",
        "{late} of it in the run's second half",
        "each new input shape is autotuned again: shapes keep changing",
    ),
    will_not_help="a larger batch, more DataLoader workers",
)
_PRODUCTS: Final = Message(
    title="matmuls without tensor cores are {share} of step time",
    why="float32 without TF32, or sizes that are not multiples of 8, run on CUDA cores",
    evidence=(
        "{kernels.name}: {kernels.each} a step, {kernels.count:launch|launches} in {steps} steps",
        "{device} has tensor cores",
    ),
    fix='torch.set_float32_matmul_precision("high")  # TF32; and, for more:\n'
    'with torch.autocast("cuda", dtype=torch.bfloat16): ...  # and sizes that are multiples of 8',
    will_not_help="CUDA graphs, fewer launches: the kernels themselves are slow",
)
_WARMED_UP: Final = Message(
    title="{gpu} warmed up in {first}",
    why="{cost} of {first} is first-use setup of {gpu}",
    evidence=(
        "{first} took {took}, as long as {as_later:,.0f} later ones",
        "{parts.ns} of it {parts.said}",
        "{native} more in native code, not counted: loading kernels does not take that long",
        "{gpu} was idle {idled} meanwhile",
    ),
    fix=NOTHING,
    will_not_help="a faster GPU, a larger batch, more DataLoader workers",
)

_HELD: Final = Message(
    title="heat slows {gpu} down",
    why="{gpu}'s clock is {mhz:.0f} MHz in {held} of the seconds, in place of {free_mhz:.0f}",
    evidence=(
        "about {slower} of step time: what {gpu} would save at {free_mhz:.0f} MHz",
        "{readings:reading} of NVML in the steps, one a second",
        "hottest: {celsius} C",
    ),
    fix="# cooling: fans, airflow, neighbours, room; nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
    will_not_help="more DataLoader workers, faster Python: {gpu} sets the pace",
)

MESSAGES: Final[Messages] = {
    "TP501": {
        cause: _IDLE.but(
            title=_IDLE.title.replace("{doing}", doing), why=_IDLE.why.replace("{doing}", doing), fix=f"# {advice}"
        )
        for cause, (doing, advice) in _DOING.items()
    }
    | {
        "gpu_wait": _IDLE.but(
            title="{gpu} runs dry after {thread} waits for it",
            why="{thread_name} waits for {gpu}, and queues nothing new meanwhile",
            fix="# wait for it less often: .item(), .cpu(), synchronize()",
        )
    },
    "TP502": {
        "held": Message(
            title="{gpu} waits for {holder}, which holds the GIL",
            why="{holder} holds the GIL[[ {at}]], so no thread launches work",
            evidence=(
                waits.DEVICE_WAITS,
                "these are the GIL waits of all threads that launch work on {gpu}, including {thread}",
            ),
            fix="{fix}",
            will_not_help=waits.WILL_NOT_HELP,
        ),
        "unread": Message(
            title="{gpu} waits for another thread, which holds the GIL",
            why="another thread holds the GIL, so no thread launches work",
            evidence=("{gpu} was idle {each} a step while {thread} waited for the GIL",),
            fix="# find the thread, and run its work in a process (threads share one GIL):\npy-spy top --gil --pid PID",
            will_not_help=waits.WILL_NOT_HELP,
        ),
    },
    "TP503": {
        "not_ready": _STARVED,
        "in_the_loop": _STARVED.but(why="the batch is made in {place}, while {gpu} waits"),
        "handed_over_slowly": _STARVED.but(
            why="the next batch is ready when requested, but receiving it takes {taking}",
            fix="# fewer, larger tensors per batch; or fetch the next batch before you sync with {gpu}",
            will_not_help=f"more workers: batches are ready; {_STARVED.will_not_help}",
        ),
    },
    "TP504": {
        "numbers": _SYNC.but(
            title="host-device sync (.item() or the like) drains the queue of {gpu}",
            fix="# keep scalars on the device, and read them now and then:\nif step % 50 == 0: print({number}.item())",
        ),
        "sync": _SYNC,
    },
    "TP505": {
        "pageable": Message(
            title="batches are copied from pageable memory",
            why="the driver copies pageable memory through a buffer of its own, and the host waits meanwhile",
            evidence=(
                "{gpu} lost {each} a step: {exposed} of copying with nothing else to do, {idle} idle while the host "
                "copied",
                "[[one?1 copy]][[!one?{copies} copies]] a step, {bytes}, at {speed}/s",
                "{pageable} of the bytes to the device come from pageable memory",
            ),
            fix="DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
            will_not_help="non_blocking=True alone: without pinned memory the host waits all the same",
        )
    },
    "TP506": {
        "tiny": _LAUNCH.but(
            fix='model = torch.compile(model, mode="reduce-overhead")  # CUDA graphs; or a larger batch'
        ),
        "large": _LAUNCH,
    },
    "TP507": {
        "busy": _TINY,
        "pauses": _TINY.but(
            title="{tiny} of the kernels are tiny, and {gpu} pauses after each",
            evidence=(
                "{gpu} was idle {each} a step between kernels that were already queued",
                *_TINY.evidence,
            ),
        ),
    },
    "TP508": {
        "churn": _CHURN,
        "emptied": _CHURN.but(
            title="torch.cuda.empty_cache() is called in the loop[[early?, early in the run]]",
            why="what it frees is allocated again at once: {place}",
            fix="# remove torch.cuda.empty_cache() from the loop",
            will_not_help="a larger GPU: memory is not scarce",
        ),
        "full": _CHURN.but(
            title="{gpu}'s memory is full: the allocator frees its cache and retries",
            why="{failed:allocation} failed at first: too little memory, or too fragmented[[; called by {place}]]",
            fix="# a smaller batch, or less fragmentation:\n{command}",
            will_not_help="torch.cuda.empty_cache(): the allocator does that by itself, and what it frees is allocated "
            "again",
        ),
    },
    "TP509": {
        "loads": _LOADING,
        "compiles": _COMPILING,
        "loaded": _LOADING.but(title="kernels were loaded at the run's start", fix=_LOADED_FIX),
        "compiled": _COMPILING.but(title="kernels were compiled at the run's start", fix=_LOADED_FIX),
    },
    "TP510": {
        "gradients": _EXPOSED,
        "other": _EXPOSED.but(
            why="nothing else is computed while {kernel} runs",
            fix="# start it as soon as its input is there, and wait where the result is used:\n"
            "work = dist.all_to_all_single(output, input, async_op=True); ...; work.wait()",
        ),
    },
    "TP511": {
        "few": Message(
            title="{few} of {all} kernels are {share} of {gpu}'s work",
            why="{name} takes {each} of each step",
            evidence=(
                "{kernels.share}: {kernels.name}, {kernels.each} a step, {kernels.count:launch|launches} in "
                "{steps} steps",
            ),
            fix="# look at these first: another algorithm, data type or layout (channels_last, bfloat16)",
            will_not_help="tuning the other kernels",
        )
    },
    "TP512": {
        "tf32": _PRODUCTS,
        "volta": _PRODUCTS.but(
            fix='with torch.autocast("cuda", dtype=torch.float16): ...  # and sizes that are multiples of 8'
        ),
    },
    "TP516": {
        "heat": _HELD,
        "power_brake": _HELD.but(
            title="the power supply slows {gpu} down",
            fix="# power: supply, cables, the rack's limit; nvidia-smi -q -d POWER,PERFORMANCE",
        ),
        "power_cap": _HELD.but(
            title="{gpu} runs at its power limit",
            fix="# a limit below the default costs clock: nvidia-smi -q -d POWER, then nvidia-smi -pl WATTS",
        ),
    },
    "TP513": {
        "busy": Message(
            title="{gpu} is busy {busy} of the time: the kernels set the pace",
            why="work is queued whenever {gpu} finishes the last",
            evidence=(
                "a kernel starts {ahead} after its launch (median): the host runs ahead",
                "{full:launch|launches} waited for room in the queue",
                "the host waits {waits} a step for it: that costs nothing, as the GPU is busy",
                "costliest: {kernel}, {each} a step",
            ),
            fix="# make kernels faster: torch.compile(model), bfloat16, channels_last, a smaller model; or more GPUs",
            will_not_help="more DataLoader workers, fewer synchronizations, faster Python: the device does not wait",
        )
    },
    "TP514": {
        "cuDNN": _TUNING.but(fix="torch.backends.cudnn.benchmark = False  # or pad batches to a few shapes"),
        "Triton": _TUNING.but(
            fix="# fewer distinct shapes in @triton.autotune(key=[...]): pad, or round the key up; cache_results=True"
        ),
        "Inductor": _TUNING.but(
            fix="torch.compile(model, dynamic=True)  # or pad to a few shapes; or no 'max-autotune' mode"
        ),
        "warm_up": _TUNING.but(
            title="{by} autotuned kernels early in the run",
            evidence=(_TUNING.evidence[0], "hardly any in the run's second half"),
            fix=NOTHING,
        ),
    },
    "TP515": {
        "warm_up": _WARMED_UP,
        "tried_out": _WARMED_UP.but(
            fix=f"{NOTHING}; torch.backends.cudnn.benchmark = False tries fewer convolution kernels"
        ),
    },
}

TEXTS: Final = {
    "by_clock": "the share assumes work that grows with the clock",
    "first_step": "the first step",
    "first_steps": "the first {steps} steps",
    "once_each": "once",
    "times_each": "{rate} times",
    # Parts of a warm-up, by cause.
    "warm_up_module_load": "loading kernels",
    "warm_up_cuda_alloc": "allocating memory",
    "warm_up_gpu_wait": "waiting for the device, as when kernels are autotuned",
    "warm_up_launch": "in native code and launch calls",
    "warm_up_unknown": "without a visible cause: first-use work of libraries is not seen",
}

UNSURE: Final[Doubts] = {
    "gpu_idle_unseen": "{gpu} is idle {share} of the time for an unidentified reason",
    "memory_unseen": "whether copies come from pinned memory was not recorded",
    "leads_unseen": "how soon kernels start after their launch is not known",
    "names_unclear": "the names of its matmul kernels do not tell whether they use tensor cores",
    "tuner_unseen": "no sample shows what {thread} was running",
}
