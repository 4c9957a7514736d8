"""Everything that is replaced in torch, one row each; nothing outside this folder replaces anything in torch.

Two things are not in the table.  Our own operators are declared once and stay (`torch.library`).  What `patch()` puts
into torch.onnx stays until the user undoes it; `compat/torch_onnx.py` has that list.
Invariant: after the context everything is what it was before, also after an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import function as autograd
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from purexport.torch_patches.attention import attention_function, plain_attention, symbols_taken_by_attention
from purexport.torch_patches.autograd import applied_by, forward_handed_to, left_whole_by_dynamo
from purexport.torch_patches.before_composites import below, calls_before_composites, key_is_excluded, key_is_included
from purexport.torch_patches.calls import functions_handed_to, operators_handed_to
from purexport.torch_patches.conversions import conversions_recorded, replaced_conversions
from purexport.torch_patches.eager import stance, uncompiled
from purexport.torch_patches.empty import parameters_without_values
from purexport.torch_patches.fake_results import known_results, layouts_changed_at_once, quick_implementations
from purexport.torch_patches.fakes import counts_typed, implementations
from purexport.torch_patches.flexible_attention import flexible_attention, plain_flexible_attention
from purexport.torch_patches.math_functions import functions_of_math, math_recorded
from purexport.torch_patches.quiet import quiet_torch
from purexport.torch_patches.scans import scan_of_torch, scans_in_rounds
from purexport.torch_patches.sizes import (
    answering,
    conditions_handed_to,
    deciding_conditions,
    examples_asked_first,
    hash_of_sizes,
    keeps_results,
    layouts_not_noted,
    noting,
    results_not_kept,
    sizes_below_two,
    sizes_hashed,
    small_sizes_counted,
)
from purexport.torch_patches.torch_jit import (
    answer_of_torch,
    called_a_trace,
    calls_of_scripts,
    scripts_handed_to,
)


@dataclass(frozen=True)
class TorchPatch:
    """One replacement.

    `context` is the context manager that replaces `replaced`, for the reason `reason`.  `now` returns what is in its
    place at the moment, for comparison.  `since` is a release of torch that already has what is replaced.
    """

    context: Callable[..., AbstractContextManager[Any]]
    replaced: str
    reason: str
    since: tuple[int, int]
    now: Callable[[], Any]

    @property
    def name(self) -> str:
        """The name of the context manager."""
        return self.context.__name__


def _filters() -> Any:
    loggers = [logging.getLogger(name) for name in sorted(logging.root.manager.loggerDict) if name.startswith("torch")]
    return {logger.name: list(logger.filters) for logger in loggers}


def _told_to_dynamo() -> Any:
    from torch._dynamo import trace_rules

    return set(trace_rules._allowed_callable_ids())


PATCHES = (
    TorchPatch(
        functions_handed_to,
        "the modes of torch.overrides.TorchFunctionMode",
        "a trace and torch.export record some functions in a form that loses what an ONNX file needs: a literal that "
        "is written to, verdicts on tensors, checks of arguments, numbers in an index",
        (2, 0),
        _get_current_function_mode_stack,
    ),
    TorchPatch(
        operators_handed_to,
        "the modes of torch.utils._python_dispatch.TorchDispatchMode",
        "a model of transformers runs on fake tensors, and torch would be asked the same for each of its layers",
        (2, 0),
        _get_current_dispatch_mode_stack,
    ),
    TorchPatch(
        calls_before_composites,
        "the dispatch key DeferredInit, included for the thread",
        "composite operators such as linear and layer_norm fall apart before a mode of torch sees them",
        (2, 0),
        key_is_included,
    ),
    TorchPatch(
        below,
        "the dispatch key DeferredInit, excluded for the thread",
        "what the recorder itself asks of torch is no part of the model",
        (2, 0),
        key_is_excluded,
    ),
    TorchPatch(
        called_a_trace,
        "torch.jit.is_tracing, torch.jit._trace.is_tracing",
        "libraries take the way that holds for all sizes only where they are told that they are traced",
        (2, 0),
        answer_of_torch,
    ),
    TorchPatch(
        scripts_handed_to,
        "__call__ of torch.jit.ScriptModule and ScriptFunction",
        "a script runs without Python, which would see its calls with the example's sizes, on one of its branches",
        (2, 0),
        calls_of_scripts,
    ),
    TorchPatch(
        sizes_hashed,
        "torch.SymInt.__hash__",
        "a symbolic size is no key for torch, and functions that keep their results by sizes do not run",
        (2, 1),
        hash_of_sizes,
    ),
    TorchPatch(
        uncompiled,
        "the stance of torch.compiler",
        "the compiler cannot look at tensors without data, and what it makes of a model is not what the model calls",
        (2, 6),
        stance,
    ),
    TorchPatch(
        math_recorded,
        "functions of Python's module math, and torch.ceil, floor, round and sqrt",
        "they make the example's number of a size",
        (2, 0),
        functions_of_math,
    ),
    TorchPatch(
        conversions_recorded,
        "int, float, len, range and the like, as modules of the model that convert sizes see them",
        "Python makes numbers of sizes there, and the file would have those of the example",
        (2, 0),
        replaced_conversions,
    ),
    TorchPatch(
        plain_attention,
        "torch.backends.mha",
        "in eval mode attention layers run a fused operator, which has no decomposition",
        (2, 3),
        torch.backends.mha.get_fastpath_enabled,
    ),
    TorchPatch(
        symbols_taken_by_attention,
        "torch.nn.functional.scaled_dot_product_attention",
        "a symbolic `is_causal`, which code gets of `n > 1 and mask is None`, is refused",
        (2, 0),
        attention_function,
    ),
    TorchPatch(
        plain_flexible_attention,
        "flex_attention_hop of torch.nn.attention.flex_attention, and whether torch compiles it",
        "torch calls one operator whose operands are programs, or its compiler, and a file can hold neither",
        (2, 6),
        flexible_attention,
    ),
    TorchPatch(
        applied_by,
        "torch.autograd.function._SingleLevelFunction.apply",
        "a Function with a `symbolic` is one call in the graph, not what its forward does",
        (2, 0),
        lambda: vars(autograd._SingleLevelFunction).get("apply"),
    ),
    TorchPatch(
        forward_handed_to,
        "forward of each subclass of torch.autograd.Function with a `symbolic`",
        "since torch 2.14 a bound `apply` that the model stored before calls nothing else of Python",
        (2, 0),
        lambda: [kind.forward for kind in autograd.Function.__subclasses__()],
    ),
    TorchPatch(
        left_whole_by_dynamo,
        "torch._dynamo.trace_rules._allowed_callable_ids",
        "torch compiles the bodies of torch.cond and its like, and its compiler would take such Functions apart",
        (2, 3),
        _told_to_dynamo,
    ),
    TorchPatch(
        scans_in_rounds,
        "torch._higher_order_ops.associative_scan.generic_associative_scan",
        "torch takes the axis of a scan apart by its size, which would become static",
        (2, 6),
        scan_of_torch,
    ),
    TorchPatch(
        counts_typed,
        "torch._subclasses.fake_impls.op_implementations_dict",
        "before torch 2.12 fake results of unique and bincount have the dtype of the values, not of counts and weights",
        (2, 3),
        lambda: dict(implementations()),
    ),
    TorchPatch(
        small_sizes_counted,
        "torch.fx.experimental._config.backed_size_oblivious",
        "torch.export takes every dynamic size to be 2 or more, and does not say what it decided by that",
        (2, 6),
        sizes_below_two,
    ),
    TorchPatch(
        results_not_kept,
        "torch._dynamo.config.fake_tensor_cache_enabled",
        "with symbolic sizes torch takes longer to find a result again than to make it",
        (2, 2),
        keeps_results,
    ),
    TorchPatch(
        known_results,
        "torch._subclasses.fake_impls.FAST_OP_IMPLEMENTATIONS",
        "with symbolic sizes torch expands a normalization into a dozen operators to learn what its result looks like",
        (2, 2),
        lambda: dict(quick_implementations()),
    ),
    TorchPatch(
        layouts_changed_at_once,
        "torch._subclasses.fake_impls.op_implementations_dict",
        "with symbolic sizes torch takes longer to change the layout of a convolution's result than for all else of it",
        (2, 3),
        lambda: dict(implementations()),
    ),
    TorchPatch(
        layouts_not_noted,
        "torch.fx.experimental.proxy_tensor._extract_tensor_metadata",
        "with symbolic sizes a fifth of the time goes into notes of how tensors lie in memory, which nobody reads",
        (2, 2),
        noting,
    ),
    TorchPatch(
        examples_asked_first,
        "torch.fx.experimental.symbolic_shapes._guard_or",
        "torch searches for a proof where the example shows already that there is none",
        (2, 6),
        answering,
    ),
    TorchPatch(
        conditions_handed_to,
        "torch.fx.experimental.sym_node.SymNode.guard_bool",
        "torch.export refuses the question whether a filter left anything, though the general case covers it",
        (2, 1),
        deciding_conditions,
    ),
    TorchPatch(
        parameters_without_values,
        "torch.nn.Module.register_parameter",
        "a model is made for the weights of a folder: its parameters take no memory, and its buffers are computed",
        (2, 0),
        lambda: torch.nn.Module.register_parameter,
    ),
    TorchPatch(
        quiet_torch,
        "the filters of torch's loggers",
        "torch logs pages about what it refuses; the error that we raise says it once",
        (2, 0),
        _filters,
    ),
)
