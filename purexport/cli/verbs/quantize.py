"""`purexport quantize m.onnx -o q.onnx --type int4`: weights in fewer bits, a piece at a time from file to file."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import proto_schema as ps
from purexport.cli.errors import UsageError
from purexport.cli.streams import add_force, report_stream
from purexport.cli.terminal import titled

_EXAMPLES = """\
examples:
  purexport quantize m.onnx --type int4 --dry-run
  purexport quantize m.onnx -o q.onnx --type int4 --block-size 64 --target onnxruntime
  purexport quantize m.onnx -o q.onnx --type int8 --exclude 'lm_head*' --exclude '*.norm.*'
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "quantize",
        help="weights in fewer bits: int8, int4, int2, small floats, in blocks or by channel",
        description="Store the weights of products (MatMul, Gemm, Conv; with --embeddings those of Gather) in fewer\n"
        "bits. Each weight is read once, a piece at a time. --dry-run says for each one what would be\n"
        "done, its bytes before and after, and its relative error.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("-o", "--output", metavar="FILE", help="the file to write; may be the same")
    add("--type", default="int4", help="the type of the weights: int4 (the default), int8, uint4, nvfp4, float16, ...")
    add("--block-size", metavar="N", type=int, help="elements that share a scale; 0 for a whole output channel")
    add("--target", choices=("onnx", "onnxruntime"), default="onnx", help="whose operators read the weights")
    points = parser.add_mutually_exclusive_group()
    points.add_argument("--symmetric", action="store_true", help="no zero points; signed types have none by default")
    points.add_argument("--zero-points", action="store_true", help="a zero point for each block")
    add("--include", metavar="PATTERN", action="append", default=[], help="only weights whose names fit")
    add("--exclude", metavar="PATTERN", action="append", default=[], help="no weight whose name fits")
    add("--embeddings", action="store_true", help="tables that only Gather reads, too")
    add("--clip", action="store_true", help="search the range of each block that has the least squared error")
    add("--accuracy-level", metavar="N", type=int, default=0, help="of MatMulNBits; 4 lets it multiply in int8")
    add("--threads", metavar="N", type=int, help="threads that convert at once (default: one a core)")
    add("--dry-run", action="store_true", help="say what would be done, with errors, and write nothing")
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Quantize, write, report."""
    from proto_schema.owned import files_of
    from proto_schema.quantization import Scheme, measured, planned, quantize
    from proto_schema.targets import judge

    if args.output is None and not args.dry_run:
        raise UsageError("say where to write the result, as in -o q.onnx, or --dry-run to write nothing")
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads {args.threads}: at least one")
    scheme = Scheme(
        args.type,
        args.block_size,
        True if args.symmetric else False if args.zero_points else None,
        tuple(args.include),
        tuple(args.exclude),
        args.embeddings,
        args.clip,
        accuracy_level=args.accuracy_level,
        threads=args.threads,
    )
    model = ps.load(args.file)
    made = quantize(model, scheme, target=args.target)
    report = (measured if args.dry_run else planned)(model, scheme, target=args.target)
    if not args.dry_run:
        # the weights of before are not in the result: in place they would be lost
        judge(os.fspath(args.output), "model", files_of(os.fspath(args.file)), args.force)
        ps.save(made, args.output, external_data=_has_data_files(model) or None, overwrite=args.force)
    facts: dict[str, Any] = {"file": args.file, "output": args.output, "dry_run": args.dry_run, **report.as_dict()}
    text = json.dumps(facts, indent=2) if args.json else "\n".join(titled(line) for line in report.lines())
    report_stream(args.output or "").write(text + "\n")
    return 0


def _has_data_files(model: ps.ModelProto) -> bool:
    graph = model.graph or ps.GraphProto()
    return any(tensor.data_location == ps.TensorProto.EXTERNAL for tensor in graph.initializer)
