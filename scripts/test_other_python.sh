#!/usr/bin/env bash
# Builds the module for another CPython and runs tests/native, and those of the module's own types, on it, in an
# environment of its own without torch.
#
#   scripts/test_other_python.sh /usr/bin/python3.12 cpython-312-1f3a [pytest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1 tag=$2
shift 2
build=build/$tag
venv=build/venv/$tag
export PATH="$PWD/.venv/bin:$PATH"

key=$(sha256sum scripts/requirements-native.txt)
if [ "$(cat "$venv/.trainperf-setup" 2>/dev/null)" != "$key" ]; then
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check -r scripts/requirements-native.txt
  echo "$key" >"$venv/.trainperf-setup"
fi
# As the release is built and in a folder beside it, so that ccache has the most of it.
cmake -S . -B "$build" -G Ninja -DTRAINPERF_TESTS=ON -DPython_EXECUTABLE="$PWD/$venv/bin/python" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
cmake --build "$build" -j "$(nproc)" --target _native gil_truth >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
site=$(scripts/overlay.sh "$build")
# tests/native builds its own module for the Python that runs it; here it is built already.
tests() {  # tests PYTEST_ARGUMENT...
  PYTHONPATH=$site NATIVE_TEST_BUILD="$PWD/$build" "$venv/bin/python" -m pytest -q -o cache_dir="$PWD/$build/pytest_cache" "$@" \
    tests/native tests/unit/test_{native_stub,actions,costs}.py tests/packaging/test_module.py
}
rm -rf "$build/pytest_cache"
status=0
tests "$@" || status=$?
[ "$status" = 1 ] || exit "$status"
printf '\n-- once more, those that failed\n'
tests "$@" --last-failed --last-failed-no-failures none
