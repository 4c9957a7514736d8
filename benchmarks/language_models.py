"""How many language models `purexport.language_model` writes, whether they are right, and what became of attention.

    python benchmarks/language_models.py [--target onnx onnxruntime] [--opset 23] [--cache static] [--only NAME ...]
        [--part 1/2] [--write]

Every class of transformers' MODEL_FOR_CAUSAL_LM_MAPPING with a tiny random config (tests/models/decoders.py), whose
heads are 16 wide, as ONNX Runtime's kernels want.  The file is run on a prompt of three rows, one with a hidden token
in it and one with padding in front, and on 16 greedy steps.  Logits of tokens that are not hidden are compared with
torch.  One line is printed for each class, with the seconds of the processor that the export took, then a summary;
`--write` puts them into a column of docs/language-architectures.md, where the other columns stay.  Each class runs in a
process forked from this one, which has exported one before: imports do not count.  Needs Linux, transformers and
onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from purexport.fusion.targets import TARGETS  # noqa: E402
from purexport.language.checked import check_steps  # noqa: E402
from purexport.language.exported import LanguageModelReport  # noqa: E402
from purexport.language.model import language_model, program_of  # noqa: E402
from purexport.runtime.sessions import run, session_of  # noqa: E402
from tests.models import decoders  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

STEPS, ROOM = 16, 40
CACHES = {"dynamic": "dynamic", "static": "static", "none": None}
HEADS, WIDTH = 4, 16
FIRST = "LlamaForCausalLM"  # which is exported before all others, for what is imported on the way
PROMPT, TOKENS, POSITIONS = 9, 64, 128
OPTIONS: dict[str, Any] = {"max_new_tokens": TOKENS, "do_sample": False}
SEEDS = 30  # of prompts, until one has no near ties
CLEAR = 1e-3  # between the two largest logits, of the largest
BOUND = 1e-3  # of a logit; the largest logits are about 10
SLOW = 3.0  # seconds of an export
PAGE = ROOT / "docs" / "language-architectures.md"
COLUMNS = ("onnx 17", "onnx 21", "onnx 23", "onnxruntime 23", "onnxruntime-genai 23")
HEAD = """# Language models, class by class

`python benchmarks/language_models.py --write` writes this page; do not edit it. It has every class of transformers'
`MODEL_FOR_CAUSAL_LM_MAPPING` that runs with a tiny random config and a `DynamicCache`, in float32. The columns are
targets with their opset. A file is right if it has the same logits as torch for a padded prompt and 16 greedy steps.
A folder for onnxruntime-genai is right if it generates the same 64 tokens as `generate`. A cell also has the number
of layers whose attention is one operator, the number of all such layers (below opset 23 the standard has no such
operator), and the processor time of the export in seconds, without imports. [language-models.md](language-models.md)
explains the targets.

