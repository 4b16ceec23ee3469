"""The process of a trial: python child.py SPEC PARENT

It runs the unedited script with the change applied, watched or not, and ends in the middle of the loop, between two
steps, by os._exit: no `finally` of the script's runs, no atexit, nothing is saved. What it saw is left as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from trainperf.hooks.patch import AnyFunction, Patch
from trainperf.prove.sandbox import enter

_PR_SET_PDEATHSIG = 1
STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
_MAX_ERROR = 300
_OF_WORKER = "Original Traceback (most recent call last):\n"  # in what torch makes of a worker's error
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.M)


class Trial:
    def __init__(self, spec: Mapping[str, Any]) -> None:
        from trainperf.prove.inject import Injection
        from trainperf.prove.recorder import Recorder
        from trainperf.prove.turns import Turns, policy_of
        from trainperf.prove.writes import Guard

        self._spec = spec
        turns = spec["turns"]
        self._own: Any = None  # the watch that we begin
        self._watch: Any = None  # the one that counts, which may be the script's
        self._recorder = Recorder(
            batches=spec["batches"],
            seconds=spec["seconds"],
            finish=self.finish,
            cached=spec["cached"],
            data_only=spec["data_only"],
            epoch=spec["epoch"],
            turns=Turns(policy_of(turns["policy"]), **turns["epochs"]) if turns else None,
            turning=self._turning,
        )
        loader = spec["loader"] or {}
        self._injection = Injection(
            spec["settings"], self._recorder, chain=loader.get("chain"), nth=loader.get("nth"), shift=spec["shift"]
        )
        self._guard = Guard(self._would_overwrite, **spec["guard"]) if spec["guard"] else None
        self._ended = False
        self._environment = dict(os.environ)
        self._set_before_torch: list[str] = []  # variables that the script sets, and torch may read as it is imported

    def run(self) -> None:
        """Does not return."""
        import trainperf
        from trainperf.hooks.late import LateImports
        from trainperf.program import of_module, of_script
        from trainperf.watching import process

        command = self._spec["command"]
        try:
            program = (of_module if command["module"] else of_script)(command["target"])
            program.become_main(command["arguments"])
            how = ["-m"] if command["module"] else []
            sys.orig_argv = [sys.executable, *how, command["target"], *command["arguments"]]  # what is advised names it
            self._injection.before_torch()
            for module in ("torch", STATEFUL):
                if module in sys.modules:
                    self._imported(module)
                else:
                    # Before the watch's own, which then wraps what it put in.
                    LateImports([module], self._imported).install()
            if self._guard is not None:
                self._guard.install()
            Patch(process, "begin", self._begins)
            if self._spec["watched"]:
                self._own = watch = trainperf.watch(self._spec["run_file"], verbose=False)
                watch.gives_way = True
                watch.__enter__()
            exec(program.code(), program.module.__dict__)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                self.finish("error", f"it left with {leaving.code}")
        except BaseException as error:
            with contextlib.suppress(OSError):
                traceback.print_exception(error)  # to the trial's log
            self.finish("error", one_line(error))
        self.finish("script")

    def _imported(self, module: str) -> None:
        if module == "torch":
            self._at_torch()
        else:
            self._recorder.reaches(sys.modules[module])
            self._injection.reaches(sys.modules[module])

    def _at_torch(self) -> None:
        self._set_before_torch = [n for n, v in os.environ.items() if self._environment.get(n) != v]
        self._recorder.install()
        self._injection.at_torch()
        if self._guard is not None:
            self._guard.at_torch()

    def _begins(self, original: AnyFunction) -> AnyFunction:
        def begin(watch: Any) -> None:
            original(watch)
            self._watch = watch

        return begin

    def _would_overwrite(self, path: str) -> None:
        self.finish("overwrite", path)

    def _turning(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def finish(self, why: str, error: str = "") -> None:
        """Writes what was seen, and ends the process at once."""
        if self._ended:
            return
        self._ended = True
        if self._guard is not None:
            self._guard.off()
        code = 70
        try:
            record = self._recorder.record()
            record |= {
                "ended": why,
                "error": error,
                "unproven": self._injection.unproven(),
                "script_seeds": self._injection.script_seeds,
                "set_before_torch": self._set_before_torch,
            }
            if self._watch is not None:
                if self._watch.running:
                    self._watch.stop()
                if self._watch.path != self._spec["run_file"] and self._watch.path:
                    shutil.copyfile(self._watch.path, self._spec["run_file"])
            with open(self._spec["record"] + "~", "w") as file:
                json.dump(record, file)
            os.rename(self._spec["record"] + "~", self._spec["record"])
            code = 0
        except BaseException as failure:
            with contextlib.suppress(OSError):
                traceback.print_exception(failure)
        finally:
            for last in (self._remove_private, sys.stdout.flush, sys.stderr.flush):
                with contextlib.suppress(OSError, ValueError):
                    last()
            os._exit(code)

    def _remove_private(self) -> None:
        """The run file that our watch made elsewhere, where the disk was full."""
        if self._own is not None and self._own.path not in ("", self._spec["run_file"]):
            os.unlink(self._own.path)


def one_line(error: BaseException) -> str:
    """ "ValueError: no such thing (train.py:12)"."""
    text = f"{type(error).__name__}: {error}"
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    whole, worker, original = str(error).partition(_OF_WORKER)
    if worker:  # whose own error is the last of it
        lines = original.splitlines()
        last = max((i for i, line in enumerate(lines) if line.startswith(" ")), default=-1)
        text = " ".join(lines[last + 1 :]) or whole
        frames = [(file, int(line)) for file, line in _FRAME.findall(original)]
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    others = ("site-packages", "/lib/python3", ours)
    users = [(file, line) for file, line in frames if not any(part in file for part in others)]
    place = f" ({os.path.basename(users[-1][0])}:{users[-1][1]})" if users else ""
    return " ".join(text.split()).removesuffix(":")[:_MAX_ERROR] + place


def ends_with(parent: int) -> None:
    """No trial outlives the process that started it, whatever ended that."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def main(spec: Mapping[str, Any], parent: int) -> None:
    ends_with(parent)
    os.chdir(spec["folder"])
    # multiprocessing's own is removed by atexit, which a trial does not come to.
    multiprocessing.current_process()._config["tempdir"] = spec["of_workers"]  # type: ignore[attr-defined]
    if spec["sandbox"]:
        failed = enter(spec["sandbox"], spec["real"], spec["scratch"])
        if failed:
            sys.exit("; ".join(f"{path}: {why}" for path, why in failed.items()))
    if spec["patch"]:
        done = subprocess.run(["git", "apply", "--", spec["patch"]], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"git apply: {' '.join(done.stderr.split())}")  # the last words of the trial's log
    Trial(spec).run()


if __name__ == "__main__":
    with open(sys.argv[1]) as spec_file:
        main(json.load(spec_file), int(sys.argv[2]))
