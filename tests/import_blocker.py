"""Makes imports raise: the official packages for everyone, torch's own ONNX exporters for everyone but torch.

`torch.export` imports `torch._dynamo`, which imports `torch.onnx` for purposes of its own; what a file of torch imports
is torch's business.  Asking whether a package is there (`importlib.util.find_spec`) is no import and answers as usual.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

OFFICIAL = ("onnx", "google.protobuf", "onnxscript", "onnx_ir", "ml_dtypes")
EXPORTERS = ("torch.onnx",)
TORCH = str(Path(torch.__file__).parent)


class Blocker(MetaPathFinder, Loader):
    """Finds the blocked modules first, and refuses to load them."""

    def __init__(self, torch_too: bool) -> None:
        self.torch_too = torch_too
        self.attempts: list[str] = []  # by others than torch, so that a swallowed ImportError is still seen

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        blocked = _inside(name, OFFICIAL) or (
            _inside(name, EXPORTERS) and (self.torch_too or not _importer().startswith(TORCH))
        )
        return ModuleSpec(name, self) if blocked else None

    def exec_module(self, module: ModuleType) -> None:
        importer = _importer()
        if self.torch_too or not importer.startswith(TORCH):
            self.attempts.append(f"{importer} imports {module.__name__}")
        raise ImportError(f"{module.__name__} must not be imported, and {importer} does")


def install(torch_too: bool = False) -> Blocker:
    """From here on the imports raise; with `torch_too` also torch's imports of its own exporters."""
    loaded = [name for name in sys.modules if _inside(name, (*OFFICIAL, *EXPORTERS))]
    assert not loaded, f"loaded before they could be blocked: {loaded}"
    blocker = Blocker(torch_too)
    sys.meta_path.insert(0, blocker)
    return blocker


def _inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _importer() -> str:
    """The file whose import statement is being served."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename if frame else "?"
