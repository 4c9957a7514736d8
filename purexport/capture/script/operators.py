"""The operators of a script: on objects here, on numbers that are known, or recorded as calls."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from purexport.aten import scalars
from purexport.aten.graph import Source, TensorType, Value
from purexport.aten.schema import bind, dtype_from_code, target_of
from purexport.capture.script.lists import evaluate, is_dynamic
from purexport.capture.script.objects import CHANGING, STRUCTURAL, is_structural
from purexport.capture.script.pieces import PIECES, is_cut_by_data, to_list
from purexport.capture.script.record import number_kind
from purexport.capture.script.scope import touch
from purexport.capture.script.values import ComputedText, Maybe, Module, Raised, ScriptList, holds_value, same
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script.interpreter import Interpreter

_TO_NUMBER: dict[str, Any] = {"aten::Int": int, "aten::Float": float, "aten::Bool": bool, "aten::item": None}
_TO_NUMBER |= {"aten::IntImplicit": int, "aten::FloatImplicit": float, "aten::ScalarImplicit": None}
_NUMBERS = {"int": int, "float": float, "bool": bool}
_TEXTS = frozenset({"aten::format", "aten::add", "aten::str", "aten::join"})
_FOLDS = {
    "prim::min": "prim::min.int",
    "prim::max": "prim::max.int",
    "aten::sum": "aten::add.int",
    "aten::any": "aten::__or__.bool",
    "aten::all": "aten::__and__.bool",
}
_SEARCHES = frozenset({"aten::__contains__", "aten::sorted", "aten::sort"})


def operate(run: Interpreter, node: Any, operands: list[Any], source: Source) -> Any:
    """The result of an operator.  Raises ExportError with the script's line where there is no form of it."""
    kind = node.kind()
    if any(isinstance(item, Module) for item in operands) or (
        node.schema() == "(no schema)" and kind != "prim::tolist"
    ):
        raise ExportError(f"{kind} at {source} cannot be exported from a script yet", code="script-operator")
    if kind == "prim::PythonOp":
        raise ExportError(
            f"the script applies the autograd Function {node.pyname()} at {source}; export the model without "
            "torch.jit.script, or declare the operation by torch.library",
            code="autograd-function",
        )
    if any(isinstance(item, Maybe) for item in operands):
        return _is_none(run, kind, operands, source)
    if any(isinstance(item, ComputedText) for item in operands) or _is_message(kind, operands):
        return _text(kind, operands, source)
    if is_dynamic(kind, operands):
        return evaluate(run, kind, operands, source)
    if kind in PIECES and is_cut_by_data(run, kind, operands):
        pieces: Any = PIECES[kind]
        return pieces(run, source, *operands)
    if kind == "prim::tolist":
        return to_list(run, operands[0], _NUMBERS[_innermost(node)], source)
    if isinstance(operands[0] if operands else None, list) and holds_value(operands):
        found = _on_values(run, kind, operands, source)
        if found is not None:
            return found
    if is_structural(kind, operands):
        return _structural(run, kind, operands, source)
    return _numeric(run, node, operands, source)


def _innermost(node: Any) -> str:
    """The type of the numbers in a nested list."""
    return str(node.output().type()).replace("List[", "").rstrip("]")


def _is_none(run: Interpreter, kind: str, operands: list[Any], source: Source) -> Any:
    """``x is None`` of what is None on one path: its flag."""
    maybe = next(item for item in operands if isinstance(item, Maybe))
    if kind not in ("aten::__is__", "aten::__isnot__") or not any(item is None for item in operands):
        raise ExportError(
            f"{kind} at {source} takes a value that is None on one path at {maybe.source}; test it with 'is not None'",
            code="none-on-one-path",
        )
    if kind == "aten::__isnot__":
        return maybe.present
    return run.record("aten::__not__", {"self": maybe.present}, source, bool)


def _is_message(kind: str, operands: list[Any]) -> bool:
    return kind in ("aten::format", "aten::str") and holds_value(operands)


def _text(kind: str, operands: list[Any], source: Source) -> Any:
    """A text with computed numbers in it, for messages."""
    if kind not in _TEXTS:
        raise ExportError(
            f"{kind} at {source} takes a text that depends on data; ONNX has no form of it", code="data-dependent"
        )
    shown = [item.text if isinstance(item, ComputedText) else "?" if holds_value(item) else item for item in operands]
    return ComputedText(str(STRUCTURAL[kind](*shown)))


def _on_values(run: Interpreter, kind: str, operands: list[Any], source: Source) -> Any:
    """Operators that look into a list, where it holds values of the graph; None for all others."""
    items = operands[0]
    if kind in _FOLDS and items and all(number_kind(item) is not None for item in items):
        number = next(cast for cast in (float, int, bool) if any(number_kind(item) is cast for item in items))
        return reduce(lambda one, other: run.record(_FOLDS[kind], {"a": one, "b": other}, source, number), items)
    if kind in _SEARCHES and isinstance(items, ScriptList):
        return evaluate(run, kind, operands, source)
    if kind in ("aten::eq", "aten::ne") and isinstance(operands[1], (list, tuple)):
        equal = _equal(run, items, operands[1], source)
        if kind == "aten::eq":
            return equal
        return run.record("aten::__not__", {"self": equal}, source, bool) if isinstance(equal, Value) else not equal
    return None


