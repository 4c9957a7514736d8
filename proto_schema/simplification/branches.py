"""If whose condition is known: the nodes of the branch that runs take its place."""

from __future__ import annotations

from collections import Counter

from proto_schema.ir import Graph, Node
from proto_schema.onnx import TensorProto
from proto_schema.simplification.known import Known


def spliced(known: Known) -> int:
    """Put the branches that run into the graph; how many there were."""
    count = 0
    for node in known.graph.nodes:
        branch = _chosen(known, node)
        if branch is not None:
            _inline(known, node, branch)
            count += 1
    return count


def _chosen(known: Known, node: Node) -> Graph | None:
    if node.op_type != "If" or node.domain or ("", "If", node.overload) in known.functions:
        return None
    condition = known.array(node.input(0))
    if condition is None or condition.size != 1:
        return None
    found = node.attributes.get("then_branch" if condition.reshape(()).item() else "else_branch")
    if not isinstance(found, Graph) or found.annotations or len(found.outputs) < len(node.outputs):
        return None
    return found if all(isinstance(value.tensor, TensorProto) for value in found.initializers) else None


def _inline(known: Known, node: Node, branch: Graph) -> None:
    graph = known.graph
    for value in branch.initializers:
        if value.tensor is not None:
            value.replace_uses(graph.add_initializer(value.tensor, value.name))
    own = {value for inner in branch.nodes for value in inner.outputs}
    asked = Counter(branch.outputs)
    pairs = list(zip(branch.outputs, node.outputs, strict=False))
    branch.outputs = ()
    for inner in list(branch.nodes):
        graph.nodes.insert(node, inner)
    for value, result in pairs:
        if result is None:
            continue
        shared = value not in own or asked[value] > 1  # which several names stand for
        made = known.builder.before(node).Identity(value) if shared else value
        made.stand_for(result)
    graph.nodes.remove(node)
