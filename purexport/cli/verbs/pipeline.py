"""`purexport pipeline FOLDER -o OUT`: a pipeline of diffusers as a folder for a runtime."""

from __future__ import annotations

import argparse

from purexport.cli.folders import add_folders, report_folder
from purexport.cli.specs import parse_size
from purexport.progress.bar import shown

TARGETS = ("onnx", "onnxruntime")

_EXAMPLES = """\
FOLDER is what pipe.save_pretrained writes: model_index.json and a folder for each part.  Each model becomes model.onnx
in a folder of its name; the VAE becomes vae_encoder and vae_decoder.  The files of the scheduler and the tokenizers are
copied.  The pipeline runs twice at small sizes, to see what its models are called with.  Python code in the folder does
not run, and weights are read from .safetensors only.

examples:
  purexport pipeline stable-diffusion-v1-5 -o sd --verify
  purexport pipeline stable-diffusion-xl-base-1.0 -o sdxl --target onnxruntime
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "pipeline",
        help="export a pipeline of diffusers, such as Stable Diffusion",
        description="Write the models of a pipeline of diffusers, each as a file, to a folder.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folders(parser)
    parser.add_argument(
        "--target",
        choices=TARGETS,
        default="onnx",
        help="onnx: operators of the standard (default); onnxruntime: also fused operators of ONNX Runtime",
    )
    parser.add_argument("--opset", type=int, metavar="N", help="the opset (default: 20)")
    parser.add_argument("--verify", action="store_true", help="compare each file with torch at two sizes, then write")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the folder, and report."""
    # torch is loaded by what follows, and not by the help
    from purexport.language.diffusion import pipeline

    shard = parse_size(args.shard_size)
    with shown(delay=0) as progress:
        report = pipeline(
            args.folder, args.output, args.target, args.opset, args.verify, shard_size=shard, progress=progress
        )
    report_folder(args, report)
    return 0
