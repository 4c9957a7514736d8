"""Calls of `export` that cannot be meant: arguments in another order, what is no model, args that `forward` lacks.

Each is told before anything runs, in one sentence with the call that works.  Nothing is refused that might run: the
signature of `forward` decides only where torch calls that very function with the user's arguments.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from purexport.errors import ExportError
from purexport.torch_patches.torch_jit import is_script

_LONGEST = 200  # characters of a signature with its defaults
_CALL = 'purexport.export(model, (x,), "model.onnx")'


def refuse_mixed_up(model: Any, args: Any, f: Any) -> None:
    """Raise TypeError for arguments in another order than (model, args, f), and for a model that is none."""
    if not _is_model(model) and _is_model(args):
        raise TypeError(f"the model comes first, then the example arguments: {_CALL}")
    if _is_path(args) and f is not None and not _is_target(f):
        raise TypeError(f"args is {args!r} and f is {_kind(f)}: the example comes second and the path third: {_CALL}")
    if f is None and isinstance(args, str) and args.endswith(".onnx"):
        raise TypeError(f"args is {args!r}, and an example of the model's arguments comes before the path: {_CALL}")
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise TypeError(f"the model is the class {model.__name__}; give an object of it, as in {model.__name__}()")
    if not _is_model(model):
        raise TypeError(f"the model is {_kind(model)}, which is not callable; {_instead_of(model)}")
    if f is not None and not _is_target(f):
        raise TypeError(
            f"f is {_kind(f)}, and it is a path or a binary file; several arguments of the model are one tuple: "
            'purexport.export(model, (x, y), "model.onnx")'
        )


def _is_model(item: Any) -> bool:
    return isinstance(item, torch.export.ExportedProgram) or callable(item)


def _is_path(item: Any) -> bool:
    return isinstance(item, (str, os.PathLike))


def _is_target(item: Any) -> bool:
    return isinstance(item, (str, bytes, os.PathLike)) or hasattr(item, "write")


def _kind(item: Any) -> str:
    """`a Tensor`, `a tuple of 2`, `the text 'm.pt'`."""
    if isinstance(item, (str, os.PathLike)):
        return f"the path {os.fspath(item)!r}"
    name = type(item).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    return f"{article} {name} of {len(item)}" if isinstance(item, (tuple, list, dict)) else f"{article} {name}"


def _instead_of(model: Any) -> str:
    if _is_path(model):
        return (
            "load it first: torch.jit.load for a script, torch.export.load for a .pt2, torch.load(..., "
            "weights_only=False) for a whole module"
        )
    if isinstance(model, Mapping) and any(isinstance(item, torch.Tensor) for item in model.values()):
        return (
            "make the model, and give the state_dict as its weights: purexport.export(Net(), (x,), weights=state_dict)"
        )
    return "give an nn.Module, a script, an ExportedProgram or a function"


def refuse_unfit(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise ExportError where `forward` cannot be called with these arguments."""
    forward = called(model)
    if forward is None:
        return
    # what a decorator says of the function inside is not what Python calls
    signature = inspect.signature(forward, follow_wrapped=False)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ExportError(
            f"args do not fit {_shown(model, signature)}: {error}{_hint(args, signature)}", code="args-do-not-fit"
        ) from None


def called(model: Any) -> Callable[..., Any] | None:
    """The function that gets the user's arguments as they are; None where something may change them before."""
    if isinstance(model, torch.export.ExportedProgram) or is_script(model):
        return None
    if not isinstance(model, nn.Module):
        found = model if inspect.isfunction(model) or inspect.ismethod(model) else None
    else:
        plain = type(model).__call__ is nn.Module.__call__ and not model._forward_pre_hooks
        found = model.forward if plain and inspect.ismethod(model.forward) else None
    return None if found is None or hasattr(found, "__signature__") else found


def _shown(model: Any, signature: inspect.Signature) -> str:
    name = (
        f"{type(model).__name__}.forward" if isinstance(model, nn.Module) else getattr(model, "__name__", "the model")
    )
    bare = [item.replace(annotation=inspect.Parameter.empty) for item in signature.parameters.values()]
    shown = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return f"{name}{shown}" if len(shown) <= _LONGEST else f"{name}({', '.join(signature.parameters)})"


def _hint(args: tuple[Any, ...], signature: inspect.Signature) -> str:
    """What was perhaps meant, and the call for it."""
    needed = [
        item.name
        for item in signature.parameters.values()
        if item.default is item.empty and item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    ]
    if len(args) == 1 and isinstance(args[0], list) and len(needed) > 1:
        return "; a list is one argument, and a tuple holds several: args=(" + ", ".join(needed) + ")"
    if len(args) > 1 and all(isinstance(item, int) and not isinstance(item, bool) for item in args):
        return f"; numbers are no example, and a tensor of these sizes is torch.randn{args}"
    if len(args) < len(needed):
        inner = ", ".join(needed) + ("," if len(needed) == 1 else "")
        return f"; give an example of each: purexport.export(model, ({inner}), ...)"
    return ""
