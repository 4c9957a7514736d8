"""What the results of a call are like, found out once for operands of the same layouts.

torch's meta function says it for the example.  Where sizes can change, a row or torch at other sizes says how they
follow from the operands' (`shapes`).  Where torch has no meta function, or one that refuses what the kernel takes, the
kernel itself runs on the elements of the example (`data`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from proto_schema.sizes import Dim, Size
from purexport.dtypes import is_quantized
from purexport.errors import ExportError
from purexport.facts.table import shape_function_of
from purexport.frontends.trace import metas, shapes
from purexport.frontends.trace.arguments import leaves, mapped, numbers_in, tensors_in
from purexport.frontends.trace.decisions import LEAST
from purexport.frontends.trace.numbers import SYMBOLIC
from purexport.frontends.trace.operators import Operator
from purexport.frontends.trace.tensors import Layout, Recorded
from purexport.torch_patches.before_composites import below

_META = torch.device("meta")


class UnfollowedError(Exception):
    """An argument that torch itself must see first, such as a tensor of a layer of torch.func.  No user sees it."""


class RefusedError(Exception):
    """Operands that a kernel does not take; the cause is what it says.  No user sees it."""


class Recipe:
    """What a call gives: layouts, or with `plain` a result that is no tensor.

    `shares` is whether a result may share the memory of an operand, `keeps` whether all is the same for all operands of
    equal layouts.  `elements` are those of the results, where the call had to run for the layouts.
    """

    __slots__ = ("elements", "keeps", "plain", "results", "shares")

    def __init__(
        self, results: Any, shares: bool = False, plain: bool = False, keeps: bool = True, elements: Any = None
    ) -> None:
        self.results = results
        self.elements = elements
        self.shares = shares
        self.plain = plain
        self.keeps = keeps


def _shares(operator: Operator, found: Sequence[Any], operands: Sequence[torch.Tensor]) -> bool:
    """Whether a result has the storage of an operand."""
    if operator.changes_layout:
        return True
    storages = {item.untyped_storage()._cdata for item in operands}
    return any(item.untyped_storage()._cdata in storages for item in found if isinstance(item, torch.Tensor))


class Layouts:
    """The layouts of one capture; `owner` is the recorder."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._layouts: dict[Any, Layout] = {}
        self._metas: dict[Any, torch.Tensor] = {}
        self._rows = partial(metas.rows_inside, owner.operator)

    def meta(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An example without data."""
        dtype = torch.float32 if is_quantized(dtype) else dtype
        key = (shape, strides, dtype)
        found = self._metas.get(key)
        if found is None:
            with below():
                found = self._metas[key] = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        return found

    def layout(
        self, meta: torch.Tensor, sizes: tuple[Dim, ...] | None = None, dtype: torch.dtype | None = None
    ) -> Layout:
        """The layout of a tensor without data; the same object for the same layout.

        `dtype` is that of the tensor, where `meta` stands for a quantized one.
        """
        sizes = tuple(meta.shape) if sizes is None else sizes
        strided = meta.layout is torch.strided
        if not strided:
            self.owner.refuse(f"makes a tensor of the layout {meta.layout}, which a trace does not record")
        dtype = dtype or meta.dtype
        key = (sizes, tuple(meta.shape), meta.stride(), dtype, meta.storage_offset())
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = Layout(sizes, meta, dtype)
        return found

    def recipe(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe:
        """What the results are like."""
        fresh = operator.changes_layout

        def example(item: Any) -> Any:
            if type(item) is Recorded:
                return item.layout_.copied() if fresh else item.layout_.meta
            if isinstance(item, SYMBOLIC):
                return item.node.example
            if isinstance(item, torch.Tensor):
                return self.owner.owned(item).layout.meta
            if isinstance(item, torch.ScriptObject):
                return self.owner.packed(item).tensors
            return item

        found: Any
        if self._is_by_kernel(operator, args, kwargs):
            return self._by_data(operator, args, kwargs)
        try:
            found, shares = self._found(operator, args, kwargs, example)
        except (ExportError, UnfollowedError):
            raise
        except RefusedError as refusal:
            raise (refusal.__cause__ or refusal) from None
        except Exception:
            return self._by_data(operator, args, kwargs)  # what the kernel refuses, it says itself
        symbolic = bool(numbers_in(args, kwargs)) or any(
            not item.layout_.static for item in tensors_in(args, kwargs) if type(item) is Recorded
        )
        several = list(leaves([found], {}))
        if any(isinstance(item, torch.Tensor) for item in several):
            sizes_of = self._sizes(operator, args, kwargs, several) if symbolic else [None] * len(several)
            if isinstance(found, torch.Tensor) and operator.target in _JOINING:
                bound = operator.bound(list(args), dict(kwargs))
                sizes_of = [self._of_steps(bound, tuple(found.shape), sizes_of[0])]
            made = iter([
                None if item is None else self.layout(item, sizes)
                for item, sizes in zip(several, sizes_of, strict=True)
            ])  # fmt: skip
            return Recipe(_shaped(found, made), shares)
        if found is None or (isinstance(found, (list, tuple)) and not found):
            return Recipe(found)
        return Recipe(found, plain=True, keeps=not symbolic)

    def _is_by_kernel(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether only the kernel says what the results are like."""
        layouts = [self.layout_of(item) for item in tensors_in(args, kwargs)]
        if (
            operator.target == _BY_ELEMENTS
            or operator.target.startswith(_QUANTIZING)
            or any(is_quantized(item.dtype) for item in layouts)
        ):
            return True
        if operator.target in _OTHER_DTYPES:
            return operator.target in _ALWAYS or {item.dtype for item in layouts} not in _USUAL
        return False

    def layout_of(self, item: Any) -> Layout:
        """The layout of a tensor, recorded or not."""
        found: Layout = item.layout_ if type(item) is Recorded else self.owner.owned(item).layout
        return found

    def _found(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], example: Any, asks: bool = True
    ) -> tuple[Any, bool]:
        """What rows give, or else torch's meta function; and whether it has memory of an operand."""
        with below():
            given = [_META if isinstance(item, torch.device) else item for item in mapped(example, args)]
            named = {name: _META if name == "device" else mapped(example, item) for name, item in kwargs.items()}
            try:
                form = metas.form_of(operator, operator.bound(given, named))
                found = metas.made(form, self.meta)
                fresh = not isinstance(form, torch.Tensor)
            except shapes.UnfitError:
                found, fresh = self._by_torch(operator, given, named, asks), False
        return found, not fresh and _shares(operator, list(leaves([found], {})), tensors_in(given, named))

    def _by_torch(self, operator: Operator, given: Sequence[Any], named: Mapping[str, Any], asks: bool) -> Any:
        """What torch's meta function gives.  Raises RefusedError where a kernel that one `asks` takes them not."""
        if asks and operator.target in _LAX:
            try:
                operator.overload(
                    *mapped(_zeros, given), **{name: mapped(_zeros, item) for name, item in named.items()}
                )
            except Exception as error:
                raise RefusedError from error
        if operator.kernel is not operator.overload and not tensors_in(given, named):
            # torch finds no kernel for an operator of our own that makes a tensor of numbers alone
            shape = shape_function_of(operator.target)
            return shape(**{**operator.bound(list(given), dict(named)), "device": _META}) if shape is not None else None
        if operator.target.startswith(_BY_FACT):
            shape = shape_function_of(operator.target)
            return shape(**operator.bound(list(given), dict(named))) if shape is not None else None
        with self._rows():
            return operator.overload(*given, **named)

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
        if by_row is not None and operator.target.partition(".")[0] in _TAKEN_APART:
            self._by_other_sizes(operator, args, kwargs, found)  # for the length of the list alone
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

        bound = operator.bound(list(mapped(operand, args)), {k: mapped(operand, v) for k, v in kwargs.items()})
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
        for item in tensors_in(args, kwargs):
            if type(item) is Recorded:
                names.update(*(size.symbols for size in item.layout_.sizes if isinstance(size, Size)))
        for item in numbers_in(args, kwargs):
            if isinstance(item.node.size, Size):
                names |= item.node.size.symbols
        others = list(self._other_sizes(sorted(names)))
        results = [self._results_at(operator, args, kwargs, values) for values in others]
        if results[-1] is None:  # an operator need not take the least sizes
            del others[-1], results[-1]
        self._require_count(operator, args, kwargs, found, results)
        operands = [(size, tuple(_value(size, values) for values in ({**self.owner.sizes}, *others)))
                    for item in tensors_in(args, kwargs) if type(item) is Recorded
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
                    seen.append(int(other.shape[axis]) if other is not None and fits else None)  # type: ignore[arg-type]
                again = shapes.found_again(seen, operands)
                shape.append(self.owner.fresh(int(size), low=0) if again is None else again)
            sizes.append(tuple(shape))
        return sizes

    def _of_steps(
        self, bound: Mapping[str, Any], shape: tuple[int, ...], sizes: tuple[Dim, ...] | None
    ) -> tuple[Dim, ...] | None:
        """The sizes of tensors that are joined, one of each step of a loop."""
        steps = self.owner.steps(len(bound["tensors"]))
        if steps is None or not shape:
            return sizes
        axis = bound["dim"] % len(shape)
        each = shape[axis] // len(bound["tensors"])
        if each * len(bound["tensors"]) != shape[axis]:
            return sizes
        found = shape if sizes is None else sizes
        return (*found[:axis], steps * each, *found[axis + 1 :])

    def _require_count(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], found: Sequence[Any], results: Any
    ) -> None:
        """An axis that is taken apart into a list has the example's size, if the list is longer at other sizes."""
        if all(result is None or len(result) == len(found) for result in results):
            return
        bound = operator.bound(list(args), dict(kwargs))
        tensor, dim = bound.get("self"), bound.get("dim", 0)
        if type(tensor) is not Recorded or operator.target.partition(".")[0] in _COUNTED:
            return
        owner, size = self.owner, tensor.layout_.sizes[dim]
        if isinstance(size, Size) and not owner.declared.issuperset(size.symbols):
            owner.refuse("takes a tensor apart into pieces that the data counts, which a trace does not record")
        splits = operator.target != "aten::unbind.int"
        owner.splits = owner.splits or splits
        if not (splits and owner.as_many_pieces):
            int(tensor.shape[dim])

    def _other_sizes(self, names: Sequence[str]) -> Iterator[dict[str, int]]:
        """Sizes far from the example's and from each other, small and large, each of two the larger one once.

        So a minimum of two sizes is neither of them, and a half rounded down is not a half.  The least ones are last.
        """
        many = len(names)
        for first, step in ((43, 12), (60 + 7 * many, -7), (3, 2), (1021 + 38 * many, -38), (LEAST, 1)):
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
            if isinstance(item, torch.ScriptObject):
                return [
                    self.meta(tuple(one.shape), tuple(one.stride()), one.dtype)
                    if isinstance(one, torch.Tensor)
                    else one
                    for one in self.owner.packed(item).tensors
                ]
            return self.owner.owned(item).layout.meta if isinstance(item, torch.Tensor) else item

        try:
            with below():
                found, _ = self._found(operator, args, kwargs, example, False)
        except Exception:
            return None
        return list(leaves([found], {})) if isinstance(found, (torch.Tensor, list, tuple)) else None

    def _by_data(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe:
        """What the results are like where torch finds that out with the elements only: the call runs on the example."""
        found = self.owner.elements.result_of(operator, args, kwargs)
        if not isinstance(found, (torch.Tensor, list, tuple)):
            return Recipe(found, plain=True, keeps=False)
        several = list(leaves([found], {}))
        tensors = tensors_in(args, kwargs)
        constant = not numbers_in(args, kwargs) and not any(item.free for item in tensors if type(item) is Recorded)
        sizes: list[tuple[Dim, ...] | None] = [None] * len(several)
        if operator.target == _BY_ELEMENTS:
            sizes = [tuple([self.owner.fresh(size, low=0) for size in item.shape]) for item in several]
        elif not constant:
            sizes = self._sizes(operator, args, kwargs, several)
        chosen = _CHOSEN.get(operator.target.partition(".")[0])
        made: list[Layout | None] = []
        for item, shape in zip(several, sizes, strict=True):
            if item is None:
                made.append(None)
                continue
            if item.layout is not torch.strided:
                self.owner.refuse("makes a sparse tensor, which a trace does not record")
            meta = self.meta(tuple(item.shape), tuple(item.stride()), item.dtype)
            if shape is None or chosen is None:
                made.append(self.layout(meta, shape, item.dtype))
                continue
            other = tuple(one if axis in chosen else item.shape[axis] for axis, one in enumerate(shape))
            made.append(self.layout(meta, other, item.dtype))
        operands = self.owner.elements.reals(tensors)
        shares = _shares(operator, several, operands)
        return Recipe(_shaped(found, iter(made)), shares, keeps=False, elements=several)


def _zeros(item: Any) -> Any:
    return torch.zeros(item.shape, dtype=item.dtype) if isinstance(item, torch.Tensor) else item


def _shaped(like: Any, items: Iterator[Any]) -> Any:
    """The items in the lists and tuples of `like`."""
    if isinstance(like, (list, tuple)):
        return type(like)(_shaped(item, items) for item in like)
    return next(items)


# operators of which torch's functions for tensors without data take what the kernels refuse
_REDUCED = "max min max.dim min.dim sort tril triu index_select softmax.int log_softmax.int _softmax _log_softmax"
_PRODUCTS = "mm bmm addmm matmul baddbmm mv dot conv_transpose1d"
_OF_FLOATS = "gelu silu elu leaky_relu hardtanh hardswish hardsigmoid softplus mish celu selu max_pool2d avg_pool2d"
_OF_FLOATS += " adaptive_avg_pool2d adaptive_avg_pool1d avg_pool1d max_pool1d"
_OF_BITS = "bitwise_not bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor"

_LAX = frozenset(f"aten::{name}" for names in (_REDUCED, _PRODUCTS, _OF_FLOATS, _OF_BITS) for name in names.split())
# where torch's meta function gives another dtype than the kernel, unless all operands have one of the usual dtypes
_ALWAYS = frozenset(["quantized_decomposed::choose_qparams_per_token"])
_OTHER_DTYPES = _ALWAYS | {
    *("aten::huber_loss", "aten::native_layer_norm"),
    *("aten::native_batch_norm", "aten::_native_batch_norm_legit.no_stats"),
}
_USUAL = ({torch.float32}, {torch.float64})
_QUANTIZING = ("quantized::", "aten::quantize_per", "aten::quantized_")
# torch has no meta function, or one that runs all steps in Python and takes seconds to load
_BY_FACT = (*_QUANTIZING, "aten::lstm.", "aten::gru.", "aten::rnn_tanh.", "aten::rnn_relu.")
_JOINING = frozenset(["aten::stack", "aten::cat"])
_TAKEN_APART = frozenset(f"aten::{name}" for name in ("split", "unsafe_split", "unbind"))
# lists of so many tensors as a number among the arguments says, at least for axes that are long enough
_COUNTED = frozenset(f"aten::{name}" for name in ("chunk", "unsafe_chunk", "tensor_split", "split_with_sizes"))
# sizes that the data decides, by operator: the axes of the results
_BY_ELEMENTS = "aten::_reshape_from_tensor"  # whose result has the sizes that a tensor holds
_CHOSEN = {
    "aten::nonzero": (0,),
    "aten::masked_select": (0,),
    "aten::argwhere": (0,),
}


def _value(size: Dim, values: Mapping[str, int]) -> int:
    """The size at these values; -1 where there is none, because something is divided by zero."""
    try:
        return size.at(values) if isinstance(size, Size) else size
    except ZeroDivisionError:
        return -1
