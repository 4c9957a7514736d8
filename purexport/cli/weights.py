"""`--weights`, `--rename`, `--partial` and `--cast`: which checkpoint fills the model.

Its bytes are read when they are written.  Scripted modules hold their weights themselves: theirs are loaded into them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from purexport.cli.errors import UsageError


def add_weights(parser: argparse.ArgumentParser) -> None:
    """The options that name a checkpoint, and how its names and types become the model's."""
    add = parser.add_argument
    several = "a checkpoint for the model; if several have a tensor of the same name, the last one is used"
    add("--weights", action="append", metavar="FILE", help=several)
    renamed = "rename tensors of the checkpoint to names of the model"
    add("--rename", action="append", default=[], metavar="OLD=NEW", help=renamed)
    add("--partial", action="store_true", help="allow missing and additional tensors in the checkpoint")
    add("--cast", action="store_true", help="cast floating-point weights to the types of the model")


def fill_model(model: Any, args: argparse.Namespace) -> None:
    """Load the checkpoint that the options name into the model, if they name one.

    Raises as `parse_weights` does, and UsageError for what has no weights.
    """
    import torch

    from purexport.weights.model.scripted import fill

    if args.weights and not isinstance(model, torch.nn.Module):
        raise UsageError("--weights fills a model of torch, and MODEL is none; leave --weights out")
    checkpoint = parse_weights(model, args)
    if checkpoint is not None:
        fill(model, checkpoint)


def parse_weights(model: Any, args: argparse.Namespace) -> Any:
    """The value of `weights` for `export`; None if there is none, or if the model has them now.

    Raises UsageError for options that do not go together, WeightsError for weights that cannot be read or do not fit,
    OSError if there is no such file.
    """
    if not args.weights:
        if args.rename or args.partial or args.cast:
            raise UsageError("--rename, --partial and --cast go with --weights; name a checkpoint with --weights FILE")
        return None
    import torch

    from purexport.torch_patches.torch_jit import ScriptModule
    from purexport.weights.checkpoint import Checkpoint
    from purexport.weights.model.scripted import fill

    rename = _parse_rename(args.rename) or None
    checkpoint = Checkpoint(list(args.weights), rename=rename, strict=not args.partial, cast=args.cast)
    if isinstance(model, torch.nn.Module) and any(isinstance(part, ScriptModule) for part in model.modules()):
        fill(model, checkpoint)
        return None
    return checkpoint


def _parse_rename(texts: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or old in found or not (old or new):
            raise UsageError(f"--rename {text}: write OLD=NEW once for each name, as in --rename model.=")
        found[old] = new if new or not old or old.endswith(".") else None
    return found
