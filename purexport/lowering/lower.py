"""The neutral graph to the ONNX graph: each call by its rule, in order.

A call whose operands are known numbers is computed; a call with a rule is lowered by it; one without is expanded by
torch's own decomposition and lowered piece by piece.  What is left is collected over the whole graph and reported in
one error.  Every result is checked against the dtype that torch recorded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from proto_schema.payload import Payload
from purexport import dtypes
from purexport.aten import scalars
from purexport.aten.graph import AtenGraph, Call, ScalarType, SequenceType, Source, TensorType, same_bytes
from purexport.aten.graph import Value as AtenValue
from purexport.aten.schema import MISSING, signature
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
from purexport.lowering import blocks, control, fallthrough
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.promotion import common_dtype
from purexport.lowering.core.registry import COMPLEX, LAYOUT_ARGUMENTS, QUANTIZED, Rule
from purexport.lowering.rules import registered
from purexport.lowering.support import pairs
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.qdq import Quantized, quantized_constant
from purexport.lowering.tensor import sequence
from purexport.options import OperatorExportTypes

NO_RULE_HERE = f"{NO_RULE}, and torch has no decomposition of it"
NO_COMPLEX_RULE = f"{NO_RULE} for complex tensors; compute with real and imaginary parts"
NO_CUSTOM_RULE = f"{NO_RULE}, and is not declared in torch as a composite of other operators"
TORCHS_OWN = ("aten::", "prim::", "prims::", "quantized", "torchvision::", "python::", "sequence::")
LEFT_OUT = "takes a result that a symbolic function leaves out (None)"
NOT_QUANTIZED = "takes no quantized tensors here; dequantize them before it"


@dataclass
class Lowered:
    """The ONNX graph, the ATen names whose rules ran, those that were decomposed, and what rules remark."""

    graph: Graph
    rules: set[str] = field(default_factory=set)
    decomposed: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)


def lower_graph(
    graph: AtenGraph,
    opset: int,
    custom: Mapping[str, Callable[..., Any]] | None = None,
    *,
    fold: bool = True,
    kind: OperatorExportTypes = OperatorExportTypes.ONNX,
    listed: bool = False,
) -> Lowered:
    """Lower ``graph`` to ONNX at ``opset``; ``custom`` maps ATen names to rules that go first.

    Without ``fold``, what is computed of parameters stays in the graph.  ``kind`` says which calls stay as they are;
    ``listed`` that the results are those of a list, which a RAW graph returns.
    Raises UnsupportedOperatorError with every call that cannot be expressed.
    """
    run = Lowering(graph, opset, custom or {})
    run.op.folds, run.kind = fold, kind
    lowered = run.run()
    if kind is OperatorExportTypes.RAW:
        if listed and lowered.graph.outputs:
            fallthrough.as_list(run)
        fallthrough.name_controls(lowered.graph)
    return lowered


class Lowering:
    """One walk over a graph."""

    def __init__(self, graph: AtenGraph, opset: int, custom: Mapping[str, Callable[..., Any]]) -> None:
        self.source = graph
        self.result = Lowered(Graph())
        self.op = Emitter(self.result.graph, opset)
        self.rules = registered()
        self.custom = custom
        self.env: dict[AtenValue, Any] = {}
        self.gaps: list[Gap] = []
        self.poisoned: set[AtenValue] = set()
        self.absent: set[AtenValue] = set()  # results that a symbolic function leaves out
        self.outer = ""  # the call that is being decomposed
        self.kind = OperatorExportTypes.ONNX

    def run(self) -> Lowered:
        self._inputs()
        for call in live_calls(self.source):
            self._call(call)
        if self.gaps:
            raise UnsupportedOperatorError(self.op.opset, self.gaps)
        for name, output in zip(self.source.output_names, self.source.outputs, strict=True):
            try:
                self.result.graph.outputs.append(self._output(name, output))
            except OpsetError as error:
                self.gaps.append(Gap(f"output {name!r}", "the model", _lowest(error), error.code))
        if self.gaps:
            raise UnsupportedOperatorError(self.op.opset, self.gaps)
        self.result.remarks += self.op.remarks
        return self.result

    def _inputs(self) -> None:
        shared: dict[tuple[Any, ...], Value | Pair] = {}
        for item in self.source.inputs:
            type_ = item.value.type
            if not isinstance(type_, TensorType):
                type_ = TensorType(torch.int64, ())
            name = "" if item.kind == "constant" else item.name
            if item.stored is not None:
                self.env[item.value] = self._stored(name, type_, item.stored)
            elif item.tensor is None:
                self.env[item.value] = self._input(item.name, type_)
            elif item.tensor.is_quantized:
                self.env[item.value] = quantized_constant(self.op, item.tensor, item.name)
            else:
                key = same_bytes(item.tensor)
                if key not in shared:
                    shared[key] = self._constant(item.tensor, name)
                self.env[item.value] = shared[key]

    def _input(self, name: str, type_: TensorType) -> Value | Pair:
        value = Value(_input_code(name, type_.dtype), type_.shape, name=name)
        self.result.graph.inputs.append(value)
        if not type_.dtype.is_complex:
            return value
        if value.shape is None:
            raise ExportError(
                f"input {name!r} is complex and its rank is not known; pass torch.view_as_real of it",
                code="complex-tensor",
            )
        value.shape = (*value.shape, 2)
        return pairs.from_interleaved(self.op, value)

    def _stored(self, name: str, type_: TensorType, stored: Payload) -> Value | Pair:
        """A constant whose values no rule sees."""
        value = Value(_input_code(name, type_.dtype), type_.shape, name=name, stored=stored)
        if not type_.dtype.is_complex:
            return value
        value.shape = (*(value.shape or ()), 2)
        return pairs.from_interleaved(self.op, value)

    def _constant(self, tensor: torch.Tensor, name: str = "") -> Value | Pair:
        if tensor.is_complex():
            return pairs.pair_of_constant(self.op, tensor, name)
        return self.op.const(tensor.detach(), name=name)

    def _output(self, name: str, output: Any) -> Value:
        found: Any = self.argument(output)
        if isinstance(found, (bool, int, float)):
            found = self.op.const(found, _code_of(found))
        if isinstance(found, Pair):
            found = pairs.to_interleaved(self.op, found)
        if isinstance(found, Quantized):
            raise ExportError(
                f"output {name!r} is a quantized tensor, and ONNX has none; return x.dequantize() or x.int_repr()",
                code="quantized-tensor",
            )
        if not isinstance(found, Value):
            raise ExportError(
                f"output {name!r} is a {type(found).__name__}, and ONNX outputs are tensors", code="output-not-a-tensor"
            )
        result = found
        if found.node is None or found in self.result.graph.outputs:
            # an output needs a name of its own: an input, a constant or a value returned twice is copied
            result = sequence.copy(self.op, found)
            result.shape, result.element = found.shape, found.element
        result.name = name
        return result

    def calls(self, calls: Sequence[Call], outputs: Any) -> None:
        """Lower what ``outputs`` need of ``calls``, into the graph that is being written."""
        for call in live_calls(AtenGraph(calls=list(calls), outputs=list(outputs))):
            self._call(call)

    def argument(self, arg: Any) -> Any:
        """What stands for a neutral argument: values, Python constants, lists of them."""
        if isinstance(arg, AtenValue):
            return self.env[arg]
        if isinstance(arg, (list, tuple)):
            return [self.argument(item) for item in arg]
        return arg

    def _call(self, call: Call) -> None:
        if any(value in self.poisoned for value in call.inputs()):
            # follows from a gap that is reported already; a gap of its own is reported beside it
            self.poisoned.update(call.outputs)
            self._note_missing(call, call.source)
            return
        if any(value in self.absent for value in call.inputs()):
            self._gap(call, LEFT_OUT, "symbolic-refuses")
            return
        try:
            self._lower(call)
        except OpsetError as error:
            self._gap(call, _lowest(error), error.code)
        except (UnsupportedForm, UnsupportedDtypeError) as error:
            self._gap(call, str(error), error.code)
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(
                f"the rule of {call.target} at {call.source} failed: {type(error).__name__}: {error}; please report it",
                code="rule-fault",
            ) from error

    def _note_missing(self, call: Call, source: Source, outer: str = "") -> None:
        """Report ``call`` if neither a rule nor torch's decomposition of it can lower it."""
        if call.target == "prim::getitem" or call.blocks:
            return
        if any(isinstance(value.type, TensorType) and dtypes.is_quantized(value.type.dtype) for value in call.inputs()):
            if self._rule(call.target + QUANTIZED) is None:
                self.gaps.append(Gap(_within(call.target, outer), str(source), NOT_QUANTIZED, "quantized-tensor"))
            return
        if self._rule(call.target + COMPLEX if _is_complex(call) else call.target) is not None:
            return
        pieces = _expanded(call)
        if pieces is None:
            self.gaps.append(Gap(_within(call.target, outer), str(source), _no_rule(call), "no-rule"))
            return
        for inner in live_calls(pieces):
            self._note_missing(inner, source, outer or call.target)

    def _gap(self, call: Call, reason: str, code: str) -> None:
        if not self.outer and self._kept_at_last(call, reason):
            return
        self.gaps.append(Gap(_within(call.target, self.outer), str(call.source), reason, code))
        self.poisoned.update(call.outputs)

    def _kept_at_last(self, call: Call, reason: str) -> bool:
        """Whether a call that cannot be lowered stays as it is, which a remark says."""
        if not fallthrough.at_last(self.kind, call):
            return False
        try:
            self._bind(call, fallthrough.keep(self, self.kind, call, self._arguments(call)))
        except (UnsupportedForm, UnsupportedDtypeError):
            return False
        self.result.remarks.append(f"{call.target} at {call.source} stays as it is, because it {reason}")
        return True

    def _arguments(self, call: Call) -> dict[str, Any]:
        return {name: self.argument(arg) for name, arg in call.args.items()}

    def _lower(self, call: Call) -> None:
        arguments = self._arguments(call)
        if call.target == "prim::getitem" and isinstance(arguments["list"], list):
            self._bind(call, arguments["list"][arguments["index"]])
            return
        if call.blocks:
            control.lower_control(self, call, arguments)
            return
        if scalars.is_scalar_operator(call.base) and _all_numbers(arguments):
            self.env[call.outputs[0]] = scalars.evaluate(call.base, arguments)
            return
        if fallthrough.always(self.kind, call, arguments):
            self._bind(call, fallthrough.keep(self, self.kind, call, arguments))
            return
        if call.outputs and all(_is_empty(value) for value in call.outputs):
            # no rule need know how an operator of ONNX takes tensors without elements
            self._bind(call, self._empty(call))
            return
        quantized = any(_holds_quantized(self.env[value]) for value in call.inputs())
        target = call.target + (QUANTIZED if quantized else COMPLEX if _is_complex(call) else "")
        rule = self._rule(target)
        if rule is None and quantized:
            self._gap(call, NOT_QUANTIZED, "quantized-tensor")
            return
        if rule is None:
            self._decompose(call)
            return
        if target.endswith(COMPLEX) and self._custom(call.target) is not None:
            raise UnsupportedForm(
                "is called with complex tensors, which a custom rule cannot take; remove its rule",
                code="complex-tensor",
            )
        unknown = self._unknown_argument(call, rule, arguments)
        if unknown:
            self._gap(call, unknown, "form-without-rule")
            return
        self.op.source, self.op.target = call.source, call.target
        self.op.results = [_stored(value.type) for value in call.outputs]
        self.op.operands = {name: arg.type for name, arg in call.args.items() if isinstance(arg, AtenValue)}
        if rule.promote:
            self._promote(call, rule, arguments, as_pairs=target.endswith(COMPLEX))
        known = {name: self._listed(call, name, arguments[name]) for name in rule.parameters if name in arguments}
        self._bind(call, rule(self.op, known))
        self.result.rules.add(target)

    def _listed(self, call: Call, name: str, argument: Any) -> Any:
        """Sizes that a trace put into a list of tensors become tensors."""
        if not isinstance(argument, list) or not any(isinstance(item, (bool, int, float)) for item in argument):
            return argument
        if not any(item.name == name and item.type == "List[Tensor]" for item in signature(call.target).parameters):
            return argument
        plain = (bool, int, float)
        return [self.op.const(item, _code_of(item)) if isinstance(item, plain) else item for item in argument]

    def _empty(self, call: Call) -> Any:
        found = []
        for type_ in (value.tensor for value in call.outputs):
            shape = [size for size in type_.shape or () if isinstance(size, int)]
            found.append(self.op.const(torch.empty(shape, dtype=type_.dtype)))
        return found[0] if len(found) == 1 else found

    def _rule(self, target: str) -> Rule | None:
        custom = self._custom(target)
        if custom is not None:
            names = tuple(parameter.name for parameter in signature(target.removesuffix(COMPLEX)).parameters)
            return Rule(lambda op, **arguments: custom(op, *arguments.values()), names)
        return self.rules.get(target)

    def _custom(self, target: str) -> Callable[..., Any] | None:
        target = target.removesuffix(COMPLEX)
        return self.custom.get(target) or self.custom.get(target.partition(".")[0])

    def _unknown_argument(self, call: Call, rule: Rule, arguments: Mapping[str, Any]) -> str:
        """Why the rule cannot take this call: it does not know an argument that is not at its default."""
        missing = [name for name in arguments if name not in rule.parameters and name not in LAYOUT_ARGUMENTS]
        if not missing or not call.target.startswith(("aten::", "quantized")):
            return ""
        defaults = {item.name: item.default for item in signature(call.target).parameters}
        for name in missing:
            value, default = arguments[name], defaults.get(name, MISSING)
            if default is MISSING or isinstance(value, Value) or value != default:
                return f"with {name}={value!r} has no rule yet"
        return ""

    def _promote(self, call: Call, rule: Rule, arguments: dict[str, Any], *, as_pairs: bool) -> None:
        names = [name for name in rule.promote if arguments.get(name) is not None]
        dtype = common_dtype([call.args[name] for name in names], rule.to_float)
        for name in names:
            if as_pairs:
                arguments[name] = pairs.operand(self.op, arguments[name], pairs.part_code(dtype))
            else:
                arguments[name] = self.op.like(arguments[name], Value(dtypes.onnx_code(dtype)))

    def _decompose(self, call: Call) -> None:
        pieces = _expanded(call)
        if pieces is None:
            self._gap(call, _no_rule(call), "no-rule")
            return
        for item in pieces.inputs:
            if item.tensor is not None:
                self.env[item.value] = self._constant(item.tensor)
        before, outer = len(self.gaps), self.outer
        self.outer = outer or call.target
        for inner in live_calls(pieces):
            inner.source = call.source
            self._call(inner)
        self.outer = outer
        if len(self.gaps) > before:
            if not outer and self._kept_at_last(call, "; ".join(gap.reason for gap in self.gaps[before:])):
                del self.gaps[before:]
                return
            self.poisoned.update(call.outputs)
            return
        for value, output in zip(call.outputs, pieces.outputs, strict=True):
            self.env[value] = self.argument(output)
        self.result.decomposed.add(call.target)

    def _bind(self, call: Call, result: Any) -> None:
        single = len(call.outputs) == 1
        results = [result] if single else list(result)
        for output, item in zip(call.outputs, results, strict=single):
            self.env[output] = item
            if item is None:
                self.absent.add(output)
            if not isinstance(output.type, TensorType):
                if isinstance(output.type, SequenceType):
                    blocks.typed(item, output.type)
                if isinstance(output.type, ScalarType) and isinstance(item, Value) and item.shape is None:
                    item.shape = ()
                continue
            if isinstance(item, (bool, int, float)):
                self.env[output] = self.op.const(item, dtypes.onnx_code(output.type.dtype))
            elif isinstance(item, Pair):
                part = TensorType(output.type.dtype.to_real(), output.type.shape)
                self._check(call, part, item.real)
                self._check(call, part, item.imag)
            elif isinstance(item, Quantized):
                self._check_integers(call, output.type, item)
            elif isinstance(item, Value):
                self._check(call, output.type, item)

    def _check_integers(self, call: Call, type_: TensorType, item: Quantized) -> None:
        # torch.export and scripts record the dtype of the numbers, not of the integers
        dtype = dtypes.stored_dtype(type_.dtype) if dtypes.is_quantized(type_.dtype) else None
        stored = dtypes.torch_dtype(item.integers.dtype or dtypes.UINT8)
        self._check(call, TensorType(dtype or stored, type_.shape), item.integers)

    @staticmethod
    def _check(call: Call, type_: TensorType, item: Value) -> None:
        code = dtypes.onnx_code(type_.dtype)
        if item.dtype is not None and item.dtype != code:
            raise ExportError(
                f"the rule of {call.target} at {call.source} gives {dtypes.type_string(item.dtype)} where torch gives "
                f"{dtypes.type_string(code)}; this is a mistake in the rule, please report it",
                code="rule-fault",
            )
        item.dtype = code
        if item.const is None and (item.shape is None or not item.is_static):
            item.shape = type_.shape


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


