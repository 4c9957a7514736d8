"""Fake tensors whose dynamic axes are symbols: torch's own shape functions run on them, one call at a time.

The interpretation of a script and the decomposition of a call use this module.  A symbol's hint is not the
example's size (see `symbol`), so two sizes are equal only where the model makes them equal.

Models compute sizes with small tensors.  So a small tensor that is made from constants and sizes alone keeps its
content (`constant`).  The content is forgotten when a call writes to the tensor.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import Source as GuardSource
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, statically_known_true

from purexport.aten import scalars
from purexport.aten.graph import AtenValue, Call, ScalarType, TensorType, map_values, tensor_type
from purexport.aten.names import operator_of
from purexport.aten.schema import signature
from purexport.dtypes import is_quantized
from purexport.errors import ExportError
from purexport.facts.table import fact_of, shape_function
from purexport.shapes.broadcasting import widened
from purexport.shapes.knowledge import Knowledge
from purexport.shapes.symbols import Symbols
from purexport.torch_patches.quiet import quiet_torch

Axes = Mapping[int, str]

_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
_TENSORS = re.compile(r"(Optional\[|List\[)*Tensor\]*")
_SMALL = 16  # elements of a tensor whose content is kept
_NUMBERS = re.compile("number")


@dataclass(frozen=True)
class _Axis(GuardSource):
    """The origin of a symbol, in the form that torch's guards need."""

    text: str

    @property
    def _name_template(self) -> str:
        return self.text


if not isinstance(vars(GuardSource)["name"], (property, functools.cached_property)):  # a method before torch 2.10

    def _text_of(axis: _Axis) -> str:
        return axis.text

    _Axis.name = _text_of  # type: ignore[assignment, method-assign]


class _Mode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake mode that keeps the content of small tensors; torch's own keeps that of one-element tensors only."""

    def may_turn_const(self, t: torch.Tensor) -> bool:
        small = t.numel() <= _SMALL and t.layout is torch.strided and t.device.type == "cpu"
        return small and not self.is_our_fake(t)


