"""All that reads a model of any bytes: functions of `proto_schema`, and the verbs of the command line, as rows.

A row takes the files of one model: `model` (whole or broken), `other` (the same with its nodes turned round and
renamed, where it decodes), `data` (which its tensors may name), `out` (what the row may write). It raises what it
documents, a ValueError or OSError, and any other exception is a finding.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import proto_schema as ps
from fuzz.harness import Violation
from proto_schema import helper
from purexport import inspect
from purexport.cli.main import WHERE, main


@dataclass(frozen=True)
class Files:
    """The paths of one model."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "m.onnx"

    @property
    def other(self) -> Path:
        return self.folder / "o.onnx"

    @property
    def data(self) -> Path:
        return self.folder / "w.data"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def write(self, content: bytes) -> None:
        """Makes the files for a model of these bytes."""
        for path in self.folder.iterdir():
            path.unlink()
        self.model.write_bytes(content)
        self.data.write_bytes(bytes(32 * len(content)))
        self.other.write_bytes(_turned_round(content))


Reader = Callable[[Files], object]


def _turned_round(content: bytes) -> bytes:
    """The model with its lists in the opposite order and other names of nodes; the same bytes if it is none."""
    try:
        model = ps.loads(content)
    except ps.DecodeError:
        return content
    graph = model.graph or ps.GraphProto()
    for held in (graph.node, graph.initializer, graph.input, graph.value_info, model.functions, model.metadata_props):
        held.reverse()
    for node in graph.node:
        node.name = None
        node.output = [f"other {name!r}" for name in node.output]
    return ps.dumps(model)


class UnexpectedError(AssertionError):
    """A verb ended with an error that nobody documents."""


def words_missing(error: UnexpectedError) -> Violation:
    """The finding, by the kind of the error, without what the file has in it."""
    kind = re.search(r"([A-Za-z_.]+): ", str(error).partition(": ")[2])
    return Violation(f"a verb has no words of its own for a {kind[1] if kind else 'fault'}")


def verb(*words: str) -> Reader:
    """A verb of the command line; {model}, {other} and {out} stand for the files."""

    def run(files: Files) -> None:
        paths = {name: str(getattr(files, name)) for name in ("model", "other", "out")}
        errors = io.StringIO()
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            main([word.format(**paths) if word.startswith("{") else word for word in words])
        if WHERE in errors.getvalue():
            raise UnexpectedError(errors.getvalue())

    return run


def _outputs(files: Files) -> list[str]:
    """The names that nodes make, as text."""
    graph = ps.load(files.model).graph or ps.GraphProto()
    return [name for node in graph.node for name in node.output if isinstance(name, str) and name]


def _edit(make: Callable[[Files], inspect.Edits]) -> Reader:
    return lambda files: inspect.edit(files.model, make(files), files.out)


def _fresh(names: list[str]) -> dict[str, str]:
    return {name: f"fresh {name}" for name in dict.fromkeys(names)}


def _copied(files: Files) -> None:
    model = ps.load(files.model)
    copy = deepcopy(model)
    copy.MergeFrom(model)
    repr(copy == model)


def _printed(files: Files) -> None:
    graph = ps.load(files.model).graph or ps.GraphProto()
    helper.printable_graph(graph)
    ps.printer.to_text(graph)
    str(graph)


def _saved(files: Files) -> None:
    model = ps.load(files.model)
    ps.plan(model, files.out, external_data=True, size_threshold=1)
    ps.save(model, files.out, external_data=True, size_threshold=1)
    ps.save(model, files.out)


