"""`purexport check m.onnx`: is it a valid model, and do all readers read it alike."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import proto_schema as ps
from proto_schema.errors import CheckError, DecodeError
from proto_schema.external.manifest import Compared, compare
from proto_schema.units import counted
from purexport.cli.errors import UsageError
from purexport.cli.terminal import line, titled
from purexport.cli.verbs.show import table
from purexport.inspect.elements import Bytes
from purexport.inspect.forms import DISAGREE, FORM, REFUSED, Finding, findings

_TITLES = {REFUSED: "every reader refuses", DISAGREE: "readers disagree", FORM: "not the canonical form"}
_SHOWN = 20
_COVERS = ["structure", "names", "operators", "attributes", "data", "types", "shapes"]  # the last two by --full


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "check",
        help="check that a model and its external data are valid, and that all readers read it alike",
        description="Check a model by the rules of ONNX: structure, names, operators, attributes, and that tensors "
        "have the data that their shapes need, also in files of external data. If external data has a checksum, it "
        "is read and compared. --full adds the types and the shapes of all values, as `purexport infer` infers them. "
        "--checksums reads all weights and compares them with the SHA-256 that the model was written with. "
        "The exit status is 1 when the model breaks a rule, when a checksum differs, or, with --parsers, when readers "
        "refuse it or read it differently.",
        epilog="examples:\n  purexport check m.onnx --full --parsers\n  purexport check m.onnx --checksums",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("--full", action="store_true", help="check the types and shapes of all values, too")
    add("--parsers", action="store_true", help="also say on which bytes protobuf's parsers and ONNX Runtime disagree")
    add("--checksums", action="store_true", help="compare all weights with their SHA-256")
    add("--json", action="store_true", help="the same as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the verdict.  Returns 1 when it is a no."""
    found = list(findings(Bytes(args.file))) if args.parsers else []
    error = _error(args.file, args.full, bool(args.parsers))
    covers = _COVERS if args.full else _COVERS[:-2]
    facts: dict[str, Any] = {"file": args.file, "valid": error is None, "error": error, "covers": covers}
    if args.parsers:
        facts.update(canonical=not found, findings=[asdict(finding) for finding in found])
    compared = _compared(args.file) if args.checksums else None
    if compared is not None:
        facts["checksums"] = {**asdict(compared), "mismatches": [asdict(one) for one in compared.mismatches]}
    if args.json:
        text = json.dumps(facts, indent=2)
    else:
        verdict, *others = [*_lines(facts, found, args.parsers), *([] if compared is None else _sums(compared))]
        text = "\n".join([line([(verdict, "green" if error is None else "red")]), *map(titled, others)])
    sys.stdout.write(text + "\n")
    sound = error is None and (compared is None or not compared.mismatches)
    return 0 if sound and all(finding.kind == FORM for finding in found) else 1


def _compared(path: str) -> Compared:
    """The weights beside the digests of the model. Raises UsageError where it has none."""
    found = compare(ps.load(path))
    if not found.tensors and not found.files:
        raise UsageError(
            f"{path} has no checksums: write it with --checksums, or add them with `purexport infer {path} -o {path} "
            "--checksums`"
        )
    return found


def _sums(compared: Compared) -> Iterator[str]:
    for row in compared.mismatches[:_SHOWN]:
        yield f"checksums: {row}"
    if len(compared.mismatches) > _SHOWN:
        yield f"  ... {len(compared.mismatches) - _SHOWN} more (--json shows all)"
    files = f", {counted(compared.files, 'data file')}" if compared.files else ""
    without = f"; {counted(compared.without, 'tensor')} without a checksum" if compared.without else ""
    verdict = "differ" if compared.mismatches else "are as they were written"
    differing = f"{len(compared.mismatches)} of " if compared.mismatches else ""
    yield f"checksums: {differing}{counted(compared.tensors, 'tensor')}{files} {verdict}{without}"


def _error(path: str, full: bool, parsers: bool) -> str | None:
    """The rule that the model breaks.  With `parsers` a file that is no model is a finding, not an error."""
    try:
        ps.checker.check_model(path, full_check=full)
    except CheckError as error:
        return str(error)
    except DecodeError as error:
        if not parsers:
            raise
        return str(error)
    return None


def _lines(facts: dict[str, Any], found: list[Finding], parsers: bool) -> Iterator[str]:
    full = ", types and shapes included" if _COVERS[-1] in facts["covers"] else ""
    yield f"{facts['file']}: " + (f"valid{full}" if facts["error"] is None else f"not valid: {facts['error']}")
    if not parsers:
        return
    if not found:
        yield "all readers read it alike, and it is in canonical form"
    for kind, title in _TITLES.items():
        of_kind = [finding for finding in found if finding.kind == kind]
        if of_kind:
            yield f"\n{title}: {counted(len(of_kind), 'place')}"
            yield from table((f"{row.offset:#x}", row.path, row.text) for row in of_kind[:_SHOWN])
        if len(of_kind) > _SHOWN:
            yield f"  ... {len(of_kind) - _SHOWN} more (--json shows all)"
    if found and all(finding.kind == FORM for finding in found):
        yield "\nall readers read it alike; `purexport canonicalize` rewrites it in canonical form"
