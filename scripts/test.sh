#!/usr/bin/env bash
# Everything that `make test` runs after set-up and build: C++ tests, Python tests, native tests on the other CPythons.
# Goes on after a failure, and closes with what each part took.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"

summary=()
failed=0
part() {  # part NAME COMMAND...
  local name=$1 start=$SECONDS verdict=ok
  shift
  printf '\n== %s\n' "$name"
  "$@" || { verdict=FAILED; failed=1; }
  summary+=("$(printf '%-44s %4d s  %s' "$name" $((SECONDS - start)) "$verdict")")
}

part "build" cmake --build --preset release -j "$(nproc)" --target all gil_truth
part "C++ tests" ctest --preset release -j "$(nproc)"
# What measures no time may share the machine with its like; the rest runs alone.
timeless=(tests/unit tests/browser tests/notebook tests/packaging
  tests/integration/test_{traces,trace_verdicts,analyze_torch,history_of_a_name,lightning_ranks}.py)
part "tests that measure no time, $(python -V)" \
  python -m pytest -q -n "$(nproc)" --dist loadfile --durations=5 "${timeless[@]}"
part "tests that measure time" env NATIVE_TEST_BUILD="$PWD/build/release" \
  python -m pytest -q --durations=15 "${timeless[@]/#/--ignore=}" tests
# The first is .venv's own, which has just run them, and has timed what they cost.
while read -r python tag <&3; do
  mkdir -p build/py build/venv
  part "native tests, $tag" scripts/test_other_python.sh "$python" "$tag" -k "not what_it_costs"
done 3< <(python scripts/pythons.py | tail -n +2)

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
