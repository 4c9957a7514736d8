"""What each verb is asked to do with a real file, and what must hold of its answer.

A row runs command lines (`real_files.command`) in a folder with the model, and judges what they wrote: onnx's checker,
where it takes the model as it was; ONNX Runtime, where it takes that; and the numbers of both, on the same inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import proto_schema as ps
from benchmarks.real_files import INVALID, OK, REFUSED, SILENT, Answer, command, forked

Verdict = tuple[str, str]
SHAPES = 6  # of inputs that are tried
CLOSE = 2e-3  # of the largest number: another order of sums; int8 and int4 are judged by shapes


@dataclass
class Case:
    """A model in a folder, and what judges say of it as it is: whether it is valid, and its results.

    Where its outputs are declared with another rank than they have, onnx's checker says so of some files only, and ours
    of all: such a file is not valid, and what is made of it does not have to be.
    """

    model: Path
    valid: bool
    inputs: Path | None  # an .npz file that ONNX Runtime takes
    results: dict[str, Any]
    graph: ps.GraphProto
    opset: int

    def path(self, name: str) -> Path:
        return self.model.parent / name


@dataclass(frozen=True)
class Row:
    name: str
    judge: Callable[[Case], Verdict]


# Judges, each in a process of its own ---------------------------------------------------------------------------------


def prepared(model: Path) -> Case:
    """The model as it is, with inputs that it takes."""
    from proto_schema.reference.inputs import allowed_shapes, asked, drawn

    proto = ps.load(model)
    valid = not _checked(model) and command(["check", "--full", str(model)]).status == 0
    case = Case(model, valid, None, {}, proto.graph or ps.GraphProto(), 0)
    case.opset = next((item.version or 0 for item in proto.opset_import if item.domain in (None, "", "ai.onnx")), 0)
    for most, shapes in ((most, shapes) for most in (200, 2) for shapes in islice(allowed_shapes(proto), SHAPES)):
        draw = np.random.default_rng(7)
        feed = {item.name or "": drawn(item, shapes.get(item.name or ""), draw) for item in asked(proto)}
        if any(array is None for array in feed.values()):
            break
        for name, array in feed.items():  # 0 and 1 alone are all alike, and cancel where a model takes bytes
            if array.dtype.kind in "iu":
                feed[name] = draw.integers(0, min(most, 100 if array.itemsize == 1 else most), array.shape, array.dtype)
        path = case.path("inputs.npz")
        np.savez(path, **feed)
        if not _run(model, path, case.path("results.npz")):
            case.inputs, case.results = path, dict(np.load(case.path("results.npz")))
            break
    return case


def _checked(path: Path) -> str:
    """What onnx's checker says against a file, or ""."""

    def work() -> int:
        import onnx

        try:
            onnx.checker.check_model(str(path))
            onnx.checker.check_model(onnx.load(str(path)), full_check=True)  # of the path it takes no external shapes
        except Exception as error:
            print(str(error).strip().splitlines()[-1])
            return 1
        return 0

    answer = forked(work)
    return "" if answer.status == 0 else f"onnx's checker: {answer.last or answer.status}"


def _run(path: Path, inputs: Path, results: Path, names: Mapping[str, str] | None = None) -> str:
    """What ONNX Runtime says against a file and inputs, or ""; its outputs go to `results`."""

    def work() -> int:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            given = {(names or {}).get(name, name): array for name, array in np.load(inputs).items()}
            wanted = {item.name for item in session.get_inputs()}
            found = session.run(None, {name: array for name, array in given.items() if name in wanted})
        except Exception as error:
            print(str(error).strip().splitlines()[-1])
            return 1
        outputs = [item.name for item in session.get_outputs()]
        np.savez(results, **{name: np.asarray(value) for name, value in zip(outputs, found, strict=True)})
        return 0

    answer = forked(work, memory=64 << 30)
    return "" if answer.status == 0 else f"ONNX Runtime: {answer.last or answer.status}"


