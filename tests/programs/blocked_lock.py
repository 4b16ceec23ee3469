"""A lock that another thread holds while it sleeps: blocked, and never the GIL. A third thread does nothing at all.

Size: ms of one hold."""

import threading
import time

from _common import Program, Ready, Stoppable, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="blocked_io", finding="blocked", steps=250, size=6.0, who="uploader")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    lock = threading.Lock()

    def upload() -> None:
        with lock:
            time.sleep(program.size / 1e3)
        time.sleep(program.size / 4e3)

    def heartbeat() -> None:
        time.sleep(3600)

    threading.Thread(target=heartbeat, name="heartbeat", daemon=True).start()
    uploader = Stoppable(upload, "uploader")
    if program.size:
        uploader.start()
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
            if program.size:
                with program.trouble():
                    lock.acquire()  # trouble
                lock.release()
    if program.size:
        uploader.stop()
    program.report()


if __name__ == "__main__":
    main()
