#!/usr/bin/env bash
# Lays the package out beside a build that is not in place: SITE/trainperf holds the module of that build and links to the
# Python sources, so that several builds of the module can be tested from one source tree.
#
#   scripts/overlay.sh BUILD_DIR [SITE]        prints SITE, by default BUILD_DIR/site, for PYTHONPATH
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
site=${2:-$1/site}
rm -rf "$site"
mkdir -p "$site/trainperf"
site=$(cd "$site" && pwd)
for entry in "$root"/python/trainperf/*; do
  case $entry in
    *.so | */__pycache__ | */docs) ;; # the build installs these
    *) ln -s "$entry" "$site/trainperf/" ;;
  esac
done
cmake --install "$1" --prefix "$site" >/dev/null
echo "$site"
