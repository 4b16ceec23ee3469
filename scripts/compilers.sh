#!/usr/bin/env bash
# Installs the sdist by pip with compilers of Debian's, on a system for each of its releases. Then check_wheel.py imports it
# and watches a loop. Two minutes each on two cores; with --fetch, where the system's Abseil, SQLite, simdjson and zlib-ng
# are left alone and all is fetched, some five.
#
#   scripts/compilers.sh                         all
#   scripts/compilers.sh [--fetch] '*gcc-14*'    some
#
# Exits with 1 when one fails, and with 75 when no system could be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
systems=(
  "bookworm 3.11 gcc-12" "bookworm 3.11 clang-14" "bookworm 3.11 clang-15" "bookworm 3.11 clang-16"
  "trixie 3.13 gcc-13" "trixie 3.13 gcc-14" "trixie 3.13 clang-17" "trixie 3.13 clang-18" "trixie 3.13 clang-19"
  "forky 3.15 gcc-15" "forky 3.15 gcc-16" "forky 3.15 clang-21" "forky 3.15 clang-22"
)
fetch=OFF
[ "${1:-}" != --fetch ] || { fetch=ON; shift; }
[ $# -gt 0 ] || set -- '*'

python -m pip install -qq --disable-pip-version-check -r scripts/requirements-wheel.txt
rm -rf build/compilers/sdist
python -m build --sdist --no-isolation -o build/compilers/sdist . >/dev/null
sdist=$(echo build/compilers/sdist/*.tar.gz)

# All that the rows of a release ask for: it is one system.
packages_of() { # SUITE VERSION
  local row compiler packages=("python$2-dev" "python$2-venv" libc6-dev binutils ca-certificates
    libabsl-dev libsqlite3-dev libsimdjson-dev libisal-dev zlib1g-dev)
  for row in "${systems[@]}"; do
    compiler=${row##* }
    [[ $row != "$1 "* ]] || packages+=("${compiler/gcc-/g++-}")
  done
  echo "${packages[*]}"
}

failed=0 tried=0
for system in "${systems[@]}"; do
  wanted=no
  # shellcheck disable=SC2053 # patterns
  for pattern in "$@"; do [[ $system != $pattern ]] || wanted=yes; done
  [ $wanted = yes ] || continue
  read -r suite version compiler <<<"$system"
  printf '%-24s ' "$system"
  case $compiler in
    gcc-*) cc=$compiler cxx=g++-${compiler#gcc-} ;;
    clang-*) cc=$compiler cxx=clang++-${compiler#clang-} ;;
  esac
  # shellcheck disable=SC2046 # a list
  root=$(scripts/system.sh make "$suite" amd64 $(packages_of "$suite" "$version")) || { [ $? = 75 ] || failed=1; continue; }
  tried=$((tried + 1))
  work=$PWD/build/compilers/$suite-$version-$compiler-$fetch
  mkdir -p "$work"
  if ! scripts/system.sh run "$root" CC="/usr/bin/$cc" CXX="/usr/bin/$cxx" WORK="$work" SDIST="$sdist" FETCH=$fetch PIP_DISABLE_PIP_VERSION_CHECK=1 bash -euc '
    "/usr/bin/$0" -m venv --clear "$WORK/venv"
    "$WORK/venv/bin/python" -m pip install -v --config-settings=build-dir="$WORK/build" \
      --config-settings=cmake.define.TRAINPERF_FETCH=$FETCH "$SDIST" >"$WORK/log" 2>&1
    [ $FETCH = ON ] || set -- --system-libraries
    "$WORK/venv/bin/python" scripts/check_wheel.py "$@"
  ' "python$version"; then
    failed=1
    tail -n 5 "$work/log" || true
    continue
  fi
  printf '%-24s %s; warnings of our own code: %s\n' "" "$(scripts/system.sh run "$root" "$cxx" -dumpfullversion -dumpversion)" \
    "$(grep -c 'cpp/.*warning:' "$work/log" || true)"
done
[ $tried -gt 0 ] || exit 75
exit $failed
