"""The rules, in the order in which they may claim time: the specific before the general."""

from __future__ import annotations

from trainperf.findings.model import Rule
from trainperf.findings.rules.blocked import Blocked
from trainperf.findings.rules.checkpoint import Checkpoint
from trainperf.findings.rules.compile_warmup import CompileWarmup
from trainperf.findings.rules.data_starved import DataStarved
from trainperf.findings.rules.delivery_cost import DeliveryCost
from trainperf.findings.rules.descheduled import Descheduled
from trainperf.findings.rules.framework_python import FrameworkPython
from trainperf.findings.rules.gc_pauses import GcPauses
from trainperf.findings.rules.gil_hog import GilHog
from trainperf.findings.rules.gil_many import GilMany
from trainperf.findings.rules.host_compute import HostCompute
from trainperf.findings.rules.host_python import HostPython
from trainperf.findings.rules.lightning_callback import LightningCallback
from trainperf.findings.rules.lightning_logger import LightningLogger
from trainperf.findings.rules.lightning_monitor import LightningMonitor
from trainperf.findings.rules.lightning_progress_bar import LightningProgressBar
from trainperf.findings.rules.lightning_sigterm import LightningSigterm
from trainperf.findings.rules.logging import Logging
from trainperf.findings.rules.ready_not_delivered import ReadyNotDelivered
from trainperf.findings.rules.slower_than_before import SlowerThanBefore
from trainperf.findings.rules.throttled import Throttled
from trainperf.findings.rules.uneven import Uneven
from trainperf.findings.rules.validation import Validation
from trainperf.findings.rules.validation_workers import ValidationWorkers
from trainperf.findings.rules.worker_startup import WorkerStartup
from trainperf.findings.rules.workers_too_slow import WorkersTooSlow

ALL: tuple[Rule, ...] = (
    CompileWarmup(),
    WorkerStartup(),
    ReadyNotDelivered(),
    WorkersTooSlow(),
    DeliveryCost(),
    DataStarved(),
    GilHog(),
    GilMany(),
    LightningMonitor(),
    LightningCallback(),
    LightningProgressBar(),
    LightningSigterm(),
    Blocked(),
    GcPauses(),
    Checkpoint(),
    LightningLogger(),
    Logging(),
    ValidationWorkers(),
    Validation(),
    Descheduled(),
    Throttled(),
    HostPython(),
    HostCompute(),
    FrameworkPython(),
    Uneven(),
    SlowerThanBefore(),
)