class FakeMachine:
    """Runs calls on fake tensors.  With `distinct`, each symbol gets a size that equals no other by chance."""

    def __init__(self, distinct: bool) -> None:
        self.distinct = distinct
        self.shapes = ShapeEnv(specialize_zero_one=False, duck_shape=False, allow_dynamic_output_shape_ops=True)
        self.mode = _Mode(shape_env=self.shapes, allow_non_fake_inputs=True)
        self._factors = itertools.cycle(_PRIMES)
        self.symbols: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.knowledge = Knowledge(self.shapes)
        self.alternatives: list[Any] = []  # sizes that differ between two paths

    @contextmanager
    def running(self) -> Iterator[None]:
        """The modes in which calls must be evaluated."""
        # the Python dispatcher selects shape functions that keep symbols, where the C++ kernels need numbers
        with quiet_torch(), self.mode, enable_python_dispatcher(), torch.no_grad():
            yield

    @staticmethod
    def outside() -> AbstractContextManager[Any]:
        """Leaves the fake mode inside, to make tensors with real content."""
        return unset_fake_temporarily()

    def tensor(self, type_: TensorType, axes: Axes) -> torch.Tensor:
        """A fake tensor of that type, with symbols on the given axes."""
        if is_quantized(type_.dtype):  # a float32 tensor stands for it, as in `facts.quantized`
            type_ = TensorType(torch.float32, type_.shape)
        shape: list[Any] = list(type_.shape or ())
        for axis, name in axes.items():
            shape[axis] = self.symbol(name, shape[axis])
        if not axes and type_.known_strides is not None:
            return torch.empty_strided(shape, type_.known_strides, dtype=type_.dtype)
        return torch.empty(shape, dtype=type_.dtype)

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a known tensor, with its content if it is small."""
        if tensor.is_quantized or not self.mode.may_turn_const(tensor):
            return self.tensor(tensor_type(tensor), {})
        with self.outside():
            content = tensor.detach().clone()
            return self.mode.fake_tensor_converter.from_real_tensor(self.mode, content, make_constant=True)

    def forget(self, fake: Any) -> Any:
        """Forget the content of `fake` and of every fake that aliases it; returns `fake`."""
        content = getattr(fake, "constant", None)
        if content is not None:
            self.mode.fake_tensor_converter.invalidate_constant_aliases(content)
        return fake

    def remembered(self) -> frozenset[Any]:
        """The storages whose content is known."""
        return frozenset(self.mode.fake_tensor_converter.constant_storage_mapping)

    def symbol(self, name: str, example: int) -> Any:
        """The symbol of an axis name.  It is made at the first request."""
        if name not in self.symbols:
            self.symbols[name] = self._new_symbol(name, example)
            self.names[str(self.symbols[name])] = name
        return self.symbols[name]

    def _new_symbol(self, name: str, example: int) -> Any:
        # The example's size may equal another one by chance, or be 1, and a comparison would then specialize it.
        # Its product with a prime of its own equals no other size, and keeps every divisor of the example's size.
        factor = next(self._factors) if self.distinct else 1
        hint = max(example, int(self.distinct)) * factor
        source = _Axis(f"{name} {factor}")
        symbol = self.shapes.create_symbol(hint, source, DimDynamic.DYNAMIC, None, do_not_specialize_zero_one=True)
        return self.shapes.create_symintnode(symbol, hint=hint, source=source)

    def evaluate(self, call: Call, lookup: Callable[[AtenValue], Any]) -> list[Any]:
        """The results of a call; `lookup` gives the fake of each value.  Raises what torch raises."""
        args = {name: map_values(arg, lookup) for name, arg in call.args.items()}
        limited = {size.node.expr for arg in args.values() for size in _sizes(arg) if _is_limited(size.node.expr)}
        if not limited or signature(call.target).writes:
            return self._results(call, args)
        before = self.knowledge.now()
        results = self._results(call, args)
        if not any(_fixes(guard.expr, limited) for guard in self.shapes.guards[len(before.guards) :]):
            return results
        self.knowledge.take(before)
        try:
            return self._of_any_size(call, args, limited)
        except Exception:  # whatever a shape function raises: the sizes are no sizes of their own for it
            self.knowledge.take(before)
            return self._results(call, args)

    def _of_any_size(self, call: Call, args: Mapping[str, Any], limited: Iterable[Any]) -> list[Any]:
        """The results of a call where sizes such as `min(n, 3) // 2`, which is 1 at most sizes, are symbols meanwhile.

        Many shape functions ask whether a size is 1, and take it for 1 from then on.
        """
        symbols = {size: self._new_symbol("stand-in", 1).node.expr for size in limited}

        def general(number: Any) -> Any:
            if not isinstance(number, torch.SymInt):
                return number
            return self.shapes.create_symintnode(number.node.expr.xreplace(symbols), hint=None)

        def free(arg: Any) -> Any:
            if isinstance(arg, (list, tuple)):
                return [free(item) for item in arg]
            if not isinstance(arg, torch.Tensor):
                return general(arg)
            return torch.empty_strided(
                [general(size) for size in arg.shape], [general(step) for step in arg.stride()], dtype=arg.dtype
            )

        results = self._results(call, {name: free(arg) for name, arg in args.items()})
        for size, symbol in symbols.items():
            self.knowledge.equate(symbol, size)
        return results

    def _results(self, call: Call, args: Mapping[str, Any]) -> list[Any]:
        if call.target == "prim::getitem":
            return [args["list"][args["index"]]]
        if call.outputs and all(isinstance(value.type, ScalarType) for value in call.outputs):
            operands = [arg for arg in args.values() if isinstance(arg, torch.Tensor)]
            if scalars.is_scalar_operator(call.base) and not operands:
                return [scalars.evaluate(call.base, args)]
        if fact_of(call.target).reads_number and isinstance(args.get("a"), torch.Tensor):
            return [args["a"].item()]  # the operators themselves need the content, which a fake lacks
        if call.target == "aten::_shape_as_tensor":
            return [self._shape_of(args["self"])]
        if call.target == "aten::_reshape_from_tensor":
            return [self._reshaped(args["self"], args["shape"])]
        for name in signature(call.target).writes:
            self.forget(args[name])
        result = self._made(call, args)
        if result is None:
            operator = _operator(call)
            given = widened(call.target, operator, self._as_tensors(call.target, args), self.unknown_size)
            result = operator(**given)
        return list(result) if len(call.outputs) != 1 else [result]

    def _shape_of(self, fake: torch.Tensor) -> torch.Tensor:
        if all(isinstance(size, int) for size in fake.shape):
            with self.outside():
                sizes = torch.tensor(fake.shape, dtype=torch.int64)
            return self.constant(sizes)
        made = torch.empty(fake.dim(), dtype=torch.int64)
        made.sizes_held = (tuple(fake.shape), made._version)  # type: ignore[attr-defined]  # for _reshaped
        return made

    def _reshaped(self, fake: torch.Tensor, shape: Any) -> torch.Tensor:
        """`fake` reshaped to the content of `shape`; with unbacked sizes where that content is unknown."""
        sizes, version = getattr(shape, "sizes_held", (None, None))
        if version != shape._version:  # written to since
            sizes = None
        if getattr(shape, "constant", None) is not None:
            sizes = shape.constant.tolist()
        if sizes is not None:
            reshaped: torch.Tensor = fake.reshape(sizes)
            return reshaped
        return torch.empty([self.unknown_size() for _ in range(int(shape.shape[0]))], dtype=fake.dtype)

    def _as_tensors(self, target: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with a zero-dim tensor for each number that the trace had unwrapped from one."""
        kinds = _parameters(target, _TENSORS)
        args = {name: self._as_tensor(arg) if name in kinds else arg for name, arg in args.items()}
        if not any(isinstance(arg, torch.Tensor) and arg.is_complex() for arg in args.values()):
            return args
        # next to complex tensors torch converts a symbolic number to complex, which would specialize it; no shape
        # depends on the number, so 1 stands for it
        numbers = _parameters(target, _NUMBERS)
        return {name: 1 if name in numbers and _is_symbolic(arg) else arg for name, arg in args.items()}

    def _as_tensor(self, arg: Any) -> Any:
        if isinstance(arg, (list, tuple)):
            return [self._as_tensor(item) for item in arg]
        if _is_symbolic(arg):
            return torch.scalar_tensor(arg, dtype=_number_dtype(arg))
        if not isinstance(arg, (bool, int, float)):
            return arg
        with self.outside():
            number = torch.scalar_tensor(arg, dtype=_number_dtype(arg))
        return self.constant(number)

    def _made(self, call: Call, args: Mapping[str, Any]) -> torch.Tensor | None:
        """A small tensor that is made from known numbers, with its content; None for other calls."""
        if not fact_of(call.target).makes_constant or any(
            isinstance(arg, torch.Tensor) or _is_symbolic(arg) for arg in args.values()
        ):
            return None
        size = args.get("size", ())
        if any(map(_is_symbolic, size)) or math.prod(size) > _SMALL:
            return None
        with self.outside():
            made = _operator(call)(**args)
        return self.constant(made)

    def type(self, result: Any) -> Any:
        """The neutral type of a fake result; its sizes are expressions of the names of the axes."""
        return Symbols(self.names).type(result)

    def named(self, text: str) -> str:
        """A message of torch's, with the names of the axes in place of torch's symbols."""
        return re.sub(r"\bs\d+\b", lambda match: self.names.get(match.group(), match.group()), text)

    def unknown(self, kind: Any) -> Any:
        """A new unbacked number, whose value is known only at run time."""
        if kind is bool:
            return self.shapes.create_unbacked_symbool()
        return self.shapes.create_unbacked_symfloat() if kind is float else self.shapes.create_unbacked_symint()

    def unknown_size(self) -> Any:
        """A new unbacked size, which is known only at run time."""
        size = self.shapes.create_unbacked_symint()
        torch._check(size >= 0)  # type: ignore[no-untyped-call]
        return size

    def joined(self, one: torch.Tensor, other: torch.Tensor, free: Container[str] = ()) -> torch.Tensor:
        """A tensor that may be either of the two: sizes that differ become unbacked.  Both have one rank and dtype.

        `free` names the unbacked sizes of `one` that may already be any size.
        """
        pairs = zip(one.shape, other.shape, strict=True)
        sizes = [a if str(a) in free or _equal(a, b) else self._either() for a, b in pairs]
        return torch.empty(sizes, dtype=one.dtype)

    def _either(self) -> Any:
        self.alternatives.append(self.unknown_size())
        return self.alternatives[-1]

    def settled(self) -> list[str]:
        """What torch's shape functions assumed of sizes that differ between two paths, one sentence each."""
        found = [size.node.expr for size in self.alternatives if size.node.expr != size.node._expr]
        return [
            f"a size that differs between two paths is taken to be {self.named(str(taken))}, which torch's shape "
            "functions want; the file may stop with an error where it is not"
            for taken in dict.fromkeys(found)
        ]

    @staticmethod
    def known(number: Any) -> Any:
        """The value of a symbolic number that does not depend on its symbols, else None."""
        expression = number.node.expr
        if isinstance(number, torch.SymBool):
            if statically_known_true(number):
                return True
            return False if statically_known_true(torch.sym_not(number)) else None  # type: ignore[no-untyped-call]
        if expression.is_Integer:
            return int(expression)
        return float(expression) if expression.is_number else None

    def merged(self) -> list[str]:
        """The axes that were declared with different names and that the model takes for one size, one sentence each."""
        first: dict[str, str] = {}
        found = []
        for name, symbol in self.symbols.items():
            text = str(symbol.node.expr)
            other = first.setdefault(text, name)
            if other != name and not symbol.node.expr.is_Integer:
                found.append(f"axes {other!r} and {name!r} were declared apart; the model takes them for one size")
        return found

    def fixed(self) -> dict[str, int]:
        """The axes that were specialized so far, and their sizes."""
        found = {name: symbol.node.expr for name, symbol in self.symbols.items()}
        return {name: int(expression) for name, expression in found.items() if expression.is_Integer}


