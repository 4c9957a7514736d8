"""How text is generated: the settings of `generate`, and the choice of a token.

Settings come from generation_config.json, and from the call.  The likeliest token is chosen with numpy alone.  What
changes the scores before that, and sampling, is done by transformers' own processors, where transformers is installed.
A setting that nothing here follows is an error, so that it is not silently ignored.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from purexport.errors import ExportError
from purexport.errors.requirements import command_for
from purexport.generation.sessions import Array
from purexport.runtime.packages import installed

Chooser = Callable[[Array, Array], Array]
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
_DEFAULT_LENGTH = 20  # of new tokens, as in transformers
# settings that change greedy scores, with the values that change nothing
_SCORES: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": (),
    "sequence_bias": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "exponential_decay_length_penalty": (),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
    "watermarking_config": (),
}
# settings of sampling, which a greedy choice does not look at
_SAMPLING = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "top_h",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
)
# other ways to generate, and more results, with the values that ask for none
_OTHERS: dict[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "diversity_penalty": (0.0,),
    "penalty_alpha": (0.0,),
    "guidance_scale": (1.0, 1),
    "constraints": (),
    "force_words_ids": (),
    "prompt_lookup_num_tokens": (0,),
    "dola_layers": (),
    "max_time": (),
    "stop_strings": (),
    "token_healing": (False,),
    "return_dict_in_generate": (False,),
    "output_scores": (False,),
    "output_logits": (False,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
}
_LENGTHS = ("max_length", "max_new_tokens")


def settings_from(generation: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a folder: generation_config.json, and where there is none the tokens that config.json names."""
    if generation:
        return dict(generation)
    nested = [config, *(item for key in ("decoder", "text_config") if isinstance(item := config.get(key), dict))]
    found = {}
    for name in _TOKENS:
        values = [item[name] for item in nested if item.get(name) is not None]
        if values:
            found[name] = values[0]
    return found


def merged(settings: Mapping[str, Any], generation_config: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a call.  Raises ValueError for names that no setting has, and for ways that are not followed."""
    given = generation_config
    if given is not None and not isinstance(given, Mapping):
        given = given.to_diff_dict()
    known = {*_TOKENS, *_SCORES, *_SAMPLING, *_OTHERS, *_LENGTHS, "use_cache"}
    for name in options:
        if name not in known:
            raise ValueError(
                f"generate takes neither a setting nor an input {name!r}; the settings are those of transformers' "
                "GenerationConfig, without beam search and assistants"
            )
    found = {**settings, **(given or {}), **options}
    for name, neutral in _OTHERS.items():
        if not _is_neutral(found.get(name), neutral):
            other = repr(neutral[0]) if neutral else "None"
            raise ValueError(
                f"{name}={found[name]!r} is neither greedy search nor sampling of one text, which is what generate "
                f"does here; pass {name}={other}"
            )
    return found


def _is_neutral(value: Any, neutral: Sequence[Any]) -> bool:
    return value is None or value in neutral


def last_length(settings: Mapping[str, Any], prompt: int, positions: Any) -> int:
    """How long a text may get, with the prompt.  `positions` is max_position_embeddings of the config."""
    if settings.get("max_new_tokens") is not None:
        return prompt + int(settings["max_new_tokens"])
    if settings.get("max_length") is not None:
        return int(settings["max_length"])
    most = prompt + _DEFAULT_LENGTH
    return min(most, positions) if isinstance(positions, int) else most


def ends_of(settings: Mapping[str, Any]) -> list[int]:
    """The tokens that end a text."""
    ends = settings.get("eos_token_id")
    return [] if ends is None else [int(end) for end in (ends if isinstance(ends, (list, tuple)) else [ends])]


def chooser_of(
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    prompt: Array,
    mask: Array | None,
    encoder_ids: Array | None,
    longest: int,
    processors: Any,
) -> Chooser:
    """What chooses the next token of each row, of the text so far and the logits.

    Raises ExportError where that takes transformers, and it is not installed.
    """
    sampling = bool(settings.get("do_sample"))
    changed = [name for name, neutral in _SCORES.items() if not _is_neutral(settings.get(name), neutral)]
    if not sampling and not changed and not processors:
        return _likeliest
    if not (installed("transformers") and installed("torch")):
        what = "do_sample=True" if sampling else f"{changed[0]}={settings[changed[0]]!r}" if changed else "a processor"
        instead = f"do_sample=False, {changed[0]}=None" if sampling and changed else "do_sample=False"
        instead = instead if sampling else f"{changed[0]}=None" if changed else "none"
        raise ExportError(
            f"{what} is followed by processors of transformers, which is not installed: "
            f"{command_for('transformers', 'torch')}; or pass {instead}",
            code="needs-transformers",
        )
    return _processed(settings, config, prompt, mask, encoder_ids, longest, processors, sampling)


def _likeliest(_: Array, logits: Array) -> Array:
    return np.asarray(logits.astype(np.float32).argmax(-1))


def _processed(
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    prompt: Array,
    mask: Array | None,
    encoder_ids: Array | None,
    longest: int,
    processors: Any,
    sampling: bool,
) -> Chooser:
    """A choice by transformers' processors, on torch's tensors; samples are torch's, from its global generator."""
    torch: Any = importlib.import_module("torch")
    generation: Any = importlib.import_module("transformers.generation")

    class Shell(generation.GenerationMixin):  # type: ignore[misc]
        """What the methods that make processors ask a model for."""

        def __init__(self) -> None:
            words = SimpleNamespace(vocab_size=config.get("vocab_size"))
            encodes = bool(config.get("is_encoder_decoder"))
            self.config = SimpleNamespace(is_encoder_decoder=encodes, get_text_config=lambda **_: words)

    asked = generation.GenerationConfig()
    known = {name: value for name, value in settings.items() if hasattr(asked, name) and name != "transformers_version"}
    asked.update(**known)
    if hasattr(asked, "_get_default_generation_params"):  # of releases whose settings are None until they are used
        asked.update(**asked._get_default_generation_params(), defaults_only=True)
    asked.max_length, asked.do_sample = longest, sampling
    shell = Shell()
    shell._prepare_special_tokens(asked, True, device="cpu")
    name = "decoder_attention_mask" if config.get("is_encoder_decoder") else "attention_mask"
    masks = {} if mask is None else {name: torch.from_numpy(mask)}
    changes = shell._get_logits_processor(
        asked,
        input_ids_seq_length=prompt.shape[1],
        encoder_input_ids=None if encoder_ids is None else torch.from_numpy(encoder_ids),
        logits_processor=generation.LogitsProcessorList(processors or []),
        device="cpu",
        model_kwargs=masks,
    )

    def choose(text: Array, logits: Array) -> Array:
        scores = changes(torch.from_numpy(text), torch.from_numpy(logits.astype(np.float32)))
        if not sampling:
            return np.asarray(scores.argmax(-1).numpy())
        chances = torch.nn.functional.softmax(scores, dim=-1)
        return np.asarray(torch.multinomial(chances, num_samples=1)[:, 0].numpy())

    return choose
