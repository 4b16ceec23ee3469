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
part "tests that share the machine, $(python -V)" \
  python -m pytest -q -m "not alone" -n "$(nproc)" --dist loadfile --durations=8 tests
# A machine that others share may stand still in the middle of one that runs alone: what failed has a second try, and
# both are shown.
alone() {
  python -m pytest -q -m alone --durations=15 tests && return
  printf '\n-- once more, those that failed\n'
  python -m pytest -q -m alone --last-failed --last-failed-no-failures none tests
}
alone_on_the_others() {
  # What the hook costs is timed on one CPython.
  on_the_others 1 -m alone -k "not what_it_costs" && return
  printf '\n-- once more\n'
  on_the_others 1 -m alone -k "not what_it_costs"
}
part "tests that run alone" alone
part "native tests that share the machine, other CPythons" on_the_others "$(nproc)" -m "not alone"
part "native tests that run alone, other CPythons" alone_on_the_others

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
