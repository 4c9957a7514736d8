"""Functions of a model become part of its graph, with the names of `onnx.inliner`.

    plain = ps.inliner.inline_local_functions(model)

The model that is given is not changed; weights are shared with the result. A function is inlined where its operators
mean the same at the model's opsets; domains that only the function imports are imported by the model then.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Callable, Iterable
from importlib import import_module

from proto_schema.checking.models import check_calls
from proto_schema.checking.place import Problem
from proto_schema.errors import CheckError
from proto_schema.graphs.calls import FunctionId, callable_functions, callee, domain_of, function_id
from proto_schema.graphs.names import Unique, as_text, constants, defined, free_names, rename_graph, used
from proto_schema.inlining.engine import CallInliner, refuse_too_many
from proto_schema.inlining.versions import add_imports, all_nodes, imports_of, mismatches
from proto_schema.onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.wire.collection import paused_collection

__all__ = ["inline_local_functions", "inline_selected_functions"]


def inline_local_functions(model: ModelProto, convert_version: bool = False) -> ModelProto:
    """The model with the calls of its functions replaced by their nodes, also where functions call functions.

    A function whose operators differ at the model's opsets stays a function, as do those that it calls. With
    `convert_version` its nodes are converted, where only the standard domain differs.
    Raises CheckError for recursive functions and for calls that do not fit them, ValueError for a body that cannot be
    converted and where there would be too many nodes.
    """
    functions = _functions(model)
    target = imports_of(model)
    differing = {name: mismatches(function, target, functions) for name, function in functions.items()}
    converted = {name for name, found in differing.items() if convert_version and set(found) == {""}}
    wanted = {name for name, found in differing.items() if not found or name in converted}
    made = _copied(model)

    def find(node: NodeProto) -> FunctionProto | None:
        name = callee(node)
        return functions[name] if name in wanted else None

    unique = Unique(_taken(made))
    inliner = CallInliner(find, unique)
    if converted:
        convert = _Converter(model, made, unique)
        inliner.convert = lambda call, body, function: (
            convert(call, body, function) if function_id(function) in converted else body
        )
    _inline(made, inliner)
    kept = _reachable([name for name in functions if name not in wanted], functions)
    made.functions = [function for name, function in functions.items() if name in kept]
    return made


def inline_selected_functions(
    model: ModelProto,
    function_ids: Iterable[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> ModelProto:
    """The model with the calls of some functions replaced by their nodes, also in the functions that stay.

    `function_ids`: (domain, name) of the functions, or of those that stay with `exclude`. With
    `inline_schema_functions` operators that the standard defines by others are replaced too.
    Raises CheckError for recursive functions and for calls that do not fit them, ValueError where the operators of a
    function differ at the opsets of a caller and where there would be too many nodes.
    """
    named = {(domain_of(domain), name) for domain, name in function_ids}
    return inlined(model, lambda name: (name[:2] in named) != exclude, inline_schema_functions)


def inlined(model: ModelProto, chosen: Callable[[FunctionId], bool], standard: bool = False) -> ModelProto:
    """The same for the functions that are chosen, and for operators that the standard defines by others."""
    functions = _functions(model)
    made = _copied(model)
    stay = [function for function in model.functions if not chosen(function_id(function))]
    made.functions = [_copied_function(function) for function in stay]
    owners: list[ModelProto | FunctionProto] = [made, *made.functions]
    for owner in owners:
        target = imports_of(owner)
        find = _finder(functions, chosen, owner, target)
        if standard:
            find = _with_schema_functions(find, chosen, owner, target)
        _inline(owner, CallInliner(find, Unique(_taken(owner))))
    return made


def _finder(
    functions: dict[FunctionId, FunctionProto],
    chosen: Callable[[FunctionId], bool],
    owner: ModelProto | FunctionProto,
    target: dict[str, int],
) -> Callable[[NodeProto], FunctionProto | None]:
    checked: set[FunctionId] = set()

    def find(node: NodeProto) -> FunctionProto | None:
        name = callee(node)
        function = functions.get(name)
        if function is None or not chosen(name):
            return None
        if name not in checked:
            checked.add(name)
            _refuse_differing(function, owner, mismatches(function, target, functions))
        return function

    return find


def _refuse_differing(
    function: FunctionProto, owner: ModelProto | FunctionProto, found: dict[str, tuple[int, int]]
) -> None:
    for domain, (mine, theirs) in found.items():
        where = "the model" if isinstance(owner, ModelProto) else f"{owner.domain or ''}::{owner.name or ''}"
        raise ValueError(
            f"the function {function.domain or ''}::{function.name or ''} is written for opset {mine} of "
            f"{domain or 'ai.onnx'}, and {where} imports {theirs}, where its operators differ: convert the model, or "
            "use inline_local_functions(model, convert_version=True)"
        )


def _with_schema_functions(
    find: Callable[[NodeProto], FunctionProto | None],
    chosen: Callable[[FunctionId], bool],
    owner: ModelProto | FunctionProto,
    target: dict[str, int],
) -> Callable[[NodeProto], FunctionProto | None]:
    from proto_schema.inlining.standard import body_of

    def found(node: NodeProto) -> FunctionProto | None:
        function = find(node)
        name = callee(node)
        if function is not None or not chosen(name):
            return function
        return body_of(node, name[0], target.get(name[0], 0))

    return found


# -- owners of nodes ---------------------------------------------------------------------------------------------------


def _functions(model: ModelProto) -> dict[FunctionId, FunctionProto]:
    if not isinstance(model, ModelProto):
        raise TypeError(f"model must be a ModelProto, not a {type(model).__name__}")
    try:
        check_calls(model)
    except Problem as problem:
        raise problem.as_error() from None
    return callable_functions(model.functions)


def _copied(model: ModelProto) -> ModelProto:
    """A copy whose graph and imports can be changed; initializers are shared."""
    made = copy.copy(model)
    made.opset_import = [copy.copy(row) for row in model.opset_import]
    if model.graph is not None:
        made.graph = copy.copy(model.graph)
        made.graph.node = [copy.deepcopy(node) for node in model.graph.node]
        made.graph.value_info = list(model.graph.value_info)
        made.graph.initializer = list(model.graph.initializer)
    return made


def _copied_function(function: FunctionProto) -> FunctionProto:
    made = copy.copy(function)
    made.opset_import = [copy.copy(row) for row in function.opset_import]
    made.node = [copy.deepcopy(node) for node in function.node]
    made.value_info = list(function.value_info)
    return made


def _inline(owner: ModelProto | FunctionProto, inliner: CallInliner) -> None:
    """Inlines in a graph or function, in place, and imports what the bodies need."""
    holder = owner.graph if isinstance(owner, ModelProto) else owner
    if holder is None:
        return
    try:
        refuse_too_many(holder.node, inliner.find)
        with paused_collection():
            holder.node = inliner.nodes(holder.node, holder.value_info)
    except RecursionError:
        raise CheckError(
            "functions and graphs are inside of one another more deeply than Python can follow; inline some of them "
            "first, with inline_selected_functions"
        ) from None
    for function in inliner.inlined:
        add_imports(owner, imports_of(function))


def _taken(owner: ModelProto | FunctionProto) -> list[str]:
    """All names in the graph or function, of nodes too."""
    if isinstance(owner, FunctionProto):
        return [*owner.input, *owner.output, *used(owner.node)]
    graph = owner.graph or GraphProto()
    return [*defined(graph), *(value.name or "" for value in graph.output), *used(graph.node)]


def _reachable(roots: list[FunctionId], functions: dict[FunctionId, FunctionProto]) -> set[FunctionId]:
    """The functions that these call, at any depth, and they themselves."""
    found = set(roots)
    todo = list(roots)
    while todo:
        for node in all_nodes(functions[todo.pop()].node):
            name = callee(node)
            if name in functions and name not in found:
                found.add(name)
                todo.append(name)
    return found


# -- conversion --------------------------------------------------------------------------------------------------------


class _Converter:
    """Brings the nodes of a body to the model's opset: as a model of their own, whose inputs are what they use.

    What the conversion names is named anew: the names of one call must differ from those of the next.
    """

    def __init__(self, model: ModelProto, made: ModelProto, unique: Unique) -> None:
        from proto_schema.shape_inference import infer_shapes

        self.made = made
        self.unique = unique
        self.target = imports_of(model)[""]
        graph = infer_shapes(model).graph or GraphProto()
        self.types: dict[str, TypeProto | None] = {
            as_text(value.name): value.type for value in (*graph.value_info, *graph.input, *graph.output)
        }
        self.constants = {as_text(tensor.name): tensor for tensor in constants(graph)}
        self.makers = {
            name: node for node in graph.node if node.op_type == "Constant" for name in node.output if not node.domain
        }

    def __call__(self, call: NodeProto, body: list[NodeProto], function: FunctionProto) -> list[NodeProto]:
        convert_version = import_module("proto_schema.version_converter").convert_version
        own = {name for node in body for name in node.output}
        outside = [name for name in dict.fromkeys(_used_from_outside(body)) if name not in own]
        held = [self.constants[name] for name in outside if name in self.constants]
        before = [self.makers[name] for name in outside if name in self.makers]
        graph = GraphProto(
            name=function.name or "function",
            node=[*map(copy.deepcopy, before), *body],
            input=[self._value(name) for name in outside if name not in self.constants and name not in self.makers],
            output=[self._value(name) for name in call.output if name],
            initializer=held,
        )
        imports = [OperatorSetIdProto(domain=name, version=number) for name, number in imports_of(function).items()]
        whole = ModelProto(ir_version=self.made.ir_version, opset_import=imports, graph=graph)
        there = {*used(graph.node), *defined(graph), *(item.name or "" for item in graph.output)}
        try:
            converted = convert_version(whole, self.target).graph or GraphProto()
        except ValueError as error:
            raise ValueError(
                f"the function {function.domain or ''}::{function.name or ''}, which the node "
                f"{call.name or call.op_type!r} calls, cannot be converted to opset {self.target}: {error}"
            ) from error
        rename_graph(converted, ChainMap(), lambda scope: self._fresh(defined(scope), there), str)
        known = {tensor.name for tensor in held}
        if self.made.graph is not None:
            self.made.graph.initializer += [item for item in converted.initializer if item.name not in known]
            self.made.graph.sparse_initializer += converted.sparse_initializer
        outputs = {name for node in before for name in node.output}
        return [node for node in converted.node if not outputs.intersection(node.output)]

    def _fresh(self, names: Iterable[str], there: set[str]) -> dict[str, str]:
        """New names for those that were not there before the conversion."""
        return {name: self.unique(name) for name in names if name not in there}

    def _value(self, name: str) -> ValueInfoProto:
        return ValueInfoProto(name=name, type=self.types.get(name))


def _used_from_outside(nodes: list[NodeProto]) -> Iterable[str]:
    return (name for node in nodes for name in free_names(node))
