"""Shells compress logs on the one CPU that training may use, and are killed with what they started."""

import json
import os
import signal
import subprocess
import time

from _common import FIXED, Classifier, delay_ns, for_seconds

COMPRESS = "head -c 100000000000 /dev/zero | gzip -9 > /dev/null"


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    trainer = Classifier(width=1024)
    shells = [subprocess.Popen(COMPRESS, shell=True, start_new_session=True) for _ in range(0 if FIXED else 2)]
    waited, started = delay_ns(), time.perf_counter_ns()
    for _ in for_seconds(8):
        trainer.step(*trainer.batch())
    wall = time.perf_counter_ns() - started
    share = round((delay_ns() - waited) / wall, 3)
    told = {"finding": None} if FIXED else {"finding": "descheduled", "share": share, "fix": "nice -n 19"}
    print("TRUTH " + json.dumps(told))
    for shell in shells:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


if __name__ == "__main__":
    main()
