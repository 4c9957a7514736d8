"""Does the file say what the model says?  A prompt, and greedily chosen tokens, in torch and in the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from purexport.errors import VerificationError
from purexport.language.parts import Part
from purexport.language.step import Decoder
from purexport.runtime.sessions import run
from purexport.runtime.verification import TOLERANCES

STEPS = 16
Run = Callable[[dict[str, torch.Tensor]], Sequence[torch.Tensor]]  # inputs by name -> outputs in order
PROMPT = 9


class Written:
    """A file in onnxruntime, which is given tensors by name, as far as it has inputs for them.

    `held` are the sizes of axes that the file takes at one size only.
    """

    def __init__(self, part: Part, session: Any) -> None:
        self._part = part
        self._session = session
        inputs = {item.name: item.shape for item in session.get_inputs()}
        self._taken = set(inputs)
        self.held: dict[str, int] = {}
        for port in part.inputs:
            for wanted, found in zip(port.shape, inputs.get(port.name, ()), strict=False):
                if isinstance(wanted, str) and isinstance(found, int):
                    self.held[wanted] = found

    def __call__(self, feed: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The outputs by name."""
        found = run(self._session, {name: item for name, item in feed.items() if name in self._taken})
        return dict(zip(self._part.output_names, found, strict=True))


def check_steps(decoder: Decoder, runs: Run, steps: int = STEPS) -> float:
    """The largest difference of a logit, relative to the largest logit of its step, over a prompt and `steps` tokens.

    `runs` takes tensors by the names of inputs and returns the outputs.
    Raises VerificationError at the first step whose logits differ by more than rounding.
    """
    args = decoder.args(1, PROMPT, 0, seed=1)
    rtol = bound_of(decoder.dtype)
    worst = 0.0
    for count in range(1 + steps):
        with torch.no_grad():
            wanted = decoder.step(*args)
        found = runs(dict(zip(decoder.input_names, args, strict=True)))
        difference = compared(wanted[0], found[0], count, rtol)
        worst = max(worst, difference)
        token = wanted[0][:, -1:].argmax(-1)
        masks = decoder.masks(1, 1, PROMPT + count)
        args = (token, *masks, *wanted[1:])
    return worst


def bound_of(*dtypes: torch.dtype) -> float:
    """How much a logit may differ, relative to the largest one, where some of these types are computed in."""
    return max(TOLERANCES[str(dtype).removeprefix("torch.")][0] for dtype in dtypes)


def compared(wanted: torch.Tensor, found: torch.Tensor, step: int, bound: float) -> float:
    """The largest difference of a logit, relative to the largest logit of this step; step 0 is the prompt.

    Raises VerificationError for other shapes, and for a difference past the bound.
    """
    logits, mine = wanted.float(), found.float()
    where = f"step {step}" if step else "the prompt"
    if mine.shape != logits.shape:
        raise VerificationError(f"{where}: the file gives logits {list(mine.shape)}, torch {list(logits.shape)}")
    difference = float((mine - logits).abs().max() / logits.abs().max().clamp(min=1e-6))
    if not difference <= bound:
        raise VerificationError(
            f"{where}: a logit of the file differs from torch's by {difference:.2g} of the largest logit"
        )
    return difference
