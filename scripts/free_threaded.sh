#!/usr/bin/env bash
# Builds free-threaded CPythons from Debian's sources, or Ubuntu's, and runs on each what test_other_python.sh runs. They
# lie in the user's cache, for all clones: made the first time, in some four minutes each, with no optimization by
# profile.
#
#   scripts/free_threaded.sh [PYTEST_ARGUMENT...]
#   scripts/free_threaded.sh --only 3.14 [PYTEST_ARGUMENT...]    on one of them
#
# A version whose source no mirror gives is left out, which is said. Exits with 75 where there is none at all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${XDG_CACHE_HOME:-$HOME/.cache}/trainperf/free-threaded
versions=(3.13 3.14 3.15)

without() { printf 'free_threaded: without %s\n' "$*" >&2; return 1; }

# apt with lists of its own, of one suite's sources: nothing of the system's changes.
sources_apt() {  # sources_apt SUITE ARGUMENT...
  local apt=$folder/apt/$1
  shift
  apt-get -qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" \
    -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User="$(id -un)" "$@"
}

source_from() {  # source_from SUITE MIRROR VERSION: CPython's own archive, into $folder/apt/SUITE
  local apt=$folder/apt/$1
  mkdir -p "$apt"/{lists,cache/archives}/partial
  # Ubuntu's keys may be unknown here.
  echo "deb-src [trusted=yes] $2 $1 main" >"$apt/sources.list"
  if [ ! -e "$apt/updated" ]; then
    sources_apt "$1" update >"$folder/apt.log" 2>&1 || return
    touch "$apt/updated"
  fi
  (cd "$apt" && sources_apt "$1" source --download-only --tar-only "python$3" >"$folder/apt.log" 2>&1)
}

source_of() {  # source_of VERSION: into $folder/source-VERSION
  local suite
  command -v apt-get >/dev/null || without "$1: no apt-get" || return
  # Each has another patch release, and a mirror may lack the archive of one that it lists.
  for suite in forky resolute; do
    if source_from "$suite" "$(scripts/system.sh mirror "$suite")" "$1"; then
      mkdir -p "$folder/source-$1"
      tar -xf "$folder/apt/$suite/python$1"_*.orig.tar.xz -C "$folder/source-$1" --strip-components=1
      return
    fi
  done
  without "$1: no mirror gives its source"
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

if [ "${1:-}" = --only ]; then
  versions=("$2")
  shift 2
fi
status=0 made=()
for version in "${versions[@]}"; do
  [ -e "$folder/$version/.complete" ] || make_python "$version" || continue
  made+=("$version")
done
rm -f "$folder"/apt/*/updated
[ "${#made[@]}" -gt 0 ] || { echo "free_threaded: skipped: no free-threaded CPython can be made here" >&2; exit 75; }
for version in "${made[@]}"; do
  python=$folder/$version/bin/python${version}t
  printf -- '-- %s\n' "$("$python" -VV)"
  scripts/test_other_python.sh "$python" "free-threaded-$version" "$@" || status=$?
done
exit "$status"
