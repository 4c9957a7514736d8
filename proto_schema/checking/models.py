"""Models: versions, imports, metadata, the graph, and the functions as a whole (no two alike, no recursion).

Stricter than the official checker: functions in a file of an IR version that has none (before 8) are refused, and so is
any chain of calls deeper than 100 (there it depends on where the search happens to begin).
"""

from __future__ import annotations

from collections.abc import Iterator

from proto_schema.checking.context import Context, SchemaSource, imported
from proto_schema.checking.graphs import check_function, check_graph
from proto_schema.checking.place import Problem, inside
from proto_schema.graphs.calls import FunctionId, callable_functions, callee, function_id, is_shadowed
from proto_schema.onnx import FunctionProto, ModelProto, NodeProto, Version

MOST_FUNCTIONS = 10_000
DEEPEST_CALLS = 100


def check_model(
    model: ModelProto,
    skip_compatibility: bool,
    custom_domains: bool,
    registry: SchemaSource | None = None,
) -> None:
    """Everything but the types of values."""
    ir_version = _checked_ir_version(model)
    _check_metadata(model)
    opsets = _checked_opsets(model, ir_version)
    if model.functions and ir_version < 8:
        raise Problem(f"IR version {ir_version} has no functions; they came with 8", "functions")
    functions = _functions(model)
    context = Context(
        ir_version=ir_version,
        opsets=opsets,
        functions=functions,
        check_custom_domain=custom_domains,
        skip_opset_compatibility_check=skip_compatibility,
        registry=registry,
    )
    if model.graph is None:
        raise Problem("is required, but absent", "graph")
    with inside("graph"):
        check_graph(model.graph, context, None)
    check_calls(model)
    everywhere = dict(opsets)
    for place, function in enumerate(model.functions):
        with inside("functions", place):
            for domain, version in imported(function.opset_import).items():
                everywhere.setdefault(domain, version)
    for place, function in enumerate(model.functions):
        with inside("functions", place):
            check_function(function, context, everywhere)


def _checked_ir_version(model: ModelProto) -> int:
    if not model.ir_version:
        raise Problem("is required, but absent or 0", "ir_version")
    if model.ir_version > Version.IR_VERSION:
        raise Problem(
            f"{model.ir_version} is newer than {int(Version.IR_VERSION)}, the newest known here", "ir_version"
        )
    return model.ir_version


def _check_metadata(model: ModelProto) -> None:
    seen: set[str | None] = set()
    for place, entry in enumerate(model.metadata_props):
        if entry.key in seen:
            raise Problem(f"the key {entry.key!r} appears more than once", "metadata_props", place)
        seen.add(entry.key)


def _checked_opsets(model: ModelProto, ir_version: int) -> dict[str, int]:
    opsets = imported(model.opset_import)
    if ir_version >= 3 and not model.opset_import:
        raise Problem("is empty; from IR version 3 on a model says which opsets it uses", "opset_import")
    if ir_version < 3 and model.opset_import:
        raise Problem(f"IR version {ir_version} has no opset imports; they came with 3", "opset_import")
    return opsets or {"": 1}


# -- the functions as a whole ------------------------------------------------------------------------------------------


def _functions(model: ModelProto) -> dict[FunctionId, FunctionProto]:
    if len(model.functions) > MOST_FUNCTIONS:
        raise Problem(f"{len(model.functions)} functions are more than the limit of {MOST_FUNCTIONS}", "functions")
    found: dict[FunctionId, FunctionProto] = {}
    for place, function in enumerate(model.functions):
        name = function_id(function)
        if name in found:
            raise Problem(f"another function is called {_shown(name)} as well", "functions", place)
        if is_shadowed(name):
            raise Problem(
                f"{name[1]} is an operator of the standard: nodes compute that, and never call this function; give it "
                "another name, or a domain of its own",
                "functions",
                place,
            )
        found[name] = function
    return found


def check_calls(model: ModelProto) -> None:
    """No function calls itself, directly or through others, and no chain of calls is deeper than the limit."""
    places = {function_id(function): place for place, function in enumerate(model.functions)}
    called = callable_functions(model.functions).keys()
    calls = {
        name: sorted({callee(node) for node in _all_nodes(model.functions[place].node)} & called, key=repr)
        for name, place in places.items()
    }
    depth: dict[FunctionId, int] = {}
    for name in places:
        if name not in depth:
            _measure(name, calls, depth, places)


def _measure(
    root: FunctionId,
    calls: dict[FunctionId, list[FunctionId]],
    depth: dict[FunctionId, int],
    places: dict[FunctionId, int],
) -> None:
    """Adds how deep the calls of `root`, and of all it calls, go: a search without recursion of our own."""
    path, pending = [root], [iter(calls[root])]
    while pending:
        called = next(pending[-1], None)
        if called is None:
            pending.pop()
            done = path.pop()
            depth[done] = 1 + max((depth[other] for other in calls[done]), default=0)
        elif called in path:
            cycle = " -> ".join(map(_shown, [*path[path.index(called) :], called]))
            raise Problem(f"functions must not be recursive: {cycle}", "functions", places[called])
        elif len(path) + depth.get(called, 1) > DEEPEST_CALLS:
            raise Problem(f"calls are nested more than {DEEPEST_CALLS} deep", "functions", places[root])
        elif called not in depth:
            path.append(called)
            pending.append(iter(calls[called]))


def _all_nodes(nodes: list[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in [*([attribute.g] if attribute.g else []), *attribute.graphs]:
                yield from _all_nodes(graph.node)


def _shown(name: FunctionId) -> str:
    return "::".join(map(str, name if name[2] else name[:2]))