READERS: dict[str, Reader] = {
    "load": lambda files: ps.load(files.model),
    "loads, dumps": lambda files: ps.dumps(ps.loads(files.model.read_bytes())),
    "check_model": lambda files: ps.checker.check_model(files.model, full_check=True),
    "printed forms": _printed,
    "copy, merge, compare": _copied,
    "plan, save": _saved,
    "show": verb("show", "{model}"),
    "show --json": verb("show", "{model}", "--json"),
    "inspect": verb("inspect", "{model}", "--depth", "99"),
    "inspect --json": verb("inspect", "{model}", "--json"),
    "inspect --hex": verb("inspect", "{model}", "--hex", "--depth", "99"),
    "inspect of a path": verb("inspect", "{model}", "graph.node[*].attribute[*].ints[*]"),
    "inspect of all": verb("inspect", "{model}", "*.*.*"),
    "inspect of a name": verb("inspect", "{model}", 'graph.node["nobody"]'),
    "locate": verb("locate", "{model}", "99"),
    "locate of a path": verb("locate", "{model}", "graph.initializer[-1].dims[*]"),
    "locate --data": verb("locate", "{model}", "9", "--data", "w.data"),
    "stat --duplicates": verb("stat", "{model}", "--duplicates"),
    "check --parsers": verb("check", "{model}", "--parsers", "--full"),
    "canonicalize": verb("canonicalize", "{model}", "-o", "{out}"),
    "diff": verb("diff", "{model}", "{other}"),
    "diff --html": verb("diff", "{model}", "{other}", "--html", "{out}"),
    "diff without names": verb("diff", "{model}", "{other}", "--ignore", "names"),
    "edit --rename-value": verb("edit", "{model}", "--rename-value", "x=fresh", "-o", "{out}"),
    "edit --rename-node": verb("edit", "{model}", "--rename-node", "nobody=fresh", "-o", "{out}"),
    "edit --set": verb("edit", "{model}", "--set", "graph.node[*].doc_string=d", "--metadata", "k=v", "-o", "{out}"),
    "edit --drop-doc-strings": verb("edit", "{model}", "--drop-doc-strings", "--opset", "my=2", "-o", "{out}"),
    "edit --append": verb("edit", "{model}", "--append", "--set", "producer_name=me", "--dry-run"),
    "edit of all values": _edit(lambda files: inspect.Edits(values=_fresh(_outputs(files)))),
    "edit of all nodes": _edit(
        lambda files: inspect.Edits(nodes=_fresh([f"n{at}" for at, _ in enumerate(_outputs(files))]))
    ),
    "edit of much metadata": _edit(
        lambda files: inspect.Edits(
            metadata=_fresh([f"k {at}" for at, _ in enumerate(ps.load(files.model).metadata_props)])
        )
    ),
    "edit of many outputs": _edit(lambda files: inspect.Edits(outputs=_fresh(_outputs(files)))),
    "extract --tensor": verb("extract", "{model}", "--tensor", "nobody", "-o", "{out}"),
    "extract --tensors": verb("extract", "{model}", "--tensors", "-o", "{out}"),
    "extract --outputs": verb("extract", "{model}", "--outputs", "y", "-o", "{out}"),
    "extract of an unknown value": verb("extract", "{model}", "--outputs", "nobody", "-o", "{out}"),
    "extract of all values": lambda files: inspect.extract_subgraph(files.model, files.out, _outputs(files)),
    "extract between all values": lambda files: inspect.extract_subgraph(
        files.model, files.out, _outputs(files)[-1:], _outputs(files)[:-1]
    ),
    "salvage": verb("salvage", "{model}", "-o", "{out}"),
    "infer": verb("infer", "{model}", "-o", "{out}"),
    "scan": verb("scan", "{model}", "--sarif"),
    "convert": verb("convert", "{model}", "--opset", "13", "--dry-run"),
    "simplify": verb("simplify", "{model}", "-o", "{out}"),
    "run": verb("run", "{model}"),
    "compare": verb("compare", "{model}", "{model}", "--input", "x=float32[2]"),
    "quantize": verb("quantize", "{model}", "--type", "float16", "-o", "{out}"),
    "share": verb("share", "{model}", "-o", "{out}", "--dry-run"),
    "merge": verb("merge", "{model}", "{model}", "--prefix", "a/", "-o", "{out}"),
    "html": verb("html", "{model}", "-o", "{out}"),
    "html --histograms all": verb("html", "{model}", "-o", "{out}", "--histograms", "all"),
}
"""By what people call it."""

DOCUMENTED = (ValueError, OSError)

__all__ = ["DOCUMENTED", "READERS", "Files", "Reader", "UnexpectedError", "verb", "words_missing"]
