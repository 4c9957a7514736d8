"""Which programs are well-conditioned: those whose results stay where they are when inexact operations err a little.

Under `Noise` each operation that may round its operands or its result differently in another library does so: both
are moved by some units in the last place.  What only moves, compares or chooses numbers is exact and is left alone, so
that ties and borders of the inputs stay ties and borders.  A program whose results move by more than a fraction of the
tolerance under noise says nothing about an exporter, and is not made; so tolerances need not be widened.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tolerances import CHAIN

# about what an operation errs by, of its result: some units in the last place, more of float64 (series are longer)
ERROR = {torch.float16: 1e-3, torch.float32: 4e-7, torch.float64: 2e-13}
SHARE = 0.125  # of the tolerance that noise may use up
LARGEST = {torch.float16: 1e2, torch.float32: 1e4, torch.float64: 1e4}


def _words(text: str) -> list[str]:
    return text.split()


# operators that move, compare, choose or round once as IEEE says; views are exact by their schemas; kthvalue is none of
# them, for which of equal numbers it points at is left open
EXACT = frozenset(
    _words(
        """
abs all amax amin aminmax any arange argmax argmin argsort as_strided_scatter bitwise_and
bitwise_not bitwise_or bitwise_xor bucketize cat ceil clamp clamp_max clamp_min clone col2im
constant_pad_nd copy copysign count_nonzero cummax cummin diag_embed diagonal_scatter embedding eq
fill fix flip floor fmax fmin frac full full_like gather ge gt hardtanh heaviside im2col index
index_copy index_fill index_put index_select isfinite isinf isnan le leaky_relu logical_and
logical_not logical_or logical_xor lt masked_fill masked_scatter masked_select max
max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum mul div sub add neg ne
nonzero ones ones_like positive put reflection_pad1d reflection_pad2d reflection_pad3d relu repeat
replication_pad1d replication_pad2d replication_pad3d roll round scalar_tensor scatter searchsorted
select_scatter sgn sign signbit slice_scatter sort stack take threshold topk tril triu trunc unique
unique_consecutive unique_dim where zero zeros zeros_like _to_copy _unique2 _unsafe_view
_local_scalar_dense nanmedian mode nan_to_num rot90 new_full new_zeros new_ones eye
upsample_nearest1d upsample_nearest2d upsample_nearest3d lift_fresh lift_fresh_copy view_copy
"""
    )
)

# of these, what rounds halves: a runtime without a kernel for halves computes in float32, and may not round in between
ROUNDED = frozenset(_words("add sub mul col2im"))
HALF = torch.float16


class Noise(TorchDispatchMode):
    """Moves the operands and results of inexact operations by a few units in the last place, by a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if _is_exact(func, schema, args, kwargs):
            result = func(*args, **kwargs)
            if schema.name.removeprefix("aten::").removesuffix("_") in ROUNDED and result.dtype is HALF:
                result.copy_(self._rounded_otherwise(result))
            return result
        written = {i for i, a in enumerate(schema.arguments) if a.alias_info is not None}
        moved = [value if i in written else self._moved(value) for i, value in enumerate(args)]
        result = func(*moved, **kwargs)
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.dtype in ERROR:
                value.copy_(self._moved(value))
        return result

    def _rounded_otherwise(self, value: torch.Tensor) -> torch.Tensor:
        """Each number by half a unit or more to either side."""
        sides = torch.randint(0, 2, value.shape, generator=self.generator) * 2 - 1
        return (value.double() * (1 + ERROR[HALF] / 2 * sides)).to(HALF)

    def _moved(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._moved(item) for item in value]
        if not isinstance(value, torch.Tensor) or value.dtype not in ERROR:
            return value
        noise = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        if value.dtype is torch.float16:  # by one unit at least: a runtime may compute in float32 and never round
            noise = noise.sign()
        error = ERROR[value.dtype] * noise  # what is nearly zero may be so because parts cancelled inside the operation
        moved = (value * (1 + error) + 0.05 * error).to(value.dtype)
        # and it may be zero where that happens in another order
        return moved.masked_fill((value.abs() < ERROR[value.dtype]) & (value != 0) & (noise > 0), 0)


def _is_exact(func: Any, schema: Any, args: Any, kwargs: Any) -> bool:
    name = schema.name.removeprefix("aten::")
    if kwargs.get("alpha", 1) != 1 or kwargs.get("accumulate"):
        return False
    if name in ("add", "sub", "add_", "sub_") and len(args) > 2:
        return False
    if name in ("index_put", "index_put_", "put") and len(args) > 3 and args[3]:
        return False
    if name in ("scatter", "scatter_") and ("reduce" in str(func) or "reduce" in kwargs):
        return False
    if name.removesuffix("_") in EXACT:
        return True
    return any(a.alias_info is not None and not a.alias_info.is_write for a in schema.arguments)


def near(found: torch.Tensor, wanted: torch.Tensor, share: float = 1.0) -> bool:
    """Equal in dtype and shape, and in value to `share` of what a chain of operations may be off by."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    relative, absolute = CHAIN.of(wanted.dtype)
    if not absolute:
        return torch.equal(found, wanted)
    return torch.allclose(found, wanted, rtol=relative * share, atol=absolute * share, equal_nan=True)


def is_plain(tensor: torch.Tensor) -> bool:
    """No number is infinite, NaN or so large that its errors are."""
    if not tensor.is_floating_point():
        return tensor.dtype == torch.bool or not tensor.numel() or int(tensor.abs().max()) < 1 << 30
    return bool(tensor.isfinite().all()) and not bool((tensor.abs() > LARGEST[tensor.dtype]).any())
