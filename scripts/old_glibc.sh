#!/usr/bin/env bash
# Imports and runs a wheel with the oldest glibc that Debian's mirror still has, 2.31 (bullseye). That has no CPython after
# 3.9: one is built there of trixie's source, without optimization, in some minutes, and kept in the user's cache.
#
# Exits with 75 and says why where the system or the source cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
version=3.13
url=$(scripts/system.sh mirror)/pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz
work=$PWD/build/old-glibc
prefix=${XDG_CACHE_HOME:-$HOME/.cache}/trainperf/python-bullseye

if [ ! -e "$prefix/.complete" ]; then
  build=$(scripts/system.sh make bullseye amd64 gcc-10 libc6-dev binutils make mawk zlib1g-dev libsqlite3-dev libffi-dev)
  mkdir -p "$work/bin" "$work/source"
  ln -sf /usr/bin/mawk "$work/bin/awk" # what setting the system up would link
  [ -e "$work/source/configure" ] || { curl -fsS "$url" -o "$work/source.tar.xz" && tar -xf "$work/source.tar.xz" -C "$work/source" --strip-components=1; } ||
    { echo "old_glibc: skipped: $url cannot be had" >&2; exit 75; }
  scripts/system.sh run "$build" PATH="$work/bin:/usr/bin:/bin" CC=gcc-10 WORK="$work" bash -euc '
    cd "$WORK/source"
    [ -e Makefile ] || ./configure -q --prefix="$WORK/python" --without-ensurepip CFLAGS="-O1 -g0"
    make -s -j "$(nproc)" && make -s install
  ' >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; exit 1; }
  rm -rf "$prefix"
  cp -r "$work/python" "$prefix"
  touch "$prefix/.complete"
fi

root=$(scripts/system.sh make bullseye amd64 libsqlite3-0 libffi7 zlib1g)
mkdir -p "$root$prefix"
cp -r "$prefix/." "$root$prefix"
site=$work/site
rm -rf "$site"
python -m pip install -qq --disable-pip-version-check --no-compile --target "$site" --implementation cp --python-version $version \
  --ignore-requires-python --only-binary :all: --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
  wheelhouse/trainperf-*-cp${version/./}-cp${version/./}-*_x86_64.whl
printf 'bullseye amd64 %s ' $version
scripts/system.sh run "$root" PYTHONHOME="$prefix" PYTHONPATH="$site" "$prefix/bin/python$version" scripts/check_wheel.py
