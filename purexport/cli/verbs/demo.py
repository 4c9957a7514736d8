"""`purexport demo`: exports a ResNet-50 with random weights, checks the file, runs it, and says what it did."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import proto_schema as ps
from purexport.cli.terminal import safe
from purexport.cli.written import Stopwatch, written_facts, written_lines
from purexport.errors.requirements import command_for

if TYPE_CHECKING:
    import torch

EXPORTED_BATCH = 1
BATCHES = (1, 3)
"""Batch sizes to run: the exported one and another."""

TOLERANCE = 1e-3
"""Largest accepted difference, relative to the largest score."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "demo",
        help="export, check and run a ResNet-50 in this folder",
        description="Export a ResNet-50 with random weights to the current folder, and check the file. If onnxruntime "
        "is installed, run the file at two batch sizes, and compare the results with torch.",
        epilog="example:\n  purexport demo --opset 17 --capture export",
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("resnet50.onnx"), metavar="FILE", help="the file to write")
    add("--opset", type=int, metavar="N", help="the ONNX opset to write (default: 20)")
    add("--capture", choices=("auto", "trace", "export"), default="auto", help="how torch runs the model")
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Export, check, run, report.  Returns 1 if the file computes something else than torch."""
    import torch

    import purexport
    from purexport.cli.resnet import resnet50

    model = resnet50()
    example = _images(EXPORTED_BATCH)
    watch = Stopwatch()
    program = purexport.export(
        model,
        (example,),
        args.output,
        input_names=["images"],
        output_names=["scores"],
        dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
        opset_version=args.opset,
        capture=args.capture,
    )
    facts = written_facts(args.output, program.report.route, watch.seconds())
    ps.checker.check_model(args.output, full_check=True)
    facts["checked"] = True
    with torch.no_grad():
        facts["runs"] = _compare(args.output, model)
    agree = all(result["relative_difference"] <= TOLERANCE for result in facts["runs"] or ())
    sys.stdout.write((json.dumps(facts, indent=2) if args.json else "\n".join(map(safe, _lines(facts, agree)))) + "\n")
    return 0 if agree else 1


def _images(batch: int) -> torch.Tensor:
    import torch

    return torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(batch))


def _compare(path: Path, model: torch.nn.Module) -> list[dict[str, Any]] | None:
    """One result per batch size, or None if onnxruntime is not installed."""
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    results = []
    for batch in BATCHES:
        images = _images(batch)
        expected = model(images).numpy()
        actual = session.run(None, {"images": images.numpy()})[0]
        difference = float(abs(actual - expected).max())
        results.append(
            {
                "batch": batch,
                "max_difference": difference,
                "relative_difference": difference / float(abs(expected).max()),
                "same_classes": bool((actual.argmax(1) == expected.argmax(1)).all()),
            }
        )
    return results


def _lines(facts: dict[str, Any], agree: bool) -> list[str]:
    lines = [*written_lines(facts), "checked   names, operators, attributes and types hold together"]
    if facts["runs"] is None:
        return [*lines, f"not run   onnxruntime is not installed: {command_for('onnxruntime')}"]
    for result in facts["runs"]:
        classes = "same classes" if result["same_classes"] else "other classes"
        difference = f"{result['max_difference']:.2g}, {result['relative_difference']:.1g} of the largest score"
        lines.append(f"ran       batch of {result['batch']} in onnxruntime: {classes}, largest difference {difference}")
    return [*lines, "result    fine" if agree else "result    onnxruntime and torch differ"]