def _sizes(arg: Any) -> Iterator[Any]:
    """The symbolic sizes of an argument's tensors."""
    if isinstance(arg, torch.Tensor):
        yield from (size for size in arg.shape if isinstance(size, torch.SymInt))
    elif isinstance(arg, (list, tuple)):
        for item in arg:
            yield from _sizes(item)


def _is_limited(expression: Any) -> bool:
    """Whether a size is no sum of products: it may be the same number at nearly all sizes, such as `min(n, 3)`."""
    if expression.is_Add or expression.is_Mul:
        return any(map(_is_limited, expression.args))
    return not (expression.is_Symbol or expression.is_Number or expression.is_Pow)


def _fixes(guard: Any, sizes: Container[Any]) -> bool:
    """Whether a guard says that one of the sizes is a number."""
    if type(guard).__name__ != "Equality":
        return False
    return any(size in sizes and number.is_Integer for size, number in (guard.args, guard.args[::-1]))


def _equal(one: Any, other: Any) -> bool:
    return bool(statically_known_true(one == other))


def _operator(call: Call) -> Any:
    operator = shape_function(call) or operator_of(call.target)
    if operator is None:
        raise ExportError(
            f"{call.target} at {call.source} has no shape function, so its sizes under dynamic axes are unknown",
            code="no-shape-function",
        )
    return operator


def _parameters(target: str, kind: re.Pattern[str]) -> Sequence[str]:
    return [item.name for item in signature(target).parameters if kind.fullmatch(item.type)]


def _is_symbolic(arg: Any) -> bool:
    return isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _number_dtype(number: Any) -> torch.dtype:
    if isinstance(number, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(number, (int, torch.SymInt)) else torch.get_default_dtype()
