"""Weights for scripted modules, which take no others for the length of an export: they are loaded into the module.

Names, shapes and types are compared first, so that what is read is as large as the module's own tensors.
"""

from __future__ import annotations

import torch

from purexport.dtypes import onnx_code
from purexport.errors import UnsupportedDtypeError, WeightsError
from purexport.weights.checkpoint import Checkpoint
from purexport.weights.convert import cast
from purexport.weights.match import Wanted, match
from purexport.weights.model.mapped import Mapped


def fill(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Loads the checkpoint into the module, whose own tensors stay where they are.

    Raises WeightsError when the weights do not fit, OSError when they cannot be opened or read.
    """
    own = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
    wanted = [Wanted((name,), _code(tensor), tuple(tensor.shape)) for name, tensor in own.items()]
    found = match(checkpoint.open(), wanted, strict=checkpoint.strict, cast=checkpoint.cast)
    mapped = Mapped(runs=True)
    for item, stored in zip(wanted, found, strict=True):
        if stored is None:
            continue
        values = mapped.copy(cast(stored, item.dtype))
        if values is None:
            raise WeightsError(f"the tensor {item} cannot be read into memory on this machine")
        own[item.names[0]].copy_(values)


def _code(tensor: torch.Tensor) -> int:
    try:
        return onnx_code(tensor.dtype)
    except UnsupportedDtypeError:
        return 0
