"""`purexport hf FOLDER -o OUT`: a model of transformers that generates no text, as a folder for a runtime."""

from __future__ import annotations

import argparse

from purexport.cli.folders import add_folders, add_opset_and_dtype, add_ways, report_folder
from purexport.cli.specs import parse_size
from purexport.progress.bar import shown

TARGETS = ("onnx", "onnxruntime", "transformers.js")

_EXAMPLES = """\
FOLDER is what model.save_pretrained writes: config.json and .safetensors.  The task follows from the class that the
config names.  Files of the tokenizer and the processor are copied beside model.onnx.  Python code in the folder does
not run, and links that lead out of it are refused.  For models that generate text use `purexport llm`.

tasks:
  feature-extraction text-classification token-classification question-answering multiple-choice fill-mask
  image-classification object-detection semantic-segmentation image-segmentation depth-estimation
  masked-im image-to-image keypoint-detection audio-classification audio-frame-classification audio-xvector
  automatic-speech-recognition zero-shot-image-classification

examples:
  purexport hf bert-base-uncased -o bert --verify
  purexport hf bert-base-uncased -o bert --task feature-extraction --quantize int8
  purexport hf vit-base-patch16-224 -o vit --target onnxruntime
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "hf",
        help="export another model of transformers, such as an encoder or a classifier",
        description="Write an encoder, a classifier or another model of transformers that does not generate text.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folders(parser)
    parser.add_argument("--task", metavar="TASK", help="the task of the model (default: from its config)")
    parser.add_argument(
        "--target",
        choices=TARGETS,
        default="onnx",
        help="onnx: operators of the standard (default); onnxruntime: also fused operators of ONNX Runtime; "
        "transformers.js: onnx/ with the files that it reads",
    )
    add_opset_and_dtype(parser, opset=20)
    parser.add_argument("--verify", action="store_true", help="compare the file with torch at two sizes, then write it")
    add_ways(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the folder, and report."""
    # torch is loaded by what follows, and not by the help
    from purexport.language.pretrained import pretrained_model

    shard = parse_size(args.shard_size)
    with shown(delay=0) as progress:
        report = pretrained_model(
            args.folder,
            args.output,
            args.task,
            args.target,
            args.opset,
            args.quantize,
            args.verify,
            dtype=args.dtype,
            progress=progress,
            shard_size=shard,
            variants=args.variants,
            trust_remote_code=args.trust_remote_code,
        )
    report_folder(args, report)
    return 0
