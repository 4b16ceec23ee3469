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
again=
part() {  # part NAME COMMAND...
  local name=$1 start=$SECONDS verdict=ok
  shift
  again=
  printf '\n== %s\n' "$name"
  "$@" || { verdict=FAILED; failed=1; }
  [ -z "$again" ] || verdict="$verdict, at the second try"
  summary+=("$(printf '%-52s %4d s  %s' "$name" $((SECONDS - start)) "$verdict")")
}

# The first is .venv's own, which runs them with all the others.
pythons=$(python scripts/pythons.py) || exit
mapfile -t others < <(tail -n +2 <<<"$pythons")
on_the_others() {  # on_the_others HOW_MANY_AT_ONCE PYTEST_ARGUMENT...
  local at_once=$1 status=0
  shift
  mkdir -p build/venv
  # shellcheck disable=SC2016 # what each prints comes in one piece
  printf '%s\n' "${others[@]}" | xargs -r -P "$at_once" -I '{}' bash -c '
    read -r python tag <<<"$1"
    said=$(scripts/test_other_python.sh "$python" "$tag" "${@:2}" 2>&1) || { failed=$?; printf "%s\n" "-- $tag" "$said"; exit "$failed"; }
    printf "%s\n" "-- $tag" "$said"' - '{}' "$@" | tee build/tests.log || status=$?
  ! grep -q "^-- once more" build/tests.log || again=yes
  return "$status"
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
# it, and both are shown. What crashed, was interrupted or could not be collected has none.
tests() {  # tests PYTEST_ARGUMENT...
  local status=0 log=build/tests.log cache=(-o cache_dir="$PWD/build/pytest_cache")
  rm -rf build/pytest_cache
  python -m pytest -q -rfEs --color=no "${cache[@]}" "$@" 2>&1 | tee "$log" || status=$?
  { [ "$status" = 1 ] && ! grep -q "^worker '.*' crashed" "$log"; } || return "$status"
  again=yes
  printf '\n-- once more, those that failed\n'
  python -m pytest -q "${cache[@]}" "$@" -n 0 --last-failed --last-failed-no-failures none
}
# In the order of the folders: the quick ones come last, and all processes end at once.
part "tests that share the machine, $(python -V)" tests -m "not alone" \
  -n "$(nproc)" --dist loadfile --no-loadscope-reorder --durations=8 tests
mapfile -t judging < <(grep -rl --include='test_*.py' 'mark\.alone' tests | sort)  # to import all takes a while
part "tests that run alone" tests -m alone --durations=15 "${judging[@]}"
part "native tests that share the machine, other CPythons" on_the_others "$(nproc)" -m "not alone"
# What the hook costs is timed on one CPython.
part "native tests that run alone, other CPythons" on_the_others 1 -m alone -k "not what_it_costs"
newer() {
  local status=0
  scripts/newer_pythons.sh -m "not alone" || status=$?
  [ "$status" != 75 ] || status=0  # it says why
  return "$status"
}
part "native tests, CPython 3.14 and 3.15 of Debian forky" newer

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
