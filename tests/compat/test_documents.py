"""The documents that torch.onnx had from 2017 to 2020: each code block runs here, and does what its text says.

The blocks lie in tests/compat/documents as they stand there.  RENAMED is all that is changed in them: our modules for
theirs, random weights for downloaded ones, no GPU where there is none, ONNX Runtime for Caffe2.  A row's `slips` are
mistakes of the document; `given` is what its text takes for granted.  docs/development/documents.md lists the blocks,
and a test holds that table to the rows.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import purexport
from tests.tolerances import CHAIN, assert_near
from tests.torchvision_shim import torchvision

FOLDER = Path(__file__).parent / "documents"
PAGE = Path(__file__).parents[2] / "docs" / "development" / "documents.md"

RENAMED = [
    (r"torch\.(onnx|toffee)\b", "purexport"),
    (r"\btoffee\b", "onnx"),
    (r"pretrained=True", "weights=None"),
    (r"import [\w.]*backend[\w.]* as backend", "from tests.compat.documents import backend"),
]
NO_DEVICE = [(r"\.cuda\(\)", ""), (r", device='cuda'", "")]
BRIEF_TEXT = """
def str(model):  # without the weights: 244 MB of them as text take half a minute
    bare = type(model).FromString(model.SerializeToString())
    for tensor in bare.graph.initializer:
        tensor.ClearField("raw_data")
    return f"{bare}"
"""
TOP = "import numpy as np\nimport onnx\nimport torch\nimport torchvision\nfrom torch import nn\nimport purexport\n"


@dataclass(frozen=True)
class Ran:
    """What a row's blocks left: the names after the first and after the last, what they printed, their folder."""

    first: dict[str, Any]
    names: dict[str, Any]
    printed: str
    folder: Path

    def model(self, name: str) -> onnx.ModelProto:
        path = self.folder / name
        onnx.checker.check_model(str(path), full_check=True)
        return onnx.load(str(path))


@dataclass(frozen=True)
class Row:
    """Blocks that follow each other in one document, and what must hold when they have run."""

    blocks: str
    check: Callable[[Ran], None]
    slips: tuple[tuple[str, str], ...] = ()
    given: str = ""


def text_of(block: str) -> str:
    return (FOLDER / f"{block}.txt").read_text()


def code_of(block: str, slips: tuple[tuple[str, str], ...]) -> str:
    code = text_of(block)
    for old, new in slips:
        if old in code:
            code = code.replace(old, new)
    for pattern, new in RENAMED if torch.cuda.is_available() else [*RENAMED, *NO_DEVICE]:
        code = re.sub(pattern, new, code)
    return code


def run(row: Row, folder: Path) -> Ran:
    """Runs the blocks one after the other in `folder`; TorchScript finds their source through linecache."""
    torchvision()  # where its operators do not load, this declares them; the blocks import it themselves
    names: dict[str, Any] = {"__name__": "documents"}
    first = names
    printed = StringIO()
    with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        parts = [("given", TOP + row.given), *((name, code_of(name, row.slips)) for name in row.blocks.split())]
        for name, code in parts:
            file = f"<document {name}>"
            linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
            exec(compile(code, file, "exec"), names)
            first = dict(names) if name == row.blocks.split()[0] else first
    return Ran(first, names, printed.getvalue(), folder)


def session(model: onnx.ModelProto) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def same(found: Any, expected: Tensor) -> None:
    assert_near(found, expected, CHAIN)


# What the printed graphs say ------------------------------------------------------------------------------------------

TABLE_LINE = re.compile(r"^\| [^|]+ \| \[`([\w-]+)`\]\([^)]+\) \| [^|]+ \| `(\w+)` \|$", re.MULTILINE)
STATEMENT = re.compile(r"%(\w+) : Float\(([\d, ]+)\) = onnx::(Conv|Relu|MaxPool)\[?(.*?)\]?\(([^()]*)\), scope: (\S+)")
PARAMETER = re.compile(r"%(learned_\d+) : Float\(([\d, ]+)\)")


def numbers(text: str) -> list[int]:
    return [int(item) for item in re.findall(r"-?\d+", text)]


def shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    infos = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    return {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}


def alexnet_names(ran: Ran) -> None:
    """Names: the inputs first, then the parameters; every statement of the printed graph is a node of the file."""
    model, expected = ran.model("alexnet.onnx"), text_of("alexnet-printed")
    assert [item.name for item in model.graph.input] == ["actual_input_1"]
    assert [item.name for item in model.graph.output] == ["output1"]
    weights = {item.name: list(item.dims) for item in model.graph.initializer}
    assert {f"learned_{index}" for index in range(16)} <= set(weights)
    parameters = PARAMETER.findall(expected)
    assert len(parameters) == 6
    assert all(weights[name] == numbers(dims) for name, dims in parameters)
    statements = STATEMENT.findall(expected)
    assert len(statements) == 4
    nodes = {node.name: node for node in model.graph.node}
    for _, dims, kind, attributes, inputs, scope in statements:
        path = ".".join(re.findall(r"\[(\w+)\]", scope))
        node = nodes[f"{path}/{kind}"]
        assert shapes(model)[node.output[0]] == numbers(dims)
        found = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        for name, listed in re.findall(r"(\w+)=(\[[^\]]*\]|\d+)", attributes):
            assert found.get(name, 1) == (numbers(listed) if "[" in listed else int(listed)), (path, name)
        named = [name for name in re.findall(r"%(\w+)", inputs) if not name.isdigit()]
        assert [name for name in node.input if not name.startswith("features")] == named
    assert (model.graph.node[-1].op_type, list(model.graph.node[-1].input[1:])) == (
        "Gemm",
        ["learned_14", "learned_15"],
    )
    assert ran.names["outputs"][0].shape == (10, 1000)
    alexnet_is_right(ran, model)


def alexnet_is_right(ran: Ran, model: onnx.ModelProto) -> None:
    """Equal to the model in eval mode, though torchvision hands it out in training mode, which is restored."""
    network, image = ran.first["model"], ran.first["dummy_input"]
    assert network.training
    with torch.no_grad():
        same(session(model).run(None, {model.graph.input[0].name: image.cpu().numpy()})[0], network.eval()(image))


def alexnet_2017(ran: Ran) -> None:
    """Sixteen learned parameters in state_dict order, the input's shape, and the printed statements' sizes."""
    model, expected = ran.model("alexnet.proto"), text_of("alexnet-2017-printed")
    weights = {item.name: list(item.dims) for item in model.graph.initializer}
    in_order = [weights[name] for name in ran.first["model"].state_dict()]
    parameters = re.findall(r"%(\d+) : Float\(([\d, ]+)\)(?! =)", expected)
    assert len(parameters) == 7
    for number, dims in parameters[:-1]:
        assert in_order[int(number) - 1] == numbers(dims)
    assert shapes(model)[model.graph.input[0].name] == numbers(parameters[-1][1])
    assert [node.op_type for node in model.graph.node[:3]] == ["Conv", "Relu", "MaxPool"]
    sizes = [numbers(dims) for dims, kind in re.findall(r"Float\(([\d, ]+)\) = (\w+)", expected) if kind != "Add"]
    assert [shapes(model)[node.output[0]] for node in model.graph.node[1:3]] == sizes
    assert ran.names["outputs"][0].shape == (10, 1000)
    alexnet_is_right(ran, model)


def alexnet_toffee(ran: Ran) -> None:
    assert "Conv" in ran.printed  # print(str(graph))
    assert ran.names["outputs"][0].shape == (10, 1000)
    alexnet_is_right(ran, ran.model("alexnet.proto"))


# Tracing and scripting ------------------------------------------------------------------------------------------------


def loop_unrolled(ran: Ran) -> None:
    """An Add for each step; the number of steps is an input still, and changes nothing."""
    model = ran.model("loop.onnx")
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("Add") >= text_of("loop-traced-printed").count("onnx::Add")
    assert set(kinds) <= {"Add", "Identity"}
    assert len(model.graph.input) == 2
    feeds = [ran.names["dummy_input"].numpy(), np.array(9)]
    found = session(model).run(None, dict(zip([item.name for item in model.graph.input], feeds, strict=True)))
    assert found[0].tolist() == [[11] * 3] * 2


