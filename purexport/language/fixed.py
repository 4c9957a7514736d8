"""A decoder as two graphs whose shapes are numbers, for chips that take no others: a prompt, and one token.

prefill.onnx: (input_ids [1, P], attention_mask [1, N], position_ids [1, P], past_length [1], past_key_values...)
step.onnx: the same for one token

Both are the step with buffers of N slots (`caches`), and their weights are in one file.  A prompt is taken in pieces of
P tokens; padding is in front of the first one, and the mask hides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

import proto_schema as ps
from purexport.language.caches import StaticDecoder
from purexport.language.checked import check_steps
from purexport.language.step import Decoder
from purexport.progress import Progress
from purexport.runtime.sessions import run, session_of

PREFILL, STEP = "prefill.onnx", "step.onnx"

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class FixedDecoder(StaticDecoder):
    """A step with buffers, for one row of `tokens` new tokens."""

    tokens: int = 1

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """No axis is dynamic."""
        return {}

    def example(self) -> tuple[Tensor, ...]:
        """Random inputs to capture the step with."""
        return self.args(1, self.tokens, 0)


def fixed_decoders(decoder: StaticDecoder, prompt: int) -> dict[str, FixedDecoder]:
    """The two graphs of a decoder with buffers, by their files.  Raises ValueError for a prompt that does not fit."""
    if not 1 < prompt <= decoder.length:
        raise ValueError(
            f"prompt_length={prompt} is not a number of tokens from 2 to {decoder.length}, which the cache has room for"
        )
    same = {field.name: getattr(decoder, field.name) for field in fields(decoder)}
    return {file: FixedDecoder(**same, tokens=tokens) for file, tokens in ((PREFILL, prompt), (STEP, 1))}


def write_pair(models: Mapping[str, ps.ModelProto], place: Path, told: Progress) -> list[str]:
    """Write the two files and the one with their weights; their names.  Raises as `proto_schema.share` does."""
    place.mkdir(parents=True, exist_ok=True)
    told.at("save")
    plan = ps.share(models, place, progress=told.bytes)
    return [*models, *([Path(plan.data).name] if plan.data else [])]


def check_pair(decoder: StaticDecoder, prompt: int, whole: Decoder, place: Path) -> float:
    """How far logits of the files are from torch's, for a prompt and the tokens behind it.

    Raises VerificationError where that is more than rounding; ImportError without onnxruntime.
    """
    sessions = {tokens: session_of(str(place / file)) for file, tokens in ((PREFILL, prompt), (STEP, 1))}

    def runs(feed: dict[str, Tensor]) -> Any:
        return run(sessions[feed["input_ids"].shape[1]], feed)

    return check_steps(replace(decoder, whole=whole.whole), runs, padded=False, prompt=prompt)
