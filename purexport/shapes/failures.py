"""Why torch could not run a call or a model: the code of what it raised.

torch says most of it by the class of its errors; where it has none, its words are read here and nowhere else.
"""

from __future__ import annotations

# Classes of torch by name: not every version has each, and the module of the first loads sympy.
_BY_CLASS = (
    ("GuardOnDataDependentSymNode", "data-dependent-size"),
    ("FakeTensorDeviceMismatchError", "different-devices"),
    ("UnsupportedOperatorException", "no-shape-function"),
)
_BY_WORDS = (
    ("different devices", "different-devices"),
    ("INTERNAL ASSERT FAILED", "torch-internal-error"),
)


def code_of(error: BaseException, otherwise: str) -> str:
    """The code of an error of torch's, or of what caused it; `otherwise` where nothing tells."""
    cause: BaseException | None = error
    while cause is not None:
        kinds = {kind.__name__ for kind in type(cause).__mro__ if kind.__module__.startswith("torch.")}
        for name, code in _BY_CLASS:
            if name in kinds:
                return code
        for words, code in _BY_WORDS:
            if words in str(cause):
                return code
        cause = cause.__cause__
    return otherwise
