#!/usr/bin/env bash
# Builds the module with Debian forky's compiler for each CPython that forky has (3.14, 3.15), and runs on it what
# test_other_python.sh runs. forky lies in the user's cache, for all clones: made by debootstrap the first time, in a
# minute or two.
#
#   scripts/newer_pythons.sh [PYTEST_ARGUMENT...]
#   scripts/newer_pythons.sh --only 3.14 [PYTEST_ARGUMENT...]    on one of them
#   scripts/newer_pythons.sh --list                              prints the versions
#   scripts/newer_pythons.sh --make                              only makes forky
#
# Exits with 75 and says why where forky cannot be had: not root, no debootstrap, no mirror.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=${XDG_CACHE_HOME:-$HOME/.cache}/trainperf/forky
versions=(3.14 3.15)
packages=(g++ ccache libabsl-dev libsqlite3-dev libsimdjson-dev libisal-dev zlib1g-dev libgtest-dev libgmock-dev binutils)
for version in "${versions[@]}"; do packages+=("python$version-dev" "python$version-venv"); done

without() { printf 'newer_pythons: skipped: %s\n' "$*" >&2; exit 75; }

# Runs a command in forky, with this repository at the path that it has here. All mounts end with it.
in_forky() {
  mkdir -p "$root$PWD"
  # shellcheck disable=SC2016 # $1 and the rest are the inner shell's
  unshare --mount --propagation private bash -euc '
    root=$1 here=$PWD; shift
    mount --bind /proc "$root/proc"; mount --bind /dev "$root/dev"; mount --bind "$here" "$root$here"
    exec chroot "$root" /usr/bin/env -C "$here" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root "$@"
  ' - "$root" CCACHE_DIR=/var/cache/ccache "$@"
}

make_forky() {
  local mirror
  [ "$(id -u)" = 0 ] || without "to make $root takes root"
  mkdir -p build "${root%/*}"
  command -v debootstrap >/dev/null ||  # setup.sh may be at it, too
    flock build/apt.lock sh -c 'apt-get update -qq; apt-get install -y -qq --no-install-recommends debootstrap >/dev/null' ||
    without "there is no debootstrap"
  unshare --mount true 2>/dev/null || without "no mounts may be made here"
  mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list} 2>/dev/null || true; } |
    sed -nE 's/^URIs: (\S+).*/\1/p; s/^deb (\[.*\] )?(\S+) .*/\2/p' | head -n 1)
  [ -n "$mirror" ] || without "apt's sources name no mirror of Debian"
  rm -rf "$root" "$root.new"
  # forky's keys are newer than those of an older Debian; apt checks each package by them once it is there.
  debootstrap --variant=minbase --no-check-gpg --include=ca-certificates forky "$root.new" "$mirror" \
    /usr/share/debootstrap/scripts/sid >build/forky.log 2>&1 || { tail -n 3 build/forky.log >&2; without "forky's mirror cannot be reached"; }
  cp /etc/resolv.conf "$root.new/etc/"
  # What this machine trusts, forky trusts.
  cp /etc/ssl/certs/ca-certificates.crt "$root.new/etc/ssl/certs/"
  mv "$root.new" "$root"
  # A mirror may stand still for weeks.
  in_forky apt-get update -qq -o Acquire::Check-Valid-Until=false >>build/forky.log 2>&1 || without "forky's package lists cannot be had"
  in_forky DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >>build/forky.log 2>&1 ||
    { tail -n 3 build/forky.log >&2; rm -rf "$root"; without "forky's packages cannot be had"; }
  echo "${packages[*]}" >"$root/.trainperf-setup"
}

only_make=no
case "${1:-}" in
  --list) printf '%s\n' "${versions[@]}"; exit ;;
  --make) only_make=yes ;;
  --only) versions=("$2"); shift 2 ;;
esac
mkdir -p "${root%/*}"
exec 8>"$root.lock"  # other clones take it, too
flock 8
[ "$(cat "$root/.trainperf-setup" 2>/dev/null)" = "${packages[*]}" ] || make_forky
exec 8>&-
[ $only_make = no ] || exit 0
status=0
for version in "${versions[@]}"; do
  printf -- '-- CPython %s, %s\n' "$version" "$(in_forky g++ --version | head -n 1)"
  in_forky scripts/test_other_python.sh "/usr/bin/python$version" "forky-$version" "$@" || status=$?
done
exit "$status"
