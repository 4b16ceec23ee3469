#!/usr/bin/env bash
# Makes an sdist, and from it a wheel for each CPython of this machine, with Abseil and SQLite bundled; each wheel is then
# checked and imported in an environment of its own. Results: dist/*.tar.gz and wheelhouse/*.whl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
rm -rf dist wheelhouse build/wheel
mkdir -p build/wheel

python -m build --sdist --no-isolation -o dist . >build/wheel/sdist.log 2>&1 || { cat build/wheel/sdist.log; exit 1; }
sdist=$(echo dist/*.tar.gz)
echo "sdist: $sdist"
made=" "
while read -r python tag <&3; do
  abi=${tag%-*}
  case $made in *" $abi "*) continue ;; esac # two builds of one version share a wheel
  made+="$abi "
  work=build/wheel/$tag
  "$python" -m venv "$work/build-env"
  "$work/build-env/bin/python" -m pip wheel -qq --disable-pip-version-check --no-deps -w "$work/raw" "$sdist"
  auditwheel repair -w "$work/repaired" "$work"/raw/*.whl >"$work/auditwheel.log" 2>&1 || { cat "$work/auditwheel.log"; exit 1; }
  "$python" -m venv "$work/test-env"
  "$work/test-env/bin/python" -m pip install -qq --disable-pip-version-check "$work"/repaired/*.whl
  "$work/test-env/bin/python" scripts/check_wheel.py
  mkdir -p wheelhouse
  cp "$work"/repaired/*.whl wheelhouse/
done 3< <(python scripts/pythons.py)
ls -l wheelhouse
