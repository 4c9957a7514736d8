"""In-place operators and writes through views become pure calls, by the alias annotations of their schemas.

Every tensor belongs to a storage.  A view knows its parent (the base or another view) and the call that made it.  A
write through a view becomes a chain of inverse calls (`slice_scatter`, `select_scatter`, ...) up to the storage's base.
When another view of that storage is read later, its chain of calls is repeated from the new base.

It may be unknown whether two tensors alias each other (`aliasing`).  Where a write would then show the difference, the
export is refused.  Graphs without writes pass through unchanged.  Branches and loops are in `blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.graph import (
    AtenGraph,
    AtenValue,
    Call,
    Input,
    ListType,
    TensorType,
    map_values,
    tensor_type,
    values_in,
)
from purexport.aten.schema import Signature, signature
from purexport.errors import ExportError
from purexport.facts.fact import Aliases, UnknownInverse
from purexport.facts.table import fact_of, may_return_itself, view_in_place
from purexport.functionalize import blocks
from purexport.functionalize.aliasing import (
    hidden_sources,
    is_bounded,
    result_dtype,
    shares_if_whole,
    shares_storage,
    shares_where_axes_are,
)
from purexport.functionalize.blocks import Order
from purexport.functionalize.out_of_place import gives_what_it_writes, pure_exists, pure_target, renamed
from purexport.functionalize.running_stats import new_statistics
from purexport.functionalize.storages import Alias, Journal
from purexport.functionalize.strided import Strided, is_computed
from purexport.functionalize.view_inverses import inverse, positions, scattered


@dataclass(frozen=True)
class Mutation:
    """A graph input that the model writes to, and its value at the end; None when the capture does not know it."""

    input: Input
    value: AtenValue | None
    place: str


@dataclass
class Functionalized:
    """The pure graph, and what the model would have written to its inputs, parameters and buffers."""

    graph: AtenGraph
    mutations: list[Mutation] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def with_graph(self, graph: AtenGraph) -> Functionalized:
        """The same with other inputs of the same values in the graph, as renamed ones are."""
        found = {item.value: item for item in graph.inputs}
        mutations = [replace(item, input=found[item.input.value]) for item in self.mutations]
        return replace(self, graph=graph, mutations=mutations)


def functionalize(graph: AtenGraph, *, sizes_of_example: bool = False, has_ones: bool = False) -> Functionalized:
    """`graph` without in-place operators.  Raises ExportError for a write whose effect cannot be reproduced exactly.

    With `sizes_of_example` the types hold for the example only, so no positions may be computed from them.  With
    `has_ones` the user's example has one element on an axis that has more here.  The remarks are of writes that are
    right for some sizes.
    """
    if not any(_writes(call) for call in graph.calls):
        return Functionalized(graph, [Mutation(item.input, item.value, item.place) for item in graph.assigned])
    return Pass(graph, sizes_of_example, has_ones).run()


def _signature(call: Call) -> Signature | None:
    try:
        return signature(call.target)
    except LookupError:
        return None


def _writes(call: Call) -> bool:
    if call.blocks:
        return any(_writes(inner) for block in call.blocks for inner in block.calls)
    found = _signature(call)
    strided = call.target == "aten::as_strided"  # its result depends on the memory layout of the base
    return strided or (found is not None and bool(found.writes)) or bool(new_statistics(call))


class Pass:
    def __init__(self, graph: AtenGraph, sizes_of_example: bool, has_ones: bool) -> None:
        self.graph = graph
        self.sizes_of_example = sizes_of_example
        self.has_ones = has_ones
        self.calls: list[Call] = []
        self.constants: list[Input] = []
        self.aliases: dict[AtenValue, Alias] = {}
        self.lists: dict[AtenValue, tuple[Call, Alias]] = {}
        self.doubtful: list[tuple[Alias, Alias, str]] = []
        # which share memory at a few sizes only
        self.sharing_rarely: list[tuple[Alias, Alias, str]] = []
        self.remarks: list[str] = []
        self.written: dict[Input, tuple[Alias, Call]] = {}
        self.fillers: set[AtenValue] = set()  # values that are never read
        self.journal = Journal()
        self.order = Order(graph)
        self.position = 0

    def run(self) -> Functionalized:
        """The pure graph and the mutations."""
        self._inputs()
        self.run_calls(self.graph.calls)
        outputs = [map_values(arg, self.read) for arg in self.graph.outputs]
        mutations = [
            Mutation(item, self._current(alias), str(call.source)) for item, (alias, call) in self.written.items()
        ]
        mutations += [
            Mutation(item.input, map_values(item.value, self.read), item.place) for item in self.graph.assigned
        ]
        pure = AtenGraph([*self.graph.inputs, *self.constants], self.calls, outputs, self.graph.output_names)
        return Functionalized(pure, mutations, list(dict.fromkeys(self.remarks)))

    def _inputs(self) -> None:
        owners: dict[int, Alias] = {}
        for item in self.graph.inputs:
            alias = self.aliases[item.value] = Alias(item.value, origin=item)
            if item.tensor is None or item.tensor.is_meta or not item.tensor.numel():
                continue
            owner = owners.setdefault(item.tensor.untyped_storage().data_ptr(), alias)
            if owner is not alias and owner.origin is not None:
                made = f"{owner.origin.name!r} and {item.name!r} share memory; make one of them a copy"
                self.doubtful.append((owner, alias, made))

    def run_calls(self, calls: Sequence[Call]) -> None:
        """Read `calls` and emit the pure calls."""
        for call in calls:
            self.position = self.order.positions.get(call, self.position)
            self._call(call)

    # -- reading

    def read(self, value: AtenValue) -> AtenValue:
        alias = self.aliases.get(value)
        return value if alias is None else self._current(alias)

    def _current(self, alias: Alias) -> AtenValue:
        """The current value of the alias; its chain of views is repeated if the storage was written since."""
        version = alias.root.version
        if alias.parent is not None and alias.version != version:
            assert alias.call is not None
            self.journal.set(alias, self._replay(alias, self._current(alias.parent)), version)
        return alias.current

    def _replay(self, alias: Alias, parent: AtenValue) -> AtenValue:
        call = alias.call
        assert call is not None
        if call.target == "aten::as_strided":
            return self._strided(alias, call)
        found = _signature(call)
        source = found.aliased() if found else None
        args = {**call.args, source or next(iter(call.args)): parent}
        result = AtenValue(alias.current.type)
        if alias.index is None:
            self.calls.append(Call(call.target, args, [result], call.source))
        else:
            known = call.outputs[0].type
            whole = AtenValue(known if isinstance(known, ListType) else ListType())
            self.calls.append(Call(call.target, args, [whole], call.source))
            self.calls.append(Call("prim::getitem", {"list": whole, "index": alias.index}, [result], call.source))
        return result

    def _strided(self, alias: Alias, call: Call) -> AtenValue:
        """The result of as_strided, taken from the storage's base: its offset and strides refer to the storage."""
        root = alias.root
        offset = (
            root.origin.tensor.storage_offset() if root.origin is not None and root.origin.tensor is not None else 0
        )
        try:
            if offset and call.args["storage_offset"] is not None:
                raise UnknownInverse("its argument does not begin where its memory does")
            if self._is_open(call, root.current):
                try:
                    return Strided(alias, call, self.calls.append, self._constant).read()
                except UnknownInverse:
                    if is_computed(call):
                        raise
            places = positions(alias.chain, root.current)
        except UnknownInverse as error:
            raise ExportError(
                f"{call.target} at {call.source}: {error}; use slices and reshape", code=error.code
            ) from None
        type_ = root.current.tensor
        base, result = AtenValue(type_), AtenValue(TensorType(type_.dtype, tuple(places.shape)))
        # the positions hold for these sizes only: the reshape makes them static, also in a trace with dynamic axes
        self.calls.append(
            Call("aten::reshape", {"self": root.current, "shape": list(type_.shape or ())}, [base], call.source)
        )
        self.calls.append(Call("aten::take", {"self": base, "index": self._constant(places)}, [result], call.source))
        return result

    def _is_open(self, call: Call, base: AtenValue) -> bool:
        """Whether the positions that as_strided shows are not known here."""
        return (
            self.sizes_of_example or is_computed(call) or not all(type(size) is int for size in base.tensor.shape or ())
        )

    # -- calls

    def _call(self, call: Call) -> None:
        found = _signature(call)
        args = {name: map_values(arg, self.read) for name, arg in call.args.items()}
        if call.blocks:
            blocks.control(self, call, args)
        elif call.target == "prim::Uninitialized":
            self._emit(call)
            self.fillers.update(call.outputs)
        elif call.target == "prim::getitem" and call.args["list"] in self.lists:
            self._take(call, args)
        elif (becomes := view_in_place(call.target)) is not None:
            self._refuse_same_object(call)
            args.pop("requires_grad", None)
            view = Call(becomes, args, call.outputs, call.source)
            self.aliases[call.args["self"]] = self._view(view, self.aliases[call.args["self"]])
        elif call.target == "aten::as_strided":
            self.aliases[call.outputs[0]] = self.new(call.outputs[0], self.aliases[call.args["self"]], call, version=-1)
        elif call.base == "aten::fill_diagonal_":
            self._fill_diagonal(call)
        elif found is not None and found.writes:
            self._write_call(call, found, args)
        else:
            self._pure_call(Call(call.target, args, call.outputs, call.source), call, found)
            if call.target == "prim::getitem":
                self._take_doubtful(call)

    def _pure_call(self, pure: Call, call: Call, found: Signature | None) -> None:
        source = found.aliased() if found is not None else None
        said = fact_of(call.target).aliases
        if said in (Aliases.MAYBE, Aliases.ALWAYS):
            source = source or next(iter(call.args))
        # asked of the current values, because a name may have been transposed in place
        shares = shares_storage(pure, source) if source and said is Aliases.MAYBE else source is not None
        parent = self.aliases.get(call.args[source]) if source and isinstance(call.args[source], AtenValue) else None
        if parent is not None and source and shares and said is Aliases.MAYBE and self._may_copy(parent, pure, source):
            shares = None
        if parent is None or not shares:
            self._emit(pure)
            if parent is not None and shares is None:
                self._doubt(parent, call)
            elif parent is not None and source and said is Aliases.MAYBE and self.sizes_of_example:
                self._note_rare_sharing(parent, pure, source)
            hidden = hidden_sources(call) if found is not None and source is None else ()
            for value in values_in(call.args.values()) if call.target.startswith("sequence::") else hidden:
                if value in self.aliases:
                    self._doubt(self.aliases[value], call)
        elif isinstance(call.outputs[0].type, ListType):
            self.calls.append(pure)
            self.lists[call.outputs[0]] = (pure, parent)
        elif len(call.outputs) > 1:
            self.calls.append(pure)
            for index, value in enumerate(call.outputs):
                self.aliases[value] = self.new(value, parent, pure, index, parent.root.version)
        else:
            self._view(pure, parent)
        for name, new in new_statistics(pure).items():
            written = self.aliases[call.args[name]]
            self._refuse_doubt(written, call)
            self.write(written, new(self._current(written), self.calls.append), call)

    def _take_doubtful(self, call: Call) -> None:
        """If a list may alias a tensor, so may its element."""
        whole, element = self.aliases.get(call.args["list"]), self.aliases[call.outputs[0]]
        for _, other, made in list(self.doubtful):
            if other is whole:
                self.doubtful.append((whole, element, made))
                return

    def _may_copy(self, parent: Alias, call: Call, source: str) -> bool:
        """Whether a call copies at usual sizes what it shares at those of the example."""
        if not self.sizes_of_example:
            return False
        return any(is_bounded(view) and view.outputs[0].tensor.shape == _viewed(view).shape for view, _ in parent.chain)

    def _note_rare_sharing(self, parent: Alias, call: Call, source: str) -> None:
        """Note that a call shares at few sizes what it copies at those of the example."""
        where = ["a size is 1"] if True in shares_where_axes_are(1, call, source) else []
        if where and self.has_ones:
            self._doubt(parent, call)
            return
        if any(is_bounded(view) for view, _ in parent.chain) and shares_if_whole(call, source):
            where.append("a slice takes all of an axis")
        if where:
            text = f"{call.target} ({call.source}) copied for the example, but not where {' or '.join(where)}"
            self.sharing_rarely.append((parent, self.aliases[call.outputs[0]], text))

    def _doubt(self, source: Alias, call: Call) -> None:
        """Note that the results of `call` may or may not alias `source`."""
        text = f"{call.target} ({call.source}) may or may not have copied; call .clone() there to make it a copy"
        for value in call.outputs:
            self.doubtful.append((source, self.aliases[value], text))

    def new(
        self,
        value: AtenValue,
        parent: Alias | None = None,
        call: Call | None = None,
        index: int | None = None,
        version: int = 0,
    ) -> Alias:
        """A new alias, made in the body at hand."""
        return Alias(value, parent, call, index, version, depth=self.journal.depth)

    def _emit(self, call: Call) -> None:
        self.calls.append(call)
        for value in call.outputs:
            self.aliases[value] = self.new(value)

    def _view(self, call: Call, parent: Alias) -> Alias:
        self.calls.append(call)
        alias = self.new(call.outputs[0], parent, call, version=parent.root.version)
        self.aliases[call.outputs[0]] = alias
        return alias

    def _take(self, call: Call, args: dict[str, Any]) -> None:
        """An element of a list of views is a view of the tensor from which the list was made."""
        made, parent = self.lists[call.args["list"]]
        index = call.args["index"]
        self.calls.append(Call(call.target, args, call.outputs, call.source))
        alias = self.new(call.outputs[0], parent, made, index, -1 if parent.root.version else 0)
        self.aliases[call.outputs[0]] = alias

    # -- writing

    def _write_call(self, call: Call, found: Signature, args: dict[str, Any]) -> None:
        writes = [name for name in found.writes if call.args[name] is not None]
        if not writes:
            self._pure_call(Call(call.target, args, call.outputs, call.source), call, found)
            return
        name = writes[0]
        first = found.parameters[0].name
        twin = call.base + "_functional"
        if len(writes) > 1 and pure_exists(twin):
            self._write_by_twin(call, twin, args, writes)
            return
        if (len(writes) > 1 or name != "out") and gives_what_it_writes(found):
            self._write_results(call, found, args, writes)
            return
        followed = len(writes) == 1 and name in ("out", first) and isinstance(call.args[name], AtenValue)
        if not followed or fact_of(call.target).untraceable:
            raise ExportError(
                f"{call.target} at {call.source} writes in a way that cannot be followed; write it as an "
                "assignment of a new tensor",
                code="write-not-followed",
            )
        alias = self.aliases[call.args[name]]
        self._refuse_doubt(alias, call)
        self._refuse_constant(alias, call)
        new = self._pure_form(call, found, args, name)
        self._refuse_resize(alias, new, call)
        self.write(alias, new, call)
        for output in call.outputs:
            self.aliases[output] = alias

    def _write_by_twin(self, call: Call, twin: str, args: dict[str, Any], writes: list[str]) -> None:
        """For `_batch_norm_with_update` and similar operators: a pure twin also returns the written tensors."""
        values = [AtenValue(args[name].type) for name in writes]
        self.calls.append(Call(twin, args, [*call.outputs, *values], call.source))
        for output in call.outputs:
            self.aliases[output] = self.new(output)
        for name, value in zip(writes, values, strict=True):
            alias = self.aliases[call.args[name]]
            self._refuse_doubt(alias, call)
            self._refuse_constant(alias, call)
            self.write(alias, value, call)

    def _write_results(self, call: Call, found: Signature, args: dict[str, Any], writes: list[str]) -> None:
        """For operators with several results that are written to given tensors: `topk(x, 2, out=(values, indices))`."""
        target = pure_target(call, found)
        values = [AtenValue(output.type) for output in call.outputs]
        pure = renamed(args, found, signature(target), writes[0])
        self.calls.append(Call(target, pure, values, call.source))
        for name, value, output in zip(writes, values, call.outputs, strict=True):
            alias = self.aliases[call.args[name]]
            self._refuse_doubt(alias, call)
            self._refuse_constant(alias, call)
            self._refuse_resize(alias, value, call)
            self.write(alias, value, call)
            self.aliases[output] = alias

    def _pure_form(self, call: Call, found: Signature, args: dict[str, Any], name: str) -> AtenValue:
        """Emit the pure operator; returns the new value of the written tensor, in that tensor's dtype."""
        written = args[name].tensor  # the current type, because a name may have been transposed in place
        target = pure_target(call, found)
        args = renamed(args, found, signature(target), name)
        dtype = result_dtype(target, args) or written.dtype
        shape, strides = written.shape, written.strides
        if name == "out" and call.outputs and isinstance(call.outputs[0].type, TensorType):
            shape, strides = call.outputs[0].type.shape, call.outputs[0].type.strides
        result = AtenValue(TensorType(dtype, shape, strides))
        self.calls.append(Call(target, args, [result], call.source))
        if dtype == written.dtype:
            return result
        same = AtenValue(TensorType(written.dtype, shape, strides))
        convert = {"self": result, "dtype": written.dtype, "non_blocking": False, "copy": False, "memory_format": None}
        self.calls.append(Call("aten::to.dtype", convert, [same], call.source))
        return same

    def write(self, alias: Alias, new: AtenValue, call: Call) -> None:
        """`call` makes `new` the content of `alias`; every view on the chain up to the storage's base changes, too."""
        root = alias.root
        if root.origin is not None and (not call.blocks or root.origin not in self.written):
            self.written[root.origin] = (root, call)
        version, content, node = root.version + 1, new, alias
        while node.parent is not None:
            assert node.call is not None
            self.journal.set(node, new, version)
            # the parent's own value from before this write
            before = self._before(node.parent, version - 1)
            try:
                if node.call.target == "aten::as_strided" and self._is_open(node.call, root.current):
                    new = Strided(node, node.call, self.calls.append, self._constant).written(new)
                    self._forget_between(node, root)
                    break
                new = inverse(node.call, node.index, before, new, self.calls.append)
            except UnknownInverse as error:
                if node.call.target == "aten::as_strided" and self._is_open(node.call, root.current):
                    raise self._refused_write(alias, call, error) from None
                new = self._scattered(alias, content, call)
                self._forget_between(alias, node)
                break
            node = node.parent
        self.journal.set(root, new, version)

    def _forget_between(self, alias: Alias, last: Alias) -> None:
        """Mark the views above `alias` up to `last` as outdated, because they show more than what was written."""
        while alias is not last and alias.parent is not None:
            alias = alias.parent
            self.journal.set(alias, alias.current, -1)

    def _scattered(self, alias: Alias, content: AtenValue, call: Call) -> AtenValue:
        """The storage's base with `content` at the elements of `alias`, for a chain with a view that has no inverse."""
        try:
            if self.sizes_of_example:
                raise UnknownInverse("its sizes must be known, and an axis is dynamic", code="view-sizes-unknown")
            return scattered(alias.chain, alias.root.current, content, self._constant, self.calls.append)
        except UnknownInverse as error:
            raise self._refused_write(alias, call, error) from None

    def _refused_write(self, alias: Alias, call: Call, error: UnknownInverse) -> ExportError:
        views = " of ".join(f"{view.target} ({view.source})" for view, _ in reversed(alias.chain))
        return ExportError(
            f"{call.target} at {call.source} writes through {views}: {error}; write into the base tensor, or build a "
            "new tensor",
            code=error.code,
        )

    def _constant(self, tensor: torch.Tensor) -> AtenValue:
        value = AtenValue(tensor_type(tensor))
        self.constants.append(Input(value, "positions", "constant", tensor))
        return value

    def _before(self, alias: Alias, version: int) -> AtenValue:
        if alias.parent is None or alias.version == version:
            return alias.current
        self.journal.set(alias, self._replay(alias, self._before(alias.parent, version)), version)
        return alias.current

    def _fill_diagonal(self, call: Call) -> None:
        """fill_diagonal_ of a matrix becomes a write through the view `diagonal`."""
        type_ = call.args["self"].tensor
        if call.args["wrap"] or type_.rank != 2:
            raise ExportError(
                f"aten::fill_diagonal_ at {call.source} is supported on matrices without wrap; write to .diagonal()",
                code="fill-diagonal",
            )
        known = [size for size in type_.shape or () if isinstance(size, int)]
        view = AtenValue(TensorType(type_.dtype, (min(known) if len(known) == 2 else None,)))
        self._call(
            Call("aten::diagonal", {"self": call.args["self"], "offset": 0, "dim1": 0, "dim2": 1}, [view], call.source)
        )
        filled = [AtenValue(view.type)]
        self._call(Call("aten::fill_.Scalar", {"self": view, "value": call.args["fill_value"]}, filled, call.source))
        for output in call.outputs:
            self.aliases[output] = self.aliases[call.args["self"]]

    # -- refusing

    def _refuse_doubt(self, alias: Alias, call: Call) -> None:
        """Refuse a write to a tensor that may alias another one, if that one is read later or is an input or state."""
        for root, made in self._sharing(alias, self.doubtful):
            if self._read_later(root):
                raise ExportError(
                    f"{call.target} at {call.source} writes to a tensor that {made}", code="alias-unknown"
                )
            if root.origin is not None and root.origin.kind != "constant":
                kind = "input" if root.origin.kind == "user" else root.origin.kind
                what = f"what may be the model's {kind} {root.origin.name!r}"
                raise ExportError(
                    f"{call.target} at {call.source} writes to {what}, which {made}", code="alias-unknown"
                )
        for root, made in self._sharing(alias, self.sharing_rarely):
            if self._read_later(root) or (root.origin is not None and root.origin.kind != "constant"):
                self.remarks.append(
                    f"{call.target} at {call.source} writes to one of two tensors that share memory at a few sizes: "
                    f"{made}; the file is right for other sizes; call .clone() there to make it a copy at all sizes"
                )

    @staticmethod
    def _sharing(alias: Alias, pairs: Sequence[tuple[Alias, Alias, str]]) -> Iterator[tuple[Alias, str]]:
        """The storages that may be that of `alias`, by pairs of which each may share memory, and why."""
        reached = {alias.root}
        while True:
            edges = [
                (theirs.root, made)
                for one, other, made in pairs
                for mine, theirs in ((one, other), (other, one))
                if mine.root in reached and theirs.root not in reached
            ]
            if not edges:
                return
            for root, made in edges:
                yield root, made
                reached.add(root)

    @staticmethod
    def _refuse_constant(alias: Alias, call: Call) -> None:
        origin = alias.root.origin
        if origin is not None and origin.kind == "constant":
            raise ExportError(
                f"{call.target} at {call.source} writes to a tensor that is not an input, parameter or buffer; its "
                "value from before the call is not known. Register it with register_buffer, or write to a .clone() "
                "of it",
                code="write-to-constant",
            )

    def _refuse_same_object(self, call: Call) -> None:
        """Refuse an in-place change of shape where another call may have returned the same tensor object."""
        if call.target == "aten::detach_":  # it keeps the shape
            return
        alias = self.aliases[call.args["self"]]
        self._refuse_doubt(alias, call)
        if alias.depth < self.journal.depth:
            raise ExportError(
                f"{call.target} at {call.source} changes the shape of a tensor in place, inside a branch or loop that "
                "depends on data; use the form that is not in place",
                code="shape-changed-in-place",
            )
        for one in (alias, *(other for other in self.aliases.values() if other.parent is alias)):
            if one.call is not None and may_return_itself(one.call):
                raise ExportError(
                    f"{call.target} at {call.source} changes the shape of a tensor that {one.call.target} "
                    f"({one.call.source}) returned as it is; use the form that is not in place",
                    code="shape-changed-in-place",
                )

    def _refuse_resize(self, alias: Alias, new: AtenValue, call: Call) -> None:
        """Refuse to resize an out= tensor that has views: torch gives it new memory, and the views keep the old."""
        if new.tensor.shape == alias.current.tensor.shape:
            return
        if alias.depth < self.journal.depth:
            raise ExportError(
                f"{call.target} at {call.source} may resize its out= tensor, inside a branch or loop that depends on "
                "data; pass a tensor of the result's shape",
                code="shape-changed-in-place",
            )
        if alias.parent is not None or any(
            other.parent is not None and other.root is alias for other in self.aliases.values()
        ):
            raise ExportError(
                f"{call.target} at {call.source} resizes its out= tensor, of which there are views; pass a tensor of "
                "the result's shape",
                code="shape-changed-in-place",
            )

    def _read_later(self, root: Alias) -> bool:
        last = self.order.last_use
        return any(last.get(value, -1) > self.position for value, alias in self.aliases.items() if alias.root is root)


def _viewed(view: Call) -> TensorType:
    return view.args[next(iter(view.args))].tensor  # type: ignore[no-any-return]
