"""`purexport completion bash`: a script for the shell that completes verbs, options, choices and file names.

Strategy: the parser of the command line is the one source. It is read as rows, and the scripts are made from them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from purexport.cli.errors import UsageError

_FILES = ("FILE", "A", "B", "MODULE:NAME")  # what arguments that are files are called in the help

_EXAMPLES = """\
for this session, and for all to come:
  bash   source <(purexport completion bash)      add this line to ~/.bashrc
  zsh    source <(purexport completion zsh)       add it to ~/.zshrc, after compinit
  fish   purexport completion fish | source       or write it to ~/.config/fish/completions/purexport.fish
"""


@dataclass(frozen=True)
class Argument:
    """An option with its flags, or a positional argument with none; `value` is its name, empty for a switch."""

    flags: tuple[str, ...]
    help: str
    value: str
    choices: tuple[str, ...]
    many: bool
    optional: bool

    @property
    def is_file(self) -> bool:
        return self.value in _FILES


@dataclass(frozen=True)
class Verb:
    """A verb and what may follow it."""

    name: str
    help: str
    options: tuple[Argument, ...]
    positionals: tuple[Argument, ...]


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "completion",
        help="print a script for completion in bash, zsh or fish",
        description="Print a script for a shell, which then completes verbs, options, choices and file names.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help="the shell that the script is for")
    parser.add_argument("--json", action="store_true", help="the verbs and their arguments as JSON instead")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the script, or the rows that it is made from.  UsageError if no shell is named."""
    from purexport.cli.main import build_parser

    verbs = list(verbs_of(build_parser()))
    if args.json:
        text = json.dumps([asdict(verb) for verb in verbs], indent=2) + "\n"
    elif args.shell is None:
        raise UsageError(f"name a shell: {', '.join(SCRIPTS)}")
    else:
        text = "\n".join(SCRIPTS[args.shell](verbs)) + "\n"
    sys.stdout.write(text)
    return 0


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[Verb]:
    """The verbs of a command line, in its order."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, sub in action.choices.items():
            rows = [_argument(one) for one in sub._actions]
            options, others = ([row for row in rows if bool(row.flags) is wanted] for wanted in (True, False))
            yield Verb(name, helps.get(name, ""), tuple(options), tuple(others))


def _argument(action: argparse.Action) -> Argument:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest)
    choices = tuple(map(str, action.choices or ()))
    many = isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+")
    optional = action.nargs == "?"
    return Argument(tuple(action.option_strings), action.help or "", value, choices, many, optional)


# The scripts ----------------------------------------------------------------------------------------------------------


def _bash(verbs: list[Verb]) -> Iterator[str]:
    yield "# purexport: completion for bash"
    yield "_purexport() {"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" verb="${COMP_WORDS[1]}"'
    yield "  local words='' files='' IFS=$'\\n'"
    yield "  COMPREPLY=()"
    names = " ".join(["--help", "--version", *(verb.name for verb in verbs)])
    yield "  if [[ $COMP_CWORD -le 1 ]]; then"
    yield f"    words='{names}'"
    yield "  else"
    yield '    case "$verb $previous" in'
    for verb in verbs:
        for option in verb.options:
            if option.value and not option.optional:
                patterns = "|".join(f"'{verb.name} {flag}'" for flag in option.flags)
                yield f"      {patterns}) {_bash_value(option)};;"
    yield "      *)"
    yield '        case "$verb" in'
    for verb in verbs:
        flags = " ".join(flag for option in verb.options for flag in option.flags)
        choices = " ".join(choice for row in verb.positionals for choice in row.choices)
        files = " files=1;" if any(row.is_file for row in verb.positionals) else ""
        words = f"if [[ $current == -* ]]; then words='{flags}'; else words='{choices}';{files} fi"
        yield f"          {verb.name}) {words};;"
    yield "        esac;;"
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "${words// /$IFS}" -- "$current"))'
    yield "  if [[ $files ]]; then"
    yield "    compopt -o filenames 2> /dev/null"
    yield '    COMPREPLY+=($(compgen -f -- "$current"))'
    yield "  fi"
    yield "}"
    yield "complete -F _purexport purexport"


def _bash_value(option: Argument) -> str:
    if option.choices:
        return f"words='{' '.join(option.choices)}'"
    return "files=1" if option.is_file else ""


def _zsh(verbs: list[Verb]) -> Iterator[str]:
    yield "#compdef purexport"
    yield "_purexport() {"
    yield "  local -a verbs"
    yield "  verbs=("
    yield from (f"    '{verb.name}:{_plain(verb.help)}'" for verb in verbs)
    yield "  )"
    yield "  if (( CURRENT == 2 )); then"
    yield "    _describe verb verbs"
    yield "    return"
    yield "  fi"
    yield "  local verb=$words[2]"
    yield "  shift words"
    yield "  (( CURRENT-- ))"
    yield "  case $verb in"
    for verb in verbs:
        yield f"    {verb.name})"
        yield "      _arguments \\"
        rows = [_zsh_option(option) for option in verb.options] + list(_zsh_positionals(verb))
        yield from (
            f"        {row}{' ' * (at < len(rows) - 1)}{chr(92) * (at < len(rows) - 1)}" for at, row in enumerate(rows)
        )
        yield "      ;;"
    yield "  esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _purexport ]]; then _purexport "$@"; else compdef _purexport purexport; fi'


def _zsh_option(option: Argument) -> str:
    rest = f"[{_plain(option.help)}]{_zsh_value(option)}"
    if len(option.flags) == 1:
        return f"'{'*' * option.many}{option.flags[0]}{rest}'"
    return f"'({' '.join(option.flags)})'{{{','.join(option.flags)}}}'{rest}'"


def _zsh_positionals(verb: Verb) -> Iterator[str]:
    for at, row in enumerate(verb.positionals, 1):
        yield f"'{'*' if row.many else at}{_zsh_value(row)}'"


def _zsh_value(row: Argument) -> str:
    if not row.value:
        return ""
    action = f"({' '.join(row.choices)})" if row.choices else "_files" if row.is_file else " "
    return f"{':' * row.optional}:{_plain(row.value)}:{action}"


def _fish(verbs: list[Verb]) -> Iterator[str]:
    yield "# purexport: completion for fish"
    none = f"not __fish_seen_subcommand_from {' '.join(verb.name for verb in verbs)}"
    yield f"complete -c purexport -n '{none}' -f"
    yield f"complete -c purexport -n '{none}' -l version -d 'say the version'"
    for verb in verbs:
        yield f"complete -c purexport -n '{none}' -a {verb.name} -d '{_plain(verb.help)}'"
    for verb in verbs:
        head = f"complete -c purexport -n '__fish_seen_subcommand_from {verb.name}'"
        choices = " ".join(choice for row in verb.positionals for choice in row.choices)
        if choices or not any(row.is_file for row in verb.positionals):
            yield f"{head} -f" + (f" -a '{choices}'" if choices else "")
        for option in verb.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            yield f"{head} {flags}{_fish_value(option)} -d '{_plain(option.help)}'"


def _fish_value(option: Argument) -> str:
    if not option.value or option.optional:
        return ""
    return f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r -F" if option.is_file else " -x"


def _plain(text: str) -> str:
    """Help without characters that a shell, or zsh's specifications, would read as more than text."""
    return re.sub(r"""['"`\\$\[\]{}:;]+""", "", text % {"prog": "purexport"} if "%(" in text else text)


SCRIPTS: dict[str, Callable[[list[Verb]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""The shells, each with what makes the lines of its script."""
