"""`observe`: real calls of a module, or of a method of an object, are noted while other code runs.

A module is watched by a pair of hooks, and a method by an attribute of its object in its place.  Invariant: both are
gone when the block ends, also by an exception.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from purexport.errors import ExportError
from purexport.frontends.core.observed import Observed, arguments_as
from purexport.frontends.core.request import parameter_names
from purexport.frontends.core.structures import StructureNode
from purexport.torch_patches.torch_jit import is_script

_ABSENT = object()


@contextmanager
def observe(module: torch.nn.Module | Callable[..., object]) -> Iterator[Observed]:
    """Note the calls of a module inside the block, for `purexport.export`.

        with purexport.observe(pipe.unet) as seen:
            pipe("a photo", height=64, width=64)
            pipe("a photo", height=64, width=96)
        purexport.export(pipe.unet, seen, "unet.onnx", verify=True)

    `module` is an nn.Module, in whatever it is a part of, or a method of an object, as in `pipe.vae.decode`.  Axes that
    had several sizes in these calls are dynamic in the file, and axes that had the same sizes in all calls share a
    name.  Tensors are kept by reference, those of two calls at most for each form of the arguments; `print(seen)` shows
    what was seen, and `seen.forms` has the calls of each form.

    Calls that raise are not noted.  Nothing stays at the module when the block ends.

    Raises TypeError for what is neither a module nor a method, and for a script.
    """
    if not isinstance(module, torch.nn.Module) and not inspect.ismethod(module):
        raise TypeError(
            f"observe takes an nn.Module or a method of an object, not {module!r:.80}; calls of a plain function "
            "cannot be seen, so make it the forward of a module"
        )
    if is_script(module):
        raise TypeError("torch shows no calls of a script; observe the module that it was made of, or one around it")
    with ExitStack() as stack:
        if inspect.ismethod(module):
            seen = Observed(f"method {module.__qualname__}", parameter_names(module))
            stack.enter_context(_method_watched(module, seen))
        else:
            assert isinstance(module, torch.nn.Module)
            seen = Observed(type(module).__name__, parameter_names(module))
            stack.enter_context(_module_watched(module, seen))
        yield seen


@contextmanager
def _module_watched(module: torch.nn.Module, seen: Observed) -> Iterator[None]:
    # the arguments are taken before the model changes them, and the call counts once it has returned
    begun: list[StructureNode | ExportError] = []

    def begin(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        begun.append(arguments_as(args, kwargs))

    def end(_: object, args: object, kwargs: object, result: object) -> None:
        arguments = begun.pop()
        if result is not None:
            seen.add(arguments)

    def note(name: str) -> Callable[..., None]:
        def called(*_: object) -> None:
            if not begun and name not in seen.parts:
                seen.parts.append(name)

        return called

    handles = [
        module.register_forward_pre_hook(begin, with_kwargs=True),
        module.register_forward_hook(end, with_kwargs=True, always_call=True),
    ]
    handles += [part.register_forward_pre_hook(note(name)) for name, part in module.named_children()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _method_watched(method: Any, seen: Observed) -> Iterator[None]:
    owner, name = method.__self__, method.__name__

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        arguments = arguments_as(args, kwargs)
        result = method(*args, **kwargs)
        seen.add(arguments)
        return result

    before = vars(owner).get(name, _ABSENT)
    object.__setattr__(owner, name, called)
    try:
        yield
    finally:
        if before is _ABSENT:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, before)
