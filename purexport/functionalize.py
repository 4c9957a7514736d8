"""In-place operators and writes through views become pure calls, by alias annotation.

Every tensor belongs to a storage.  A view remembers the view it was taken from and the call that made it.  A write
through a view becomes the inverse chain (``slice_scatter``, ``select_scatter``, ...) up to the storage's base; a later
read of any other view of that storage takes its chain again from the new base.

Whether ``reshape``, ``contiguous`` or ``to`` shares its argument's storage depends on strides: torch itself is asked,
on meta tensors of the recorded sizes and strides.  Where that is not known and a write would make the difference, the
export is refused.  Graphs that write nothing pass through untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from purexport.capture.aten import AtenGraph, Call, Input, ListType, TensorType, Value, map_values
from purexport.capture.bind import MISSING, Signature, signature
from purexport.errors import ExportError
from purexport.inverse_views import UnknownInverse, inverse

# In-place names whose pure form has another name.
_PURE = {
    "aten::normal_": "aten::normal_functional",
    "aten::bernoulli_.float": "aten::bernoulli.p",
    "aten::__iand__": "aten::__and__",
    "aten::__ior__": "aten::__or__",
    "aten::__ixor__": "aten::__xor__",
}
# These change what a name sees, not the bytes: the name becomes a view of what it was.
_METADATA = {
    "aten::transpose_": "aten::transpose.int",
    "aten::t_": "aten::t",
    "aten::squeeze_": "aten::squeeze",
    "aten::squeeze_.dim": "aten::squeeze.dim",
    "aten::squeeze_.dims": "aten::squeeze.dims",
    "aten::unsqueeze_": "aten::unsqueeze",
    "aten::swapaxes_": "aten::swapaxes",
    "aten::swapdims_": "aten::swapdims",
    "aten::detach_": "aten::detach",
}
_REFUSED = frozenset({"aten::resize_", "aten::set_", "aten::as_strided_", "aten::resize_as_"})
# Views by annotation, or by their code, that copy when they must (or share when they can).
_MAY_SHARE = frozenset(
    f"aten::{name}"
    for name in [
        "reshape",
        "reshape_as",
        "flatten",
        "contiguous",
        "to",
        "type_as",
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "float",
        "ravel",
        "resolve_conj",
        "resolve_neg",
        "conj",
        "real",
        "cpu",
    ]
)


@dataclass(eq=False)
class _Alias:
    """A tensor as the model sees it: the storage's base, or a view (``call`` on ``parent``; ``index`` of a list)."""

    current: Value
    parent: _Alias | None = None
    call: Call | None = None
    index: int | None = None
    version: int = 0
    origin: Input | None = None

    @property
    def root(self) -> _Alias:
        """The storage's base."""
        alias = self
        while alias.parent is not None:
            alias = alias.parent
        return alias


@dataclass(frozen=True)
class Mutation:
    """A graph input that the model writes to, and its value at the end."""

    input: Input
    value: Value
    place: str


@dataclass
class Functionalized:
    """The pure graph, and what the model would have written to its inputs, parameters and buffers."""

    graph: AtenGraph
    mutations: list[Mutation] = field(default_factory=list)


def functionalize(graph: AtenGraph) -> Functionalized:
    """``graph`` without in-place operators.  Raises ExportError for a write that cannot be followed faithfully."""
    if not any(_writes(call) for call in graph.calls):
        return Functionalized(graph)
    return _Pass(graph).run()


def _signature(call: Call) -> Signature | None:
    try:
        return signature(call.target)
    except LookupError:
        return None


def _writes(call: Call) -> bool:
    found = _signature(call)
    return found is not None and bool(found.writes)


