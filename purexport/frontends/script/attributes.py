"""The attributes of a script's modules.  Each is a cell, and all code that reads or assigns it uses the same cell.

A cell is a dict of one entry, so that an assignment inside a branch or loop is followed like any change of a dict.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import Assigned, AtenValue, Source, TensorType
from purexport.frontends.core import prepacked
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.values import Module, ScriptDict, imported
from purexport.torch_patches.torch_jit import MODULES


class Attributes:
    """The cells by the path of the module and the name, and where the script assigned them last."""

    def __init__(self, recorder: ScriptRecorder) -> None:
        self._recorder = recorder
        self._cells: dict[tuple[str, str], ScriptDict] = {}
        self._assigned: dict[tuple[str, str], Source] = {}

    def read(self, owner: Module, name: str) -> Any:
        """The current item of an attribute."""
        return self._cell(owner, name)["value"]

    def assign(self, owner: Module, name: str, item: Any, source: Source) -> None:
        """Give an attribute another item.  Raises ExportError as `Recorder.touch`."""
        self._assigned[owner.path, name] = source
        cell = self._cell(owner, name)
        self._recorder.touch(cell, source)
        cell["value"] = item

    def assigned(self) -> tuple[list[Assigned], list[str]]:
        """The buffers that are different tensors at the end, and remarks on the other attributes that are assigned."""
        inputs = {item.name: item for item in self._recorder.graph.inputs if item.kind in ("parameter", "buffer")}
        remarks: list[str] = []
        written: list[Assigned] = []
        for (path, name), source in self._assigned.items():
            full = f"{path}.{name}" if path else name
            value = self._cells[path, name]["value"]
            item = inputs.get(full)
            if item is not None and isinstance(value, AtenValue) and isinstance(value.type, TensorType):
                written.append(Assigned(item, value, str(source)))
            else:
                remarks.append(f"the script assigns {full}; the value is right inside the file, and not kept")
        return written, remarks

    def _cell(self, owner: Module, name: str) -> ScriptDict:
        key = owner.path, name
        if key not in self._cells:
            self._cells[key] = ScriptDict({"value": self._held(getattr(owner.module, name), owner.join(name))})
        return self._cells[key]

    def _held(self, found: Any, path: str) -> Any:
        """An attribute of torch's module as the interpretation holds it."""
        recorder = self._recorder
        if isinstance(found, MODULES):
            return Module(found, path)
        if isinstance(found, torch.ScriptObject):
            with recorder.shapes.outside():
                return prepacked.unpacked(found, path.rpartition(".")[0], recorder.constant)
        if isinstance(found, torch.Tensor):
            kind = "parameter" if isinstance(found, torch.nn.Parameter) or found.requires_grad else "buffer"
            return recorder.model_tensor(found, path, kind)
        if isinstance(found, (list, tuple)):
            parts = [self._held(item, f"{path}.{index}") for index, item in enumerate(found)]
            return imported(parts) if isinstance(found, list) else tuple(parts)
        if isinstance(found, dict):
            return ScriptDict({key: self._held(item, f"{path}.{key}") for key, item in found.items()})
        return found