def _equal(run: Interpreter, one: Any, other: Any, source: Source) -> Any:
    """Equality of two lists, of which some elements are computed."""
    if len(one) != len(other):
        return False
    pairs = [(mine, theirs) for mine, theirs in zip(one, other, strict=True) if not same(mine, theirs)]
    found: Any = True
    for mine, theirs in pairs:
        if number_kind(mine) is None or number_kind(theirs) is None:
            raise ExportError(
                f"the script compares lists of other things than numbers at {source}", code="script-operator"
            )
        equal = run.record("aten::eq.int", {"a": mine, "b": theirs}, source, bool)
        if not isinstance(equal, Value) and not equal:
            return False
        if isinstance(equal, Value):
            found = equal if found is True else run.record("aten::__and__.bool", {"a": found, "b": equal}, source, bool)
    return found


def _structural(run: Interpreter, kind: str, operands: list[Any], source: Source) -> Any:
    if isinstance(operands[0], dict) and len(operands) > 1 and isinstance(operands[1], Value):
        raise ExportError(
            f"{kind} at {source} takes a key that depends on data; ONNX has no dicts, use a tensor",
            code="data-dependent",
        )
    if kind in CHANGING:
        touch(run, operands[0], source)
    try:
        return STRUCTURAL[kind](*operands)
    except (IndexError, KeyError) as error:
        raise Raised(source, f"{type(error).__name__}: {error}") from error
    except TypeError as error:
        raise ExportError(
            f"{kind} at {source} depends on data in a way that has no form in ONNX: {error}", code="data-dependent"
        ) from error


def _numeric(run: Interpreter, node: Any, operands: list[Any], source: Source) -> Any:
    kind, schema = node.kind(), node.schema()
    if kind in _TO_NUMBER:
        return run.to_number(_TO_NUMBER[kind], operands[0], source)
    target = target_of(schema)
    if operands and number_kind(operands[0]) is not None:
        target = scalars.without_write(target)
        kind = target.partition(".")[0]
    if target == "aten::size":
        tensor = operands[0]
        return [
            run.record("aten::size.int", {"self": tensor, "dim": dim}, source) for dim in range(run.fakes[tensor].dim())
        ]
    if target == "aten::len.Tensor":
        return run.record("aten::size.int", {"self": operands[0], "dim": 0}, source)
    if target == "aten::numel":
        return _number_of_elements(run, operands[0], source)
    if kind in _RANGES:
        return _RANGES[kind](run, source, *operands)
    if kind in ("aten::tensor", "aten::as_tensor"):
        return _tensor(run, operands, source)
    number = _NUMBERS.get(str(node.output().type())) if node.outputsSize() == 1 else None
    if scalars.is_scalar_operator(kind) and not any(isinstance(item, Value) for item in operands):
        found = scalars.evaluate(kind, {f"operand_{index}": operand for index, operand in enumerate(operands)})
        return float(found) if number is float else found  # 2 ** 2 is 4.0
    if not target.startswith("aten::") and not holds_value(operands):
        raise ExportError(f"{target} at {source} cannot be exported from a script yet", code="script-operator")
    return run.record(target, bind(target, operands, {}), source, number)


def _number_of_elements(run: Interpreter, tensor: Value, source: Source) -> Any:
    sizes = [
        run.record("aten::size.int", {"self": tensor, "dim": dim}, source) for dim in range(run.fakes[tensor].dim())
    ]
    return reduce(lambda one, other: _on_ints(run, source, "mul", one, other), sizes, 1)


def _on_ints(run: Interpreter, source: Source, name: str, a: Any, b: Any) -> Any:
    target = f"prim::{name}.int" if name == "max" else f"aten::{name}.int"
    return run.record(target, {"a": a, "b": b}, source, int)


def _range_length(run: Interpreter, source: Source, start: Any, stop: Any, step: Any) -> Any:
    """The number of steps of ``range(start, stop, step)``."""
    if isinstance(step, Value):
        raise ExportError(
            f"the step of a range at {source} depends on data; use a step that is known", code="data-dependent"
        )
    first, last = (start, stop) if step > 0 else (stop, start)
    distance = _on_ints(run, source, "sub", last, first)
    rounded = _on_ints(run, source, "add", distance, abs(step) - 1)
    return _on_ints(run, source, "max", _on_ints(run, source, "floordiv", rounded, abs(step)), 0)


def _derive_index(run: Interpreter, source: Source, index: Any, start: Any, step: Any) -> Any:
    return _on_ints(run, source, "add", start, _on_ints(run, source, "mul", index, step))


_RANGES = {"aten::__range_length": _range_length, "aten::__derive_index": _derive_index}


def _tensor(run: Interpreter, operands: list[Any], source: Source) -> Value:
    """torch.tensor and torch.as_tensor of numbers, new at every call: a copy of a constant where they are known."""
    data, dtype = operands[0], operands[1] if len(operands) > 1 else None
    wanted = dtype_from_code(dtype) if isinstance(dtype, int) else dtype
    if isinstance(data, Value) and isinstance(data.type, TensorType):
        return data if wanted is None else run.cast(data, wanted, source)
    made = run.literal(data, wanted, source)
    copied: Value = run.record("aten::clone", {"self": made, "memory_format": None}, source)
    return copied
