"""How a model or an operator row is tested: export, official checker, ONNX Runtime, and torch as the truth.

An operator file is data and one function (`tests/row_plans.py` says what is run of a row):

    from tests.harness import Row, f32, i64, layer
    from tests.row_plans import Plan, row_params, run_row

    ROWS = [
        Row("relu", torch.relu, f32(3, 4)),
        Row("add-broadcast", torch.add, f32(3, 4), f32(4)),
        Row("clamp-min", lambda x: x.clamp(min=0.5), f32(3, 4)),
        Row("conv-strided", layer(nn.Conv2d, 3, 8, 3, stride=2), f32(2, 3, 9, 9), dynamic="batch"),
        Row("index-negative", lambda x, i: x[i], f32(5, 3), i64(4, low=-5, high=5)),
        Row("round", torch.round, values([0.5, 1.5, -0.5]), min_opset=11, trap="ties go to even"),
    ]

    @pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
    def test_row(row: Row, plan: Plan) -> None:
        run_row(row, plan)

Inputs are descriptions; the numbers are drawn when the row runs, the
same ones each time for the same row.  Lists of rows in tests/lowering are found by test_rules_have_rows.py there.
"""

from __future__ import annotations

import copy
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedInRuntime
from torch import nn
from torch.utils import _pytree as pytree

import purexport
from proto_schema.operators import runtimes
from tests.tolerances import USUAL, Bounds, assert_near

CAPTURES = ("trace", "export")
ROUTES = (*CAPTURES, "script", "traced-script")
OPSETS = (9, 13, 17, 20, 23, 26)
PROGRAM_OPSETS = (11, 13, 17, 20, 23)  # from the first that has what programs need


def version_of(text: str) -> tuple[int, ...]:
    """`1.31.1` as numbers."""
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


ORT_NEWEST_OPSET = 26  # beyond it, onnx's own reference evaluator computes
_KNOWN = [item for item in runtimes.releases() if version_of(item.version) <= version_of(onnxruntime.__version__)]
LOADED_OPSET = min(ORT_NEWEST_OPSET, _KNOWN[-1].newest_opset)  # by what is installed


# Inputs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """A tensor to be drawn: shape, dtype, and a range or the very values.

    Floating point numbers are uniform between two bounds, standard normal without, and half-normal beyond a single one.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float | None = None
    high: float | None = None
    data: Any = None

    def make(self, generator: torch.Generator) -> torch.Tensor:
        if self.data is not None:
            return torch.tensor(self.data, dtype=self.dtype).reshape(self.shape)
        if self.dtype.is_complex:
            part = replace(self, dtype=self.dtype.to_real())
            return torch.complex(part.make(generator), part.make(generator))
        if self.dtype is torch.bool:
            return torch.randint(0, 2, self.shape, generator=generator).bool()
        if not self.dtype.is_floating_point:
            bounds = int(self.low or 0), int(self.high or 0)
            return torch.randint(*bounds, self.shape, generator=generator).to(self.dtype)
        if self.low is not None and self.high is not None:
            unit = torch.rand(self.shape, generator=generator, dtype=torch.float64)
            return (self.low + (self.high - self.low) * unit).to(self.dtype)
        normal = torch.randn(self.shape, generator=generator, dtype=torch.float64)
        if self.low is not None:
            normal = self.low + normal.abs()
        if self.high is not None:
            normal = self.high - normal.abs()
        return normal.to(self.dtype)


def f32(*shape: int, low: float | None = None, high: float | None = None) -> Input:
    """float32: standard normal, uniform in [low, high), or half-normal beyond the one bound given."""
    return Input(shape, torch.float32, low, high)


def f64(*shape: int, low: float | None = None, high: float | None = None) -> Input:
    return Input(shape, torch.float64, low, high)


def f16(*shape: int, low: float | None = None, high: float | None = None) -> Input:
    return Input(shape, torch.float16, low, high)


