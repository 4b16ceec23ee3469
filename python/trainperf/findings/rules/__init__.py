"""The rules, in the order in which they may claim time: the specific before the general."""

from __future__ import annotations

from trainperf.findings.rule import Rule
from trainperf.findings.rules import chores, gil, gpu, host, machine, memory, run, trainer
from trainperf.findings.rules.blocked import Blocked
from trainperf.findings.rules.data_starved import DataStarved
from trainperf.findings.rules.delivery_cost import DeliveryCost
from trainperf.findings.rules.host_compute import HostCompute
from trainperf.findings.rules.host_python import HostPython
from trainperf.findings.rules.ready_not_delivered import ReadyNotDelivered
from trainperf.findings.rules.skipped_batches import SkippedBatches
from trainperf.findings.rules.slow_sampler import SlowSampler
from trainperf.findings.rules.worker_startup import WorkerStartup
from trainperf.findings.rules.workers_too_slow import WorkersTooSlow

ALL: tuple[Rule, ...] = (
    run.compile_warmup,
    run.growing_step,
    gpu.autotuning,
    gpu.gpu_warm_up,
    WorkerStartup(),
    host.debug_mode,
    SkippedBatches(),
    machine.pinned_cpus,
    ReadyNotDelivered(),
    WorkersTooSlow(),
    DeliveryCost(),
    SlowSampler(),
    DataStarved(),
    gil.gil_hog,
    gil.gil_many,
    trainer.lightning_monitor,
    trainer.callback,
    trainer.lightning_progress_bar,
    trainer.lightning_sigterm,
    trainer.lightning_log,
    chores.checkpoint,
    Blocked(),
    machine.gc_pauses,
    trainer.trainer_logger,
    chores.logging,
    trainer.validation_workers,
    chores.validation,
    host.extra_forward,
    machine.cpu_oversubscription,
    machine.descheduled,
    machine.throttled,
    HostPython(),
    HostCompute(),
    memory.heap_churn,
    gpu.sync_in_loop,
    gpu.pageable_copies,
    gpu.allocator_churn,
    gpu.module_loading,
    gpu.exposed_communication,
    gpu.gpu_starved_by_data,
    gpu.gpu_gil_wait,
    gpu.launch_bound,
    host.optimizer_step,
    host.framework_python,
    gpu.gpu_idle,
    run.uneven,
    run.slower_than_before,
    gpu.no_tensor_cores,
    gpu.tiny_kernels,
    gpu.few_ops,
    gpu.gpu_bound,
    memory.memory_growth,
)
