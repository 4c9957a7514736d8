"""The entry point: parses the command line, runs one verb, and turns every outcome into an exit status.

0 fine; 1 the answer is no (the result differs, the model cannot be exported); 2 bad usage, unreadable input, or an
answer that cannot be written; 128 + N for the signal N.  A reader of the answer that goes away does not change it.
Errors are text on stderr, and a traceback only if `--traceback` asks for it.  With `--json` the last line on stderr is
an object.  Results go to stdout.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any, NoReturn

from proto_schema.errors import CheckError, DecodeError, EncodeError, ExternalDataError, bounded
from purexport.cli.errors import UsageError
from purexport.cli.nearest import meant, near_file
from purexport.cli.process import EndedBySignal, complain, ended_by_signals, take_streams
from purexport.cli.terminal import paint, shown
from purexport.cli.warned import told
from purexport.errors import ExportError, UnsupportedOperatorError, WeightsError
from purexport.errors.requirements import VERSIONS, command_for
from purexport.version import VERSION

VERBS = (
    *("demo", "export", "compare", "show", "inspect", "locate", "stat", "check", "infer", "convert", "canonicalize"),
    *(
        "diff",
        "edit",
        "merge",
        "run",
        "scan",
        "simplify",
        "extract",
        "salvage",
        "html",
        "quantize",
        "share",
        "llm",
        "hf",
        "pipeline",
        "completion",
    ),
)
"""The modules of `verbs`, in the order of the help."""

_DESCRIPTION = "PyTorch to ONNX with torch and numpy only."
_EPILOG = """\
first steps:
  purexport demo                           export, check and run a ResNet-50 in this folder
  purexport export net.py:Net --input x=float32[1,3,224,224] -o net.onnx
  purexport show net.onnx                  print the inputs, outputs and nodes of the file

`purexport VERB --help` explains a verb.  Exit status: 0 success, 1 a negative result (files differ, a model is not
valid, ...), 2 bad usage or unreadable input, 128 + N ended by the signal N.
"""

_OURS = (ExportError, WeightsError, DecodeError, EncodeError, ExternalDataError, CheckError)


def entry() -> int:
    """Run the process's command line.  Returns the exit status."""
    closed = take_streams()
    if closed is not None:
        left = sys.stderr or sys.stdout
        if left is not None:
            left.write(f"purexport: {closed}\n")
        return 2
    with ended_by_signals():
        return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Run a command line.  Returns the exit status; prints errors to stderr."""
    args = argparse.Namespace(verb="", json=False, traceback=False)
    try:
        found = _parsed(argv)
        if isinstance(found, argparse.Namespace):
            args = found
        with told(args.verb):
            status: int = found if isinstance(found, int) else args.run(args)
        complain()
    except EndedBySignal as end:
        _tell(args.verb, f"ended by {end.name}")
        return end.status
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # any other error: a traceback is only for those who ask for it
        if args.traceback:
            sys.stderr.write("".join(f"{shown(text)}\n" for text in traceback.format_exc().rstrip().split("\n")))
        status, text = _judge(error)
        if getattr(args, "json", False):
            sys.stderr.write(json.dumps({"error": _facts(error)}) + "\n")
        else:
            _tell(args.verb, _with_code(text, error))
    return status


def _parsed(argv: Sequence[str]) -> argparse.Namespace | int:
    """The options; the exit status where argparse has already printed the help, or one line about a mistake."""
    if not argv:
        build_parser().print_help()
        return 0
    try:
        # the modules of other verbs are not even imported
        return build_parser(argv[:1] if argv and argv[0] in VERBS else VERBS).parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)


def _tell(verb: str, text: str) -> None:
    sys.stderr.write(f"{paint(f'purexport {verb}'.rstrip() + ':', 'red', sys.stderr)} {text}\n")


def build_parser(names: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """The command line with these verbs; the docs and tests also read all of it."""
    parser = _Parser(
        "purexport", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"purexport {VERSION}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in names:
        verb = import_module(f"purexport.cli.verbs.{name}")
        sub = verb.add_parser(verbs)
        sub.formatter_class = _Help
        sub.add_argument("--traceback", action="store_true", help="show where an error came from")
        sub.set_defaults(run=verb.run)
    return parser


class _Help(argparse.HelpFormatter):
    """Fills the paragraphs of prose, and keeps those that have indented lines: examples and tables."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            text if "\n  " in text or text.startswith("  ") else super(_Help, self)._fill_text(text, width, indent)
            for text in paragraphs
        )


