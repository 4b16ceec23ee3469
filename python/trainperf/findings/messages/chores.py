"""The words of findings about checkpoints, logs and validation."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

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

MESSAGES: Final[Messages] = {
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
            "[[every_step?# if it makes training data: collect less; if it validates: every N steps]]"
            "[[!every_step?# if it validates: half as often (now {now}); if it makes training "
            "data (a rollout): run several environments in one batch]]",
        ),
    },
}

_NOW: Final = "[[each_step?now in each step]][[!each_step?now every {now:step}]]"
_WEIGHTS: Final = "(without the optimizer state: no resuming)"
_LESS: Final = "[[every_step?every N steps]][[!every_step?half as often]]"
TEXTS: Final = {
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

UNSURE: Final[Doubts] = {}
