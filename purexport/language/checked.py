"""Does the file say what the model says?  A prompt, and greedily chosen tokens, in torch and in the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from purexport.errors import VerificationError
from purexport.language.step import Decoder
from purexport.runtime.verification import TOLERANCES

STEPS = 16
PROMPT = 9


def check_steps(
    decoder: Decoder, run: Callable[[dict[str, torch.Tensor]], Sequence[torch.Tensor]], steps: int = STEPS
) -> float:
    """The largest difference of a logit, relative to the largest logit of its step, over a prompt and `steps` tokens.

    `run` takes tensors by the names of inputs and returns the outputs.
    Raises VerificationError at the first step whose logits differ by more than rounding.
    """
    args = decoder.args(1, PROMPT, 0, seed=1)
    rtol, _ = TOLERANCES[str(decoder.dtype).removeprefix("torch.")]
    worst = 0.0
    for count in range(1 + steps):
        with torch.no_grad():
            wanted = decoder.step(*args)
        found = run(dict(zip(decoder.input_names, args, strict=True)))
        logits, mine = wanted[0].float(), found[0].float()
        where = f"step {count}" if count else "the prompt"
        if mine.shape != logits.shape:
            raise VerificationError(f"{where}: the file gives logits {list(mine.shape)}, torch {list(logits.shape)}")
        difference = float((mine - logits).abs().max() / logits.abs().max().clamp(min=1e-6))
        if not difference <= rtol:
            raise VerificationError(
                f"{where}: a logit of the file differs from torch's by {difference:.2g} of the largest logit"
            )
        worst = max(worst, difference)
        token = wanted[0][:, -1:].argmax(-1)
        masks = decoder.masks(1, 1, PROMPT + count)
        args = (token, *masks, *wanted[1:])
    return worst
