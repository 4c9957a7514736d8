"""What a quantization would do, for people and programs: each weight, its size before and after, its error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from proto_schema.dtypes import DTYPES, element_count, type_name
from proto_schema.graphs.names import as_text
from proto_schema.onnx import ModelProto
from proto_schema.quantization.candidates import Weight, bytes_of
from proto_schema.quantization.chosen import chosen
from proto_schema.quantization.model import Rewriting, Target
from proto_schema.quantization.scheme import Scheme
from proto_schema.records import dataclass
from proto_schema.units import size_text


@dataclass(frozen=True)
class Entry:
    """A large tensor: `form` is the operator that reads it afterwards, or '' where it stays, for the `reason`.

    `before` and `after` are bytes. `error` is the root of the squared differences over that of the squares, None where
    it was not measured.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    form: str
    before: int
    after: int
    reason: str = ""
    error: float | None = None


@dataclass(frozen=True)
class Report:
    """All large tensors of a model under a scheme."""

    scheme: Scheme
    entries: tuple[Entry, ...]

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
        """A line for each tensor, and one for the sums."""
        width = max((len(entry.name) for entry in self.entries), default=0)
        for entry in self.entries:
            shape = "x".join(map(str, entry.shape))
            sizes = f"{size_text(entry.before):>8} -> {size_text(entry.after):>8}"
            error = "" if entry.error is None else f"  error {entry.error:.2e}"
            what = f"{entry.form}{error}" if entry.form else f"stays: it {entry.reason}"
            yield f"{entry.name:<{width}}  {entry.dtype} {shape:<14} {sizes}  {what}"
        taken = sum(1 for entry in self.entries if entry.form)
        sizes = f"{size_text(self.before)} -> {size_text(self.after)}"
        yield f"{taken} of {len(self.entries)} to {self.scheme.type}: {sizes}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def planned(model: ModelProto, scheme: str | Mapping[str, Any] | Scheme = "int4", *, target: Target = "onnx") -> Report:
    """What `quantize` with the same arguments would do; no weight is read."""
    asked = Scheme.of(scheme)
    found = chosen(model, asked, target)
    work = Rewriting(found.model, asked, target)
    entries = [_entry(work, weight) for weight in found.weights]
    for item in found.left:
        tensor = item.tensor
        size = bytes_of(tensor)
        name, shape = as_text(tensor.name), tuple(tensor.dims)
        entries.append(Entry(name, type_name(tensor.data_type or 0), shape, "", size, size, item.reason))
    return Report(asked, tuple(entries))


def measured(
    model: ModelProto, scheme: str | Mapping[str, Any] | Scheme = "int4", *, target: Target = "onnx"
) -> Report:
    """What `quantize` would do, with the error of each weight, for which all of them are read."""
    report = planned(model, scheme, target=target)
    found = chosen(model, report.scheme, target)
    work = Rewriting(found.model, report.scheme, target)
    weights = {weight.name: weight for weight in found.weights}
    return Report(report.scheme, tuple(_measured(work, weights, entry) for entry in report.entries))


def _measured(work: Rewriting, weights: Mapping[str, Weight], entry: Entry) -> Entry:
    if not entry.form or entry.form == "Cast":
        return entry
    return replace(entry, error=work.quantized(weights[entry.name]).error())


def _entry(work: Rewriting, weight: Weight) -> Entry:
    tensor, form = weight.tensor, work.form(weight)
    before = bytes_of(tensor)
    if form == "Cast":
        after = min(before, DTYPES[work.scheme.kind.code].nbytes(element_count(weight.shape)))
    else:
        made = work.quantized(weight)
        after = made.codes.nbytes + made.scales.nbytes + (made.zeros.nbytes if made.zeros is not None else 0)
    return Entry(weight.name, type_name(tensor.data_type or 0), weight.shape, form, before, after)
