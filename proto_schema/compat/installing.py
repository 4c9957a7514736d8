"""`import onnx` means us: a finder at the front of `sys.meta_path`, and what it pushed aside.

All state is the finder in `sys.meta_path`, which keeps the modules that were there before, so that `uninstall` puts
them back. Whoever holds one of them goes on using it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

NAME = "onnx"
PROTOBUF = "google.protobuf"
_PARTS = ("message", "text_format", "json_format")


class Finder(MetaPathFinder, Loader):
    """Finds `onnx` and all below it, and the names `others`, among the modules of `proto_schema.compat`."""

    def __init__(self, before: dict[str, ModuleType | None], others: frozenset[str]) -> None:
        self.before = before
        self.others = others

    def owns(self, name: str) -> bool:
        """Whether the module of that name is ours."""
        return _is_onnx(name) or name in self.others

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self.owns(fullname):
            return None
        return ModuleSpec(fullname, self, origin="proto_schema.compat", is_package=True)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fullname = module.__name__
        if fullname in self.others:
            from proto_schema.compat.protobuf import fill

            fill(module)
            return
        from proto_schema.compat import modules

        found = modules if fullname == NAME else modules.submodule(fullname.partition(".")[2])
        sys.modules[fullname] = found


def _is_onnx(name: str) -> bool:
    return name == NAME or name.startswith(f"{NAME}.")


def _missing() -> frozenset[str]:
    """The modules of protobuf that programs for onnx import, if it is not installed."""
    try:
        if find_spec(PROTOBUF) is not None:
            return frozenset()
    except ModuleNotFoundError:
        pass
    parts = {PROTOBUF, *(f"{PROTOBUF}.{part}" for part in _PARTS)}
    return frozenset(parts | ({"google"} if find_spec("google") is None else set()))


def _finder() -> Finder | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None)


def install(force: bool = False) -> bool:
    """From now on `import onnx` gives `proto_schema.compat.modules`. Returns whether it does.

    An onnx that is installed is left alone and stays what `import onnx` gives, unless `force`. Then its modules that
    were imported already are put aside until `uninstall`. Where protobuf is not installed, what such programs use of it
    (`google.protobuf.message`, `text_format`, `json_format`) is there, too.
    """
    if _finder() is not None:
        return True
    if not force and find_spec(NAME) is not None:
        return False
    finder = Finder({}, _missing())
    finder.before.update({name: sys.modules.pop(name) for name in list(sys.modules) if finder.owns(name)})
    sys.meta_path.insert(0, finder)
    return True


def uninstall() -> bool:
    """Takes back what `install` did. Returns whether there was something to take back."""
    finder = _finder()
    if finder is None:
        return False
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if finder.owns(name)]:
        del sys.modules[name]
    sys.modules.update(finder.before)  # type: ignore[arg-type]
    return True
