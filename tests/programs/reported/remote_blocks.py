"""Samples of 4 KB come at random from a file behind HTTP, of which fsspec reads 5 MB ahead each time."""

import asyncio
import itertools
import json
import multiprocessing
import os
import tempfile
from multiprocessing.connection import Connection
from typing import Any

import fsspec
import numpy as np
import torch
from _common import FIXED, Classifier, Clock
from aiohttp import web
from torch.utils.data import DataLoader, Dataset

SAMPLE, SAMPLES, BATCH, STEPS = 4096, 16_384, 8, 200
READ = {"cache_type": "none"} if FIXED else {}


def serve(path: str, ready: Connection) -> None:
    """A file system over HTTP, as an object store is."""

    async def get(request: web.Request) -> web.FileResponse:
        return web.FileResponse(path)

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/samples", get)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


class Samples(Dataset[Any]):
    def __init__(self, url: str) -> None:
        self.file = fsspec.open(url, "rb", **READ).open()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * SAMPLE)
        read = np.frombuffer(self.file.read(SAMPLE), dtype=np.uint8)  # trouble
        return torch.from_numpy(read[:64].astype("float32") / 255), index % 4


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "samples")
        with open(path, "wb") as file:
            file.write(os.urandom(SAMPLE * SAMPLES))
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(path, theirs), daemon=True)
        server.start()
        classifier, waiting, wall = Classifier(), Clock(), Clock()
        batches = iter(DataLoader(Samples(f"http://127.0.0.1:{ours.recv()}/samples"), batch_size=BATCH, shuffle=True))
        with wall:
            for _ in itertools.repeat(None, STEPS * (4 if FIXED else 1)):
                with waiting:
                    features, labels = next(batches)
                classifier.step(features, labels)
        server.terminate()
        # A request for each sample still takes most of a step; part of that is the GIL's and the CPUs'.
        share = {} if FIXED else {"share": round(waiting.ns / wall.ns, 3)}
        print("TRUTH " + json.dumps({"finding": "data-starved", **share}))


if __name__ == "__main__":
    main()
