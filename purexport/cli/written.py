"""What `demo` and `export` say about a file that was just written, as plain data and as lines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import proto_schema as ps
from proto_schema.units import counted, size_text
from purexport.cli.describe import file_sizes, interface


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return round(time.perf_counter() - self._start, 3)


def written_facts(path: str | Path, route: str, seconds: float) -> dict[str, Any]:
    """The file as it lies on the disk, read back: sizes, nodes, versions, interface."""
    model = ps.load(path)
    return facts_of(model, str(path), file_sizes(path, model), route, seconds)


def facts_of(model: ps.ModelProto, name: str, sizes: dict[str, int], route: str, seconds: float) -> dict[str, Any]:
    """The same for a model that went to files of these sizes, or to a stream."""
    facts = interface(model)
    return {
        "file": name,
        "files": sizes,
        "nodes": len(model.graph.node) if model.graph else 0,
        "opset": facts["opset_import"].get("ai.onnx"),
        "ir_version": facts["ir_version"],
        "capture": route,
        "seconds": seconds,
        "inputs": facts["inputs"],
        "outputs": facts["outputs"],
    }


def written_lines(facts: dict[str, Any]) -> list[str]:
    """The same for people."""
    there = facts.get("referenced", ())
    sizes = [
        [f"{name} {size_text(size)}" for name, size in facts["files"].items() if (name in there) is refers]
        for refers in (False, True)
    ]
    lines = [
        f"wrote     {', '.join(sizes[0])}",
        *([f"refers to {', '.join(sizes[1])}"] if sizes[1] else ()),
        f"graph     {counted(facts['nodes'], 'node')}, opset {facts['opset']}, IR version {facts['ir_version']}",
        f"export    {facts['seconds']:.2f} s, captured by {facts['capture']}",
    ]
    lines += [f"input     {value['name']}  {value['type']}" for value in facts["inputs"]]
    lines += [f"output    {value['name']}  {value['type']}" for value in facts["outputs"]]
    return lines
