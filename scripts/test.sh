#!/usr/bin/env bash
# Everything that `make test` runs once the build can begin: the build and the rest of the set-up beside it, C++ tests,
# Python tests, native tests on the other CPythons.
# Goes on after a failure, and closes with what each part took. Tests marked `alone` judge measured time: nothing runs
# beside them. All others share the machine, a test or a CPython for each core.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
export NATIVE_TEST_BUILD="$PWD/build/release"

summary=()
failed=0
part() {  # part NAME COMMAND...
  local name=$1 start=$SECONDS verdict=ok
  shift
  printf '\n== %s\n' "$name"
  "$@" || { verdict=FAILED; failed=1; }
  summary+=("$(printf '%-52s %4d s  %s' "$name" $((SECONDS - start)) "$verdict")")
}

# The first is .venv's own, which runs them with all the others.
mapfile -t others < <(python scripts/pythons.py | tail -n +2)
on_the_others() {  # on_the_others HOW_MANY_AT_ONCE PYTEST_ARGUMENT...
  local at_once=$1
  shift
  mkdir -p build/venv
  # shellcheck disable=SC2016 # what each prints comes in one piece
  printf '%s\n' "${others[@]}" | xargs -r -P "$at_once" -I '{}' bash -c '
    read -r python tag <<<"$1"
    said=$(scripts/test_other_python.sh "$python" "$tag" "${@:2}" 2>&1) || { failed=$?; printf "%s\n" "-- $tag" "$said"; exit "$failed"; }
    printf "%s\n" "-- $tag" "$said"' - '{}' "$@"
}

build() {
  local built=0 building
  mkdir -p build
  cmake --build --preset release -j "$(nproc)" --target all gil_truth >build/build.log 2>&1 &
  building=$!
  scripts/setup.sh --tests || built=$?
  wait "$building" || built=$?
  cat build/build.log
  return "$built"
}
part "build, and set-up of what only tests need" build
part "C++ tests" ctest --preset release -j "$(nproc)"
# A machine that others share may stand still in the middle of a test: what failed has a second try with nothing beside
# it, and both are shown.
tests() {  # tests PYTEST_ARGUMENT...
  python -m pytest -q "$@" && return
  printf '\n-- once more, those that failed\n'
  python -m pytest -q "$@" -n 0 --last-failed --last-failed-no-failures none
}
# In the order of the folders, so that the quick ones come last and both processes end at once.
part "tests that share the machine, $(python -V)" \
  tests -m "not alone" -n "$(nproc)" --dist loadfile --no-loadscope-reorder --durations=8 tests
part "tests that run alone" tests -m alone --durations=15 tests
part "native tests that share the machine, other CPythons" on_the_others "$(nproc)" -m "not alone"
# What the hook costs is timed on one CPython.
part "native tests that run alone, other CPythons" on_the_others 1 -m alone -k "not what_it_costs"

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
