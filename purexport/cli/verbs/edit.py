"""`purexport edit m.onnx --set producer_name=me`: metadata, versions and names, without rewriting weights."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from proto_schema.units import counted
from purexport.cli.errors import UsageError
from purexport.cli.streams import add_force, report_stream
from purexport.cli.verbs.inspect import clipped
from purexport.inspect.edit import APPEND, NOTHING, Edited, edit
from purexport.inspect.orders import MODEL_FIELDS, Change, Edits
from purexport.inspect.paths import parse

_EXAMPLES = f"""\
FIELD is one of {", ".join(MODEL_FIELDS)},
  graph.name, graph.node[3].name, or any doc_string or denotation, as in  graph.input["x"].doc_string
Write \\= for a = in OLD or KEY.

examples:
  purexport edit m.onnx --set producer_name=me --metadata author=Ada
  purexport edit m.onnx --rename-input x=image --rename-dim N=batch -o renamed.onnx
  purexport edit m.onnx --drop-doc-strings --dry-run
"""

_SHOWN = 20


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "edit",
        help="change metadata, names, doc strings and versions, without rewriting weights",
        description="Change metadata, names, doc strings and versions of a model, in place or into a new file.\n"
        "At every moment the file is either the old one or the new one, complete. The kernel copies the\n"
        "weights, or they stay where they are: --dry-run says how.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("-o", "--output", metavar="FILE", help="the file to write (default: the same)")
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--set", metavar="FIELD=VALUE", **several, help="give a field a value")
    add("--remove", metavar="FIELD", **several, help="remove a field")
    add("--metadata", metavar="KEY=VALUE", **several, help="set an entry of metadata_props")
    add("--remove-metadata", metavar="KEY", **several, help="remove an entry of metadata_props")
    for kind in ("input", "output", "value", "node", "dim"):
        text = "a dimension's name (dim_param)" if kind == "dim" else f"the {kind} of that name"
        add(f"--rename-{kind}", metavar="OLD=NEW", **several, help=f"rename {text}, wherever it is used")
    add("--opset", metavar="[DOMAIN=]N", **several, help="declare another opset version; no operator is converted")
    add("--ir-version", metavar="N", help="the same as --set ir_version=N")
    add("--drop-doc-strings", action="store_true", help="remove all doc strings")
    add("--append", action="store_true", help="only write a record at the end of the file: quick at any size")
    add("--dry-run", action="store_true", help="say what would be done and how, and write nothing")
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Make the changes, report."""
    wanted = _edits(args)
    if wanted == Edits():
        raise UsageError("say what to change, as in --set producer_name=me (purexport edit --help shows more)")
    done = edit(args.file, wanted, args.output, append=args.append, dry_run=args.dry_run, overwrite=args.force)
    facts = {**asdict(done), "dry_run": args.dry_run}
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(clipped, _lines(done, args.dry_run)))
    report_stream(args.output or args.file).write(text + "\n")
    return 0


# Options --------------------------------------------------------------------------------------------------------------


def _edits(args: argparse.Namespace) -> Edits:
    fields: dict[str, str | int | None] = dict.fromkeys(args.remove)
    fields.update(_field(text) for text in args.set)
    if args.ir_version is not None:
        fields["ir_version"] = args.ir_version
    metadata: dict[str, str | None] = dict.fromkeys(args.remove_metadata)
    metadata.update(_pairs("--metadata", args.metadata))
    return Edits(
        fields=fields,
        metadata=metadata,
        opsets=dict(_opset(text) for text in args.opset),
        inputs=_pairs("--rename-input", args.rename_input),
        outputs=_pairs("--rename-output", args.rename_output),
        values=_pairs("--rename-value", args.rename_value),
        nodes=_pairs("--rename-node", args.rename_node),
        dims=_pairs("--rename-dim", args.rename_dim),
        drop_doc_strings=args.drop_doc_strings,
    )


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """{left: right} of texts with a `=` between, which is written `\\=` where it belongs to the left."""
    found: dict[str, str] = {}
    for text in texts:
        left, sign, right = _cut(text)
        if not sign:
            raise UsageError(f"{option} {text}: there is no = in it; write two names with = between")
        if found.setdefault(left, right) != right:
            raise UsageError(f"{option} {left}: given twice, with {found[left]!r} and {right!r}")
    return found


def _cut(text: str) -> tuple[str, str, str]:
    match = re.search(r"(?<!\\)=", text)
    if match is None:
        return text, "", ""
    return text[: match.start()].replace("\\=", "="), "=", text[match.end() :]


def _field(text: str) -> tuple[str, str]:
    """The path before the first `=` that does not stand in a name of it, and what is behind."""
    for match in re.finditer("=", text):
        path = text[: match.start()]
        try:
            parse(path)
        except ValueError:
            continue
        return path, text[match.end() :]
    raise UsageError(f"--set {text}: write FIELD=VALUE, as in producer_name=me")


def _opset(text: str) -> tuple[str, int]:
    domain, _, version = text.rpartition("=")
    if not version.isascii() or not version.isdigit():
        raise UsageError(f"--opset {text}: write a version, as in 17, or a domain with one, as in ai.onnx.ml=3")
    return domain, int(version)


# The report -----------------------------------------------------------------------------------------------------------


def _lines(done: Edited, dry_run: bool) -> Iterator[str]:
    for change in done.changes[:_SHOWN]:
        yield _change(change)
    if len(done.changes) > _SHOWN:
        yield f"... {len(done.changes) - _SHOWN} more changes (--json shows all)"
    yield from (f"note: {note}" for note in done.notes)
    would = "would write" if dry_run else "wrote"
    if done.way == NOTHING:
        yield f"{done.file} is like that already; nothing to write"
    elif done.way == APPEND:
        made = counted(done.made, "byte")
        yield f"{would} {made} at the end of {done.file}; its {done.bytes_before:,} bytes stay as they are"
    else:
        yield f"{would} {done.file}, {counted(done.bytes_after, 'byte')} (before: {done.bytes_before:,})"
        yield f"  {done.made:,} new, {done.copied:,} of the old file, {done.by_kernel:,} of these copied by the kernel"
    if done.untouched and done.way != NOTHING:
        yield f"  not touched: {', '.join(done.untouched)}"


def _change(change: Change) -> str:
    text = f"{change.what}: {_value(change.old)} -> {_value(change.new)}"
    if not change.places:
        return text
    if change.old is None:
        text = f"{change.what}: removed"
    count = sum(change.places.values())
    where = ", ".join(f"{number} {name}" for name, number in sorted(change.places.items()))
    return f"{text}, in {count} place{'' if count == 1 else 's'}: {where}"


def _value(value: str | int | None) -> str:
    return "nothing" if value is None else ascii(value)