def _stored(type_: Any) -> TensorType | None:
    """A result's type, of a quantized tensor that of its integers."""
    if not isinstance(type_, TensorType):
        return None
    if not dtypes.is_quantized(type_.dtype):
        return type_
    return TensorType(dtypes.stored_dtype(type_.dtype), type_.shape, type_.strides)


def _code_of(number: Any) -> int:
    return {bool: dtypes.BOOL, int: dtypes.INT64}.get(type(number), dtypes.FLOAT)


def _lowest(error: OpsetError) -> str:
    lowest = f"needs opset {error.lowest} or later" if error.lowest else "no opset has it"
    return f"{lowest}: {error}"


def _is_empty(value: AtenValue) -> bool:
    """True for a tensor that has no elements, whatever the sizes of dynamic axes."""
    type_ = value.type
    if not isinstance(type_, TensorType) or not type_.shape or 0 not in type_.shape:
        return False
    return all(isinstance(size, int) for size in type_.shape) and not (
        type_.dtype.is_complex or dtypes.is_quantized(type_.dtype)
    )


def _within(target: str, outer: str) -> str:
    return f"{target} (in {outer})" if outer else target


def _input_code(name: str, dtype: torch.dtype) -> int:
    try:
        return pairs.part_code(dtype)
    except UnsupportedDtypeError as error:
        raise UnsupportedDtypeError(f"input {name!r}: {error}") from None


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


def _expanded(call: Call) -> AtenGraph | None:
    """The pieces of a call without a rule; imported here, because it loads sympy and most graphs have no such call."""
    from purexport.lowering.decompose import expand

    return expand(call)
