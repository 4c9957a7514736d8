"""The inputs of a model that verbs run: of files, of a specification, or random, with sizes that the model allows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import proto_schema as ps
from purexport.cli.errors import UsageError
from purexport.cli.specs import InputSpec, parse_input

if TYPE_CHECKING:
    import numpy as np

_DRAWN = 1 << 31  # bytes of random inputs


def add_feed(parser: argparse.ArgumentParser) -> None:
    """The options that say the inputs."""
    add = parser.add_argument
    add("--input", action="append", default=[], metavar="SPEC", help="an input: x=@x.npy, or x=float32[1,3,8,8]")
    add("--inputs", metavar="FILE", help="inputs by name: an .npz file, or another file that holds tensors")
    add("--dim", action="append", default=[], metavar="NAME=N", help="the size of a named axis of random inputs")


def files_of_feed(args: argparse.Namespace) -> list[str]:
    """The files that inputs come from. Raises UsageError for an --input that cannot be read."""
    specs = [parse_input(text) for text in args.input]
    return [str(spec.file) for spec in specs if spec.file] + ([args.inputs] if args.inputs else [])


def make_feed(model: ps.ModelProto, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The inputs by name. Raises UsageError for names that the model has not, and for what cannot be drawn."""
    return next(make_feeds(model, args, seed))


def make_feeds(model: ps.ModelProto, args: argparse.Namespace, seed: int) -> Iterator[dict[str, Any]]:
    """The inputs by name, of the most usual shapes first, then of others; once where nothing is random.

    Raises UsageError as `make_feed` does.
    """
    import numpy as np

    from proto_schema.reference.inputs import allowed_shapes, asked
    from purexport.weights import open_weights

    graph = model.graph or ps.GraphProto()
    declared = {item.name or "": item for item in graph.input}
    feed: dict[str, Any] = {}
    if args.inputs:
        feed.update((name, _array(stored)) for name, stored in open_weights(args.inputs).items())
    draw = np.random.default_rng(seed)
    sizes = dict(_dim(text) for text in args.dim)
    for spec in map(parse_input, args.input):
        feed[spec.name] = (
            _array(next(iter(open_weights(str(spec.file)).values()))) if spec.file else _random(spec, draw)
        )
    for name in [name for name in feed if name not in declared]:
        raise UsageError(f"the model has no input {name!r}; it has {', '.join(map(repr, declared)) or 'none'}")
    missing = [item for item in asked(model) if item.name not in feed]
    if not missing:
        yield feed
        return
    state = draw.bit_generator.state
    for shapes in allowed_shapes(model, sizes, {name: array.shape for name, array in feed.items()}):
        draw.bit_generator.state = state
        drawn = {item.name or "": _random(_declared(item, shapes.get(item.name or "")), draw) for item in missing}
        yield {**feed, **drawn}


def _array(stored: Any) -> np.ndarray[Any, Any]:
    from proto_schema.external.payload import contiguous
    from proto_schema.numpy_helper import to_array

    tensor = ps.TensorProto(data_type=stored.dtype, dims=list(stored.shape), raw_data=contiguous(stored.payload))
    array: np.ndarray[Any, Any] = to_array(tensor)
    return array


def _dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not (equals and name and size.isascii() and size.isdigit() and len(size) < 12):
        raise UsageError(f"--dim {text}: write NAME=N, as in batch=1")
    return name, int(size)


def _declared(item: ps.ValueInfoProto, shape: Sequence[int] | None) -> InputSpec:
    """The type that the model declares for an input, with numbers for its axes."""
    from proto_schema.tensors.dtypes import DTYPES

    kind = item.type.tensor_type if item.type is not None else None
    row = DTYPES.get(kind.elem_type or 0) if kind is not None else None
    name = item.name or ""
    if kind is None or shape is None or row is None or not row.native:
        raise UsageError(f"no random numbers can be made for the input {name!r}; give it by --input {name}=@x.npy")
    return InputSpec(name, row.array, tuple(shape))


def _random(spec: InputSpec, draw: Any) -> np.ndarray[Any, Any]:
    """Normal numbers; whole numbers in the range of the specification, or 0 and 1."""
    import numpy as np

    from proto_schema.tensors.dtypes import by_numpy_name, element_count

    row = by_numpy_name().get(spec.dtype)
    if row is None or not row.native:
        raise UsageError(f"--input {spec.name}: numpy has no {spec.dtype}; give an array, as in {spec.name}=@x.npy")
    if element_count(spec.sizes) * 8 > _DRAWN:
        raise UsageError(f"--input {spec.name}: it would take more than 2 GB of random numbers; write smaller sizes")
    dtype = np.dtype(row.numpy)
    if dtype.kind in "biu" or spec.low is not None:
        low, high = (0, 1) if spec.low is None or spec.high is None else (spec.low, spec.high)
        least, most = low, high
        if dtype.kind in "biu":
            least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not least <= low <= high <= most:
            raise UsageError(f"--input {spec.name}: {spec.dtype} has only {least} to {most}; write a range within it")
        numbers: np.ndarray[Any, Any] = draw.integers(low, high, spec.sizes, endpoint=True).astype(dtype)
        return numbers
    normal: np.ndarray[Any, Any] = draw.standard_normal(spec.sizes).astype(dtype)
    return normal
