#!/usr/bin/env bash
# Other Debian and Ubuntu systems, to try things in: unpacked and not set up, so that one of aarch64 takes no longer than
# another, 10 to 30 seconds. Its programs run by qemu-user. They lie in the user's cache, for all clones.
#
#   scripts/system.sh make SUITE ARCH PACKAGE...     prints its folder; does nothing where it is there
#   scripts/system.sh run FOLDER COMMAND...          with this repository at the path that it has here
#   scripts/system.sh mirror [SUITE]                 the mirror that it takes for that suite, or for Debian's
#
# DEBIAN_MIRROR and UBUNTU_MIRROR name other mirrors than apt's own and archive.ubuntu.com.
# Exits with 75 and says why where the system cannot be had: not root, no debootstrap, no mirror, no qemu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

without() { printf 'system: skipped: %s\n' "$*" >&2; exit 75; }

# install PROGRAM PACKAGE...: by apt, where it is not there.
install() {
  local program=$1
  shift
  command -v "$program" >/dev/null && return
  { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; } ||
    without "there is no $program, and apt-get cannot install $*"
}

# The first of apt's mirrors that is Debian's, or one of Ubuntu's for a suite of Ubuntu's.
mirror_of() {  # SUITE
  local mirror
  case $1 in focal | jammy | noble | resolute) echo "${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}"; return ;; esac
  mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list} 2>/dev/null || true; } |
    sed -nE 's/^URIs: (\S+).*/\1/p; s/^deb (\[.*\] )?(\S+) .*/\2/p' | grep -E '/debian/?$' | head -n 1 || true)
  mirror=${DEBIAN_MIRROR:-$mirror}
  [ -n "$mirror" ] || without "apt's sources name no mirror of Debian: set DEBIAN_MIRROR"
  echo "${mirror%/}"
}

make_system() { # SUITE ARCH PACKAGE...
  local suite=$1 arch=$2 mirror script=sid components=main package
  shift 2
  local root
  root=${XDG_CACHE_HOME:-$HOME/.cache}/trainperf/systems/$suite-$arch-$(sha256sum <<<"$*" | cut -c 1-6)
  if [ ! -d "$root" ]; then
    [ "$(id -u)" = 0 ] || without "to make $root takes root"
    install debootstrap debootstrap
    unshare --mount true 2>/dev/null || without "no mounts may be made here"
    mirror=$(mirror_of "$suite")
    case $suite in focal | jammy | noble | resolute) script=gutsy components=main,universe ;; esac
    rm -rf "$root" "$root.new"
    mkdir -p "${root%/*}"
    # Keys of a newer release may be unknown here; it is a system for tests. The first stage only fetches and unpacks.
    debootstrap --foreign --arch="$arch" --variant=minbase --no-check-gpg --components=$components --include="$(tr ' ' , <<<"$*")" \
      "$suite" "$root.new" "$mirror" "/usr/share/debootstrap/scripts/$script" >"$root.log" 2>&1 ||
      { tail -n 3 "$root.log" >&2; without "$suite cannot be had from $mirror"; }
    for package in "$root.new"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root.new"; done
    rm -rf "$root.new"/var/cache/apt/archives/*.deb
    # What setting it up would make of it: the way to the network, and whom it trusts there.
    cp /etc/resolv.conf "$root.new/etc/"
    mkdir -p "$root.new/etc/ssl/certs"
    cp /etc/ssl/certs/ca-certificates.crt "$root.new/etc/ssl/certs/"
    mv "$root.new" "$root"
  fi
  if [ "$arch" = arm64 ] && [ "$(uname -m)" != aarch64 ]; then
    install qemu-aarch64-static qemu-user-static binfmt-support
    [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null || true
    [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64 >/dev/null 2>&1 || true
    chroot "$root" /bin/true 2>/dev/null || without "the kernel here starts no program of aarch64 by qemu (binfmt_misc)"
  fi
  echo "$root"
}

run_in() { # FOLDER COMMAND...: all mounts end with it
  local root=$1
  shift
  [ -d "$root" ] || { printf 'system: there is no %s\n' "$root" >&2; exit 2; }
  mkdir -p "$root$PWD"
  # shellcheck disable=SC2016 # $1 and the rest are the inner shell's
  exec unshare --mount --propagation private bash -euc '
    root=$1 here=$PWD; shift
    mount --bind /proc "$root/proc"; mount --bind /dev "$root/dev"; mount --bind /sys "$root/sys"; mount --bind "$here" "$root$here"
    exec chroot "$root" /usr/bin/env -i -C "$here" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 "$@"
  ' - "$root" "$@"
}

case "${1:-}" in
  make) shift; make_system "$@" ;;
  run) shift; run_in "$@" ;;
  mirror) mirror_of "${2:-}" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
