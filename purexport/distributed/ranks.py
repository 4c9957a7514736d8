"""Saving a model whose weights are spread over the processes of torch.distributed: all write one file, each its part.

    weights = purexport.distributed.outline(state)
    purexport.distributed.save(lambda: purexport.export(model, args, weights=weights), "model.onnx", state)

Every process calls both with its own `state`, a mapping from name to tensor. `outline` returns what all hold together,
as weights for an export that needs no values of the large ones. `save` lets the first process plan the file, create it
and reserve its space. Then all write their byte ranges of it at once and sync them. The first one commits the model.
Strategy: the first process leads. The others do what it tells them, until it tells them how the save ended. Each step
in which all work ends with an exchange of errors. So one failure is a failure of all, and the leader removes what was
written.
The file must be in a folder that all processes see.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist

import proto_schema as ps
from proto_schema.external import tensors
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import DataFile, with_data
from proto_schema.external.meter import Progress
from proto_schema.external.payload import CHUNK, BytesLike, Payload, chunks
from proto_schema.files import saving
from proto_schema.files.commit import Commit
from proto_schema.files.durable import create, write_at
from proto_schema.files.saving import WriteOptions
from purexport import dtypes
from purexport.distributed.parts import Part, parts_of, places_of
from purexport.errors import DistributedError, WeightsError
from purexport.graph.payloads import payload
from purexport.weights.boxes import Box, assembled, why_incomplete
from purexport.weights.stored import MOST_SHOWN, Stored

SMALL = 1 << 16  # every process gets the values of tensors of up to this many bytes, for rules that look at values
T = TypeVar("T")
Local: TypeAlias = "dict[str, list[Part]]"


class HeldByRanks(Payload):
    """The bytes of a tensor whose parts the processes of a group hold, under `name`."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self._nbytes = nbytes

    @property
    def nbytes(self) -> int:
        """The number of bytes of the whole tensor."""
        return self._nbytes

    @property
    def place(self) -> str:
        """For plans."""
        return "processes"

    @property
    def identity(self) -> object:
        """Its name."""
        return self.name

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """Raises WeightsError: no process has all of it."""
        raise WeightsError(
            f"the values of {self.name!r} are spread over the processes of a group, and none has all of them; write "
            "the model with purexport.distributed.save",
            code="weights-spread",
        )


@dataclass(frozen=True)
class Held:
    """What all processes hold of a tensor: for each part the process that writes it, and the part's number there."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: tuple[tuple[Box, int, int], ...]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


def outline(state: Mapping[str, Any], *, group: Any = None) -> dict[str, Stored]:
    """What the processes of `group` hold together, as weights for `purexport.export`. All of them call it.

    The values of `state` are DTensors, tensors (the same in each process that has them), `Part`s or lists of `Part`s.
    Tensors of up to 64 KB come with their values, the others with a `HeldByRanks` payload.
    Raises WeightsError if parts are missing, overlap or disagree, ValueError for values that are none of these, and
    DistributedError if another process raises one of these.
    """
    ranks = _Ranks(group)
    local, held = _together(ranks, state)
    small = {name: found for name, found in held.items() if found.nbytes <= SMALL}
    values = _gathered(ranks, local, small)
    return {
        name: Stored(name, dtypes.onnx_code(found.dtype), found.shape, _payload(name, found, values), "the processes")
        for name, found in held.items()
    }


def _payload(name: str, found: Held, values: Mapping[str, bytes]) -> Payload:
    if name not in values:
        return HeldByRanks(name, found.nbytes)
    return ps.LazyPayload(found.nbytes, lambda: values[name], name)


def save(
    program: Any,
    path: str | os.PathLike[str],
    state: Mapping[str, Any],
    *,
    group: Any = None,
    location: str | None = None,
    size_threshold: int = 1024,
    alignment: int = 4096,
    shard_size: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Writes a model with external data; each process of `group` writes the parts that it holds. All of them call it.

    program: an ONNXProgram or ModelProto, or a function without arguments that makes one. Only that of the first
    process counts; the others may pass None. Its tensors whose payload is `HeldByRanks` are taken from the states by
    name, the others from the first process. The options are those of `proto_schema.save`; the first process's count.
    The files are those that `proto_schema.save` of the whole model would write, to the byte.
    Raises what `proto_schema.save` does, WeightsError if the parts do not fit the model, and DistributedError in each
    process if another one failed. After an error nothing is left behind.
    """
    ranks = _Ranks(group)
    local, held = _together(ranks, state)
    if ranks.rank:
        _follow(ranks, local, held)
        return
    options = WriteOptions(True, location, size_threshold, alignment, shard_size)
    with ranks.leading():
        _lead(ranks, local, held, _with_values(ranks, local, held, program, size_threshold), path, options, progress)


