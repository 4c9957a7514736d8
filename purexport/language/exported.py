"""A module with tensors in and out, captured with its attention as one call, rewritten for a target, and lowered.

The stages are those of `export`.  What is different: attention is captured as one call (`attention`), and rows of the
target rewrite the neutral graph (`purexport/fusion/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import proto_schema as ps
from purexport.aten import own_operators as own
from purexport.errors import ExportError
from purexport.fusion.proofs import Prover
from purexport.fusion.rewriting import Fused, rewrite
from purexport.fusion.targets import rows_of
from purexport.language.attention import attention_recorded
from purexport.language.experts import experts_recorded
from purexport.language.recurrences import recurrences_recorded
from purexport.lock import alone
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.stages.build import build_program
from purexport.stages.functionalize import captured_and_pure
from purexport.stages.lower import lower_to_onnx
from purexport.stages.run import opened

ATTENTION = ("Attention", "GroupQueryAttention", "MultiHeadAttention")
_OPEN = ("batch_size", "sequence_length", "past_sequence_length", "total_sequence_length")
MASK = "attention_mask"
HOLES = ("onnx", "onnxruntime")  # targets whose rows take padding wherever it is
_POSITIONS = 4096  # of a model that does not say how many it was made for


@dataclass
class LanguageModelReport:
    """What became of a language model: nodes by kind, layers with attention as one operator, and what was not fused."""

    target: str
    opset: int
    nodes: dict[str, int]
    layers: int
    attention: int
    fused: dict[str, int]
    not_fused: list[str]
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    difference: float | None = None
    warnings: list[str] = field(default_factory=list)
    proven: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as text for people."""
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.nodes.items(), key=lambda item: -item[1]))
        lines = [f"target: {self.target}, opset {self.opset}", f"nodes: {sum(self.nodes.values())} ({kinds})"]
        lines.append(f"attention as one operator: {self.attention} of {self.layers} layers")
        lines += [f"not fused: {reason}" for reason in self.not_fused]
        if self.files:
            lines.append(f"files: {', '.join(self.files)}, {self.bytes} bytes in all")
        if self.difference is not None:
            lines.append(f"verified: logits differ by at most {self.difference:.2g} of the largest")
        if self.proven:
            rows = ", ".join(f"{name} {count}" for name, count in self.proven.items())
            lines.append(f"proven on random values: {rows}")
        return "\n".join([*lines, *(f"warning: {remark}" for remark in self.warnings)])


def exported(
    model: Any,
    module: nn.Module,
    args: Sequence[Tensor],
    options: Options,
    target: str,
    positions: int,
    *,
    prove: bool = False,
) -> tuple[ONNXProgram, Fused]:
    """The file of a module that calls `model`, not yet written, and which rows applied.

    With `prove` what each row writes is compared with what stood there, on random values.  Raises as `export` does;
    VerificationError where a row writes something else.
    """
    prover = Prover(_given(args, options, target)) if prove else None
    reasons: list[str] = []
    for experts in (True, False) if target != "onnx" else (False,):
        with (
            alone(),
            attention_recorded(model),
            experts_recorded(experts),
            recurrences_recorded(model),
            opened(module, tuple(args), None, options) as run,
        ):
            pure = captured_and_pure(run)
            graph, fused = rewrite(pure.graph, rows_of(target, positions), prover)
            if any(call.target == own.EXPERTS for call in graph.calls):
                reasons += [reason for reason in fused.reasons if "experts" in reason]
                continue  # no other operator says them: the model's own function does, in products
            program = build_program(run, lower_to_onnx(run, replace(pure, graph=graph)))
            break
    fused.reasons += reasons
    program.report.warnings += [f"not proven on random values: {reason}" for reason in fused.unproven]
    return program, fused


def _given(args: Sequence[Tensor], options: Options, target: str) -> dict[str, Tensor]:
    """The example by name; a token of the past is hidden where padding may be in front of tokens."""
    found = dict(zip(options.input_names or (), args, strict=True))
    mask = found.get(MASK)
    if mask is not None and mask.dim() == 2 and target in HOLES and mask.shape[1] > 1:
        found[MASK] = mask.index_fill(1, torch.tensor([0]), 0)
    return found


def refuse_held(
    file: str, model: ps.ModelProto, axes: Mapping[str, Mapping[int, str]], warnings: Iterable[str]
) -> None:
    """ExportError where an axis that a loop of generation needs open has one size; `warnings` may say why it has."""
    for item in model.graph.input if model.graph is not None else ():
        shape = item.type.tensor_type.shape if item.type is not None and item.type.tensor_type is not None else None
        for at, dim in enumerate(shape.dim if shape is not None else ()):
            name = axes.get(item.name or "", {}).get(at)
            if name in _OPEN and dim.dim_value is not None:
                reason = next((f": {line}" for line in warnings if line.startswith("axis ")), "")
                raise ExportError(
                    f"{file}: the model holds {name} at {dim.dim_value}, the size of the example, so that no text "
                    f"can be generated with it{reason}",
                    code="not-a-decoder",
                )


def nodes_of(program: ONNXProgram) -> Counter[str]:
    """The nodes of the file by kind."""
    graph = program.model_proto.graph
    return Counter(node.op_type or "" for node in (graph.node if graph is not None else ()))


def positions_of(model: Any) -> int:
    """How many positions the model was made for."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or _POSITIONS)
