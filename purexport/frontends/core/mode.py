"""The state of a model during a capture: its mode, and everything that a run would change and that is restored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy
import torch

from purexport.errors import ExportError
from purexport.frontends.core.attributes import attributes_kept
from purexport.frontends.core.structures import mapped
from purexport.options import Named, TrainingMode, training_mode
from purexport.torch_patches.attention import plain_attention
from purexport.torch_patches.flexible_attention import plain_flexible_attention

_EXPORTING: ContextVar[bool] = ContextVar("purexport_exporting", default=False)


def is_in_onnx_export() -> bool:
    """True inside the capture of `purexport.export`, in this thread."""
    return _EXPORTING.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Marks the capture for `is_in_onnx_export`, and makes attention layers run their plain operators."""
    token = _EXPORTING.set(True)
    try:
        with plain_attention(), plain_flexible_attention():
            yield
    finally:
        _EXPORTING.reset(token)


@contextmanager
def select_model_mode_for_export(model: object, mode: TrainingMode | bool | Named | None) -> Iterator[None]:
    """Set the `mode` of `model`, and restore the mode of each of its modules afterwards, also after an error."""
    mode = training_mode(mode)
    if not isinstance(model, torch.nn.Module) or mode is TrainingMode.PRESERVE:
        yield
        return
    # a frozen script has no mode, and train() gives it an attribute
    modules = list(model.modules())
    before = {module: module.training for module in modules if hasattr(module, "training")}
    try:
        try:
            model.train(mode is TrainingMode.TRAINING)
        except NotImplementedError:  # an exported module, also among others: its program has the mode in it
            for module in before:
                module.training = mode is TrainingMode.TRAINING
        yield
    finally:
        for module in modules:
            if module in before:
                module.training = before[module]
            else:
                vars(module).pop("training", None)


@contextmanager
def compiled_parts_left(model: Any) -> Iterator[Any]:
    """The model, without what torch.compile put around it and its parts, of which a trace records nothing."""
    if not isinstance(model, torch.nn.Module):
        yield model
        return
    model = _inside(model)
    swapped = [
        (parent, name, part)
        for parent in model.modules()
        for name, part in parent._modules.items()
        if part is not None and _inside(part) is not part
    ]
    called = [part for part in model.modules() if vars(part).get("_compiled_call_impl") is not None]
    calls = [part._compiled_call_impl for part in called]
    try:
        for parent, name, part in swapped:
            parent._modules[name] = _inside(part)
        for part in called:
            part._compiled_call_impl = None
        yield model
    finally:
        for parent, name, part in swapped:
            parent._modules[name] = part
        for part, call in zip(called, calls, strict=True):
            part._compiled_call_impl = call


def _inside(module: torch.nn.Module) -> torch.nn.Module:
    """The module that torch.compile made another one of; the module itself if it did not."""
    inside = getattr(module, "_orig_mod", None) if type(module).__name__ == "OptimizedModule" else None
    return inside if isinstance(inside, torch.nn.Module) else module


def initialize_lazy_parts(model: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], mode: Any) -> None:
    """Run a model once that has parameters without sizes, so that they get the sizes that these arguments need.

    Raises ExportError if it does not run.
    """
    if not isinstance(model, torch.nn.Module) or not any(map(torch.nn.parameter.is_lazy, _tensors_of(model))):
        return
    args, kwargs = copied(arguments)
    with select_model_mode_for_export(model, mode), torch.no_grad(), _random_state_kept():
        try:
            model(*args, **kwargs)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise ExportError(f"the model does not run on these args: {said}", code="model-does-not-run") from error


def _tensors_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


@contextmanager
def preserved(model: Any, *, runs: bool = True) -> Iterator[None]:
    """The model runs inside and leaves no changes: buffers, attributes and the random state are restored afterwards.

    Parameters are not copied, because they are large and a forward pass does not write to them.  A model that does
    write to one is refused with ExportError.  Without `runs` the model does not run on values, so buffers are not
    copied either.
    """
    parameters = dict(model.named_parameters()) if isinstance(model, torch.nn.Module) else {}
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) and runs else []
    versions = {name: _version(parameter) for name, parameter in parameters.items()}
    kept = [(buffer, _version(buffer), buffer.detach(), buffer.detach().clone()) for buffer in buffers]
    try:
        with attributes_kept(model), _random_state_kept():
            yield
    finally:
        with torch.no_grad():
            for buffer, version, before, content in kept:
                if buffer.layout == torch.strided and buffer.shape != before.shape:  # transposed in place, or the like
                    buffer.as_strided_(before.size(), before.stride(), before.storage_offset())
                if _version(buffer) != version or version < 0 or _differ(buffer, content):
                    buffer.copy_(content)
    written = [name for name, parameter in parameters.items() if _version(parameter) != versions[name]]
    if written:
        raise ExportError(
            f"the model writes to its parameters {', '.join(written)} when it runs; write to buffers",
            code="parameters-written",
        )


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """The global random generators of torch, Python and numpy have their former state afterwards."""
    cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        numpy.random.set_state(before[2])
        if cuda:
            torch.cuda.set_rng_state_all(devices)


def _differ(buffer: torch.Tensor, content: torch.Tensor) -> bool:
    """Compares contents too, because normalization in training mode writes statistics without counting the write."""
    return buffer.layout == torch.strided and not buffer.is_meta and not torch.equal(buffer, content)


def _version(tensor: torch.Tensor) -> int:
    """torch's count of the writes to a tensor; -1 for inference tensors, which have no count."""
    return -1 if tensor.is_inference() else tensor._version


def detached(tree: Any) -> Any:
    """The arguments with tensors of the same memory that have no gradients."""
    return mapped(lambda tensor: tensor.detach(), tree)


def copied(tree: Any) -> Any:
    """The arguments with copies of their tensors, so that a model may write to them."""
    return mapped(lambda tensor: tensor.detach().clone(), tree)
