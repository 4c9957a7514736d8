"""What the verbs that turn a folder into one for a runtime share: `llm`, `hf` and `pipeline`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from purexport.cli.streams import add_data_files, report_stream
from purexport.cli.terminal import safe_lines

_DTYPES = ("float32", "float16", "bfloat16")


def add_folders(parser: argparse.ArgumentParser) -> None:
    """The folder to read and the one to write."""
    parser.add_argument("folder", metavar="FOLDER", help="a folder that save_pretrained wrote")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the folder to write; it may exist")
    add_data_files(parser, one_model=False)


def add_opset_and_dtype(parser: argparse.ArgumentParser, opset: int) -> None:
    """The opset, with the one by default, and the type of the weights."""
    parser.add_argument("--opset", type=int, metavar="N", help=f"the opset (default: {opset})")
    parser.add_argument(
        "--dtype",
        choices=_DTYPES,
        help="the type of the weights in the file (default: as in the folder; float32 for bfloat16 with onnxruntime)",
    )


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Fewer bits, code of the folder, and the form of the report."""
    parser.add_argument("--quantize", metavar="TYPE", help="weights in fewer bits: int4, int8, uint4, ...")
    parser.add_argument(
        "--variants",
        metavar="TYPES",
        help="of transformers.js: fp32, fp16, q8, q4, q4f16, with commas between them (default: all)",
    )
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the Python files that config.json names, with all your rights; only for authors whom you trust",
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def report_folder(args: argparse.Namespace, report: Any) -> None:
    """Print the report on the folder that was written."""
    said = f"wrote {args.output}\n{report.as_text()}"
    text = json.dumps(report.as_dict(), indent=2) if args.json else safe_lines(said)
    report_stream(args.output).write(text + "\n")
