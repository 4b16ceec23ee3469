"""The rules, in the order in which they may claim time: the specific before the general."""

from __future__ import annotations

from trainperf.findings.rule import Rule
from trainperf.findings.rules.allocator_churn import AllocatorChurn
from trainperf.findings.rules.autotuning import Autotuning
from trainperf.findings.rules.blocked import Blocked
from trainperf.findings.rules.callback import Callback
from trainperf.findings.rules.checkpoint import Checkpoint
from trainperf.findings.rules.compile_warmup import CompileWarmup
from trainperf.findings.rules.cpu_oversubscription import CpuOversubscription
from trainperf.findings.rules.data_starved import DataStarved
from trainperf.findings.rules.debug_mode import DebugMode
from trainperf.findings.rules.delivery_cost import DeliveryCost
from trainperf.findings.rules.descheduled import Descheduled
from trainperf.findings.rules.exposed_communication import ExposedCommunication
from trainperf.findings.rules.extra_forward import ExtraForward
from trainperf.findings.rules.few_ops import FewOps
from trainperf.findings.rules.framework_python import FrameworkPython
from trainperf.findings.rules.gc_pauses import GcPauses
from trainperf.findings.rules.gil_hog import GilHog
from trainperf.findings.rules.gil_many import GilMany
from trainperf.findings.rules.gpu_bound import GpuBound
from trainperf.findings.rules.gpu_gil_wait import GpuGilWait
from trainperf.findings.rules.gpu_idle import GpuIdle
from trainperf.findings.rules.gpu_starved_by_data import GpuStarvedByData
from trainperf.findings.rules.gpu_warm_up import GpuWarmUp
from trainperf.findings.rules.growing_step import GrowingStep
from trainperf.findings.rules.heap_churn import HeapChurn
from trainperf.findings.rules.host_compute import HostCompute
from trainperf.findings.rules.host_python import HostPython
from trainperf.findings.rules.launch_bound import LaunchBound
from trainperf.findings.rules.lightning_log import LightningLog
from trainperf.findings.rules.lightning_monitor import LightningMonitor
from trainperf.findings.rules.lightning_progress_bar import LightningProgressBar
from trainperf.findings.rules.lightning_sigterm import LightningSigterm
from trainperf.findings.rules.logging import Logging
from trainperf.findings.rules.memory_growth import MemoryGrowth
from trainperf.findings.rules.module_loading import ModuleLoading
from trainperf.findings.rules.no_tensor_cores import NoTensorCores
from trainperf.findings.rules.optimizer_step import OptimizerStep
from trainperf.findings.rules.pageable_copies import PageableCopies
from trainperf.findings.rules.pinned_cpus import PinnedCpus
from trainperf.findings.rules.ready_not_delivered import ReadyNotDelivered
from trainperf.findings.rules.skipped_batches import SkippedBatches
from trainperf.findings.rules.slow_sampler import SlowSampler
from trainperf.findings.rules.slower_than_before import SlowerThanBefore
from trainperf.findings.rules.sync_in_loop import SyncInLoop
from trainperf.findings.rules.throttled import Throttled
from trainperf.findings.rules.tiny_kernels import TinyKernels
from trainperf.findings.rules.trainer_logger import TrainerLogger
from trainperf.findings.rules.uneven import Uneven
from trainperf.findings.rules.validation import Validation
from trainperf.findings.rules.validation_workers import ValidationWorkers
from trainperf.findings.rules.worker_startup import WorkerStartup
from trainperf.findings.rules.workers_too_slow import WorkersTooSlow

ALL: tuple[Rule, ...] = (
    CompileWarmup(),
    GrowingStep(),
    Autotuning(),
    GpuWarmUp(),
    WorkerStartup(),
    DebugMode(),
    SkippedBatches(),
    PinnedCpus(),
    ReadyNotDelivered(),
    WorkersTooSlow(),
    DeliveryCost(),
    SlowSampler(),
    DataStarved(),
    GilHog(),
    GilMany(),
    LightningMonitor(),
    Callback(),
    LightningProgressBar(),
    LightningSigterm(),
    LightningLog(),
    Checkpoint(),
    Blocked(),
    GcPauses(),
    TrainerLogger(),
    Logging(),
    ValidationWorkers(),
    Validation(),
    ExtraForward(),
    CpuOversubscription(),
    Descheduled(),
    Throttled(),
    HostPython(),
    HostCompute(),
    HeapChurn(),
    SyncInLoop(),
    PageableCopies(),
    AllocatorChurn(),
    ModuleLoading(),
    ExposedCommunication(),
    GpuStarvedByData(),
    GpuGilWait(),
    LaunchBound(),
    OptimizerStep(),
    FrameworkPython(),
    GpuIdle(),
    Uneven(),
    SlowerThanBefore(),
    NoTensorCores(),
    TinyKernels(),
    FewOps(),
    GpuBound(),
    MemoryGrowth(),
)
