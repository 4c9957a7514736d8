"""The neutral graph to the ONNX graph: each call by its rule, in order.

A call whose operands are known numbers is computed; a call with a rule is lowered by it; one without is expanded by
torch's own decomposition and lowered piece by piece.  What is left is collected over the whole graph and reported in
one error.  Every result is checked against the dtype that torch recorded for it.

Each call gets an `op` of its own, made here once and frozen; a block is walked with the `op` of its body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from proto_schema import legalization
from proto_schema.operators.runtimes import Release
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten import scalars
from purexport.aten.axes import Axes, Derived
from purexport.aten.graph import AtenGraph, AtenValue, Call, Source, TensorType
from purexport.errors import (
    NO_RULE,
    ExportError,
    Gap,
    OpsetError,
    UnsupportedDtypeError,
    UnsupportedForm,
    UnsupportedOperatorError,
)
from purexport.graph.ir import Graph, Value
from purexport.lowering import control, fallthrough, interface, results
from purexport.lowering.arguments import computed_numbers, known_arguments, unknown_argument
from purexport.lowering.core.context import CallSite, site_of
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import COMPLEX, QUANTIZED
from purexport.lowering.rules import RuleBook, registered
from purexport.lowering.sized import Example
from purexport.lowering.state import LoweringState
from purexport.lowering.support.common import squeezed_axes
from purexport.lowering.support.qdq import Quantized
from purexport.lowering.unranked_outputs import Tails
from purexport.options import OperatorExportTypes

NO_RULE_HERE = f"{NO_RULE}, and torch has no decomposition of it"
NO_COMPLEX_RULE = f"{NO_RULE} for complex tensors; compute with real and imaginary parts"
NO_CUSTOM_RULE = f"{NO_RULE}, and is not declared in torch as a composite of other operators"
TORCHS_OWN = ("aten::", "prim::", "prims::", "quantized", "torchvision::", "python::", "sequence::")
LEFT_OUT = "takes a result that a symbolic function leaves out (None)"
NOT_QUANTIZED = "takes no quantized tensors here; dequantize them before it"


@dataclass
class Lowered:
    """The ONNX graph, the ATen names whose rules ran, those that were decomposed, and what rules remark.

    `stands` says what stands in the graph for each neutral value.
    """

    graph: Graph
    rules: set[str] = field(default_factory=set)
    decomposed: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)
    findings: list[str] = field(
        default_factory=list
    )  # what users are warned of: axes that are held or merged, and more
    stands: dict[AtenValue, Any] = field(default_factory=dict)


def lower_graph(
    graph: AtenGraph,
    opset: int,
    custom: Mapping[str, Callable[..., Any]] | None = None,
    *,
    fold: bool = True,
    kind: OperatorExportTypes = OperatorExportTypes.ONNX,
    listed: bool = False,
    axes: Mapping[str, Axes] | None = None,
    derived: Derived | None = None,
    trains: bool = False,
    release: Release | None = None,
    of_runtime: bool = False,
) -> Lowered:
    """Lower `graph` to ONNX at `opset`; `custom` maps ATen names to rules that go first.

    `axes` maps an input's name to its dynamic axes and their names, for a graph that was recorded with the sizes of an
    example (`sized`); None for a graph whose types hold for all sizes.  `derived` says which names are sizes that
    follow from another name.

    `release` is that of the runtime whose kernels decide the forms of operators; None lets any form be.  With
    `of_runtime` operators of its domain com.microsoft are written too.

    Without `fold`, what is computed of parameters stays in the graph.  With `trains` operators that training runtimes
    look for are kept.  `kind` says which calls stay as they are;
    `listed` that the results are those of a list, which a RAW graph returns.
    Raises UnsupportedOperatorError with every call that cannot be expressed.
    """
    rules = RuleBook(registered(), custom or {}, trains)
    run = functools.partial(_lowered, graph, opset, rules, fold, kind, listed, (release, of_runtime))
    if axes is None:
        return run(None)
    held: list[str] = []
    while True:
        example = Example(axes, derived or {}, LoweringState())
        example.name_axes(graph)
        failure: ExportError | None = None
        try:
            lowered = run(example)
        except ExportError as error:
            failure = error
        specialised = example.specialised()
        if not specialised:
            break
        # an axis that the model holds is static in the file, and what was lowered as if it were not is lowered again
        held += map(str, specialised)
        labels = {item.axis for item in specialised}
        axes = {
            name: {axis: label for axis, label in named.items() if label not in labels} for name, named in axes.items()
        }
    if failure is not None:
        raise failure
    example.resolve(lowered.graph)
    lowered.findings += [*held, *example.merged()]
    return lowered


def _lowered(
    graph: AtenGraph,
    opset: int,
    rules: RuleBook,
    fold: bool,
    kind: OperatorExportTypes,
    listed: bool,
    runtime: tuple[Release | None, bool],
    example: Example | None,
) -> Lowered:
    """One lowering of the graph; `example` knows the sizes that can change, where the types do not say them."""
    walk = Walk(rules, kind, example)
    release, of_runtime = runtime
    found = walk.result.graph
    op = Emitter.of(
        found, opset, folds=fold, scope=example, older=legalization.rows(), release=release, of_runtime=of_runtime
    )
    op = walk.model(op, graph)
    if kind is OperatorExportTypes.RAW:
        if listed and op.graph.outputs:
            fallthrough.as_list(op)
        fallthrough.name_controls(op.graph)
    walk.result.remarks += op.builder.remarks
    walk.result.findings += dict.fromkeys(op.builder.warnings)
    walk.result.stands = walk.state.env
    return walk.result


class Walk:
    """One walk over a graph."""

    def __init__(self, rules: RuleBook, kind: OperatorExportTypes, example: Example | None) -> None:
        self.example = example
        self.result = Lowered(Graph())
        self.state = LoweringState() if example is None else example.state
        self.rules = rules
        self.kind = kind
        self.tails = Tails(AtenGraph())

    def model(self, op: Emitter, graph: AtenGraph) -> Emitter:
        """The whole graph into the one of `op`; returns the `op` behind its last call.

        Raises UnsupportedOperatorError with every call and every output that cannot be expressed.
        """
        state = self.state
        self.tails = Tails(graph)
        state.env.update(interface.model_inputs(op, graph.inputs, state.type))
        op = self.calls(op, graph.calls, graph.outputs)
        if state.gaps:
            raise UnsupportedOperatorError(op.opset, state.gaps)
        for name, output in zip(graph.output_names, graph.outputs, strict=True):
            try:
                op.graph.outputs.append(interface.model_output(op, name, state.argument(output), output))
            except OpsetError as error:
                state.gaps.append(Gap(f"output {name!r}", "the model", _lowest(error), error.code))
        if state.gaps:
            raise UnsupportedOperatorError(op.opset, state.gaps)
        return op

    def calls(self, op: Emitter, calls: Sequence[Call], outputs: Any) -> Emitter:
        """Lower what `outputs` need of `calls`; what is written behind them belongs to the place of the last."""
        live = live_calls(AtenGraph(calls=list(calls), outputs=list(outputs)))
        for call in live:
            self._call(op, call)
        return op.at(CallSite(live[-1].source)) if live else op

    def _call(self, op: Emitter, call: Call, outer: str = "") -> None:
        """Lower one call; `outer` is the call whose decomposition it belongs to."""
        state = self.state
        if state.poisoned and any(value in state.poisoned for value in call.inputs()):
            # follows from a gap that is reported already; a gap of its own is reported beside it
            state.poisoned.update(call.outputs)
            self._note_missing(call, call.source)
            return
        if call.base in ("aten::squeeze", "aten::squeeze_copy") and not outer and self._may_squeeze(call):
            for value in self.tails.without_rank(call.outputs[0]):
                state.types[value] = TensorType(value.tensor.dtype, None)
        recorded = [state.type(value) for value in call.outputs]
        if self.example is not None and not outer:
            # the pieces of a decomposition were made for the sizes that hold here
            call = self.example.loosened(call, state.arguments(call))
        op = op.at(site_of(call, state.type))
        if state.absent and any(value in state.absent for value in call.inputs()):
            self._gap(op, call, LEFT_OUT, "symbolic-refuses", outer)
            return
        try:
            self._lower(op, call, outer)
            if self.example is not None:
                self.example.settle(call, recorded)
        except OpsetError as error:
            if self._is_defined_in_torch(call):
                self._decompose(op, call, outer)
            else:
                self._gap(op, call, _lowest(error), error.code, outer)
        except (UnsupportedForm, UnsupportedDtypeError) as error:
            self._gap(op, call, str(error), error.code, outer)
        except ExportError:
            raise
        except Exception as error:
            computed = computed_numbers(call.target, state.arguments(call))
            if isinstance(error, TypeError) and computed:
                reason = f"takes no computed {computed[0]!r}; give it as a number of Python"
                self._gap(op, call, reason, "value-not-known", outer)
                return
            raise ExportError(
                f"the rule of {call.target} at {call.source} failed: {type(error).__name__}: {error}; please report it",
                code="rule-fault",
            ) from error

    def _may_squeeze(self, call: Call) -> bool:
        """Whether only the run knows which axes a squeeze removes."""
        made = self.state.argument(call.args["self"])
        shape = made.shape if isinstance(made, Value) else None
        axes = squeezed_axes(len(shape), call.args.get("dim")) if shape else []
        return shape is not None and any(not isinstance(shape[axis], int) for axis in axes)

    def _note_missing(self, call: Call, source: Source, outer: str = "") -> None:
        """Report `call` if neither a rule nor torch's decomposition of it can lower it."""
        if call.target == "prim::getitem" or call.blocks:
            return
        if any(isinstance(value.type, TensorType) and dtypes.is_quantized(value.type.dtype) for value in call.inputs()):
            if self.rules.find(call.target + QUANTIZED) is None:
                self.state.note(call.target, source, NOT_QUANTIZED, "quantized-tensor", outer)
            return
        if self.rules.find(call.target + COMPLEX if _is_complex(call) else call.target) is not None:
            return
        pieces = self._expanded(call)
        if pieces is None:
            self.state.note(call.target, source, _no_rule(call), "no-rule", outer)
            return
        for inner in live_calls(pieces):
            self._note_missing(inner, source, outer or call.target)

    def _gap(self, op: Emitter, call: Call, reason: str, code: str, outer: str) -> None:
        if not outer and self._kept_at_last(op, call, reason):
            return
        self.state.note(call.target, call.source, reason, code, outer)
        self.state.poisoned.update(call.outputs)

    def _kept_at_last(self, op: Emitter, call: Call, reason: str) -> bool:
        """Whether a call that cannot be lowered stays as it is, which a remark says."""
        if not fallthrough.at_last(self.kind, call):
            return False
        try:
            self._keep(op, call, self.state.arguments(call))
        except (UnsupportedForm, UnsupportedDtypeError):
            return False
        self.result.remarks.append(f"{call.target} at {call.source} stays as it is, because it {reason}")
        return True

    def _keep(self, op: Emitter, call: Call, arguments: Mapping[str, Any]) -> None:
        types = map(self.state.type, call.outputs)
        kept = fallthrough.keep(op, self.kind, call, types, arguments, self.rules.custom)
        results.bind_results(self.state, op, call, kept)

    def _lower(self, op: Emitter, call: Call, outer: str) -> None:
        state = self.state
        arguments = state.arguments(call)
        if call.target == "prim::getitem" and isinstance(arguments["list"], list):
            results.bind_results(state, op, call, arguments["list"][arguments["index"]])
            return
        if call.blocks:
            control.lower_control(state, op, call, arguments, self.calls)
            return
        if scalars.is_scalar_operator(call.base) and _all_numbers(arguments):
            state.env[call.outputs[0]] = scalars.evaluate(call.base, arguments)
            return
        if fallthrough.always(self.kind, call, arguments):
            self._keep(op, call, arguments)
            return
        if call.outputs and all(results.is_empty(state.type(value)) for value in call.outputs):
            # no rule need know how an operator of ONNX takes tensors without elements
            results.bind_results(state, op, call, results.empty_results(op, call, state))
            return
        quantized = any(_holds_quantized(state.env[value]) for value in call.inputs())
        target = call.target + (QUANTIZED if quantized else COMPLEX if _is_complex(call) else "")
        rule = self.rules.find(target)
        if rule is None and quantized:
            self._gap(op, call, NOT_QUANTIZED, "quantized-tensor", outer)
            return
        if rule is None:
            self._decompose(op, call, outer)
            return
        if target.endswith(COMPLEX) and self.rules.custom_of(call.target) is not None:
            raise UnsupportedForm(
                "is called with complex tensors, which a custom rule cannot take; remove its rule",
                code="complex-tensor",
            )
        unknown = unknown_argument(call, rule, arguments)
        if unknown:
            self._gap(op, call, unknown, "form-without-rule", outer)
            return
        known = known_arguments(op, call, rule, arguments, as_pairs=target.endswith(COMPLEX))
        results.bind_results(state, op, call, rule(op, known))
        self.result.rules.add(target)

    def _decompose(self, op: Emitter, call: Call, outer: str) -> None:
        state = self.state
        pieces = self._expanded(call)
        if pieces is None:
            self._gap(op, call, _no_rule(call), "no-rule", outer)
            return
        for item in pieces.inputs:
            if item.tensor is not None:
                state.env[item.value] = interface.tensor_constant(op, item.tensor)
        before = len(state.gaps)
        for inner in live_calls(pieces):
            self._call(op, replace(inner, source=call.source), outer or call.target)
        if len(state.gaps) > before:
            if not outer and self._kept_at_last(op, call, "; ".join(gap.reason for gap in state.gaps[before:])):
                del state.gaps[before:]
                return
            state.poisoned.update(call.outputs)
            return
        for value, output in zip(call.outputs, pieces.outputs, strict=True):
            state.env[value] = state.argument(output)
        self.result.decomposed.add(call.target)

    def _expanded(self, call: Call) -> AtenGraph | None:
        """The pieces of a call without a rule; imported here, because it loads sympy, which most graphs do not need."""
        from purexport.lowering.decompose import expand

        return expand(call, self.state.type)

    def _is_defined_in_torch(self, call: Call) -> bool:
        """Whether a call names an operator of ONNX that torch can compute without it."""
        return call.target.startswith("onnx::") and self._expanded(call) is not None


