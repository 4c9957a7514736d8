"""`purexport infer m.onnx`: the types and shapes of all values, and what contradicts them."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proto_schema as ps
from proto_schema.budget import INFERENCE
from proto_schema.graphs.dims import known_size
from purexport.cli.describe import interface
from purexport.cli.specs import add_budget, parse_budget
from purexport.cli.streams import add_data_files, add_force, data_files, report_stream
from purexport.cli.terminal import line, titled
from purexport.cli.verbs.show import table

_KINDS = {
    "numbers": "whose sizes are numbers",
    "symbols": "with sizes that follow from the sizes of the inputs",
    "fresh": "with sizes that do not follow from the inputs",
    "unknown": "without a known shape",
}
_SHOWN = 20


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "infer",
        help="infer the types and shapes of all values, and find nodes that contradict them",
        description="Infer the types and shapes of all values of a model, with sizes as expressions of the inputs' "
        "sizes. Weights are not read, so large files take no longer than small ones. -o writes the model with these "
        "types and shapes. The exit status is 1 when shapes or types contradict each other.",
        epilog="examples:\n  purexport infer m.onnx\n  purexport infer m.onnx -o shaped.onnx",
    )
    parser.add_argument("file", metavar="FILE", help="the .onnx file")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the model with all shapes; may be the same file")
    parser.add_argument("--dry-run", action="store_true", help="with -o: say what would be written, and write nothing")
    parser.add_argument("--strict", action="store_true", help="stop at the first contradiction, and write no file")
    add_budget(parser, "functions and bodies of loops that are inferred again and again", INFERENCE)
    add_data_files(parser)
    add_force(parser)
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what is known.  Returns 1 where something contradicts."""
    # it loads numpy, which the help of all verbs does not need
    from proto_schema.shape_inference import InferenceError, infer_with_problems, save_inferred

    budget, stored = parse_budget(args.budget), data_files(args)
    try:
        model, problems = infer_with_problems(args.file, check_type=True, strict_mode=args.strict, budget=budget)
    except InferenceError as error:
        model, problems = ps.load(args.file), [str(error)]
        args.output = None
    facts = _facts(args.file, model, problems)
    if args.output:
        facts["dry_run"] = args.dry_run
        facts["output"] = args.output
        if not args.dry_run:
            save_inferred(model, args.file, args.output, overwrite=args.force, **stored)
    if args.json:
        text = json.dumps(facts, indent=2)
    else:
        verdict, *others = _lines(facts)
        text = "\n".join([line([(verdict, "red" if problems else "green")]), *map(titled, others)])
    report_stream(args.output or "").write(text + "\n")
    return 1 if problems else 0


def _facts(path: str, model: ps.ModelProto, problems: list[str]) -> dict[str, Any]:
    known = interface(model)
    return {
        "file": path,
        "fits": not problems,
        "problems": problems,
        "inputs": known["inputs"],
        "outputs": known["outputs"],
        "values": _values(model.graph or ps.GraphProto()),
    }


def _values(graph: ps.GraphProto) -> dict[str, int]:
    """How many of the nodes' results are known how well."""
    found = {item.name: item.type for item in (*graph.value_info, *graph.output)}
    names = [name for node in graph.node for name in node.output if name]
    count = Counter(_kind(found.get(name)) for name in names)
    return {kind: count[kind] for kind in _KINDS}


def _kind(found: ps.TypeProto | None) -> str:
    while found is not None and found.tensor_type is None:
        inner = found.sequence_type or found.optional_type
        if inner is None:
            sparse = found.sparse_tensor_type
            return "unknown" if sparse is None or sparse.shape is None else "numbers"
        found = inner.elem_type
    if found is None or found.tensor_type is None or found.tensor_type.shape is None:
        return "unknown"
    labels = [dim.dim_param for dim in found.tensor_type.shape.dim if known_size(dim) is None]
    if any(not label or "unk__" in label for label in labels):
        return "fresh"
    return "symbols" if labels else "numbers"


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    problems = facts["problems"]
    verdict = "all shapes fit" if not problems else f"{len(problems)} contradict" + ("s" if len(problems) == 1 else "")
    yield f"{facts['file']}: {verdict}"
    yield from table((f"{count:,}", f"values {_KINDS[kind]}") for kind, count in facts["values"].items() if count)
    for title in ("inputs", "outputs"):
        yield f"\n{title}"
        yield from table((value["name"], value["type"]) for value in facts[title])
    if problems:
        yield "\ncontradictions"
        yield from (f"  {text}" for text in problems[:_SHOWN])
        if len(problems) > _SHOWN:
            yield f"  ... {len(problems) - _SHOWN} more (--json shows all)"
    if "output" in facts:
        yield f"\n{'would write' if facts['dry_run'] else 'wrote'} {Path(facts['output'])}"
