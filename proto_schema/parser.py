"""The textual syntax of ONNX to messages, with the names of `onnx.parser`: the inverse of `printer.to_text`.

    node = ps.parser.parse_node("y = LeakyRelu <alpha = 0.1> (x)")

It takes all that the official parser takes. A text of n characters is read in time linear in n, and nests as deeply as
a file can. What is left over after the message is an error: the official parser ignores it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto
from proto_schema.syntax.cursor import ParseError
from proto_schema.syntax.grammar import Grammar
from proto_schema.wire.collection import paused_collection

__all__ = ["ParseError", "parse_function", "parse_graph", "parse_model", "parse_node"]

T = TypeVar("T")


def parse_model(model_text: str | bytes) -> ModelProto:
    """The model that the text describes: a header, a graph, and functions. ParseError says where it is none."""
    return _parsed(model_text, Grammar.model, "the model")


def parse_graph(graph_text: str | bytes) -> GraphProto:
    """The graph that the text describes. ParseError says where it is none."""
    return _parsed(graph_text, Grammar.graph, "the graph")


def parse_function(function_text: str | bytes) -> FunctionProto:
    """The function that the text describes. ParseError says where it is none."""
    return _parsed(function_text, Grammar.function, "the function")


def parse_node(node_text: str | bytes) -> NodeProto:
    """The node that the text describes. ParseError says where it is none."""
    return _parsed(node_text, Grammar.node, "the node")


def _parsed(text: str | bytes, construct: Callable[[Grammar], T], what: str) -> T:
    if isinstance(text, (bytes, bytearray)):
        text = text.decode("utf-8", "surrogateescape")
    elif not isinstance(text, str):
        raise TypeError(f"the textual syntax is a str, not a {type(text).__name__}")
    grammar = Grammar(text)
    with paused_collection():
        made = construct(grammar)
    if grammar.peek():
        grammar.expected(f"the end of the text after {what}")
    return made
