"""Write docs/command-line.md: every verb with its examples and options, as the parsers have them.

python -m tools.command_line [--write]        without --write: the page on stdout
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from purexport.cli.main import build_parser

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"

INTRODUCTION = """\
# Command line

`python -m tools.command_line --write` writes this page from the help texts; do not edit it. On a terminal
`purexport VERB --help` says the same.

- With `--json` a verb prints JSON. An error is then a JSON object, on the last line of stderr.
- On a terminal, `show` and `stat` print tables if `rich` is installed (`pip install rich`). `NO_COLOR` turns colors
  off, and a pipe gets plain text.
- `--traceback` shows where an error came from.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | a negative result: files differ, a model is not valid, it cannot be exported, or no weight is quantized |
| 2 | bad usage, an unreadable file, or output that cannot be written |
| 128 + N | signal N ended the verb |

If the program that reads the output ends early, as `head` does, the exit status stays the same.
"""
COMMON = {"-h", "--traceback"}


def page() -> str:
    """The whole page."""
    verbs = _verbs(build_parser())
    (listed,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help or "" for choice in listed._choices_actions}
    rows = "".join(f"| [{verb}](#{verb}) | {_cell(summaries[verb])} |\n" for verb in verbs)
    sections = "".join(f"\n## {verb}\n\n{section(parser)}" for verb, parser in verbs.items())
    return f"{INTRODUCTION}\n| verb | what it does |\n|---|---|\n{rows}{sections}"


def section(parser: argparse.ArgumentParser) -> str:
    """What a verb does, its examples, its arguments, and the rest of its help."""
    paragraphs = list(_paragraphs(parser.epilog or ""))
    examples = [line[2:] for text in paragraphs for line in text.split("\n") if line.startswith("  purexport ")]
    rest = [text for text in paragraphs if not text.startswith(("example:", "examples:"))]
    options = (action for action in parser._actions if not COMMON & set(action.option_strings))
    rows = "".join(f"| `{_cell(_spelled(action))}` | {_cell(_text(parser, action))} |\n" for action in options)
    parts = [
        _prose(parser.description or ""),
        _fence("sh", "\n".join(examples)) if examples else "",
        f"| argument | meaning |\n|---|---|\n{rows}",
        *(_fence("text", text) if "\n  " in text else _prose(text) for text in rest),
    ]
    return "\n".join(part for part in parts if part)


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(verbs.choices)


def _paragraphs(text: str) -> Iterator[str]:
    yield from filter(None, (part.strip("\n") for part in text.split("\n\n")))


def _prose(text: str) -> str:
    """In one line, without Markdown where the help has none."""
    return " ".join(text.split()).replace("*", r"\*").replace("<", r"\<") + "\n"


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def _spelled(action: argparse.Action) -> str:
    """The names of an argument and what follows them, the same for each version of Python."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = str(action.metavar or choices or action.dest.upper())
    if not action.option_strings:
        return f"[{value}]" if action.nargs == "?" else value
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    return f"{names} [{value}]" if action.nargs == "?" else f"{names} {value}"


def _text(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help with its defaults, and whether the argument must be given."""
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"{text} (required)" if action.option_strings and action.required else text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("*", r"\*" if "`" not in text else "*")


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
