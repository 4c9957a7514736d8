"""In-place operators: the pure operator that computes the same, where its name is not the obvious one.

torch derives most names from each other (`add_` and `add`), and those operators need no row.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.facts.fact import Fact, alike


def _itself(self: torch.Tensor, **others: Any) -> torch.Tensor:
    """torch's own shape function needs sizes that are numbers."""
    return self


def _copied(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """A number fills any sizes; torch's own shape function expands it, and for that asks whether each size is 1."""
    return self if src.dim() == 0 else self.copy_(src, non_blocking)


FACTS = (
    # the pure operator has another name
    Fact("aten::normal_", out_of_place="aten::normal_functional"),
    Fact("aten::bernoulli_", out_of_place={"float": "aten::bernoulli.p"}),
    Fact("aten::__iand__", out_of_place="aten::__and__"),
    Fact("aten::__ior__", out_of_place="aten::__or__"),
    Fact("aten::__ixor__", out_of_place="aten::__xor__"),
    Fact("aten::__ilshift__", out_of_place="aten::__lshift__"),
    Fact("aten::__irshift__", out_of_place="aten::__rshift__"),
    Fact("aten::_index_put_impl_", out_of_place="aten::index_put"),
    # the overloads have other names
    Fact("aten::pow_", out_of_place={"Scalar": "aten::pow.Tensor_Scalar", "Tensor": "aten::pow.Tensor_Tensor"}),
    Fact(
        "aten::float_power_",
        out_of_place={"Scalar": "aten::float_power.Tensor_Scalar", "Tensor": "aten::float_power.Tensor_Tensor"},
    ),
    # the metadata changes (the shape, say), and the bytes do not
    Fact("aten::transpose_", becomes={"": "aten::transpose.int"}),
    Fact("aten::t_", becomes={"": "aten::t"}),
    Fact("aten::squeeze_", becomes={"": "aten::squeeze", "dim": "aten::squeeze.dim", "dims": "aten::squeeze.dims"}),
    Fact("aten::unsqueeze_", becomes={"": "aten::unsqueeze"}),
    Fact("aten::swapaxes_", becomes={"": "aten::swapaxes"}),
    Fact("aten::swapdims_", becomes={"": "aten::swapdims"}),
    Fact("aten::detach_", becomes={"": "aten::detach"}),
    Fact("aten::requires_grad_", becomes={"": "aten::alias"}),
    # the tensor gets other memory, while its views keep the old
    *alike("resize_ set_ as_strided_ resize_as_", Fact("aten::", untraceable=True)),
    Fact("aten::fill_diagonal_", shapes={"": _itself}),
    # the operands are broadcast, and torch has no tag that says so
    Fact("aten::copy_", broadcasts=True, shapes={"": _copied}),
    *alike("masked_fill masked_fill_ mse_loss l1_loss", Fact("aten::", broadcasts=True)),
)
