#!/usr/bin/env bash
# Builds the module for another CPython and runs tests/native, and those of the module's own types, on it, in an
# environment of its own without torch. On another build of .venv's version it runs with the release's module: so does
# a wheel, which is built once for all of 3.11.
#
#   scripts/test_other_python.sh /usr/bin/python3.12 cpython-312-1f3a [pytest arguments]
#   scripts/test_other_python.sh /usr/bin/python3.12 cpython-312-1f3a --build       only the environment and the build
#   WITH=torch==2.4.1 scripts/test_other_python.sh ...     instead of those the tests that train, with that torch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1 tag=$2
shift 2
build=build/$tag
own=$build  # what is this CPython's alone
venv=build/venv/$tag
version='import sys; print(sys.implementation.cache_tag + sys.abiflags)'
export PATH="$PWD/$venv/bin:$PATH"  # it has CMake and Ninja; .venv may be of another system than this one

key=$(sha256sum scripts/requirements-native.txt)
if [ "$(cat "$venv/.trainperf-setup" 2>/dev/null)" != "$key" ]; then
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile -r scripts/requirements-native.txt
  echo "$key" >"$venv/.trainperf-setup"
fi
if [ "$(.venv/bin/python -c "$version" 2>/dev/null)" = "$("$python" -c "$version")" ]; then
  build=build/release
  [ -d "$build" ] || { echo "there is no $build: run \`make dev\` first" >&2; exit 1; }
else
  # As the release is built and in a folder beside it, so that ccache has the most of it.
  cmake -S . -B "$build" -G Ninja -DTRAINPERF_WERROR=ON -DPython_EXECUTABLE="$PWD/$venv/bin/python" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$own.log" 2>&1 ||
    { cat "$own.log"; exit 1; }
fi
suite=(tests/native tests/unit/test_{native_stub,actions,costs}.py tests/packaging/test_module.py)
packages=
if [ -n "${WITH:-}" ]; then
  suite=(tests/unit/test_hooks_*.py tests/integration/test_{loops,loops_phases,watch,watch_processes,programs}.py)
  packages=$PWD/build/versions/${WITH/==/-}-$tag
  if [ ! -f "$packages/.complete" ]; then
    rm -rf "$packages"
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --target "$packages" "$WITH"
    rm -rf "$packages"/numpy*  # the environment's
    touch "$packages/.complete"
  fi
fi

exec 9>"$build.lock"  # several CPythons may take one build
flock 9
cmake --build "$build" -j "$(nproc)" --target _native gil_truth >"$own.log" 2>&1 || { cat "$own.log"; exit 1; }
site=$(scripts/overlay.sh "$build" "$own/site")
exec 9>&-
[ "${1:-}" != --build ] || exit 0
# tests/native builds its own module for the Python that runs it; here it is built already.
tests() {  # tests PYTEST_ARGUMENT...
  PYTHONPATH=${packages:+$packages:}$site NATIVE_TEST_BUILD="$PWD/$build" "$venv/bin/python" -m pytest -q -o cache_dir="$PWD/$own/pytest_cache" "$@" \
    "${suite[@]}"
}
rm -rf "$own/pytest_cache"
status=0
tests "$@" || status=$?
[ "$status" = 1 ] || exit "$status"
printf '\n-- once more, those that failed\n'
tests "$@" --last-failed --last-failed-no-failures none
