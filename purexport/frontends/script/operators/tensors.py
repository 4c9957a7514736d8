"""Tensors: their properties and sizes, conversions from and to numbers, and the lists into which they are split."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Source, TensorType
from purexport.aten.memory import lies_in_order
from purexport.aten.schema import bind, dtype_from_code
from purexport.errors import ExportError
from purexport.frontends.script.by_schema import record_by_schema
from purexport.frontends.script.conversions import cast, literal, to_number, to_tensor
from purexport.frontends.script.kinds import NUMBER_DTYPES, NUMBERS, number_kind
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import COMPUTED, DYNAMIC, Handlers, ScriptNode
from purexport.frontends.script.values import FakeSequence, ScriptList

handles = Handlers()
# by the code of each, as in c10/core/Layout.h
_LAYOUTS = {torch.strided: 0, torch.sparse_coo: 1, torch.sparse_csr: 2, torch.sparse_csc: 4, torch.sparse_bsr: 5}


# What is known of a tensor without its data ---------------------------------------------------------------------------


@handles("prim::NumToTensor", "prim::data", "aten::cpu", "aten::wait")
def _same(machine: Machine, node: ScriptNode, item: Any) -> Any:
    return item


@handles("aten::is_grad_enabled")
def _grad_enabled(machine: Machine, node: ScriptNode) -> Any:
    # attention layers ask this to choose between a fused operator without another form, and the plain ones
    return True


@handles("prim::requires_grad")
def _requires_grad(machine: Machine, node: ScriptNode, item: Any) -> Any:
    return bool(machine.owner(item))


@handles(
    "prim::dtype",
    "prim::device",
    "prim::layout",
    "prim::is_cuda",
    "prim::is_mkldnn",
    "prim::is_quantized",
    "prim::is_sparse",
    "prim::type",
)
def _property(machine: Machine, node: ScriptNode, item: Any) -> Any:
    """`prim::dtype` and similar: a property of a tensor that is known without its data."""
    name = node.kind.removeprefix("prim::")
    if number_kind(item) is not None:
        item = to_tensor(machine, item, node.source)
    if name in ("dtype", "is_quantized") and item in machine.quantized:
        made = machine.producers[item]
        raise ExportError(
            f"the script asks for {name} of what {made.target} gives at {made.source}, which may be quantized; "
            "export the module itself by trace",
            code="script-hides-effect",
        )
    of = machine.fakes[item] if isinstance(item, AtenValue) else item
    if name == "dtype":
        return _dtype_code(of.dtype)
    return _LAYOUTS[of.layout] if name == "layout" else getattr(of, name)


def _dtype_code(dtype: torch.dtype) -> int:
    return next(code for code in range(64) if dtype_from_code(code) is dtype)


@handles("aten::size", on=COMPUTED)
def _size(machine: Machine, node: ScriptNode, tensor: AtenValue, *dim: Any) -> Any:
    """All sizes as a list; a single size is recorded by its schema."""
    return NotImplemented if dim else _sizes(machine, tensor, node.source)


@handles("aten::len", on=COMPUTED)
def _length(machine: Machine, node: ScriptNode, tensor: Any) -> Any:
    if not isinstance(tensor, AtenValue):
        return NotImplemented
    return machine.record("aten::size.int", {"self": tensor, "dim": 0}, node.source)


@handles("aten::numel", on=COMPUTED)
def _number_of_elements(machine: Machine, node: ScriptNode, tensor: AtenValue) -> Any:
    sizes = _sizes(machine, tensor, node.source)
    return reduce(lambda a, b: machine.record("aten::mul.int", {"a": a, "b": b}, node.source, int), sizes, 1)


@handles("aten::stride", on=COMPUTED)
def _stride(machine: Machine, node: ScriptNode, tensor: AtenValue, *dim: Any) -> Any:
    """The strides of what lies in memory in the order of its elements: products of its sizes."""
    if not lies_in_order(tensor.tensor):
        return NotImplemented
    found: list[Any] = [1]
    for size in reversed(_sizes(machine, tensor, node.source)[1:]):
        found.append(machine.record("aten::mul.int", {"a": found[-1], "b": size}, node.source, int))
    found = found[::-1] if tensor.tensor.shape else []
    return found[dim[0]] if dim else found


def _sizes(machine: Machine, tensor: AtenValue, source: Source) -> list[Any]:
    dims = range(machine.fakes[tensor].dim())
    return [machine.record("aten::size.int", {"self": tensor, "dim": dim}, source) for dim in dims]


@handles("aten::equal", on=COMPUTED)
def _equal(machine: Machine, node: ScriptNode, one: AtenValue, other: AtenValue) -> Any:
    """`torch.equal`: tensors of different shapes are not equal."""
    sizes, others = (machine.fakes[item].shape for item in (one, other))
    same_sizes = [a == b for a, b in zip(sizes, others, strict=False)]
    known = [machine.shapes.known(item) if isinstance(item, torch.SymBool) else item for item in same_sizes]
    if len(sizes) != len(others) or False in known:
        return False
    if None in known:
        raise ExportError(
            f"torch.equal at {node.source} compares tensors that may have two shapes; compare the shapes first",
            code="script-operator",
        )
    return _all(machine, machine.record("aten::eq.Tensor", {"self": one, "other": other}, node.source), node.source)


@handles("aten::where", on=COMPUTED)
def _where(machine: Machine, node: ScriptNode, condition: Any, *rest: Any) -> Any:
    """Torch takes a mask of bytes too; its shape function and ONNX take booleans alone."""
    if not isinstance(condition, AtenValue) or machine.fakes[condition].dtype is not torch.uint8:
        return NotImplemented
    return record_by_schema(machine, node, [cast(machine, condition, torch.bool, node.source), *rest])


@handles("aten::allclose", on=COMPUTED)
def _allclose(machine: Machine, node: ScriptNode, *operands: Any) -> Any:
    return _all(machine, machine.record("aten::isclose", bind("aten::isclose", operands, {}), node.source), node.source)


def _all(machine: Machine, value: AtenValue, source: Source) -> Any:
    return to_number(machine, bool, machine.record("aten::all", {"self": value}, source), source)


# Made of numbers, and taken apart to numbers --------------------------------------------------------------------------


@handles("aten::tensor", "aten::as_tensor", on=(DYNAMIC, COMPUTED))
def _tensor(machine: Machine, node: ScriptNode, data: Any, dtype: Any = None, *_: Any) -> AtenValue:
    """torch.tensor and torch.as_tensor of numbers: a new tensor at every call, for known numbers a copied constant."""
    wanted = dtype_from_code(dtype) if isinstance(dtype, int) else dtype
    if isinstance(data, AtenValue) and isinstance(data.type, TensorType):
        return data if wanted is None else cast(machine, data, wanted, node.source)
    made = literal(machine, data, wanted, node.source)
    copied: AtenValue = machine.record("aten::clone", {"self": made, "memory_format": None}, node.source)
    return copied


@handles("prim::tolist", on=COMPUTED)
def _tolist(machine: Machine, node: ScriptNode, tensor: AtenValue, *_: Any) -> Any:
    innermost = node.type.replace("List[", "").rstrip("]")
    return _as_list(machine, tensor, NUMBERS[innermost], node.source)


def _as_list(machine: Machine, tensor: AtenValue, kind: type, source: Source) -> Any:
    """Nested lists of numbers where the sizes are known."""
    fake = machine.fakes[tensor]
    if fake.dim() == 0:
        return to_number(machine, kind, tensor, source)
    if isinstance(fake.shape[0], int):
        rows = [machine.record("aten::select.int", {"self": tensor, "dim": 0, "index": i}, source)
                for i in range(fake.shape[0])]  # fmt: skip
        return machine.own(ScriptList([_as_list(machine, row, kind, source) for row in rows]))
    if fake.dim() > 1:
        raise ExportError(
            f"tolist at {source} makes nested lists of unknown lengths; use the tensor itself",
            code="list-of-unknown-length",
        )
    return machine.own(ScriptList((), kind.__name__, cast(machine, tensor, NUMBER_DTYPES[kind], source)))


# Cut along an axis of unknown size into parts of a known one, so that their number is unknown -------------------------


@handles("aten::unbind", on=COMPUTED)
def _unbind(machine: Machine, node: ScriptNode, tensor: Any, dim: int = 0) -> Any:
    fake = _cut(machine, tensor, dim)
    if fake is None:
        return NotImplemented
    at = dim % fake.dim()
    sizes = [size for axis, size in enumerate(fake.shape) if axis != at]
    element = FakeSequence(torch.empty(sizes, dtype=fake.dtype))
    return _sequence(machine, node, tensor, element, {"size": None, "dim": at})


@handles("aten::split", on=COMPUTED)
def _split(machine: Machine, node: ScriptNode, tensor: Any, size: Any, dim: int = 0) -> Any:
    fake = _cut(machine, tensor, dim) if isinstance(size, int) else None
    if fake is None:
        return NotImplemented
    at, part = dim % fake.dim(), machine.shapes.unknown_size()  # the last part may be smaller
    sizes = [part if axis == at else size for axis, size in enumerate(fake.shape)]
    element = FakeSequence(torch.empty(sizes, dtype=fake.dtype), frozenset([str(part)]))
    return _sequence(machine, node, tensor, element, {"size": size, "dim": at})


def _cut(machine: Machine, tensor: Any, dim: int) -> torch.Tensor | None:
    """The fake of a tensor whose size in `dim` is unknown; None for any other tensor."""
    if not isinstance(tensor, AtenValue) or not isinstance(tensor.type, TensorType):
        return None
    fake: torch.Tensor = machine.fakes[tensor]
    return None if isinstance(fake.shape[dim], int) else fake


def _sequence(machine: Machine, node: ScriptNode, tensor: AtenValue, element: FakeSequence, how: dict[str, Any]) -> Any:
    machine.aliasing.put(element, machine.fakes[tensor], node.source)
    value = machine.emit("sequence::split", {"self": tensor, **how}, element, node.source)
    return machine.own(ScriptList((), "Tensor", value))
