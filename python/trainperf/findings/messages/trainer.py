"""The words of findings about what a trainer calls in its loop, and about checkpoints, logs and validation."""

from __future__ import annotations

from typing import Final

from trainperf.findings.text import Doubts, Message, Messages

# -- callbacks, hooks, loggers

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
        "{helpers.said}",
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
    why="{part}.{hook} takes {call} a call[[each_step?, in every step]][[, every {often:step}]]"
    "[[; {second_share} of {part}'s time is in {second}]]",
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

# -- checkpoints, logs, validation

_WRITING: Final = Message(
    title="the loop waits for [[of_log?its log]][[!of_log?checkpoints]] to be written",
    why="{saver} runs on {thread}[[, called by {function}]]",
    evidence=(
        "{saves:save} in {steps} steps, {each} each[[, of {files} calls of {saver}]]",
        "{chores} of it is other work of {around}, such as removing the old file",
        "{beside} of it is outside {saver}: {beside_place} writes the file",
        "{called.share} of it is not writing: {called.place}",
        "{bytes} each[[, {speed}/s]]",
        "!bytes?the number of bytes is not known",
        "{storage} of it waits for storage[[on_cpu?, the rest is on the CPU (pickling, copying)]]",
    ),
    fix="{fix}",
    will_not_help="a larger batch or more workers[[fast_disk?; a faster disk: only {storage} of it waits for storage]]",
)
_LOGS: Final = Message(
    title="writing logs and metrics blocks the loop",
    why="{thread_name} logs synchronously[[, in {place}]]",
    evidence=(
        "{thread} logs for {each} of each step's {step}",
        "{calls:log call} of 1 ms or more in {in_steps} of {steps} steps, {call} each",
        "!calls?no single log call takes 1 ms: there are many short ones",
        "{blocked} of it is blocked (file, terminal, network, a lock), the rest is on the CPU",
        "{place_share} of {samples:sample} in {place}",
        "{locked} of it waits for a lock, such as a logging handler's[[: meanwhile {holder} is in {holder_place}]]",
    ),
    fix="# log every N steps, or hand records to a thread:\n"
    "q = queue.Queue(); listener = logging.handlers.QueueListener(q, handler)\n"
    "listener.start()  # and at the end listener.stop(), which writes the last records\n"
    "logger.handlers = [logging.handlers.QueueHandler(q)]",
    will_not_help="more workers, a larger batch",
)
_TAKES: Final = (
    "{often} and takes {each}[[, {own_share} of it in {own}]][[, most of it waiting for data, made in {made_in}]]"
)
_VALIDATION: Final = Message(
    title="validation is a large part of the run",
    why=f"validation runs {_TAKES}",
    evidence=(
        "{times:validation} in {steps} steps, {each} each[[, of which {elsewhere} is reported as {causes}]]",
        "{started} of each is reported as {told_by}",
        "{waiting} of it waits for validation data",
    ),
    fix="[[# speed up {own_function}, or:\n]]{rarely}",
    will_not_help="anything that makes training steps faster; the training loader's workers"
    "[[own?; a smaller model or a larger batch]]",
)


_NOW: Final = "[[each_step?now in each step]][[!each_step?now every {now:step}]]"
_WEIGHTS: Final = "(without the optimizer state: no resuming)"
_LESS: Final = "[[every_step?every N steps]][[!every_step?half as often]]"

