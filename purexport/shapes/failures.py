"""Why torch could not run a call or a model: the error code for what torch raised.

Most reasons follow from the class of torch's error.  The others follow from its message.  No other module reads the
messages of torch's errors to classify them.
"""

from __future__ import annotations

# torch's classes by name: not every version has all of them, and the module of the first one loads sympy.
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
    """The code for an error that torch raised, or for one of its causes; `otherwise` for an unknown error."""
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