class _Pass:
    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph
        self.calls: list[Call] = []
        self.aliases: dict[Value, _Alias] = {}
        self.lists: dict[Value, tuple[Call, _Alias]] = {}
        self.doubtful: list[tuple[_Alias, _Alias, Call]] = []
        self.written: dict[Input, tuple[_Alias, Call]] = {}
        self.position = 0
        self.last_use: dict[Value, int] = {}

    def run(self) -> Functionalized:
        for item in self.graph.inputs:
            self.aliases[item.value] = _Alias(item.value, origin=item)
        for position, call in enumerate(self.graph.calls):
            self.last_use.update(dict.fromkeys(call.inputs(), position))
        for arg in self.graph.outputs:
            map_values(arg, lambda value: self.last_use.update({value: len(self.graph.calls)}))
        for position, call in enumerate(self.graph.calls):
            self.position = position
            self._call(call)
        outputs = [map_values(arg, self._read) for arg in self.graph.outputs]
        mutations = [
            Mutation(item, self._current(alias), str(call.source)) for item, (alias, call) in self.written.items()
        ]
        pure = AtenGraph(self.graph.inputs, self.calls, outputs, self.graph.output_names)
        return Functionalized(pure, mutations)

    # -- reading

    def _read(self, value: Value) -> Value:
        alias = self.aliases.get(value)
        return value if alias is None else self._current(alias)

    def _current(self, alias: _Alias) -> Value:
        """The alias's value now: its view chain taken again if the storage was written since."""
        version = alias.root.version
        if alias.parent is not None and alias.version != version:
            assert alias.call is not None
            alias.current = self._replay(alias, self._current(alias.parent))
            alias.version = version
        return alias.current

    def _replay(self, alias: _Alias, parent: Value) -> Value:
        call = alias.call
        assert call is not None
        found = _signature(call)
        args = {**call.args, (found.aliased() if found else None) or "self": parent}
        result = Value(alias.current.type)
        if alias.index is None:
            self.calls.append(Call(call.target, args, [result], call.source))
        else:
            whole = Value(ListType())
            self.calls.append(Call(call.target, args, [whole], call.source))
            self.calls.append(Call("prim::getitem", {"list": whole, "index": alias.index}, [result], call.source))
        return result

    # -- calls

    def _call(self, call: Call) -> None:
        found = _signature(call)
        args = {name: map_values(arg, self._read) for name, arg in call.args.items()}
        if call.target == "prim::getitem" and call.args["list"] in self.lists:
            self._take(call, args)
        elif call.target in _METADATA:
            view = Call(_METADATA[call.target], args, call.outputs, call.source)
            self.aliases[call.args["self"]] = self._view(view, self.aliases[call.args["self"]])
        elif found is not None and found.writes:
            self._write_call(call, found, args)
        else:
            self._pure_call(Call(call.target, args, call.outputs, call.source), call, found)

    def _pure_call(self, pure: Call, call: Call, found: Signature | None) -> None:
        source = found.aliased() if found is not None else None
        if call.base in _MAY_SHARE:
            source = source or next(iter(call.args))
            shares = _shares_storage(call, source)
            parent = self.aliases.get(call.args[source])
            if shares is None and parent is not None:
                self._emit(pure)
                self.doubtful.append((parent, self.aliases[call.outputs[0]], call))
                return
            source = source if shares else None
        parent = self.aliases.get(call.args[source]) if source and isinstance(call.args[source], Value) else None
        if parent is None:
            self._emit(pure)
        elif isinstance(call.outputs[0].type, ListType):
            self.calls.append(pure)
            self.lists[call.outputs[0]] = (call, parent)
        else:
            self._view(pure, parent)

    def _emit(self, call: Call) -> None:
        self.calls.append(call)
        for value in call.outputs:
            self.aliases[value] = _Alias(value)

    def _view(self, call: Call, parent: _Alias) -> _Alias:
        self.calls.append(call)
        alias = _Alias(call.outputs[0], parent, call, version=parent.root.version)
        self.aliases[call.outputs[0]] = alias
        return alias

    def _take(self, call: Call, args: dict[str, Any]) -> None:
        """An element of a list of views: a view of what the list was taken from."""
        made, parent = self.lists[call.args["list"]]
        index = call.args["index"]
        self.calls.append(Call(call.target, args, call.outputs, call.source))
        alias = _Alias(call.outputs[0], parent, made, index, version=-1 if parent.root.version else 0)
        self.aliases[call.outputs[0]] = alias

    # -- writing

    def _write_call(self, call: Call, found: Signature, args: dict[str, Any]) -> None:
        name = found.writes[0]
        if len(found.writes) != 1 or call.base in _REFUSED or not isinstance(call.args[name], Value):
            raise ExportError(
                f"{call.target} at {call.source} writes in a way that cannot be followed; write it as an "
                "assignment of a new tensor"
            )
        alias = self.aliases[call.args[name]]
        self._refuse_doubt(alias, call)
        new = self._pure_form(call, found, args, name)
        self._write(alias, new, call)
        for output in call.outputs:
            self.aliases[output] = alias

    def _pure_form(self, call: Call, found: Signature, args: dict[str, Any], name: str) -> Value:
        """Emit the pure operator; the value that the written tensor has afterwards, in that tensor's dtype."""
        written = call.args[name].tensor
        target = _pure_target(call, found)
        args = _renamed(args, found, signature(target), name)
        dtype = _result_dtype(target, args) or written.dtype
        shape, strides = written.shape, written.strides
        if name == "out" and call.outputs and isinstance(call.outputs[0].type, TensorType):
            shape, strides = call.outputs[0].type.shape, call.outputs[0].type.strides
        result = Value(TensorType(dtype, shape, strides))
        self.calls.append(Call(target, args, [result], call.source))
        if dtype == written.dtype:
            return result
        same = Value(TensorType(written.dtype, shape, strides))
        convert = {"self": result, "dtype": written.dtype, "non_blocking": False, "copy": False, "memory_format": None}
        self.calls.append(Call("aten::to.dtype", convert, [same], call.source))
        return same

    def _write(self, alias: _Alias, new: Value, call: Call) -> None:
        root = alias.root
        if root.origin is not None:
            self.written[root.origin] = (root, call)
        root.version += 1
        node = alias
        while True:
            node.current, node.version = new, root.version
            if node.parent is None:
                return
            assert node.call is not None
            # the parent's own value from before this write, which its version does not show any more
            before = self._before(node.parent, root.version - 1)
            try:
                new = inverse(node.call, node.index, before, new, self.calls.append)
            except UnknownInverse as error:
                raise ExportError(
                    f"{call.target} at {call.source} writes through {node.call.target} ({node.call.source}): {error}; "
                    "write into the base tensor, or build a new tensor"
                ) from None
            node = node.parent

    def _before(self, alias: _Alias, version: int) -> Value:
        if alias.parent is None or alias.version == version:
            return alias.current
        alias.current = self._replay(alias, self._before(alias.parent, version))
        alias.version = version
        return alias.current

    def _refuse_doubt(self, alias: _Alias, call: Call) -> None:
        """A write matters to the other side of a maybe-shared storage only if that side is read later."""
        for one, other, made in self.doubtful:
            for mine, theirs in ((one, other), (other, one)):
                if mine.root is alias.root and self._read_later(theirs.root):
                    raise ExportError(
                        f"{call.target} at {call.source} writes to a tensor that {made.target} ({made.source}) may or "
                        "may not have copied; call .clone() there to make it a copy"
                    )

    def _read_later(self, root: _Alias) -> bool:
        return any(
            self.last_use.get(value, -1) > self.position for value, alias in self.aliases.items() if alias.root is root
        )


