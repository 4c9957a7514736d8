"""Invariant: whatever a model says of external data, no file outside its folder is opened, and nothing of one is read.

The input is a stream of choices: a model with some external tensors, whose locations and numbers are made of PIECES and
NUMBERS, in a folder with files, links of every kind, a pipe and a socket; a trust root, or none; and one function that
reads models, which may refuse with the errors that it documents and no other. What it opens is watched by descriptor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import proto_schema as ps
from fuzz.bounds import bounded
from fuzz.build import Choices
from fuzz.harness import Harness, Violation
from fuzz.sandbox import DATA, SECRET, Sandbox, Watch
from proto_schema import helper
from proto_schema.external import tensors
from proto_schema.numpy_helper import to_array
from purexport import inspect
from purexport.inspect.html import HISTOGRAMS
from purexport.weights import WeightsError, open_weights

T = ps.TensorProto
PIECES = (
    *("w.bin", "sub/w.bin", "empty.bin", "a..b.bin", "\u00e9.bin", "twin", "twin2", "m.onnx"),  # fine
    *("link", "linked/w.bin", "inner", "within/w.bin", "dangling", "loop", "null", "up/outside/secret", "hard"),
    *("pipe", "socket", "sub", "gone.bin", "nowhere/w.bin", "w.bin/w.bin", "linked", "up", "hard/", "x" * 300),
    *("..", ".", "", "/", "//", "../outside/secret", "../outside/w.bin", "sub/../w.bin", "..\\outside\\w.bin", "..."),
    *("/dev/null", "/dev/zero", "/etc/passwd", "/proc/self/environ", "/proc/self/fd/0", "//host/share/w.bin", "~"),
    *("C:w.bin", "C:\\w.bin", "\\\\host\\w.bin", "sub\\w.bin", "CON", "NUL", "w.bin:stream", "file:///etc/passwd"),
    *("w.bin\0", "\0", "w.bin\n", " w.bin", "%2e%2e/outside/w.bin", "\u2025/outside/w.bin", "\uff0e\uff0e/outside"),
)
SEPARATORS = ("", "", "/", "/", "//", "/./", "/../", "\\", "\0")
NUMBERS = (
    *("0", "8", "32", "64", "4", "1", "63", "65", "007", "", "-1", "+4", "1_0", " 8 ", "8\n", "0x8", "8.0", "1e1"),
    *("\u0663", "\u00b2", str(2**62), str(2**63 - 1), str(2**63), "9" * 20, "9" * 5000, "eight", b"\xff"),
)
KEYS = ("length", "length", "offset", "checksum", "basepath", "location", "url", "", None, b"\xff", "Location")
DIMS = ((8,), (8,), (4, 2), (64,), (16,), (), (0, 3), (2**40,), (2**62, 4), (-1,), (1,) * 65)
_QUOTED = r"b?'[^']*'|\"[^\"]*\""
CODES = (T.FLOAT, T.FLOAT, T.FLOAT, T.UINT8, T.INT4, T.BFLOAT16, T.DOUBLE, T.BOOL, T.STRING, T.COMPLEX64, 0, 99)


@cache
def _sandbox() -> Sandbox:
    return Sandbox()


@cache
def _watch() -> Watch:
    return Watch()


# Models ---------------------------------------------------------------------------------------------------------------


def _location(choices: Choices) -> Any:
    kind = choices.below(8)
    if kind == 7:
        return (b"\xff.bin", str(_sandbox().model / "w.bin"), str(_sandbox().outside / "secret"), None)[
            choices.below(4)
        ]
    if kind < 5:
        return choices.one_of(PIECES)
    return "".join(choices.one_of(PIECES) + choices.one_of(SEPARATORS) for _ in range(kind - 3)).rstrip("/")


def _tensor(choices: Choices, number: int) -> ps.TensorProto:
    entries: list[tuple[Any, Any]] = [("location", _location(choices))] if choices.below(16) else []
    for _ in range(choices.below(4)):
        key = choices.one_of(KEYS)
        odd = key in ("location", "basepath")
        entries.append((key, _location(choices) if odd else choices.one_of(NUMBERS)))
    made = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries]
    found = T(name=f"t{number}", data_type=choices.one_of(CODES), dims=list(choices.one_of(DIMS)))
    found.external_data, found.data_location = made, T.EXTERNAL
    if choices.below(16) == 15:
        found.raw_data = DATA[:32]
    return found


def _model(choices: Choices) -> ps.ModelProto:
    """One to three tensors, as initializers, in nodes, in a subgraph, in a function."""
    graph = helper.make_graph([], "g", [], [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    for number in range(1 + choices.below(3)):
        tensor = _tensor(choices, number)
        node = ps.NodeProto(op_type="Constant", output=[f"c{number}"])
        node.attribute = [ps.AttributeProto(name="value", type=ps.AttributeProto.TENSOR, t=tensor)]
        match choices.below(6):
            case 0:
                graph.node.append(node)
            case 1:
                inner = ps.AttributeProto(name="g", type=ps.AttributeProto.GRAPH, g=ps.GraphProto(node=[node]))
                graph.node.append(ps.NodeProto(op_type="If", attribute=[inner]))
            case 2:
                model.functions.append(ps.FunctionProto(name="f", domain="my", node=[node]))
            case _:
                graph.initializer.append(tensor)
    return model


# Functions that read models -------------------------------------------------------------------------------------------

Action = Callable[[Sandbox, Choices, "str | None"], Any]


def _values(box: Sandbox, choices: Choices, root: str | None) -> str:
    found = []
    for tensor in tensors(ps.load(box.file, trust_root=root)):
        try:
            values = to_array(tensor, base_dir=box.model) if choices.below(4) == 3 else to_array(tensor)
        except (TypeError, ps.DecodeError, ps.ExternalDataError) as error:
            found.append(_reason(error))
        else:
            data = values.tobytes()
            if root is None and data and SECRET[:4] in data:
                raise Violation("bytes from outside of the folder are in a tensor")
            found.append(f"{values.dtype}")
    return " ".join(found)


def _save(box: Sandbox, choices: Choices, root: str | None) -> str:
    where: Any = choices.one_of((None, True, False, "reference"))
    folder = choices.one_of((box.out, box.model))
    model = ps.load(box.file, trust_root=root)
    options = {"external_data": where, "size_threshold": choices.one_of((0, 16, 1024))}
    if choices.below(2):
        return ps.plan(model, folder / "saved.onnx", **options).__class__.__name__
    ps.save(model, folder / "saved.onnx", **options)
    again = ps.load(folder / "saved.onnx", trust_root=root)
    return " ".join(str(tensor.data_location) for tensor in tensors(again))


def _weights(box: Sandbox, _: Choices, __: str | None) -> str:
    found = open_weights(box.file)
    return " ".join(f"{row.payload.nbytes} {len(row.payload.tobytes())}" for row in found.values())


def _edited(box: Sandbox, choices: Choices, _: str | None) -> str:
    edits = inspect.Edits(fields={"producer_name": "me"})
    target = choices.one_of((None, box.model / "edited.onnx", box.out / "edited.onnx"))
    return " ".join(inspect.edit(box.file, edits, target).untouched)


def _extracted(box: Sandbox, choices: Choices, _: str | None) -> str:
    match choices.below(3):
        case 0:
            return str(inspect.tensor_to_npy(box.file, "t0", box.out / "t.npy").dtype)
        case 1:
            return str(inspect.to_safetensors(box.file, box.out / "t.safetensors"))
        case _:
            return str(inspect.extract_subgraph(box.file, box.out / "part.onnx", ["t0"]))


def _html(box: Sandbox, choices: Choices, _: str | None) -> str:
    page = inspect.html(box.file, box.out / "m.html", choices.one_of(HISTOGRAMS))
    return f"{page.tensors} {page.whole} {page.unreadable}"


# what reads a model, the errors that it documents, whether it writes
ACTIONS: list[tuple[Action, tuple[type[Exception], ...], bool]] = [
    (_values, (), False),
    (_values, (), False),
    (_values, (), False),
    (lambda box, choices, _: ps.checker.check_model(box.file, bool(choices.below(2))), (ps.CheckError,), False),
    (lambda box, _, __: inspect.sizes(box.file).problems, (), False),
    (lambda box, _, __: inspect.duplicates(box.file), (ps.ExternalDataError,), False),
    (
        lambda box, choices, _: inspect.owners(str(box.file), choices.one_of(PIECES), choices.below(70)),
        (ValueError,),
        False,
    ),
    (lambda box, _, __: inspect.compare_files(str(box.file), str(box.file)), (ps.ExternalDataError,), False),
    (_weights, (WeightsError,), False),
    (_html, (), True),
    (_save, (ps.EncodeError, ps.ExternalDataError), True),
    (_edited, (ValueError,), True),
    (_extracted, (ValueError,), True),
    (lambda box, _, __: inspect.canonicalize(box.file, box.model / "c.onnx"), (), True),
    (lambda box, _, __: inspect.salvage(box.file, box.model / "s.onnx"), (), True),
]


@cache
def _prepared() -> Sandbox:
    """The sandbox, after each function has run: what it imports is no finding, and no memory of its own."""
    for data in seeds()[: 3 * len(ACTIONS)]:
        _Case(_sandbox(), data).run()
    _sandbox().tidy()
    return _sandbox()


class _Case:
    """The choices of one input, and the model, written."""

    def __init__(self, box: Sandbox, data: bytes) -> None:
        self.box, self.choices = box, Choices(data)
        self.number = self.choices.below(len(ACTIONS))
        self.action, self.documented, self.writes = ACTIONS[self.number]
        places = (None, None, None, box.root, box.outside, box.model, box.model / "sub")
        self.root = self.choices.one_of(places) if self.action in (_values, _save) else None
        self.encoded = _model(self.choices).SerializeToString()
        box.file.write_bytes(self.encoded)

    def run(self) -> str:
        """What came of it, or the documented refusal."""
        try:
            return str(self.action(self.box, self.choices, None if self.root is None else str(self.root)))
        except self.documented as error:
            return _reason(error)


def check(data: bytes) -> str:
    box, watch = _prepared(), _watch()
    case = _Case(box, data)
    changed = ""
    try:
        with bounded(data, len(case.encoded)), watch():
            word = case.run()
    finally:
        changed = box.tidy() if case.writes else ""
    if watch.strangers(box.model, box.out, *([case.root] if case.root else [])):
        raise Violation("a file outside of the folder is opened")
    if not case.root and any(not path.startswith(str(box.model / "twin")) for path in watch.foreign):
        raise Violation("a file that has a name outside of the folder is mapped")
    if changed:
        for made in (_prepared, _sandbox):  # the next input gets a folder that is whole
            made.cache_clear()
        raise Violation("a file that is not the result was changed, or one outside of the folder was written")
    return f"{case.number} {word[:120]}"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__} {re.sub(r'/[^ ]*|[0-9]+', '', re.sub(_QUOTED, '', str(error)))}"


def seeds() -> list[bytes]:
    """Streams of choices, some for each function."""
    rng = Random(0)
    return [bytes([number % len(ACTIONS), 0]) + rng.randbytes(40) for number in range(8 * len(ACTIONS))]


HARNESS = Harness(
    "external",
    "no file outside of a model's folder is opened, whatever the model says of external data",
    ValueError,
    check,
    seeds,
    longest=200,
)
