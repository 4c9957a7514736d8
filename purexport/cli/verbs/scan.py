"""`purexport scan m.onnx`: what a security reviewer wants to know before somebody loads the file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from proto_schema.units import counted
from purexport.cli.errors import UsageError
from purexport.cli.terminal import line, titled
from purexport.cli.verbs.show import table
from purexport.version import VERSION

if TYPE_CHECKING:
    from purexport.inspect.scan import Scan

_SEVERITIES = "info, low, medium, high, critical"
_NEVER = "never"
_SHOWN = 20


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "scan",
        help="report possible dangers in an untrusted file: paths, false sizes, operators, texts, parser differences",
        description="Report what a security reviewer should see before an untrusted model is loaded: external data "
        "outside of its folder, sizes and types that the data contradicts, operators of other domains, scripts and "
        "addresses in texts, and bytes that parsers read differently. Nothing is executed, and only the first bytes of "
        "weights are read. The exit status is 1 if a finding has at least the severity of --fail-on, "
        "or if --allow does not list an operator.",
        epilog="examples:\n  purexport scan m.onnx --fail-on medium\n  purexport scan m.onnx --sarif",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add(
        "--fail-on",
        metavar="SEVERITY",
        default="high",
        help=f"the lowest severity that makes the exit status 1: {_SEVERITIES}, or {_NEVER} (default: high)",
    )
    add(
        "--allow",
        metavar="FILE",
        action="append",
        default=[],
        help="a file with the allowed operators, one on each line: Conv, com.microsoft::Gelu, own::*; any other "
        "operator makes the exit status 1. The word safe allows the standard operators whose work and memory are "
        "limited by the size of their inputs",
    )
    add("--json", action="store_true", help="the same as JSON")
    add("--sarif", action="store_true", help="the same as SARIF 2.1.0, for code hosts and editors")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what was found.  Returns 1 where it is as grave as asked."""
    # it loads numpy, which the help of all verbs does not need
    from purexport.inspect.allowed import allowed
    from purexport.inspect.scan import SEVERITIES, sarif, scan

    if args.fail_on not in (*SEVERITIES, _NEVER):
        raise UsageError(f"--fail-on {args.fail_on}: write one of {', '.join(SEVERITIES)}, {_NEVER}")
    if args.json and args.sarif:
        raise UsageError("--json and --sarif are two forms of the answer: give one of them")
    made = scan(args.file, allowed(args.allow) if args.allow else None)
    worst = made.worst()
    fails = args.fail_on != _NEVER and worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(args.fail_on)
    fails = fails or made.counts["not-allowed"] > 0
    if args.sarif:
        text = json.dumps(sarif(made, VERSION), indent=2)
    elif args.json:
        text = json.dumps(_facts(made, worst, fails), indent=2)
    else:
        verdict, *others = _lines(made, worst)
        text = "\n".join([line([(verdict, "red" if fails else "green")]), *map(titled, others)])
    sys.stdout.write(text + "\n")
    return 1 if fails else 0


def _facts(made: Scan, worst: str | None, fails: bool) -> dict[str, Any]:
    return {
        "file": made.file,
        "worst": worst,
        "fails": fails,
        "counts": dict(made.counts),
        "findings": [asdict(risk) for risk in made.risks],
    }


def _lines(made: Scan, worst: str | None) -> Iterator[str]:
    from purexport.inspect.scan import RULES, SEVERITIES

    total = sum(made.counts.values())
    yield f"{made.file}: " + (
        "nothing found" if worst is None else f"{counted(total, 'finding')}, the gravest is {worst}"
    )
    for name, (severity, title) in sorted(RULES.items(), key=lambda row: -SEVERITIES.index(row[1][0])):
        risks = [risk for risk in made.risks if risk.rule == name]
        if not risks:
            continue
        yield f"\n{severity}: {title} ({name}, {made.counts[name]:,})"
        places = (("" if risk.offset is None else f"{risk.offset:#x}", risk.path, risk.text) for risk in risks[:_SHOWN])
        yield from table(places)
        if made.counts[name] > _SHOWN:
            yield f"  ... {made.counts[name] - _SHOWN:,} more (--json shows them)"
