#!/usr/bin/env bash
# On aarch64, cross-compiled by Zig and run by qemu-user on Debian's CPython: the C++ tests, tests/native, and the wheel.
# That is functions, and not times: tests marked `alone` are left out, and so is what qemu cannot do (below).
#
#   scripts/aarch64.sh [PYTEST_ARGUMENT...]
#
# Exits with 75 and says why where there is no system of aarch64 to be had (system.sh), or no source of GoogleTest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
version=3.11 build=build/wheel/aarch64
# In /proc/PID/syscall qemu shows itself, with the numbers of x86-64, and a process's own /proc/self/stat it makes up.
not_by_qemu='^(Futex/EndsSoon|ReadProcess)'

root=$(scripts/system.sh make bookworm arm64 python$version libsqlite3-0)
[ -d /usr/src/googletest ] || { echo "aarch64: skipped: no sources of GoogleTest: apt-get install libgtest-dev" >&2; exit 75; }
python -m pip install -qq --disable-pip-version-check -r scripts/requirements-wheel.txt

printf -- '-- building\n'
# What the tests pack their traces with.
mkdir -p build/wheel/zlib
cp /usr/include/{zlib,zconf}.h build/wheel/zlib/
python scripts/wheel.py --arch aarch64 --python $version --target all --target gil_truth \
  --define TRAINPERF_TESTS=ON --define "CMAKE_CROSSCOMPILING_EMULATOR=$(command -v qemu-aarch64-static);-L;$root" \
  --define ZLIB_INCLUDE_DIR="$PWD/build/wheel/zlib" --define ZLIB_LIBRARY="$root/lib/aarch64-linux-gnu/libz.so.1"

status=0
printf -- '\n-- C++ tests\n'
ctest --test-dir $build -j "$(nproc)" --exclude-regex "$not_by_qemu" --output-on-failure --timeout 300 2>&1 | tail -n 40 || status=1

printf -- '\n-- tests of the module, CPython %s\n' $version
site=$PWD/build/wheel/sites/tests-arm64
platforms=()
for glibc in 2_28 2_17 2014; do platforms+=(--platform "manylinux${glibc/2_/_2_}_aarch64"); done
rm -rf "$site"
python -m pip install -qq --disable-pip-version-check --no-compile --target "$site" --implementation cp --python-version $version \
  --ignore-requires-python --only-binary :all: "${platforms[@]}" wheelhouse/trainperf-*-cp${version/./}-*_aarch64.whl pytest pytest-timeout
scripts/system.sh run "$root" PYTHONPATH="$site" /usr/bin/python$version scripts/check_wheel.py || status=1
scripts/system.sh run "$root" PYTHONPATH="$site" NATIVE_TEST_MODULE="$PWD/$build/tests/native" /usr/bin/python$version \
  -m pytest -q -p no:cacheprovider -m 'not alone' "$@" \
  tests/native tests/unit/test_{native_stub,actions,costs}.py tests/packaging/test_module.py || status=1
exit $status
