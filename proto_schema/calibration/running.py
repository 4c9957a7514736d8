"""A model that is run for the values inside of it: by ONNX Runtime where it is installed, else by our evaluator.

ONNX Runtime gives a value inside if it is an output of the graph, and optimizes nothing, so that each value is the one
that the model names. Only float tensors are asked for.
"""

from __future__ import annotations

import copy
import importlib.util
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from proto_schema.budget import BudgetLike
from proto_schema.calibration.samples import Array, Feed
from proto_schema.onnx import ModelProto, ValueInfoProto

_IN_MEMORY = 1 << 26  # a larger model goes through files, whose weights ONNX Runtime maps


class Runner:
    """Runs a model for the float32 values of these names, and with `halves` float16 ones; use it as a context."""

    def __init__(
        self, model: ModelProto, names: Collection[str], budget: BudgetLike = None, *, halves: bool = False
    ) -> None:
        """`budget` is for each run of our evaluator."""
        self._types = ("float32", "float16") if halves else ("float32",)
        self.model = model
        self.budget = budget
        self.names = frozenset(names)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._session: Any = None
        self._evaluator: Any = None
        self._outputs: list[str] = []

    def __enter__(self) -> Runner:
        if importlib.util.find_spec("onnxruntime") is not None:
            self._open()
        if self._session is None:
            from proto_schema.reference import ReferenceEvaluator

            self._evaluator = ReferenceEvaluator(self.model, budget=self.budget)
        return self

    def __exit__(self, *error: object) -> None:
        self._session = self._evaluator = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def run(self, place: str, feed: Feed) -> Iterator[tuple[str, Array]]:
        """The values for a feed. Raises ValueError, with the place of the sample, where the model cannot be run."""
        for name, array in feed.items():
            if name in self.names and array.dtype.name in self._types:
                yield name, array
        try:
            found = self._by_onnxruntime(feed) if self._session is not None else self._evaluated(feed)
        except Exception as error:  # what onnxruntime raises has no common base
            text = str(error).partition("\n")[0]
            raise ValueError(f"{place}: the model cannot be run on it: {text}") from error
        yield from found.items()

    def _open(self) -> None:
        import onnxruntime

        graph = self.model.graph
        if graph is None:
            return
        there = {item.name for item in (*graph.output, *graph.input)}
        made, inner = copy.copy(self.model), copy.copy(graph)
        inner.output = [*graph.output, *(ValueInfoProto(name=name) for name in sorted(self.names - there))]
        made.graph = inner
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session = onnxruntime.InferenceSession(
                self._stored(made), options, providers=["CPUExecutionProvider"]
            )
        except Exception:  # it has no kernel for an operator, or none for a type: the evaluator may
            self.__exit__()
            return
        outputs = self._session.get_outputs()
        taken = {"tensor(float)": "float32", "tensor(float16)": "float16"}
        self._outputs = [
            item.name for item in outputs if item.name in self.names and taken.get(item.type) in self._types
        ]

    def _stored(self, model: ModelProto) -> bytes | str:
        from proto_schema.files.models import dumps, save

        if model.ByteSize() < _IN_MEMORY:
            return dumps(model)
        self._folder = tempfile.TemporaryDirectory(prefix="calibration-", ignore_cleanup_errors=True)
        path = str(Path(self._folder.name, "model.onnx"))
        save(model, path, external_data=True)
        return path

    def _by_onnxruntime(self, feed: Feed) -> Feed:
        return dict(zip(self._outputs, self._session.run(self._outputs, feed), strict=True)) if self._outputs else {}

    def _evaluated(self, feed: Feed) -> Feed:
        found: Feed = {}

        def keep(name: str, value: Any) -> None:
            if name in self.names and isinstance(value, np.ndarray) and value.dtype.name in self._types:
                found[name] = value

        self._evaluator.run(None, feed, intermediate=keep)
        return found
