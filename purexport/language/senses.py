"""What a language model reads beside text: pictures, or sound. Its features stand among the embeddings of the text.

The structure is that of transformers: a method of the model gives the features, and the config names the token whose
places they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from purexport.language.examples import pictures_of, sounds_of
from purexport.language.parts import Port


@dataclass(frozen=True)
class Sense:
    """One kind: the method of models that gives the features, the config's names of the token, the name of the file,
    those of the features and of their axis, and what a model may take as an example.
    """

    noun: str
    method: str
    tokens: tuple[str, ...]
    file: str
    features: str
    axis: str
    ports: Callable[[Any, Mapping[str, Tensor] | None], Iterator[list[Port]]]

    def token(self, model: Any) -> int | None:
        """The token that stands for a part of it; None where the config has none."""
        found = (getattr(model.config, name, None) for name in self.tokens)
        return next((item for item in found if isinstance(item, int)), None)

    def seen(self, model: Any, given: Mapping[str, Tensor]) -> Any:
        """What the model's own method gives."""
        return getattr(model, self.method)(**given, return_dict=True)


PICTURES = Sense(
    "pictures",
    "get_image_features",
    ("image_token_id", "image_token_index"),
    "vision.onnx",
    "image_features",
    "image_tokens",
    pictures_of,
)
SOUNDS = Sense(
    "sound",
    "get_audio_features",
    ("audio_token_id", "audio_token_index"),
    "audio.onnx",
    "audio_features",
    "audio_tokens",
    sounds_of,
)


def sense_of(model: Any) -> Sense | None:
    """What a model of transformers reads beside text; pictures, where it reads both. None for a model of text."""
    for sense in (PICTURES, SOUNDS):
        if hasattr(model, sense.method) and sense.token(model) is not None:
            return sense
    return None
