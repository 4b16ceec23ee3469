"""Records what CUPTI writes into its buffers while a few known steps run: cpp/trainperf/testing/recorded/*.cupti.

    python tests/gpu/record_buffers.py h100-cupti-13.0.cupti      # on a machine with a GPU

The file is lines of text up to "end", then the buffers, one after the other:

    trainperf-cupti 1
    about NVIDIA H100 80GB HBM3, torch 2.11.0+cu130
    version 130001
    process 882
    clock MONOTONIC_NS CUPTI_TICKS                        several, in order of time
    name ADDRESS TEXT                                     of a kernel: what a record's pointer pointed at
    truth WHAT VALUE                                      what the program did, by its own count
    buffer BYTES RECORDS

What is recorded is what a watch asks for, but with all calls of the runtime and the driver. ctypes, not our own tracer:
its errors are not to be in what it is tested with.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import torch

SIZE = 1 << 16
KINDS = (10, 1, 22, 2, 17, 38, 52, 5, 4)  # CUpti_ActivityKind: cpp/trainperf/probe/cuda/cupti_abi.h
KERNEL, NAME_AT = 10, 104
STEPS, REPLAYS, NODES = 3, 4, 5

_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Recorder:
    """The buffers that CUPTI filled between attach() and detach()."""

    def __init__(self) -> None:
        self.cupti = ctypes.CDLL("libcupti.so.13", mode=os.RTLD_NOLOAD | os.RTLD_NOW)  # torch has loaded it
        self.clocks: list[tuple[int, int]] = []
        self.names: dict[int, str] = {}
        self.buffers: list[tuple[bytes, int]] = []  # with the number of records
        self._memory: list[Any] = []
        self._full: list[tuple[int, int]] = []
        self._callbacks = _Requested(self._request), _Completed(self._complete)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.cupti, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: CUPTI's error {result}")

    def _request(self, buffer: Any, size: Any, records: Any) -> None:
        memory = ctypes.create_string_buffer(SIZE + 64)
        self._memory.append(memory)
        buffer[0] = (ctypes.addressof(memory) + 63) & ~63
        size[0], records[0] = SIZE, 0

    def _complete(self, _context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
        self._full.append((buffer, valid))

    def version(self) -> int:
        version = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(version))
        return version.value

    def attach(self) -> None:
        zero, size = ctypes.c_uint8(0), ctypes.c_size_t(1)
        self._call("cuptiActivitySetAttribute", 9, ctypes.byref(size), ctypes.byref(zero))  # no buffers per thread
        self._call("cuptiSetThreadIdType", 1)
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        self.read_clock()
        for kind in KINDS:
            self._call("cuptiActivityEnable", kind)

    def detach(self) -> None:
        for kind in reversed(KINDS):
            self._call("cuptiActivityDisable", kind)
        self.flush()
        self.read_clock()

    def read_clock(self) -> None:
        readings = []
        for _ in range(9):
            ticks = ctypes.c_uint64()
            before = time.monotonic_ns()
            self._call("cuptiGetTimestamp", ctypes.byref(ticks))
            took = time.monotonic_ns() - before
            readings.append((took, before + took // 2, ticks.value))
        self.clocks.append(min(readings)[1:])

    def flush(self) -> None:
        self._call("cuptiActivityFlushAll", 0)
        while self._full:
            at, valid = self._full.pop(0)
            data = ctypes.string_at(at, valid)
            record, count = ctypes.c_void_p(), 0
            while self._next(at, valid, record):
                count += 1
                offset = (record.value or at) - at
                if struct.unpack_from("<I", data, offset)[0] == KERNEL:
                    name = struct.unpack_from("<Q", data, offset + NAME_AT)[0]
                    self.names[name] = ctypes.string_at(name).decode()
            self.buffers.append((data, count))

    def _next(self, at: int, valid: int, record: ctypes.c_void_p) -> bool:
        walked = self.cupti.cuptiActivityGetNextRecord(
            ctypes.c_void_p(at), ctypes.c_size_t(valid), ctypes.byref(record)
        )
        return bool(walked == 0)


def program(recorder: Recorder) -> dict[str, int]:
    """Three steps, a CUDA graph, an allocation, and what they were in numbers."""
    host = torch.randn(256, 256)
    pinned = host.pin_memory()
    weight = torch.randn(256, 256, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    torch.cuda.synchronize()
    recorder.attach()
    spans = []
    for _ in range(STEPS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        loss = (host.cuda() @ weight + pinned.to("cuda", non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        end.record()
        spans.append((begin, end))
        recorder.flush()
    torch.cuda.synchronize()
    span_us = [round(begin.elapsed_time(end) * 1e3) for begin, end in spans]

    x = torch.ones(64, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(NODES):
            y = y * 1.5
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    recorder.flush()

    before = torch.cuda.memory_stats()["num_device_alloc"]
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    allocations = torch.cuda.memory_stats()["num_device_alloc"] - before
    recorder.detach()
    return {
        "steps": STEPS,
        "copy_bytes": host.nbytes,
        **{f"span_us_{n}": us for n, us in enumerate(span_us)},
        "graph_replays": REPLAYS,
        "graph_nodes": NODES,
        "last_allocations": allocations,
    }


def main(path: Path) -> None:
    recorder = Recorder()
    truth = program(recorder)
    lines = [
        "trainperf-cupti 1",
        f"about {torch.cuda.get_device_name(0)}, torch {torch.__version__}",
        f"version {recorder.version()}",
        f"process {os.getpid()}",
        *(f"clock {monotonic} {ticks}" for monotonic, ticks in recorder.clocks),
        *(f"name {address} {name}" for address, name in recorder.names.items()),
        *(f"truth {what} {value}" for what, value in truth.items()),
        *(f"buffer {len(data)} {count}" for data, count in recorder.buffers),
        "end",
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(text + b"".join(data for data, _ in recorder.buffers))
    records = sum(count for _, count in recorder.buffers)
    print(f"{path}: {records} records in {len(recorder.buffers)} buffers, {truth}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
