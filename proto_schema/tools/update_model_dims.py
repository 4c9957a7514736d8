"""New sizes for the inputs and outputs of a model, with the name of `onnx.tools.update_model_dims`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proto_schema.checker import check_model
from proto_schema.graphs.dims import known_size
from proto_schema.graphs.similar import similar
from proto_schema.onnx import GraphProto, ModelProto, TensorShapeProto, ValueInfoProto

__all__ = ["update_inputs_outputs_dims"]

Sizes = Mapping[str, Sequence["int | str"]]


def update_inputs_outputs_dims(model: ModelProto, input_dims: Sizes, output_dims: Sizes) -> ModelProto:
    """Sets the sizes of inputs and outputs, in place, and returns the model.

    A size is a number, a name, or -1 for a name of its own, `input_2` for the axis 2 of `input`. Inputs and outputs
    that are not named keep theirs. Raises ValueError for an unknown name, another rank, a number that contradicts the
    one that is there and a name of its own that is taken, TypeError for other sizes; the model is then unchanged.
    CheckError where the model is not valid.
    """
    graph = model.graph or GraphProto()
    taken = {dim.dim_param for value in (*graph.input, *graph.output, *graph.value_info) for dim in _dims(value)}
    changes: list[tuple[TensorShapeProto.Dimension, TensorShapeProto.Dimension]] = []
    for what, values, wanted in (("input", graph.input, input_dims), ("output", graph.output, output_dims)):
        known = {value.name or "": value for value in values}
        for name, sizes in wanted.items():
            if name not in known:
                close = similar(name, known)
                raise ValueError(
                    f"the model has no {what} {name!r}" + (f"; it has {', '.join(close)}" if close else "")
                )
            changes += _changes(known[name], name, sizes, taken)
    for dim, new in changes:
        dim.CopyFrom(new)
    check_model(model)
    return model


def _dims(value: ValueInfoProto) -> Iterable[TensorShapeProto.Dimension]:
    tensor = None if value.type is None else value.type.tensor_type
    return () if tensor is None or tensor.shape is None else tensor.shape.dim


def _changes(
    value: ValueInfoProto, name: str, sizes: Sequence[int | str], taken: set[str | None]
) -> list[tuple[TensorShapeProto.Dimension, TensorShapeProto.Dimension]]:
    dims = list(_dims(value))
    if len(sizes) != len(dims):
        raise ValueError(f"{name!r} has {len(dims)} axes, and {len(sizes)} sizes are given for them")
    made = []
    for axis, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        if isinstance(size, str):
            new = TensorShapeProto.Dimension(dim_param=size)
        elif not isinstance(size, int):
            raise TypeError(f"the axis {axis} of {name!r}: a size is an int or a str, not a {type(size).__name__}")
        elif size < 0:
            own = f"{name}_{axis}"
            if own in taken:
                raise ValueError(f"the axis {axis} of {name!r}: the name {own!r} is taken; give one instead of {size}")
            new = TensorShapeProto.Dimension(dim_param=own)
        elif known_size(dim) not in (None, size):
            raise ValueError(f"the axis {axis} of {name!r} has the size {dim.dim_value}, and not {size}")
        else:
            new = TensorShapeProto.Dimension(dim_value=size)
        new.denotation = dim.denotation
        made.append((dim, new))
    return made
