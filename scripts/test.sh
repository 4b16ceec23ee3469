#!/usr/bin/env bash
# Everything that `make test` runs once the build can begin: the build and the rest of the set-up beside it, C++ tests,
# recorded runs, Python tests, native tests on the other CPythons.
#
#   scripts/test.sh           what `make test` runs
#   scripts/test.sh --live    what it leaves out: the tests marked `live`, on other CPythons those marked `alone` too,
#                             and all of tests/native on other builds of .venv's version
#
# Goes on after a failure, and closes with what each part took. Tests marked `alone` judge measured time: nothing runs
# beside them. All others share the machine, with a test for each core and one more.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
export NATIVE_TEST_BUILD="$PWD/build/release"
unset PYTHONDONTWRITEBYTECODE  # else each of a thousand processes compiles all Python that it imports
live=no
case "${1:-}" in
  --live) live=yes ;;
  "") ;;
  *) printf 'test: %s is no option: there is --live\n' "$1" >&2; exit 2 ;;
esac

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

# The first CPython is .venv's own, which runs tests/native with all the others. "PATH TAG", a line each: a tag is
# cpython-311-1f3a, and all but its end is the version's.
pythons=$(python scripts/pythons.py) || exit
own_version=$(head -n 1 <<<"$pythons" | sed 's|.* ||; s|-[^-]*$||')
same_version() { tail -n +2 <<<"$pythons" | sed -n "/ $own_version-[^-]*\$/s|^|scripts/test_other_python.sh |p"; }
other_versions() {
  tail -n +2 <<<"$pythons" | sed -n "/ $own_version-[^-]*\$/!s|^|scripts/test_other_python.sh |p"
  [ "$forky" = yes ] || return 0
  scripts/newer_pythons.sh --list | sed 's|^|scripts/newer_pythons.sh --only |'
}

# Debian forky waits for a mirror, as pip does for an index: all are fetched side by side. What knows no Python is built
# once, and ccache has it for the other CPythons, whose builds take what tests that share the machine leave of it.
build() {
  local built=0 building making setting_up
  forky=no
  mkdir -p build
  cmake --build --preset release -j "$(nproc)" --target all gil_truth >build/build.log 2>&1 &
  building=$!
  scripts/newer_pythons.sh --make >build/forky-made.log 2>&1 &
  making=$!
  exec 3<&0  # by itself a job in the background has no terminal, which sudo may ask
  scripts/setup.sh --tests <&3 &
  setting_up=$!
  wait "$building" || built=$?
  if wait "$making"; then forky=yes; else [ $? = 75 ] || built=1; fi
  if [ $live = no ]; then
    # That one fails is told below.
    other_versions | nice -n 19 xargs -r -I '{}' sh -c '{} --build' >build/other-pythons.log 2>&1 &
    others=$!
  fi
  wait "$setting_up" || built=$?
  cat build/build.log build/forky-made.log  # the latter says why forky is skipped
  return "$built"
}
part "build, and set-up of what only tests need" build

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

built_for_others() { wait "$others" || true; }

on() {  # on WHICH HOW_MANY_AT_ONCE PYTEST_ARGUMENT...
  local which=$1 at_once=$2 status=0
  shift 2
  # shellcheck disable=SC2016 # what each prints comes in one piece
  "$which" | xargs -r -P "$at_once" -I '{}' bash -c '
    read -ra script <<<"$1"
    said=$("${script[@]}" "${@:2}" 2>&1) || { failed=$?; printf "%s\n" "-- ${script[*]:1}" "$said"; exit "$failed"; }
    printf "%s\n" "-- ${script[*]:1}" "$said"' - '{}' "$@" | tee build/tests.log || status=$?
  ! grep -q "^-- once more" build/tests.log || again=yes
  return "$status"
}

cores=$(nproc)
# Tests wait for a quarter of their time, for children that start and for sleeps: one more than cores keeps these busy.
shared=(-n "$((cores + 1))" --dist loadfile --no-loadscope-reorder)
version=$(python -V)
# To import all takes a while.
mapfile -t judging < <(grep -rl --include='test_*.py' 'mark\.alone' tests | grep -v '^tests/gpu/' | sort)
if [ $live = no ]; then
  # Each process of pytest imports all tests: the first compiles them, and what they import, for the others.
  python -m pytest -q --collect-only tests >/dev/null 2>&1 &
  compiling=$!
  part "C++ tests" ctest --preset release -j "$cores"
  # Recorded runs are judged alike each time: no second try.
  part "recorded runs, judged again" python -m pytest -q --color=no -n "$cores" tests/replay
  wait "$compiling" || true  # what cannot be collected is told below
  # In the order of the folders: the quick ones come last, and all processes end at once.
  part "tests that share the machine, $version" tests -m "not alone and not live" "${shared[@]}" --durations=8 \
    --ignore=tests/replay tests
  part "builds for other CPythons, what is left of them" built_for_others
  part "tests that run alone" tests -m "alone and not live" --durations=15 "${judging[@]}"
  part "native tests that share the machine, other CPythons" on other_versions "$((cores + 1))" -m "not alone and not live"
else
  part "live tests that share the machine, $version" tests -m "live and not alone" "${shared[@]}" --durations=8 tests
  part "live tests that run alone" tests -m "live and alone" --durations=15 "${judging[@]}"
  # What the hook costs is timed on one CPython.
  part "native tests, other CPythons" on other_versions 1 -m "alone or live" -k "not what_it_costs"
  part "native tests, other builds of $version" on same_version 1 -k "not what_it_costs"
fi

printf '\n'
printf '%s\n' "${summary[@]}"
printf '%-52s %4d s  %s\n' all "$SECONDS" "$([ $failed = 0 ] && echo ok || echo FAILED)"
exit "$failed"
