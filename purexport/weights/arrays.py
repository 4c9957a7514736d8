"""Arrays and tensors in memory as `Stored`: torch tensors, numpy arrays, memory-mapped ones, ONNX tensors.

Their memory is used in place. Strided and device tensors are produced in bounded pieces. torch is looked up among the
loaded modules and never imported: if it is not loaded, there are no torch tensors.
If an array lies in a mapped file and cannot have been changed since, it becomes a range of that file. So it can be
copied without passing through memory, or referenced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from proto_schema.errors import DecodeError, ExternalDataError
from proto_schema.external import datafiles
from proto_schema.external.payload import BytesLike, FileRange, as_payload, file_range, stamp_of
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import from_array, from_codes, to_codes
from proto_schema.tensors.dtypes import DTYPES, by_numpy_name, type_name
from purexport.errors import WeightsError
from purexport.weights.stored import Stored, shown


def stored(name: str, value: object, origin: str, mappings: Mappings) -> Stored:
    """A value of a mapping as `Stored`. WeightsError for what is no tensor, or holds no data."""
    if isinstance(value, Stored):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return of_array(name, np.asarray(value), origin, mappings)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(name, value, origin, torch.Tensor)
    if isinstance(value, TensorProto):
        return of_tensor(name, value, origin)
    if isinstance(value, Mapping):
        raise WeightsError(
            f"{origin}: {shown(name)} is a mapping of its own; pass the one that holds the tensors",
            code="weights-not-plain",
        )
    what = f"tensor {shown(name)} is a {type(value).__module__}.{type(value).__qualname__}"
    raise WeightsError(
        f"{origin}: {what}; pass a torch tensor, a numpy array, a TensorProto or a purexport.weights.Stored",
        code="weights-not-plain",
    )


def of_array(name: str, array: np.ndarray[Any, Any], origin: str, mappings: Mappings) -> Stored:
    """A numpy array, its memory not copied: later changes of it show."""
    row = by_numpy_name().get(array.dtype.name)
    if row is None or not row.bits:
        raise WeightsError(
            f"{origin}: tensor {shown(name)} has numpy's type {array.dtype}, which is not a number type of ONNX",
            code="no-dtype",
        )
    data: BytesLike | None = mappings.range_of(array) if row.native and array.dtype.str[0] != ">" else None
    if data is None:
        data = from_array(array).raw_data
    return Stored(name, row.code, array.shape, as_payload(b"" if data is None else data), origin)


def of_tensor(name: str, tensor: TensorProto, origin: str) -> Stored:
    """A tensor of a model, loaded or made, as `Stored`; values that it holds as lists of numbers are converted at once.

    WeightsError where its data is not what it says, or unsafe to open.
    """
    row = DTYPES.get(tensor.data_type or 0)
    if row is None or not row.bits:
        what = f"has the data type {type_name(tensor.data_type)}, which is not a number"
        raise WeightsError(f"{origin}: the tensor {shown(name)} {what}", code="no-dtype")
    try:
        data: BytesLike | None = datafiles.payload_of(tensor)
        if data is None:
            data = from_codes(to_codes(tensor), row.code).raw_data
        payload = file_range(data or b"") or as_payload(data or b"")
        return Stored(name, row.code, tuple(tensor.dims), payload, origin)
    except (DecodeError, ExternalDataError, WeightsError) as error:
        raise WeightsError(f"{origin}: the tensor {shown(name)} cannot be read: {error}") from None


def _of_torch(name: str, tensor: Any, origin: str, plain: Any) -> Stored:
    from purexport.dtypes import onnx_code
    from purexport.errors import UnsupportedDtypeError
    from purexport.graph.payloads import TensorPayload

    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        raise WeightsError(
            f"{origin}: tensor {shown(name)} is on the meta device and holds no data", code="tensor-without-values"
        )
    if type(tensor).__torch_dispatch__ is not plain.__torch_dispatch__:  # its memory is not what it shows
        what = f"is a {type(tensor).__qualname__}, which stands for other tensors"
        raise WeightsError(
            f"{origin}: tensor {shown(name)} {what}; pass a plain one, of a DTensor its full_tensor()",
            code="weights-not-plain",
        )
    if layout != "strided" or tensor.is_quantized:
        what = "quantized" if tensor.is_quantized else layout
        raise WeightsError(f"{origin}: tensor {shown(name)} is {what}; pass its dense form", code="weights-not-plain")
    try:
        code = onnx_code(tensor.dtype)
    except UnsupportedDtypeError as error:
        raise WeightsError(f"{origin}: tensor {shown(name)}: {error}", code="no-dtype") from None
    payload = TensorPayload(tensor.detach().resolve_conj().resolve_neg())
    return Stored(name, code, tuple(tensor.shape), payload, origin)


class Mappings:
    """The files that are mapped in this process, as the kernel lists them: looked up once, empty if it lists none."""

    def range_of(self, array: np.ndarray[Any, Any]) -> FileRange | None:
        """Where an array lies in a file, if it does, contiguous, and the file still has that name."""
        if not array.nbytes or not array.flags.c_contiguous or not _is_mapped(array):
            return None
        place = int(array.__array_interface__["data"][0])
        for start, stop, offset, device, inode, path in self._rows:
            if start <= place and place + array.nbytes <= stop:
                return _range(path, (device, inode), offset + place - start, array.nbytes)
        return None

    @cached_property
    def _rows(self) -> list[tuple[int, int, int, int, int, str]]:
        """(first address, end, offset in the file, device, inode, path) of what shows the file's own bytes.

        A private mapping that can be written to may differ from the file, so it is left out.
        """
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            words = line.split(None, 5)
            if len(words) == 6 and words[5].startswith("/") and (words[1][3] == "s" or words[1][1] == "-"):
                start, stop = (int(word, 16) for word in words[0].split("-"))
                major, minor = (int(word, 16) for word in words[3].split(":"))
                found.append((start, stop, int(words[2], 16), os.makedev(major, minor), int(words[4]), words[5]))
        return found


def _is_mapped(array: object) -> bool:
    """Whether an array is a numpy memmap or a view of one. Only these are looked up; others may come in thousands."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def _range(path: str, wanted: tuple[int, int], offset: int, length: int) -> FileRange | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    same = (status.st_dev, status.st_ino) == wanted and offset + length <= status.st_size
    return FileRange(path, offset, length, stamp_of(status)) if same else None
