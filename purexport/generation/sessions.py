"""A file that runs: in ONNX Runtime, or in the evaluator of `proto_schema` where that is not installed.

A value is what the runtime holds.  What a step keeps for the next one stays such a value: in ONNX Runtime it is bound
as an output of one step and as an input of the next, on the device where it was made, and is never an array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from proto_schema.reference import ReferenceEvaluator
from proto_schema.tensors import dtypes
from proto_schema.tensors.minifloat import bfloat16_codes
from purexport.errors import ExportError
from purexport.generation.files import GraphFile, without_kernel
from purexport.runtime.packages import installed, package

Array = npt.NDArray[Any]
RUNTIMES = ("onnxruntime", "reference")
_DEVICES = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}
_BFLOAT16 = 16


class RunnableFile(Protocol):
    """A file that was opened."""

    file: GraphFile

    def value(self, name: str, array: Array) -> Any:
        """An array as what the runtime takes for an input."""

    def run(self, feed: Mapping[str, Any], kept: Collection[str] = (), written: Collection[str] = ()) -> dict[str, Any]:
        """The outputs by name, as arrays except those that are `kept`.

        The caches among the outputs that are `written` are put where the inputs are which they continue.
        """


def numpy_type(code: int) -> np.dtype[Any]:
    """The type of arrays with the numbers of an ONNX type; bfloat16 is float32 there."""
    return np.dtype(dtypes.dtype_of(code).numpy)


def fitted(file: GraphFile, name: str, array: Array) -> Array:
    """An input in the type that a file takes.  Raises ValueError for other kinds of numbers, and other sizes."""
    layout = file.inputs[name]
    wanted = numpy_type(layout.code)
    if array.dtype != wanted:
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f") != (wanted.kind == "f"):
            raise ValueError(f"{name} has elements of {array.dtype}, and {file.path.name} takes {wanted}")
        array = array.astype(wanted)
    sizes = zip(array.shape, layout.shape, strict=False)
    if array.ndim != len(layout.shape) or any(isinstance(size, int) and has != size for has, size in sizes):
        raise ValueError(f"{name} is {list(array.shape)}, and {file.path.name} takes {list(layout.shape)}")
    return np.ascontiguousarray(array)


def opened(file: GraphFile, runtime: str | None, providers: Sequence[Any] | None) -> RunnableFile:
    """A file that runs in `runtime`, or in the one that is installed.

    Raises ExportError where the runtime cannot run the file; ImportError where it is not installed.
    """
    if runtime is None:
        runtime = "onnxruntime" if installed("onnxruntime") else "reference"
    return RuntimeFile(file, providers) if runtime == "onnxruntime" else EvaluatedFile(file)


class EvaluatedFile:
    """A file in the evaluator, whose values are arrays."""

    def __init__(self, file: GraphFile) -> None:
        self.file = file
        try:
            self._evaluator = ReferenceEvaluator(str(file.path))
        except (NotImplementedError, ValueError) as error:
            raise ExportError(
                f"the evaluator does not run {file.path} ({error}); install onnxruntime, or write the folder for "
                "target='onnx'",
                code="runtime-lacks-operator",
            ) from error

    def value(self, name: str, array: Array) -> Any:
        """The array, in the type that the file takes."""
        return fitted(self.file, name, array)

    def run(self, feed: Mapping[str, Any], kept: Collection[str] = (), written: Collection[str] = ()) -> dict[str, Any]:
        """The outputs by name."""
        names = list(self.file.outputs)
        return dict(zip(names, self._evaluator.run(names, feed), strict=True))


class RuntimeFile:
    """A file in ONNX Runtime."""

    def __init__(self, file: GraphFile, providers: Sequence[Any] | None) -> None:
        self.file = file
        self._runtime: Any = package("onnxruntime", "running a folder")
        options = self._runtime.SessionOptions()
        options.log_severity_level = 3
        chosen = list(providers or ["CPUExecutionProvider"])
        try:
            self._session = self._runtime.InferenceSession(str(file.path), options, providers=chosen)
        except Exception as error:  # onnxruntime's own classes, which share no base but this
            lacks = without_kernel(file.path, self._runtime.__version__) or str(error).partition("\n")[0]
            raise ExportError(
                f"onnxruntime does not run {file.path}: {lacks}; a newer release may, and a lower opset_version "
                "(--opset) or target='onnx' writes other operators",
                code="runtime-lacks-operator",
            ) from error
        self._device = _DEVICES.get(self._session.get_providers()[0], "cpu")

    def value(self, name: str, array: Array) -> Any:
        """The array in memory of the runtime."""
        array = fitted(self.file, name, array)
        make = self._runtime.OrtValue
        if self.file.inputs[name].code == _BFLOAT16:
            return make.ortvalue_from_numpy_with_onnx_type(bfloat16_codes(array), _BFLOAT16)
        return make.ortvalue_from_numpy(array, self._device)

    def run(self, feed: Mapping[str, Any], kept: Collection[str] = (), written: Collection[str] = ()) -> dict[str, Any]:
        """The outputs by name; those that are kept are on the device."""
        binding = self._session.io_binding()
        for name, value in feed.items():
            binding.bind_ortvalue_input(name, value)
        caches = self.file.caches
        for name in self.file.outputs:
            if name in written:
                binding.bind_ortvalue_output(name, feed[caches[name]])
            else:
                binding.bind_output(name, self._device if name in kept else "cpu")
        self._session.run_with_iobinding(binding)
        found = dict(zip(self.file.outputs, binding.get_outputs(), strict=True))
        # a value that was written in place owns no memory: that which was fed does
        found |= {name: feed[caches[name]] for name in written}
        return {name: value if name in kept else _array(value) for name, value in found.items()}


def _array(value: Any) -> Array:
    if "bfloat16" not in value.data_type():
        found: Array = value.numpy()
        return found
    count = int(np.prod(value.shape()))
    codes = np.frombuffer(ctypes.string_at(value.data_ptr(), 2 * count), "<u2") if count else np.zeros(0, "<u2")
    return np.asarray((codes.astype("<u4") << 16).view("<f4").reshape(value.shape()))
