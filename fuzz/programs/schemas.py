"""Calls made of the schemas of all operators that have a rule: arguments by their declared types, and torch decides.

What torch refuses is dropped; a call that torch takes is one that an exporter may meet.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from fuzz.programs.choose import CLASSES, Chooser
from fuzz.programs.worlds import Unfit
from purexport.lowering.rules import registered


def _words(text: str) -> list[str]:
    return text.split()


# name -> why no call of it is made
NOT_CALLED = {
    "to": "torch takes a zero-dim tensor for the number of a dtype",
    **dict.fromkeys(
        _words(
            """
alpha_dropout bernoulli cauchy dropout exponential feature_alpha_dropout feature_dropout geometric
log_normal multinomial native_dropout normal normal_functional rand rand_like randint randint_like
randn randn_like randperm rrelu uniform fractional_max_pool2d fractional_max_pool3d
"""
        ),
        "its numbers are drawn",
    ),
    **dict.fromkeys(
        _words(
            """
empty empty_like empty_permuted empty_strided new_empty new_empty_strided
"""
        ),
        "its numbers are left open",
    ),
    **dict.fromkeys(
        _words(
            """
_linalg_eigh _linalg_svd geqrf linalg_eigh linalg_householder_product linalg_ldl_factor
linalg_ldl_factor_ex linalg_qr linalg_svd orgqr ormqr qr svd
"""
        ),
        "signs of vectors are free",
    ),
    **dict.fromkeys(
        _words(
            """
cholesky cholesky_inverse linalg_cholesky linalg_inv inverse linalg_solve linalg_lu_solve lu_solve
linalg_cholesky_ex linalg_inv_ex linalg_ldl_solve linalg_lstsq linalg_lu_factor linalg_lu_factor_ex
linalg_lu _lu_with_info
"""
        ),
        "torch raises for some matrices, where a file computes on (docs/limits.md)",
    ),
    **dict.fromkeys(
        ["searchsorted", "bucketize"], "boundaries that are not sorted have no places; rows make sorted ones"
    ),
    **dict.fromkeys(
        ["_weight_norm", "_weight_norm_interface"], "torch checks no sizes or strides of them, and damages its memory"
    ),
    **dict.fromkeys(
        _words(
            """
native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _native_batch_norm_legit_functional
"""
        ),
        "torch's kernels check no shapes of what they are given; rows make fitting ones",
    ),
    **dict.fromkeys(
        ["_weight_int8pack_mm", "histogramdd", "_pdist_forward", "_prelu_kernel"],
        "its arguments are too special to be drawn",
    ),
    **dict.fromkeys(
        _words(
            """
quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic
_make_per_tensor_quantized_tensor dequantize
"""
        ),
        "quantized tensors are no results of a file",
    ),
}
_LAYOUT = frozenset(
    _words(
        """
layout device pin_memory memory_format non_blocking
"""
    )
)
_AXES = frozenset(
    _words(
        """
dim dim0 dim1 dim2 axis axis0 axis1 axis2 start_dim end_dim dims
"""
    )
)


@functools.lru_cache(maxsize=1)
def callable_schemas() -> tuple[Any, ...]:
    """The schemas of the operators with a rule that give tensors, in the order of their names."""
    found = []
    for target in sorted(name for name in registered() if name.startswith("aten::") and "@" not in name):
        name, _, overload = target.removeprefix("aten::").partition(".")
        schema = torch._C._get_schema(f"aten::{name}", overload)
        kinds = [str(item.type) for item in schema.returns]
        wanted = any(str(item.type).startswith(("Tensor", "List[Tensor]")) for item in schema.arguments)
        given = all(kind in ("Tensor", "List[Tensor]") for kind in kinds) and kinds
        if name not in NOT_CALLED and wanted and given:
            found.append(schema)
    return tuple(found)


def call(chooser: Chooser) -> str:
    """A row with `$` for each result, of an operator at random.  Raises Unfit where no argument can be made."""
    schema = chooser.rng.choice(callable_schemas())
    positional, keywords = [], []
    skipped = False
    for argument in schema.arguments:
        if argument.has_default_value() and (argument.name in _LAYOUT or chooser.rng.random() < 0.6):
            skipped = True
            continue
        text = _argument(chooser, argument.name, str(argument.type))
        if argument.kwarg_only or skipped:
            keywords.append(f"{argument.name}={text}")
        else:
            positional.append(text)
    results = ", ".join("$" for _ in schema.returns)
    listed = str(schema.returns[0].type) == "List[Tensor]"
    name = schema.name.removeprefix("aten::")
    return f"{results} = torch.ops.aten.{name}({', '.join(positional + keywords)})" + ("[0]" if listed else "")


def _argument(chooser: Chooser, name: str, kind: str) -> str:
    rng = chooser.rng
    if kind.startswith("Optional["):
        kind = kind[len("Optional[") : -1]
        if (rng.random() < 0.5 and kind != "Tensor") or rng.random() < 0.3:
            return "None"
    if name in _LAYOUT:
        raise Unfit("a layout")
    if name == "dtype":
        return chooser._dtype("")
    if name == "reduction" and kind == "int":
        return str(rng.randrange(3))
    if kind == "Tensor":
        text = _tensor(chooser)
        chooser.chosen.setdefault("a", text)
        return text
    if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
        first = _argument(chooser, name, "Tensor")
        chooser.chosen["b"] = first
        return f"[{', '.join([first, *[chooser._same('b') for _ in range(rng.randrange(3))]])}]"
    if kind == "int":
        return chooser._dim("a") if name in _AXES and "a" in chooser.chosen else str(rng.choice([0, 1, 2, -1, 3, 1]))
    if kind == "List[int]":
        if name in ("dim", "dims") and "a" in chooser.chosen:
            return chooser._dims("a")
        return str([rng.choice([0, 1, 2, 1, 3]) for _ in range(rng.choice([1, 2, 2, 3]))])
    if kind in ("float", "number"):
        return rng.choice(
            ["0.5", "1.0", "2.0", "0.25", "-1.0"] if kind == "float" else ["2", "0.5", "1", "-1.5", "3", "0"]
        )
    if kind == "List[float]":
        return str([rng.choice([0.5, 2.0, 1.0]) for _ in range(rng.choice([1, 2]))])
    if kind == "bool":
        return chooser._flag("")
    raise Unfit(f"no {kind} is made")


def _tensor(chooser: Chooser) -> str:
    draw = chooser.rng.random()
    if "a" in chooser.chosen and draw < 0.5:
        like = chooser.of("a")
        return chooser._same("a") if like.dtype in CLASSES["num"] and draw < 0.25 else chooser._mate("a")
    return chooser.tensor(CLASSES["real" if draw < 0.8 else "any"])


def known_operators() -> int:
    """How many operators of plain tensors have a rule."""
    return sum("@" not in name for name in registered())