MESSAGES: Final[Messages] = {
    "TP701": {
        "less": _CALLBACK,
        "progress_bar": _CALLBACK.but(fix="{part}(refresh_rate=50)  # draw the bar less often"),
        "method": _CALLBACK.but(fix=f"# do less there, do it more rarely, or {_BESIDE}"),
        "frameworks": _CALLBACK.but(fix=f"# {{part}} is {_OWN}"),
        "inherited": _CALLBACK.but(fix=f"# what {{part}} inherits is {_OWN}"),
        "few_calls": _CALLBACK.but(
            fix=f"# do the work of its rare slow calls less often, do less of it, or do it {_BESIDE}"
        ),
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
    "TP304": {
        "writing": _WRITING,
        "beside": _WRITING.but(
            why="{share} of a save is {place}, {saver_share} {saver}",
            will_not_help="a larger batch or more workers; {saver} alone in a thread",
        ),
        "own_work": _WRITING.but(
            why="{share} of a save is {place}, which [[waits ({call})]][[!call?is on the CPU]]"
            "[[; {second_share} is {second}]]",
            will_not_help="a faster disk, or {saver} in a thread: most of it is not writing",
        ),
    },
    "TP305": {
        "waits": _LOGS,
        # QueueHandler formats a record before it hands it over; a thread that formats would take the GIL from training.
        "formats": _LOGS.but(
            fix="# log every N steps, and less of it: a few numbers instead of whole tensors\nif step % 50 == 0: ...",
            will_not_help=f"{_LOGS.will_not_help}; a faster disk or a logging thread: most of it is CPU time for "
            "formatting",
        ),
    },
    "TP306": {
        "validation": _VALIDATION,
        "waits_for_data": _VALIDATION.but(
            title="validation waits for its data",
            fix="DataLoader(..., num_workers=2, persistent_workers=True)  # for the validation loader; or validate "
            "less:\n{rarely}",
        ),
        "eval_mode": _VALIDATION.but(
            title="eval-mode code is a large part of the run",
            why=f"[[{{stretch}}]][[!stretch?the model]] runs in eval mode {_TAKES}",
            evidence=(_VALIDATION.evidence[0].replace(":validation", ":time"), *_VALIDATION.evidence[1:]),
            fix="[[# speed up {own_function}\n]]"
            "[[every_step?# if it makes training data: collect fewer samples; if it validates: every N steps]]"
            "[[!every_step?# if it validates: half as often (now {now}); if it makes training "
            "data (a rollout): run several environments in one batch]]",
        ),
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
    "save_rows": "# write it every N steps, or append the new rows instead of rewriting all of it",
    "save_own_work": "# in {function}[[ and {second}]]: do less, or in the background; or save less often",
    "save_by_lightning": f"ModelCheckpoint(every_n_train_steps={{rarely}})  # {_NOW}; or save_weights_only=True "
    f"{_WEIGHTS}",
    "save_by_hugging_face": f"TrainingArguments(save_steps={{rarely}})  # {_NOW}; or save_only_model=True {_WEIGHTS}",
    "save_by_trainer": f"# [[in {{callback}}: ]]call trainer.save_checkpoint less often ({_NOW})",
    "save_less_often": f"# [[in {{callback}}: ]]call {{saver}} less often ({_NOW})",
    "save_all_in_a_thread": f"# [[in {{callback}}: ]]save less often ({_NOW}), or copy the state and do "
    "all the rest in a background thread, one save at a time",
    "save_in_a_thread": f"# [[in {{callback}}: ]]save less often ({_NOW}), or in the background, one save at a "
    "time:\n"
    "state = {{k: v.cpu().clone() for k, v in model.state_dict().items()}}\n"
    'threading.Thread(target=torch.save, args=(state, "last.pt")).start()',
    "several_times": "about {times_a_step} times in each step",
    "in_each_step": "in each step",
    "about_every": "about every {every} steps",
    "validate_in_callback": f"# in {{callback}}: validate {_LESS} (now {{now}})[[!own?, or on half of the data]]",
    "validate_by_lightning": "Trainer(val_check_interval={interval}, check_val_every_n_epoch=None)  # now {now}"
    "[[!own?; or limit_val_batches=0.5]]",
    "validate_by_hugging_face": 'TrainingArguments(eval_strategy="steps", eval_steps={interval})  # now {now}'
    "[[!own?; or a smaller eval_dataset]]",
    "validate_less_often": f"# validate {_LESS} (now {{now}})[[!own?, or on half of the data]]",
    "no_loader": "it reads no DataLoader: a rollout or pseudo-labeling looks the same",
    "unbracketed": "measured from eval() to train(), as the trainer's loop is not bracketed: {without}",
}

UNSURE: Final[Doubts] = {
    "bar_metrics_unknown": "the metrics on the progress bar are not known",
}