# ---- the group


class _Ranks:
    """The processes of a group, this one among them. The first one leads."""

    def __init__(self, group: Any) -> None:
        if not dist.is_initialized():
            raise ValueError("torch.distributed has no process group here; call init_process_group first")
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in the group; only its members take part")
        self._leader = dist.get_global_rank(group, 0) if group is not None else 0

    def agreed(self, work: Callable[[], T]) -> list[T]:
        """The result of the work in each process. One that fails raises its error, and all others DistributedError."""
        failure: Exception | None = None
        try:
            mine: tuple[bool, Any] = (True, work())
        except Exception as error:
            failure, mine = error, (False, f"{type(error).__name__}: {error}")
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, mine, group=self.group)
        if failure is not None:
            raise failure
        failed = [f"process {rank} of {self.size}: {value}" for rank, (fine, value) in enumerate(found) if not fine]
        if failed:
            raise DistributedError("\n".join(["nothing was written, because of", *failed]))
        return [value for _, value in found]

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Tells the other processes when the block ends."""
        try:
            yield
        except Exception as error:
            with suppress(Exception):  # a process that is gone cannot receive it
                self.tell("failed", f"nothing was written, because of process 0: {type(error).__name__}: {error}")
            raise
        self.tell("done")

    def tell(self, what: str, value: object = None) -> None:
        """Sends to the others, from the leader."""
        dist.broadcast_object_list([what, value], src=self._leader, group=self.group)

    def hear(self) -> Any:
        """What the leader tells: (what, value)."""
        heard: list[Any] = [None, None]
        dist.broadcast_object_list(heard, src=self._leader, group=self.group)
        return heard


def _together(ranks: _Ranks, state: Mapping[str, Any]) -> tuple[Local, dict[str, Held]]:
    """(the parts here, what all hold). Every process computes the same second value.

    If several processes hold a part, the one with the least to write so far writes it.
    """
    local: Local = {}

    def described() -> list[tuple[str, torch.dtype, tuple[int, ...], list[Box]]]:
        rows = []
        for name, value in state.items():
            try:
                local[name] = parts = parts_of(value)
            except ValueError as error:
                raise WeightsError(f"{name!r} cannot be taken: {error}") from None
            rows += [(name, parts[0].tensor.dtype, parts[0].shape, [part.box for part in parts])] if parts else []
        return rows

    kinds: dict[str, set[tuple[torch.dtype, tuple[int, ...]]]] = {}
    boxes: dict[str, dict[Box, list[tuple[int, int]]]] = {}
    for rank, rows in enumerate(ranks.agreed(described)):
        for name, dtype, shape, here in rows:
            kinds.setdefault(name, set()).add((dtype, shape))
            for number, box in enumerate(here):
                boxes.setdefault(name, {}).setdefault(box, []).append((rank, number))
    _check({name: _why_not(kinds[name], list(boxes[name])) for name in kinds})
    load = [0] * ranks.size
    held = {}
    for name, found in boxes.items():
        ((dtype, shape),) = kinds[name]
        parts = []
        for box in sorted(found, key=lambda box: box.offsets):
            rank, number = min(found[box], key=lambda holder: (load[holder[0]], holder))
            load[rank] += box.count * dtype.itemsize
            parts.append((box, rank, number))
        held[name] = Held(dtype, shape, tuple(parts))
    return local, held


def _why_not(kinds: set[tuple[torch.dtype, tuple[int, ...]]], boxes: Sequence[Box]) -> str:
    if len(kinds) > 1:
        said = sorted(f"{dtype}{list(shape)}".removeprefix("torch.") for dtype, shape in kinds)
        return f"processes disagree on what it is: {', '.join(said)}"
    ((_, shape),) = kinds
    return why_incomplete(shape, boxes)


def _check(reasons: Mapping[str, str]) -> None:
    """Raises WeightsError with the reasons that are not empty, if there are any."""
    wrong = [f"{name!r}: {reason}" for name, reason in reasons.items() if reason]
    if wrong:
        more = [f"and {len(wrong) - MOST_SHOWN} more"] if len(wrong) > MOST_SHOWN else []
        what = "1 tensor" if len(wrong) == 1 else f"{len(wrong)} tensors"
        raise WeightsError(
            f"the processes do not hold {what} as the model needs them: {'; '.join(wrong[:MOST_SHOWN] + more)}",
            code="weights-do-not-fit",
        )


def _gathered(ranks: _Ranks, local: Local, wanted: Mapping[str, Held]) -> dict[str, bytes]:
    """The values of some tensors, in every process. All of them call it with the same names."""

    def mine() -> dict[str, list[tuple[Box, bytes]]]:
        return {
            name: [
                (box, b"".join(chunks(payload(local[name][number].tensor))))
                for box, rank, number in found.parts
                if rank == ranks.rank
            ]
            for name, found in wanted.items()
        }

    all_ = ranks.agreed(mine)
    return {
        name: assembled(found.shape, found.dtype.itemsize, [row for rows in all_ for row in rows[name]])
        for name, found in wanted.items()
    }


# ---- the first process


def _with_values(ranks: _Ranks, local: Local, held: Mapping[str, Held], program: Any, threshold: int) -> ps.ModelProto:
    """The model, with the values of the tensors that stay inside it. Checks that the parts fit the model."""
    made = program if hasattr(program, "model_proto") or not callable(program) else program()
    model = getattr(made, "model_proto", made)
    if not isinstance(model, ps.ModelProto):
        raise ValueError(f"program is a {type(made).__name__}; give an ONNXProgram or ModelProto, or a function of one")
    wanted = {id(tensor): tensor.raw_data for tensor in tensors(model) if isinstance(tensor.raw_data, HeldByRanks)}
    reasons = {data.name: _misfit(data, held) for data in wanted.values()}
    _check(reasons)
    inside = {key: data for key, data in wanted.items() if data.nbytes < max(threshold, 1)}
    if not inside:
        return model
    names = sorted({data.name for data in inside.values()})
    ranks.tell("gather", names)
    values = _gathered(ranks, local, {name: held[name] for name in names})
    given: dict[int, BytesLike] = {key: values[data.name] for key, data in inside.items()}
    return with_data(model, given)


def _misfit(data: HeldByRanks, held: Mapping[str, Held]) -> str:
    if data.name not in held:
        return "no process holds it"
    if held[data.name].nbytes != data.nbytes:
        return f"it has {held[data.name].nbytes} bytes in the processes, and {data.nbytes} in the model"
    return ""


def _lead(
    ranks: _Ranks,
    local: Local,
    held: Mapping[str, Held],
    model: ps.ModelProto,
    path: str | os.PathLike[str],
    options: WriteOptions,
    progress: Progress | None,
) -> None:
    def write(made: Commit, target: str, content: DataFile) -> str:
        """A data file that all processes write."""
        name = made.temporary()
        create(name, content.whole_size, made.like(target))
        spread = [(data.name, offset) for offset, data in content.payloads if isinstance(data, HeldByRanks)]
        own: list[tuple[int, BytesLike]] = [
            (offset, data) for offset, data in content.payloads if not isinstance(data, HeldByRanks)
        ]
        own.append((content.size, content.mark))
        job = _Job(os.path.abspath(name), content.whole_size, spread)
        ranks.tell("write", job)
        sources = made.sources or Sources()
        written = ranks.agreed(lambda: job.run(ranks.rank, local, held, own, sources))
        made.meter.add(sum(written))
        return name

    saving.save(model, path, options, progress, write)


@dataclass(frozen=True)
class _Job:
    """What to write to an existing data file of this `size`: these tensors at these offsets."""

    path: str
    size: int
    places: list[tuple[str, int]]

    def run(
        self,
        mine: int,
        local: Local,
        held: Mapping[str, Held],
        own: Iterable[tuple[int, BytesLike]] = (),
        sources: Sources | None = None,
    ) -> int:
        """Writes what this process is to write, and syncs it; returns the number of bytes. OSError where that fails."""
        parts = (
            places_of(local[name][number], offset)
            for name, offset in self.places
            for _, rank, number in held[name].parts
            if rank == mine
        )
        return write_at(self.path, self.size, chain(own, *parts), sources or Sources())


# ---- the others


def _follow(ranks: _Ranks, local: Local, held: Mapping[str, Held]) -> None:
    """Does what the first process tells it, until that process says how the save ended."""
    failure: Exception | None = None
    while True:
        what, value = ranks.hear()
        if what == "done":
            return
        if what == "failed":
            raise failure or DistributedError(value)
        try:
            if what == "gather":
                _gathered(ranks, local, {name: held[name] for name in value})
            else:
                ranks.agreed(lambda job=value: job.run(ranks.rank, local, held))  # type: ignore[misc]
        except Exception as error:
            failure = error
