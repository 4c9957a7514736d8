"""Export with every axis dynamic that the model lets vary (`dynamic=True`).

The model runs at other sizes first (`frontends/core/free_axes.py`); what it takes is declared dynamic, and the stages
run as for any declared axes.  Where they refuse, the axes are declared one after the other, and those that are refused
are static.  Invariant: a model that exports with static axes exports here.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch

from purexport.aten.axes import Axes, own_name
from purexport.errors import ExportError
from purexport.frontends.core.attributes import attributes_kept
from purexport.frontends.core.free_axes import FreeAxes, free_axes
from purexport.frontends.core.mode import copied, exporting, preserved, select_model_mode_for_export
from purexport.frontends.core.request import Flat, Request, argument_names, flatten, named_axes
from purexport.frontends.core.structures import results_in
from purexport.stages.run import Run
from purexport.torch_patches.quiet import quiet_torch

_DECLARED = re.compile(
    r"axis '(?P<label>.+?)' was declared dynamic, but (?P<reason>.*?)(; the file takes .*)?", re.DOTALL
)


class Remarking(Protocol):
    """A result of stages with what they remarked."""

    @property
    def remarks(self) -> Sequence[str]: ...


R = TypeVar("R", bound=Remarking)


def at_any_size(run: Run, stages: Callable[[Run], R]) -> tuple[Run, R]:
    """What `stages` give with the axes that may vary, and the run that declares them.

    Raises what `stages` raises where the model does not export with static axes either.
    """
    if isinstance(run.model, torch.export.ExportedProgram):
        return run, stages(run)  # torch has decided
    found = run.memory.once(("free axes", tuple(run.numbers), repr(run.constants)), lambda: _found(run))
    every = list(dict.fromkeys(label for named in found.dynamic.values() for label in named.values()))
    try:
        return _tried(run, found, every, stages)
    except ExportError:
        taken: list[str] = []
        reasons: dict[str, str] = {}
        done = _tried(run, found, [], stages)
        for label in every if len(every) > 1 else ():
            try:
                done = _tried(run, found, [*taken, label], stages)
                taken.append(label)
            except ExportError as refused:
                reasons[label] = str(refused).partition("\n")[0]
        if len(every) == 1:
            raise
        return _with_reasons(done[0], found, reasons), done[1]


def given_names(run: Run) -> frozenset[str]:
    """The names of axes that the user gave."""
    if run.free_axes is not None:
        return run.free_axes.given
    named = [axes for axes in (run.options.dynamic_axes or {}).values() if isinstance(axes, Mapping)]
    return frozenset([*(str(label) for axes in named for label in axes.values()), *_dims(run.options.dynamic_shapes)])


def _dims(item: Any) -> Iterator[str]:
    """The names of the dimensions in a declaration of shapes, and the texts in it."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, (Mapping, list, tuple)):
        for part in item.values() if isinstance(item, Mapping) else item:
            yield from _dims(part)
    elif isinstance(name := getattr(item, "__name__", None), str):
        yield name


def _tried(run: Run, found: FreeAxes, labels: Sequence[str], stages: Callable[[Run], R]) -> tuple[Run, R]:
    """The run and its graph with the axes of these labels dynamic, and the reasons for those that the model holds."""
    axes: dict[str, Any] = {
        name: {axis: label for axis, label in named.items() if label in labels} for name, named in found.dynamic.items()
    }
    others = {*found.dynamic, *found.static, *argument_names(run.model, run.arguments)}
    # the stages say what they think of other names that the user gave
    axes |= {name: named for name, named in (run.options.dynamic_axes or {}).items() if name not in others}
    options = dataclasses.replace(run.options, dynamic_axes={name: named for name, named in axes.items() if named})
    declared = dataclasses.replace(run, options=options)
    with warnings.catch_warnings():
        # nobody declared these axes; the report has the reasons
        warnings.filterwarnings("ignore", message=r"axis .* was declared dynamic|axes .* were declared apart")
        made = stages(declared)
    held = [match for match in map(_DECLARED.fullmatch, made.remarks) if match]
    return _with_reasons(declared, found, {match["label"]: match["reason"] for match in held}), made


def _with_reasons(run: Run, found: FreeAxes, reasons: Mapping[str, str]) -> Run:
    static = {name: dict(axes) for name, axes in found.static.items()}
    for name, named in found.dynamic.items():
        for axis, label in named.items():
            if label in reasons:
                static.setdefault(name, {})[axis] = reasons[label]
    return dataclasses.replace(run, free_axes=dataclasses.replace(found, static=static))


def _found(run: Run) -> FreeAxes:
    args, kwargs = run.weights.arguments(copied(run.arguments))
    request = Request(run.model, args, kwargs, "auto", run.options.input_names, run.options.dynamic_axes)
    flat = flatten(request)
    labels = named_axes(request, flat.names, flat.tensors, flat.paths)
    if run.weights.valueless_tensors:
        return FreeAxes(_every_axis(flat, labels), given=given_names(run))  # torch.export finds out, without values
    mode = select_model_mode_for_export(run.model, run.options.training)

    forms: list[list[Any]] = []  # that of the example is the first

    def runs(tensors: Sequence[torch.Tensor]) -> str | None:
        copies = [_not_all_ones(tensor.detach().clone()) for tensor in tensors]
        given, keywords = flat.rebuild([run.numbers.get(place, copied) for place, copied in enumerate(copies)])
        try:
            with attributes_kept(run.model):
                forms[1:] = [_form(run.model(*given, **keywords))]
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return None if forms[0] == forms[-1] else "the results are then others, or have other numbers of axes"

    kept = preserved(run.model)
    with mode, run.weights.swapped(), kept, exporting(), quiet_torch(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if runs(flat.tensors) is not None:
            return FreeAxes()  # the capture has the error
        found = free_axes(flat.tensors, flat.names, flat.paths, runs, labels)
        return dataclasses.replace(found, given=given_names(run))


def _form(results: Any) -> list[Any]:
    """The names, types and ranks of results, without their sizes."""
    return [
        (path, leaf.dtype, leaf.dim()) if isinstance(leaf, torch.Tensor) else (path, type(leaf))
        for path, leaf in results_in(results)
    ]


def _not_all_ones(tensor: torch.Tensor) -> torch.Tensor:
    """A mask in which something is masked: with a mask of ones a model may not look at the mask and its sizes."""
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    if whole and tensor.dim() and tensor.shape[-1] > 1 and bool((tensor == 1).all()):
        tensor[..., 0] = 0
    return tensor


def _every_axis(flat: Flat, labels: Mapping[str, Axes]) -> dict[str, Axes]:
    return {
        name: {axis: labels.get(name, {}).get(axis, own_name(name, axis)) for axis in range(tensor.dim())}
        for name, tensor in zip(flat.names, flat.tensors, strict=True)
        if tensor.dim()
    }
