"""Records the calls of a model that runs on tensors without data, as calls of the neutral graph.

`call` gets each operator before composite operators fall apart.  It binds the arguments to the schema, finds out what
the results are like, and returns new tensors.  What an operator gives for operands of the same layouts is found out
once, so that twelve equal layers cost as much as one.

Invariants: no call of the model reaches a kernel, so nothing is computed and nothing of the user's is written, unless
somebody asks for elements; then the calls that lead to them run on the example (`data`).  A value has the example's
sizes as its type, as in a trace, and a later stage finds out by itself which of them can change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NoReturn

import torch

from proto_schema.sizes import Dim, Size
from purexport.aten.graph import (
    Arg,
    Call,
    Frame,
    Input,
    ListType,
    Recording,
    ScalarType,
    Source,
    TensorType,
    Value,
    same_bytes,
    tensor_type,
    users_frame,
)
from purexport.errors import ExportError
from purexport.frontends.dispatch import shapes
from purexport.frontends.dispatch.builtins import NAMES
from purexport.frontends.dispatch.data import Elements, Entry
from purexport.frontends.dispatch.decisions import Decisions
from purexport.frontends.dispatch.numbers import SYMBOLIC, Number, wrapped
from purexport.frontends.dispatch.operators import Operator
from purexport.frontends.dispatch.specials import SPECIALS
from purexport.frontends.dispatch.tensors import Layout, Recorded
from purexport.torch_patches.before_composites import below, casting

LEAST = 2
"""The size from which on a declared axis is captured: for 0 and 1 operators broadcast and squeeze in other ways."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_CALL = torch.nn.Module._call_impl.__code__
_NUMBERS = (bool, int, float, complex, str)
_OBJECTS = (torch.dtype, torch.layout, torch.memory_format, torch.device)
_BETWEEN = ("sym_node", _PACKAGE, os.path.join("torch", "__init__.py"))
_META = torch.device("meta")


class Unfollowed(Exception):  # noqa: N818  it never reaches a user
    """An argument that torch itself must see first, such as a tensor of a layer of torch.func."""


class Owned:
    """A tensor of the model, or a constant of its code, with its value in the graph."""

    __slots__ = ("free", "layout", "memory", "tensor", "value")

    def __init__(self, tensor: torch.Tensor, value: Value, layout: Layout, memory: frozenset[int]) -> None:
        self.tensor = tensor
        self.value = value
        self.layout = layout
        self.memory = memory
        self.free = False


