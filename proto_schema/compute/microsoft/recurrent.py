"""DynamicQuantizeLSTM: an LSTM whose weights are integers, and whose inputs are rounded to uint8 as they come."""

from __future__ import annotations

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.microsoft import costs
from proto_schema.compute.microsoft.numbers import DOMAIN, dynamic
from proto_schema.compute.nn.recurrent import lstm_of
from proto_schema.compute.rows import row


@row("DynamicQuantizeLSTM", domain=DOMAIN, cost=costs.of_rounded_lstm)
def lstm_with_rounding(
    call: Call,
    data: Array,
    weight: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial: Array | None = None,
    initial_cell: Array | None = None,
    peepholes: Array | None = None,
    scale: Array | None = None,
    zero: Array | None = None,
    other_scale: Array | None = None,
    other_zero: Array | None = None,
) -> tuple[Array, ...]:
    """W [directions, size, 4 hidden] and R [directions, hidden, 4 hidden] are turned, unlike those of LSTM.

    The whole input is rounded at once, the state before each step.
    """
    if scale is None or other_scale is None or zero is None or other_zero is None:
        call.fail("the scales and zero points of W and R are needed")
    of_input, of_state = _real(weight, scale, zero), _real(recurrence, other_scale, other_zero)
    states = (initial, initial_cell)
    return lstm_of(call, _rounded(data), of_input, of_state, bias, lengths, states, peepholes, _rounded)


def _real(codes: Array, scale: Array, zero: Array) -> Array:
    """[directions, columns, rows]; a direction has one scale and zero point, or one for each column."""
    steps, points = (item.astype(np.float32).reshape(codes.shape[0], 1, -1) for item in (scale, zero))
    return np.asarray(((codes.astype(np.float32) - points) * steps).swapaxes(1, 2))


def _rounded(values: Array) -> Array:
    codes, step, point = dynamic(values)
    return np.asarray((codes - point) * step)
