"""The inputs and outputs of a model of transformers that generates no text: their names, axes, and examples.

What a model takes is said by the signature of its `forward`; the rows below say what each name stands for.  The names
of axes are those of optimum's exporter.  Outputs are those that the task has, in the model's order of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from purexport.errors import ExportError
from purexport.language.examples import layouts_of, varying
from purexport.language.library import computed_anew
from purexport.language.parts import BATCH, GraphPart, Port
from purexport.language.step import called
from purexport.language.tasks import CHOICES, FEATURES, Task, is_decoder

FILE = "model.onnx"
TEXT, LENGTH, CHOICE, PATCHES = "text_batch_size", "sequence_length", "num_choices", "num_patches"
ENCODED, WRITTEN = "encoder_sequence_length", "decoder_sequence_length"
# sizes of the example, and those of the second check
SIZES = {BATCH: 2, TEXT: 3, LENGTH: 11, ENCODED: 13, WRITTEN: 5, CHOICE: 3, PATCHES: 16, "height": 224, "width": 224}
OTHERS = {BATCH: 1, TEXT: 2, LENGTH: 17, ENCODED: 9, WRITTEN: 8, CHOICE: 4, PATCHES: 26}
_MASK, _TYPES, _BOXES = "attention_mask", "token_type_ids", "bbox"
_CHARACTERS = 128  # tokens of models without a vocabulary, which read characters by their numbers
_POSITIONS = 8  # of examples; all models have them
_GRIDS = "spatial_shapes"
_MEDIA = ("pixel_values", "input_values", "input_features")
# types of models whose processors do not give an input that the model takes; optimum leaves it out too
_ABSENT = {
    _TYPES: (
        *("big_bird", "camembert", "chinese_clip", "data2vec-text", "ibert", "layoutlmv3", "lilt", "roberta"),
        *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    ),
    _MASK: ("siglip", "siglip2"),
}
# results of models that are not asked for
_INNER = ("hidden_states", "attentions", "cache", "past_key_values", "loss")


@dataclass(frozen=True)
class Boxes(Port):
    """An input of rectangles, [..., 4]: left, top, right, bottom, whole numbers below `below`."""

    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        """Random rectangles."""
        corner, size = super().example(sizes, generator), super().example(sizes, generator)
        near = corner[..., :2] // 2
        return torch.cat((near, near + size[..., :2] // 2), -1)


@dataclass(frozen=True)
class Hiding(Port):
    """A mask of tokens that hides the end of the last row."""

    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        """Ones, and zeros for the padding."""
        found = torch.ones([sizes[size] if isinstance(size, str) else size for size in self.shape], dtype=self.dtype)
        if found.reshape(-1, found.shape[-1]).shape[0] > 1:
            found.reshape(-1, found.shape[-1])[-1, -(found.shape[-1] // 3) :] = 0
        return found


@dataclass(frozen=True)
class EndedTokens(Port):
    """Tokens of texts that end with the token `end`, which is nowhere else in them."""

    end: int = 0

    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        """Random tokens, and the last one."""
        found = super().example(sizes, generator)
        found[found == self.end] = (self.end + 1) % self.below
        found[..., -1] = self.end
        return found


@dataclass(frozen=True)
class Grids(Port):
    """The height and width of pictures in patches, of at most as many patches as the axis `within` has."""

    within: str = ""

    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        """Squares, as large as fits."""
        return torch.full((sizes[BATCH], 2), math.isqrt(sizes[self.within]), dtype=self.dtype)


class TaskModule(nn.Module):
    """A model with tensors in and out."""

    def __init__(
        self, model: nn.Module, names: Sequence[str], outputs: Sequence[str], fixed: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model = model
        self._names, self._outputs, self._fixed = list(names), list(outputs), dict(fixed)

    def over(self, model: nn.Module) -> TaskModule:
        """The same of a model with other weights."""
        return TaskModule(model, self._names, self._outputs, self._fixed)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs in order."""
        with computed_anew(self.model):
            result = self.model(**dict(zip(self._names, tensors, strict=True)), **self._fixed)
        return tuple(result[name] for name in self._outputs)