def c64(*shape: int, low: float | None = None, high: float | None = None) -> Input:
    """complex64: both parts drawn as f32 draws; the file's input has a last axis of size 2."""
    return Input(shape, torch.complex64, low, high)


def c128(*shape: int, low: float | None = None, high: float | None = None) -> Input:
    return Input(shape, torch.complex128, low, high)


def i64(*shape: int, low: int = -9, high: int = 10) -> Input:
    """int64, uniform in [low, high)."""
    return Input(shape, torch.int64, low, high)


def i32(*shape: int, low: int = -9, high: int = 10) -> Input:
    return Input(shape, torch.int32, low, high)


def i8(*shape: int, low: int = -128, high: int = 128) -> Input:
    return Input(shape, torch.int8, low, high)


def u8(*shape: int, low: int = 0, high: int = 256) -> Input:
    return Input(shape, torch.uint8, low, high)


def boolean(*shape: int) -> Input:
    return Input(shape, torch.bool)


def values(data: Any, dtype: torch.dtype = torch.float32) -> Input:
    """The very numbers, for ties, infinities, NaN and borders.  `data` is what torch.tensor takes."""
    return Input(tuple(np.shape(data)), dtype, data=data)


# Rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A module to be built, with the same random weights each time: `layer(nn.Conv2d, 3, 8, 3)`."""

    factory: Callable[..., nn.Module]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def make(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.factory(*self.args, **self.kwargs).eval()


def layer(factory: Callable[..., nn.Module], *args: Any, **kwargs: Any) -> Layer:
    """A module built from its class (or any function that returns one) when the row runs, in eval mode."""
    return Layer(factory, args, kwargs)


class Row:
    """One way to call an operator.

    name       part of the test's id: what is special about the row
    model      a function of the inputs, `layer(...)`, or a class of nn.Module without arguments
    inputs     Input descriptions; other values (numbers, None, nested lists) are passed as they are
    kwargs     keyword inputs of the model, described likewise
    opsets     opsets to run at
    min_opset  lowest opset that can say it: the one below must raise UnsupportedOperatorError naming this one
    dynamic    None: static.  "batch": axis 0 of every tensor input.  {0: {1: "width"}}: axes by input position.
               The exported file then also runs with other sizes
    sizes      those other sizes by axis name; without it the exported size + 3
    every      sizes that all dynamic axes take as well, one after the other
    unjudged   why onnx's reference evaluator cannot compute it: opsets that only it knows are checked, not run
    rtol, atol other bounds than tests/tolerances.py has for the dtype; integers and booleans must be equal all the same
    loose      why these may be wider: which rounding, and whose.  A wider bound without a reason is an error
    trap       what torch does that a simple rule would get wrong; shown when the row fails
    routes     captures to run: "trace", "export", and "script": what torch.jit.script makes of it (tests/scripting.py).
    traced     why that is not for this row: words of the refusal by torch.jit.script, or by the export of the script.
               The row then runs as "traced-script" instead, a trace that torch.jit.trace gives as a script
    """

    def __init__(
        self,
        name: str,
        model: Any,
        *inputs: Any,
        kwargs: Mapping[str, Any] | None = None,
        opsets: Sequence[int] = OPSETS,
        min_opset: int | None = None,
        dynamic: str | Mapping[int, Mapping[int, str]] | None = None,
        sizes: Mapping[str, int] | None = None,
        every: Sequence[int] = (),
        unjudged: str = "",
        rtol: float | None = None,
        atol: float | None = None,
        loose: str = "",
        trap: str | None = None,
        routes: Sequence[str] = (*CAPTURES, "script"),
        traced: str = "",
    ) -> None:
        self.name = name
        self.model = model
        self.inputs = inputs
        self.kwargs = dict(kwargs or {})
        self.opsets = tuple(opsets)
        self.min_opset = min_opset
        self.dynamic = dynamic
        self.sizes = dict(sizes or {})
        self.every = tuple(every)
        self.unjudged = unjudged
        self.bounds = Bounds(rtol, atol, loose=loose)
        self.trap = trap
        self.traced = traced
        self.routes = tuple("traced-script" if traced and route == "script" else route for route in routes)

    def __repr__(self) -> str:
        return f"Row({self.name!r})"

    def make_model(self) -> Any:
        if isinstance(self.model, Layer):
            return self.model.make()
        if isinstance(self.model, type) and issubclass(self.model, nn.Module):
            return Layer(self.model, (), {}).make()
        return self.model.eval() if isinstance(self.model, nn.Module) else self.model

    def make_inputs(self, sizes: Mapping[str, int] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with tensors, each axis that `sizes` names of that size."""
        generator = torch.Generator().manual_seed(zlib.crc32(self.name.encode()))
        axes = self.dynamic_axes()

        def make(value: Any, position: int = -1) -> Any:
            if isinstance(value, Input):
                return _resized(value, axes.get(position, {}), sizes or {}).make(generator)
            if isinstance(value, (list, tuple)):
                return type(value)(make(item) for item in value)
            return value

        args = tuple(make(value, position) for position, value in enumerate(self.inputs))
        return args, {key: make(value) for key, value in self.kwargs.items()}

    def dynamic_axes(self) -> dict[int, dict[int, str]]:
        """{input position: {axis: name}}."""
        if isinstance(self.dynamic, str):
            assert self.dynamic == "batch", self.dynamic
            tensors = [i for i, value in enumerate(self.inputs) if isinstance(value, Input) and value.shape]
            return {position: {0: "batch"} for position in tensors}
        return {position: dict(axes) for position, axes in (self.dynamic or {}).items()}

    def other_sizes(self) -> dict[str, int]:
        """A size by axis name that differs from the exported one."""
        axes = self.dynamic_axes()
        exported = {name: self.inputs[i].shape[axis] for i, named in axes.items() for axis, name in named.items()}
        return {name: self.sizes.get(name, size + 3) for name, size in exported.items()}

    def cases(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The inputs to run with: those of the export, and of other sizes where axes are dynamic."""
        if not self.dynamic_axes():
            return [self.make_inputs()]
        others = [self.other_sizes(), *(dict.fromkeys(self.other_sizes(), size) for size in self.every)]
        return [self.make_inputs(), *map(self.make_inputs, others)]


def _resized(spec: Input, axes: Mapping[int, str], sizes: Mapping[str, int]) -> Input:
    shape = list(spec.shape)
    for axis, name in axes.items():
        shape[axis] = sizes.get(name, shape[axis])
    if spec.data is None or tuple(shape) == spec.shape:
        return replace(spec, shape=tuple(shape))
    repeated = np.resize(np.asarray(spec.data), shape)  # fixed values fill the other size by repetition
    return replace(spec, shape=tuple(shape), data=repeated.tolist())


# Exports --------------------------------------------------------------------------------------------------------------


def export(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    opset: int,
    capture: str,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    **options: Any,
) -> Any:
    """The ONNXProgram of `model`, whose inputs are named x0, x1, ...: the tensors in `args`, then those in `kwargs`.

    Numbers among the arguments are constants: tests/frontends/test_numbers.py has what a trace makes of them.
    """
    return purexport.export(opset_version=opset, **_asked(model, args, kwargs, capture, dynamic_axes), **options)


def capture_model(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    capture: str,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
) -> purexport.CapturedModel:
    """The same for any number of opsets."""
    return purexport.capture(**_asked(model, args, kwargs, capture, dynamic_axes))


def _asked(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    capture: str,
    axes: Mapping[str, Mapping[int, str]] | None,
) -> dict[str, Any]:
    if capture == "trace" and holds_numbers((args, dict(kwargs))):
        model, args, kwargs = with_constants(model, args, kwargs)
    return {
        "model": model,
        "args": copy.deepcopy(args),  # a model may write to its inputs
        "kwargs": copy.deepcopy(dict(kwargs)),
        "input_names": [f"x{i}" for i in range(len(tensors_in((args, kwargs))))],
        "capture": capture,
        "dynamic_axes": {name: dict(named) for name, named in (axes or {}).items()} or None,
    }


def holds_numbers(tree: Any) -> bool:
    """Whether Python numbers are among the leaves."""
    return any(isinstance(leaf, (bool, int, float)) for leaf in pytree.tree_leaves(tree))


def with_constants(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[torch.Tensor, ...], dict[str, Any]]:
    """The model with all that is no tensor among the arguments inside it, and the tensors."""
    leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    call = type(model).forward.__get__(model) if isinstance(model, nn.Module) else model

    def fixed(*tensors: torch.Tensor) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        inner_args, inner_kwargs = pytree.tree_unflatten(given, tree)
        return call(*inner_args, **inner_kwargs)

    tensors = tuple(leaves[place] for place in places)
    if not isinstance(model, nn.Module):
        return fixed, tensors, {}
    holding = copy.copy(model)  # its modules and parameters are the model's
    object.__setattr__(holding, "forward", fixed)
    return holding, tensors, {}


def check_export(
    model: Any,
    args: tuple[Any, ...],
    *,
    kwargs: Mapping[str, Any] | None = None,
    opset: int,
    capture: str = "trace",
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    other_args: Iterable[Any] = (),
    bounds: Bounds = USUAL,
    **options: Any,
) -> Any:
    """Export `model`, have the file judged by onnx, and compare what it computes with torch.

    The inputs are named as `export` names them; `dynamic_axes` uses these names.  `other_args` are further inputs for
    the same file: tuples like `args`, or pairs (args, kwargs).  `options` go to `purexport.export`.
    Returns the ONNXProgram.
    """
    kwargs = dict(kwargs or {})
    program = export(model, args, kwargs, opset=opset, capture=capture, dynamic_axes=dynamic_axes, **options)
    cases = [(args, kwargs), *(_as_pair(other) for other in other_args)]
    check_program(program, model, cases, opset, bounds)
    return program


def check_program(
    program: Any,
    model: Any,
    cases: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]],
    opset: int,
    bounds: Bounds = USUAL,
) -> None:
    """onnx accepts the file, and it computes what `model` computes on each of the cases (args, kwargs)."""
    data = program.model_proto.SerializeToString()
    judge(data, [Case.of(model, args, kwargs) for args, kwargs in cases], opset, bounds)