def loop_kept(ran: Ran) -> None:
    """One Loop over the range that is an input; nine steps give 37, as the document shows."""
    model = ran.model("loop.onnx")
    assert [item.name for item in model.graph.input] == ["input_data", "loop_range"]
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    assert (loop.input[0], loop.input[2]) == ("loop_range", "input_data")
    body = loop.attribute[0].g
    assert (len(body.input), len(body.output)) == (3, 2)
    assert "Add" in [node.op_type for node in body.node]
    shown = [[int(item) for item in row.split()] for row in re.findall(r"\[(37 37 37)\]", text_of("loop-run"))]
    assert shown == ran.names["outputs"][0].tolist() == [[37] * 3] * 2
    assert ran.printed.count("37") == 12


# Questions ------------------------------------------------------------------------------------------------------------


def lstm(ran: Ran) -> None:
    """Fixed at first, as the question says; with the axis named the file takes another length."""
    fixed, named = ran.printed.split('name: "input"')[1:]
    assert [int(item) for item in re.findall(r"dim_value: (\d+)", fixed)] == [5, 3, 10]
    assert 'dim_param: "sequence"' in named
    model = ran.model("lstm.onnx")
    longer = torch.randn(8, 3, 10)
    with torch.no_grad():
        output, (hn, cn) = ran.names["model"](longer, (ran.names["h0"], ran.names["c0"]))
    feeds = {"input": longer.numpy(), "h0": ran.names["h0"].numpy(), "c0": ran.names["c0"].numpy()}
    for found, expected in zip(session(model).run(["output", "hn", "cn"], feeds), (output, hn, cn), strict=True):
        same(found, expected)


def implicit_cast(ran: Ran) -> None:
    """Both scalars are float32: the datatype is known in scripts too."""
    model = ran.model("models/implicit_cast.onnx")
    name = model.graph.input[0].name
    assert session(model).run(None, {name: np.array([1.0], np.float32)})[0].tolist() == [6.0]
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def inplace_assign(ran: Ran) -> None:
    """The block's own assertion, and the opset that it asked for."""
    model = ran.model("inplace_assign.onnx")
    assert model.opset_import[0].version == 11
    same(ran.names["out_ort"][0], ran.names["out"])
    assert ran.names["out"][1].tolist() == [0, 1, 2, 3]


def tensor_lists(ran: Ran) -> None:
    """The block asserts on a list, which is true whenever it is not empty; here each value is compared."""
    assert ran.model("loop_and_list.onnx").opset_import[0].version == 11
    assert len(ran.names["out"]) == len(ran.names["out_ort"]) == 3
    for found, expected in zip(ran.names["out_ort"], ran.names["out"], strict=True):
        same(found, expected)


def external_data(ran: Ran) -> None:
    """The weights lie in a file beside the model's, in the same folder."""
    model = onnx.load(str(ran.folder / "large_model.onnx"), load_external_data=False)
    places = {
        entry.value for item in model.graph.initializer for entry in item.external_data if entry.key == "location"
    }
    assert places
    assert all((ran.folder / place).is_file() for place in places)
    network, image = ran.names["model"].eval(), ran.names["input"]
    loaded = onnxruntime.InferenceSession(str(ran.folder / "large_model.onnx"))
    same(loaded.run(None, {loaded.get_inputs()[0].name: image.detach().numpy()})[0], network(image))


# printed graphs, to which the checks of the rows hold the files
READ_BY_ROWS = {"alexnet-printed", "alexnet-2017-printed", "loop-traced-printed", "loop-scripted-printed"}


def custom_operator(ran: Ran) -> None:
    """A node Foo with both attributes, typed by the descriptors; the asked custom opset stands among the imports."""
    purexport.unregister_custom_op_symbolic("custom_ops::foo_forward", 9)
    model = onnx.load(str(ran.folder / "model.onnx"))
    (node,) = model.graph.node
    assert node.op_type == "Foo"
    assert {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute} == {"attr1": 0.5, "attr2": 3}
    assert [item.name for item in model.graph.input] == list(node.input)
    assert ("custom_domain", 2) in [(item.domain, item.version) for item in model.opset_import]


