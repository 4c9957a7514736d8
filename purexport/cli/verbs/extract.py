"""`purexport extract m.onnx`: a tensor to .npy, all tensors to .safetensors, a subgraph to a model."""

from __future__ import annotations

import argparse
import json
from typing import Any

from proto_schema.external.addresses import size_of_file
from proto_schema.units import counted, size_text
from purexport.cli.errors import UsageError
from purexport.cli.specs import parse_names
from purexport.cli.streams import add_data_files, add_force, data_files, report_stream
from purexport.cli.terminal import safe
from purexport.inspect.extract import extract_subgraph, tensor_to_npy, to_safetensors

_EXAMPLES = """\
examples:
  purexport extract m.onnx --tensor fc.weight -o weight.npy
  purexport extract m.onnx --tensors -o weights.safetensors
  purexport extract m.onnx --inputs hidden --outputs scores -o head.onnx

Write \\, for a comma in a name.
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "extract",
        help="write a tensor to .npy, all tensors to .safetensors, or a subgraph to a model",
        description="Write a part of a model to a file of its own.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("--tensor", metavar="NAME", help="write this tensor as .npy")
    add("--tensors", action="store_true", help="write all initializers as .safetensors")
    add("--outputs", metavar="NAMES", help="write the nodes that compute these values (names separated by commas)")
    add("--inputs", metavar="NAMES", help="where that subgraph begins (default: at the inputs of the graph)")
    add("-o", "--output", metavar="FILE", required=True, help="the file to write")
    add_data_files(parser)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the file, report."""
    wanted = [option for option in (args.tensor, args.tensors or None, args.outputs) if option is not None]
    if len(wanted) != 1:
        raise UsageError("say what to extract: one of --tensor NAME, --tensors, --outputs NAMES")
    if args.inputs is not None and args.outputs is None:
        raise UsageError("--inputs goes with --outputs")
    given = ("shard_size", "checksums", "executor", "resume")
    if args.outputs is None and any(getattr(args, name) for name in given):
        options = "--shard-size, --checksums, --executor and --resume"
        raise UsageError(f"{options} go with --outputs: .npy and .safetensors are one file each")
    if args.outputs is not None and not parse_names(args.outputs):
        raise UsageError("--outputs: name at least one value, as in --outputs scores,boxes")
    facts: dict[str, Any] = {"file": args.output}
    notes: list[str] = []
    if args.tensor is not None:
        array = tensor_to_npy(args.file, args.tensor, args.output, overwrite=args.force)
        facts.update(dtype=str(array.dtype), shape=list(array.shape))
        text = f"{array.dtype}{list(array.shape)}"
    elif args.tensors:
        count, left_out = to_safetensors(args.file, args.output, overwrite=args.force)
        facts.update(tensors=count, left_out=left_out)
        text = counted(count, "tensor")
        notes = [f"left out  {line}" for line in left_out]
    else:
        inputs = args.inputs and parse_names(args.inputs)
        nodes = extract_subgraph(
            args.file, args.output, parse_names(args.outputs), inputs, overwrite=args.force, **data_files(args)
        )
        facts["nodes"] = nodes
        text = f"{nodes} node{'' if nodes == 1 else 's'}"
    facts["bytes"] = size_of_file(args.output)
    report = [f"wrote {args.output}, {size_text(facts['bytes'])}: {text}", *notes]
    lines = json.dumps(facts) if args.json else "\n".join(map(safe, report))
    report_stream(args.output).write(lines + "\n")
    return 0
