"""Whether the file of a sample computes what torch does, by the bounds of the dtypes."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch
from coverage_samples import Sample, results_of
from torch.utils import _pytree as pytree

# relative, absolute: below the rounding of the next lower dtype, and four units in the last place of the half ones
BOUNDS = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (2**-8, 2**-8),
    torch.bfloat16: (2**-5, 2**-5),
}
HALVES = (torch.float16, torch.bfloat16)
BFLOAT16 = 16  # its code in the format; numpy has no such type
# torch's float32 is off by more than the bounds
ROUNDED = ("matrix_exp",)
# what holds in place of values that are free up to a sign: (eigenvalues, vectors) compose the matrix
COMPOSED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "linalg.eigh": lambda pair: [pair[0], *_composed(*pair)],
}
# which of equal elements comes first is free, so a position counts by the element there: the axis, as an argument
POSITIONS = {"sort": 1, "argsort": 1, "topk": 2, "kthvalue": 2}


def computed(data: bytes, tensors: tuple[torch.Tensor, ...]) -> list[np.ndarray[Any, Any]]:
    """What the file computes in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    feeds = [_value(tensor) for tensor in tensors]
    if len(names) != len(feeds):  # an exporter may leave unused inputs out
        feeds = feeds[: len(names)]
    return [_read(value) for value in session.run_with_ort_values(None, dict(zip(names, feeds, strict=True)))]


def _value(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    if tensor.dtype is torch.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(_array(tensor), BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(_array(tensor), order="C"))


def _read(value: onnxruntime.OrtValue) -> np.ndarray[Any, Any]:
    if value.is_tensor() and value.element_type() == BFLOAT16:
        data = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(value.shape())))
        return np.frombuffer(data, np.uint16).reshape(value.shape())
    return np.asarray(value.numpy())


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The numbers as the runtime takes and gives them: bfloat16 as bits, a complex one as a pair."""
    plain = tensor.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.dtype is torch.bfloat16:
        return plain.contiguous().view(torch.uint16).numpy()
    return plain.numpy()


def _composed(values: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The matrix that has these eigenvalues and vectors, and the products of the vectors with each other."""
    if vectors.ndim > values.ndim + 1:  # complex ones
        vectors = vectors[..., 0] + 1j * vectors[..., 1]
    adjoint = np.swapaxes(vectors, -1, -2).conj()
    return [np.asarray((vectors * values[..., None, :]) @ adjoint), np.asarray(adjoint @ vectors)]


def judged(name: str, sample: Sample, results: list[torch.Tensor], data: bytes | Exception) -> str:
    """Empty when the file of a sample passes, otherwise the reason in one line.

    `results` is what torch computes; the file may be the error of its export.
    """
    expected = [_array(tensor) for tensor in results]
    if isinstance(data, Exception):
        return f"export: {line(data)}"
    try:
        actual = computed(data, sample[1])
    except Exception as error:
        return f"runtime: {line(error)}"
    if len(actual) != len(expected):
        return f"differs: {len(actual)} outputs, torch gives {len(expected)}"
    for got, want in zip(actual, expected, strict=True):
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"differs: {got.dtype}{list(got.shape)}, torch gives {want.dtype}{list(want.shape)}"
    compose = COMPOSED.get(name, list)
    found, wanted = ([_numbers(*pair) for pair in zip(arrays, results, strict=True)] for arrays in (actual, expected))
    if name in POSITIONS:
        found, wanted = (_elements(name, sample, arrays) for arrays in (found, wanted))
    pairs = list(zip(compose(found), compose(wanted), strict=True))
    bounds = [BOUNDS.get(tensor.dtype.to_real(), (0.0, 0.0)) for tensor in results]
    bounds += [bounds[0]] * (len(pairs) - len(bounds))
    apart = [
        ~np.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True) if relative else got != want
        for (got, want), (relative, absolute) in zip(pairs, bounds, strict=True)
    ]
    count = int(sum(places.sum() for places in apart))
    rounded = name in ROUNDED or any(tensor.dtype in HALVES for tensor in (*results, *sample[1]))
    if count and not (rounded and _nearer(sample, pairs, apart)):
        return f"differs: in {count} values"
    return ""


def _elements(name: str, sample: Sample, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results with the elements of the operand in place of positions; -1 for a position that comes twice."""
    model, (operand, *_) = sample
    args, kwargs = pytree.tree_unflatten(model.leaves, model.tree)
    place = POSITIONS[name]
    axis = kwargs.get("dim", args[place] if len(args) > place else -1)
    values = np.atleast_1d(_numbers(_array(operand), operand))
    found = []
    for array in arrays:
        if array is not arrays[-1]:
            found.append(array)
            continue
        wide = np.atleast_1d(array) if array.ndim == operand.dim() else np.expand_dims(array, axis)
        twice = (np.diff(np.sort(wide, axis=axis), axis=axis) == 0).any()
        found.append(np.full_like(wide, -1) if twice else np.take_along_axis(values, wide, axis))
    return found


def _numbers(array: np.ndarray[Any, Any], like: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array as numbers: floating point ones as float64, in which the bounds are computed."""
    if like.dtype is torch.bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _nearer(sample: Sample, pairs: Any, apart: Any) -> bool:
    """Whether each value that is apart from torch's is nearer to what torch computes of the same inputs in float64."""
    model, tensors = sample
    wide = tuple(_widened(tensor) for tensor in tensors)
    try:
        exact = [_array(tensor) for tensor in results_of(copy.deepcopy(model).double(), wide)]
    except (RuntimeError, TypeError):
        return False
    if any(got.shape != true.shape for (got, _), true in zip(pairs, exact, strict=True)):
        return False
    halves = [tensor.dtype if tensor.dtype in HALVES else None for tensor in results_of(*sample)]
    return all(
        (_off(got, true, half)[places] <= _off(want, true, half)[places]).all()
        for (got, want), true, places, half in zip(pairs, exact, apart, halves, strict=True)
    )


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _off(found: np.ndarray[Any, Any], true: np.ndarray[Any, Any], half: torch.dtype | None) -> np.ndarray[Any, Any]:
    """How far numbers are from the true ones, infinitely where NaN; what a half cannot hold is its infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        held = true if half is None else torch.from_numpy(np.asarray(true)).to(half).double().numpy()
        distance = np.where(found == held, 0.0, np.abs(found - true))
    return np.where(np.isnan(distance), np.inf, distance)


def line(error: Exception) -> str:
    from purexport import UnsupportedOperatorError

    if isinstance(error, UnsupportedOperatorError):
        return "; ".join(dict.fromkeys(f"{gap.target} {gap.reason}" for gap in error.gaps))[:300]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
