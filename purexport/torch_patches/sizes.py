"""Lets torch's symbolic sizes be 0 and 1 too: torch.export takes every dynamic size to be 2 or more otherwise.

Inside, what the model's code asks of a size is recorded for these sizes as well.  Operators are recorded for the
general case, without a question.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAME = "backed_size_oblivious"


def _config() -> Any:
    """torch's settings of symbolic shapes."""
    import torch.fx.experimental._config as config

    return config


def sizes_below_two() -> Any:
    """Whether torch takes sizes of 0 and 1 into account; None in versions that cannot."""
    return getattr(_config(), _NAME, None)


@contextmanager
def small_sizes_counted() -> Iterator[None]:
    """Inside, dynamic sizes may be 0 and 1, in the whole process; nothing changes in versions without the setting."""
    before = sizes_below_two()
    if before is None:
        yield
        return
    setattr(_config(), _NAME, True)
    try:
        yield
    finally:
        setattr(_config(), _NAME, before)