def _judged(
    case: Case, path: Path, close: float | None = CLOSE, inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
) -> Verdict:  # fmt: skip
    """A model that a verb made of the case's. `close`: how far its numbers may be away, None for any."""
    if not path.is_file():
        return SILENT, "no file was written"
    broken = _checked(path) if case.valid else ""
    if broken:
        return INVALID, broken
    if case.inputs is None:
        return OK, "ONNX Runtime takes no random inputs of this file"
    broken = _run(path, case.inputs, case.path("now.npz"), inputs)
    if broken:
        return INVALID, broken
    now = dict(np.load(case.path("now.npz")))
    for name, array in now.items():
        before = case.results.get((outputs or {}).get(name, name))
        if before is None:
            return INVALID, f"an output {name!r} that the model has not"
        broken = differs(array, before, close)
        if broken:
            return INVALID, f"the output {name!r} {broken}"
    return OK, ""


def differs(now: Any, before: Any, close: float | None) -> str:
    """How two results differ, or ""."""
    if now.dtype != before.dtype:
        return f"is {now.dtype} and was {before.dtype}"
    if close is None:
        return "" if np.isfinite(now.astype(np.float64)).all() or not np.isfinite(before).all() else "is not finite"
    if now.shape != before.shape:
        return f"has the shape {now.shape} and had {before.shape}"
    if now.dtype.kind != "f":
        return "" if np.array_equal(now, before) else "has other numbers"
    usual = before[np.isfinite(before)]
    most = float(np.abs(usual).max(initial=0.0))
    same = np.isclose(now, before, rtol=close, atol=close * most + 1e-7, equal_nan=True)
    return "" if same.all() else f"differs by {np.abs(now - before)[~same].max():.3g} of {most:.3g}"


# Answers --------------------------------------------------------------------------------------------------------------


def ended(answer: Answer, fine: Sequence[int] = (0,)) -> Verdict | None:
    """The verdict of an answer that is none, or None for one that goes on to be judged."""
    broken = answer.broken()
    if broken:
        return broken, answer.last or f"status {answer.status}"
    if answer.status not in fine:
        return (REFUSED, answer.last) if answer.last else (SILENT, f"status {answer.status}")
    return None


def says(*words: str) -> Callable[[Case], Verdict]:
    """A verb that only answers, as text and as JSON; no is an answer where onnx's checker says no, too."""

    def judge(case: Case) -> Verdict:
        given = [str(case.model) if word == "FILE" else word for word in words]
        for extra in ([], ["--json"]):
            answer = command([*given, *extra])
            found = ended(answer, (0,) if case.valid else (0, 1))
            if found:
                return found
            if not answer.out.strip():
                return SILENT, "no answer"
            if extra:
                json.loads(answer.out)
        return OK, ""

    return judge


def advised(answer: Answer) -> list[str]:
    """The option that a refusal tells a person to add."""
    return list(re.findall(r"\((--opset) ([0-9]+)\)", answer.err)[0]) if "(--opset " in answer.err else []


def makes(*words: str, close: float | None = CLOSE, inputs: bool = False) -> Callable[[Case], Verdict]:
    """A verb that makes another model: FILE and OUT are its paths; `inputs`: it may be told inputs that fit.

    Where a refusal names an option, a person adds it.
    """

    def judge(case: Case) -> Verdict:
        out = case.path("out.onnx")
        out.unlink(missing_ok=True)
        given = [{"FILE": str(case.model), "OUT": str(out)}.get(word, word) for word in words]
        answer = command(given)
        if advised(answer):
            answer = command([*given, *advised(answer)])
        found = ended(answer, (0,) if case.valid else (0, 1))
        if found and inputs and case.inputs is not None:
            answer = command([*given, "--inputs", str(case.inputs)])
            if ended(answer) is None:
                return REFUSED, f"without --inputs: {found[1]}"
        return found or _judged(case, out, close)

    return judge