def elu(ran: Ran) -> None:
    """The document's function as the rule of today's operator, which has two more numbers, and `inplace` no more."""
    symbolic = ran.names["elu"]
    purexport.register_custom_op_symbolic("aten::elu", lambda g, x, alpha, *_: symbolic(g, x, alpha), 9)
    try:
        program = purexport.export(torch.nn.ELU(0.25), (torch.randn(3),), verify=True)
    finally:
        purexport.unregister_custom_op_symbolic("aten::elu", 9)
    (node,) = program.model_proto.graph.node  # type: ignore[union-attr]
    assert (node.op_type, node.attribute[0].f) == ("Elu", 0.25)


FOO = """
library = torch.library.Library("custom_ops", "FRAGMENT")
library.define("foo_forward(Tensor input1, Tensor input2, float attr1, int attr2) -> Tensor")
library.impl("foo_forward", lambda x, y, a, b: x * a + y * b, "CompositeExplicitAutograd")
attr1, attr2, dummy_input1, dummy_input2 = 0.5, 3, torch.randn(2, 3), torch.randn(2, 3)
"""
NUMPY = ("np.rand(", "np.random.rand(")  # numpy.rand does not exist
GRAPH = ("check_graph(graph)", "check_model(graph)")  # what load returns is a model
ROWS = [
    Row("alexnet check caffe2 onnxruntime", alexnet_names),
    Row("alexnet-2017 check-2017 caffe2-2017", alexnet_2017, slips=(NUMPY, GRAPH)),
    Row("alexnet-2017 check-zh caffe2-zh", alexnet_2017),
    Row("alexnet-toffee check-toffee caffe2-toffee", alexnet_toffee, slips=(NUMPY, GRAPH), given=BRIEF_TEXT),
    Row("loop-traced", loop_unrolled),
    Row("loop-scripted loop-run", loop_kept),
    Row("lstm", lstm),
    Row("implicit-cast", implicit_cast, given="import pathlib\npathlib.Path('models').mkdir()\n"),
    Row("inplace-assign", inplace_assign),
    Row("tensor-lists", tensor_lists),
    Row("external-data", external_data),
    Row("custom-operator", custom_operator, slips=(("FooModule", "FooModel"),), given=FOO),
    Row("elu", elu, given="from purexport.symbolic_helper import _scalar\n"),
]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def _param(row: Row) -> Any:
    """AlexNet's weights are 244 MB, and each of its rows takes seconds."""
    first = row.blocks.split()[0]
    return pytest.param(
        row, id=f"{first}-{row.check.__name__}", marks=pytest.mark.full if first.startswith("alexnet") else ()
    )


@pytest.mark.parametrize("row", [_param(row) for row in ROWS])
def test_blocks(row: Row, tmp_path: Path) -> None:
    row.check(run(row, tmp_path))


def test_signature_of_old_calls() -> None:
    """The positional order of 2017, and its defaults."""
    listed = re.findall(r"(\w+)(?:=(\w+))?[,)]", text_of("signature-zh").split("(", 1)[1])
    ours = list(inspect.signature(purexport.export).parameters.values())[: len(listed)]
    assert [name for name, _ in listed] == [item.name for item in ours]
    assert (ours[3].default, ours[4].default, ours[5].default) == (True, False, purexport.TrainingMode.EVAL)


def test_an_operator_that_cannot_be_exported_is_named() -> None:
    """`elu` can now; the error of its day names the operator and the place, and so does ours."""
    assert "Couldn't export operator elu" in text_of("elu-error")
    program = purexport.export(torch.nn.ELU(0.5), (torch.randn(3),))
    assert [node.op_type for node in program.model_proto.graph.node] == ["Elu"]
    with pytest.raises(purexport.UnsupportedOperatorError, match="aten::linalg_eig  at the model"):
        purexport.export(torch.linalg.eig, (torch.randn(3, 3),), capture="trace")


