#!/usr/bin/env bash
# Imports and runs the wheels in wheelhouse/ on Debian's and Ubuntu's own CPythons, on systems that have no compiler and
# neither Abseil nor SQLite to build with; those of aarch64 by qemu-user. check_wheel.py watches a loop on each.
#
#   scripts/wheel_systems.sh                           all
#   scripts/wheel_systems.sh 'jammy*' '*arm64 3.14'    some
#
# Exits with 1 when a wheel fails, and with 75 when no system could be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
systems=(
  "jammy amd64 3.10" "bookworm amd64 3.11" "noble amd64 3.12" "trixie amd64 3.13" "forky amd64 3.14" "forky amd64 3.15"
  "bookworm arm64 3.11" "trixie arm64 3.13" "forky arm64 3.14" "forky arm64 3.15"
)
[ $# -gt 0 ] || set -- '*'

# The packages of a wheel, for another system than this: pip chooses by tags, and runs nothing.
site() { # FOLDER VERSION ARCH WHEEL
  local folder=$1 platforms=() glibc
  for glibc in 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_$3"); done
  rm -rf "$folder"
  python -m pip install -qq --disable-pip-version-check --no-compile --target "$folder" --implementation cp --python-version "$2" \
    --ignore-requires-python --only-binary :all: "${platforms[@]}" --platform "manylinux2014_$3" "$4"
}

failed=0 tried=0
for system in "${systems[@]}"; do
  wanted=no
  # shellcheck disable=SC2053 # patterns
  for pattern in "$@"; do [[ $system != $pattern ]] || wanted=yes; done
  [ $wanted = yes ] || continue
  read -r suite arch version <<<"$system"
  machine=${arch/amd64/x86_64}
  machine=${machine/arm64/aarch64}
  packages=("python$version" libsqlite3-0)
  [ "$suite" != forky ] || packages=(python3.14 python3.15 libsqlite3-0)
  wheel=$(echo wheelhouse/trainperf-*-"cp${version/./}-cp${version/./}"-*_"$machine".whl)
  printf '%-20s ' "$system"
  [ -e "$wheel" ] || { echo "no wheel"; continue; }
  root=$(scripts/system.sh make "$suite" "$arch" "${packages[@]}") || { [ $? = 75 ] || failed=1; continue; }
  tried=$((tried + 1))
  folder=$PWD/build/wheel/sites/$suite-$arch-$version
  site "$folder" "$version" "$machine" "$wheel" || { failed=1; continue; }
  scripts/system.sh run "$root" PYTHONPATH="$folder" "/usr/bin/python$version" scripts/check_wheel.py || failed=1
done
[ $tried -gt 0 ] || exit 75
exit $failed
