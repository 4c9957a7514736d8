"""Lower: each call of the neutral graph becomes ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.axes import Axes
from purexport.aten.graph import Arg, AtenValue, Call, TensorType
from purexport.aten.schema import number_parameters
from purexport.compat.symbolic.unused import unused
from purexport.facts.table import has_data_dependent_size
from purexport.graph.ir import Graph
from purexport.graph.parameters import parameters_as_inputs
from purexport.lowering.arguments import flat
from purexport.lowering.lower import Lowered, lower_graph
from purexport.stages.functionalize import Pure
from purexport.stages.run import Run, warn_user


@dataclass(frozen=True, eq=False)
class Onnx:
    """The ONNX graph, how it was made, and the parameters that it takes as inputs, by name."""

    pure: Pure
    lowered: Lowered
    outside: dict[str, torch.Tensor]

    @property
    def remarks(self) -> list[str]:
        """What the stages before this one remarked."""
        return self.pure.remarks

    @property
    def graph(self) -> Graph:
        """The ONNX graph itself."""
        return self.lowered.graph


def lower_to_onnx(run: Run, pure: Pure) -> Onnx:
    """The graph in ONNX operators of the requested opset.

    Raises UnsupportedOperatorError with every call that cannot be expressed.
    """
    options = run.options
    run.progress.at("lower")
    lowered = lower_graph(
        pure.graph,
        options.opset,
        run.rules,
        fold=options.folds(run.model),
        kind=options.operator_export_type,
        listed=pure.captured.listed,
        axes=_axes(pure),
        derived=pure.captured.derived,
        trains=options.keeps_training_operators,
        release=options.release,
        of_runtime=options.for_runtime,
    )
    idle = unused(options.custom_translation_table, options.opset, pure.graph.calls, lowered.rules)
    lowered.remarks[:0] = warn_user([*lowered.findings, *idle])
    outside = [] if options.export_params else parameters_as_inputs(lowered.graph, pure.graph.inputs)
    return Onnx(pure, lowered, {value.name: tensor for value, tensor in outside})


def _axes(pure: Pure) -> Mapping[str, Axes] | None:
    """The dynamic axes by input, for a graph with the sizes of an example; None where its types hold for all sizes."""
    captured = pure.captured
    if captured.types_hold_for_all_sizes:
        return None
    calls = pure.graph.calls
    changing = bool(captured.axes) or any(has_data_dependent_size(call) or _counts_by_tensor(call) for call in calls)
    return captured.axes if changing else None


def _counts_by_tensor(call: Call) -> bool:
    """Whether a call takes a number from a tensor, from which sizes may follow."""
    if call.target in ("aten::Int.Tensor", "aten::IntImplicit", "aten::item"):
        return True
    names = number_parameters(call.target)
    return any(_is_whole(item) for name, argument in call.args.items() if name in names for item in flat([argument]))


def _is_whole(item: Arg) -> bool:
    type_ = item.type if isinstance(item, AtenValue) else None
    return isinstance(type_, TensorType) and not (type_.dtype.is_floating_point or type_.dtype.is_complex)
