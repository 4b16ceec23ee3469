#!/usr/bin/env bash
# Builds with a sanitizer and runs the C++ tests; with asan also tests/native, under the instrumented module.
#
#   scripts/sanitize.sh asan|tsan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
export PATH="$PWD/.venv/bin:$PATH"
# TSan of GCC 12 cannot place its shadow when the kernel randomises addresses by more than 28 bits.
run=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
  run=(setarch "$(uname -m)" -R)
fi
cmake --preset "$preset" >/dev/null
"${run[@]}" cmake --build --preset "$preset" -j "$(nproc)"
"${run[@]}" ctest --preset "$preset" -j "$(nproc)"
if [ "$preset" = asan ] && compgen -G 'tests/native/test_*.py' >/dev/null; then
  # CPython itself leaks at exit by design, and its small-object allocator would hide ours from the sanitizer.
  site=$(scripts/overlay.sh "build/$preset")
  # libstdc++ too: the sanitizer looks for __cxa_throw at the start, when CPython alone would have brought none.
  compiler=${CXX:-c++}
  preload="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)"
  cmake --build --preset "$preset" --target gil_truth
  # One test judges how soon a stack is read after a look at the GIL: a read takes several times as long here.
  NATIVE_TEST_BUILD="$PWD/build/$preset" PYTHONPATH=$site PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
    LD_PRELOAD=$preload "${run[@]}" python -m pytest -q tests/native -k "not short_function_is_met_with_the_gil"
fi