def _renamed(args: dict[str, Any], found: Signature, pure: Signature, written: str) -> dict[str, Any]:
    """Arguments under the pure operator's names, which may differ (``dropout_(self)``, ``dropout(input)``)."""
    values = [args[parameter.name] for parameter in found.parameters if parameter.name != "out" or written != "out"]
    return {parameter.name: value for parameter, value in zip(pure.parameters, values, strict=False)}


def _strip(target: str) -> str:
    """``aten::add_.Tensor`` becomes ``aten::add.Tensor``."""
    base, dot, overload = target.partition(".")
    return base.removesuffix("_") + dot + overload


def _pure_target(call: Call, found: Signature) -> str:
    """The operator that computes what ``call`` writes."""
    base, dot, overload = call.target.partition(".")
    if found.writes == ("out",):
        return _without_out(call, found)
    candidates = [_PURE.get(call.target), (_PURE[base] + dot + overload) if base in _PURE else None]
    for target in (*candidates, _strip(call.target), "aten::" + base.removeprefix("aten::").strip("_")):
        if target is not None and target != call.target and _exists(target):
            return target
    raise ExportError(f"{call.target} at {call.source} writes in place, and torch has no pure form of it")


def _exists(target: str) -> bool:
    try:
        return not signature(target).writes
    except LookupError:
        return False