class _Parser(argparse.ArgumentParser):
    """Prints one line about a mistake, not the whole usage.  argparse makes the verbs' parsers of the same class."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """An option with an optional choice takes the next word only if that is one of its choices."""
        words = list(sys.argv[1:] if args is None else args)
        self._words = words
        for action in self._actions:
            if action.nargs == "?" and action.choices and action.option_strings:
                for at, word in enumerate(words):
                    if word in action.option_strings and words[at + 1 : at + 2] not in [[c] for c in action.choices]:
                        words[at] = f"{word}={action.const}"
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        verb = _NO_VERB.match(message)
        if verb:
            message = f"{verb[1]} is not a verb{meant(verb[1], VERBS)}"
        known = [word for action in self._options() for word in action.option_strings]
        if message.startswith(_REQUIRED):  # what was mistyped comes before what is missing
            options = [word for word in self._words if _OPTION.match(word)]
            unknown = [word for word in options if not any(name.startswith(word.partition("=")[0]) for name in known)]
            message = f"unrecognized arguments: {unknown[0]}" if unknown else message
        program = self._program()
        option = _NO_OPTION.match(message)
        if option:
            word = option[1].partition("=")[0]
            message = f"there is no option {word}{meant(word, known)}"
        elif message.startswith(_UNKNOWN):
            message = f"{message.removeprefix(_UNKNOWN)} is one argument too many"
        self.exit(2, f"{program}: {shown(message)} ({program} --help explains)\n")

    def _program(self) -> str:
        """`purexport show`, also where the parser around the verbs finds a word that the verb does not know."""
        verbs = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        verb = next((word for word in self._words if any(word in names for names in verbs)), "")
        return f"{self.prog} {verb}".rstrip()

    def _options(self) -> Iterator[argparse.Action]:
        """Those of the verbs, too: the parser around them finds the words that no verb knows."""
        for action in self._actions:
            yield action
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield from inner._actions


_NO_VERB = re.compile(r"argument VERB: invalid choice: ('[^']*')")
_NO_OPTION = re.compile(r"unrecognized arguments: (--?[^ ]+)")
_UNKNOWN = "unrecognized arguments: "
_REQUIRED = "the following arguments are required"
_OPTION = re.compile(r"--?[A-Za-z]")


def _judge(error: Exception) -> tuple[int, str]:
    """(exit status, text) of an error that ended a verb.  ValueErrors are bad options and unreadable files."""
    if isinstance(error, (ExportError, CheckError)):
        return 1, "\n".join(map(shown, str(error).split("\n")))
    if isinstance(error, WeightsError):
        return 2, "\n".join(map(shown, str(error).split("\n")))
    if isinstance(error, ModuleNotFoundError) and error.name in VERSIONS:
        return 2, f"{error.name} is not installed, and this verb needs it: {command_for(error.name)}"
    if isinstance(error, ImportError) and "pip install" in str(error):  # by `runtime.packages`
        return 2, _one_line(str(error))
    if isinstance(error, UsageError):
        return 2, "\n".join([_one_line(str(error)), *map(_kept, error.more[:_MOST_LINES])])
    if isinstance(error, ValueError):
        return 2, _one_line(str(error))
    if isinstance(error, MemoryError):
        more = f" ({error})" if str(error) else ""
        return 2, _one_line(f"there is not enough memory for this{more}; free some, or raise its limit (ulimit -v)")
    if isinstance(error, OSError):
        near = near_file(error.filename) if isinstance(error, FileNotFoundError) else ""
        return 2, _one_line(f"{error.filename}: {error.strerror}{near}" if error.filename else str(error))
    lines = str(error).strip().split("\n")
    if len(lines) > 1:  # torch's errors have a line for each tensor or checkpoint key; an answer of one line hides them
        return 2, "\n".join(
            [f"{type(error).__name__}: {_one_line(lines[0])}", *map(_kept, lines[1:_MOST_LINES]), WHERE]
        )
    return 2, f"{_one_line(f'{type(error).__name__}: {error}')} {WHERE}"


def _code(error: Exception) -> str | None:
    """The code of an error of ours; other errors have none, or have another attribute of that name."""
    code = getattr(error, "code", None)
    return code if isinstance(error, _OURS) and isinstance(code, str) else None


def _with_code(text: str, error: Exception) -> str:
    """The text with the code at the end of its first line, for docs/error-codes.md."""
    code = _code(error)
    first, newline, rest = text.partition("\n")
    return f"{first} [{code}]{newline}{rest}" if code else text


def _facts(error: Exception) -> dict[str, Any]:
    """The facts of an error that a program may want to know."""
    gaps = [asdict(gap) for gap in error.gaps] if isinstance(error, UnsupportedOperatorError) else []
    return {"code": _code(error), "type": type(error).__name__, "message": str(error), "gaps": gaps}


_MOST_LINES = 40
WHERE = "(--traceback shows where)"
"""Behind an error that nobody wrote words for. For a fault of a file that is a fault of ours."""


def _kept(line: str) -> str:
    return bounded(shown(line.rstrip()))


def _one_line(text: str) -> str:
    return bounded(shown(" ".join(text.split())))