def locate(case: Case) -> Verdict:
    size = case.model.stat().st_size
    for place in (size // 2, size - 1, 0, "graph.node[0]", "graph.output[0].name"):
        found = ended(command(["locate", str(case.model), str(place)]))
        if found:
            return found
    return OK, ""


def run(case: Case) -> Verdict:
    """As a person asks first, with random inputs; then with ones that the model takes, beside ONNX Runtime."""
    first = ended(command(["run", str(case.model)]))
    if case.inputs is None:
        return first or (OK, "")
    out = case.path("ours.npz")
    found = ended(command(["run", str(case.model), "--inputs", str(case.inputs), "-o", str(out)]))
    if found:
        return found
    ours = dict(np.load(out))
    for name, array in case.results.items():
        broken = differs(ours[name], array, CLOSE)
        if broken:
            return INVALID, f"the output {name!r} {broken}, beside ONNX Runtime"
    return first or (OK, "")


def compare(case: Case) -> Verdict:
    """Our evaluator beside ONNX Runtime."""
    given = [f"--input={name}=@{_npy(case, name)}" for name in np.load(case.inputs)] if case.inputs else []
    answer = command(["compare", str(case.model), str(case.model), *given])
    found = ended(answer, (0, 1))
    return found or ((OK, "") if answer.status == 0 else (INVALID, answer.last))


def _npy(case: Case, name: str) -> Path:
    path = case.path(f"in{list(np.load(case.inputs)).index(name)}.npy")
    np.save(path, np.load(case.inputs)[name])
    return path


def page(*words: str) -> Callable[[Case], Verdict]:
    def judge(case: Case) -> Verdict:
        out = case.path("out.html")
        out.unlink(missing_ok=True)
        given = [{"FILE": str(case.model), "OUT": str(out)}.get(word, word) for word in words]
        found = ended(command(given), (0, 1))
        return found or ((OK, "") if out.is_file() and out.stat().st_size > 10_000 else (SILENT, "no page"))

    return judge


def calibrated(case: Case) -> Verdict:
    if case.inputs is None:
        return OK, "no inputs"
    out = case.path("out.onnx")
    out.unlink(missing_ok=True)
    words = ["quantize", str(case.model), "-o", str(out), "--activations", "uint8", "--calibrate", str(case.inputs)]
    answer = command(words)
    if advised(answer):
        answer = command([*words, *advised(answer)])
    return ended(answer) or _judged(case, out, None)


def _middle(case: Case) -> str:
    """A value in the middle, which the graph makes of its inputs."""
    names = [name for node in case.graph.node for name in node.output if name and node.op_type != "Constant"]
    return names[len(names) // 2]


def first_half(case: Case) -> Verdict:
    """The first half, as a person takes it: by the name of a value in the middle."""
    out = case.path("out.onnx")
    out.unlink(missing_ok=True)
    name = _middle(case)
    found = ended(command(["extract", str(case.model), "--outputs", *_escaped([name]), "-o", str(out)]))
    if found:
        return found
    broken = _checked(out) if case.valid else ""
    if broken:
        return INVALID, broken
    if case.inputs is None:
        return OK, ""
    broken = _run(out, case.inputs, case.path("now.npz"))
    return (INVALID, broken) if broken else (OK, "")


def _escaped(names: Sequence[str]) -> list[str]:
    """As a person writes them where commas are between names."""
    return [name.replace(",", "\\,") for name in names]


def second_half(case: Case) -> Verdict:
    """From a value in the middle to the outputs."""
    out = case.path("out.onnx")
    out.unlink(missing_ok=True)
    outputs = ",".join(_escaped([item.name or "" for item in case.graph.output]))
    inputs = ",".join(_escaped([_middle(case), *(item.name or "" for item in case.graph.input)]))
    words = ["extract", str(case.model), "--inputs", inputs, "--outputs", outputs, "-o", str(out)]
    found = ended(command(words))
    if found:
        return found
    broken = _checked(out) if case.valid else ""
    return (INVALID, broken) if broken else (OK, "")


def tensors(case: Case) -> Verdict:
    out = case.path("out.safetensors")
    out.unlink(missing_ok=True)
    found = ended(command(["extract", str(case.model), "--tensors", "-o", str(out)]))
    if found:
        return found
    from purexport.weights import open_weights

    stored = {name: item.shape for name, item in open_weights(out).items()}
    for tensor in case.graph.initializer:
        if tuple(stored.get(tensor.name or "", ())) != tuple(tensor.dims):
            return INVALID, f"the tensor {tensor.name!r} is not there, or has another shape"
    for tensor in list(case.graph.initializer)[:1]:
        one = case.path("one.npy")
        found = ended(command(["extract", str(case.model), "--tensor", tensor.name or "", "-o", str(one), "--force"]))
        if found:
            return found
        if np.load(one).tobytes() != ps.numpy_helper.to_array(tensor).tobytes():
            return INVALID, f"the tensor {tensor.name!r} has other numbers"
    return OK, ""


def merged(case: Case) -> Verdict:
    """Beside itself, with prefixes, where an output fits an input; else side by side, which merge may refuse."""
    out = case.path("out.onnx")
    out.unlink(missing_ok=True)
    words = ["merge", str(case.model), str(case.model), "--prefix", "a/", "--prefix", "b/", "-o", str(out)]
    pairs = []
    for output in case.graph.output:
        for item in case.graph.input:
            if output.type == item.type and not pairs:
                pairs.append(f"--map={output.name}:{item.name}")
    found = ended(command([*words, *pairs]))
    if found:
        return found
    broken = _checked(out) if case.valid else ""
    if broken:
        return INVALID, broken
    if case.inputs is None or pairs:
        return OK, ""
    both = case.path("both.npz")
    given = dict(np.load(case.inputs))
    np.savez(both, **{f"{letter}/{name}": array for name, array in given.items() for letter in "ab"})
    broken = _run(out, both, case.path("now.npz"))
    if broken:
        return INVALID, broken
    now = dict(np.load(case.path("now.npz")))
    for name, array in case.results.items():
        for letter in "ab":
            broken = differs(now[f"{letter}/{name}"], array, CLOSE)
            if broken:
                return INVALID, f"the output {letter}/{name} {broken}"
    return OK, ""


def renamed(case: Case) -> Verdict:
    """An input gets another name, and metadata is set."""
    out = case.path("out.onnx")
    out.unlink(missing_ok=True)
    name = case.graph.input[0].name or ""
    words = ["edit", str(case.model), "-o", str(out), "--metadata", "author=Ada"]
    found = ended(command([*words, "--rename-input", f"{name.replace('=', chr(92) + '=')}=first input"]))
    return found or _judged(case, out, inputs={name: "first input"})


def shared(case: Case) -> Verdict:
    other, folder = case.path("other.onnx"), case.path("shared")
    other.write_bytes(case.model.read_bytes())
    found = ended(command(["share", str(case.model), str(other), "-o", str(folder), "--force"]))
    return found or _judged(case, folder / "other.onnx")


def _library(change: Callable[[ps.ModelProto, Path], Any], promise: Mapping[str, str], case: Case) -> Verdict:
    """A function of Python, in a process of its own."""
    out = case.path("made") / "out.onnx"
    out.parent.mkdir(exist_ok=True)
    for path in out.parent.iterdir():
        path.unlink()

    def work() -> int:
        try:
            change(ps.load(case.model), out)
        except ValueError as error:
            print(error)
            return 1
        return 0

    answer = forked(work)
    if answer.status:
        return (REFUSED if answer.status == 1 else INVALID), answer.last
    names = {name: text.format(name) for text in promise.values() for name in case.results | dict(_inputs(case))}
    return _judged(case, out, inputs=names, outputs={new: old for old, new in names.items()})


def _inputs(case: Case) -> Mapping[str, Any]:
    return {item.name or "": None for item in case.graph.input}


def library(change: Callable[[ps.ModelProto, Path], Any], **promise: str) -> Callable[[Case], Verdict]:
    return partial(_library, change, promise)


def _inlined(model: ps.ModelProto, out: Path) -> None:
    ps.save(ps.inliner.inline_local_functions(model), out)


def _as_text(model: ps.ModelProto, out: Path) -> None:
    ps.save(ps.parser.parse_model(ps.printer.to_text(model)), out)


def _prefixed(model: ps.ModelProto, out: Path) -> None:
    ps.save(ps.compose.add_prefix(model, "p/"), out)


def _external(model: ps.ModelProto, out: Path) -> None:
    ps.save(model, out, external_data=True)


def _sharded(model: ps.ModelProto, out: Path) -> None:
    ps.save(model, out, external_data=True, shard_size=1 << 20)


def differences(case: Case) -> Verdict:
    """Of itself, none; of the simplified one, some that are said."""
    found = ended(command(["diff", str(case.model), str(case.model)]))
    if found:
        return found
    other = case.path("simple.onnx")
    command(["simplify", str(case.model), "-o", str(other), "--force"])
    return ended(command(["diff", str(case.model), str(other)]), (0, 1)) or (OK, "")


def _cut(where: str, case: Case) -> Verdict:
    """A file that ends too early. The salvaged one has no node of its own, and is valid or said not to be."""
    content = case.model.read_bytes()
    size = _place(case, content) if where == "tensor" else Random(f"{len(content)}").randrange(64, len(content))
    damaged, out = case.path("cut.onnx"), case.path("out.onnx")
    damaged.write_bytes(content[:size])
    out.unlink(missing_ok=True)
    answer = command(["salvage", str(damaged), "-o", str(out)])
    found = ended(answer, (0, 1))
    if found or not out.is_file():
        return found or ((REFUSED, answer.last) if answer.err else (SILENT, "no file"))
    made = ps.load(out)
    names = {(node.op_type, tuple(node.output)) for node in case.graph.node}
    for node in (made.graph or ps.GraphProto()).node:
        if (node.op_type, tuple(node.output)) not in names:
            return INVALID, f"a node that the file had not: {node.op_type} -> {list(node.output)}"
    checked = command(["check", str(out)])
    if checked.status and "not valid" not in answer.out + answer.err and answer.status == 0:
        return INVALID, f"check refuses it, and salvage did not say so: {checked.last}"
    return OK, ""


def _place(case: Case, content: bytes) -> int:
    """A byte inside of the last large tensor."""
    where = []
    for tensor in case.graph.initializer:
        data = bytes(tensor.raw_data or b"")
        at = content.find(data) if len(data) > 64 else -1
        if at >= 0:
            where.append(at + len(data) // 2)
    return max(where, default=len(content) * 2 // 3)


ROWS = (
    Row("show", says("show", "FILE")),
    Row("inspect", says("inspect", "FILE")),
    Row("locate", locate),
    Row("stat", says("stat", "FILE", "--duplicates")),
    Row("check", says("check", "FILE")),
    Row("check --full", says("check", "--full", "FILE")),
    Row("check --parsers", says("check", "--parsers", "FILE")),
    Row("scan", says("scan", "FILE")),
    Row("html", page("html", "FILE", "-o", "OUT")),
    Row("infer", makes("infer", "FILE", "-o", "OUT")),
    Row("convert up", makes("convert", "FILE", "--opset", "21", "-o", "OUT")),
    Row("convert down", makes("convert", "FILE", "--opset", "11", "-o", "OUT")),
    Row("canonicalize", makes("canonicalize", "FILE", "-o", "OUT")),
    Row("edit", renamed),
    Row("merge", merged),
    Row("run", run),
    Row("compare", compare),
    Row("simplify --prove", makes("simplify", "FILE", "-o", "OUT", "--prove", "1", inputs=True)),
    Row("extract first half", first_half),
    Row("extract second half", second_half),
    Row("extract tensors", tensors),
    Row("quantize float16", makes("quantize", "FILE", "-o", "OUT", "--type", "float16", close=None)),
    Row("quantize int8", makes("quantize", "FILE", "-o", "OUT", "--type", "int8", close=None)),
    Row("quantize int4", makes("quantize", "FILE", "-o", "OUT", "--type", "int4", close=None)),
    Row("quantize int4 runtime", makes(
        "quantize", "FILE", "-o", "OUT", "--type", "int4", "--target", "onnxruntime", close=None)),
    Row("quantize activations", calibrated),
    Row("share", shared),
    Row("diff", differences),
    Row("diff --html", page("diff", "FILE", "FILE", "--html", "OUT")),
    Row("salvage, cut in a tensor", partial(_cut, "tensor")),
    Row("salvage, cut anywhere", partial(_cut, "anywhere")),
    Row("save external", library(_external)),
    Row("save sharded", library(_sharded)),
    Row("inline", library(_inlined)),
    Row("text", library(_as_text)),
    Row("prefix", library(_prefixed, names="p/{}")),
)  # fmt: skip
