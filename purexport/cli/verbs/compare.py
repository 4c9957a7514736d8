"""`purexport compare net.py:Net m.onnx --input x=float32[1,8]`: the first node of a file that is wrong, and why."""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import proto_schema as ps
from proto_schema.budget import EVALUATION
from proto_schema.files.owned import files_of
from proto_schema.files.targets import judge
from proto_schema.units import size_text
from purexport.cli.errors import UsageError
from purexport.cli.nearest import meant
from purexport.cli.source import load_example, load_model, running
from purexport.cli.specs import InputSpec, add_budget, parse_budget, parse_input, parse_kwargs
from purexport.cli.streams import add_force, report_stream
from purexport.cli.terminal import safe_lines
from purexport.cli.weights import add_weights, fill_model
from purexport.inspect.errors import Apart, Errors
from purexport.inspect.html import html

if TYPE_CHECKING:
    from purexport.comparison.result import Comparison

_EXAMPLES = """\
examples:
  purexport compare net.py:Net net.onnx --input x=float32[1,3,224,224]
  purexport compare net.py:Net net.onnx --example net.py:step --repro repro
  purexport compare net.py:Net net.onnx --example net.py:step --html net.html
  purexport compare net.py:Net net.onnx --weights net.safetensors --input x=float32[1,3,224,224]
  purexport compare net.onnx converted.onnx --input x=float32[1,3,224,224]
  purexport compare net.onnx net.onnx --input x=@image.npy      our evaluator beside ONNX Runtime

--input, --example and --weights are written as for `purexport export`.
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "compare",
        help="find where a file differs from the model: the first wrong node, and the line of the model",
        description="Run a model in torch and its file in ONNX Runtime, and print the error of each output. Without "
        "ONNX Runtime the evaluator of proto_schema runs the file. If an output differs, print the node at fault, the "
        "line of the model that it comes from, and how the error grows; the exit status is then 1. MODEL can also be "
        "another file, which the evaluator runs. In files of other exporters, values are matched by their content.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add(
        "source",
        metavar="MODEL",
        help="the model that the file was exported from, as in net.py:Net, or another .onnx file",
    )
    add("file", metavar="FILE", help="the .onnx file")
    add("--input", action="append", default=[], metavar="SPEC", help="an example input, in the model's order")
    add("--example", metavar="MODULE:NAME", help="a function that returns the example arguments, instead of --input")
    add("--kwargs", metavar="JSON", help="further keyword arguments, as in '{\"scale\": 2}'")
    add("--rtol", type=float, metavar="R", help="the relative tolerance; the default depends on the data types")
    add("--atol", type=float, metavar="A", help="the absolute tolerance; the default depends on the data types")
    add_budget(parser, "each run of our evaluator", EVALUATION)
    add_weights(parser)
    add("--repro", metavar="FOLDER", help="write a reproducer: a model of the node at fault, its inputs, a script")
    add("--html", metavar="PAGE", help="write a page with the graph, in which nodes have the color of their error")
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Compare, report. Returns 1 where the file is wrong. Raises UsageError, OSError or ExportError."""
    import torch

    import purexport

    specs = [parse_input(text) for text in args.input]
    if args.example and specs:
        raise UsageError("--example gives all arguments; leave --input out")
    if not args.example and not specs:
        raise UsageError("say what to compare on, as in --input x=float32[1,3,224,224], or with --example")
    kwargs, budget = parse_kwargs(args.kwargs), parse_budget(args.budget)
    if args.html:
        judge(args.html, "page", _read_files(args, specs), args.force)
    files = args.source.endswith(".onnx") or os.path.isfile(args.source)
    model: Any = args.source if files else load_model(args.source)
    fill_model(model, args)
    if not files:
        specs = _in_order(specs, model, args.file)
    generator = torch.Generator().manual_seed(0)
    inputs: Any = tuple(spec.make(generator) for spec in specs)
    if args.example:
        inputs, keywords = load_example(args.example)
        kwargs = {**keywords, **kwargs}
    elif files:
        inputs = {spec.name: tensor for spec, tensor in zip(specs, inputs, strict=True)}
    with running(f"the comparison of {args.source}"):
        found = purexport.compare(
            model, inputs, args.file, kwargs, args.rtol, args.atol, inside=bool(args.html), budget=budget
        )
    facts = found.as_dict()
    lines = [found.as_text()]
    if args.repro and found.reproducible:
        if os.path.isdir(args.repro):
            judge(os.path.join(args.repro, "model.onnx"), "model", _read_files(args, specs), args.force)
        facts["written"] = found.write_reproducer(args.repro, args.force)
        lines += [f"wrote {name}" for name in facts["written"]]
    if args.html:
        page = html(args.file, args.html, overwrite=args.force, errors=_errors(found))
        facts["page"] = page.file
        lines.append(f"wrote {page.file}, {size_text(page.bytes)}; open it in a browser")
    report_stream("").write((json.dumps(facts, indent=2) if args.json else safe_lines("\n".join(lines))) + "\n")
    return 0 if found.agrees else 1


def _in_order(specs: Sequence[InputSpec], model: Any, file: str) -> list[InputSpec]:
    """The inputs in the file's order where they have its names; names of the model's parameters stay as they are.

    Raises UsageError for a name that neither has.
    """
    import torch

    graph = ps.load(file).graph or ps.GraphProto()
    held = {tensor.name for tensor in graph.initializer}
    names = [item.name or "" for item in graph.input if item.name not in held]
    called = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):  # a script has none that Python can read
        parameters = []
    known = [*names, *(name for name in parameters if name not in names)]
    for spec in specs:
        if spec.name not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise UsageError(
                f"--input {spec.name}: there is no such input; the inputs are {there}{meant(spec.name, known)}"
            )
    if {spec.name for spec in specs} == set(names):
        return sorted(specs, key=lambda spec: names.index(spec.name))
    return list(specs)


def _errors(found: Comparison) -> Errors:
    """What the page shows of it."""
    values = {}
    for item in found.judged:
        apart, anchor = item.difference, item.anchor
        origin = " at ".join(filter(None, (anchor.call, str(anchor.source)))) if anchor.call else ""
        values[item.name] = Apart(_finite(apart.error), apart.close, apart.against(found.other), origin)
    return Errors(
        agrees=found.agrees,
        other=found.other,
        text=found.summary(),
        values=values,
        layers={name: _finite(error) for name, error in found.layers.items()},
        fault=-1 if found.blamed is None else found.blamed.place,
        why=found.why,
        first="" if found.first_wrong is None else found.first_wrong.name,
    )


def _finite(error: float) -> float | None:
    """JSON has no infinity."""
    return error if math.isfinite(error) else None


def _read_files(args: argparse.Namespace, specs: Sequence[InputSpec]) -> list[str]:
    """The files that the command reads, as far as it names them: models with their data, code, inputs."""
    models = [name for name in (args.source, args.file) if os.path.isfile(name)]
    modules = [text.rpartition(":")[0] for text in (args.source, args.example or "")]
    code = [name for module in modules if module for name in (module, f"{module.replace('.', '/')}.py")]
    return [
        *(file for name in models for file in files_of(name)),
        *code,
        *(str(spec.file) for spec in specs if spec.file),
        *(args.weights or ()),
    ]
