"""A process that has imported torch, and forks a trial when it is asked to: that saves most of what one takes.

A trial of two seconds lasts 3.5 s so, and 6 s in a fresh process. It is forked before any thread, CUDA or the script's
own imports; a change that the interpreter must start with has a fresh process.

    zygote = Zygote(python, environment)
    process = zygote.fork("1.spec", log)    # has pid and wait(), as subprocess.Popen
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

from trainperf.errors import TrainperfError

_LONGEST = 1 << 16


class Forked:
    """A trial that the zygote forked, and waits for."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired; TrainperfError once when the zygote
        has ended, and this trial with it."""
        if self._code is None:
            try:
                self._code = self._zygote.answer(timeout)
            except TrainperfError:
                self._code = -signal.SIGKILL
                raise
        return self._code


class Zygote:
    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, os.path.abspath(__file__), str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, spec: str, log: IO[bytes]) -> Forked:
        """Raises TrainperfError when the zygote has ended."""
        try:
            socket.send_fds(self._control, [spec.encode()], [log.fileno()])
        except ConnectionError:
            raise self._ended() from None
        return Forked(self, self.answer(None))

    def answer(self, timeout: float | None) -> int:
        """The next number that it sends. Raises subprocess.TimeoutExpired; TrainperfError when it has ended."""
        self._control.settimeout(timeout)
        try:
            message = self._control.recv(64)
        except TimeoutError:
            raise subprocess.TimeoutExpired("trial", timeout or 0.0) from None
        except ConnectionError:
            message = b""
        finally:
            self._control.settimeout(None)
        if not message:
            raise self._ended()
        return int(message)

    def _ended(self) -> TrainperfError:
        code = self._process.wait()
        why = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return TrainperfError(f"the process that starts the trials {why}; the system does that when memory is short")

    def close(self) -> None:
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _serve(control: socket.socket) -> tuple[str, int]:
    """In a child: its spec, and where it logs. The zygote itself never comes back."""
    import torch._dynamo  # what the first optimizer of a process imports
    import torch.utils.data  # noqa: F401

    while True:
        message, fds, _, _ = socket.recv_fds(control, _LONGEST, 1)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            return message.decode(), fds[0]
        os.close(fds[0])
        control.send(str(pid).encode())
        control.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(log: int) -> None:
    os.setsid()
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    from trainperf.prove import child

    child.ends_with(int(sys.argv[2]))
    own_pid = os.getpid()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        spec_file, log_fd = _serve(channel)
    _become(log_fd)
    with open(spec_file) as file:
        child.main(json.load(file), own_pid)