def judge(data: bytes, cases: Iterable[Case], opset: int, bounds: Bounds = USUAL) -> None:
    """onnx accepts the file, and it computes what torch computes."""
    check_file(data, opset)
    compare(_runner(data, False), cases, bounds)


def check_file(data: bytes, opset: int) -> onnx.ModelProto:
    """The official checker and strict shape inference accept the file, and it says the opset that was asked for."""
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    for written, found in zip(model.graph.output, inferred.graph.output, strict=True):
        assert written.type.tensor_type.elem_type == found.type.tensor_type.elem_type, written.name
    versions = {entry.domain: entry.version for entry in model.opset_import}
    assert versions[""] == opset, f"the file says opset {versions['']}, opset {opset} was asked for"
    return model


def compare_with_torch(
    model: Any,
    data: bytes,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    bounds: Bounds = USUAL,
    *,
    reference: bool = False,
) -> None:
    """The file computes what a copy of the model computes: number of outputs, dtypes, shapes, values.

    `reference` lets onnx's reference evaluator compute what ONNX Runtime has no kernel for.
    """
    compare(_runner(data, reference), [Case.of(model, args, kwargs)], bounds)


@dataclass(frozen=True)
class Case:
    """One call: what a file is fed, and what torch gives."""

    feeds: list[np.ndarray]
    expected: list[np.ndarray]

    @classmethod
    def of(cls, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Case:
        """What a copy of the model computes for these arguments."""
        feeds = [as_numpy(_real(tensor.detach().clone())) for tensor in tensors_in((args, kwargs))]
        with torch.no_grad():
            result = copy.deepcopy(model)(*copy.deepcopy(args), **copy.deepcopy(dict(kwargs)))
        leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
        return cls(feeds, [as_numpy(_real(torch.as_tensor(leaf).detach())) for leaf in leaves])  # numbers, too


def compare(runner: Any, cases: Iterable[Case], bounds: Bounds = USUAL) -> None:
    """What a session or evaluator gives is what torch gives: number of outputs, dtypes, shapes, values."""
    for case in cases:
        actual = _run(runner, case.feeds)
        assert len(actual) == len(case.expected), f"torch gives {len(case.expected)} outputs, the file {len(actual)}"
        fed = [feed.shape for feed in case.feeds]
        for i, (got, want) in enumerate(zip(actual, case.expected, strict=True)):
            assert got.dtype == want.dtype, f"output {i}: dtype {got.dtype}, torch gives {want.dtype}"
            assert got.shape == want.shape, f"output {i}: shape {got.shape}, torch gives {want.shape} for {fed}"
            assert_near(got, want, bounds, f"output {i}, inputs of shape {fed}")


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the file knows it: a complex one has a last axis of size 2."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def run_ort(
    model: bytes | str,
    inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray],
    *,
    reference: bool = False,
    optimized: bool = True,
) -> list[np.ndarray]:
    """The outputs of a model (bytes or a path) on one thread; inputs by position or by name.

    Opsets newer than the runtime's go to onnx's reference evaluator, and with `reference` also what it has no kernel
    for, or takes no arrays of (bfloat16, float8).  Where it is not `optimized`, quantized layers compute in floats:
    sums of products of bytes overflow on processors without VNNI.
    """
    return _run(_runner(model, reference, optimized), inputs)