def part_of(
    model: Any, task: Task, named: Sequence[str] | None = None, inputs: Mapping[str, Tensor] | None = None
) -> GraphPart:
    """The graph of a model for a task.

    `named` are the inputs that the tokenizer of a folder gives, where it says; `inputs` is what a processor made of an
    example.  Raises ExportError for a model that runs on nothing that its config says, or gives nothing for the task.
    """
    taken = inspect.signature(model.forward).parameters
    fixed = {"return_dict": True} if "return_dict" in taken or _takes_any(taken) else {}
    fixed |= {"use_cache": False} if "use_cache" in taken else {}
    results: list[Mapping[str, Any]] = []
    errors: list[Exception] = []

    def runs(tensors: Mapping[str, Tensor]) -> bool:
        try:
            with torch.no_grad():
                results.append(called(model, dict(tensors), lambda **given: model(**given, **fixed)))
        except Exception as error:  # whatever a model says of inputs that are not its own
            errors.append(error)
            return False
        return True

    for ports, sizes in _candidates(model, task, taken, named, inputs):
        if runs(_tensors(ports, sizes)):
            break
    else:
        reason = f": {type(errors[0]).__name__}: {errors[0]}".partition("\n")[0] if errors else ""
        raise ExportError(
            f"no inputs were found that {type(model).__name__} runs on; give what its processor makes, as "
            f"inputs={{...}}{reason}",
            code="no-task",
        )
    outputs = _outputs(results[-1], task, model)
    ports = varying(ports, sizes, runs)
    call = TaskModule(model, [port.name for port in ports], outputs, fixed).eval()
    return GraphPart(FILE, call, ports, outputs, sizes)


def _takes_any(taken: Mapping[str, inspect.Parameter]) -> bool:
    return any(item.kind is item.VAR_KEYWORD for item in taken.values())


def _tensors(ports: Sequence[Port], sizes: Mapping[str, int]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {port.name: port.example(sizes, generator) for port in ports}


def _candidates(
    model: Any,
    task: Task,
    taken: Mapping[str, Any],
    named: Sequence[str] | None,
    given: Mapping[str, Tensor] | None,
) -> Iterator[tuple[list[Port], dict[str, int]]]:
    """What a model may take, the likeliest first, in the order of its signature; and the sizes of examples."""
    dtype = next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32)
    if given is not None:
        yield _of_processor(given, dtype, taken)
        return
    text = _of_text(model, task, taken, named) if "input_ids" in taken else []
    media = next((name for name in _MEDIA if name in taken), None)
    if media is None or (text and str(model.main_input_name) == "input_ids" and not _sees(model)):
        media = None if text else str(model.main_input_name)
    if media is None:
        yield text, SIZES | {LENGTH: _length(model, SIZES[LENGTH])}
        return
    layouts = _of_patches(model, dtype) if _GRIDS in taken else layouts_of(model, media, dtype, LENGTH)
    for ports, sizes in layouts:
        together = [*text, *(replace(port, name=media) if len(ports) == 1 else port for port in ports)]
        yield sorted(together, key=lambda port: list(taken).index(port.name)), SIZES | sizes


def _of_patches(model: Any, dtype: torch.dtype) -> Iterator[tuple[list[Port], dict[str, int]]]:
    """Pictures of any shape that the processor has cut into patches, as of SigLIP 2."""
    config = getattr(model.config, "vision_config", model.config)
    numbers = config.num_channels * config.patch_size**2
    pixels = Port("pixel_values", (BATCH, PATCHES, numbers), dtype)
    mask = Hiding("pixel_attention_mask", (BATCH, PATCHES), torch.int64)
    yield [pixels, mask, Grids(_GRIDS, (BATCH, 2), torch.int64, within=PATCHES)], {}


def _sees(model: Any) -> bool:
    """Whether a model of text takes pictures or sounds beside it."""
    config = model.config
    return hasattr(config, "vision_config") or hasattr(config, "audio_config") or hasattr(config, "patch_size")


def _length(model: Any, wanted: int) -> int:
    places = getattr(model.config, "max_position_embeddings", None)
    return min(wanted, places) if isinstance(places, int) and places > 0 else wanted


