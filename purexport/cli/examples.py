"""What to give as --input: from the signature of `forward`, with an example that was seen to run.

Sizes are guessed from the layers, first to last, and tried on torch's meta device, where nothing is computed.  A guess
that does not run is not shown as one that does.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from purexport.cli.errors import UsageError
from purexport.cli.specs import InputSpec, parse_input

_MOST_TRIED = 12


def refuse_missing(model: Any, source: str, specs: Sequence[InputSpec], given: Collection[str]) -> None:
    """Raise UsageError where `forward` needs more arguments than --input and --kwargs give."""
    signature = _signature(model)
    if signature is None:
        return
    needed = [item.name for item in signature.parameters.values() if _is_needed(item)]
    missing = [name for name in needed[len(specs) :] if name not in given]
    if not missing:
        return
    wanted = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    takes = f"{source} takes ({', '.join(map(_plain, signature.parameters.values()))}), and {wanted}"
    found = next(_running(model, [name for name in needed if name not in given]), None) if not specs else None
    if found is not None:
        options = " ".join(f"--input {text}" for text in found)
        raise UsageError(f"{takes}; this would run: purexport export {source} {options}")
    raise UsageError(f"{takes}; give its dtype and sizes, as in --input {missing[0]}=float32[1,3,224,224]")


def _signature(model: Any) -> inspect.Signature | None:
    from purexport.frontends.core.calls import called

    function = called(model)
    return None if function is None else inspect.signature(function, follow_wrapped=False)


def _is_needed(item: inspect.Parameter) -> bool:
    return item.default is item.empty and item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)


def _plain(item: inspect.Parameter) -> str:
    return str(item.replace(annotation=inspect.Parameter.empty))


def _running(model: Any, names: Sequence[str]) -> Iterator[list[str]]:
    """The texts of --input with which the model runs, a list for each guess."""
    import torch

    state: dict[str, Any] = {}
    if isinstance(model, torch.nn.Module):
        model.eval()  # nothing else becomes of it: the command ends with an error
        state = {name: item.to("meta") for name, item in (*model.named_parameters(), *model.named_buffers())}
    for guess in list(dict.fromkeys(_guesses(model)))[:_MOST_TRIED]:
        texts = [f"{name}={_of_mask(guess) if 'mask' in name else guess}" for name in names]
        args = tuple(_on_meta(parse_input(text)) for text in texts)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            try:
                torch.func.functional_call(model, state, args) if state else model(*args)
            except Exception:
                continue  # whatever the user's code raises for sizes that it does not take
        yield texts


def _on_meta(spec: InputSpec) -> Any:
    import torch

    return torch.empty(spec.sizes, dtype=getattr(torch, spec.dtype), device="meta")


def _of_mask(guess: str) -> str:
    """A mask beside tokens: as many ones as there are tokens; beside anything else the same as that."""
    return f"{guess.partition(':')[0]}:1..1" if guess.startswith("int64") else guess


def _guesses(model: Any) -> Iterator[str]:
    """Dtypes and sizes, likely ones first."""
    import torch
    from torch import nn

    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    for module in modules:
        match module:
            case nn.Embedding():
                yield f"int64[1,16]:0..{min(module.num_embeddings, 1000) - 1}"
            case nn.Conv1d():
                yield f"float32[1,{module.in_channels},64]"
            case nn.Conv2d():
                yield f"float32[1,{module.in_channels},224,224]"
                yield f"float32[1,{module.in_channels},32,32]"
            case nn.Conv3d():
                yield f"float32[1,{module.in_channels},16,64,64]"
            case nn.RNNBase():
                yield f"float32[1,16,{module.input_size}]"
            case nn.MultiheadAttention():
                yield f"float32[1,16,{module.embed_dim}]"
            case nn.Linear():
                yield f"float32[1,{module.in_features}]"
                yield f"float32[1,16,{module.in_features}]"
            case nn.BatchNorm2d():
                yield f"float32[1,{module.num_features},32,32]"
    yield from ("float32[1,3,224,224]", "float32[1,16]", "float32[2]", "int64[1,16]")
