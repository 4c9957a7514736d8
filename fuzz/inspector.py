"""Invariant: on a file of any bytes each tool of `purexport.inspect` gives an answer that holds, or a documented error.

The first bytes of an input choose the tool and its arguments, the rest is the file. What holds: elements cover every
byte once and lie inside; a path leads back to its element; sizes add up; a file is refused exactly where the readers'
forms say so, and canonical exactly where they find nothing; what edit, canonicalize, extract and salvage write loads,
and says what it should; the file itself is as it was. The verbs have words of their own for whatever is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import proto_schema as ps
from fuzz.bounds import bounded, folder
from fuzz.build import Choices
from fuzz.harness import Harness, Violation, difference
from fuzz.readers import Files, Reader, UnexpectedError, verb, words_missing
from fuzz.seeds import models
from proto_schema.graphs.calls import domain_of
from proto_schema.wire.fields import MESSAGE, Message, present
from purexport import inspect
from purexport.inspect.compare import IGNORABLE
from purexport.inspect.elements import UNREADABLE, Bytes, Element
from purexport.inspect.forms import DISAGREE, REFUSED
from purexport.inspect.hexview import annotated, around
from purexport.inspect.html import HISTOGRAMS
from purexport.inspect.values import json_of, text_of
from purexport.weights import open_weights

HEAD = 5
PATHS = (
    *(
        "graph",
        "graph.node",
        "graph.node[*].attribute[*].t",
        'graph.node["y"]',
        "graph.node[-1]",
        "*.*",
        "?77",
        "?99#2",
    ),
    *("graph.initializer[0].dims[1]", "graph.initializer[*].raw_data", 'metadata_props["k"]', "graph#2", "graph..node"),
    *("graph.node[99]", "ir_version.x", "nothing", "graph.input[*].type.tensor_type.shape.dim[0].dim_param", '["', "["),
    *("graph.initializer[*].float_data[*]", "graph.node[*].attribute[*].ints[-1]", "functions[0].node[0].op_type"),
)
EDITS = (
    inspect.Edits(fields={"producer_name": "me"}),
    inspect.Edits(fields={"doc_string": None, "graph.name": "g"}),
    inspect.Edits(fields={"model_version": -1}),
    inspect.Edits(fields={"ir_version": 9}),
    inspect.Edits(fields={"graph.node[0].name": "first"}),
    inspect.Edits(fields={"graph.node[*].doc_string": "d"}),
    inspect.Edits(metadata={"k": "v", "other": ""}),
    inspect.Edits(metadata={"k": None}),
    inspect.Edits(opsets={"": 21}),
    inspect.Edits(opsets={"my": 1}),
    inspect.Edits(drop_doc_strings=True),
    inspect.Edits(values={"x": "fresh"}),
    inspect.Edits(values={"y": "fresh", "w": "x"}),
    inspect.Edits(inputs={"x": "fresh"}, outputs={"z": "end"}),
    inspect.Edits(values={"x": "y", "y": "x"}),
    inspect.Edits(nodes={"conv": "fresh"}),
    inspect.Edits(dims={"N": "fresh"}),
)


class _Files:
    """The paths of one process."""

    def __init__(self) -> None:
        self._folder = folder("inspect")
        self.model, self.other, self.out = (Path(self._folder.name, name) for name in ("m.onnx", "o.onnx", "out"))


@cache
def _files() -> _Files:
    """The paths, after each tool has run: what it imports is no memory of its own."""
    files, small = _Files(), models()[1]
    ps.shape_inference.infer_shapes(ps.loads(small))  # which loads the rows of all operators
    for tool, documented in TOOLS:
        files.model.write_bytes(small)
        files.out.unlink(missing_ok=True)
        with suppress(*documented):
            tool(files, small, Choices(b""))
    files.out.unlink(missing_ok=True)
    return files


def _model(content: bytes) -> ps.ModelProto | None:
    try:
        return ps.loads(content)
    except ps.DecodeError:
        return None


def _expect(holds: bool, broken: str) -> None:
    if not holds:
        raise Violation(broken)


# What only looks ------------------------------------------------------------------------------------------------------


def _tree(files: _Files, content: bytes, _: Choices) -> str:
    source = Bytes(content)
    count = _cover(source, source.whole())
    lines = list(annotated(source, source.walk()))
    _expect("\n".join(lines).isascii(), "the tree is not ASCII")
    return f"{count.bit_length()} {_problems(source)}"


def _problems(source: Bytes) -> str:
    return " ".join(sorted({re.sub(r"\d+", "", element.problem) for element in source.walk() if element.problem}))


def _cover(source: Bytes, parent: Element) -> int:
    """How many elements are below; Violation unless they follow each other and end where the parent ends."""
    at, count = parent.body, 0
    for child in source.children(parent):
        _expect(child.start == at and at <= child.body <= child.stop, "elements do not follow each other")
        _expect(not child.problem or 0 <= child.bad <= source.size, "a bad byte lies outside of the file")
        text_of(source, child)
        json.dumps(json_of(source, child), allow_nan=False)
        count += 1 + (_cover(source, child) if child.message is not None else 0)
        at = child.stop
    _expect(at == parent.stop, "elements do not end where their message ends")
    return count


def _locate(_: _Files, content: bytes, choices: Choices) -> str:
    source = Bytes(content)
    offset = choices.below(256) * 256 + choices.below(256)
    if content and choices.below(16):
        offset %= len(content)
    try:
        found = inspect.locate(source, offset)
    except ValueError:
        _expect(offset >= len(content), "an offset in the file is refused")
        return "outside"
    for outer, inner in zip((source.whole(), *found.chain), found.chain, strict=False):
        _expect(outer.body <= inner.start <= offset < inner.stop <= outer.stop, "the owner does not hold the byte")
    _expect(found.part in ("tag", "length", "value", "unreadable"), "an unknown part")
    list(around(source, offset))
    last = found.chain[-1]
    if UNREADABLE not in last.path:
        _expect(any(last.start == one.start for one in inspect.find(source, last.path)), "a path leads elsewhere")
    return f"{found.part} {len(found.chain)} {last.field.name if last.field else ''} {bool(found.detail)}"


def _find(_: _Files, content: bytes, choices: Choices) -> str:
    source = Bytes(content)
    path = choices.one_of(PATHS) if choices.below(4) else content[: choices.below(20)].decode("latin-1")
    found = inspect.find(source, path)
    _expect(all(0 <= one.start <= one.body <= one.stop <= len(content) for one in found), "a field outside of the file")
    return f"{path} {len(found).bit_length()}"


def _forms(_: _Files, content: bytes, __: Choices) -> str:
    found = list(inspect.findings(Bytes(content)))
    _expect(all(0 <= one.offset <= len(content) for one in found), "a finding outside of the file")
    model = _model(content)
    refused = any(one.kind == REFUSED or (one.kind == DISAGREE and "onnx.load and" in one.text) for one in found)
    _expect(refused == (model is None), "the findings and the decoder give two verdicts")
    if model is not None:
        _expect((not found) == (ps.dumps(model) == content), "findings and encoder disagree on what is canonical")
    return " ".join(sorted({re.sub(r"\d+", "", one.text) for one in found}))[:120]


def _sizes(files: _Files, content: bytes, choices: Choices) -> str:
    found = inspect.sizes(files.model)
    outside = found.by_use.pop("weights in data files", 0)
    _expect(sum(found.by_use.values()) == len(content), "the bytes by use are not the file's")
    _expect(sum(found.by_message.values()) == len(content), "the bytes by message are not the file's")
    _expect(outside == sum(one.nbytes for one in found.weights if one.external), "external bytes do not add up")
    if choices.below(2):
        inspect.duplicates(files.model)
    return f"{len(found.weights)} {len(found.data_files)} {len(found.problems)} {sorted(found.by_use)}"


def _check(files: _Files, _: bytes, choices: Choices) -> str:
    ps.checker.check_model(files.model, bool(choices.below(2)))
    return "valid"


def _diff(files: _Files, content: bytes, choices: Choices) -> str:
    other = bytearray(content)
    at, how = choices.below(256) * 256 + choices.below(256), choices.below(4)
    if content and how:
        other[at % len(content)] ^= 1 << how
    ignore = frozenset([choices.one_of(sorted(IGNORABLE))] if at % 3 == 0 else [])
    files.other.write_bytes(other)
    found = inspect.compare_files(str(files.model), str(files.other), ignore)
    if not ignore:
        _expect(bool(found) == (bytes(other) != content), "two files are said to be equal, or different, and are not")
    back = inspect.compare_files(str(files.other), str(files.model), ignore)
    _expect(bool(found) == bool(back), "the comparison depends on which file is the first")
    if at % 8 == 1:
        page = inspect.diff_page(files.model, files.other, found, files.out)
        written = files.out.read_bytes()
        _expect(page.bytes == len(written) and written.isascii(), "the page is not what it says")
    return " ".join(sorted({one.kind for one in found}))


# What writes ----------------------------------------------------------------------------------------------------------


def _edit(files: _Files, content: bytes, choices: Choices) -> str:
    edits = choices.one_of(EDITS)
    append, dry_run = choices.below(4) == 3, choices.below(8) == 7
    if append:
        files.out.write_bytes(content)
    result = inspect.edit(
        files.out if append else files.model, edits, None if append else files.out, append=append, dry_run=dry_run
    )
    if dry_run:
        _expect(append or not files.out.exists(), "a dry run writes")
        return f"dry {len(result.changes)}"
    written = files.out.read_bytes()
    _expect(result.bytes_after == len(written) == result.copied + result.made or append, "the sizes are wrong")
    _expect(not append or written.startswith(content), "append changes what was there")
    model, made = ps.loads(content), ps.loads(written)
    _say(model, edits)
    if edits in EDITS[:11]:
        _expect(not difference(model, made), "an edit does other than it should")
    else:
        names: dict[str, Any] = {name: {new: old for old, new in getattr(edits, name).items()} for name in _NAMED}
        inspect.edit(files.out, inspect.Edits(**names))
        _expect(not difference(model, ps.load(files.out)), "renaming back does not give what was there")
    return f"{EDITS.index(edits)} {result.way} {len(result.changes)}"


_NAMED = ("inputs", "outputs", "values", "nodes", "dims")


def _say(model: ps.ModelProto, edits: inspect.Edits) -> None:
    """The same edit of the decoded model, for those that are not about names."""
    for path, value in edits.fields.items():
        match path.split("."):
            case [name]:
                setattr(model, name, value)
            case ["graph", "name"] if model.graph is not None:
                model.graph.name = str(value)
            case ["graph", "node[0]", name] if model.graph is not None:
                setattr(model.graph.node[0], name, value)
            case ["graph", _, name] if model.graph is not None:
                for node in model.graph.node:
                    setattr(node, name, value)
    for key, text in edits.metadata.items():
        there = [entry for entry in model.metadata_props if entry.key == key]
        model.metadata_props = [e for e in model.metadata_props if e not in there[text is not None :]]
        if there and text is not None:
            there[0].value = text
        elif text is not None:
            model.metadata_props.append(ps.StringStringEntryProto(key=key, value=text))
    for domain, version in edits.opsets.items():
        own = [entry for entry in model.opset_import if domain_of(entry.domain) == domain]
        missing, old = not own, own[-1].version if own else None
        for function in model.functions:
            own += [e for e in function.opset_import if domain_of(e.domain) == domain and e.version == old]
        for entry in own:
            entry.version = version
        if missing:
            model.opset_import.append(ps.OperatorSetIdProto(domain=domain, version=version))
    if edits.drop_doc_strings:
        _without_doc_strings(model)


def _without_doc_strings(message: Message) -> None:
    for field, value in list(present(message)):
        if field.name == "doc_string":
            message.ClearField("doc_string")
        elif field.kind is MESSAGE:
            for child in value if field.repeated else [value]:
                _without_doc_strings(child)


def _canonical(files: _Files, content: bytes, _: Choices) -> str:
    size = inspect.canonicalize(files.model, files.out)
    written = files.out.read_bytes()
    _expect(len(written) == size and written == ps.dumps(ps.loads(content)), "it is not the model's encoding")
    left = [row for row in inspect.findings(Bytes(written)) if "in an unknown group" not in row.text]
    _expect(not left, "what canonicalize wrote is not canonical")  # what is in unknown groups is kept as it is
    return f"{written == content}"


def _extract(files: _Files, content: bytes, choices: Choices) -> str:
    name = choices.one_of(("x", "y", "z", "w", "s", "i", "h", "c", "", "none"))
    match choices.below(3):
        case 0:
            array = inspect.tensor_to_npy(files.model, name, files.out)
            _expect(np.load(files.out).shape == array.shape, "the array has another shape")
            return str(array.dtype)
        case 1:
            count, left_out = inspect.to_safetensors(files.model, files.out)
            _expect(len(open_weights(_renamed(files.out))) == count, "the tensors are not all there")
            return f"{count} {len(left_out)}"
        case _:
            nodes = inspect.extract_subgraph(files.model, files.out, [name])
            graph = ps.load(files.out).graph
            _expect(graph is not None and len(graph.node) == nodes, "the nodes are not all there")
            return f"{nodes} nodes"


def _renamed(path: Path) -> Path:
    return path.rename(path.with_suffix(".safetensors"))


def _salvage(files: _Files, content: bytes, _: Choices) -> str:
    found = inspect.salvage(files.model, files.out)
    model, made = _model(content), ps.load(files.out)
    _expect((found.first_bad < 0) == (model is not None), "salvage and the decoder give two verdicts")
    _expect(all(0 <= at <= at + size <= len(content) for at, size, _ in found.dropped), "what is dropped lies outside")
    if model is not None:
        _expect(not found.dropped and not difference(model, made), "something of a sound file is lost")
    return f"{re.sub(r'[0-9]+', '', found.reason)} {found.cause[:20]} {len(found.dropped).bit_length()}"


def _html(files: _Files, content: bytes, choices: Choices) -> str:
    if not content:  # the one file of which there is no page
        with suppress(ps.DecodeError):
            inspect.html(files.model, files.out, HISTOGRAMS[0])
            raise Violation("an empty file has a page")
        return "empty"
    page = inspect.html(files.model, files.out, choices.one_of(HISTOGRAMS))
    written = files.out.read_bytes()
    _expect(page.bytes == len(written) and written.isascii(), "the page is not what it says")
    _expect((page.damage.first_bad < 0) == (_model(content) is not None), "the page and the decoder give two verdicts")
    return f"{page.tensors} {page.whole} {page.unreadable} {page.damage.first_bad < 0}"


def _command(files: _Files, _: bytes, choices: Choices) -> str:
    """A verb, with its own way of reading options and files, and of saying what is wrong."""
    number = choices.below(len(COMMANDS))
    paths = Files(files.model.parent)
    try:
        COMMANDS[number](paths)
    except UnexpectedError as error:
        raise words_missing(error) from error
    return f"{number}"


COMMANDS: tuple[Reader, ...] = tuple(
    verb(*words)
    for words in (
        ("show", "{model}"),
        ("show", "{model}", "--json"),
        ("inspect", "{model}", "graph.node[*].attribute[*]"),
        ("inspect", "{model}", "--json"),
        ("locate", "{model}", "17"),
        ("locate", "{model}", "graph.initializer[-1].dims[*]"),
        ("stat", "{model}", "--duplicates"),
        ("check", "{model}", "--parsers"),
        ("diff", "{model}", "{model}"),
        ("extract", "{model}", "--outputs", "y", "-o", "{out}"),
        ("extract", "{model}", "--tensor", "w", "-o", "{out}"),
        ("edit", "{model}", "--rename-value", "x=fresh", "-o", "{out}"),
        ("canonicalize", "{model}", "-o", "{out}"),
        ("salvage", "{model}", "-o", "{out}"),
        ("html", "{model}", "-o", "{out}"),
    )
)
Tool = Callable[[_Files, bytes, Choices], str]
TOOLS: list[tuple[Tool, tuple[type[Exception], ...]]] = [  # the errors that it documents
    (_tree, ()),
    (_locate, ()),
    (_find, (ValueError,)),
    (_forms, ()),
    (_sizes, (ps.DecodeError, ps.ExternalDataError)),
    (_check, (ps.DecodeError, ps.CheckError)),
    (_diff, (ps.DecodeError, ps.ExternalDataError)),
    (_edit, (ValueError,)),
    (_edit, (ValueError,)),
    (_canonical, (ps.DecodeError,)),
    (_extract, (ValueError,)),
    (_salvage, (ValueError,)),
    (_html, ()),
    (_command, ()),
]


def check(data: bytes) -> str:
    files, choices, content = _files(), Choices(data[:HEAD]), data[HEAD:]
    number = choices.below(len(TOOLS))
    tool, documented = TOOLS[number]
    files.model.write_bytes(content)
    try:
        with bounded(data, len(content)):
            try:
                word = tool(files, content, choices)
            except documented as error:
                word = re.sub(r"b?'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|/[^ ]*|\d+", "", f"{type(error).__name__} {error}")
        _expect(files.model.read_bytes() == content, "the file itself was changed")
    finally:
        for path in files.out.parent.iterdir():
            path.unlink()
    return f"{number} {word[:120]}"


def seeds() -> list[bytes]:
    """A small model for each tool with several arguments, each bundled one for one tool or the other."""
    small = [bytes([tool, 1, way, 0, 0]) + models()[1] for tool in range(len(TOOLS)) for way in range(4)]
    small += [bytes([len(TOOLS) - 1, way, 0, 0, 0]) + models()[1] for way in range(len(COMMANDS))]
    return small + [bytes([at % len(TOOLS), 1, at % 5, 0, 0]) + data for at, data in enumerate(models()) if at != 1]


HARNESS = Harness(
    "inspect",
    "each tool on the bytes of a file, whatever they are, gives an answer that holds or a documented error",
    ValueError,
    check,
    seeds,
    head=HEAD,
)
