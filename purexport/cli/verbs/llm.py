"""`purexport llm FOLDER -o OUT`: a language model of transformers as a folder for a runtime."""

from __future__ import annotations

import argparse
from typing import Literal

from purexport.cli.folders import add_folders, add_opset_and_dtype, add_ways, report_folder
from purexport.cli.specs import parse_size
from purexport.progress.bar import shown

TARGETS = ("onnx", "onnxruntime", "onnxruntime-genai", "transformers.js")
_CACHES: dict[str, Literal["dynamic", "static"] | None] = {"dynamic": "dynamic", "static": "static", "none": None}

_EXAMPLES = """\
FOLDER is what model.save_pretrained writes: config.json and .safetensors.  Its weights are copied into the file without
being loaded; the files of the tokenizer and of generation are copied too.  Python code in the folder does not run, and
links that lead out of it are refused.

examples:
  purexport llm Llama-3.2-1B -o out --target onnxruntime-genai --verify
  purexport llm Llama-3.2-1B -o out --target onnxruntime --quantize int4
  purexport llm Qwen3-0.6B -o out --opset 23 --last-logits
  purexport llm Qwen3-0.6B -o out --target transformers.js --variants fp32,q4f16
  purexport llm Qwen3-0.6B -o out --opset 24 --cache static --max-length 2048
  purexport llm Qwen3-0.6B -o out --cache static --max-length 2048 --prompt-length 128
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "llm",
        help="export a language model of transformers, with its cache",
        description="Export a language model of transformers with its cache of keys and values.",
        epilog=_EXAMPLES,
    )
    add_folders(parser)
    parser.add_argument(
        "--target",
        choices=TARGETS,
        default="onnx",
        help="onnx: operators of the standard (default); onnxruntime: also fused operators of ONNX Runtime; "
        "onnxruntime-genai: these, and a genai_config.json",
    )
    add_opset_and_dtype(parser, opset=23)
    parser.add_argument(
        "--cache",
        choices=_CACHES,
        default="dynamic",
        help="dynamic: keys and values grow with the text (default); static: buffers of N tokens; none: no cache",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        metavar="N",
        help="the number of tokens in a static cache; without one, the number of positions (default: from the config)",
    )
    parser.add_argument(
        "--prompt-length",
        type=int,
        metavar="P",
        help="with a static cache: two graphs whose shapes are numbers, for P tokens and for one, with one data file",
    )
    parser.add_argument("--last-logits", action="store_true", help="logits of the last token of each row only")
    parser.add_argument("--verify", action="store_true", help="compare a prompt and 16 tokens with torch")
    add_ways(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the folder, and report."""
    # torch is loaded by what follows, and not by the help
    from purexport.language.model import language_model

    shard = parse_size(args.shard_size)
    with shown(delay=0) as progress:
        report = language_model(
            args.folder,
            args.output,
            args.target,
            args.opset,
            cache=_CACHES[args.cache],
            max_length=args.max_length,
            prompt_length=args.prompt_length,
            dtype=args.dtype,
            last_logits=args.last_logits,
            verify=args.verify,
            quantize=args.quantize,
            shard_size=shard,
            variants=args.variants,
            trust_remote_code=args.trust_remote_code,
            progress=progress,
        )
    report_folder(args, report)
    return 0
