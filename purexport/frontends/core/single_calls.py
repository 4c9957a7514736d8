"""Functions that fail under torch.export because they read data; they are recorded in a form that does not.

Some check whether an argument is valid (`cov`, `gaussian_nll_loss`).  Some give a data-dependent number or size
(`equal`, `one_hot`).  For some torch cannot compute the shape of the result (`ctc_loss`, `lstsq`), or it takes the
example's number for a dynamic size (`affine_grid`, `kron`, `torch.tensor([h, w])`).  Where a rule lowers the call as a
whole, the call becomes an operator `purexport::name` with exactly the schema of `aten::name`.  That operator has a
shape function and no kernel, and the reader renames it to `aten::name`.  The other functions are written in terms of
other operators.  Checks of arguments are left out, and a remark says so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn import functional

from purexport.aten.graph import OWN_NAMESPACE
from purexport.aten.names import operator_of, schema_of
from purexport.aten.schema import MISSING, signature
from purexport.facts.sizes import along_axis, holds_for_all_sizes
from purexport.facts.table import shape_function_of
from purexport.frontends.core import sized_calls
from purexport.torch_patches.calls import functions_handed_to

Tensor = torch.Tensor


def recorded_in_other_forms(remarks: list[str]) -> AbstractContextManager[None]:
    """Inside, such functions are recorded in other forms.  `remarks` gets the checks that are not in the file."""

    def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        form = _forms().get(function) if not torch.compiler.is_dynamo_compiling() else None
        if form is None:
            return function(*args, **kwargs)
        count, check = _CHECKS.get(form, (0, ""))
        if check and check not in remarks and _tensors((*args, *kwargs.values())) >= count:
            remarks.append(check)
        return form(*args, **kwargs)

    return functions_handed_to(call)


_KEPT = (
    "cov",
    "corrcoef",
    "linalg_lstsq",
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "combinations",
    "take_along_dim",
    "vander",
    "one_hot",
    "affine_grid_generator",
    "kron",
    *(("_grouped_mm",) if hasattr(torch, "_grouped_mm") else ()),  # from torch 2.8 on
)

# Operators without a kernel -------------------------------------------------------------------------------------------


@functools.cache
def _operators() -> torch.library.Library:
    """The operators `purexport::name`.  They are declared at the first use and stay until the process ends."""
    library = torch.library.Library(OWN_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in _KEPT:
        target = f"aten::{name}"
        library.define(str(schema_of(target)).removeprefix("aten::"))  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{OWN_NAMESPACE}::{name}", _shape(target), lib=library)
    for name in sized_calls.OPERATORS:
        target = f"aten::{name}"
        library.define(sized_calls.schema(target))  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{OWN_NAMESPACE}::{name}", _shape(target), lib=library)
    return library


def declare_operators() -> None:
    """Declare our own operators, for code that must know them before a model calls one."""
    _operators()


def _operator(name: str) -> Any:
    declare_operators()
    return operator_of(f"{OWN_NAMESPACE}::{name}")


def _shape(target: str) -> Callable[..., Any]:
    """Our shape function as a kernel that takes arguments by position as well as by name."""
    parameters = signature(target).parameters
    defaults = {parameter.name: parameter.default for parameter in parameters if parameter.default is not MISSING}
    function = shape_function_of(target)
    assert function is not None

    def shape(*args: Any, **kwargs: Any) -> Any:
        named = zip((parameter.name for parameter in parameters), args, strict=False)
        return function(**{**defaults, **dict(named), **kwargs})

    return shape


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

# Forms ----------------------------------------------------------------------------------------------------------------


def _cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    return _operator("cov")(input, correction=correction, fweights=fweights, aweights=aweights)


def _corrcoef(input: Tensor) -> Any:
    return _operator("corrcoef")(input)


def _lstsq(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    found = _operator("linalg_lstsq")(a, b, rcond, driver=driver)
    return torch.return_types.linalg_lstsq(found)  # type: ignore[attr-defined]


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = 1,
    zero_infinity: bool = False,
) -> Any:
    """The reduction is a name, as in torch.nn.functional, or a number, as in torch."""
    number = functional._Reduction.get_enum(reduction) if isinstance(reduction, str) else reduction  # type: ignore[attr-defined]
    overload = "Tensor" if isinstance(input_lengths, Tensor) else "IntList"
    return _operator(f"ctc_loss.{overload}")(
        log_probs, targets, input_lengths, target_lengths, blank, number, zero_infinity
    )


def _kron(input: Tensor, other: Tensor, **out: Tensor) -> Any:
    dynamic = any(isinstance(size, torch.SymInt) for size in (*input.shape, *other.shape))
    return _operator("kron")(input, other) if dynamic and not out else torch.kron(input, other, **out)


def _grouped_mm(self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """torch's shape function takes bfloat16 only; its kernels on CPU take other types, too."""
    whole = torch._grouped_mm if self.dtype == torch.bfloat16 else _operator("_grouped_mm")
    return whole(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    return _operator("combinations")(input, r, with_replacement)


def _take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Any:
    return _operator("take_along_dim")(input, indices, dim)


def _vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803  the schema's name
    return _operator("vander")(x, N, increasing)


def _einsum(equation: str, *operands: Any) -> Any:
    """Under autocast the product of two tensors has the narrow dtype, also of tensors that differ in theirs."""
    tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    differ = len(tensors) == 2 and tensors[0].dtype != tensors[1].dtype
    if torch.is_autocast_enabled("cpu") and differ and all(item.is_floating_point() for item in tensors):
        tensors = [item.to(torch.get_autocast_dtype("cpu")) for item in tensors]
    return torch.einsum(equation, *tensors)


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    if isinstance(num_classes, torch.SymInt) and holds_for_all_sizes(num_classes >= 0):  # torch's own would fix it
        return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)
    if isinstance(num_classes, torch.SymInt) or num_classes >= 0:
        return functional.one_hot(tensor, num_classes)
    return _operator("one_hot")(tensor, num_classes)


