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


@contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, nothing is compiled.  torch's compiler is not loaded for that: without it nothing is wrapped."""
    if "torch._dynamo.eval_frame" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
