#!/usr/bin/env bash
# All checks of form; runs each, and fails if one has something to say.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
check() {
  printf '== %s\n' "$1"
  shift
  "$@" || failed=1
}
sources() { git ls-files -z --cached --others --exclude-standard -- "$@"; }
format_cpp() { sources '*.cc' '*.h' '*.c' | xargs -0 -r clang-format --dry-run -Werror; }
spell() { sources | xargs -0 -r codespell; }

check "ruff check" ruff check .
check "ruff format" ruff format --check .
check "mypy" mypy
check "complexity" python scripts/complexity.py
check "clang-format" format_cpp
check "codespell" spell
exit "$failed"
