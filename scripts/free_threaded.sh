#!/usr/bin/env bash
# Builds free-threaded CPythons from Debian's sources, and runs on each what test_other_python.sh runs. They lie in the
# user's cache, for all clones: made the first time, in some four minutes each, with no optimization by profile.
#
#   scripts/free_threaded.sh [PYTEST_ARGUMENT...]
#
# A version whose source the mirror does not give is left out, which is said. Exits with 75 where there is none at all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${XDG_CACHE_HOME:-$HOME/.cache}/trainperf/free-threaded
versions=(3.13 3.14 3.15)
suite=forky  # of Debian: it has all of these

without() { printf 'free_threaded: without %s\n' "$*" >&2; return 1; }

# apt with lists of its own, of one suite's sources: nothing of the system's changes.
sources_apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" \
    -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User="$(id -un)" "$@"
}

source_of() {  # source_of VERSION: into $folder/source-VERSION
  local mirror
  command -v apt-get >/dev/null || without "$1: no apt-get" || return
  mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list} 2>/dev/null || true; } |
    sed -nE 's/^URIs: (\S+).*/\1/p; s/^deb (\[.*\] )?(\S+) .*/\2/p' | head -n 1)
  [ -n "$mirror" ] || without "$1: apt's sources name no mirror of Debian" || return
  mkdir -p "$folder"/apt/{lists,cache/archives}/partial "$folder/source-$1"
  echo "deb-src $mirror $suite main" >"$folder/apt/sources.list"
  if [ ! -e "$folder/apt/updated" ]; then
    sources_apt update >"$folder/apt.log" 2>&1 || without "$1: no package lists of $suite" || return
    touch "$folder/apt/updated"
  fi
  (cd "$folder/apt" && sources_apt source --download-only "python$1" >"$folder/apt.log" 2>&1) ||
    without "$1: the mirror does not give its source" || return
  tar -xf "$folder"/apt/"python$1"_*.orig.tar.xz -C "$folder/source-$1" --strip-components=1
}

make_python() {  # make_python VERSION
  local log=$folder/$1.log prefix=$folder/$1
  rm -rf "$prefix" "$folder/source-$1"
  mkdir -p "$folder"
  source_of "$1" || return
  (
    cd "$folder/source-$1"
    export CC="${CC:-gcc}"
    if command -v ccache >/dev/null; then CC="ccache $CC"; fi
    ./configure -q --disable-gil --prefix="$prefix" && make -s -j "$(nproc)" && make -s install
  ) >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
  rm -rf "$folder/source-$1"
  touch "$prefix/.complete"
}

status=0 made=()
for version in "${versions[@]}"; do
  [ -e "$folder/$version/.complete" ] || make_python "$version" || continue
  made+=("$version")
done
rm -f "$folder/apt/updated"
[ "${#made[@]}" -gt 0 ] || { echo "free_threaded: skipped: no free-threaded CPython can be made here" >&2; exit 75; }
for version in "${made[@]}"; do
  python=$folder/$version/bin/python${version}t
  printf -- '-- %s\n' "$("$python" -VV)"
  scripts/test_other_python.sh "$python" "free-threaded-$version" "$@" || status=$?
done
exit "$status"
