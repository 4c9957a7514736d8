"""A save to an address in storage: data files first, then the model, each of which becomes visible when it is whole.

Storage has neither locks nor renaming, and nobody can see at once which models refer to a data file. So, as on a file
system without locks, each save writes its data under names of its own, and the data of a replaced model stays. What
fails removes the data files that it has written; the old model is whole until the new one is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from proto_schema.errors import EncodeError
from proto_schema.external import tensors
from proto_schema.external.addresses import folder_of, joined, name_of, names_in, remove, shown, upload
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import payload_of, plan, with_data, without_data
from proto_schema.external.manifest import (
    Sums,
    note_digests,
    with_digests_of_files,
    with_room_for_digests,
    without_stale_digests,
)
from proto_schema.external.meter import Meter, Progress
from proto_schema.external.payload import BytesLike, nbytes
from proto_schema.files.durable import gathered
from proto_schema.files.naming import data_names, fitted
from proto_schema.files.saving import WriteOptions
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.wire import MAX_LENGTH
from proto_schema.wire.codec import encode_parts


def save_to_address(model: ModelProto, address: str, options: WriteOptions, progress: Progress | None) -> None:
    """Writes the model, and what of its weights is too large for it. Raises as `proto_schema.save`."""
    _check(address, options)
    model = with_room_for_digests(model) if options.checksums else without_stale_digests(model)
    stored = [(tensor, data) for tensor in tensors(model) if (data := payload_of(tensor)) is not None]
    sources = Sources()
    for _, data in stored:
        sources.look(data)
    base, there = name_of(address), names_in(folder_of(address))
    _judge(address, base, there, options)
    loaded = {id(tensor): data for tensor, data in stored if tensor.data_location == TensorProto.EXTERNAL}
    fits = sum(nbytes(data) for _, data in stored) <= MAX_LENGTH
    if fits and not options.external_data:
        if options.checksums:
            note_digests(stored)
        parts, size = encode_parts(with_data(with_digests_of_files(model, {}), loaded))
        if size <= MAX_LENGTH:
            _send(address, parts, Meter(progress, size), finish=True)
            return
    if options.external_data is False:
        raise EncodeError("the model is past protobuf's limit of 2 GiB: pass external_data=True")
    layout = plan(stored, options.size_threshold, options.alignment, options.shard_size)
    names = _names(base, there, len(layout.files), options)
    layout.mark(names, base)
    inside = {key: data for key, data in loaded.items() if key not in layout.places}
    sums = Sums(stored, layout) if options.checksums else None
    if sums is not None:
        note_digests([(tensor, data) for tensor, data in stored if id(tensor) not in layout.places])
    places = {key: (names[index], offset, length) for key, (index, offset, length) in layout.places.items()}

    def encoded() -> tuple[list[BytesLike], int]:
        said = {} if sums is None else sums.by_name(names)
        return encode_parts(without_data(with_data(with_digests_of_files(model, said), inside), places))

    size = encoded()[1]
    if size > MAX_LENGTH:
        raise EncodeError(f"the model has {size} bytes without its external data, past protobuf's limit of 2 GiB")
    meter = Meter(progress, size + sum(content.whole_size for content in layout.files))
    written: list[str] = []
    try:
        for index, (name, content) in enumerate(zip(names, layout.files, strict=True)):
            written.append(joined(folder_of(address), name))
            _send(written[-1], content.parts() if sums is None else sums.passing(index, content), meter)
        _send(address, encoded()[0], meter, finish=True)
    except BaseException:
        for place in written:
            remove(place)
        raise


def _send(address: str, parts: Iterable[BytesLike], meter: Meter, finish: bool = False) -> None:
    upload(address, gathered(parts), meter.add, meter.finish if finish else lambda: None)


def _check(address: str, options: WriteOptions) -> None:
    if options.external_data == "reference":
        raise EncodeError(f"{shown(address)}: a model in storage cannot refer to the weights of others: leave it out")
    if options.resume:
        raise ValueError("resume=True is for files: an upload that was stopped leaves nothing to go on with")
    if options.archive is not None:
        raise ValueError("archive='tar' is for files and streams; save the model and its data files themselves")


def _judge(address: str, base: str, there: list[str], options: WriteOptions) -> None:
    """FileExistsError where the object at the address was not meant as a model."""
    if base in there and not base.endswith(".onnx") and not options.overwrite:
        reason = (
            "it is there already and is not called .onnx; choose another name, or allow it (overwrite=True, --force)"
        )
        raise FileExistsError(errno.EEXIST, reason, shown(address))


def _names(base: str, there: list[str], count: int, options: WriteOptions) -> list[str]:
    """Names of data files that nobody has. FileExistsError where one was asked for and is taken."""
    if options.location is None:
        return data_names(fitted(base, f".{os.urandom(4).hex()}.data"), count)
    names = data_names(options.location, count)
    taken = next((name for name in names if name in there), None)
    if taken is not None:
        reason = "the data file is there already, and in storage none is replaced; give another location"
        raise FileExistsError(errno.EEXIST, reason, taken)
    return names
