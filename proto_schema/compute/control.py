"""Operators that run graphs: If, Loop, Scan and SequenceMap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call, Typed, Value
from proto_schema.compute.costs import copied, free, weight
from proto_schema.compute.rows import row
from proto_schema.graphs.dims import known_size
from proto_schema.onnx import GraphProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES

_PIECE = 64  # bytes of a list or an array, beside its elements


def _bare(value: Any) -> Any:
    return value.array if isinstance(value, Typed) else value


def _part(value: Any, place: int | slice) -> Value:
    """A part of a tensor along its first axis, with its code."""
    return Typed(value.array[place], value.dtype) if isinstance(value, Typed) else np.asarray(value[place])


@row("If", cost=free)
def if_(call: Call, condition: Array) -> Any:
    """What one of the two graphs gives."""
    if np.size(condition) != 1:
        call.fail(f"its condition has {np.size(condition)} elements, not one")
    return tuple(call.run("then_branch" if bool(np.asarray(condition).reshape(())) else "else_branch", []))


def _stacked(call: Call, pieces: Sequence[Any], place: int, axis: int = 0) -> Value:
    """What the iterations gave for an output of the body, along a new axis; nothing of its type where none ran."""
    if pieces:
        first = pieces[0]
        array = np.stack([_bare(item) for item in pieces], axis=axis)
        return Typed(array, first.dtype) if isinstance(first, Typed) else array
    graph = call.attribute("body")
    declared = graph.output[place].type if isinstance(graph, GraphProto) else None
    kind = declared.tensor_type if declared is not None else None
    code = (kind.elem_type if kind is not None else None) or TensorProto.FLOAT
    if code not in DTYPES:
        call.fail(f"its body declares the data type {code}, which does not exist")
    dims = kind.shape.dim if kind is not None and kind.shape is not None else []
    sizes = [known_size(item) or 0 for item in dims]
    sizes.insert(axis if axis >= 0 else len(sizes) + 1 + axis, 0)
    return Typed(np.zeros(sizes, DTYPES[code].numpy), code)


@row("Loop", cost=free)
def loop(call: Call, trips: Array | None = None, condition: Array | None = None, *carried: Value) -> Any:
    """Runs the body until the count is reached or its condition is false.

    The results are the last values of what is carried, and what each iteration gave beside it, stacked.
    """
    most = None if trips is None else int(np.asarray(trips).reshape(()))
    goes = True if condition is None else bool(np.asarray(condition).reshape(()))
    state: list[Value] = [call.typed(place + 2, value) for place, value in enumerate(carried)]
    pieces: list[list[Value]] = []
    done = 0
    while goes and (most is None or done < most):
        results = call.run("body", [np.array(done, np.int64), np.array(goes), *state])
        goes = bool(np.asarray(_bare(results[0])).reshape(()))
        state = results[1 : 1 + len(state)]
        pieces.append(_kept(call, results[1 + len(state) :]))
        done += 1
    return (*state, *_scanned(call, pieces, 1 + len(state)))


def _kept(call: Call, results: list[Value]) -> list[Value]:
    """What an iteration gave beside its state, which is held to the end, when it is copied into one tensor."""
    call.keep(2 * sum(map(weight, results)) + _PIECE * (1 + len(results)))
    return results


def _scanned(call: Call, pieces: Sequence[Sequence[Value]], before: int) -> list[Value]:
    graph = call.attribute("body")
    count = len(graph.output) - before if isinstance(graph, GraphProto) else 0
    return [_stacked(call, [piece[at] for piece in pieces], before + at) for at in range(count)]


@row("Scan", cost=copied)
def scan(call: Call, *inputs: Any) -> Any:
    """Runs the body on each slice of its scanned inputs, with a state that is carried on.

    Opset 8 has a first input with the lengths of the sequences, and an axis of batches before the scanned one.
    """
    if call.version < 9:
        return _scan_of_batches(call, *inputs)
    given = [call.typed(place, value) for place, value in enumerate(inputs)]
    count = call.attribute("num_scan_inputs")
    states, scanned = given[: len(given) - count], given[len(given) - count :]
    axes = call.attribute("scan_input_axes") or [0] * count
    backwards = call.attribute("scan_input_directions") or [0] * count
    return tuple(_scan(call, states, scanned, axes, backwards))


def _scan(
    call: Call,
    states: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> list[Value]:
    moved = []
    for value, axis, backward in zip(scanned, axes, backwards, strict=True):
        array = np.moveaxis(_bare(value), axis, 0)
        array = array[::-1] if backward else array
        moved.append(Typed(array, value.dtype) if isinstance(value, Typed) else array)
    lengths = {len(_bare(item)) for item in moved}
    if len(lengths) != 1:
        call.fail(f"its scanned inputs have the lengths {sorted(lengths)}; they must be equal")
    state = list(states)
    pieces: list[list[Value]] = []
    for at in range(lengths.pop()):
        slices = [_part(item, at) for item in moved]
        results = call.run("body", [*state, *slices])
        state = results[: len(state)]
        pieces.append(_kept(call, results[len(state) :]))
    graph = call.attribute("body")
    count = len(graph.output) - len(state) if isinstance(graph, GraphProto) else 0
    out_axes = call.attribute("scan_output_axes") or [0] * count
    prepends = call.attribute("scan_output_directions") or [0] * count
    found: list[Value] = list(state)
    for at in range(count):
        column = [piece[at] for piece in pieces]
        found.append(_stacked(call, column[::-1] if prepends[at] else column, len(state) + at, out_axes[at]))
    return found


def _scan_of_batches(call: Call, lengths: Array | None, *inputs: Any) -> Any:
    given = [call.typed(place + 1, value) for place, value in enumerate(inputs)]
    count = call.attribute("num_scan_inputs")
    batches, longest = _bare(given[-1]).shape[:2]
    backwards = call.attribute("directions") or [0] * count
    results = []
    for batch in range(batches):
        size = longest if lengths is None else int(lengths[batch])
        parts = [_part(item, batch) for item in given]
        states, scanned = parts[: len(parts) - count], parts[len(parts) - count :]
        cut = [_part(item, slice(size)) for item in scanned]
        found = _scan(call, states, cut, [0] * count, backwards)
        results.append(found[: len(states)] + [_filled(item, longest) for item in found[len(states) :]])
    stacked = []
    for column in zip(*results, strict=True):
        array = np.stack([_bare(item) for item in column])
        stacked.append(Typed(array, column[0].dtype) if isinstance(column[0], Typed) else array)
    return tuple(stacked)


def _filled(value: Any, size: int) -> Value:
    """Zeros behind a sequence that is shorter than the longest: what stands there is undefined."""
    array = _bare(value)
    whole = np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
    return Typed(whole, value.dtype) if isinstance(value, Typed) else whole


@row("SequenceMap", cost=free)
def sequence_map(call: Call, sequence: list[Any], *others: Any) -> Any:
    """Runs the body on each element of a sequence; other sequences go along, and tensors are the same each time."""
    rest = [call.typed(place + 1, value) for place, value in enumerate(others)]
    columns: list[list[Value]] = [[] for _ in call.outputs]
    for at, element in enumerate(sequence):
        for item in rest:
            if isinstance(item, list) and len(item) != len(sequence):
                call.fail(f"its sequences have {len(sequence)} and {len(item)} elements; they must be equal")
        results = call.run("body", [element, *[item[at] if isinstance(item, list) else item for item in rest]])
        for column, result in zip(columns, results, strict=False):
            column.append(result)
            call.keep(weight(result))
    return tuple(columns)
