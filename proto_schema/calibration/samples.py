"""Samples: whatever a user has them in, as feeds that are checked against the inputs of the model.

A file is one feed: an .npz file has an array for each input, an .npy file the array of the only one. Arrays with one
axis more than the input are many samples. In a mapping of arrays, the first axis counts samples in any case, and as
many go into a feed as the input's first size says (one, where it is open).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proto_schema.budget import BudgetLike, budget_of
from proto_schema.graphs.dims import known_size
from proto_schema.onnx import ModelProto, TypeProto, ValueInfoProto
from proto_schema.tensors import npy
from proto_schema.tensors.dtypes import DTYPES

Array: TypeAlias = npt.NDArray[Any]
Feed: TypeAlias = dict[str, Array]
Given: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any] | Callable[[], Any]"

ENDINGS = (".npz", ".npy")


class Samples:
    """Feeds with where each is from; may be iterated again."""

    def __init__(self, model: ModelProto, given: Given, budget: BudgetLike = None) -> None:
        """`budget` bounds the bytes of a file. Raises ValueError for what holds no samples at all."""
        self.most = budget_of(budget).memory
        graph = model.graph
        held = set() if graph is None else {item.name for item in graph.initializer}
        every = [] if graph is None else graph.input
        self.inputs: dict[str, ValueInfoProto] = {item.name or "": item for item in every}
        self.required = [name for name in self.inputs if name not in held]
        if isinstance(given, Iterator):  # it can be read once only, and a method may need it twice
            given = list(given)
        self.given = given

    def __iter__(self) -> Iterator[tuple[str, Feed]]:
        """Raises ValueError, which says where, for samples that the model does not take, and where there are none."""
        empty = True
        for place, feed in self._feeds(self.given):
            empty = False
            yield place, feed
        if empty:
            raise ValueError("there are no samples for the calibration; give at least one, better 100 real ones")

    def _feeds(self, given: Any) -> Iterator[tuple[str, Feed]]:
        if callable(given):
            given = given()
        if isinstance(given, (str, os.PathLike)):
            for path in self._files(Path(given)):
                yield from self._of_file(path)
        elif isinstance(given, Mapping):
            yield from self._split(self._named(given, "the samples"), "sample")
        elif isinstance(given, np.ndarray):
            yield from self._split(self._alone(given, "the samples"), "sample")
        elif isinstance(given, Iterable):
            for number, item in enumerate(given):
                yield from self._item(item, f"sample {number}")
        else:
            raise ValueError(
                f"samples are a folder or a list of .npz and .npy files, a dict of arrays, or feeds, not a "
                f"{type(given).__name__}"
            )

    def _item(self, item: Any, place: str) -> Iterator[tuple[str, Feed]]:
        if isinstance(item, (str, os.PathLike)):
            for path in self._files(Path(item)):
                yield from self._of_file(path)
            return
        arrays = self._named(item, place) if isinstance(item, Mapping) else self._alone(item, place)
        yield place, self._checked(arrays, place)

    def _files(self, path: Path) -> list[Path]:
        if not path.is_dir():
            return [path]
        found = sorted(item for item in path.iterdir() if item.suffix in ENDINGS)
        if not found:
            raise ValueError(f"the folder {os.fspath(path)!r} has no .npz and no .npy file; a sample is one of these")
        return found

    def _of_file(self, path: Path) -> Iterator[tuple[str, Feed]]:
        place = os.fspath(path)
        try:
            loaded = npy.read(path, self.most)
        except npy.NpyError as error:
            raise ValueError(
                f"{place} is not an .npz or .npy file of plain arrays: {error}; write samples with numpy.savez"
            ) from error
        arrays = self._alone(loaded, place) if isinstance(loaded, np.ndarray) else self._named(loaded, place)
        if arrays and all(array.ndim == self._rank(name, array) + 1 for name, array in arrays.items()):
            yield from self._split(arrays, place)
        else:
            yield place, self._checked(arrays, place)

    def _named(self, arrays: Mapping[str, Any], place: str) -> Feed:
        unknown = next((name for name in arrays if name not in self.inputs), None)
        if unknown is not None:
            known = ", ".join(map(repr, self.required)) or "none"
            raise ValueError(f"{place}: the model has no input {unknown!r}; its inputs are {known}")
        missing = next((name for name in self.required if name not in arrays), None)
        if missing is not None:
            raise ValueError(f"{place}: the input {missing!r} is missing; a sample has a value for each input")
        return {name: np.asarray(value) for name, value in arrays.items()}

    def _alone(self, value: Any, place: str) -> Feed:
        if len(self.required) != 1:
            names = ", ".join(map(repr, self.required)) or "none"
            raise ValueError(f"{place} is one array, and the model has the inputs {names}; name them, as an .npz does")
        return {self.required[0]: np.asarray(value)}

    def _split(self, arrays: Feed, place: str) -> Iterator[tuple[str, Feed]]:
        """The samples of arrays whose first axis counts them."""
        lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{place}: the first axis counts samples, and the sizes differ: {lengths}")
        count = next(iter(lengths.values()), 0)
        steps = {name: self._step(name, array) for name, array in arrays.items()}
        step = max(steps.values(), default=0) or 1
        if any(item not in (0, step) for item in steps.values()) or (step > 1 and 0 in steps.values()):
            raise ValueError(f"{place}: inputs with batches of {steps} cannot be cut alike; give feeds one by one")
        if count % step:
            raise ValueError(f"{place}: the model takes {step} samples at once, which {count} is not a multiple of")
        for first in range(0, count, step):
            where = f"{place} {first}"
            feed = {name: item[first : first + step] if steps[name] else item[first] for name, item in arrays.items()}
            yield where, self._checked(feed, where)

    def _step(self, name: str, array: Array) -> int:
        """How many samples are one value of an input; 0 where an element of the first axis is one."""
        sizes = _sizes(self.inputs[name].type)
        if sizes is None or array.ndim != len(sizes):
            return 0
        return sizes[0] if sizes and isinstance(sizes[0], int) else 1

    def _rank(self, name: str, array: Array) -> int:
        sizes = _sizes(self.inputs[name].type)
        return array.ndim if sizes is None else len(sizes)

    def _checked(self, arrays: Feed, place: str) -> Feed:
        for name, array in arrays.items():
            kind = self.inputs[name].type
            tensor = None if kind is None else kind.tensor_type
            if tensor is None:
                raise ValueError(f"{place}: the input {name!r} is not a tensor, and calibration takes tensors only")
            code = tensor.elem_type or 0
            wanted = DTYPES[code].numpy if code in DTYPES else None
            if wanted is not None and array.dtype != wanted:
                raise ValueError(
                    f"{place}: the input {name!r} is {array.dtype}, and the model takes {np.dtype(wanted)}; convert it"
                )
            sizes = _sizes(kind)
            if sizes is None:
                continue
            fits = len(sizes) == array.ndim
            if not fits or any(isinstance(size, int) and size != array.shape[at] for at, size in enumerate(sizes)):
                takes = ", ".join(map(str, sizes))
                raise ValueError(
                    f"{place}: the input {name!r} has shape {list(array.shape)}, and the model takes [{takes}]"
                )
        return arrays


def _sizes(kind: TypeProto | None) -> list[int | str] | None:
    """The declared sizes: numbers, or names ("?" without one); None where the rank is open."""
    tensor = None if kind is None else kind.tensor_type
    if tensor is None or tensor.shape is None:
        return None
    return [item.dim_param or "?" if (size := known_size(item)) is None else size for item in tensor.shape.dim]