def _run(runner: Any, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
    is_session = isinstance(runner, onnxruntime.InferenceSession)
    names = [value.name for value in runner.get_inputs()] if is_session else runner.input_names
    if not isinstance(inputs, Mapping):
        assert len(names) == len(inputs), f"the file has inputs {names}, {len(inputs)} were given"
        inputs = dict(zip(names, inputs, strict=True))
    return [np.asarray(value) for value in runner.run(None, dict(inputs))]


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array; bfloat16 and float8 in the dtypes that onnx uses for them."""
    tensor = tensor.detach()
    name = str(tensor.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        return tensor.numpy()
    plain = torch.uint16 if tensor.element_size() == 2 else torch.uint8
    return tensor.contiguous().view(plain).numpy().view(getattr(ml_dtypes, name))


def _runner(model: bytes | str, reference: bool, optimized: bool = True) -> Any:
    if max(_versions(model).values(), default=0) > LOADED_OPSET:
        return onnx.reference.ReferenceEvaluator(model)
    try:
        session = _ort_session(model, optimized)
    except (NotImplementedInRuntime, InvalidGraph):  # its own schemas miss some of ONNX's types
        if not reference:
            raise
        return onnx.reference.ReferenceEvaluator(model)
    types = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    unknown = any("bfloat16" in type_ or "float8" in type_ for type_ in types)
    return onnx.reference.ReferenceEvaluator(model) if reference and unknown else session


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors of nested tuples, lists and dicts, in torch's own order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _ort_session(model: bytes | str, optimized: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _versions(model: bytes | str) -> dict[str, int]:
    loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    return {entry.domain: entry.version for entry in loaded.opset_import if entry.domain in ("", "ai.onnx")}


def _as_pair(other: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    is_pair = len(other) == 2 and isinstance(other[0], tuple) and isinstance(other[1], dict)
    return other if is_pair else (tuple(other), {})


def axes_by_name(axes: Mapping[int, Mapping[int, str]], args: tuple[Any, ...]) -> dict[str, dict[int, str]]:
    """Axes by input position -> axes by the names that check_export gives (an input may hold several tensors)."""
    before = [len(tensors_in(args[:position])) for position in range(len(args))]
    return {f"x{before[position]}": dict(named) for position, named in axes.items()}
