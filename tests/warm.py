"""Children that find torch imported: one process imports it once, and each child is a fork of that.

    done = warm.run([script, *arguments])           # as subprocess.run([sys.executable, script, ...]) with its output
    done = warm.run(["-c", program, *arguments])

To import torch takes a second or more, and its compiler, which the first optimizer imports, another: most of what a
short child lasts. The process that is forked runs no Python but on one thread and has never seen trainperf; a child's
program is its `__main__`, and ends as in any interpreter: threads, atexit, signals, exit code. What is tested of
imports, or of torch's own, needs an interpreter of its own.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence

_LONGEST = 1 << 17  # of a request: arguments and environment


def run(
    arguments: Sequence[str], *, timeout: float = 100, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What the child printed and how it ended. subprocess.TimeoutExpired when that takes too long."""
    request = {"arguments": arguments, "environment": dict(os.environ if env is None else env), "folder": os.getcwd()}
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        parent = _parent()
        socket.send_fds(parent, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
        pid = int(parent.recv(64))
        parent.settimeout(timeout)
        try:
            code = int(parent.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            parent.settimeout(None)
            parent.recv(64)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        parent.settimeout(None)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())


_started: list[socket.socket] = []


def _parent() -> socket.socket:
    """The process that imports torch, started when it is first asked for; it ends with this one."""
    if not _started:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        theirs.close()
        _started.append(ours)

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
    return _started[0]


def _serve(control: socket.socket) -> types.CodeType | None:
    """In the children their program, with `__main__` ready to be it; None at the end."""
    import torch._dynamo  # what the first optimizer of a process imports
    import torch.utils.data  # noqa: F401  # what it is all about

    gc.freeze()  # no child looks through what the imports made, and so copies it
    while True:
        message, fds, _, _ = socket.recv_fds(control, _LONGEST, 2)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            control.close()
            return _become(json.loads(message), fds)
        for fd in fds:
            os.close(fd)
        control.send(str(pid).encode())
        control.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(request: dict[str, object], fds: Sequence[int]) -> types.CodeType:
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list) and isinstance(environment, dict)
    for fd, standard in zip(fds, (1, 2), strict=True):
        os.dup2(fd, standard)
        os.close(fd)
    os.chdir(str(request["folder"]))
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
        return compile(arguments[1], "<string>", "exec")
    sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])
    main.__file__ = arguments[0]
    with open(arguments[0], "rb") as source:
        program = compile(source.read(), arguments[0], "exec")
    main.__doc__ = program.co_consts[0] if isinstance(program.co_consts[0], str) else None
    return program


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found = _serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        exec(found, sys.modules["__main__"].__dict__)
