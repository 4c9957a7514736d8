"""How many language models of several graphs `purexport.language_model` writes, and whether they are right.

    python benchmarks/language_graphs.py [--kind encoder-decoder ...] [--target onnx onnxruntime] [--opset 23]
        [--only NAME ...] [--part 1/2]

Every class of transformers' mappings of a kind, with a tiny random config (tests/models/decoders.py).  The files are
written to a folder and run by `verify`: 16 greedy steps.  One line is printed for each class, then a summary.  A class
is left out where it makes no tiny model or is of another kind.  Each class runs in a process forked from this one.
Needs Linux, transformers and onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from purexport.fusion.targets import TARGETS  # noqa: E402
from purexport.language.model import language_model  # noqa: E402
from tests.models import decoders, multimodal  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

KINDS = {
    "encoder-decoder": ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"),
    "state": ("CAUSAL_LM",),
    "vision": ("IMAGE_TEXT_TO_TEXT",),
}
SECONDS = 240  # for one class


def classes(kind: str) -> list[str]:
    """The names of the classes of a kind's mappings."""
    module = decoders.library("models.auto.modeling_auto")
    found: set[str] = set()
    for mapping in KINDS[kind]:
        for names in getattr(module, f"MODEL_FOR_{mapping}_MAPPING_NAMES").values():
            found.update((names,) if isinstance(names, str) else names)
    return sorted(found)


def line_of(name: str, kind: str, target: str, opset: int) -> str:
    """What became of a class, in a line that begins with a word for it."""
    try:
        model, inputs = multimodal.made(name, kind)
    except decoders.LeftOutError as error:
        return f"left    {name}: {error}"
    try:
        with tempfile.TemporaryDirectory() as place:
            report = language_model(model, Path(place, "out"), target, opset, inputs=inputs, verify=True)
    except Exception as error:  # whatever happens is the result
        first = str(error).partition("\n")[0][:300]
        word = "WRONG" if "differ" in first else "refused" if getattr(error, "code", "") else "fails"
        return f"{word:7} {name}: {type(error).__name__}: {first}"
    graphs = ", ".join(file.removesuffix(".onnx") for file in report.files if file.endswith(".onnx"))
    reason = f"; {report.not_fused[0]}" if report.not_fused else ""
    return f"right   {name}: {graphs}; attention {report.attention}/{report.layers}, {report.difference:.1e}{reason}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=["onnx"])
    parser.add_argument("--opset", type=int, default=23)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--part", default="1/1", help="of the classes, as in 1/2")
    chosen = parser.parse_args()
    torchvision()
    warnings.simplefilter("ignore")
    place, parts = map(int, chosen.part.split("/"))
    for kind in chosen.kind:
        names = chosen.only or classes(kind)[place - 1 :: parts]
        for target in chosen.target:
            words: Counter[str] = Counter()
            for name in names:
                said = _in_a_fork(name, kind, target, chosen.opset)
                words[said.split()[0]] += 1
                print(said, flush=True)
            print(f"{kind}, {target}, opset {chosen.opset}: {dict(words)}", flush=True)


def _in_a_fork(name: str, kind: str, target: str, opset: int) -> str:
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writing, line_of(name, kind, target, opset).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode() or f"fails   {name}: the process ended"
    os.waitpid(process, 0)
    return said


if __name__ == "__main__":
    main()
