#!/usr/bin/env bash
# Tests and measures on a machine with a GPU that has nothing but a Python with torch (CUDA), pytest, numpy, rich and
# jinja2, and a wheel of trainperf: nothing is built, and the checkout is only read.
#
#   scripts/gpu.sh wheelhouse/trainperf-*-cp312-*.whl [FOLDER]      # PYTHON=python3.12 for another than python3
#
# FOLDER (gpu-results) keeps what was printed. Without a GPU all is skipped, with the reason.
set -euo pipefail
if [ $# -lt 1 ] || [ ! -f "$1" ]; then
  echo "usage: scripts/gpu.sh WHEEL [FOLDER]: a wheel of trainperf for this Python (make wheel makes it)" >&2
  exit 2
fi
wheel=$(realpath "$1")
results=$(realpath -m "${2:-gpu-results}")
python=${PYTHON:-python3}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$results"
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
# Not a virtual environment: one of a Python that is itself in one sees nothing of what is installed there, and torch,
# pytest, numpy, rich and jinja2 are to be the machine's.
"$python" -m pip install -q --disable-pip-version-check --no-index --no-deps --target "$site" "$wheel"
export PYTHONPATH=$site PYTHONDONTWRITEBYTECODE=1

status=0
{
  "$python" -m trainperf doctor || true
  # pytest.ini of this folder: the project's own asks for plugins, and takes a warning of torch for an error.
  "$python" -m pytest -c tests/gpu/pytest.ini --rootdir=. --confcutdir=tests -p no:cacheprovider -q -rs tests/gpu ||
    status=$?
  "$python" benchmarks/gpu_overhead.py || status=$?
} > >(tee "$results/gpu.txt") 2>&1
exit "$status"
