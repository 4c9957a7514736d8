"""May the nodes of a function stand in a model that imports other versions of their domains.

They may where no operator that they use differs between the two versions, as the checker demands of calls, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from proto_schema.graphs.calls import FunctionId, callee, domain_of
from proto_schema.graphs.names import bodies
from proto_schema.onnx import FunctionProto, ModelProto, NodeProto, OperatorSetIdProto
from proto_schema.operators import schema

__all__ = ["add_imports", "all_nodes", "imports_of", "mismatches"]


def imports_of(owner: ModelProto | FunctionProto) -> dict[str, int]:
    """Domain -> version."""
    return {domain_of(row.domain): row.version or 0 for row in owner.opset_import}


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of the graphs in them."""
    for node in nodes:
        yield node
        for graph in bodies(node):
            yield from all_nodes(graph.node)


def mismatches(
    function: FunctionProto, target: Mapping[str, int], functions: Mapping[FunctionId, FunctionProto]
) -> dict[str, tuple[int, int]]:
    """Domains -> (version of the function, of the target), where an operator that the function uses differs."""
    differing = {
        domain: (version, target[domain])
        for domain, version in imports_of(function).items()
        if target.get(domain, version) != version
    }
    if not differing:
        return {}
    nodes = [node for node in all_nodes(function.node) if callee(node) not in functions]
    used = {(domain_of(node.domain), node.op_type or "") for node in nodes}

    def differs(domain: str, mine: int, theirs: int) -> bool:
        names = (name for other, name in used if other == domain)
        return any(_since(name, mine, domain) != _since(name, theirs, domain) for name in names)

    return {domain: pair for domain, pair in differing.items() if differs(domain, *pair)}


def _since(op_type: str, version: int, domain: str) -> int:
    """The version of the operator in force; of one that is not known, the version itself."""
    found = schema(op_type, version, domain)
    return version if found is None else found.since_version


def add_imports(owner: ModelProto | FunctionProto, imports: Mapping[str, int]) -> None:
    """Imports the domains that the owner does not import yet."""
    known = imports_of(owner)
    for domain, version in imports.items():
        if domain not in known:
            owner.opset_import.append(OperatorSetIdProto(domain=domain, version=version))
