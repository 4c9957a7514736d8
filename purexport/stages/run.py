"""One export as all of its stages see it: the model, its arguments, the options, and the resources for them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils import _pytree as pytree

from proto_schema.wire.collection import paused_collection
from proto_schema.wire.records import dataclass
from purexport.aten.autograd_functions import AutogradFunctions, recording
from purexport.compat import torch_onnx
from purexport.compat.lent_helpers import lending
from purexport.compat.past_options import arguments_of
from purexport.compat.symbolic.rules import custom_rules
from purexport.errors import ExportError
from purexport.frontends.choose import check_choice
from purexport.frontends.core.calls import refuse_unfit
from purexport.frontends.core.free_axes import FreeAxes
from purexport.frontends.core.mode import compiled_parts_left, initialize_lazy_parts
from purexport.frontends.core.observed import Observed
from purexport.frontends.core.request import NumbersHeldError
from purexport.graph.passes import outline
from purexport.lock import alone
from purexport.options import Options
from purexport.progress import QUANTIZED_STAGES, STAGES, Progress
from purexport.stages.observed import taken
from purexport.weights.model.attach import Attached, with_values

T = TypeVar("T")


class Memory:
    """What the captures of one model leave for later runs: its weights, the autograd Functions that were applied, and
    answers by key.
    """

    def __init__(self, weights: Attached, functions: AutogradFunctions) -> None:
        self.weights = weights
        self.functions = functions
        self._answers: dict[Hashable, Any] = {}
        self._refusals: dict[Hashable, Exception] = {}

    def once(self, key: Hashable, ask: Callable[[], T]) -> T:
        """What `ask` returns or raises; it is called once for each key."""
        if key in self._refusals:
            raise self._refusals[key]
        if key not in self._answers:
            try:
                self._answers[key] = ask()
            except (ExportError, NumbersHeldError) as refused:
                self._refusals[key] = refused
                raise
        found: T = self._answers[key]
        return found

    def keep(self, key: Hashable, answer: object) -> None:
        """Let `answer` be that of another key, too."""
        self._answers.setdefault(key, answer)


@dataclass(frozen=True, eq=False)
class Run:
    """One export.

    `args` and `kwargs` are the arguments for a call of the model, with the user's own tensors.  `rules` are functions
    that take precedence over our rules.  `memory` has what earlier runs of the model found out.  `free_axes` is what
    was found out for `dynamic=True`.  `numbers` are the Python numbers for which `args` and `kwargs` have zero-dim
    tensors, by their positions among the tensors; `constants` are those left, by their positions among all tensors and
    numbers, None for one without an effect.  `varying` are the leaves of the arguments that are numbers which varied
    in observed calls; None where all numbers may vary.  `remarks` are on the arguments.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options
    progress: Progress
    rules: Mapping[str, Callable[..., Any]]
    memory: Memory
    free_axes: FreeAxes | None = None
    numbers: Mapping[int, Any] = field(default_factory=dict)
    constants: Mapping[int, Any] = field(default_factory=dict)
    varying: frozenset[int] | None = None
    remarks: Sequence[str] = ()

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`args` and `kwargs`."""
        return self.args, self.kwargs

    @property
    def weights(self) -> Attached:
        """What replaces tensors of the model."""
        return self.memory.weights


_DEEPEST = 5000
"""Python calls in each other: a module takes several, torch three of them, and Python stops at 1000."""


@contextmanager
def _deep_calls() -> Iterator[None]:
    """Inside, modules may be nested as deeply as torch itself runs them, although each takes more calls here."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def opened(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, options: Options, memory: Memory | None = None
) -> Iterator[Run]:
    """The run of an export, from the capture to the finished message.  No other export runs meanwhile.

    `memory` is that of an earlier run with the same model and arguments, and with options that differ in nothing that
    a capture depends on except `capture_key` (`stages/capture.py`).

    Checks that need no capture come first: before the model runs, and as far as possible before the wait for another
    export.  Raises ValueError for an option that is out of range or does not fit the model, ExportError for invalid
    arguments, WeightsError for weights that do not fit, and OSError for weights that cannot be read.
    """
    check_choice(options.capture)
    outline.check_wanted(options.export_modules_as_functions, model, options.opset)
    progress = Progress(options.progress, STAGES if options.quantize is None else QUANTIZED_STAGES)
    seen: dict[str, Any] = {}
    if isinstance(args, Observed):
        calls = taken(model, args, kwargs, options)
        args, kwargs, options = calls.args, calls.kwargs, calls.options
        seen = {"free_axes": calls.free_axes, "varying": calls.numbers, "remarks": calls.remarks}
    arguments = arguments_of(model, args, kwargs)
    _refuse_odd(arguments)
    refuse_unfit(model, *arguments)
    opset = options.opset
    functions = AutogradFunctions() if memory is None else memory.functions
    with (
        alone(),
        _deep_calls(),
        compiled_parts_left(model) as plain,
        with_values(),
        paused_collection(),
        torch_onnx.told_to_torch(opset),
        lending(opset) as lend,
        recording(functions),
    ):
        progress.at("capture")
        registered = torch_onnx.registered_with_torch(opset)
        rules = custom_rules(opset, options.custom_translation_table, functions, registered, lend)
        initialize_lazy_parts(plain, arguments, options.training)
        memory = memory or Memory(Attached(plain, options.weights), functions)
        if options.verifies:
            memory.weights.refuse_verification(arguments)
        yield Run(plain, *arguments, options, progress, rules, memory, **seen)


def _refuse_odd(arguments: Any) -> None:
    """Raise ExportError for an argument that no input of a file can stand for, and that is no constant either."""
    for leaf in pytree.tree_leaves(arguments):
        if isinstance(leaf, (torch.dtype, np.ndarray)):
            what = leaf if isinstance(leaf, torch.dtype) else "an array of numpy"
            raise ExportError(
                f"args holds {what}, which is not a tensor; pass example tensors"
                + (" (torch.from_numpy)" if isinstance(leaf, np.ndarray) else ""),
                code="argument-not-a-tensor",
            )
        if not isinstance(leaf, torch.Tensor):
            continue
        if leaf.is_nested or leaf.layout != torch.strided:
            kind, way = (
                ("nested", "torch.nested.to_padded_tensor") if leaf.is_nested else (str(leaf.layout), "x.to_dense()")
            )
            raise ExportError(
                f"args hold a {kind} tensor, and inputs of a file are dense; pass {way} and convert it inside of the "
                "model",
                code="argument-layout",
            )
        if leaf.is_quantized:
            raise ExportError(
                "args hold a quantized tensor, and ONNX has none; pass x.dequantize() or x.int_repr()",
                code="quantized-tensor",
            )


def warn_user(remarks: Sequence[str]) -> Sequence[str]:
    """Show each remark as a warning that points at the caller of `export`: the first line outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    for remark in remarks:
        warnings.warn(remark, UserWarning, stacklevel=level)
    return remarks


_PACKAGE = str(Path(__file__).parents[1])
