"""What a quantization would do, for people and programs: each weight, its size before and after, its error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from proto_schema.budget import BudgetLike
from proto_schema.graphs.names import as_text
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.quantization.candidates import Weight, bytes_of
from proto_schema.quantization.chosen import chosen
from proto_schema.quantization.codes.streams import Quantized
from proto_schema.quantization.model import Rewriting, Target
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.dtypes import DTYPES, element_count, type_name
from proto_schema.units import size_text
from proto_schema.wire.records import dataclass

_NO_WEIGHT = "no MatMul, Gemm, Conv, Gather or MoE reads a float tensor of two axes or more that the file holds"


@dataclass(frozen=True)
class Entry:
    """A large tensor: `form` is the operator that reads it afterwards, or '' where it stays, for the `reason`.

    `algorithm` finds its codes. `before` and `after` are bytes. `error` is the root of the squared differences over
    that of the squares, None where it was not measured.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    form: str
    before: int
    after: int
    reason: str = ""
    error: float | None = None
    algorithm: str = "rtn"


@dataclass(frozen=True)
class Report:
    """All large tensors of a model under a scheme.

    `opsets` are the model's opset and the one it is converted to, where the type needs a later one.
    """

    scheme: Scheme
    entries: tuple[Entry, ...]
    opsets: tuple[int, int] | None = None

    @property
    def before(self) -> int:
        """The bytes of all of them before."""
        return sum(entry.before for entry in self.entries)

    @property
    def after(self) -> int:
        """The bytes of all of them afterwards."""
        return sum(entry.after for entry in self.entries)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields, and the sums."""
        return {**asdict(self), "before": self.before, "after": self.after}

    def lines(self) -> Iterator[str]:
        """A line for each tensor, one for the sums, and one for an opset that is raised."""
        width = max((len(entry.name) for entry in self.entries), default=0)
        for entry in self.entries:
            shape = "x".join(map(str, entry.shape))
            sizes = f"{size_text(entry.before):>8} -> {size_text(entry.after):>8}"
            error = "" if entry.error is None else f"  error {entry.error:.2e}"
            by = "" if entry.algorithm == "rtn" else f" by {entry.algorithm}"
            what = f"{entry.form}{by}{error}" if entry.form else f"stays: it {entry.reason}"
            yield f"{entry.name:<{width}}  {entry.dtype} {shape:<14} {sizes}  {what}"
        taken = sum(1 for entry in self.entries if entry.form)
        sizes = f"{size_text(self.before)} -> {size_text(self.after)}"
        nothing = "" if self.entries else f"; {_NO_WEIGHT}"
        yield f"{taken} of {len(self.entries)} to {self.scheme.type}: {sizes}{nothing}"
        if self.opsets is not None:
            yield f"opset {self.opsets[0]} -> {self.opsets[1]}, the first that has {self.scheme.type} for these weights"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def planned(model: ModelProto, scheme: str | Mapping[str, Any] | Scheme = "int4", *, target: Target = "onnx") -> Report:
    """What `quantize` with the same arguments would do; no weight is read."""
    return _report(Rewriting.of(model, Scheme.of(scheme), target), model)


def measured(
    model: ModelProto,
    scheme: str | Mapping[str, Any] | Scheme = "int4",
    *,
    target: Target = "onnx",
    calibration: Any = None,
    budget: BudgetLike = None,
) -> Report:
    """What `quantize` would do, with the error of each weight, for which all of them are read."""
    work = Rewriting.of(model, Scheme.of(scheme), target).with_samples(calibration, budget)
    report = _report(work, model)
    weights = {weight.name: weight for weight in work.weights}
    return replace(report, entries=tuple(_measured(work, weights, entry) for entry in report.entries))


def _report(work: Rewriting, model: ModelProto) -> Report:
    scheme = work.scheme
    entries = [_entry(work, weight) for weight in work.weights]
    entries += [_stays(item.tensor, item.reason) for item in work.left]
    named = {entry.name for entry in entries}
    few = f"has fewer elements than the {scheme.smallest:,} that a weight needs here (smallest=1 takes all)"
    for weight in chosen(model, replace(scheme, smallest=1, include=(), exclude=()), work.target).weights:
        if as_text(weight.tensor.name) not in named:
            entries.append(_stays(weight.tensor, few))
    opsets = None if work.opset_before is None else (work.opset_before, work.opset)
    return Report(scheme, tuple(entries), opsets)


def _stays(tensor: TensorProto, reason: str) -> Entry:
    size = bytes_of(tensor)
    return Entry(as_text(tensor.name), type_name(tensor.data_type or 0), tuple(tensor.dims), "", size, size, reason)


def _measured(work: Rewriting, weights: Mapping[str, Weight], entry: Entry) -> Entry:
    if not entry.form or entry.form == "Cast":
        return entry
    return replace(entry, error=work.quantized(weights[entry.name]).error())


def _entry(work: Rewriting, weight: Weight) -> Entry:
    tensor, form = weight.tensor, work.form(weight)
    before, algorithm = bytes_of(tensor), "rtn"
    if form == "Cast":
        after = min(before, DTYPES[work.scheme.kind.code].nbytes(element_count(weight.shape)))
    else:
        made = work.quantized(weight)
        if isinstance(made, Quantized) and (work.is_fitted(weight) or not work.scheme.needs_samples):
            algorithm = work.scheme.algorithm
        after = made.codes.nbytes + made.scales.nbytes + (made.zeros.nbytes if made.zeros is not None else 0)
    return Entry(weight.name, type_name(tensor.data_type or 0), weight.shape, form, before, after, algorithm=algorithm)
