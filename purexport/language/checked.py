"""Does the file say what the model says?  A prompt, and greedily chosen tokens, in torch and in the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from purexport.errors import VerificationError
from purexport.language.last import last_shown
from purexport.language.parts import GraphPart
from purexport.language.step import Decoder, positions_in
from purexport.runtime.sessions import run
from purexport.runtime.verification import TOLERANCES

STEPS = 16
Run = Callable[[dict[str, torch.Tensor]], Sequence[torch.Tensor]]  # inputs by name -> outputs in order
PROMPT, ROWS, PADDED_STEPS = 9, 3, 4


class Written:
    """A file in onnxruntime, which is given tensors by name, as far as it has inputs for them.

    `held` are the sizes of axes that the file takes at one size only.
    """

    def __init__(self, part: GraphPart, session: Any) -> None:
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


class _Torch:
    """The logits of a model for a text that grows, by torch with a cache.

    Where a row's padding counts as nothing, each row is a text of its own, without padding.
    """

    def __init__(self, decoder: Decoder, rows: int) -> None:
        self._decoder = decoder
        self._apart = len(decoder.sides) == 1
        texts = rows if self._apart else 1
        self._masks = [torch.ones(1 if self._apart else rows, 0, dtype=torch.int64) for _ in range(texts)]
        self._states = [decoder.past(len(mask), 0) for mask in self._masks]

    def __call__(self, ids: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
        """[rows, tokens, vocabulary]: the logits of new tokens, where they are `shown`."""
        found = torch.zeros(*ids.shape, self._decoder.vocabulary)
        for text in range(len(self._masks)):
            rows = slice(text, text + 1) if self._apart else slice(None)
            kept = shown[text].bool() if self._apart else slice(None)
            new, mask = ids[rows, kept], torch.cat([self._masks[text], shown[rows, kept]], 1)
            positions = [positions_in(mask)[:, -new.shape[1] :].contiguous()] if self._decoder.takes_positions else []
            with torch.no_grad():
                logits, *state = self._decoder.whole(new, mask, *positions, *self._states[text])
            found[rows, kept] = logits.float()
            self._masks[text], self._states[text] = mask, state
        return found


def check_steps(decoder: Decoder, runs: Run, steps: int = STEPS, *, padded: bool = True, prompt: int = PROMPT) -> float:
    """The largest difference of a logit, relative to the largest logit of its step, over a prompt and `steps` tokens.

    The prompt has `prompt` tokens, as far as there is room.  Then, with `padded`, the same for a few steps of several
    rows of unequal length, with padding on either side.  The file goes on from the cache that it gave.  `runs` takes
    tensors by the names of inputs and returns the outputs.
    Raises VerificationError at the first step whose logits differ by more than rounding.
    """
    length = prompt if decoder.room is None else min(prompt, decoder.room)
    ids = torch.randint(0, decoder.vocabulary, (ROWS, length), generator=torch.Generator().manual_seed(1))
    worst = _checked_text(decoder, runs, ids[:1], torch.ones_like(ids[:1]), steps, "")
    for side in decoder.sides if padded and length > 1 else ():
        mask = torch.ones_like(ids)
        for row in range(1, ROWS):
            hidden = min(2 * row, length - 1)
            mask[row, slice(hidden) if side == "left" else slice(length - hidden, None)] = 0
        place = f", rows with padding on the {side}"
        worst = max(worst, _checked_text(decoder, runs, ids, mask, min(steps, PADDED_STEPS), place))
    return worst


def _checked_text(decoder: Decoder, runs: Run, ids: torch.Tensor, shown: torch.Tensor, steps: int, place: str) -> float:
    """The largest difference over a text that grows by the tokens which torch finds likeliest."""
    reference, state = _Torch(decoder, len(ids)), decoder.empty(len(ids))
    text, mask, worst = ids[:, :0], shown[:, :0], 0.0
    steps = steps if decoder.room is None else min(steps, decoder.room - ids.shape[1])
    for count in range(1 + steps):
        wanted = reference(ids, shown)
        text, mask = torch.cat([text, ids], 1), torch.cat([mask, shown], 1)
        logits, *state = runs(decoder.fed(ids if decoder.keeps else text, mask, state))
        last = wanted[torch.arange(len(ids)), last_shown(shown)][:, None]
        if decoder.step.last_logits:
            difference = compared(last, logits, count, bound_of(decoder.dtype), place)
        else:
            size = [len(ids), ids.shape[1] if decoder.keeps else text.shape[1], decoder.vocabulary]
            if list(logits.shape) != size:
                compared(torch.empty(size), logits, count, 0.0, place)
            seen = shown.bool()
            mine = logits[:, -ids.shape[1] :]
            difference = compared(wanted[seen], mine[seen], count, bound_of(decoder.dtype), place)
        worst = max(worst, difference)
        ids = last.argmax(-1)
        shown = torch.ones_like(ids)
    return worst


def bound_of(*dtypes: torch.dtype) -> float:
    """How much a logit may differ, relative to the largest one, where some of these types are computed in."""
    return max(TOLERANCES[str(dtype).removeprefix("torch.")][0] for dtype in dtypes)


def compared(wanted: torch.Tensor, found: torch.Tensor, step: int, bound: float, place: str = "") -> float:
    """The largest difference of a logit, relative to the largest logit of this step; step 0 is the prompt.

    Raises VerificationError for other shapes, and for a difference past the bound.
    """
    logits, mine = wanted.float(), found.float()
    where = (f"step {step}" if step else "the prompt") + place
    if mine.shape != logits.shape:
        raise VerificationError(f"{where}: the file gives logits {list(mine.shape)}, torch {list(logits.shape)}")
    difference = float((mine - logits).abs().max() / logits.abs().max().clamp(min=1e-6))
    if not difference <= bound:
        raise VerificationError(
            f"{where}: a logit of the file differs from torch's by {difference:.2g} of the largest logit"
        )
    return difference
