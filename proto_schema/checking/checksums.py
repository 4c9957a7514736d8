"""Checksums of external data: each is the SHA1 of the whole file, as onnx.proto says of the key `checksum`.

Stricter than the official checker, which does not read it. A check reads such a file once, however many tensors lie in
it. Loading does not: it would read gigabytes that nobody may ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1

from proto_schema.checking.place import Problem
from proto_schema.errors import ExternalDataError, UnreadableDataError
from proto_schema.external import Folder, entries, origin, tensors
from proto_schema.external.copying import read_chunks
from proto_schema.external.payload import went_past
from proto_schema.onnx import ModelProto, StringStringEntryProto, TensorProto

_DIGITS = frozenset("0123456789abcdefABCDEF")


def check_checksums(model: ModelProto) -> None:
    """The checksums of all external tensors; of those that were not loaded from a file, their form alone."""
    for text in mismatches(model):
        raise Problem(text)


def mismatches(model: ModelProto) -> Iterator[str]:
    """What is wrong with the checksums of a model. Raises Problem for a file that is not there."""
    found: dict[str, str] = {}
    for tensor in tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        try:
            said = entries(tensor)
        except ExternalDataError:
            continue  # it belongs to a part of the model that is not checked, such as training_info
        if not said.checksum:
            continue
        where = f"tensor {tensor.name or ''!r}: the checksum"
        if len(said.checksum) != 40 or not _DIGITS.issuperset(said.checksum):
            yield f"{where} {said.checksum!r} is no SHA1 digest, which has 40 hexadecimal digits"
            continue
        place = origin(tensor)
        if place is None:
            continue
        path = place.file(said.location)
        if path not in found:
            found[path] = _digest(place, said.location)
        if found[path] != said.checksum.lower():
            what = f"{where} of {path} is {found[path]}, and the model says {said.checksum}"
            yield f"{what}; copy or download the file again"


def _digest(folder: Folder, location: str) -> str:
    """The SHA1 of a data file, opened as safely as its tensors are."""
    entry = StringStringEntryProto(key="location", value=location)
    whole = TensorProto(data_location=TensorProto.EXTERNAL, external_data=[entry])
    digest = sha1(usedforsecurity=False)
    try:
        for chunk in read_chunks(folder.payload(whole)):
            digest.update(chunk)
            went_past(chunk, chunk.nbytes)
    except UnreadableDataError:
        raise
    except ExternalDataError as error:
        raise Problem(str(error)) from error
    return digest.hexdigest()
