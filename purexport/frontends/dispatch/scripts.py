"""Scripts that the model calls: torch runs them, and what they call is recorded, unless they decide something.

The file of a trace has the loops and branches of a script; here there would be those of the example alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from purexport.errors import ExportError
from purexport.torch_patches.torch_jit import is_in_a_script_of_traces


class Scripts:
    """The scripts of one capture that are running; `owner` is the recorder."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._running = 0
        self._refusal: ExportError | None = None

    def run(self, script: Callable[[], Any]) -> Any:
        """What a script gives."""
        self._running += 1
        self._refusal = None
        try:
            return script()
        except Exception:
            if self._refusal is not None:  # torch has made another error of it
                raise self._refusal from None
            raise
        finally:
            self._running -= 1

    def refuse_decision(self) -> None:
        """Raise ExportError for a decision by sizes or elements, if a script makes it."""
        if not self._running and not is_in_a_script_of_traces(sys._getframe(1), self.owner.root):
            return
        try:
            self.owner.refuse("decides in a script by sizes or elements, which is not captured by dispatch")
        except ExportError as refusal:
            self._refusal = refusal
            raise
