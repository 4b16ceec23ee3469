#!/usr/bin/env bash
# Runs the tests of the integrations on other versions of their frameworks than .venv has: `make test-versions`.
#
#   scripts/test_versions.sh                       all
#   scripts/test_versions.sh transformers          one framework
#   scripts/test_versions.sh transformers 4.57.6   one version
#
# Each version lies in a folder of its own, before .venv's packages on the path: torch and the rest are .venv's.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
only=${1:-} only_version=${2:-}
failed=0 summary=()

# install FOLDER WITH_DEPENDENCIES WITHOUT: two lists of packages; those that ask for torch must not bring one.
install() {
  local folder=$1
  [ -f "$folder/.complete" ] && return
  rm -rf "$folder"
  # shellcheck disable=SC2086
  { [ -z "$2" ] || python -m pip install -qq --disable-pip-version-check --target "$folder" $2; } &&
    { [ -z "$3" ] || python -m pip install -qq --disable-pip-version-check --no-deps --target "$folder" $3; } &&
    rm -rf "$folder"/torch "$folder"/numpy* && touch "$folder/.complete"
}

# version FRAMEWORK VERSION WITH_DEPENDENCIES WITHOUT TESTS...
version() {
  local framework=$1 version=$2 with=$3 without=$4 folder=$PWD/build/versions/$1-$2 verdict=ok start=$SECONDS
  shift 4
  [ -z "$only" ] || [ "$only" = "$framework" ] || return
  [ -z "$only_version" ] || [ "$only_version" = "$version" ] || return
  printf '\n== %s %s\n' "$framework" "$version"
  if ! install "$folder" "$with" "$without"; then
    verdict="NOT INSTALLED" failed=1
  elif ! PYTHONPATH=$folder:$PWD/python python -m pytest -q -p no:cacheprovider "$@"; then
    verdict=FAILED failed=1
  fi
  summary+=("$(printf '%-30s %4d s  %s' "$framework $version" $((SECONDS - start)) "$verdict")")
}

transformers() {  # VERSION ACCELERATE
  version transformers "$1" "transformers==$1" "accelerate==$2" \
    tests/integration/test_transformers.py tests/integration/test_transformers_nested.py tests/integration/test_huggingface_truth.py
}

lightning() {  # VERSION
  version lightning "$1" "" "lightning==$1 pytorch-lightning==$1" \
    tests/integration/test_lightning{,_life,_truth}.py
}

transformers 4.50.3 1.5.2
transformers 4.57.6 1.10.1
transformers 5.0.0 1.12.0
lightning 2.4.0
lightning 2.5.5

printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