def _without_out(call: Call, found: Signature) -> str:
    """The overload with the same parameters but ``out``."""
    names = [parameter.name for parameter in found.parameters if parameter.name != "out"]
    for overload in torch._C._jit_get_operation(call.base)[1]:
        target = call.base + (f".{overload}" if overload else "")
        if _exists(target) and [parameter.name for parameter in signature(target).parameters] == names:
            return target
    raise ExportError(f"{call.target} at {call.source} has an out= argument, and torch has no form of it without one")


def _result_dtype(target: str, args: dict[str, Any]) -> torch.dtype | None:
    """The dtype of a pure call, asked of torch on empty tensors where operands could promote; None when plain."""
    own = args.get("self")
    operands = [arg for name, arg in args.items() if name != "self"]
    numbers = any(isinstance(arg, (float, complex)) and not isinstance(arg, bool) for arg in operands)
    tensors = [arg for arg in operands if isinstance(arg, Value) and isinstance(arg.type, TensorType)]
    if isinstance(own, Value) and isinstance(own.type, TensorType):
        plain = all(arg.tensor.dtype == own.tensor.dtype for arg in tensors)
        if plain and (own.tensor.dtype.is_floating_point or not numbers) and not _compares(target):
            return None
    parameters = {item.name: item for item in signature(target).parameters}
    call = {name: arg for name, arg in args.items() if arg != parameters[name].default or arg is MISSING}
    result = _run_on_meta(target, call, lambda type_: torch.empty(_ranked(type_), dtype=type_.dtype, device="meta"))
    return result.dtype if isinstance(result, torch.Tensor) else None


def _compares(target: str) -> bool:
    return target.partition(".")[0].removeprefix("aten::") in {"eq", "ne", "lt", "le", "gt", "ge", "logical_not"}


def _ranked(type_: TensorType) -> list[int]:
    return [dim if isinstance(dim, int) else 2 for dim in type_.shape or ()]


def _shares_storage(call: Call, source: str) -> bool | None:
    """Whether the result lives in the argument's storage; None when the strides that decide it are unknown."""
    made: list[torch.Tensor] = []
    type_ = call.args[source].type if isinstance(call.args[source], Value) else None
    if (
        not isinstance(type_, TensorType)
        or type_.strides is None
        or not all(isinstance(dim, int) for dim in type_.shape or (None,))
    ):
        return None

    def fake(type_: TensorType) -> torch.Tensor:
        shape = _ranked(type_)
        tensor = torch.empty_strided(
            shape, type_.strides or torch.empty(shape, device="meta").stride(), dtype=type_.dtype, device="meta"
        )
        made.append(tensor)
        return tensor

    args = dict(call.args)
    if "device" in args:
        args["device"] = None
    result = _run_on_meta(call.target, args, fake)
    if not isinstance(result, torch.Tensor):
        return None
    return bool(result.untyped_storage()._cdata == made[0].untyped_storage()._cdata)


def _run_on_meta(target: str, args: dict[str, Any], make: Callable[[TensorType], torch.Tensor]) -> Any:
    namespace, _, rest = target.partition("::")
    name, _, overload = rest.partition(".")

    def convert(value: Value) -> Any:
        return make(value.type) if isinstance(value.type, TensorType) else 2

    try:
        operator = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        with torch.no_grad():
            return operator(**{key: map_values(arg, convert) for key, arg in args.items()})
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return None
