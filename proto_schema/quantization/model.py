"""A model whose weights are in fewer bits.

For standard operators a `DequantizeLinear` (or a `Cast`) in front of all other nodes gives the value that the
initializer gave, so that no other node changes. For ONNX Runtime a product with such a weight becomes a `MatMulNBits`,
which reads the codes itself, a table a `GatherBlockQuantized`, and a mixture of experts a `QMoE`. A weight that comes
from a checkpoint with codes of the bits that are asked for keeps its codes, scales and zero points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from proto_schema import operators
from proto_schema.budget import BudgetLike
from proto_schema.derived.cast import CastPayload
from proto_schema.derived.source import source_of
from proto_schema.derived.transposed import permuted
from proto_schema.external.payload import CHUNK, BytesLike, Payload, byte_view
from proto_schema.ir import Builder, Graph, Node, Value
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.quantization.balanced import Reciprocals
from proto_schema.quantization.candidates import STANDARD, Use, Weight, message_of
from proto_schema.quantization.chosen import Chosen, chosen
from proto_schema.quantization.codes.coded import Coded, CodedFloats, CodedPayload, codes_of
from proto_schema.quantization.codes.integers import Rounding
from proto_schema.quantization.codes.kept import Kept, KeptFloats, KeptIntegers, fits_bits_product, needs_zeros
from proto_schema.quantization.codes.streams import Layout, Quantized, WeightFit
from proto_schema.quantization.experts import (
    MICROSOFT,
    PLACES,
    attributes_of,
    block_of,
    inputs_of,
    router_weights,
    sizes_of,
)
from proto_schema.quantization.fitted import Fitted
from proto_schema.quantization.scheme import Scheme
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.version_converter import ConversionError, convert_version

Target: TypeAlias = Literal["onnx", "onnxruntime"]
TARGETS = ("onnx", "onnxruntime")
E8M0 = TensorProto.FLOAT8E8M0
_USUAL = 32  # the block size of MatMulNBits where a type's usual one is a whole channel


def quantize(
    model: ModelProto,
    scheme: str | Mapping[str, Any] | Scheme | None = None,
    *,
    target: Target = "onnx",
    activations: str | None = None,
    calibration: Any = None,
    budget: BudgetLike = None,
    **more: Any,
) -> ModelProto:
    """The model with the weights that the scheme takes in fewer bits. `model` does not change.

    scheme: a name of `TYPES` ("int4", which is the default, "float8e4m3fn", ...), or a mapping with the fields of
    `Scheme`. target: "onnx" for `DequantizeLinear`; "onnxruntime" for `MatMulNBits`, `GatherBlockQuantized` and `QMoE`
    where they have the type. The new weights are payloads that read the old ones when they are written, so the sources
    must stay as they are until then. Where the model's opset has no `DequantizeLinear` of the type, the model is
    converted to the first opset that has it; `planned` says so. Raises ValueError for a model that cannot be converted,
    and when the payloads are written, for a weight with a NaN or an infinity.

    activations: "uint8" or "int8" quantizes activations, too, by the ranges that the samples of `calibration` show (a
    folder or files of .npz and .npy, a dict of arrays whose first axis counts samples, feeds, or a function that gives
    one of these). Weights are int8 then, and the scheme may have `include`, `exclude` and `threads`. `more` are
    `method` ("minmax", "percentile" or "entropy"), `percentile`, `bins` and `per_channel`, as of
    `proto_schema.calibration.Options`. The algorithms "gptq" and "awq" take `calibration` without activations, too;
    these samples must be there until the model is saved. `budget` is for each run of our evaluator on a sample, and for
    the bytes of a file of samples (default: 16 GiB of memory). Raises ValueError for samples that the model does not
    take, and for activations that hold a NaN or an infinity.
    """
    if activations is not None:
        from proto_schema.calibration import CalibrationOptions as Options
        from proto_schema.calibration import calibrated

        if calibration is None:
            raise ValueError("activations are quantized by the ranges that samples show; give some as calibration=")
        if target != "onnx":
            raise ValueError("activations have standard operators only, which ONNX Runtime fuses; leave target out")
        return calibrated(model, Options.of(scheme or "int8", activations, **more), calibration, budget).model
    asked = Scheme.of(scheme or "int4")
    if more or (not asked.needs_samples and (calibration is not None or budget is not None)):
        given = next(iter(more), "budget" if calibration is None else "calibration")
        also = "" if more else ", or algorithm='gptq' or 'awq'"
        raise ValueError(f"{given} is of activations; say activations='uint8' or 'int8', too{also}")
    if target not in TARGETS:
        raise ValueError(f"there is no target {target!r}; it can be {' or '.join(TARGETS)}")
    work = Rewriting.of(model, asked, target).with_samples(calibration, budget)
    return work.run() if work.weights else model


def needed_opset(scheme: str | Mapping[str, Any] | Scheme, *, target: Target = "onnx") -> int:
    """The first opset at which a model of float32 weights can be quantized like that."""
    asked = Scheme.of(scheme)
    kind = asked.kind
    if kind.family == "cast":
        return _first_opset("Cast", kind.code, "T1", "", 1)
    if target == "onnxruntime" and kind.family == "integer" and asked.block_size != 0:
        return 1
    attribute = "block_size" if asked.block else "axis"
    found = _first_opset("DequantizeLinear", kind.code, "T1", attribute, 1)
    return _first_opset("DequantizeLinear", kind.scales, "T2", "", found) if kind.scales == E8M0 else found


class Rewriting:
    """One quantization of one model: its weights, what stays, and the opset before, where it had to be raised."""

    def __init__(self, found: Chosen, scheme: Scheme, target: Target, opset_before: int | None = None) -> None:
        model = found.model
        self.model = model
        self.weights = found.weights
        self.left = found.left
        self.opset_before = opset_before
        self.scheme = scheme
        self.target = target
        self.opset = next((version or 1 for domain, version in model.opsets.items() if domain in STANDARD), 1)
        self._builder = Builder(model.graph, model.opsets)
        self._first: dict[Graph, Builder] = {}  # which write at the beginning of a graph
        self._experts: dict[Node, dict[int, list[Value]]] = {}  # by node and place: codes, scales, zero points
        self._since = 0
        self._source: ModelProto | None = None
        self._fitted = Fitted({}, {})
        self._balanced: dict[str, Value] = {}

    @classmethod
    def of(cls, model: ModelProto, scheme: Scheme, target: Target) -> Rewriting:
        """The quantization of a model, which is converted where its opset lacks the type for a weight.

        Raises ValueError where it cannot be converted.
        """
        work = cls(chosen(model, scheme, target), scheme, target)
        needed, first = max(
            ((work._needed(weight), weight) for weight in work.weights),
            key=lambda pair: pair[0],
            default=(work.opset, None),
        )
        if first is None or needed <= work.opset:
            work._source = model
            return work
        try:
            later = convert_version(model, needed)
        except ConversionError as error:
            blocks = " in blocks" if work.form(first) != "Cast" and work.quantized(first).layout.block else ""
            other = cls(chosen(model, scheme, target), scheme, "onnxruntime")
            hint = "; choose target='onnxruntime', which needs no later one" if other._as_bits(first) else ""
            raise ValueError(
                f"{scheme.type}{blocks} needs opset {needed} for the weight {first.name!r}, and the model, which has "
                f"opset {work.opset}, cannot be converted: {error}{hint}"
            ) from error
        made = cls(chosen(later, scheme, target), scheme, target, work.opset)
        made._source = later
        return made

    def with_samples(self, samples: Any, budget: BudgetLike = None) -> Rewriting:
        """The same, with what the algorithm needs to know of inputs. Raises ValueError for samples that do not fit."""
        if not self.scheme.needs_samples:
            return self
        algorithm = self.scheme.algorithm
        if samples is None:
            raise ValueError(f"the algorithm {algorithm!r} rounds by samples of the inputs; give some as calibration=")
        assert self._source is not None
        self._fitted = Fitted.of(self._source, self._by_input(), algorithm, samples, budget)
        return self

    def _by_input(self) -> dict[str, list[tuple[Weight, Quantized]]]:
        """The weights that the algorithm is for, by the name of what they are multiplied with."""
        found: dict[str, list[tuple[Weight, Quantized]]] = {}
        for weight in self.weights:
            made = self.quantized(weight) if self.is_fitted(weight) else None
            value = weight.uses[0].node.input(0)
            if isinstance(made, Quantized) and value is not None:
                found.setdefault(value.name, []).append((weight, made))
        return found

    def is_fitted(self, weight: Weight) -> bool:
        """Whether an algorithm by samples is for a weight: a matrix that is multiplied with one value."""
        if not self.scheme.needs_samples or len(weight.shape) != 2 or self._kept(weight) is not None:
            return False
        plain = all(
            use.kind in ("MatMul", "Gemm")
            and use.node.graph is self.model.graph
            and not use.node.attributes.get("transA")
            for use in weight.uses
        )
        return plain and len({use.node.input(0) for use in weight.uses}) == 1

    def _needed(self, weight: Weight) -> int:
        """The first opset, from the model's on, that has the types of the weight's new form."""
        kind = self.scheme.kind
        form = self.form(weight)
        if form == "Cast":
            return self.opset if self._stays(weight) else _first_opset("Cast", kind.code, "T1", "", self.opset)
        if form != "DequantizeLinear":
            return self.opset
        block = self.quantized(weight).layout.block
        found = _first_opset(form, kind.code, "T1", "block_size" if block else "axis", self.opset)
        if kind.scales == E8M0:
            return _first_opset(form, kind.scales, "T2", "", found)
        if kind.scales and weight.dtype != TensorProto.FLOAT:
            return _first_opset(form, kind.code, "T1", "output_dtype", found)
        return found

    def run(self) -> ModelProto:
        """The new model."""
        for weight in self.weights:
            self._quantize(weight)
        forget_types(self.weights)
        made = self.model.to_message()
        made.ir_version = max(made.ir_version or 0, self._since)
        return made

    # -- weights

    def form(self, weight: Weight) -> str:
        """The operator that reads the weight afterwards."""
        if self.scheme.kind.family == "cast":
            return "Cast"
        if weight.is_expert:
            return "QMoE"
        if self._as_bits(weight):
            return "GatherBlockQuantized" if weight.is_table else "MatMulNBits"
        return "DequantizeLinear"

    def _as_bits(self, weight: Weight) -> bool:
        """Whether all that reads the weight has a form that reads codes in blocks."""
        scheme = self.scheme
        if self.target != "onnxruntime" or scheme.kind.family != "integer":
            return False
        kept = self._kept(weight)
        if isinstance(kept, CodedPayload):
            return fits_bits_product(kept) and self._all_products(weight)
        if scheme.block_size == 0:
            return False
        if weight.dtype == TensorProto.BFLOAT16:
            return False  # ONNX Runtime's CPU kernel has none
        if weight.is_table:
            return scheme.kind.bits == 4
        return len(weight.shape) == 2 and self._all_products(weight)

    @staticmethod
    def _all_products(weight: Weight) -> bool:
        """Whether a `MatMulNBits` with scales of one type can stand for all that reads the weight."""
        return all(_is_product(use) for use in weight.uses) and len({use.is_cast for use in weight.uses}) == 1

    def _kept(self, weight: Weight) -> Coded | None:
        """The codes that a weight has already, where they are what the scheme asks for."""
        scheme, dtype = self.scheme, weight.dtype
        if scheme.kind.family == "cast" or len(weight.shape) != 2 or weight.is_table or weight.axis is None:
            return None
        found = codes_of(source_of(weight.tensor)) if dtype in (TensorProto.FLOAT, TensorProto.FLOAT16) else None
        if found is None:
            return None
        codes, transposed = found
        size = 0 if codes.block >= codes.length else codes.block
        if scheme.block_size not in (None, size) or weight.axis == int(transposed):
            return None
        if isinstance(codes, CodedFloats):
            own = codes.scale_codes()
            fits = codes.code == scheme.kind.code and (own[0] if own else 0) == scheme.kind.scales
            return codes if fits and (not own or codes.block == scheme.block) else None
        if scheme.kind.family != "integer" or codes.bits != scheme.kind.bits:
            return None
        return None if scheme.symmetric and needs_zeros(codes) else codes

    def _with_its_codes(self, weight: Weight, codes: Coded) -> Kept:
        dtype, kind = weight.dtype, self.scheme.kind
        if isinstance(codes, CodedPayload) and self._as_bits(weight):
            return KeptIntegers(codes, kind, Layout(codes.rows, codes.length, codes.block, "even", padded=True), dtype)
        block = 0 if codes.block >= codes.length else codes.block
        layout = Layout(weight.shape[0], weight.shape[1], block, "even", across=weight.axis == 0)
        if isinstance(codes, CodedFloats):
            return KeptFloats(codes, kind, layout, dtype)
        return KeptIntegers(codes, kind, layout, dtype)

    def quantized(self, weight: Weight) -> Quantized | Kept:
        """The payloads of a weight that is not merely cast."""
        codes = self._kept(weight)
        if codes is not None:
            return self._with_its_codes(weight, codes)
        scheme, tensor = self.scheme, weight.tensor
        source, shape = source_of(tensor), weight.shape
        dtype = tensor.data_type or TensorProto.FLOAT
        if weight.is_expert:
            layout = Layout(_product(shape[:2]), shape[2], self._block_of_experts(weight), "inside", padded=True)
        elif self._as_bits(weight) and not weight.is_table:
            if weight.axis == 0:
                source, shape = permuted(source, DTYPES[dtype].bits // 8, shape, (1, 0)), shape[::-1]
            layout = Layout(shape[0], shape[1], scheme.block or _USUAL, "inside", padded=True)
        elif weight.axis is None:
            rest = _product(shape[1:])
            layout = Layout(shape[0], rest, 0, "even")
        else:
            block = (scheme.block or _USUAL) if weight.is_table and self._as_bits(weight) else scheme.block
            rounding: Rounding = "even" if not block and scheme.kind.bits == 8 else "outside"
            if weight.axis == len(shape) - 1:
                layout = Layout(_product(shape[:-1]), shape[-1], block, rounding)
            else:
                layout = self._stack(shape, block, rounding)
        fit = self._fitted.fits.get(weight.name)
        if scheme.algorithm == "hqq" and scheme.has_zero_points and self._as_bits(weight) and not weight.is_table:
            fit = WeightFit(exact_zeros=True)
        return Quantized(weight.name, source, dtype, layout, scheme, weight.dtype, fit)

    def _stack(self, shape: Sequence[int], block: int, rounding: Rounding) -> Layout:
        """Of matrices behind each other, whose columns sum. Without blocks a column is one, where the opset has blocks.

        Before, a scale is of one axis: all matrices share those of their columns.
        """
        batches, rows, length = _product(shape[:-2]), shape[-2], shape[-1]
        if not block and batches > 1:
            found = operators.schema("DequantizeLinear", self.opset)
            if found is None or "block_size" not in found.attributes:
                return Layout(batches * rows, length, 0, rounding, across=True)
            block = rows
        return Layout(rows, length, block, rounding, across=True, batches=batches)

    def _quantize(self, weight: Weight) -> None:
        if weight.name in self._fitted.fits and self._fitted.balances:
            self._balance(weight)
        if self.scheme.kind.family == "cast":
            self._cast(weight)
        elif weight.is_expert:
            self._in_experts(weight)
        elif self._as_bits(weight):
            self._in_bits(weight)
        else:
            self._dequantized(weight)

    def _balance(self, weight: Weight) -> None:
        """Let all that reads a weight read its input divided by the factors of the weight."""
        for use in weight.uses:
            value = use.node.input(0)
            assert value is not None
            if value.name not in self._balanced:
                length, width = self.quantized(weight).layout.summed, DTYPES[weight.dtype].bits // 8
                payload = Reciprocals(self._fitted.balances[value.name], length, weight.dtype, width)
                factors = self._tensor(f"{value.name}_balance", weight.dtype, (length,), payload)
                name = self.model.new_name(f"{value.name}_balanced")
                made = self._builder.after(value.producer).Mul(
                    value, factors, outputs=[name], name=self.model.new_name(name)
                )
                self._balanced[value.name] = made
            use.node.set_input(0, self._balanced[value.name])

    def _cast(self, weight: Weight) -> None:
        tensor, code = weight.tensor, self.scheme.kind.code
        if self._stays(weight):
            return
        payload = CastPayload(source_of(tensor), tensor.data_type or 1, code)
        made = self._tensor(f"{weight.name}_{self.scheme.type}", code, weight.shape, payload)
        self._put(weight, "Cast", [made], f"{weight.name}_cast", {"to": tensor.data_type}).stand_for(weight.value)
        self.model.graph.remove_initializer(weight.value)

    def _stays(self, weight: Weight) -> bool:
        """Whether a cast would make a weight no smaller."""
        return DTYPES[weight.tensor.data_type or 1].bits <= self.scheme.kind.bits

    def _dequantized(self, weight: Weight) -> None:
        kind, shape = self.scheme.kind, weight.shape
        made = self.quantized(weight)
        block = made.layout.block
        axis = weight.axis
        if block and axis is not None:
            scale_shape = tuple(-(-size // block) if place == axis else size for place, size in enumerate(shape))
        else:
            axis = 0 if axis is None else len(shape) - 1 if axis == len(shape) - 2 else len(shape) - 2
            scale_shape = (shape[axis],)
        inputs = [self._tensor(f"{weight.name}_quantized", kind.code, shape, made.codes)]
        scale = self._tensor(f"{weight.name}_scale", made.scale_dtype, scale_shape, made.scales)
        attributes: dict[str, Any] = {"axis": axis}
        if block:
            attributes["block_size"] = block
        if kind.scales == E8M0:
            attributes["output_dtype"] = weight.dtype
        elif kind.scales:
            scale = self._scaled_scales(weight, made, scale)
            if weight.dtype != TensorProto.FLOAT:
                attributes["output_dtype"] = weight.dtype
        inputs.append(scale)
        if made.zeros is not None:
            inputs.append(self._tensor(f"{weight.name}_zero_point", kind.code, scale_shape, made.zeros))
        result = self._put(weight, "DequantizeLinear", inputs, f"{weight.name}_dequantize", attributes)
        result.stand_for(weight.value)
        self.model.graph.remove_initializer(weight.value)

    def _put(
        self, weight: Weight, op_type: str, inputs: Sequence[Value], name: str, attributes: Mapping[str, Any]
    ) -> Value:
        """What a new node makes at the beginning of the graph in which the weight's floats are made."""
        graph = weight.home or self.model.graph
        if graph not in self._first:
            self._first[graph] = Builder(graph, self.model.opsets).after(None)
        made: Value = self._first[graph].op(op_type, *inputs, name=self.model.new_name(name), **attributes)
        return made

    def _scaled_scales(self, weight: Weight, made: Quantized | Kept, scales: Value) -> Value:
        """The value that E4M3 scales have over the scale of the whole tensor."""
        whole = self._tensor(f"{weight.name}_scale_of_scales", TensorProto.FLOAT, (), _WholeScale(made))
        wanted = self.model.new_name(f"{weight.name}_scale_value")
        result = self._put(weight, "DequantizeLinear", [scales, whole], f"{weight.name}_scale_dequantize", {})
        result.name = wanted
        return result

    def _in_bits(self, weight: Weight) -> None:
        made = self.quantized(weight)
        layout, bits = made.layout, self.scheme.kind.bits
        dtype = weight.dtype
        self.model.opsets.setdefault(MICROSOFT, 1)
        if weight.is_table:
            code = self.scheme.kind.code
            values = [self._tensor(f"{weight.name}_quantized", code, weight.shape, made.codes)]
            shape: tuple[int, ...] = (layout.rows, layout.blocks)
            values.append(self._tensor(f"{weight.name}_scale", dtype, shape, made.scales))
            if made.zeros is not None:
                values.append(self._tensor(f"{weight.name}_zero_point", code, shape, made.zeros))
            attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": layout.block}
            for use in weight.uses:
                inputs = [values[0], use.node.input(1), *values[1:]]
                self._replace(use, self._runtime(use.node, "GatherBlockQuantized", inputs, attributes, use.node.name))
            self.model.graph.remove_initializer(weight.value)
            return
        rows, blocks = layout.rows, layout.blocks
        shape = (rows, blocks, layout.block * bits // 8)
        values = [self._tensor(f"{weight.name}_quantized", TensorProto.UINT8, shape, made.codes)]
        values.append(self._tensor(f"{weight.name}_scale", dtype, (rows, blocks), made.scales))
        if made.zeros is not None:
            exact = isinstance(made, Quantized) and made.exact_zeros
            zeros = (rows, blocks) if exact else (rows, (blocks * bits + 7) // 8)
            kind = dtype if exact else TensorProto.UINT8
            values.append(self._tensor(f"{weight.name}_zero_point", kind, zeros, made.zeros))
        attributes = {"K": layout.length, "N": rows, "bits": bits, "block_size": layout.block}
        if self.scheme.accuracy_level:
            attributes["accuracy_level"] = self.scheme.accuracy_level
        for use in weight.uses:
            self._replace(use, self._bits_product(use.node, values, attributes))
        self.model.graph.remove_initializer(weight.value)

    def _bits_product(self, node: Node, values: Sequence[Value], attributes: Mapping[str, int]) -> Value:
        """The product in its new form, or the sum of that with what a `Gemm` adds."""
        bias = node.input(2) if node.op_type == "Gemm" else None
        if bias is None:
            return self._runtime(node, "MatMulNBits", [node.input(0), *values], attributes, node.name)
        wanted = self.model.new_name(f"{node.output.name}_product")
        name = self.model.new_name(f"{node.name}_product") if node.name else ""
        product = self._runtime(node, "MatMulNBits", [node.input(0), *values], attributes, name)
        product.name = wanted
        made: Value = self._builder.instead_of(node).Add(product, bias, name=node.name)
        return made

    def _runtime(
        self, node: Node, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, Any], name: str
    ) -> Value:
        """What an operator of ONNX Runtime makes in front of another node, with what the file says of that."""
        made: Value = self._builder.instead_of(node).op(op_type, *inputs, domain=MICROSOFT, name=name, **attributes)
        return made

    def _replace(self, use: Use, made: Value) -> None:
        """Let a value stand for what reads a weight; what is between the two goes if nothing reads it."""
        self._builder.replace(use.node, made)
        self._drop_between(use)

    @staticmethod
    def _drop_between(use: Use) -> None:
        for node in reversed(use.between):
            if node.graph is not None and not node.output.uses:
                node.graph.nodes.remove(node)

    def _block_of_experts(self, weight: Weight) -> int:
        use = weight.uses[0]
        sizes = sizes_of(message_of(use.node), use.place, weight.shape)
        return block_of(*sizes[1:], self.scheme) if sizes is not None else 0

    def _in_experts(self, weight: Weight) -> None:
        """The codes of one of the two weights of a layer of experts; with the second one the node is made."""
        made, (use,) = self.quantized(weight), weight.uses
        layout, bits = made.layout, self.scheme.kind.bits
        count, rows, length = weight.shape
        blocks = (layout.blocks,) if layout.block else ()
        shape: tuple[int, ...] = (count, rows, length * bits // 8)
        values = [self._tensor(f"{weight.name}_quantized", TensorProto.UINT8, shape, made.codes)]
        values.append(self._tensor(f"{weight.name}_scale", weight.dtype, (count, rows, *blocks), made.scales))
        if made.zeros is not None:
            shape = (count, rows, (layout.blocks * bits + 7) // 8) if layout.block else (count, rows * bits // 8)
            values.append(self._tensor(f"{weight.name}_zero_point", TensorProto.UINT8, shape, made.zeros))
        found = self._experts.setdefault(use.node, {})
        found[use.place] = values
        if len(found) == len(PLACES):
            self.model.opsets.setdefault(MICROSOFT, 1)
            codes = [found[place] for place in PLACES]
            self._replace(use, self._coded_experts(use.node, codes, count, layout.block))
            for one in self.weights:
                if one.uses[0].node is use.node:
                    self._drop_between(one.uses[0])
                    self.model.graph.remove_initializer(one.value)

    def _coded_experts(self, node: Node, codes: Sequence[Sequence[Value]], count: int, block: int) -> Value:
        weights = None
        if router_weights(message_of(node), count):
            wanted = self.model.new_name(f"{node.output.name}_router_weights")
            name = self.model.new_name(f"{node.name or 'MoE'}_router_weights")
            weights = self._builder.before(node).Softmax(node.input(1), axis=1, name=name, outputs=[wanted])
        attributes = {**node.attributes, **attributes_of(block, self.scheme)}
        return self._runtime(node, "QMoE", inputs_of(node, codes, weights), attributes, node.name)

    def _tensor(self, name: str, dtype: int, shape: Sequence[int], payload: Payload) -> Value:
        self._since = max(self._since, DTYPES[dtype].since)
        tensor = TensorProto(data_type=dtype, dims=list(shape), raw_data=payload)
        return self.model.graph.add_initializer(tensor, self.model.new_name(name))


class _WholeScale(Payload):
    """The scale of the scales of a weight, which is known once the weight was read."""

    def __init__(self, owner: Quantized | Kept) -> None:
        self.owner = owner

    @property
    def nbytes(self) -> int:
        return 4

    @property
    def identity(self) -> object:
        codes = self.owner.codes.identity
        return None if codes is None else (type(self), codes)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.owner.source,)

    @property
    def together(self) -> object:
        return id(self.owner)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        yield byte_view(np.float32(self.owner.whole or 0).tobytes())


def _first_opset(operator: str, code: int, variable: str, attribute: str, start: int) -> int:
    """The first opset from `start` on where an operator takes a type, and has an attribute."""
    text = f"tensor({DTYPES[code].text})"
    return next(
        opset
        for opset in range(start, operators.newest_opset() + 1)
        if (row := operators.schema(operator, opset)) is not None and _allows(row, text, variable, attribute)
    )


def _allows(found: operators.OpSchema, text: str, variable: str, attribute: str) -> bool:
    constraint = found.constraints.get(variable) or found.constraints.get("T", frozenset())
    return text in constraint and (not attribute or attribute in found.attributes)


def _is_product(use: Use) -> bool:
    """Whether a `MatMulNBits` says the same."""
    if use.kind == "MatMul":
        return True
    if use.kind != "Gemm":
        return False
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    given = use.node.attributes
    return all(given.get(name, usual) == usual for name, usual in plain.items())


def forget_types(weights: Sequence[Weight]) -> None:
    """Let the file say no types between weights and products that become float32 and were not."""
    for weight in weights:
        if weight.dtype != weight.tensor.data_type:
            for value in (value for use in weight.uses for node in use.between for value in node.outputs):
                if value is not None:
                    value.declared = None


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
