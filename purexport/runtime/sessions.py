"""Files in ONNX Runtime and in onnx's reference evaluator, with torch's tensors on both sides.

numpy has no bfloat16 and no float8, so such tensors pass as the bits of unsigned integers, with their type beside them.
A model that is too large for one message, or that was loaded with its data in other files, goes through a folder, which
lives as long as the session: onnxruntime looks for the files of bytes in the current folder, where others may lie.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

import proto_schema as ps
from purexport import dtypes
from purexport.runtime.packages import package

LARGEST_MESSAGE = 1536 * 1024 * 1024
_BITS = {1: torch.uint8, 2: torch.uint16}
_EXACT = {"session.qdq_matmulnbits_accuracy_level": "0", "mlas.qnbit.force_fp32": "1"}
_OF_EXPERTS, _ENVIRONMENT = "ORT_QMOE_CPU_QNBIT_GEMM", threading.Lock()
WITH_ARRAYS: frozenset[torch.dtype] = frozenset({torch.bool, torch.float16, torch.float32, torch.float64})
WITH_ARRAYS |= {
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
}


class Sessions:
    """The session of one model in ONNX Runtime, made when it is first needed."""

    def __init__(self) -> None:
        self._session: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self, model: ps.ModelProto, initializer: Callable[[Any], Any] | None = None) -> Any:
        """A new session of the model; `initializer` makes it of bytes or a path.

        Raises ImportError without onnxruntime, and what that raises for a model that it cannot run.
        """
        self.close()
        if model.ByteSize() > LARGEST_MESSAGE or _outside(model):
            self._folder = tempfile.TemporaryDirectory(prefix="purexport-", ignore_cleanup_errors=True)
            path = str(Path(self._folder.name, "model.onnx"))
            ps.save(model, path, external_data=True)
            self._session = (initializer or session_of)(path)
        else:
            self._session = (initializer or session_of)(ps.dumps(model))
        return self._session

    def of(self, model: ps.ModelProto) -> Any:
        """The session that is open, or one of the model."""
        return self.open(model) if self._session is None else self._session

    def close(self) -> None:
        """Let go of the session and its files."""
        self._session = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _outside(model: ps.ModelProto) -> bool:
    """Whether weights are in files beside the one that the model was loaded from."""
    helper = ps.external_data_helper
    return any(helper.uses_external_data(tensor) for tensor in helper.all_tensors(model))


def session_of(model: bytes | str, settings: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A session on the CPU of the bytes or the path of a model.  Raises ImportError without onnxruntime."""
    onnxruntime: Any = package("onnxruntime", "running a model")
    options = onnxruntime.SessionOptions()
    for name, value in settings.items():
        options.add_session_config_entry(name, value)
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def exact_session_of(model: bytes | str) -> Any:
    """The same, in which products with weights of few bits are computed in floats, as the operators say.

    By itself onnxruntime rounds the other operand to int8, for speed.  Its kernel for experts (1.31) is told so by the
    environment alone, which is as it was when this returns; its kernel for experts of 2 bits does it in any case.
    """
    with _ENVIRONMENT:
        given = os.environ.get(_OF_EXPERTS)
        os.environ[_OF_EXPERTS] = "fp32"
        try:
            return session_of(model, _EXACT)
        finally:
            os.environ.pop(_OF_EXPERTS)
            if given is not None:
                os.environ[_OF_EXPERTS] = given


def wide_session_of(model: bytes | str) -> Any:
    """The same, in which sums of products of integers do not overflow; by default they may on x64 without VNNI."""
    return session_of(model, {"session.x64quantprecision": "1"})


def run(session: Any, feed: Mapping[str, torch.Tensor]) -> list[Any]:
    """All results of a session, sequences as lists of tensors."""
    plain = all(tensor.dtype in WITH_ARRAYS for tensor in feed.values())
    if plain and not any("bfloat16" in item.type or "float8" in item.type for item in session.get_outputs()):
        arrays = {name: tensor.cpu().numpy() for name, tensor in feed.items()}
        return [pytree.tree_map(torch.from_numpy, found) for found in session.run(None, arrays)]
    values = {name: _ort_value(tensor) for name, tensor in feed.items()}
    return [_tensor(value) for value in session.run_with_ort_values(None, values)]


def _ort_value(tensor: torch.Tensor) -> Any:
    make = package("onnxruntime", "running a model").OrtValue
    if tensor.dtype in WITH_ARRAYS:
        return make.ortvalue_from_numpy(tensor.cpu().numpy())
    bits = tensor.cpu().contiguous().view(_BITS[tensor.element_size()])
    return make.ortvalue_from_numpy_with_onnx_type(bits.numpy(), onnx_element_type=dtypes.onnx_code(tensor.dtype))


def _tensor(value: Any) -> torch.Tensor:
    code = value.element_type()
    if "bfloat16" in value.data_type():
        return torch.utils.dlpack.from_dlpack(value._get_c_value()).clone()
    found = torch.from_numpy(value.numpy())
    return found.view(dtypes.torch_dtype(code)) if "float8" in value.data_type() else found


def run_reference(model: ps.ModelProto, feed: Mapping[str, torch.Tensor]) -> list[Any]:
    """All results of onnx's reference evaluator.  Raises ImportError without onnx."""
    reference: Any = package("onnx.reference", "call_reference")
    arrays = {name: _array(tensor) for name, tensor in feed.items()}
    return [
        pytree.tree_map(_of_array, found) for found in reference.ReferenceEvaluator(ps.dumps(model)).run(None, arrays)
    ]


def _array(tensor: torch.Tensor) -> Any:
    if tensor.dtype in WITH_ARRAYS:
        return tensor.cpu().numpy()
    bits = tensor.cpu().contiguous().view(_BITS[tensor.element_size()]).numpy()
    return bits.view(
        getattr(package("ml_dtypes", f"a tensor of {tensor.dtype}"), str(tensor.dtype).removeprefix("torch."))
    )


def _of_array(array: Any) -> torch.Tensor:
    dtype = getattr(torch, array.dtype.name)
    if dtype in WITH_ARRAYS:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"uint{8 * array.dtype.itemsize}")).view(dtype)


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as a file holds it: a complex one has its two parts on a last axis of size 2."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
