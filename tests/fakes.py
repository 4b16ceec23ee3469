"""The scripted libcupti, libcuda and libnvidia-ml (cpp/trainperf/testing): built, and driven from Python.

    libraries = fake_libraries()                   # in a test
    gpu = Gpu(*sys.argv[2:])                       # in a child process: from here on the machine "has" a driver
    gpu.launch("gemm", ms=2)

Only a child process loads them: a driver that was loaded once is there for all tests.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "cpp" / "trainperf" / "testing"
_PARTS = {
    "libfakecupti.so": [
        *("fake_buffers.cc", "fake_controls.cc", "fake_cupti.cc", "fake_gpu.cc", "plan_windows.cc"),
        "../probe/cuda/trace_windows.cc",
    ],
    "libfakecuda.so": ["fake_cuda.cc", "-Wl,-soname,libcuda.so.1"],
    "libfakenvml.so": ["fake_nvml.cc", "-Wl,-soname,libnvidia-ml.so.1"],
}


def fake_libraries() -> tuple[str, str]:
    """Their paths: (libcupti, libcuda). As `make test` has built them, else compiled here; skips without a compiler."""
    newest = max(path.stat().st_mtime for path in [*SOURCES.glob("*.cc"), *SOURCES.glob("*.h")])
    built = Path(os.environ.get("NATIVE_TEST_BUILD", ROOT / "build" / "release")) / "cpp" / "trainperf" / "testing"
    for folder in (built, ROOT / "build" / "fake"):
        found = [folder / name for name in _PARTS]
        if all(path.exists() and path.stat().st_mtime >= newest for path in found):
            return str(found[0]), str(found[1])
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("the scripted libcupti was not built, and there is no compiler (make dev builds it)")
    folder = ROOT / "build" / "fake"
    folder.mkdir(parents=True, exist_ok=True)
    for name, parts in _PARTS.items():
        made = folder / f"{name}.{os.getpid()}"
        sources = [part if part.startswith("-") else str(SOURCES / part) for part in parts]
        command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'cpp'}"]
        done = subprocess.run(
            [*command, *sources, "-o", str(made), "-pthread"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        made.rename(folder / name)
    return str(folder / "libfakecupti.so"), str(folder / "libfakecuda.so")


class Gpu:
    """A GPU that does not exist, on a machine whose driver does not either."""

    def __init__(self, cupti: str, cuda: str) -> None:
        self.cuda = ctypes.CDLL(cuda, mode=ctypes.RTLD_GLOBAL)
        self.fake = ctypes.CDLL(cupti)
        number = {"i": ctypes.c_int, "u": ctypes.c_uint32, "q": ctypes.c_int64, "Q": ctypes.c_uint64}
        for name, arguments in (
            *(("launch", "suq"), ("copy", "Qiiuq"), ("call", "iuqu"), ("overhead_call", "uq")),
            *(("set_costs", "qqqq"), ("feed", "suiqq")),
        ):
            kinds = [ctypes.c_char_p if kind == "s" else number[kind] for kind in arguments]
            getattr(self.fake, f"fakecupti_{name}").argtypes = kinds
        self.fake.fakecupti_step_clock.argtypes = [ctypes.c_int64]
        self.fake.fakecupti_set_clock.argtypes = [ctypes.c_double, ctypes.c_int64]
        for name in (
            "produced",
            "delivered",
            "dropped",
            "held",
            "delivered_to_thief",
            "calls",
            "disordered",
            "crashes",
        ):
            getattr(self.fake, f"fakecupti_{name}").restype = ctypes.c_int64
        self._names: dict[str, bytes] = {}  # CUPTI's records point at them

    def start(self) -> None:
        """As the program's first use of CUDA does."""
        self.cuda.fakecuda_set(1, 1)

    def library(self, name: str) -> ctypes.CDLL:
        """The scripted one of that name, which lies beside libcupti."""
        return ctypes.CDLL(str(Path(self.fake._name).with_name(f"libfake{name}.so")), mode=ctypes.RTLD_GLOBAL)

    def nvml(self, **told: int) -> None:
        """What NVML tells from now on, by fake_nvml.cc's names; before the first such call there is none."""
        for what, value in told.items():
            self.library("nvml").fakenvml_set(what.encode(), 0, ctypes.c_uint64(value))

    def launch(self, name: str, *, ms: float, stream: int = 7) -> None:
        text = self._names.setdefault(name, name.encode())
        self.fake.fakecupti_launch(text, stream, int(ms * 1e6))

    def copy(self, size: int, *, to_device: bool = True, pageable: bool = False, ms: float = 0.01) -> None:
        self.fake.fakecupti_copy(size, to_device, pageable, 7, int(ms * 1e6))

    def synchronize(self) -> None:
        self.fake.fakecupti_synchronize()

    def call(self, cbid: int, *, ms: float, driver: bool = False, failed: bool = False) -> None:
        self.fake.fakecupti_call(driver, cbid, int(ms * 1e6), int(failed))

    def module_load(self, *, ms: float) -> None:
        self.fake.fakecupti_overhead_call(5 << 16, int(ms * 1e6))

    def costs(self, *, kernel_us: float, call_us: float, kind_us: float = 0, callback_us: float = 0) -> None:
        """What tracing takes of the thread that is traced: fakecupti_set_costs."""
        self.fake.fakecupti_set_costs(*(round(us * 1e3) for us in (kernel_us, call_us, kind_us, callback_us)))

    def feed(self, name: str, *, launches: int, ms: float, compute_us: float) -> None:
        """Launches that each come after so much computing: fakecupti_feed."""
        text = self._names.setdefault(name, name.encode())
        self.fake.fakecupti_feed(text, 7, launches, int(ms * 1e6), int(compute_us * 1e3))

    def count(self, what: str) -> int:
        return int(getattr(self.fake, f"fakecupti_{what}")())

    def calls(self, function: str) -> int:
        return int(self.fake.fakecupti_calls(function.encode()))

    def fails(self, function: str, result: int) -> None:
        self.fake.fakecupti_set_result(function.encode(), result)
