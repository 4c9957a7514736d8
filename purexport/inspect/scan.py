"""What a security reviewer wants to know of a file before somebody loads it.

Strategy: one row a rule in RULES, with its severity. Three walks find what they are about: over the bytes (where
readers disagree, bytes that no schema knows), over the messages (texts, names, nesting, tensors), and over graphs and
functions (domains, operators, calls). Nothing is executed or decoded beyond protobuf. Of weights, and of what lies
between them in data files, the beginning is read; a whole data file only for its checksum (`data_risks`). A finding is
a question to the reviewer, no verdict.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import proto_schema as ps
from proto_schema.checking.models import check_calls
from proto_schema.checking.place import Problem
from proto_schema.errors import DecodeError, ExternalDataError, UnreadableDataError
from proto_schema.external import NOT_THERE, entries
from proto_schema.external.addresses import refuse_address
from proto_schema.external.datafiles import expected_size
from proto_schema.external.payload import nbytes
from proto_schema.graphs.calls import callable_functions, callee, domain_of, function_id, is_shadowed
from proto_schema.graphs.names import as_text, constants, used
from proto_schema.inlining.engine import refuse_too_many
from proto_schema.inlining.versions import all_nodes
from proto_schema.onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    StringStringEntryProto,
    TensorProto,
    TrainingInfoProto,
)
from proto_schema.units import counted
from proto_schema.wire.fields import MESSAGE, Message, present
from purexport.inspect.allowed import Allowed
from purexport.inspect.data_risks import fields_with_values, head_of, risks_of_files
from purexport.inspect.deceptive import IN_NAMES, IN_TEXTS, look_alikes
from purexport.inspect.elements import Bytes
from purexport.inspect.forms import DISAGREE, REFUSED, findings
from purexport.inspect.signatures import HEAD, signature

SEVERITIES = ("info", "low", "medium", "high", "critical")

RULES: dict[str, tuple[str, str]] = {
    "external-path-escapes": ("critical", "external data outside of the model's folder"),
    "executable-bytes": ("critical", "bytes that begin like a program, an archive or a pickle"),
    "not-allowed": ("high", "an operator that is not on the list"),
    "unreadable": ("high", "bytes that every reader refuses"),
    "readers-disagree": ("high", "bytes that readers take for different models"),
    "external-link": ("high", "external data behind a link or in what is not a regular file"),
    "external-claim": ("high", "external data that is shorter than the model says, or said in no proper way"),
    "tensor-claim": ("high", "a shape that does not fit the data"),
    "values-twice": ("high", "a tensor with values in several fields, of which readers take one"),
    "name-twice": ("high", "two tensors of one graph with the same name, of which readers take one"),
    "checksum": ("high", "a data file that is not the one of its checksum"),
    "recursive-functions": ("high", "functions that call themselves"),
    "shadowed-operator": ("high", "a function that is named like an operator of the standard, which runs instead"),
    "call-expansion": ("high", "function calls that multiply beyond any real model"),
    "script-in-text": ("high", "a text that looks like a script"),
    "repeated-field": ("medium", "a field that is there twice, of which readers take one"),
    "unknown-bytes": ("medium", "bytes of no known field"),
    "unknown-operator": ("medium", "an operator that the standard does not have"),
    "unknown-domain": ("medium", "operators that a runtime must get from elsewhere"),
    "deceptive-text": ("medium", "invisible or control characters, or such that turn the text around"),
    "look-alike": ("medium", "a name with letters that look like others"),
    "device-program": ("medium", "a program that was compiled for a device"),
    "overlapping-data": ("medium", "tensors that share a part of their bytes"),
    "function-of-runtime": ("medium", "a function in the domain of a runtime, whose own operator may run instead"),
    "deep-nesting": ("medium", "graphs in graphs, deeper than models are"),
    "external-missing": ("medium", "external data that is not there"),
    "url-in-text": ("low", "an address in a text"),
    "training": ("low", "graphs for training, which few tools look at"),
    "unowned-data": ("low", "bytes of a data file that no tensor has"),
    "unused-tensor": ("low", "a large tensor that nothing uses"),
    "runtime-domain": ("low", "operators of one runtime"),
    "unusual-form": ("info", "bytes that a usual writer would choose otherwise"),
    "external-data": ("info", "data files that belong to the model"),
}
"""Rule -> (severity, title)."""

MOST = 1000
"""Findings of one rule that are kept; the others are counted."""

_NESTED = 8
_LARGE = 1024  # bytes of a tensor that is worth a word where nothing uses it
_PATH = 4096  # bytes of the longest path; what is longer is no name of a file
_RUNTIME_DOMAINS = ("com.microsoft", "com.ms.internal.nhwc", "ai.onnxruntime", "org.pytorch.aten", "com.nvidia")
_SCRIPT = re.compile(
    r"<script|javascript:|vbscript:|\beval\s*\(|\bexec\s*\(|__import__|__reduce__|\bos\.system|\bsubprocess\b|\bpowershell\b"
    r"|/bin/(?:ba)?sh\b|^#!|\bimport\s+(?:os|sys|socket|pickle)\b|\$\(|\bcurl\s+-|\bwget\s+",
    re.IGNORECASE,
)
_URL = re.compile(r"\b(?:https?|ftp|file|data|s3|gs)://[^\s\"'<>]{1,200}|\\\\[\w.-]+\\", re.IGNORECASE)
_NAMES = frozenset(("name", "op_type", "domain", "input", "output", "overload", "ref_attr_name", "dim_param", "key"))


@dataclass(frozen=True)
class Risk:
    """One finding: `path` is where, by fields; `offset` the byte in the file, where one is to blame."""

    rule: str
    severity: str
    path: str
    offset: int | None
    text: str


@dataclass
class Scan:
    """What was found. `counts` has all, also those past MOST of a rule."""

    file: str
    risks: list[Risk] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, rule: str, path: str, text: str, offset: int | None = None) -> None:
        """Note a finding."""
        self.counts[rule] += 1
        if self.counts[rule] <= MOST:
            self.risks.append(Risk(rule, RULES[rule][0], path, offset, text))

    def worst(self) -> str | None:
        """The greatest severity; None without findings."""
        return max((risk.severity for risk in self.risks), key=SEVERITIES.index, default=None)


def scan(path: str | os.PathLike[str], allow: Allowed | None = None) -> Scan:
    """What is to be said of the model at `path`, gravest first. OSError if the file cannot be read.

    `allow`: operators that may occur; every other one is a finding.
    """
    refuse_address(path, "a file that is scanned, with its data,")
    made = Scan(os.fspath(path))
    _scan_bytes(made, Bytes(made.file))
    try:
        model = ps.load(made.file)
    except DecodeError as error:
        if not made.counts["unreadable"]:
            made.add("unreadable", error.path, error.reason, error.offset)
    else:
        _scan_messages(made, model)
        _scan_files(made, model)
        _scan_calls(made, model, allow)
    made.risks.sort(key=lambda risk: -SEVERITIES.index(risk.severity))
    return made


# -- bytes -------------------------------------------------------------------------------------------------------------


def _scan_bytes(made: Scan, source: Bytes) -> None:
    for finding in findings(source):
        if finding.kind == REFUSED:
            rule = "unreadable"
        elif finding.kind == DISAGREE:
            rule = "readers-disagree"
        elif "is there again" in finding.text or "takes the place of" in finding.text:
            rule = "repeated-field"
        else:
            rule = "unusual-form"
        made.add(rule, finding.path, finding.text, finding.offset)
    todo = [source.whole()]
    while todo:
        for child in source.children(todo.pop()):
            if child.message is not None:
                todo.append(child)
            elif child.field is None and not child.problem:
                made.add(
                    "unknown-bytes",
                    child.path,
                    f"{counted(child.stop - child.start, 'byte')} of an unknown field",
                    child.start,
                )


# -- messages ----------------------------------------------------------------------------------------------------------


def _scan_messages(made: Scan, model: ModelProto) -> None:
    folder = os.path.dirname(os.path.abspath(made.file))
    data_files: dict[str, int] = {}
    names: set[str | bytes] = set()
    todo: list[tuple[Message, str, int]] = [(model, "", 0)]
    while todo:
        message, path, depth = todo.pop()
        if isinstance(message, TensorProto):
            _scan_tensor(made, message, path, folder, data_files)
        elif isinstance(message, GraphProto):
            _scan_graph(made, message, path)
        elif isinstance(message, TrainingInfoProto):
            made.add("training", path, "is there")
        for row, value in present(message):
            place = f"{path}.{row.name}" if path else row.name
            values = enumerate(value) if row.repeated else ((None, value),)
            if row.kind is not MESSAGE and row.kind.name not in ("string", "bytes"):
                continue
            for index, item in values:
                where = place if index is None else f"{place}[{index}]"
                if row.kind is MESSAGE:
                    inner = depth + (row.message == "GraphProto")
                    if inner == _NESTED + 1 and row.message == "GraphProto":
                        made.add("deep-nesting", where, f"{inner - 1} graphs around this one")
                    todo.append((item, where, inner))
                else:
                    _scan_text(made, item, row.name, where)
                    if row.name in _NAMES:
                        names.add(item)
    for name, count in data_files.items():
        made.add("external-data", name, f"{counted(count, 'tensor')} with data in it")
    for name, latin in look_alikes(names):
        made.add("look-alike", "", f"{name[:80]!a} looks like {latin[:80]!a}")


def _scan_graph(made: Scan, graph: GraphProto, path: str) -> None:
    found = Counter(tensor.name for tensor in constants(graph))
    for name, count in found.items():
        if count > 1:
            made.add("name-twice", path, f"{counted(count, 'tensor')} are called {as_text(name)[:80]!a}")
    large = [tensor for tensor in graph.initializer if (expected_size(tensor) or 0) >= _LARGE]
    if large:
        read = {*used(graph.node), *(value.name for value in graph.output)}
        for tensor in large:
            if tensor.name not in read:
                made.add("unused-tensor", path, f"{as_text(tensor.name)!a}: {expected_size(tensor) or 0:,} bytes")


def _scan_files(made: Scan, model: ModelProto) -> None:
    try:
        for rule, place, text in risks_of_files(model):
            made.add(rule, place, text)
    except Problem:  # a file for a checksum that is not there, which is a finding of its own
        return


def _scan_text(made: Scan, value: str | bytes, name: str, where: str) -> None:
    if isinstance(value, bytes):
        _note_signature(made, signature(value[:HEAD], chosen=True), where)
    text = as_text(value)
    pattern = IN_NAMES if name in _NAMES else IN_TEXTS
    if isinstance(value, str) and (hidden := pattern.search(text)):
        made.add("deceptive-text", where, f"the character U+{ord(hidden.group()):04X} in {text[:80]!a}")
    if script := _SCRIPT.search(text):
        made.add("script-in-text", where, f"{script.group()!a} in {_around(text, script.start())!a}")
    for url in islice(_URL.finditer(text), 20):
        made.add("url-in-text", where, ascii(url.group()))


def _note_signature(made: Scan, what: str, where: str) -> None:
    if what:
        made.add("executable-bytes", where, f"begins like {what}")


def _around(text: str, at: int) -> str:
    return text[max(0, at - 30) : at + 50]


def _scan_tensor(made: Scan, tensor: TensorProto, path: str, folder: str, data_files: dict[str, int]) -> None:
    name = as_text(tensor.name)
    fields = fields_with_values(tensor)
    if len(fields) > 1:
        made.add("values-twice", path, f"{name!r} has values in {' and '.join(fields)}")
    if tensor.data_location == TensorProto.EXTERNAL:
        _scan_external(made, tensor, path, folder, data_files)
        return
    if any(size < 0 for size in tensor.dims):
        made.add("tensor-claim", path, f"{name!r} has a negative size in its shape {tensor.dims[:8]}")
    elif tensor.raw_data is not None:
        size = expected_size(tensor)
        there = nbytes(tensor.raw_data)
        if size is not None and size != there:
            made.add("tensor-claim", path, f"{name!r}: its shape needs {size:,} bytes, and {there:,} are there")
    chosen = tensor.data_type in (TensorProto.UINT8, TensorProto.INT8)
    _note_signature(made, signature(head_of(tensor), chosen=chosen), path)


def _scan_external(made: Scan, tensor: TensorProto, path: str, folder: str, data_files: dict[str, int]) -> None:
    name = as_text(tensor.name)
    try:
        entry = entries(tensor)
    except ExternalDataError as error:
        made.add("external-path-escapes" if _escapes(tensor) else "external-claim", path, str(error))
        return
    data_files[entry.location] = data_files.get(entry.location, 0) + 1
    place = os.path.join(folder, entry.location)
    if any(os.path.islink(part) for part in _steps(folder, entry.location)):
        made.add("external-link", path, f"{name!r}: a link is on the way to {entry.location!r}")
        return
    try:
        found = os.lstat(place)
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise
        made.add("external-missing", path, f"{name!r}: {entry.location!r}: {error.strerror}")
        return
    size = expected_size(tensor)
    if not stat.S_ISREG(found.st_mode):
        made.add("external-link", path, f"{name!r}: {entry.location!r} is not a regular file")
    elif entry.offset + (entry.length or 0) > found.st_size:
        end = entry.offset + (entry.length or 0)
        made.add(
            "external-claim", path, f"{name!r}: bytes up to {end:,} of {entry.location!r}, which has {found.st_size:,}"
        )
    elif size is not None and size != (found.st_size - entry.offset if entry.length is None else entry.length):
        made.add("tensor-claim", path, f"{name!r}: its shape needs {size:,} bytes, and {entry.length or 0:,} are named")
    else:
        try:
            _note_signature(made, signature(head_of(tensor)), path)
        except UnreadableDataError:
            raise
        except ExternalDataError as error:  # hard links
            made.add("external-link", path, str(error))


def _escapes(tensor: TensorProto) -> bool:
    """Whether a location by itself is one that must not be."""
    for entry in tensor.external_data:
        if entry.key == "location":
            try:
                entries(TensorProto(external_data=[entry]))
            except ExternalDataError:
                return True
    return False


def _steps(folder: str, location: str) -> Iterator[str]:
    place = folder
    for step in location.split("/"):
        place = os.path.join(place, step)
        yield place


# -- operators ---------------------------------------------------------------------------------------------------------


def _scan_calls(made: Scan, model: ModelProto, allow: Allowed | None) -> None:
    functions = callable_functions(model.functions)
    for place, function in enumerate(model.functions):
        name = as_text(function.name)
        if is_shadowed(function_id(function)):
            text = f"{name!r}: runtimes compute the operator; tools that take the nodes below compute something else"
            made.add("shadowed-operator", f"functions[{place}]", text)
        elif domain_of(function.domain) in _RUNTIME_DOMAINS:
            made.add("function-of-runtime", f"functions[{place}]", f"{name!r} of the domain {function.domain!r}")
    official = set(ps.operators.domains())
    used: dict[tuple[str, str], tuple[int, str]] = {}
    owners: list[tuple[str, list[NodeProto]]] = [("graph.node", model.graph.node if model.graph is not None else [])]
    owners += [(f"functions[{place}].node", function.node) for place, function in enumerate(model.functions)]
    for path, nodes in owners:
        for place, node in enumerate(nodes):
            for inner in all_nodes([node]):
                if inner.op_type == "EPContext":
                    _scan_context(made, inner, f"{path}[{place}]")
                if callee(inner) not in functions or domain_of(inner.domain) in _RUNTIME_DOMAINS:
                    key = domain_of(inner.domain), as_text(inner.op_type)
                    count, first = used.get(key, (0, f"{path}[{place}]"))
                    used[key] = count + 1, first
    for (domain, name), (count, first) in used.items():
        times = f"{count} node{'' if count == 1 else 's'}"
        if allow is not None and not allow.takes(domain, name):
            made.add("not-allowed", first, f"{name!r} of the domain {domain or 'ai.onnx'!r}, {times}")
        if domain in official:
            if not ps.operators.versions(name, domain):
                made.add("unknown-operator", first, f"{name!r} of the domain {domain or 'ai.onnx'!r}, {times}")
        else:
            rule = "runtime-domain" if domain in _RUNTIME_DOMAINS else "unknown-domain"
            made.add(rule, first, f"{name!r} of the domain {domain!r}, {times}")
    try:
        check_calls(model)
    except Problem as problem:
        made.add("recursive-functions", "functions", problem.reason)
        return
    try:
        refuse_too_many(owners[0][1], lambda node: functions.get(callee(node)))
    except ValueError as error:
        made.add("call-expansion", "graph", str(error).partition(":")[0])


def _scan_context(made: Scan, node: NodeProto, path: str) -> None:
    """A node that is a program for an accelerator, in a file or in the node itself."""
    given = {item.name: item for item in node.attribute}
    context = given["ep_cache_context"].s if "ep_cache_context" in given else None
    if ("embed_mode" in given and given["embed_mode"].i == 0) or (context is not None and len(context) < _PATH):
        location = as_text(context or b"")
        entry = StringStringEntryProto(key="location", value=location)
        if _escapes(TensorProto(external_data=[entry])):
            made.add("external-path-escapes", path, f"the program of an EPContext is in {location[:200]!a}")
        made.add("device-program", path, f"in the file {location[:200]!a}")
    else:
        made.add("device-program", path, f"{counted(len(context or b''), 'byte')} in the model")


# -- SARIF -------------------------------------------------------------------------------------------------------------

_LEVELS = {"info": "note", "low": "note", "medium": "warning", "high": "error", "critical": "error"}
_SCORES = {"info": "0.0", "low": "3.0", "medium": "5.5", "high": "8.0", "critical": "9.5"}


def sarif(made: Scan, version: str) -> dict[str, Any]:
    """The findings as SARIF 2.1.0, which code hosts and editors show."""
    rules = [
        {
            "id": name,
            "shortDescription": {"text": title},
            "defaultConfiguration": {"level": _LEVELS[severity]},
            "properties": {"security-severity": _SCORES[severity], "tags": ["security"]},
        }
        for name, (severity, title) in RULES.items()
    ]
    results = []
    for risk in made.risks:
        physical: dict[str, Any] = {"artifactLocation": {"uri": made.file.replace(os.sep, "/")}}
        if risk.offset is not None:
            physical["region"] = {"byteOffset": risk.offset}
        place = {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": risk.path}]}
        level = _LEVELS[risk.severity]
        results.append({"ruleId": risk.rule, "level": level, "message": {"text": risk.text}, "locations": [place]})
    driver = {"name": "purexport", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


__all__ = ["MOST", "RULES", "SEVERITIES", "Risk", "Scan", "sarif", "scan"]
