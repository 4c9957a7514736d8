"""`register_custom_op_symbolic`: symbolic functions by operator name and opset.

This is global state, because the interface of torch.onnx is global: a registered function counts for every later
export of the process.  It is one object behind a lock.  An export takes what is registered when it begins, and never
changes it.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

# second names of operators, and the names under which torch's tracer records them; the arguments are the same
_SECOND_NAMES = """
    absolute:abs adjoint:mH arccos:acos arccosh:acosh arcsin:asin arcsinh:asinh arctan:atan arctan2:atan2 arctanh:atanh
    clip:clamp det:linalg_det divide:div fix:trunc ger:outer greater:gt greater_equal:ge inverse:linalg_inv less:lt
    less_equal:le linalg_matmul:matmul matrix_exp:linalg_matrix_exp matrix_power:linalg_matrix_power moveaxis:movedim
    multiply:mul negative:neg not_equal:ne orgqr:linalg_householder_product special_digamma:digamma special_erf:erf
    special_erfc:erfc special_erfinv:erfinv special_exp2:exp2 special_expit:sigmoid special_expm1:expm1
    special_gammaln:lgamma special_i0:i0 special_log1p:log1p special_log_softmax:log_softmax special_logit:logit
    special_logsumexp:logsumexp special_multigammaln:mvlgamma special_polygamma:polygamma special_psi:digamma
    special_round:round special_sinc:sinc special_softmax:softmax special_xlogy:xlogy subtract:sub swapaxes:transpose
    swapdims:transpose true_divide:div
"""
RECORDED_AS = {
    f"aten::{name}": f"aten::{recorded}"
    for name, _, recorded in (pair.partition(":") for pair in _SECOND_NAMES.split())
}
_NAME = re.compile(r"([A-Za-z_][\w.]*)?::[A-Za-z_]\w*(\.\w+)?")
_CUT = re.compile(r"^(aten::__[a-z]+_)$")  # torch.onnx takes one underscore off the end of a name, as of in-place ones


class Registry:
    """Symbolic functions by name, and for each the lowest opset that it applies to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[str, dict[int, Callable[..., Any]]] = {}

    def register(self, name: str, function: Callable[..., Any], opset: int) -> None:
        """From `opset` on, `function` writes the operator `name`."""
        with self._lock:
            self._functions.setdefault(name, {})[opset] = function

    def unregister(self, name: str, opset: int) -> bool:
        """Forget what was registered for exactly that opset; False if nothing was."""
        with self._lock:
            versions = self._functions.get(name, {})
            found = versions.pop(opset, None) is not None
            if name in self._functions and not versions:
                del self._functions[name]
            return found

    def at(self, opset: int) -> dict[str, Callable[..., Any]]:
        """What applies at `opset`: for each name the function of the highest opset that is not above it."""
        with self._lock:
            found = {}
            for name, versions in self._functions.items():
                fitting = [version for version in versions if version <= opset]
                if fitting:
                    found[name] = versions[max(fitting)]
            return found

    def above(self, opset: int) -> dict[str, int]:
        """What applies at higher opsets alone: for each name the lowest of them."""
        with self._lock:
            return {name: min(found) for name, found in self._functions.items() if min(found) > opset}


REGISTRY = Registry()


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """From `opset_version` on, `symbolic_fn(g, *args)` writes the operator `symbolic_name`, such as "my::foo".

    An ATen name (`"aten::relu"`, `"aten::add.Tensor"`, or short `"::relu"`) replaces our own rule.  The function gets
    the arguments in the order of the operator's schema; `symbolic_helper.parse_args` turns them into Python values.
    Raises ValueError for a name without a namespace or an opset that is no number, TypeError if it gets no function.
    """
    name = _checked(symbolic_name, opset_version)
    if not callable(symbolic_fn):
        raise TypeError(f"the symbolic function of {symbolic_name} is a {type(symbolic_fn).__name__}, no function")
    REGISTRY.register(name, symbolic_fn, opset_version)


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget what `register_custom_op_symbolic` registered for this name and opset; warns if nothing was registered."""
    name = _checked(symbolic_name, opset_version)
    if not REGISTRY.unregister(name, opset_version):
        text = f"no symbolic function is registered for {symbolic_name} at opset {opset_version}"
        warnings.warn(text, UserWarning, stacklevel=2)


def _checked(name: str, opset: int) -> str:
    """The name with its namespace: an empty one is that of ATen, and `aten::__and_` is `aten::__and__`, as there."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not an operator name; write it with its namespace, as in 'mydomain::foo'")
    if not isinstance(opset, int) or isinstance(opset, bool) or opset < 1:
        raise ValueError(f"opset_version={opset!r} is not an opset; give the first one that the function is for")
    name = f"aten{name}" if name.startswith("::") else name
    return _CUT.sub(r"\1_", name)
