"""Why torch could not run a call or a model: the code of what it raised.

torch says most of it by the class of its errors; where it has none, its words are read here and nowhere else.
"""

from __future__ import annotations

from torch._subclasses import fake_tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

_BY_CLASS: tuple[tuple[str, str], ...] = (
    # the name of a class, which not every version of torch has
    ("FakeTensorDeviceMismatchError", "different-devices"),
    ("UnsupportedOperatorException", "no-shape-function"),
)
_CLASSES: tuple[tuple[type[BaseException], str], ...] = (
    (GuardOnDataDependentSymNode, "data-dependent-size"),
    *((getattr(fake_tensor, name), code) for name, code in _BY_CLASS if hasattr(fake_tensor, name)),
)
_BY_WORDS = (
    ("different devices", "different-devices"),
    ("INTERNAL ASSERT FAILED", "torch-internal-error"),
)


def code_of(error: BaseException, otherwise: str) -> str:
    """The code of an error of torch's, or of what caused it; ``otherwise`` where nothing tells."""
    cause: BaseException | None = error
    while cause is not None:
        for kind, code in _CLASSES:
            if isinstance(cause, kind):
                return code
        for words, code in _BY_WORDS:
            if words in str(cause):
                return code
        cause = cause.__cause__
    return otherwise
