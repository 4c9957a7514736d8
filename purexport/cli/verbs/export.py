"""`purexport export MODULE:NAME --input x=float32[1,3,224,224] -o m.onnx`: the exporter on the command line."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proto_schema.external.addresses import is_address, name_of
from proto_schema.files.durable import blamed_on, takes_rename
from proto_schema.files.owned import files_of
from proto_schema.files.targets import judge
from purexport.cli.errors import UsageError
from purexport.cli.examples import refuse_missing
from purexport.cli.source import load_example, load_model, running
from purexport.cli.specs import ALL, DTYPES, InputSpec, parse_dynamic, parse_input, parse_kwargs
from purexport.cli.streams import add_data_files, add_force, data_files, model_to_stdout, report_stream
from purexport.cli.terminal import safe, safe_lines
from purexport.cli.weights import add_weights, parse_weights
from purexport.cli.written import Stopwatch, facts_of, written_facts, written_lines
from purexport.progress.bar import shown

if TYPE_CHECKING:
    from purexport.program import ONNXProgram

_EXAMPLES = f"""\
MODULE is the name of a module, or a .py file.  NAME is a model, a subclass of nn.Module, or a function without
arguments that returns a model.  Modules of the current folder can be imported.

examples:
  purexport export torchvision.models:resnet18 --input x=float32[1,3,224,224] -o resnet18.onnx
  purexport export net.py:Net --input ids=int64[2,16]:0..999 --dynamic ids:0=batch,1=length --verify
  purexport export net.py:Net --input x=float32[1,3,32,32] --dynamic all
  purexport export net.py:decoder --example net.py:step --dynamic past_key_values:0=batch,2=past
  purexport export net.py:Net --input x=float32[1,8] --tar --external-data -o - | tar x

weights:
  model.safetensors        also an index of shards, a folder, a file of torch.save, .npz or .onnx; weights are read when
                           the file is written, and no code of a checkpoint runs
  --rename model.=         removes the prefix model.; =model. adds it to all names; a.b=c.d renames one tensor, and a.b=
                           leaves it out
  --meta                   for a model larger than memory: it is created on torch's meta device

inputs:
  x=float32[1,3,224,224]   random numbers of a normal distribution (integers: 0 or 1), the same in each run
  ids=int64[2,16]:0..999   random integers from 0 to 999
  x=@example.npy           an array that numpy.save wrote
  --example net.py:step    step() returns the arguments: a tuple, or a dict of keyword arguments; dicts, dataclasses and
                           caches in them become inputs like state_h and past_key_values.0.key, for --dynamic too
  dtypes                   {" ".join(DTYPES[:7])}
                           {" ".join(DTYPES[7:])}
"""

_DYNAMIC_HELP = "make an axis of an input dynamic; all: every axis that the model lets vary"
_PLACES = {None: None, "file": True, "reference": "reference"}
_NOTHING = "dry run: nothing is written"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "export",
        help="export a PyTorch model to an .onnx file",
        description="Export a PyTorch model to an .onnx file.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("source", metavar="MODULE:NAME", help="the model, as in net.py:Net")
    add(
        "--input",
        action="append",
        default=[],
        metavar="SPEC",
        help="an example input; give one for each argument, in order",
    )
    add("--example", metavar="MODULE:NAME", help="a function that returns the example arguments, instead of --input")
    add(
        "--kwargs",
        metavar="JSON",
        help="further keyword arguments, as in '{\"scale\": 2}'; with a trace, numbers become inputs",
    )
    add(
        "-o",
        "--output",
        type=_target,
        metavar="FILE",
        help="the file or address to write (default: NAME.onnx); - for stdout",
    )
    add(
        "--output-name",
        action="append",
        metavar="NAME",
        help="the name of an output; give them in the order of the model",
    )
    add("--opset", type=int, metavar="N", help="the ONNX opset to write (default: 20)")
    add("--target", default="onnx", metavar="TEXT", help='onnx, "onnx; onnxruntime==1.20", or onnxruntime')
    add("--dynamic", action="append", default=[], metavar="X:AXIS=NAME", help=_DYNAMIC_HELP)
    add("--capture", choices=("auto", "trace", "export"), default="auto", help="how torch runs the model")
    add("--branches", choices=("example", "both"), default="example", help="the ways of an if that the file has")
    add_weights(parser)
    add(
        "--meta",
        action="store_true",
        help="create the model without memory for weights; --weights must have all of them",
    )
    where = "file (the default): weights go to FILE.data; reference: the file refers to the checkpoint"
    add("--external-data", nargs="?", const="file", choices=("file", "reference"), help=where)
    add_data_files(parser)
    add("--tar", action="store_true", help="the model and its external data as one uncompressed tar")
    add_force(parser)
    add("--dry-run", action="store_true", help="say what would be written, and write nothing")
    add("--metadata", action="store_true", help="write into each node which line and module of the model it comes from")
    add("--verify", action="store_true", help="run the file in onnxruntime on the example and compare with torch")
    add("--rtol", type=float, metavar="R", help="with --verify: the relative tolerance")
    add(
        "--atol",
        type=float,
        metavar="A",
        help="the absolute tolerance; the default depends on the data types of the file",
    )
    add(
        "--quantize",
        metavar="TYPE",
        help="store weights of matrix products in fewer bits: int4, int8, uint4, float16, ...",
    )
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Export, report.  Raises UsageError, OSError or ExportError."""
    specs = [parse_input(text) for text in args.input]
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise UsageError(f"--input names must differ; given were {', '.join(names)}")
    if args.example and specs:
        raise UsageError("--example gives all arguments; leave --input out")
    for option in ("rtol", "atol"):
        bound = getattr(args, option)
        if bound is not None and not args.verify:
            raise UsageError(f"--{option} is about --verify, which is not given")
    dynamic = parse_dynamic(args.dynamic, None if args.example else names)
    kwargs = parse_kwargs(args.kwargs)
    stored: dict[str, Any] = {**data_files(args), "archive": "tar" if args.tar else None, "overwrite": args.force}
    stored["external_data"] = _PLACES[args.external_data or ("file" if stored["shard_size"] else None)]
    name = args.source.rpartition(":")[2].rpartition(".")[2]
    path = args.output or Path(f"{name}.{'tar' if args.tar else 'onnx'}")
    streamed = str(path) == "-"
    if streamed and args.resume:
        raise UsageError("--resume: what went to standard output is not kept; give a file's name")
    if not streamed and not is_address(path) and takes_rename(str(path)):
        with blamed_on(str(path)):
            judge(str(path), "tar" if args.tar else "model", _read_files(args, specs), args.force)
    watch = Stopwatch()
    with model_to_stdout() if streamed and not args.dry_run else nullcontext() as stream:
        target = sys.stdout.buffer if streamed and stream is None else stream or path
        program = _exported(args, specs, None if args.dry_run else target, dynamic, kwargs, stored)
    if args.dry_run:
        plan = program.plan(target, **stored)
        sys.stdout.write(
            (json.dumps(plan.as_dict(), indent=2) if args.json else safe_lines(f"{plan}\n{_NOTHING}")) + "\n"
        )
        return 0 if plan.fits else 1
    route, seconds = program.report.route, watch.seconds()
    if stream is not None:
        facts = facts_of(program.model_proto, "-", {"standard output": stream.written}, route, seconds)
    elif args.tar or (not is_address(path) and not takes_rename(str(path))):
        size = sum(file.size for file in program.plan(target, **stored).files if file.action == "write")
        facts = facts_of(program.model_proto, str(path), {name_of(str(path)): size}, route, seconds)
    else:
        facts = written_facts(path, route, seconds)
    facts["verified"] = bool(args.verify)
    if ALL in args.dynamic:
        facts |= {"dynamic": program.report.dynamic, "static": program.report.static}
    if args.external_data == "reference":
        facts["referenced"] = [file.name for file in program.plan(path, **stored).files if file.action == "refer"]
    report = report_stream(str(path)) if stream is None else sys.stderr
    report.write((json.dumps(facts, indent=2) if args.json else _text(facts)) + "\n")
    return 0