def _is_complex(call: Call) -> bool:
    """True where a call takes or gives a complex tensor."""
    values = [*call.inputs(), *call.outputs]
    return any(isinstance(value.type, TensorType) and value.type.dtype.is_complex for value in values)


def _no_rule(call: Call) -> str:
    if not call.target.startswith(TORCHS_OWN):
        return NO_CUSTOM_RULE
    return NO_COMPLEX_RULE if _is_complex(call) else NO_RULE_HERE


def _holds_quantized(item: Any) -> bool:
    return isinstance(item, Quantized) or (isinstance(item, list) and any(map(_holds_quantized, item)))


def _lowest(error: OpsetError) -> str:
    lowest = f"needs opset {error.lowest} or later" if error.lowest else "no opset has it"
    return f"{lowest}: {error}"


def live_calls(graph: AtenGraph) -> list[Call]:
    """The calls whose results are used, in order: dead code goes before it costs a rule."""
    used: set[AtenValue] = set()

    def use(arg: Any) -> None:
        if isinstance(arg, AtenValue):
            used.add(arg)
        elif isinstance(arg, (list, tuple)):
            for item in arg:
                use(item)

    use(graph.outputs)
    live = []
    for call in reversed(graph.calls):
        if any(value in used for value in call.outputs):
            live.append(call)
            used.update(call.inputs())
    return live[::-1]


def _all_numbers(arguments: Mapping[str, Any]) -> bool:
    return all(value is None or isinstance(value, (bool, int, float, str)) for value in arguments.values())
