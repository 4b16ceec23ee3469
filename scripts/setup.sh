#!/usr/bin/env bash
# Brings a Debian machine to where everything can be built and tested: Debian packages, .venv, Python packages.
# Does nothing, in a fraction of a second, when all is there.
#
#   scripts/setup.sh --tests                            also what only tests need: Chromium, MLflow, W&B
#   scripts/setup.sh --build                            only what the build needs
#   PYTHON=/usr/bin/python3.12 scripts/setup.sh        another Python than the first suitable one
#   TORCH_REQUIREMENT="torch==2.13.0+cpu" scripts/setup.sh   another torch, say of an index that pip is set up for
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=no build_only=no
case "${1:-}" in
  --tests) tests=yes ;;
  --build) build_only=yes ;;
  "") ;;
  *) printf 'setup: %s is no option: there are --tests and --build\n' "$1" >&2; exit 2 ;;
esac
torch=${TORCH_REQUIREMENT:-torch==2.13.0}
venv=.venv
suitable='import sys; sys.exit(not (sys.version_info >= (3, 10) and sys.implementation.name == "cpython"))'

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    "$PYTHON" -c "$suitable" 2>/dev/null || die "PYTHON=$PYTHON is no CPython >= 3.10"
    command -v "$PYTHON"
    return
  fi
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -c "$suitable" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
}

# Prints the Debian packages that are missing, on one line.
missing_packages() {
  local wanted=(g++ ccache libabsl-dev libsqlite3-dev libsimdjson-dev libisal-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev ca-certificates)
  local python=$1 package missing=()
  if [ -z "$python" ]; then
    wanted+=(python3 python3-venv python3-dev)
  else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
      wanted+=(python3-dev)
  fi
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  echo "${missing[*]:-}"
}

as_root=()
may_install() {
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; } || return 1
  as_root=(sudo)
}

apt_install() {
  say "installing Debian packages: $*"
  # A third party's repository that does not answer is no reason to stop: the install tells whether the packages are there.
  mkdir -p build
  flock build/apt.lock "${as_root[@]}" apt-get update -qq || say "apt-get update had errors; going on"
  flock build/apt.lock "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_packages() {
  may_install || die "some Debian packages are missing; run this, then try again:
  sudo apt-get update && sudo apt-get install -y $*"
  apt_install "$@" || die "apt-get could not install: $*"
}

# Tests of what people look at want it; without it they are skipped, and all else is tested.
install_chromium() {
  local name
  for name in chromium chromium-browser google-chrome; do
    ! command -v "$name" >/dev/null || return 0
  done
  if ! command -v apt-get >/dev/null || ! may_install || ! apt_install chromium; then
    say "there is no Chromium, so tests in a browser are skipped: sudo apt-get install -y chromium"
  fi
}

python=$(find_python)
if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  missing=$(missing_packages "$python")
  if [ -n "$missing" ]; then
    read -ra packages <<<"$missing"
    install_packages "${packages[@]}"
    python=$(find_python)
  fi
else
  say "not a Debian system: Abseil, SQLite, simdjson, ISA-L, GoogleTest and a C++ compiler must be there already"
fi
[ -n "$python" ] || die "no CPython >= 3.10 found; name one with PYTHON=..."

if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
  say "creating $venv with $python"
  "$python" -m venv --clear "$venv"
fi

pip_install() { "$venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }

stamp=$venv/.trainperf-setup-build
key=$({ cat scripts/requirements-native.txt; "$venv/bin/python" -VV; } | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
  say "installing what the build needs into $venv"
  pip_install -r scripts/requirements-native.txt
  echo "$key" >"$stamp"
fi
[ $build_only = no ] || exit 0

chromium=
if [ $tests = yes ]; then
  exec 3<&0                # by itself a job in the background has no terminal, which sudo may ask
  install_chromium <&3 &  # apt-get and pip wait for the network, each by itself
  chromium=$!
fi

stamp=$venv/.trainperf-setup
key=$({ cat scripts/requirements*.txt scripts/setup.sh; echo "$torch"; "$venv/bin/python" -VV; } | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
  say "installing Python packages into $venv"
  # Python compiles what it imports, and little of most packages ever is: of torch, a second's worth of sixteen.
  pip_install --no-compile -r scripts/requirements.txt "$torch" -r scripts/requirements-frameworks.txt
  # Makes the source tree importable, so that an edit of Python needs no build.
  echo "$PWD/python" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/trainperf-dev.pth"
  # And what an installed package would bring: the command.
  printf '#!%s\nimport sys\n\nfrom trainperf.cli.main import main\n\nsys.exit(main())\n' "$PWD/$venv/bin/python" >"$venv/bin/trainperf"
  chmod +x "$venv/bin/trainperf"
  echo "$key" >"$stamp"
fi

if [ $tests = yes ]; then
  stamp=$venv/.trainperf-setup-tests
  key=$({ cat scripts/requirements-trackers.txt; echo "$key"; } | sha256sum)
  if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
    say "installing what only tests need into $venv"
    if pip_install --no-compile -r scripts/requirements-trackers.txt; then
      echo "$key" >"$stamp"
    else
      say "pip could not install MLflow and W&B; tests of the exports to them are skipped"
    fi
  fi
  wait "$chromium"
fi
