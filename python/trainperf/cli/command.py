"""What a subcommand is."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """One subcommand. `run` returns the exit code; TrainperfError and OSError become one line on stderr and code 1."""

    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def description(self) -> str: ...
    def configure(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int: ...
