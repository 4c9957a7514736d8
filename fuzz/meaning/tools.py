"""The tools that must keep what a model computes: a row each, which makes another model of one.

A row says how far its results may be from those before (`EXACT`: to the bit), and how inputs and outputs are named now.
What it documents as a refusal is counted, not found; what it makes must be valid.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proto_schema as ps
from fuzz.build import Choices
from fuzz.meaning.graphs import DOMAIN, Made
from proto_schema.graphs.names import free_names
from proto_schema.printer import to_text
from proto_schema.quantization import Scheme, quantize
from proto_schema.simplification import simplified

EXACT, ROUNDED = "exact", "rounded"


@dataclass(frozen=True)
class Result:
    """What a tool made: the model, where its external data is, and what its inputs and outputs are called."""

    model: ps.ModelProto
    promise: str
    word: str = ""
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)


Tool = Callable[[Made, Choices, contextlib.ExitStack], "Result | None"]


def simplify(made: Made, choices: Choices, _: contextlib.ExitStack) -> Result:
    found = simplified(made.model, fold_bytes=(1 << 20, 64, 0)[choices.below(3)])
    return Result(found.model, ROUNDED if "merged" in found.done else EXACT, " ".join(sorted(found.done)))


def convert(made: Made, choices: Choices, _: contextlib.ExitStack) -> Result:
    target = 9 + choices.below(18)
    return Result(ps.version_converter.convert_version(made.model, target), ROUNDED, f"{target}")


def convert_and_back(made: Made, choices: Choices, stack: contextlib.ExitStack) -> Result:
    opset = next(item.version for item in made.model.opset_import if not item.domain)
    first = convert(made, choices, stack)
    return Result(ps.version_converter.convert_version(first.model, opset or 1), ROUNDED, first.word)


def extract_and_merge(made: Made, choices: Choices, _: contextlib.ExitStack) -> Result | None:
    """Cut in two between two nodes, and joined again."""
    model = ps.shape_inference.infer_shapes(made.model)
    graph = model.graph
    at = 1 + choices.below(max(1, len(graph.node) - 1))
    before, after = graph.node[:at], graph.node[at:]
    outputs = [item.name or "" for item in graph.output]
    made_before = {name for node in before for name in node.output if name}
    wanted = {name for node in after for name in free_names(node)}
    cut = sorted(made_before & wanted)
    late = [name for name in outputs if name not in made_before]
    early = [name for name in outputs if name in made_before]
    if not cut or not late:
        return None
    defaults = {item.name for item in graph.initializer}
    inputs = [item.name or "" for item in graph.input if item.name not in defaults]
    if any(item.name in defaults for item in graph.input):
        return None  # a default of an input is a constant to both parts, and not what is fed
    kinds = {item.name: item.type for item in (*graph.value_info, *graph.output)}
    if any(kinds.get(name) is None for name in cut):
        return None
    taken = sorted(wanted & set(inputs))
    first = ps.utils.Extractor(model).extract_model(inputs, list(dict.fromkeys([*cut, *early])))
    second = ps.utils.Extractor(model).extract_model([*cut, *taken], late)
    merged = ps.compose.merge_models(
        first,
        second,
        [(name, name) for name in cut],
        outputs=[*early, *(f"b/{name}" for name in late)],
        prefix2="b/",
    )
    named = {name: [name, f"b/{name}"] if name in taken else [name] for name in inputs}
    return Result(merged, EXACT, f"{len(cut)}", named, {name: f"b/{name}" for name in late})


def inline(made: Made, choices: Choices, _: contextlib.ExitStack) -> Result:
    if choices.below(2):
        return Result(ps.inliner.inline_local_functions(made.model), EXACT)
    names = [(DOMAIN, item.name or "") for item in made.model.functions[:1]]
    return Result(ps.inliner.inline_selected_functions(made.model, names, bool(choices.below(2))), EXACT)


def inline_standard(made: Made, _: Choices, __: contextlib.ExitStack) -> Result:
    """Operators that the standard defines by others, too."""
    chosen = ps.inliner.inline_selected_functions(made.model, [], True, inline_schema_functions=True)
    return Result(chosen, ROUNDED)


def prefix(made: Made, _: Choices, __: contextlib.ExitStack) -> Result:
    graph = made.model.graph
    return Result(
        ps.compose.add_prefix(made.model, "p/"),
        EXACT,
        "",
        {item.name or "": [f"p/{item.name}"] for item in graph.input},
        {item.name or "": f"p/{item.name}" for item in graph.output},
    )


def quantized(made: Made, choices: Choices, _: contextlib.ExitStack) -> Result:
    """Weights of -1, 0 and 1 in fewer bits, which all of these types have."""
    kind = choices.one_of(("float16", "bfloat16", "int8", "float8e4m3fn", "float8e5m2"))
    scheme = Scheme(kind, smallest=1, threads=1)
    return Result(quantize(made.model, scheme), ROUNDED, kind)


def saved(made: Made, choices: Choices, stack: contextlib.ExitStack) -> Result:
    """Inline, beside the model, or in several files; read again from there."""
    folder = stack.enter_context(empty_folder())
    form = choices.below(4)
    external: dict[str, Any] = [
        {"external_data": False},
        {"external_data": True, "size_threshold": 0},
        {"external_data": True, "size_threshold": 8, "alignment": 1},
        {"external_data": True, "size_threshold": 0, "alignment": 64, "shard_size": 1 + choices.below(64)},
    ][form]
    ps.save(made.model, folder / "m.onnx", **external)
    return Result(ps.load(folder / "m.onnx"), EXACT, f"{form}")


def as_text(made: Made, _: Choices, __: contextlib.ExitStack) -> Result | None:
    text = to_text(made.model)
    if made.sparse or "<sparse_value: " in text:
        return None  # onnx's syntax has no form for the values of sparse tensors
    return Result(ps.parser.parse_model(text), EXACT)


def inferred(made: Made, _: Choices, __: contextlib.ExitStack) -> Result:
    strict = not made.sparse
    return Result(ps.shape_inference.infer_shapes(made.model, check_type=strict, strict_mode=strict), EXACT)


TOOLS: dict[str, Tool] = {
    "simplify": simplify,
    "convert": convert,
    "convert and back": convert_and_back,
    "extract and merge": extract_and_merge,
    "inline": inline,
    "inline standard": inline_standard,
    "prefix": prefix,
    "quantize": quantized,
    "save": saved,
    "text": as_text,
    "infer": inferred,
}


@contextlib.contextmanager
def empty_folder() -> Iterator[Path]:
    """A folder in memory, where there is one, that goes afterwards."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