def divided(x: Tensor) -> Tensor:
    return x / x.exp()


def listed(x: Tensor) -> list[Tensor]:
    return [divided(x)]


def drawn(x: Tensor) -> Tensor:
    """The document's example is triu, which ONNX has by now; poisson stands for it."""
    return torch.poisson(x) * x


LIBRARY = torch.library.Library("documents", "DEF")
LIBRARY.define("bar(Tensor x, Tensor y) -> Tensor")
LIBRARY.impl("bar", lambda x, y: x + y, "CompositeExplicitAutograd")


def barred(x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.documents.bar(x, y) / x


# block, model, type, and what has another name in the document
EXPORT_TYPES = [
    ("type-onnx", divided, "ONNX", ("", "")),
    ("type-onnx-aten", divided, "ONNX_ATEN", ("", "")),
    ("type-fallback", drawn, "ONNX_ATEN_FALLBACK", ("triu", "poisson")),
    ("type-raw", listed, "RAW", ("", "")),
    ("type-fallthrough", barred, "ONNX_FALLTHROUGH", ("foo_namespace", "documents")),
]
OPERATION = re.compile(r"= (\w+)::?(\w+(?:\[[^\]]*\])?)\(")


@pytest.mark.parametrize("route", ["trace", "script"])
@pytest.mark.parametrize(("block", "model", "kind", "renamed"), EXPORT_TYPES, ids=[row[0] for row in EXPORT_TYPES])
def test_operator_export_types(block: str, model: Any, kind: str, renamed: tuple[str, str], route: str) -> None:
    """The printed graph has the statements that the document shows, in order, constants aside."""
    shown = OPERATION.findall(text_of(block).replace(*renamed).partition("xported as:")[2])
    args = (torch.ones(2, 3), torch.ones(2, 3)) if model is barred else (torch.ones(2, 3),)
    taken = torch.jit.script(model) if route == "script" else model
    text = purexport.export_to_pretty_string(taken, args, operator_export_type=purexport.OperatorExportTypes[kind])
    expected = [item for item in shown if not item[1].startswith("Constant")]
    assert len(expected) >= 2
    assert [item for item in OPERATION.findall(text) if not item[1].startswith("Constant")] == expected


def test_symbolic_interface() -> None:
    """`g.op` with attributes by type and several outputs, `Value.type().sizes()`: as the sketch of classes says."""
    sketch, seen = text_of("symbolic-interface"), []
    assert all(item in sketch for item in ("def op(self, opname, *inputs, **attrs)", "def sizes(self)", "outputs (int"))

    def symbolic(g: Any, x: Any, *_: Any) -> Any:
        seen.append(x.type().sizes())
        low, high = g.op("Split", g.op("LeakyRelu", x, alpha_f=0.5), axis_i=1, num_outputs_i=2, outputs=2)
        return g.op("Concat", high, low, axis_i=1)

    purexport.register_custom_op_symbolic("aten::elu", symbolic, 9)
    try:
        program = purexport.export(torch.nn.ELU(), (torch.tensor([[-1.0, 2.0, 3.0, -4.0]]),), opset_version=18)
    finally:
        purexport.unregister_custom_op_symbolic("aten::elu", 9)
    assert [tuple(item) for item in seen] == [(1, 4)]
    assert program(torch.tensor([[-1.0, 2.0, 3.0, -4.0]]))[0].tolist() == [[3.0, -2.0, -0.5, 2.0]]


def test_the_table_lists_every_block_and_its_test() -> None:
    """docs/development/documents.md: each file of tests/compat/documents has a line, and names a test that exists."""
    listed = TABLE_LINE.findall(PAGE.read_text())
    assert sorted({block for block, _ in listed}) == sorted(path.stem for path in FOLDER.glob("*.txt"))
    known = {"test_blocks", *(name for name in globals() if name.startswith("test_"))}
    assert {test for _, test in listed} <= known
    run_here = {block for row in ROWS for block in row.blocks.split()}
    assert {block for block, test in listed if test == "test_blocks"} - run_here == READ_BY_ROWS
