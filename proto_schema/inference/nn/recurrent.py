"""Rows of recurrent layers: RNN, GRU and LSTM differ in the number of gates, and in the cell's state of LSTM."""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.sizes import Dim

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_BESIDE = {4: ("sequence_lens", 1), 5: ("initial_h", 3), 6: ("initial_c", 3)}
"""Name and rank of the inputs beside the data that have its batch, by their places; only LSTM has the last."""


@row("RNN", "GRU", "LSTM")
def recurrent(site: Site) -> Outputs:
    """(time, batch, input) to (time, direction, batch, hidden), and the last states (direction, batch, hidden).

    With `layout=1` the batch goes before time and directions.
    """
    data = site.shape_of_rank(0, 3)
    weight, recurrence = site.shape_of_rank(1, 3), site.shape_of_rank(2, 3)
    gates = _GATES[site.schema.name]
    directions = 2 if site.text("direction", "forward") == "bidirectional" else 1
    hidden = _hidden(site, gates)
    for shape, name in ((weight, "W"), (recurrence, "R")):
        if shape is not None:
            site.same(shape[0], directions, f"the first size of {name} and the number of directions")
            site.same(shape[1], hidden * gates, f"the second size of {name} and {gates} times hidden_size")
    if recurrence is not None:
        site.same(recurrence[2], hidden, "the last size of R and hidden_size")
    if data is not None and weight is not None:
        site.same(data[2], weight[2], "the last sizes of X and W")
    batch_first = site.attribute("layout", 0) == 1
    one, other = data[:2] if data is not None else (site.fresh(), _batch(site, batch_first))
    time, batch = (other, one) if batch_first and data is not None else (one, other)
    for place, (name, rank) in _BESIDE.items():
        shape = site.shape_of_rank(place, rank)
        if shape is not None:
            size = shape[1 if rank == 3 and not batch_first else 0]
            batch = site.same(batch, size, f"the batches of X and {name}")
    last = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    each = (batch, time, directions, hidden) if batch_first else (time, directions, batch, hidden)
    return [site.out(each), *[site.out(last) for _ in range(2)]]


def _hidden(site: Site, gates: int) -> Dim:
    said: int | None = site.attribute("hidden_size")
    recurrence, weight = site.shape(2), site.shape(1)
    if said:
        return said
    if recurrence is not None:
        return recurrence[2]
    return weight[1] // gates if weight is not None else site.fresh()


def _batch(site: Site, batch_first: bool) -> Dim:
    """The batch by the inputs beside the data: the lengths, or the state at first."""
    lengths, state = site.shape(4), site.shape(5)
    if lengths is not None and len(lengths) == 1:
        return lengths[0]
    if state is not None and len(state) == 3:
        return state[0 if batch_first else 1]
    return site.fresh()
