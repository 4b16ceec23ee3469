#!/usr/bin/env bash
# Runs the tests of the integrations on other versions of their frameworks than .venv has, and those that train on other
# versions of torch and CPython: `make test-versions`.
#
#   scripts/test_versions.sh                       all but torch
#   scripts/test_versions.sh transformers          one framework
#   scripts/test_versions.sh transformers 4.57.6   one version
#   scripts/test_versions.sh torch [2.15.0 [3.14]] torch: some GB each
#
# Each version lies in a folder of its own, before the environment's packages on the path; of a framework, torch and the
# rest are .venv's.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
only=${1:-} only_version=${2:-} only_python=${3:-}
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
  summary+=("$(printf '%-36s %4d s  %s' "$framework $version" $((SECONDS - start)) "$verdict")")
}

transformers() {  # VERSION ACCELERATE
  version transformers "$1" "transformers==$1" "accelerate==$2" \
    tests/integration/test_{accelerate,transformers,transformers_nested,huggingface_truth}.py
}

lightning() {  # VERSION
  version lightning "$1" "" "lightning==$1 pytorch-lightning==$1" \
    tests/integration/test_lightning{,_life,_truth}.py
}

# torch VERSION PYTHON: PyPI has it for CUDA only. 3.14 and 3.15 are Debian forky's.
torch() {
  local version=$1 python=$2 verdict=ok start=$SECONDS found
  if [ -z "$only" ]; then
    summary+=("$(printf '%-36s not run: about 3 GB to download and 6 GB on disk; scripts/test_versions.sh torch' "torch $version, CPython $python")")
    return
  fi
  [ "$only" = torch ] || return
  [ -z "$only_version" ] || [ "$only_version" = "$version" ] || return
  [ -z "$only_python" ] || [ "$only_python" = "$python" ] || return
  printf '\n== torch %s on CPython %s\n' "$version" "$python"
  if [ "$python" = 3.14 ] || [ "$python" = 3.15 ]; then
    WITH=torch==$version scripts/newer_pythons.sh --only "$python"
  elif found=$(python scripts/pythons.py | grep "cpython-${python/./}-"); then
    # shellcheck disable=SC2086 # its path and its tag
    WITH=torch==$version scripts/test_other_python.sh ${found%%$'\n'*}
  else
    echo "there is no CPython $python" >&2
    false
  fi || verdict=FAILED failed=1
  summary+=("$(printf '%-36s %4d s  %s' "torch $version, CPython $python" $((SECONDS - start)) "$verdict")")
}

transformers 4.50.3 1.5.2
transformers 4.57.6 1.10.1
transformers 5.0.0 1.12.0
transformers 5.24.0 1.15.0
lightning 2.4.0
lightning 2.5.5
torch 2.4.1 3.10
torch 2.15.0 3.13
torch 2.15.0 3.14
torch 2.15.0 3.15

[ ${#summary[@]} -gt 0 ] || { echo "test_versions: no row of this script is: $*" >&2; exit 2; }
printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
