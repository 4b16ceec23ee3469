"""The words of findings about checkpoints, logs and validation."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_WRITING: Final = Message(
    title="the loop waits for [[of_log?its log]][[!of_log?checkpoints]] to be written",
    why="{saver} runs on {thread}[[, called by {function}]]",
    evidence=(
        "{saves:save} in {steps} steps, {each} each[[, of {files} calls of {saver}]]",
        "{chores} of it is what {around} does besides, such as removing the old file",
        "{beside} of it is outside {saver}: {beside_place} writes the file",
        "{called.share} of it is no writing: {called.place}",
        "{bytes} each[[, {speed}/s]]",
        "!bytes?how many bytes is not known",
        "{storage} of it waiting for storage[[on_cpu?, the rest on the CPU (pickling, copying)]]",
    ),
    fix="{fix}",
    will_not_help="a larger batch or more workers[[fast_disk?; a faster disk: {storage} of it waits for that]]",
)
_LOGS: Final = Message(
    title="writing logs and metrics holds up the loop",
    why="{thread_name} writes its log itself[[, in {place}]]",
    evidence=(
        "{each} of each step's {step} {thread} writes logs",
        "{calls:log call} of 1 ms or more in {in_steps} of {steps} steps, {call} each",
        "!calls?no single log call takes 1 ms: there are many of them",
        "{blocked} of it blocked (file, terminal, network, a lock), the rest on the CPU",
        "{place_share} of {samples:sample} in {place}",
        "{locked} of it waits for a lock, such as a handler's that another thread writes by"
        "[[: meanwhile {holder} is in {holder_place}]]",
    ),
    fix="# log every N steps, or hand records to a thread:\n"
    "q = queue.Queue(); logging.handlers.QueueListener(q, handler).start()\n"
    "logger.handlers = [logging.handlers.QueueHandler(q)]",
    will_not_help="more workers, a larger model batch",
)
_TAKES: Final = (
    "{often} and takes {each}[[, {own_share} of it in {own}]][[, most of it waiting for data, made in {made_in}]]"
)
_VALIDATION: Final = Message(
    title="validation is a large part of the run",
    why=f"validation runs {_TAKES}",
    evidence=(
        "{times:validation} in {steps} steps, {each} each[[: {elsewhere} of it counts as {causes}]]",
        "{started} of each is reported as {told_by}",
        "{waiting} of it waits for validation data",
    ),
    fix="[[# in {own_function}: do less; or all of it less often:\n]]{rarely}",
    will_not_help="anything that makes training steps faster; the training loader's workers"
    "[[own?; a smaller model or a larger batch]]",
)

MESSAGES: Final[Messages] = {
    "TP304": {
        "writing": _WRITING,
        "beside": _WRITING.but(
            why="{place} is {share} of it, {saver} {saver_share}",
            will_not_help="a larger batch or more workers; {saver} alone in a thread",
        ),
        "own_work": _WRITING.but(
            why="the save calls {place}, which [[waits ({call})]][[!call?is on the CPU]]: {share} of it"
            "[[; and {second}: {second_share}]]",
            will_not_help="a faster disk, or {saver} in a thread: most of it is no writing",
        ),
    },
    "TP305": {
        "waits": _LOGS,
        # QueueHandler formats a record before it hands it over; a thread that formats would take the GIL from training.
        "formats": _LOGS.but(
            fix="# log every N steps, and less of it: a few numbers instead of whole tensors\nif step % 50 == 0: ...",
            will_not_help=f"{_LOGS.will_not_help}; a faster disk, a thread: most of it is formatting, on the CPU",
        ),
    },
    "TP306": {
        "validation": _VALIDATION,
        "waits_for_data": _VALIDATION.but(
            title="validation waits for its data",
            fix="DataLoader(..., num_workers=2, persistent_workers=True)  # of the validation's loader; or less of it:"
            "\n{rarely}",
        ),
        "eval_mode": _VALIDATION.but(
            title="code in eval() mode is a large part of the run",
            why=f"[[{{stretch}}]][[!stretch?the model]] runs in eval() {_TAKES}",
            evidence=(_VALIDATION.evidence[0].replace(":validation", ":stretch|stretches"), *_VALIDATION.evidence[1:]),
            fix="[[# in {own_function}: do less\n]]"
            "[[every_step?# if its result is trained on: of fewer samples; if it validates: every N steps]]"
            "[[!every_step?# if it validates: half as often (now {now}); if it makes data, such as a rollout: in "
            "larger batches, of several environments at once]]",
        ),
    },
}

_NOW: Final = "now every {now:step}"
_LESS: Final = "[[every_step?every N steps]][[!every_step?half as often]]"
TEXTS: Final = {
    "save_rows": "# write it every N steps, or append the new rows instead of rewriting all of it",
    "save_own_work": "# in {function}: do less, or do it alongside {training}; or save less often",
    "save_by_lightning": f"ModelCheckpoint(every_n_train_steps={{rarely}})  # {_NOW}; or save_weights_only=True",
    "save_by_hugging_face": f"TrainingArguments(save_steps={{rarely}})  # {_NOW}; or save_only_model=True",
    "save_by_trainer": f"# [[in {{callback}}: ]]call trainer.save_checkpoint less often ({_NOW})",
    "save_less_often": f"# [[in {{callback}}: ]]call {{saver}} less often ({_NOW})",
    "save_all_in_a_thread": f"# [[in {{callback}}: ]]save less often ({_NOW}), or all of it in a thread: of a copied "
    "state, one at a time",
    "save_in_a_thread": f"# [[in {{callback}}: ]]save less often ({_NOW}), or alongside {{training}}:\n"
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
    "no_loader": "it reads no DataLoader: a rollout, or pseudo-labels, look the same",
    "unbracketed": "it is counted from eval() to train(), as the trainer's loop is not bracketed: {without}",
}

UNSURE: Final[Doubts] = {}