def _of_text(model: Any, task: Task, taken: Mapping[str, Any], named: Sequence[str] | None) -> list[Port]:
    config = model.config
    own: Any = getattr(config, "vocab_size", None) or getattr(config.get_text_config(), "vocab_size", None)
    words = int(own or _CHARACTERS)
    types = getattr(config.get_text_config(), "type_vocab_size", None)
    rows: tuple[int | str, ...] = (BATCH, CHOICE) if task.name == CHOICES else (BATCH,)
    # with pictures of any number beside it, a text has rows of its own
    rows = (TEXT,) if hasattr(config, "vision_config") else rows
    tokens = (*rows, LENGTH)
    known = {
        "input_ids": Port("input_ids", tokens, torch.int64, words),
        _MASK: Hiding(_MASK, tokens, torch.int64),
        _TYPES: Port(_TYPES, tokens, torch.int64, int(types or 2)),
        _BOXES: Boxes(_BOXES, (*tokens, 4), torch.int64, int(getattr(config, "max_2d_position_embeddings", 1024))),
        "global_attention_mask": Port("global_attention_mask", tokens, torch.int64, 2),
        "position_ids": Port("position_ids", tokens, torch.int64, _POSITIONS),
        "decoder_input_ids": Port("decoder_input_ids", (BATCH, WRITTEN), torch.int64, words),
    }
    end = getattr(config, "eos_token_id", None)
    if getattr(config, "is_encoder_decoder", False) and isinstance(end, int):  # its heads look for that token
        known["input_ids"] = EndedTokens("input_ids", tokens, torch.int64, words, end=end)
    kind = getattr(config, "model_type", "")
    without = {name for name, kinds in _ABSENT.items() if kind in kinds}
    if types in (0, 1) or (named is not None and _TYPES not in named):
        without.add(_TYPES)
    if is_decoder(config):
        without.add(_TYPES)
    if not (is_decoder(config) and task.name == FEATURES):
        without.add("position_ids")
    if not getattr(config, "is_encoder_decoder", False) or task.name != FEATURES:
        without.add("decoder_input_ids")
    elif "decoder_input_ids" in taken:
        tokens = (BATCH, ENCODED)
        known |= {name: replace(known[name], shape=tokens) for name in ("input_ids", _MASK)}
    return [known[name] for name in taken if name in known and name not in without]


def _of_processor(
    given: Mapping[str, Tensor], dtype: torch.dtype, taken: Mapping[str, Any]
) -> tuple[list[Port], dict[str, int]]:
    ports, sizes = [], dict(SIZES)
    for name in (name for name in taken if name in given):
        item = given[name]
        shape: list[int | str] = [BATCH, *item.shape[1:]]
        if name == "pixel_values" and item.dim() == 4:
            shape[2:] = ["height", "width"]
            sizes |= {"height": item.shape[2], "width": item.shape[3]}
        elif item.dim() > 1:
            shape[1] = LENGTH
            sizes[LENGTH] = item.shape[1]
        kind = dtype if item.is_floating_point() else item.dtype
        below = 0 if "mask" in name else int(item.max()) + 1 if not item.is_floating_point() else 1
        ports.append(Port(name, tuple(shape), kind, below))
    return ports, sizes


def _outputs(result: Any, task: Task, model: Any) -> list[str]:
    """The names of a result that the file has, in the order of the task; all tensors, where the task has none."""
    found = {name: item for name, item in result.items() if isinstance(item, Tensor)}
    names = [name for name in task.outputs if name in found]
    part_of_another: Any = getattr(model.config, "base_config_key", None)  # as the config of a tower of CLIP
    if task.name == FEATURES and part_of_another:
        names += [name for name in ("pooler_output",) if name in found]
    names = names or [name for name in found if name not in _INNER and not name.endswith(_INNER)]
    if not names:
        raise ExportError(
            f"{type(model).__name__} gives {', '.join(result) or 'nothing'}, and no tensor among these; the file would "
            "have no output",
            code="no-task",
        )
    return names
