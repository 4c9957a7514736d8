"""`torch.onnx.ops.symbolic` under the tracer, which refuses lists of optional tensors and lists of lists.

The call becomes one of an operator that the tracer records.  The shapes of the results are those of tensors that are
made in the trace, so that sizes that can change stay so.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import torch

from purexport import dtypes
from purexport.aten.graph import OWN_NAMESPACE
from purexport.aten.names import operator_of
from purexport.aten.schema import bind

_NAMES = {"onnx_symbolic::_symbolic": False, "onnx_symbolic::_symbolic_multi_out": True}
_LISTS = ("attr_ints", "attr_floats", "attr_strs")


def is_symbolic(function: Any) -> bool:
    """Whether a function is the operator behind `symbolic` or `symbolic_multi_out`."""
    return isinstance(function, torch._ops.OpOverload) and function._schema.name in _NAMES


def called(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of such a function: a tensor, or a list of them."""
    several = _NAMES[function._schema.name]
    said = bind(function._schema.name, args, kwargs)
    types = [said["onnx_dtypes"], said["shapes"]] if several else [[said["onnx_dtype"]], [said["shape"]]]
    results = [torch.zeros(list(shape), dtype=dtypes.torch_dtype(code)) for code, shape in zip(*types, strict=True)]
    text = {
        "op_type": said["op_type"],
        "domain": said["domain"],
        "version": said["version"],
        "given": [item is not None for item in said["inputs"]],
        "keys": list(said["attr_keys"]),
        "types": list(said["attr_types"]),
        "places": [list(place) for place in said["attr_pos"]],
        "lists": [list(said[name]) for name in _LISTS],
    }
    inputs = [item for item in said["inputs"] if item is not None]
    made = operator()(inputs, results, json.dumps(text))
    return made if several else made[0]


@functools.cache
def _library() -> torch.library.Library:
    library = torch.library.Library(OWN_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("onnx_symbolic(Tensor[] inputs, Tensor[] results, str text) -> Tensor[]")  # type: ignore[no-untyped-call]
    library.impl("onnx_symbolic", _copied, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    return library


def operator() -> Any:
    """The operator; it is declared at the first use and stays until the process ends."""
    _library()
    return operator_of(f"{OWN_NAMESPACE}::onnx_symbolic")


def _copied(inputs: list[torch.Tensor], results: list[torch.Tensor], text: str) -> list[torch.Tensor]:
    return [result.clone() for result in results]
