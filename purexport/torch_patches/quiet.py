"""Silences torch's loggers: torch logs pages about what it refuses, and the error that we raise says it once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Inside, drop the records of torch's loggers from this thread; records from other threads pass."""
    thread = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    names = [name for name in list(logging.root.manager.loggerDict) if name == "torch" or name.startswith("torch.")]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(others)
