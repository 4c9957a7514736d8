"""Lets what torch.compile has wrapped run as it was written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def stance() -> Any:
    """How torch takes what is wrapped; None where its compiler is not loaded."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return None if frames is None else getattr(frames, "_stance", None)


def compiler_is_loaded() -> bool:
    """Whether torch's compiler is loaded."""
    return "torch._dynamo.eval_frame" in sys.modules


@contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, nothing is compiled.  torch's compiler is not loaded for that: without it nothing is wrapped."""
    if not compiler_is_loaded() or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
