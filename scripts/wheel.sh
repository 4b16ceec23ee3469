#!/usr/bin/env bash
# Builds the sdist into dist/, and the wheels into wheelhouse/ (wheel.py, whose arguments it takes); then installs, imports
# and runs each of them that this machine's interpreters can, and the others on other systems (wheel_systems.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
python -m pip install -qq --disable-pip-version-check -r scripts/requirements-wheel.txt
rm -rf wheelhouse
python scripts/wheel.py "$@"

printf -- '\n-- installed here\n'
checked=" "
while read -r python tag <&3; do
  version=$("$python" -c 'import sys; print("cp%d%d-cp%d%d%s" % (sys.version_info[:2] * 2 + (sys.abiflags,)))')
  case $checked in *" $version "*) continue ;; esac # two builds of one version share a wheel
  checked+="$version "
  wheel=$(echo wheelhouse/*-"$version"-*_"$(uname -m)".whl)
  [ -e "$wheel" ] || continue
  environment=build/wheel/venv-$tag
  "$python" -m venv --clear "$environment"
  "$environment/bin/python" -m pip install -qq --disable-pip-version-check "$wheel"
  PYTHONPATH='' "$environment/bin/python" scripts/check_wheel.py
done 3< <(python scripts/pythons.py)

printf -- '\n-- on other systems\n'
scripts/wheel_systems.sh || [ $? = 75 ]