"""
_SMALL = {"mamba_d_state", "state_size", "ssm_state_size", "query_pre_attn_scalar"}


def widen_heads() -> None:
    """Make the heads of the tiny configs as wide as kernels want them."""
    for name, size in decoders.TINY.items():
        if size == HEADS * 8:
            decoders.TINY[name] = HEADS * WIDTH
        elif size == 8 and name not in _SMALL:
            decoders.TINY[name] = WIDTH
        elif size == 64:
            decoders.TINY[name] = POSITIONS


def worst_of(name: str, target: str, opset: int, cache: str) -> tuple[LanguageModelReport, float, float]:
    """The report, the largest difference of a logit, and seconds.  Raises LeftOutError for a class that is no case.

    With another cache than a dynamic one this is the check of `verify`, relative to the largest logit.
    """
    model = decoders.made(name).step.model
    begun = time.process_time()
    if cache != "dynamic":
        room = ROOM if cache == "static" else None
        program, decoder, report = program_of(model, target, opset, cache=CACHES[cache], max_length=room)
        spent = time.process_time() - begun
        runs = partial(run, session_of(program.model_proto.SerializeToString()))
        return report, check_steps(decoder, runs, STEPS), spent
    program, decoder, report = program_of(model, target, opset)
    spent = time.process_time() - begun
    session = session_of(program.model_proto.SerializeToString())
    args = list(decoder.args(3, 6, 0, seed=1))
    args[1][1, 0] = 0
    args[1][2, :2] = 0
    worst = 0.0
    for _ in range(1 + STEPS):
        length = args[0].shape[1]
        if decoder.takes_positions:
            args[2] = (args[1].cumsum(1) - 1).clamp(min=0)[:, -length:].contiguous()
        with torch.no_grad():
            wanted = decoder.step(*args)
        logits = run(session, dict(zip(decoder.input_names, args, strict=True)))[0]
        shown = args[1][:, -length:].bool()
        worst = max(worst, float((logits - wanted[0])[shown].abs().max()))
        mask = torch.cat([args[1], torch.ones(3, 1, dtype=torch.int64)], 1)
        token = wanted[0][:, -1:].argmax(-1)
        args = [token, mask, *([token] if decoder.takes_positions else []), *wanted[1:]]
    return report, worst, spent


def same_tokens(name: str, folder: str, opset: int) -> tuple[LanguageModelReport, str, float]:
    """The report, "" where onnxruntime-genai generates the 64 tokens of `generate`, or what it does, and seconds.

    A prompt is taken whose largest logits are clear, and which does not end before.
    """
    model = decoders.made(name).step.model
    begun = time.process_time()
    report = language_model(model, folder, "onnxruntime-genai", opset)
    spent = time.process_time() - begun
    model.generation_config.forced_eos_token_id = None  # what some say at the end of any text
    ids, wanted = clear_prompt(model)
    found = generated(folder, ids)
    if found == wanted:
        return report, "", spent
    if found == model.generate(ids, use_cache=False, **OPTIONS)[0].tolist():  # torch contradicts itself
        return report, "those of generate(use_cache=False); with its own cache it says others", spent
    count = next((place for place, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
    said = f"token {count} of {len(wanted)} differs" if count is not None else f"{len(found)} tokens"
    return report, said, spent


def clear_prompt(model: Any) -> tuple[torch.Tensor, list[int]]:
    """Tokens, and what `generate` makes of them."""
    for seed in range(SEEDS):
        ids = torch.randint(3, 90, (1, PROMPT), generator=torch.Generator().manual_seed(seed))
        result = model.generate(ids, output_logits=True, return_dict_in_generate=True, **OPTIONS)
        logits = torch.cat(result.logits)
        best = logits.topk(2).values
        if len(best) == TOKENS and (best[:, 0] - best[:, 1]).min() > CLEAR * logits.abs().max():
            return ids, result.sequences[0].tolist()
    raise decoders.LeftOutError(f"{SEEDS} prompts end early or have near ties")


def generated(folder: str, ids: torch.Tensor) -> list[int]:
    """The tokens of onnxruntime-genai."""
    runtime = importlib.import_module("onnxruntime_genai")
    loaded = runtime.Model(folder)
    parameters = runtime.GeneratorParams(loaded)
    parameters.set_search_options(max_length=PROMPT + TOKENS, do_sample=False)
    generator = runtime.Generator(loaded, parameters)
    generator.append_tokens(ids.numpy().astype("int32"))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


def line_of(name: str, target: str, opset: int, cache: str) -> str:
    """What became of a class, in a line that begins with a word for it."""
    try:
        if target == "onnxruntime-genai":
            with tempfile.TemporaryDirectory() as folder:
                report, difference, spent = same_tokens(name, folder, opset)
            word = "WRONG" if difference and not difference.startswith("those") else "right"
            said = f"{TOKENS} tokens" + (f", {difference}" if difference else "")
        else:
            report, worst, spent = worst_of(name, target, opset, cache)
            word, said = "right" if worst <= BOUND else "WRONG", f"{worst:.1e}"
    except decoders.LeftOutError as error:
        return f"left    {name}: {error}"
    except Exception as error:  # whatever happens is the result
        first = str(error).partition("\n")[0]
        word = "refused" if getattr(error, "code", "") else "fails"
        return f"{word:7} {name}: {type(error).__name__}: {first}"
    reason = f"; {report.not_fused[0]}" if report.not_fused else ""
    return f"{word:7} {name}: {report.attention} of {report.layers} layers, {spent:.2f} s, {said}{reason}"


def write(column: str, lines: Iterable[str]) -> None:
    """Put what the lines say into a column of the page; a class that is left out has no row."""
    rows: dict[str, list[str]] = {}
    for line in PAGE.read_text().splitlines() if PAGE.exists() else ():
        name, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
        if line.startswith("| `") and len(cells) == len(COLUMNS):
            rows[name] = cells
    for line in lines:
        word, name, rest = re.split(r":? +", line, maxsplit=2)
        fused = re.match(r"(\d+) of (\d+) layers, ([\d.]+) s", rest)
        said = f"right, {fused[1]}/{fused[2]}, {float(fused[3]):.1f} s" if fused else ""
        cell = {"right": said, "WRONG": "**wrong**", "left": "-"}.get(word, word)
        rows.setdefault(name, ["-"] * len(COLUMNS))[COLUMNS.index(column)] = cell
    rows = {name: cells for name, cells in rows.items() if set(cells) != {"-"}}
    counts = []
    for column_at in range(len(COLUMNS)):
        cells = [row[column_at] for row in rows.values() if row[column_at].startswith("right")]
        slow = sum(float(cell.rpartition(", ")[2].removesuffix(" s")) > SLOW for cell in cells if cell.endswith(" s"))
        counts.append(f"{len(cells)} right, {slow} above {SLOW:.0f} s")
    table = [("class", *COLUMNS), ("---",) * (1 + len(COLUMNS)), (f"{len(rows)} classes", *counts)]
    table += [(f"`{name}`", *rows[name]) for name in sorted(rows)]
    PAGE.write_text(HEAD + "".join(f"| {' | '.join(row)} |\n" for row in table))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=["onnx", "onnxruntime"])
    parser.add_argument("--opset", type=int, default=23)
    parser.add_argument("--cache", choices=CACHES, default="dynamic", help="of the targets onnx and onnxruntime")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--part", default="1/1", help="of the classes, as in 1/2")
    chosen = parser.parse_args()
    torchvision()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    widen_heads()
    place, parts = map(int, chosen.part.split("/"))
    names = chosen.only or decoders.classes()[place - 1 :: parts]
    program_of(decoders.made(FIRST).step.model)
    for target in chosen.target:
        words: Counter[str] = Counter()
        lines: list[str] = []
        for name in names:
            reading, writing = os.pipe()
            process = os.fork()
            if not process:
                os.write(writing, line_of(name, target, chosen.opset, chosen.cache).encode())
                os._exit(0)
            os.close(writing)
            with open(reading, "rb") as pipe:
                said = pipe.read().decode() or f"fails   {name}: the process ended"
            os.waitpid(process, 0)
            words[said.split()[0]] += 1
            lines.append(said)
            print(said, flush=True)
        print(f"{target}, opset {chosen.opset}: {dict(words)}")
        if chosen.write:
            write(f"{target} {chosen.opset}", lines)


if __name__ == "__main__":
    main()