def _target(text: str) -> str | Path:
    return text if is_address(text) else Path(text)


def _read_files(args: argparse.Namespace, specs: Sequence[InputSpec]) -> list[str]:
    """The files that the command reads, as far as it names them."""
    module = args.source.rpartition(":")[0]
    places = [Path(name) for name in args.weights or () if not is_address(name)]
    files = [file for place in places for file in (place.iterdir() if place.is_dir() else files_of(str(place)))]
    examples = [spec.file for spec in specs if spec.file]
    return [module, f"{module.replace('.', '/')}.py", *map(str, [*files, *examples])]


def _exported(
    args: argparse.Namespace,
    specs: Sequence[InputSpec],
    target: Any,
    dynamic: dict[str, Any],
    kwargs: dict[str, Any],
    stored: dict[str, Any],
) -> ONNXProgram:
    import torch

    import purexport

    model = load_model(args.source, meta=args.meta)
    if not args.example:
        refuse_missing(model, args.source, specs, kwargs)
    weights = parse_weights(model, args)
    generator = torch.Generator().manual_seed(0)
    inputs: tuple[Any, ...] = tuple(spec.make(generator) for spec in specs)
    if args.example:
        inputs, keywords = load_example(args.example)
        kwargs = {**keywords, **kwargs}
    with shown(delay=0) as progress, running(f"the export of {args.source}"), _known_axes():
        return purexport.export(
            model,
            inputs,
            target,
            kwargs=kwargs,
            input_names=[spec.name for spec in specs] or None,
            output_names=args.output_name,
            opset_version=args.opset,
            dynamic_axes=dynamic or None,
            dynamic=ALL in args.dynamic,
            capture=args.capture,
            branches=args.branches,
            verify=args.verify,
            rtol=args.rtol,
            atol=args.atol,
            metadata=args.metadata,
            progress=progress,
            weights=weights,
            target=args.target,
            quantize=args.quantize,
            **stored,
        )


@contextmanager
def _known_axes() -> Iterator[None]:
    """Raises UsageError for an unknown name in --dynamic, of which code for torch.onnx is only warned."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="dynamic_axes names .* which is left out")
        try:
            yield
        except UserWarning as said:
            raise UsageError(str(said).replace("which is left out: ", "and ")) from None


def _text(facts: dict[str, Any]) -> str:
    lines = written_lines(facts)
    for word in ("dynamic", "static"):
        found = facts.get(word, {})
        lines += [
            f"{word:<9} {name} axis {axis}: {what}" for name, axes in found.items() for axis, what in axes.items()
        ]
    if facts["verified"]:
        lines.append("verified  onnxruntime computes what torch computes on the example")
    return "\n".join(map(safe, lines))