def _pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """A value that follows from sizes is selected where the padding is."""
    if type(value) not in _SYMBOLIC:
        return functional.pad(input, pad, mode, value)
    inside = functional.pad(torch.ones_like(input, dtype=torch.bool), pad, value=False)
    filled = torch.scalar_tensor(value, dtype=input.dtype, device=input.device)
    return torch.where(inside, functional.pad(input, pad), filled)


def _narrow(input: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """A start given as a tensor becomes a number first; torch must know that it counts from the front."""
    if not isinstance(start, Tensor):
        return torch.narrow(input, dim, start, length)
    length = length.item() if isinstance(length, Tensor) else length
    size = input.shape[dim]
    position = torch.where(start < 0, start + size, start).item()
    torch._check(position >= 0)  # type: ignore[no-untyped-call]
    torch._check(position <= size - length)  # type: ignore[no-untyped-call]
    return torch.narrow(input, dim, position, length)  # type: ignore[arg-type]


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Tensor:
    if not any(isinstance(item, torch.SymInt) for item in size):
        return functional.affine_grid(theta, list(size), align_corners)
    result: Tensor = _operator("affine_grid_generator")(theta, list(size), bool(align_corners))
    return result


def _made_of(function: Any, data: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """`torch.tensor([h, w])`, stacked where there are dynamic sizes among the numbers."""
    leaves = _leaves(data)
    if not any(isinstance(leaf, _SYMBOLIC) for leaf in leaves):
        found: Tensor = function(data, dtype=dtype, **options)
        return found
    is_float = any(isinstance(leaf, (float, torch.SymFloat)) for leaf in leaves)
    return _stacked(data, dtype or (torch.get_default_dtype() if is_float else torch.int64), options.get("device"))


def _new_tensor(self: Tensor, data: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _made_of(self.new_tensor, data, dtype or self.dtype, **{"device": self.device, **options})


def _leaves(data: Any) -> list[Any]:
    return [leaf for item in data for leaf in _leaves(item)] if isinstance(data, (list, tuple)) else [data]


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(item, dtype, device) for item in data])
    return torch.scalar_tensor(data, dtype=dtype, device=device)


def _equal(input: Tensor, other: Tensor) -> Any:
    """Whether all are equal, as a tensor."""
    if input.dim() != other.dim() or input.shape != other.shape:
        return False
    return (input == other).all()


def _allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all are close, as a tensor."""
    return torch.isclose(input, other, rtol, atol, equal_nan).all()


def _gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The loss, for a variance of each number, of each row, or of all."""
    variance = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if variance.dim() == input.dim() - 1:
        variance = variance.unsqueeze(-1)
    variance = variance.clamp(min=eps)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _sized(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A call whose numbers follow from sizes; torch's own would fix them."""
    found = sized_calls.call(function, args, kwargs)
    return function(*args, **kwargs) if found is None else _operator(found[0])(**found[1])


VERDICTS: dict[Any, Callable[..., Any]] = {
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _allclose,
    torch.Tensor.allclose: _allclose,
}
# the number of tensors from which on torch checks the last ones, and what it checks
_CHECKS = {
    _gaussian_nll_loss: (3, "gaussian_nll_loss raises an error for a negative variance; the file does not check it"),
    _cov: (2, "cov raises an error for negative weights; the file does not check it"),
}


def _tensors(args: Sequence[Any]) -> int:
    return sum(isinstance(arg, Tensor) for arg in args)


_UNIQUE = (torch.unique, torch.unique_consecutive, torch.Tensor.unique, torch.Tensor.unique_consecutive)


@functools.cache
def _forms() -> dict[Any, Callable[..., Any]]:
    forms: Sequence[tuple[Callable[..., Any], Sequence[Any]]] = [
        (_cov, (torch.cov, torch.Tensor.cov)),
        (_corrcoef, (torch.corrcoef, torch.Tensor.corrcoef)),
        (_lstsq, (torch.linalg.lstsq,)),
        (_ctc_loss, (torch.ctc_loss, functional.ctc_loss)),
        (_combinations, (torch.combinations,)),
        (_take_along_dim, (torch.take_along_dim, torch.Tensor.take_along_dim)),
        (_vander, (torch.vander,)),
        (_einsum, (torch.einsum,)),
        (_kron, (torch.kron, torch.Tensor.kron)),
        (_grouped_mm, [getattr(torch, name) for name in ("_grouped_mm",) if hasattr(torch, name)]),
        (_one_hot, (functional.one_hot,)),
        (_pad, (functional.pad,)),
        (_affine_grid, (functional.affine_grid,)),
        *((functools.partial(_made_of, function), (function,)) for function in (torch.tensor, torch.as_tensor)),
        (_new_tensor, (torch.Tensor.new_tensor,)),
        (_narrow, (torch.narrow, torch.Tensor.narrow)),
        (_gaussian_nll_loss, (functional.gaussian_nll_loss,)),
        *((functools.partial(along_axis, function), (function,)) for function in _UNIQUE),
    ]
    sized = {function: functools.partial(_sized, function) for function in sized_calls.FUNCTIONS}
    return VERDICTS | sized | {function: form for form, functions in forms for function in functions}
