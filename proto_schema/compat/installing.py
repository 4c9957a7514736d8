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


class Finder(MetaPathFinder, Loader):
    """Finds `onnx` and all below it, among the modules of `proto_schema.compat`."""

    def __init__(self, before: dict[str, ModuleType | None]) -> None:
        self.before = before

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        return ModuleSpec(fullname, self, origin="proto_schema.compat", is_package=True)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from proto_schema.compat import modules

        fullname = module.__name__
        found = modules if fullname == NAME else modules.submodule(fullname.partition(".")[2])
        sys.modules[fullname] = found


def _is_ours(name: str) -> bool:
    return name == NAME or name.startswith(f"{NAME}.")


def _finder() -> Finder | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None)


def install(force: bool = False) -> bool:
    """From now on `import onnx` gives `proto_schema.compat.modules`. Returns whether it does.

    An onnx that is installed is left alone and stays what `import onnx` gives, unless `force`. Then its modules that
    were imported already are put aside until `uninstall`.
    """
    if _finder() is not None:
        return True
    if not force and find_spec(NAME) is not None:
        return False
    before: dict[str, ModuleType | None] = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
    sys.meta_path.insert(0, Finder(before))
    return True


def uninstall() -> bool:
    """Takes back what `install` did. Returns whether there was something to take back."""
    finder = _finder()
    if finder is None:
        return False
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    sys.modules.update(finder.before)  # type: ignore[arg-type]
    return True
