"""The words of findings about a trainer's loop: its callbacks, hooks, loggers, and what it does by itself."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_HOLD_UP: Final = "the {kind}[[several?s]] {names} hold[[!several?s]] up the loop"
_CALLS: Final = "{hooks.name}[[ ({hooks.place})]]: {hooks.count:call}, {hooks.each} each, the longest {hooks.longest}"
_BESIDE: Final = "[[computes?in a process]][[!computes?in a thread, on copies]]"
_FULL_WHY: Final = (
    "{part}.{hook}[[ ({hook_place})]] [[waits?{does}]][[!waits?holds {thread}]][[few?, and a few calls are slow]]"
    "[[epochs? once an epoch]][[alike? on every call]][[: most of it in {method}]]"
    "[[, while {awaited} is in {awaited_at}]][[; {also_said}]][[; {time_in}]]"
)
_CALLBACK: Final = Message(
    title=_HOLD_UP,
    why=_FULL_WHY,
    evidence=(
        "{each} of each step's {step} in all hooks of {part}[[module? in {loop}]]",
        _CALLS,
        "{also.each} of each step's {also.step} in {also.part} ({also.place}): {also.hook}: {also.count:call}, "
        "{also.call} each, the longest {also.longest}",
        "{more_hooks.name} ({more_hooks.place}): {more_hooks.count:call}, {more_hooks.each} each, the longest "
        "{more_hooks.longest}",
        "[[modules?others]][[!modules?other callbacks]]: {others:,}",
    ),
    fix=f"# do less there, or do it {_BESIDE}",
    will_not_help="more workers; [[module?moving it to a callback]]"
    "[[!module?reordering the callbacks]]"
    "[[computes?; a thread: it competes with {training} for the GIL]]",
)
_OWN: Final = "the framework's own: run it less often via its options, or drop it[[\n{option}]]"
# A module's hooks are where training itself may be: a clipping, an average of the weights, what shapes the batch.
_NEEDED: Final = (
    "[[!epochs?\n# if every step needs it: batch the ops (torch._foreach_*); move work on the batch into the "
    "DataLoader]]"
)
_LOGGER: Final = Message(
    title=_HOLD_UP,
    why="{part}.{hook} takes {call} a call[[, every {every:step}]][[; {second_share} of {part}'s time is in {second}]]",
    evidence=(
        "{each} of each step's {step} in {part}, which writes on {thread}",
        "{hook}[[, called by {by}]]: {count:call}, {call} each, the longest {longest}",
        "{also.each} of each step's {also.step} in {also.part}: {also.hook}[[, called by {also.by}]]: "
        "{also.count:call}, {also.call} each, the longest {also.longest}",
        "other loggers: {others:,}",
    ),
    will_not_help="a faster model or more workers: the cost is per log call",
)
_CSV: Final = (
    "[[csv?CSVLogger(..., flush_logs_every_n_steps=1000)  # and the same keys in each call: a new one rewrites "
    "metrics.csv\n]]"
)

MESSAGES: Final[Messages] = {
    "TP701": {
        "less": _CALLBACK,
        "progress_bar": _CALLBACK.but(fix="{part}(refresh_rate=50)  # draw the bar less often"),
        "method": _CALLBACK.but(fix=f"# do less there, more rarely, or {_BESIDE}"),
        "frameworks": _CALLBACK.but(fix=f"# {{part}} is {_OWN}"),
        "inherited": _CALLBACK.but(fix=f"# what {{part}} inherits is {_OWN}"),
        "few_calls": _CALLBACK.but(fix=f"# its rare slow calls: do that work less often, do less, or {_BESIDE}"),
        "every_n": _CALLBACK.but(
            fix=f"# do it every {{every}} {{unit}}, or {_BESIDE}\nif {{counter}} % {{every}}: return"
        ),
        "module_every_n": _CALLBACK.but(
            fix="# compute metrics and plots every {every} {unit}\nif {counter} % {every} == 0: ..." + _NEEDED
        ),
        "waits": _CALLBACK.but(
            fix="{wait_fix}", will_not_help="a thread: it waits on one already; {wait_will_not_help}"
        ),
    },
    "TP702": {
        "lightning": _LOGGER.but(fix=f"{_CSV}Trainer(log_every_n_steps={{seldom}})[[  # now {{every}}]]"),
        "hugging_face": _LOGGER.but(fix=f"{_CSV}TrainingArguments(logging_steps={{seldom}})[[  # now {{every}}]]"),
        "by_program": _LOGGER.but(
            why="{part}.{hook} takes {call} a call, called by {by}[[; {second_share} of {part}'s time is in {second}]]",
            fix=f"{_CSV}# in {{caller}}: log less often, or several metrics in one call",
        ),
    },
    "TP703": {
        "read": Message(
            title="metrics on the progress bar are read at every batch",
            why="Lightning calls .item() on each of them after every batch, even if the bar is rarely drawn",
            evidence=(
                "{metrics:metric} with prog_bar=True: {names:,}[[, {dots}]]",
                "{each} after each batch, mostly waiting for the device to compute it",
            ),
            fix='self.log("loss", loss, prog_bar=False)  # or prog_bar=batch_idx % 50 == 0',
            will_not_help="a larger refresh_rate of the progress bar, a larger log_every_n_steps",
        )
    },
    "TP704": {
        "monitors": Message(
            title="{names} slow[[!several?s]] down what [[several?they measure]][[!several?it measures]]",
            why="{does}",
            evidence=(
                "{monitors.each} of each step's {step} in {monitors.name}: {monitors.hook}, {monitors.count:call}, "
                "{monitors.call} each",
            ),
            fix="# remove {calls} from Trainer(callbacks=[...]) when you are done",
            will_not_help="[[waits?a larger log_every_n_steps, for ThroughputMonitor: it waits at every batch]]"
            "[[!waits?more workers]]",
        )
    },
    "TP705": {
        "restarts": Message(
            title="the validation loader restarts its worker processes each time",
            why="each validation begins with iter(loader), which starts {workers:worker}",
            evidence=(
                "{starts:start} of {workers:worker}, {each} each, up to the first batch",
                "persistent_workers=False",
            ),
            fix="DataLoader(..., num_workers={workers}, persistent_workers=True)  # for the validation data",
            will_not_help="more workers: each one makes the start longer",
        )
    },
    "TP706": {
        "broadcast": Message(
            title="Lightning broadcasts a SIGTERM flag to all ranks before every batch",
            why="Lightning {version} does it in _TrainingEpochLoop.advance (Lightning#21487)",
            evidence=(
                "{count:broadcast}, {each} each, the longest {longest}",
                "each one waits for the slowest rank, and reads its value back from the device",
            ),
            fix="# until it is fixed there, and if you need no shutdown on SIGTERM:\n"
            "trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None",
            will_not_help="this, if one rank is slow: the wait only moves into backward's all-reduce",
        )
    },
    "TP707": {
        "log_calls": Message(
            title="self.log calls take much of the step",
            why="Lightning runs Python for each metric at each call: {place}",
            evidence=(
                "{each} of each step's {step} in Lightning's self.log and self.log_dict ({samples:sample})",
                "{spots.share} of it in {spots.place}",
            ),
            fix="# log fewer metrics, or every N steps\nif batch_idx % 50 == 0: self.log(...)",
            will_not_help="self.log_dict: it calls self.log for each metric; a larger log_every_n_steps: that only "
            "writes less often; torch.compile",
        )
    },
}

TEXTS: Final = {
    "kind_callback": "callback",
    "kind_logger": "logger",
    "kind_hook": "hook",
    "kind_module": "module's hook",
    "so_does": "so does {also_hook}, {share}",
    "takes_share": "{also_hook} takes {share}",
    "time_in": "{share} of its time is in {also_hook}",
    "called": "{hook}[[, called by {by}]]",
    "monitor_ThroughputMonitor": "ThroughputMonitor waits for the device after every batch (torch.cuda.synchronize)",
    "monitor_DeviceStatsMonitor": "DeviceStatsMonitor reads all of the device's statistics before and after every "
    "logged batch",
}

UNSURE: Final[Doubts] = {"bar_metrics_unknown": "the metrics on the progress bar are not known"}
