"""`--weights`, `--rename`, `--partial` and `--cast`: which checkpoint fills the model.

Its bytes are read when they are written.  Two kinds are loaded into memory instead, as torch does it: files of torch
before 1.6, which are no archives, and weights for scripted modules.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from purexport.cli.errors import UsageError


def parse_weights(model: Any, args: argparse.Namespace) -> Any:
    """The value of `weights` for `export`; None if there is none.

    Raises UsageError for weights that cannot be read or do not fit, OSError if there is no such file.
    """
    if not args.weights:
        if args.rename or args.partial or args.cast:
            raise UsageError("--rename, --partial and --cast go with --weights; name a checkpoint with --weights FILE")
        return None
    import torch

    from purexport.weights.checkpoint import Checkpoint

    if isinstance(model, torch.nn.Module) and any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        if args.rename or args.partial or args.cast or len(args.weights) > 1:
            raise UsageError("scripted modules take one --weights FILE, under their own names")
        _fill(model, args.weights[0])
        return None
    sources = [_loaded(path) if _is_pickle(path) else path for path in args.weights]
    return Checkpoint(sources, rename=_parse_rename(args.rename) or None, strict=not args.partial, cast=args.cast)


def _parse_rename(texts: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or old in found or not (old or new):
            raise UsageError(f"--rename {text}: write OLD=NEW once for each name, as in --rename model.=")
        found[old] = new if new or not old or old.endswith(".") else None
    return found


def _is_pickle(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(1) == b"\x80"
    except IsADirectoryError:
        return False


def _loaded(path: str) -> dict[str, Any]:
    """A state_dict, or the one in a dictionary that holds it as "state_dict"."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch.load raises many kinds, by format
        how = "write them with torch.save(model.state_dict(), FILE)"
        raise UsageError(f"--weights {path}: no weights that torch.load(weights_only=True) reads; {how}") from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        raise UsageError(f"--weights {path}: it holds a {type(state).__name__}, not a state_dict")
    return state


def _fill(model: Any, path: str) -> None:
    try:
        model.load_state_dict(_loaded(path))
    except (AttributeError, RuntimeError, TypeError) as error:
        raise UsageError(f"--weights {path}: does not fit the model: {error}") from error
