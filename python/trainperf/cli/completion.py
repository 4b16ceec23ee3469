"""`trainperf completion SHELL`: a script that completes commands, options and their values, made from the parser."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Parsers = tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]  # the main one, and one a command

SHELLS = ("bash", "zsh", "fish")
_HOW = {
    "bash": 'eval "$(trainperf completion bash)"            # in ~/.bashrc',
    "zsh": 'eval "$(trainperf completion zsh)"             # in ~/.zshrc, after compinit',
    "fish": "trainperf completion fish | source             # in ~/.config/fish/config.fish",
}


class Completion:
    name = "completion"
    help = "print a script that completes trainperf's commands in your shell"
    description = "Prints a script for bash, zsh or fish that completes commands, options, findings and files."
    epilog = "to have it in each new shell:\n" + "".join(f"  {_HOW[shell]}\n" for shell in SHELLS)

    def __init__(self, make_parser: Callable[[], Parsers], helps: Callable[[], Mapping[str, str]]) -> None:
        self._make_parser = make_parser
        self._helps = helps  # of each command, by its name

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=SHELLS, help="the shell")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        main, parsers = self._make_parser()
        helps = self._helps()
        write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]
        sys.stdout.write(
            write(_options(main), {name: _describe(name, helps[name], sub) for name, sub in parsers.items()})
        )
        return 0


@dataclass(frozen=True, slots=True)
class _Option:
    names: tuple[str, ...]
    help: str
    values: tuple[str, ...]  # what it may be; () with `takes`: files
    takes: bool


@dataclass(frozen=True, slots=True)
class _Command:
    help: str
    options: tuple[_Option, ...]
    words: tuple[str, ...]  # what its first argument may be; (): files


def _options(parser: argparse.ArgumentParser) -> tuple[_Option, ...]:
    return tuple(
        _Option(
            tuple(action.option_strings),
            " ".join((action.help or "").replace("%%", "%").split()),
            tuple(str(choice) for choice in action.choices or ()),
            action.nargs != 0,
        )
        for action in parser._actions
        if action.option_strings
    )


def _describe(name: str, help: str, parser: argparse.ArgumentParser) -> _Command:
    words: tuple[str, ...] = ()
    for action in parser._actions:
        if not action.option_strings and action.choices:
            words = tuple(str(choice) for choice in action.choices)
    if name == "explain":
        from trainperf.findings.rules import ALL

        words = tuple(sorted(word for rule in ALL for word in (rule.id, rule.slug)))
    return _Command(help, _options(parser), words)


def _bash(options: tuple[_Option, ...], commands: Mapping[str, _Command]) -> str:
    cases = []
    for name, command in commands.items():
        values, files = "", "|".join(n for o in command.options if o.takes and not o.values for n in o.names)
        for option in command.options:
            if option.values:
                reply = f'COMPREPLY=($(compgen -W {_words(option.values)} -- "$word"))'
                values += f"        {'|'.join(option.names)}) {reply}; return ;;\n"
        names = [name for option in command.options for name in option.names]
        cases.append(
            f"""    {name})
      case $before in
{values}{f"        {files}) return ;;" if files else "        '') ;;"}
      esac
      case $word in
        -*) COMPREPLY=($(compgen -W {_words(names)} -- "$word")) ;;
        *) COMPREPLY=($(compgen -W {_words(command.words)} -- "$word")) ;;
      esac ;;
"""
        )
    first = [*commands, *(name for option in options for name in option.names)]
    return f"""\
# trainperf: completion for bash. Where nothing of ours fits, files are completed.
_trainperf() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in -*) ;; *) command=${{COMP_WORDS[i]}}; break ;; esac
  done
  COMPREPLY=()
  case $command in
    '') COMPREPLY=($(compgen -W {_words(first)} -- "$word")) ;;
{"".join(cases)}  esac
}}
complete -o default -o bashdefault -F _trainperf trainperf
"""


def _zsh(options: tuple[_Option, ...], commands: Mapping[str, _Command]) -> str:
    def spec(option: _Option) -> str:
        names = " ".join(option.names)
        about = f"[{_plain(option.help)}]"
        value = f":value:({' '.join(option.values)})" if option.values else (":value:_files" if option.takes else "")
        if len(option.names) == 1:
            return shlex.quote(f"{names}{about}{value}")
        return f"{shlex.quote(f'({names})')}{{{','.join(option.names)}}}{shlex.quote(f'{about}{value}')}"

    cases = []
    for name, command in commands.items():
        rest = f"'1:word:({' '.join(command.words)})'" if command.words else "'*:file:_files'"
        specs = " ".join([*(spec(option) for option in command.options), rest])
        cases.append(f"        {name}) _arguments -s {specs} ;;\n")
    listed = " ".join(shlex.quote(f"{name}:{_plain(command.help)}") for name, command in commands.items())
    return f"""\
#compdef trainperf
# trainperf: completion for zsh.
_trainperf() {{
  local -a commands
  commands=({listed})
  local context state state_descr line
  typeset -A opt_args
  _arguments -C {" ".join(spec(option) for option in options)} '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $words[1] in
{"".join(cases)}      esac ;;
  esac
}}
compdef _trainperf trainperf
"""


def _fish(options: tuple[_Option, ...], commands: Mapping[str, _Command]) -> str:
    def line(condition: str, option: _Option) -> str:
        flags = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in option.names)
        value = f" -x -a {_words(option.values)}" if option.values else (" -r" if option.takes else "")
        return (
            f"complete -c trainperf -n {shlex.quote(condition)}{flags}{value} -d {shlex.quote(_plain(option.help))}\n"
        )

    out = ["# trainperf: completion for fish.\n"]
    out += [line("__fish_use_subcommand", option) for option in options]
    for name, command in commands.items():
        out.append(
            f"complete -c trainperf -n __fish_use_subcommand -f -a {name} -d {shlex.quote(_plain(command.help))}\n"
        )
        seen = f"__fish_seen_subcommand_from {name}"
        out += [line(seen, option) for option in command.options]
        if command.words:
            out.append(f"complete -c trainperf -n {shlex.quote(seen)} -f -a {_words(command.words)}\n")
    return "".join(out)


def _words(words: tuple[str, ...] | list[str]) -> str:
    return shlex.quote(" ".join(words))


def _plain(text: str) -> str:
    """For a description: without what zsh and fish would read as syntax."""
    drop: Callable[[str], str] = lambda c: " " if c in "[]:'\"`$\\" else c  # noqa: E731
    return " ".join("".join(map(drop, text)).split())
