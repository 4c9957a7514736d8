"""If whose condition is known: the nodes of the branch that runs take its place.

The values of the branch are named anew, because the other branch and what surrounds it may have the same names.
"""

from __future__ import annotations

import copy
from collections import ChainMap, Counter

from proto_schema.graphs.names import defined, rename_graph
from proto_schema.helper import make_node
from proto_schema.onnx import GraphProto, NodeProto
from proto_schema.simplification.draft import Draft


def spliced(draft: Draft) -> int:
    """Put the branches that run into the graph; how many there were."""
    nodes: list[NodeProto] = []
    count = 0
    for node in draft.graph.node:
        branch = _chosen(draft, node)
        if branch is None:
            nodes.append(node)
        else:
            nodes += _inlined(draft, node, branch)
            count += 1
    if count:
        draft.graph.node = nodes
    return count


def _chosen(draft: Draft, node: NodeProto) -> GraphProto | None:
    if node.op_type != "If" or node.domain or ("", "If", node.overload or "") in draft.functions or not node.input:
        return None
    condition = draft.array(node.input[0])
    if condition is None or condition.size != 1:
        return None
    wanted = "then_branch" if condition.reshape(()).item() else "else_branch"
    found = next((item.g for item in node.attribute if item.name == wanted), None)
    if found is None or found.sparse_initializer or found.quantization_annotation:
        return None
    return found if len(found.output) >= len(node.output) else None


def _inlined(draft: Draft, node: NodeProto, branch: GraphProto) -> list[NodeProto]:
    made = copy.copy(branch)
    made.node = [copy.deepcopy(inner) for inner in branch.node]
    made.initializer = [copy.copy(tensor) for tensor in branch.initializer]
    made.output = [copy.copy(item) for item in branch.output]
    made.value_info = [copy.copy(item) for item in branch.value_info]
    by_nodes = {name for inner in branch.node for name in inner.output}
    asked = Counter(item.name or "" for item in branch.output)
    # a result that one node makes for one output has its name from now on; the others are copied
    pairs = [(item.name or "", name) for item, name in zip(branch.output, node.output, strict=False) if name]
    names = {inner: outer for inner, outer in pairs if inner in by_nodes and asked[inner] == 1}
    names.update({name: draft.unique(name) for name in defined(branch) if name not in names})
    rename_graph(made, ChainMap(), lambda graph: names if graph is made else {}, draft.unique)
    constants = [make_node("Constant", [], [tensor.name or ""], value=tensor) for tensor in made.initializer]
    copies = [
        make_node("Identity", [names.get(inner, inner)], [outer]) for inner, outer in pairs if names.get(inner) != outer
    ]
    draft.graph.value_info = [*draft.graph.value_info, *made.value_info]
    return [*constants, *made.node, *copies]
