"""Builds the wheels into wheelhouse/: manylinux_2_28, x86_64 and aarch64, for each CPython whose headers are here.

    python scripts/wheel.py [--arch x86_64] [--python 3.11 3.14] [--all] [--define NAME=VALUE] [--target NAME]

Zig's C++ compiler (PyPI's ziglang) builds them all on one machine, whatever its glibc. Abseil, SQLite, simdjson,
zlib-ng and libc++ are inside. A processor has one build folder: what knows no Python is compiled once, and for each
CPython only the rest. Python sources and metadata come out of the sdist.

Headers are those of the interpreters that scripts/pythons.py finds, and of the forky of scripts/newer_pythons.sh; a
free-threaded build has those of the other. With --all a CPython whose headers are missing is an error; else it is
named, and left out.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build/wheel"
ZIG = ROOT / "build/zig"
ZIGLANG = "ziglang==0.17.1"
ARCHES = ("x86_64", "aarch64")
WANTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t", "3.15")
GLIBC = (2, 28)

# What a pyconfig.h of x86-64 says and that of aarch64 does not, both of Linux with glibc (compared for Debian's
# 3.11, 3.13, 3.14 and 3.15). No layout depends on it.
ONLY_X86_64 = (
    "HAVE_GCC_ASM_FOR_X64",
    "HAVE_GCC_ASM_FOR_X87",
    "_Py_HACL_CAN_COMPILE_VEC128",
    "_Py_HACL_CAN_COMPILE_VEC256",
)

ASK = """
import sysconfig
print("%s%s" % (sysconfig.get_python_version(), "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))
print(sysconfig.get_path("include"))
print(sysconfig.get_config_h_filename())
"""


@dataclass(frozen=True)
class Headers:
    """A CPython to build for: "3.14t", its headers, and its pyconfig.h for x86-64."""

    version: str
    include: Path
    config: Path

    @property
    def tag(self) -> str:
        """Of the interpreter: cp314."""
        return "cp" + self.version.replace(".", "").rstrip("t")

    @property
    def abi(self) -> str:
        return "cp" + self.version.replace(".", "")

    def suffix(self, arch: str) -> str:
        return f".cpython-{self.abi.removeprefix('cp')}-{arch}-linux-gnu.so"

    def stage(self, arch: str) -> Path:
        """A folder that holds all of the headers, as Debian keeps pyconfig.h apart, for that processor."""
        folder = WORK / "include" / f"{self.abi}-{arch}"
        config = self.config.read_text(encoding="utf-8")
        if self.version.endswith("t") and "#define Py_GIL_DISABLED 1" not in config:
            config += "\n#define Py_GIL_DISABLED 1\n"  # all that differs between the headers of the two builds
        if arch != "x86_64":
            config += "".join(f"\n#undef {name}" for name in ONLY_X86_64) + "\n"
        staged = folder / "pyconfig.h"
        if not staged.exists() or staged.read_text(encoding="utf-8") != config:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.include, folder)
            staged.write_text(config, encoding="utf-8")
        return folder


def run(*command: str | Path, log: str) -> None:
    """Runs it with its output in build/wheel/LOG, of which the end is shown when it fails."""
    path = WORK / log
    with path.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, check=False
        )
    if done.returncode != 0:
        sys.stderr.write(path.read_text(encoding="utf-8", errors="replace")[-4000:])
        raise SystemExit(f"wheel: {command[0]} failed: see {path.relative_to(ROOT)}")


def find_headers() -> dict[str, Headers]:
    found: dict[str, Headers] = {}
    listing = subprocess.run(
        [sys.executable, ROOT / "scripts/pythons.py"], capture_output=True, text=True, check=True
    ).stdout
    for line in listing.splitlines():
        answer = subprocess.run([line.split()[0], "-c", ASK], capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
        found.setdefault(answer[0], Headers(answer[0], Path(answer[1]), Path(answer[2])))
    forky = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "trainperf/forky/usr/include")
    for config in sorted(forky.glob("x86_64-linux-gnu/python3.*/pyconfig.h")):
        version = config.parent.name.removeprefix("python")
        found.setdefault(version, Headers(version, forky / config.parent.name, config))
    for version in WANTED:
        if version.endswith("t") and version not in found and (other := found.get(version.rstrip("t"))):
            found[version] = replace(other, version=version)
    return found


def find_zig() -> Path:
    """Zig's program, which is fetched the first time: some 100 MB."""
    folder = ZIG / ZIGLANG
    if not (folder / "ziglang/zig").exists():
        shutil.rmtree(folder, ignore_errors=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            folder,
            ZIGLANG,
        ]
        subprocess.run(pip, check=True)
    return folder / "ziglang/zig"


def make_sdist() -> Path:
    """The sdist, and from it, unpacked in build/wheel/pure, all of a wheel but what is compiled."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    shutil.rmtree(WORK / "pure", ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", "dist", ".", log="sdist.log")
    (sdist,) = (ROOT / "dist").glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    run(*pip, "-Cwheel.cmake=false", "-w", WORK / "pure", sdist, log="pure.log")
    (wheel,) = (WORK / "pure").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(WORK / "pure/tree")
    return sdist


def compile_module(headers: Headers, arch: str, zig: Path, defines: list[str], targets: list[str]) -> Path:
    """The folder that CMake has installed the module, and the pages of the findings, into."""
    build, installed = WORK / arch, WORK / "installed" / f"{headers.abi}-{arch}"
    glibc = ".".join(map(str, GLIBC))
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True, check=True
    )
    # Nothing that CMake has found out about the CPython before.
    forget = ("-U*Python*", "-U*PYTHON*", "-Upybind11*")
    define = {
        "TRAINPERF_ZIG": zig,
        "TRAINPERF_ZIG_TARGET": f"{arch}-linux-gnu.{glibc}",
        "TRAINPERF_FETCH": "ON",
        "TRAINPERF_TESTS": "OFF",
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CMAKE_MODULE_LINKER_FLAGS": "-s",  # stripped as it is linked: this machine's strip knows its own processor
        "Python_INCLUDE_DIR": headers.stage(arch),
        "Python_FIND_ABI": f"OFF;OFF;OFF;{'ON' if headers.abi.endswith('t') else 'OFF'}",  # the last: no GIL
        "PYBIND11_USE_CROSSCOMPILING": "ON",
        "PYTHON_IS_DEBUG": "0",
        "PYTHON_MODULE_DEBUG_POSTFIX": "",
        "PYTHON_MODULE_EXTENSION": headers.suffix(arch),
        "pybind11_DIR": pybind11.stdout.strip(),
    }
    configure = [f"-D{name}={value}" for name, value in define.items()] + [f"-D{define}" for define in defines]
    name = f"{headers.abi}-{arch}"
    run(
        "cmake",
        "-S",
        ".",
        "-B",
        build,
        "-G",
        "Ninja",
        "--toolchain",
        "cmake/zig.cmake",
        *forget,
        *configure,
        log=f"{name}.configure.log",
    )
    run("cmake", "--build", build, "--target", "_native", *targets, log=f"{name}.build.log")
    shutil.rmtree(installed, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", installed, log=f"{name}.install.log")
    return installed


def needed_glibc(module: Path) -> str:
    """The glibc that the module needs. It may take nothing from anywhere else, but CPython's functions."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection

    newest, foreign = (0,), []
    with module.open("rb") as file:
        elf = ELFFile(file)
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                versions = [version.name for _, needs in section.iter_versions() for version in needs]
                foreign += [version for version in versions if not re.fullmatch(r"GLIBC_[\d.]+", version)]
                newest = max(tuple(map(int, re.findall(r"\d+", version))) for version in versions)
            elif isinstance(section, DynamicSection):
                needed = [tag.needed for tag in section.iter_tags("DT_NEEDED")]
                foreign += [
                    name for name in needed if not re.match(r"(lib(c|m|dl|rt|pthread)|ld-linux-[\w-]+)\.so\.", name)
                ]
        (versions_of,) = (section for section in elf.iter_sections() if isinstance(section, GNUVerSymSection))
        for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            unversioned = versions_of.get_symbol(number).entry["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL")
            here = symbol.entry["st_shndx"] != "SHN_UNDEF" or symbol.entry["st_info"]["bind"] == "STB_WEAK"
            if unversioned and not here and symbol.name and not re.match("_?Py", symbol.name):
                foreign.append(symbol.name)
    if foreign or newest > GLIBC:
        raise SystemExit(f"wheel: {module.name} needs {', '.join(foreign) or f'glibc {newest}'}: no wheel may")
    return ".".join(map(str, newest))


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def pack(headers: Headers, arch: str, installed: Path) -> Path:
    """The wheel, in wheelhouse/. The order of the files and their times do not depend on the day."""
    tree = WORK / "pure/tree"
    (info,) = tree.glob("*.dist-info")
    name, version = info.name.removesuffix(".dist-info").split("-")
    tag = f"{headers.tag}-{headers.abi}-manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"
    files = {
        str(path.relative_to(folder)): path
        for folder in (tree, installed)
        for path in folder.rglob("*")
        if path.is_file()
    }
    record = f"{info.name}/RECORD"
    del files[record]
    contents = {
        key: path.read_bytes()
        for key, path in sorted(files.items(), key=lambda item: (".dist-info/" in item[0], item[0]))
    }
    contents[f"{info.name}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: scripts/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    lines = "".join(record_line(key, data) for key, data in contents.items())
    contents[record] = f"{lines}{record},,\n".encode()
    wheel = ROOT / "wheelhouse" / f"{name}-{version}-{tag}.whl"
    wheel.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for key, data in contents.items():
            entry = zipfile.ZipInfo(key, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if key.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data)
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the wheels into wheelhouse/.")
    parser.add_argument("--arch", nargs="+", choices=ARCHES, default=ARCHES)
    parser.add_argument(
        "--python", nargs="+", choices=WANTED, default=WANTED, metavar="VERSION", help=", ".join(WANTED)
    )
    parser.add_argument("--all", action="store_true", help="fail where the headers of one are missing")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="for CMake")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="to be compiled, too")
    options = parser.parse_args()

    headers = find_headers()
    missing = [version for version in options.python if version not in headers]
    if missing:
        print(f"wheel: no headers of CPython {', '.join(missing)} on this machine: no wheels for it", file=sys.stderr)
        if options.all:
            return 1
    WORK.mkdir(parents=True, exist_ok=True)
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(ZIG / "cache")
    zig = find_zig()
    sdist = make_sdist()
    print(f"{sdist.stat().st_size / 1e6:5.2f} MB  {sdist.name}", flush=True)
    for arch in options.arch:
        for version in options.python:
            if version in headers:
                installed = compile_module(headers[version], arch, zig, options.define, options.target)
                (module,) = installed.rglob("_native*.so")
                glibc = needed_glibc(module)
                wheel = pack(headers[version], arch, installed)
                print(
                    f"{wheel.stat().st_size / 1e6:5.2f} MB  {wheel.name}  needs glibc {glibc}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
