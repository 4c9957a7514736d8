"""Replaces state of torch's tracer: the paths of modules (per process), and the running trace (per thread)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch

from purexport.torch_patches.torch_jit import create_graph, set_tracing_state, tracer, tracing_state


@contextmanager
def module_paths(paths: Mapping[torch.nn.Module, str]) -> Iterator[None]:
    """Inside, the tracer writes these paths into the scopes of nodes, instead of those of the last traced module."""
    outer = tracer._trace_module_map
    tracer._trace_module_map = dict(paths)
    try:
        yield
    finally:
        tracer._trace_module_map = outer


@contextmanager
def untraced() -> Iterator[None]:
    """Inside, nothing is recorded, and sizes are numbers."""
    state = tracing_state()
    _set_state(None)
    try:
        yield
    finally:
        _set_state(state)


@contextmanager
def traced_in_kernels() -> Iterator[None]:
    """Inside, calls are recorded, also in a kernel that the tracer has called, where the tracer excludes itself."""
    key = torch._C._dispatch_key_parse("Tracer")
    was = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, was)


def after_failure() -> None:
    """Take from the tracer what an indexing that failed (`x[n]` beyond the end) left in it for the next trace.

    The tracer puts a computed position aside until `select` takes it.  So a `select` is traced, and thrown away.
    """
    with suppress(RuntimeError):
        create_graph(lambda tensor: tensor.select(0, 0), (torch.zeros(1),), lambda tensor: "", True, False, None, [])


def _set_state(state: Any) -> None:
    with traced_in_kernels():  # torch refuses to change the state where the tracer is excluded
        set_tracing_state(state)
