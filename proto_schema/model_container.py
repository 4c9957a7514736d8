"""Models whose large tensors stay outside the messages, with the names of onnx.model_container.

    container = make_large_model(graph, {"#weight": array})     # make_large_tensor_proto("#weight", ...) in the graph

The arrays are shared, never copied; they are written by `save`, piece by piece. `ps.load` and `ps.save` handle models
of any size by themselves: this is for code that is written for the official package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from proto_schema.checker import check_model
from proto_schema.external import Folder, forget_origin
from proto_schema.external.payload import BytesLike, LazyPayload, byte_view, nbytes
from proto_schema.external_data_helper import (
    ExternalDataInfo,
    all_tensors,
    mark_external,
    read_external_data,
    uses_external_data,
)
from proto_schema.files.durable import write_new
from proto_schema.files.models import load, save
from proto_schema.helper import make_model
from proto_schema.onnx import GraphProto, ModelProto, TensorProto
from proto_schema.tensors.arrays import to_array

__all__ = ["ModelContainer", "make_large_model", "make_large_tensor_proto"]

_NOT_IN_NAMES = ":/\\;,!"


def make_large_tensor_proto(location: str, tensor_name: str, tensor_type: int, shape: tuple[int, ...]) -> TensorProto:
    """A tensor whose data a ModelContainer has under the key `location`, which begins with `#`."""
    tensor = TensorProto(name=tensor_name, data_type=tensor_type, dims=[int(size) for size in shape])
    mark_external(tensor, location)
    return tensor


def make_large_model(
    graph: GraphProto, large_initializers: dict[str, npt.NDArray[Any]] | None = None, **kwargs: Any
) -> ModelContainer:
    """A container of the model that `make_model(graph, **kwargs)` makes, with the arrays of its large tensors.

    Raises ValueError for a key without `#`, RuntimeError for a large tensor without an array.
    """
    made = ModelContainer()
    made.model_proto = make_model(graph, **kwargs)
    if large_initializers:
        made.set_large_initializers(large_initializers)
        made.check_large_initializers()
    return made


class ModelContainer:
    """A model and the arrays of its large tensors, by their keys."""

    def __init__(self) -> None:
        self.model_proto_: ModelProto | None = None
        self.large_initializers: dict[str, npt.NDArray[Any]] = {}

    @property
    def model_proto(self) -> ModelProto:
        """The model. RuntimeError while there is none."""
        return self._model()

    @model_proto.setter
    def model_proto(self, model_proto: ModelProto) -> None:
        self.model_proto_ = model_proto

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The array of a key. ValueError where there is none."""
        if name not in self.large_initializers:
            raise ValueError(f"there is no large tensor {name!r} among {sorted(self.large_initializers)}")
        return self.large_initializers[name]

    def check_model(self) -> None:
        """Raises CheckError where the model breaks a rule of ONNX."""
        check_model(self._model())

    def enumerate_graph_protos(self) -> Iterator[GraphProto]:
        """The main graph, and every graph in its nodes."""
        graph = self._model().graph or GraphProto()
        yield graph
        yield from _subgraphs(graph)

    def is_in_memory_external_initializer(self, name: str) -> bool:
        """Whether this is a key of an array, and no file."""
        return name.startswith("#")

    def set_large_initializers(self, large_initializers: dict[str, npt.NDArray[Any]]) -> None:
        """Replaces the arrays. ValueError for a key without `#`."""
        for key in large_initializers:
            if not self.is_in_memory_external_initializer(key):
                raise ValueError(f"the location {key!r} must begin with '#', so that it names no file")
        self.large_initializers = large_initializers

    def check_large_initializers(self) -> None:
        """RuntimeError for a large tensor without a location, or whose array is missing."""
        for tensor in self._large(self._model()):
            self._array(tensor)

    def save(self, file_path: str | os.PathLike[str], all_tensors_to_one_file: bool = False) -> ModelProto:
        """Writes the model, and its large tensors to `NAME.weight` beside it, or each to a new file of its own.

        Returns the model that was written: a copy that refers to those files. Files that are there are never
        overwritten, but for a `NAME.weight` that belongs to the model which is replaced. Raises as `ps.save`.
        """
        path = os.fspath(file_path)
        folder, base = os.path.split(path)
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(f"the folder {folder!r} does not exist")
        model = deepcopy(self._model())
        large = [(tensor, _bytes_of(self._array(tensor))) for tensor in self._large(model)]
        if all_tensors_to_one_file and large:
            for tensor, data in large:
                tensor.external_data, tensor.data_location, tensor.raw_data = [], None, data
            save(model, path, external_data=True, location=f"{base}.weight", size_threshold=0)
            return load(path)
        stem = os.path.splitext(base)[0]
        for tensor, data in large:
            name = _clean(f"{stem}-{ExternalDataInfo(tensor).location}")
            mark_external(tensor, _write_beside(folder, name, data))
        save(model, path)
        return model

    def load(self, file_path: str | os.PathLike[str], load_large_initializers: bool = True) -> None:
        """Reads a model; with `load_large_initializers` its external tensors become arrays, and keys in the model."""
        self.model_proto_ = load(file_path)
        if load_large_initializers:
            self._load_large_initializers(file_path)

    def _load_large_initializers(self, file_path: str | os.PathLike[str]) -> None:
        base_dir = os.path.dirname(os.fspath(file_path))
        folder = Folder(base_dir or ".")
        self.large_initializers = {}
        for place, tensor in enumerate(all_tensors(self._model())):
            if uses_external_data(tensor):
                data = read_external_data(tensor, base_dir, folder)
                inside = TensorProto(data_type=tensor.data_type, dims=list(tensor.dims), raw_data=data)
                self.large_initializers[f"#t{place}"] = to_array(inside)
                mark_external(tensor, f"#t{place}")
                forget_origin(tensor)

    def _model(self) -> ModelProto:
        if self.model_proto_ is None:
            raise RuntimeError("the ModelContainer is empty; set model_proto or load a file")
        return self.model_proto_

    def _large(self, model: ModelProto) -> Iterator[TensorProto]:
        return (tensor for tensor in all_tensors(model) if uses_external_data(tensor))

    def _array(self, tensor: TensorProto) -> npt.NDArray[Any]:
        key = ExternalDataInfo(tensor).location
        if not key:
            raise RuntimeError(f"tensor {tensor.name or ''!r} is external, but has no location")
        if key not in self.large_initializers:
            known = sorted(self.large_initializers)
            raise RuntimeError(
                f"tensor {tensor.name or ''!r}: there is no array for its location {key!r} among {known}"
            )
        return self.large_initializers[key]


def _subgraphs(graph: GraphProto) -> Iterator[GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*([] if attribute.g is None else [attribute.g]), *attribute.graphs]:
                yield inner
                yield from _subgraphs(inner)


def _bytes_of(array: npt.NDArray[Any]) -> BytesLike:
    """The bytes of an array, little-endian and in C order: its memory where that is so already."""
    little = np.asarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    if little.flags.c_contiguous:
        return byte_view(little.reshape(-1).view(np.uint8).data)
    return LazyPayload(little.nbytes, little.tobytes, description="a strided array")


def _clean(name: str) -> str:
    return "".join(letter for letter in name if letter not in _NOT_IN_NAMES)


def _write_beside(folder: str, name: str, data: BytesLike) -> str:
    """Writes a data file under a name that nobody has: `NAME.weight`, `NAME_2.weight`, ... Returns the name."""
    number = 1
    while True:
        file = f"{name}.weight" if number == 1 else f"{name}_{number}.weight"
        try:
            write_new(os.path.join(folder, file), [data], nbytes(data), [])
        except FileExistsError:
            number += 1
        else:
            return file