class Recorder:
    """One capture.

    `modules` gives the paths of the model's modules.  `sizes` are the example's sizes of the declared axes, by name.
    """

    def __init__(self, modules: Mapping[torch.nn.Module, str], sizes: Mapping[str, int]) -> None:
        self.graph = Recording()
        self.modules = modules
        self.sizes = dict(sizes)
        self.declared = frozenset(sizes)
        self.decisions = Decisions(self.declared)
        self.elements = Elements(self)
        self.log: list[Entry] = []
        self.root: FrameType | None = None
        self.namespaces: list[dict[str, Any]] = []
        self._memories = 0
        self._owned: dict[int, Owned] = {}
        self._by_bytes: dict[Any, Owned] = {}
        self._operators: dict[Any, Operator] = {}
        self._layouts: dict[Any, Layout] = {}
        self._known: dict[Any, Any] = {}
        self._sizes_of: dict[tuple[Value, int], Value] = {}
        self._fresh: dict[Any, Size] = {}
        self._metas: dict[Any, torch.Tensor] = {}

    # -- what there is before the model runs

    def input(self, tensor: torch.Tensor, name: str, sizes: Mapping[int, Dim]) -> Recorded:
        """The tensor that stands for an argument; `sizes` are those of its dynamic axes."""
        meta = self._meta(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        layout = self.layout(meta, tuple(sizes.get(axis, size) for axis, size in enumerate(tensor.shape)))
        value = Value(layout.type)
        self.graph.inputs.append(Input(value, name, "user"))
        made = Recorded.of(self, layout, value, -1, self.memory(), True)
        made.elements = tensor
        return made

    def state(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Make a parameter or buffer known."""
        value = Value(tensor_type(tensor))
        self.graph.inputs.append(Input(value, name, kind, tensor))
        self._keep(tensor, value)

    def _keep(self, tensor: torch.Tensor, value: Value) -> Owned:
        meta = self._meta(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        found = Owned(tensor, value, self.layout(meta), self.memory())
        self._owned[id(tensor)] = found
        self._by_bytes.setdefault(same_bytes(tensor), found)
        return found

    def memory(self) -> frozenset[int]:
        """A storage that nothing else shares."""
        self._memories += 1
        return frozenset([self._memories])

    def _meta(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        key = (shape, strides, dtype)
        found = self._metas.get(key)
        if found is None:
            with below():
                found = self._metas[key] = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        return found

    def layout(self, meta: torch.Tensor, sizes: tuple[Dim, ...] | None = None) -> Layout:
        """The layout of a tensor without data; the same object for the same layout."""
        sizes = tuple(meta.shape) if sizes is None else sizes
        strided = meta.layout is torch.strided
        if not strided:
            self.refuse(f"makes a tensor of the layout {meta.layout}, which is not captured by dispatch")
        key = (sizes, tuple(meta.shape), meta.stride(), meta.dtype, meta.storage_offset())
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = Layout(sizes, meta)
        return found

    def owned(self, tensor: torch.Tensor) -> Owned:
        """What is known of a tensor that is not recorded: the model's own, else it becomes a constant."""
        found = self._owned.get(id(tensor))
        if found is not None:
            return found
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise Unfollowed
        if tensor.layout is not torch.strided or tensor.is_quantized:
            self.refuse("computes with a sparse or quantized tensor, which is not captured by dispatch")
        if tensor.is_meta:
            self.refuse("computes with a tensor on the meta device that is none of its parameters and buffers")
        same = self._by_bytes.get(same_bytes(tensor))
        if same is not None and tensor.dtype == same.tensor.dtype:
            self._owned[id(tensor)] = Owned(tensor, same.value, same.layout, same.memory)
            return self._owned[id(tensor)]
        return self._keep(tensor, self.graph.constant(tensor))

    # -- calls

    def call(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call, which is recorded."""
        if torch.is_autocast_enabled("cpu"):
            cast = casting(overload)
            if cast is not None:
                return cast(*args, **kwargs)
        if torch.is_grad_enabled() and any(item.requires_grad for item in _tensors(args, kwargs)):
            with below():  # autograd sees the call first, and what it calls is recorded
                return overload(*args, **kwargs)
        return self.leaf(overload, args, kwargs)

    def leaf(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call that autograd and autocast have seen."""
        special = SPECIALS.get(overload)
        if special is not None:
            found = special(self, overload, args, kwargs)
            if found is not NotImplemented:
                return found
        try:
            return self.recorded(overload, args, kwargs)
        except Unfollowed:
            with below():
                return overload(*args, **kwargs)

    def operator(self, overload: Any) -> Operator:
        found = self._operators.get(overload)
        if found is None:
            found = self._operators[overload] = Operator(overload)
        return found

    def recorded(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """New tensors for the results of a call, and the call in the graph."""
        operator = self.operator(overload)
        operand = self._operand
        key: list[Any] = [overload]
        values = [operand(item, key) for item in args]
        named = {}
        for name, item in kwargs.items():
            key.append(name)
            named[name] = operand(item, key)
        known = tuple(key)
        recipe = self._known.get(known)
        if recipe is None:
            recipe = self._recipe(operator, args, kwargs)
            if recipe.keeps:
                self._known[known] = recipe
        if recipe.plain:
            return recipe.results
        return self._made(operator, args, kwargs, operator.bound(values, named), recipe)

    def _operand(self, item: Any, key: list[Any]) -> Arg:
        kind = type(item)
        if kind is Recorded:
            key.append(item.layout_)
            return item.value
        if item is None or kind in _NUMBERS:
            key.append(kind)
            key.append(item)
            return item
        if kind in (list, tuple):
            key.append(len(item))
            return [self._operand(one, key) for one in item]
        if kind in SYMBOLIC:
            number = item.node
            key.append(number.key)
            return self.emitted(number)
        if isinstance(item, torch.Tensor):
            owned = self.owned(item)
            key.append(owned.layout)
            return owned.value
        if isinstance(item, _OBJECTS):
            key.append(item)
            return item
        if isinstance(item, torch.Generator):
            return None
        self.refuse(f"gives an operator a {kind.__name__}, which is not captured by dispatch")

    def _made(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], bound: dict[str, Any], made: Recipe
    ) -> Any:
        recipe = made.results
        source = self.source()
        place = len(self.log)
        tensors = _tensors(args, kwargs)
        free = operator.random or _has_symbols(args, kwargs)
        free = free or any(item.free if type(item) is Recorded else self.owned(item).free for item in tensors)
        written = [args[at] if at < len(args) else kwargs[operator.names[at]] for at in operator.writes
                   if at < len(args) or operator.names[at] in kwargs]  # fmt: skip
        if operator.changes_layout:
            for item in written:
                self._emit_sizes(item)
        entry = Entry(operator, args, kwargs, [], written, tensors)
        self.log.append(entry)
        outputs: list[Value] = []
        several = recipe if isinstance(recipe, (list, tuple)) else [recipe]
        shared: frozenset[int] | None = None
        results: list[Any] = []
        for index, layout in enumerate(several):
            same = operator.same[index] if index < len(operator.same) and not isinstance(recipe, list) else None
            if layout is None:
                outputs.append(Value(TensorType(torch.float32)))
                results.append(None)
                continue
            value = Value(layout.type)
            outputs.append(value)
            if same is not None:
                result = args[same] if same < len(args) else kwargs[operator.names[same]]
                if type(result) is Recorded:
                    result.free = result.free or free
                    if operator.changes_layout:
                        result.layout_, result.numbers, result.value = layout, None, value
                results.append(result)
                continue
            if shared is None and made.shares:
                shared = frozenset().union(*map(self.memory_of, tensors))
            memory = shared or self.memory()
            results.append(Recorded.of(self, layout, value, place, memory, free))
        entry.results = results
        if isinstance(recipe, list):  # a list of tensors is one value, which is taken apart
            whole = Value(ListType(len(recipe)))
            self.graph.calls.append(Call(operator.target, bound, [whole], source))
            for index, value in enumerate(outputs):
                self.graph.calls.append(Call("prim::getitem", {"list": whole, "index": index}, [value], source))
            return results
        for item in written:
            target = item if type(item) is Recorded else self.owned(item)
            target.free = target.free or free
        self.graph.calls.append(Call(operator.target, bound, outputs if recipe is not None else [], source))
        if isinstance(recipe, tuple):
            return tuple(results)
        return results[0] if recipe is not None else None

    def _emit_sizes(self, item: Any) -> None:
        """Put the sizes of a tensor into the graph that the model has asked for, before they become others."""
        if type(item) is Recorded:
            for number in item.numbers or ():
                self.emitted(number.node if isinstance(number, SYMBOLIC) else number)

    def memory_of(self, item: Any) -> frozenset[int]:
        """The storages that a tensor may share."""
        return item.memory if type(item) is Recorded else self.owned(item).memory

    # -- layouts of results

    def _recipe(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe:
        """What the results are like."""
        fresh = operator.changes_layout

        def example(item: Any) -> Any:
            if type(item) is Recorded:
                return item.layout_.copied() if fresh else item.layout_.meta
            if isinstance(item, SYMBOLIC):
                return item.node.example
            if isinstance(item, torch.Tensor):
                return self.owned(item).layout.meta
            return item

        found: Any
        if operator.target in _LAYOUT_BY_KERNEL:
            return Recipe(self._by_data(operator, args, kwargs), shares=True, keeps=False)
        try:
            found = self._by_torch(operator, args, kwargs, example)
        except (ExportError, Unfollowed):
            raise
        except Exception as error:  # noqa: BLE001  torch has no meta function, or one that refuses what the kernel takes
            try:
                found = self._by_data(operator, args, kwargs)
            except ExportError:
                raise
            except Exception:  # noqa: BLE001  the kernel refuses it, too: what torch said first
                raise error from None
            return Recipe(found, shares=True, keeps=False)
        symbolic = _has_symbols(args, kwargs) or any(
            not item.layout_.static for item in _tensors(args, kwargs) if type(item) is Recorded
        )
        if isinstance(found, torch.Tensor):
            sizes = self._sizes(operator, args, kwargs, [found])[0] if symbolic else None
            return Recipe(self.layout(found, sizes), _shares(operator, [found], self._operand_metas(args, kwargs)))
        if isinstance(found, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in found):
            sizes_of = self._sizes(operator, args, kwargs, list(found)) if symbolic else [None] * len(found)
            made = [
                None if item is None else self.layout(item, sizes)
                for item, sizes in zip(found, sizes_of, strict=True)
            ]
            shares = _shares(operator, found, self._operand_metas(args, kwargs))
            return Recipe(made if isinstance(found, list) else tuple(made), shares)
        if found is None or (isinstance(found, (list, tuple)) and not found):
            return Recipe(found)
        return Recipe(found, plain=True, keeps=not symbolic)

    def _operand_metas(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        return [
            item.layout_.meta if type(item) is Recorded else self.owned(item).layout.meta
            for item in _tensors(args, kwargs)
        ]

    def _by_torch(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], example: Any) -> Any:
        """What torch's meta function gives."""
        metas = _mapped(example, args)
        named = {name: _META if name == "device" else _mapped(example, item) for name, item in kwargs.items()}
        metas = [_META if isinstance(item, torch.device) else item for item in metas]
        if "device" in operator.names[len(metas) :] and not _tensors(args, kwargs):
            named["device"] = _META
        with below():
            return operator.overload(*metas, **named)

    def _sizes(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], found: Sequence[Any]
    ) -> list[tuple[Dim, ...] | None]:
        """The sizes of results of which the example is known."""
        if operator.same and operator.same[0] is not None and not operator.changes_layout and len(found) == 1:
            item = args[operator.same[0]] if operator.same[0] < len(args) else None
            if type(item) is Recorded:
                return [item.layout_.sizes]
        row = shapes.row_of(operator.target, operator.overload)
        by_row = self._by_row(row, operator, args, kwargs, found) if row is not None else None
        return by_row or self._by_other_sizes(operator, args, kwargs, found)

    def _by_row(
        self, row: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], found: Any
    ) -> list[tuple[Dim, ...] | None] | None:
        def operand(item: Any) -> Any:
            if type(item) is Recorded:
                layout = item.layout_
                return tuple(map(shapes.extent, layout.sizes, layout.example))
            if isinstance(item, torch.SymInt):
                return shapes.extent(item.node.size, item.node.example)
            if isinstance(item, SYMBOLIC):
                return item.node.example
            if isinstance(item, torch.Tensor):
                return tuple(item.shape)
            return item

        bound = operator.bound(list(_mapped(operand, args)), {k: _mapped(operand, v) for k, v in kwargs.items()})
        try:
            made = row(*bound.values())
        except (shapes.UnfitError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
            return None
        several = made if isinstance(made, list) else [made]
        if len(several) != len(found):
            return None
        sizes: list[tuple[Dim, ...] | None] = []
        for shape, tensor in zip(several, found, strict=True):
            examples = tuple(item.example if isinstance(item, shapes.Extent) else item for item in shape)
            if tensor is None or examples != tuple(tensor.shape):
                return None
            sizes.append(tuple(item.size if isinstance(item, shapes.Extent) else item for item in shape))
        return sizes

    def _by_other_sizes(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], found: Sequence[Any]
    ) -> list[tuple[Dim, ...] | None]:
        """The sizes of results, from what torch says at other sizes."""
        names: set[str] = set()
        for item in _tensors(args, kwargs):
            if type(item) is Recorded:
                names.update(*(size.symbols for size in item.layout_.sizes if isinstance(size, Size)))
        for item in _numbers(args, kwargs):
            if isinstance(item.node.size, Size):
                names |= item.node.size.symbols
        others = list(self._other_sizes(sorted(names)))
        results = [self._results_at(operator, args, kwargs, values) for values in others]
        operands = [(size, tuple(_value(size, values) for values in ({**self.sizes}, *others)))
                    for item in _tensors(args, kwargs) if type(item) is Recorded
                    for size in item.layout_.sizes if isinstance(size, Size)]  # fmt: skip
        sizes: list[tuple[Dim, ...] | None] = []
        for index, tensor in enumerate(found):
            if tensor is None:
                sizes.append(None)
                continue
            shape: list[Dim] = []
            for axis, size in enumerate(tensor.shape):
                seen = [int(size)]
                for result in results:
                    other = result[index] if result is not None and len(result) == len(found) else None
                    fits = other is not None and other.dim() == tensor.dim()
                    seen.append(int(other.shape[axis]) if fits else None)  # type: ignore[arg-type]
                again = shapes.found_again(seen, operands)
                shape.append(self.fresh(int(size), low=0) if again is None else again)
            sizes.append(tuple(shape))
        return sizes

    def _other_sizes(self, names: Sequence[str]) -> Iterator[dict[str, int]]:
        """Sizes far from the example's and from each other, small and large, each of two the larger one once.

        So a minimum of two sizes is neither of them, and a half rounded down is not a half.
        """
        many = len(names)
        for first, step in ((43, 12), (60 + 7 * many, -7), (3, 2), (1021 + 38 * many, -38)):
            yield {name: first + step * place for place, name in enumerate(names)}

    def _results_at(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], values: Mapping[str, int]
    ) -> list[Any] | None:
        def example(item: Any) -> Any:
            if type(item) is Recorded:
                layout = item.layout_
                if layout.static:
                    return layout.copied() if operator.changes_layout else layout.meta
                shape = [_value(size, values) for size in layout.sizes]
                if min(shape, default=0) < 0:
                    raise RuntimeError("no such size")
                return torch.empty(shape, dtype=layout.meta.dtype, device="meta")
            if isinstance(item, torch.SymInt) and item.node.size is not None:
                return _value(item.node.size, values)
            if isinstance(item, SYMBOLIC):
                raise RuntimeError("a number that is not followed")
            return self.owned(item).layout.meta if isinstance(item, torch.Tensor) else item

        try:
            with below():
                found = self._by_torch(operator, args, kwargs, example)
        except Exception:  # noqa: BLE001  the operator does not take these sizes, and that is all that is asked
            return None
        return [found] if isinstance(found, torch.Tensor) else list(found) if isinstance(found, (list, tuple)) else None

    def _by_data(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Layouts of results that torch finds out only with the elements: no size of them is known beyond the example."""
        found = self.elements.result_of(operator, args, kwargs)
        constant = not any(item.free for item in _tensors(args, kwargs) if type(item) is Recorded)

        several = [found] if isinstance(found, torch.Tensor) else list(found)
        row = shapes.row_of(operator.target, operator.overload)
        by_row = self._by_row(row, operator, args, kwargs, several) if row is not None and not constant else None

        def layout(place: int, item: Any) -> Any:
            if item is None:
                return None
            if item.is_quantized or item.layout is not torch.strided:
                self.refuse("makes a sparse or quantized tensor, which is not captured by dispatch")
            meta = self._meta(tuple(item.shape), tuple(item.stride()), item.dtype)
            if constant:
                return self.layout(meta)
            if by_row is not None:
                return self.layout(meta, by_row[place])
            chosen = _CHOSEN.get(operator.target.partition(".")[0])
            sizes = tuple(
                self.fresh(size, low=0) if chosen is None or axis in chosen else size
                for axis, size in enumerate(item.shape)
            )
            return self.layout(meta, sizes)

        layouts = [layout(place, item) for place, item in enumerate(several)]
        return layouts[0] if isinstance(found, torch.Tensor) else layouts if isinstance(found, list) else tuple(layouts)

    # -- numbers

    def symbol(self, name: str) -> Dim:
        """A declared axis as a size."""
        return Size.symbol(name, LEAST)

    def example_of(self, name: str) -> int:
        """The value of a symbol at the example."""
        return self.sizes[name]

    def fresh(self, example: int, low: int | None = None) -> Size:
        """A size of which nothing is known."""
        name = f"u{len(self.sizes)}"
        self.sizes[name] = example
        return Size.symbol(name, low)

    def computed(self, target: str, operands: Any, kind: type, example: Any, size: Dim | None) -> Number:
        """A number that follows from others."""
        if kind is int and size is None:
            key = (target, *(item.key if isinstance(item, Number) else item for item in operands))
            size = self._fresh.get(key)
            if size is None:
                size = self._fresh[key] = self.fresh(int(example))
        number = Number(self, kind, example, size, (target, operands))
        return number

    def emitted(self, number: Any) -> Arg:
        """A number as an argument of a call, with the calls that compute it."""
        if not isinstance(number, Number):
            return number
        if number.fixed:
            return number.example
        if number.value is None:
            first, second = number.origin
            if isinstance(first, Recorded):
                number.value = self._size_of(first, second)
            else:
                args = {"ab"[place]: self.emitted(item) for place, item in enumerate(second)}
                number.value = self._emit(first, args, number.kind)
        return number.value

    def _emit(self, target: str, args: dict[str, Any], kind: type) -> Value:
        value = Value(ScalarType(kind))
        self.graph.calls.append(Call(target, args, [value], self.source()))
        return value

    def _size_of(self, tensor: Recorded, axis: int) -> Value:
        key = (tensor.value, axis)
        found = self._sizes_of.get(key)
        if found is None:
            found = self._sizes_of[key] = self._emit("aten::size.int", {"self": tensor.value, "dim": axis}, int)
        return found

    def number_of(self, tensor: Recorded, target: str, args: dict[str, Any], kind: type, example: Any) -> Any:
        """A Python number that the graph computes of a tensor."""
        number = Number(self, kind, example, self.fresh(example) if kind is int else None, (target, (tensor,)))
        number.value = self._emit(target, args, kind)
        return wrapped(number)

    def numbers_of_sizes(self, tensor: Recorded) -> list[int]:
        """Sizes for code that takes plain numbers only: what depends on them becomes fixed."""
        return [int(size) for size in tensor.shape]

    # -- questions

    def answer(self, number: Number) -> bool:
        found = self.decisions.provable(number)
        if found is not None:
            return found
        self._note_namespace()
        return self.decisions.answer(number, self.line())

    def provable(self, number: Number) -> bool | None:
        return self.decisions.provable(number)

    def assume(self, number: Number) -> bool:
        return self.decisions.assume(number, self.line())

    def _note_namespace(self) -> None:
        """Note the module that calls a builtin which would keep the number, if it had our form there."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and any(part in frame.f_code.co_filename for part in _BETWEEN):
            frame = frame.f_back
        if frame is not None and NAMES.intersection(frame.f_code.co_names):
            if not any(frame.f_globals is one for one in self.namespaces):
                self.namespaces.append(frame.f_globals)

    def require(self, number: Number) -> Any:
        self._note_namespace()
        line = self.line()
        text = f"the model takes a number at {line} that the data decides; the file has that of the example"
        self.decisions.require(number, line, text)
        return number.example

    def note_data(self, tensor: Recorded, what: str) -> None:
        """Note that Python takes something that the elements decide."""
        if not tensor.free:
            return
        self.decisions.of_data.setdefault(
            f"the model takes {what} at {self.line()} that the data decides; the file has that of the example"
        )

    def elements_of(self, tensor: Recorded) -> torch.Tensor:
        """The elements of a tensor, all of which Python takes: so many as there are in the example."""
        self.note_data(tensor, "numbers")
        for name in self._axes_behind(tensor):
            self.decisions.learn(self.symbol(name), self.sizes[name], self.line())
        return self.elements.of(tensor)

    def _axes_behind(self, tensor: Recorded) -> list[str]:
        """The declared axes of a tensor whose elements Python takes all of."""
        found = {name for size in tensor.layout_.sizes if isinstance(size, Size) for name in size.symbols}
        return sorted(found & self.declared)

    # -- places

    def line(self) -> str:
        """The line of the model that is running."""
        frames, _ = _frames(sys._getframe(1), self.root)
        found = users_frame(_lines(frames))
        return f"{found[0]}:{found[1]}" if found else "the model"

    def source(self) -> Source:
        frames, module = _frames(sys._getframe(1), self.root)
        scope = self.modules.get(module, "") if module is not None else ""
        return Source("" if scope == "(root)" else scope, lambda: _lines(frames))

    def refuse(self, what: str) -> NoReturn:
        """Raise ExportError for what cannot be recorded exactly."""
        raise ExportError(
            f"the model {what}, at {self.line()}; use capture='trace' or capture='export'", code="dispatch-cannot-record"
        )


class Recipe:
    """What a call gives: layouts, or with `plain` a result that is no tensor.

    `shares` is whether a result may share the memory of an operand, `keeps` whether all is the same for all operands of
    equal layouts.
    """

    __slots__ = ("keeps", "plain", "results", "shares")

    def __init__(self, results: Any, shares: bool = False, plain: bool = False, keeps: bool = True) -> None:
        self.results = results
        self.shares = shares
        self.plain = plain
        self.keeps = keeps


def _shares(operator: Operator, found: Sequence[Any], operands: Sequence[torch.Tensor]) -> bool:
    """Whether a result has the storage of an operand."""
    if operator.changes_layout:
        return True
    storages = {item.untyped_storage()._cdata for item in operands}
    return any(item.untyped_storage()._cdata in storages for item in found if item is not None)


# where torch's meta function gives another dtype than the kernel
_LAYOUT_BY_KERNEL = frozenset(["quantized_decomposed::choose_qparams_per_token"])
# sizes that the data decides, by operator: the axes of the results
_CHOSEN = {
    "aten::nonzero": (0,),
    "aten::masked_select": (0,),
    "aten::argwhere": (0,),
}


def _value(size: Dim, values: Mapping[str, int]) -> int:
    return size.at(values) if isinstance(size, Size) else size


def _mapped(function: Callable[[Any], Any], items: Any) -> Any:
    if type(items) in (list, tuple):
        return [_mapped(function, item) for item in items]
    return function(items)


def _tensors(args: Any, kwargs: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []

    def walk(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif type(item) in (list, tuple):
            for one in item:
                walk(one)

    for item in args:
        walk(item)
    for item in kwargs.values():
        walk(item)
    return found


def _numbers(args: Any, kwargs: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []

    def walk(item: Any) -> None:
        if isinstance(item, SYMBOLIC):
            found.append(item)
        elif type(item) in (list, tuple):
            for one in item:
                walk(one)

    for item in (*args, *kwargs.values()):
        walk(item)
    return found


def _has_symbols(args: Any, kwargs: Mapping[str, Any]) -> bool:
    return bool(_numbers(args, kwargs))


def _frames(frame: FrameType | None, root: FrameType | None) -> tuple[list[tuple[CodeType, int]], Any]:
    """The frames up to the call of the model, innermost first, and the innermost module."""
    found = []
    module = None
    while frame is not None and frame is not root:
        code = frame.f_code
        if module is None and code is _CALL:
            module = frame.f_locals["self"]
        found.append((code, frame.f_lasti))
        frame = frame.f_back
    return found, module


def _lines(frames: Sequence[tuple[CodeType, int]]) -> list[Frame]:
    return [(code.co_filename, _line(code, at)) for code, at in frames]


def _line(code: CodeType, at: int) -> int:
    for start, end, line in code.co_lines():
        if start <= at < end and line is not None:
            return line
    return code.co_firstlineno


