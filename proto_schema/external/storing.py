"""A save to addresses in storage: data files first, then the models, each of which becomes visible when it is whole.

Storage has neither locks nor renaming. So each save writes its data under names of its own. What fails removes the data
files that it has written; the old model is whole until the new one is. Then the data of the old one goes, as far as it
bears its mark and no other model of the folder refers to it (`leftovers`): whoever has loaded the old model and still
asks for its data gets an error.
With workers each of them writes whole data files, so their number is that of the data files.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from proto_schema.errors import EncodeError
from proto_schema.external import entries, tensors
from proto_schema.external.addresses import RemoteFile, folder_of, joined, name_of, names_in, remove, shown, upload
from proto_schema.external.copying import Sources
from proto_schema.external.datafiles import DataFile, Plan, payload_of, plan, with_data, without_data
from proto_schema.external.executors import Job, Workers, opened_workers
from proto_schema.external.manifest import (
    Sums,
    note_digests,
    passing,
    with_digests_of_files,
    with_room_for_digests,
    without_stale_digests,
)
from proto_schema.external.meter import Meter, Progress
from proto_schema.external.payload import BytesLike, nbytes
from proto_schema.external.pieces import Piece
from proto_schema.files.durable import gathered
from proto_schema.files.marks import LONGEST, is_mark_of
from proto_schema.files.naming import data_names, fitted
from proto_schema.files.saving import WriteOptions
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.wire import MAX_LENGTH
from proto_schema.wire.codec import decode, encode_parts

_MOST_READ = 1 << 26  # bytes of another model that is read to see what it refers to
_log = logging.getLogger("proto_schema")

Encoded = Callable[[Sequence[str]], list[tuple[list[BytesLike], int]]]


def save_to_address(model: ModelProto, address: str, options: WriteOptions, progress: Progress | None) -> None:
    """Writes the model, and what of its weights is too large for it. Raises as `proto_schema.save`."""
    _check(address, options)
    model = with_room_for_digests(model) if options.checksums else without_stale_digests(model)
    stored = [(tensor, data) for tensor in tensors(model) if (data := payload_of(tensor)) is not None]
    sources = Sources()
    for _, data in stored:
        sources.look(data)
    folder, base = folder_of(address), name_of(address)
    there = names_in(folder)
    judge_name(folder, base, there, options.overwrite)
    loaded = {id(tensor): data for tensor, data in stored if tensor.data_location == TensorProto.EXTERNAL}
    fits = sum(nbytes(data) for _, data in stored) <= MAX_LENGTH
    if fits and not options.external_data:
        if options.checksums:
            note_digests(stored)
        parts, size = encode_parts(with_data(with_digests_of_files(model, {}), loaded))
        if size <= MAX_LENGTH:
            write_all(folder, [base], Plan([], {}), [], lambda names: [(parts, size)], Meter(progress, size))
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

    def encoded(names: Sequence[str]) -> list[tuple[list[BytesLike], int]]:
        said = {} if sums is None else sums.by_name(names)
        return [encode_parts(without_data(with_data(with_digests_of_files(model, said), inside), places))]

    size = encoded(names)[0][1]
    if size > MAX_LENGTH:
        raise EncodeError(f"the model has {size} bytes without its external data, past protobuf's limit of 2 GiB")
    meter = Meter(progress, size + sum(content.whole_size for content in layout.files))
    with opened_workers(options.executor) as workers:
        write_all(folder, [base], layout, names, encoded, meter, sums, workers)


def write_all(
    folder: str,
    models: Sequence[str],
    layout: Plan,
    names: Sequence[str],
    encoded: Encoded,
    meter: Meter,
    sums: Sums | None = None,
    workers: Workers | None = None,
) -> None:
    """Writes data files of these names to a folder, then the models, whose encodings come in the same order.

    What fails before the first model is there leaves nothing of this save; later, only data that nobody refers to.
    """
    data = [joined(folder, name) for name in names]
    left = list(models)
    try:
        _send_data(data, layout.files, meter, sums, workers)
        made = encoded(names)
        old = leftovers(folder, models)
        for name, (parts, size) in zip(models, made, strict=True):
            finish = meter.finish if len(left) == 1 else _nothing
            upload(joined(folder, name), gathered(parts), size, meter.add, finish)
            left.remove(name)
    except BaseException:
        if len(left) == len(models):
            for address in data:
                remove(address)
        raise
    for name in old - set(names):
        remove(joined(folder, name))


def _nothing() -> None: ...


def _send_data(
    addresses: Sequence[str], files: Sequence[DataFile], meter: Meter, sums: Sums | None, workers: Workers | None
) -> None:
    def here(index: int) -> None:
        content = files[index]
        parts = content.parts() if sums is None else sums.passing(index, content)
        upload(addresses[index], gathered(parts), content.whole_size, meter.add)

    if workers is None:
        for index in range(len(files)):
            here(index)
        return
    whole = [Piece(0, content.whole_size, tuple(content.payloads)) for content in files]
    away = [index for index, piece in enumerate(whole) if workers.take(piece.reach)]
    stay = [index for index in range(len(files)) if index not in set(away)]

    def handed(index: int) -> tuple[str, bytes | Piece, bytes, bool]:
        piece = whole[index] if workers.threads else pickle.dumps(whole[index].for_others())
        return addresses[index], piece, files[index].mark, sums is not None

    def done(number: int, found: list[tuple[int | None, str]]) -> None:
        meter.add(files[away[number]].whole_size)
        if sums is not None:
            for offset, digest in found:
                sums.note(away[number], offset, digest)

    jobs = [Job(_send, lambda index=index: handed(index), shown(addresses[index])) for index in away]  # type: ignore[misc]
    workers.run(jobs, done, [lambda index=index: here(index) for index in stay])  # type: ignore[misc]


def _send(address: str, given: bytes | Piece, mark: bytes, digested: bool) -> list[tuple[int | None, str]]:
    """Writes a data file to an address; returns its digests, as `manifest.passing` tells them."""
    piece: Piece = pickle.loads(given) if isinstance(given, bytes) else given
    content = DataFile(list(piece.payloads), piece.end - len(mark), mark)
    found: list[tuple[int | None, str]] = []
    parts = passing(content, lambda offset, digest: found.append((offset, digest))) if digested else content.parts()
    upload(address, gathered(parts), content.whole_size, lambda count: None)
    return found


# ---- what is there


def leftovers(folder: str, models: Iterable[str]) -> set[str]:
    """The data files in a folder that only these models refer to, as they are there now, and that bear their mark."""
    there = names_in(folder)
    old = {name: _referred(folder, name) or set() for name in models if name in there}
    found = {
        data
        for name, referred in old.items()
        for data in referred
        if data in there and not data.endswith(".onnx") and _is_marked(joined(folder, data), data, name)
    }
    for other in there if found else ():
        if not other.endswith(".onnx") or other in old:
            continue
        referred = _referred(folder, other)
        if referred is None:
            _log.warning("%s may refer to data of the replaced model, which stays", shown(joined(folder, other)))
            return set()
        found -= referred
    return found


def _referred(folder: str, name: str) -> set[str] | None:
    """The data files that the model of this name refers to; None where that cannot be known cheaply."""
    with suppress(OSError, ValueError):
        file = RemoteFile(joined(folder, name))
        if file.size > _MOST_READ:
            return None
        found = tensors(decode(ModelProto, file.whole()))
        return {entries(one).location for one in found if one.data_location == TensorProto.EXTERNAL}
    return None


def _is_marked(address: str, name: str, model: str) -> bool:
    with suppress(OSError, ValueError):
        file = RemoteFile(address)
        start = max(file.size - LONGEST, 0)
        return is_mark_of(file.read(start, file.size - start), start, name, model)
    return False


def _check(address: str, options: WriteOptions) -> None:
    if options.external_data == "reference":
        raise EncodeError(f"{shown(address)}: a model in storage cannot refer to the weights of others: leave it out")
    if options.resume:
        raise ValueError("resume=True is for files: an upload that was stopped leaves nothing to go on with")
    if options.archive is not None:
        raise ValueError("archive='tar' is for files and streams; save the model and its data files themselves")


def judge_name(folder: str, base: str, there: Sequence[str], overwrite: bool) -> None:
    """FileExistsError where the object of that name in a folder was not meant as a model."""
    if base in there and not base.endswith(".onnx") and not overwrite:
        reason = (
            "it is there already and is not called .onnx; choose another name, or allow it (overwrite=True, --force)"
        )
        raise FileExistsError(errno.EEXIST, reason, shown(joined(folder, base)))


def _names(base: str, there: list[str], count: int, options: WriteOptions) -> list[str]:
    """Names of data files that nobody has. FileExistsError where one was asked for and is taken."""
    return free_names(options.location, fitted(base, f".{os.urandom(4).hex()}.data"), there, count)


def free_names(location: str | None, usual: str, there: Sequence[str], count: int) -> list[str]:
    """Names of data files. FileExistsError where one was asked for and is taken."""
    if location is None:
        return data_names(usual, count)
    names = data_names(location, count)
    taken = next((name for name in names if name in there), None)
    if taken is not None:
        reason = "the data file is there already, and in storage none is replaced; give another location"
        raise FileExistsError(errno.EEXIST, reason, taken)
    return names
