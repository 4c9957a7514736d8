"""Calls of the operators that have a fact: at least one for each, so that a test can see whether the fact is true.

An example is a call on real tensors.  `kept` holds what stands for an argument in a graph where that differs: packed
weights, which are objects of torch, are lists there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Call, ListType, ScalarType, TensorType, tensor_type
from purexport.aten.names import operator_of
from purexport.aten.schema import bind


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers that differ from each other, some of them negative."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    return (count * 0.5 - 1).to(dtype)


def integers(*data: int) -> torch.Tensor:
    return torch.tensor(data)


def mask(*data: int) -> torch.Tensor:
    return torch.tensor(data, dtype=torch.bool)


@dataclass
class Example:
    """A call; `real` holds its arguments by name."""

    target: str
    real: dict[str, Any]
    kept: Mapping[str, Any] = field(default_factory=dict)

    def fresh(self) -> dict[str, Any]:
        """The arguments, tensors copied, so that a call may write to them."""
        return {name: _copied(item) for name, item in self.real.items()}

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """torch's own result."""
        operator: Any = operator_of(self.target)
        with torch.no_grad():
            return operator(**arguments)

    def call(self) -> tuple[Call, dict[AtenValue, torch.Tensor]]:
        """The call as a graph holds it, and its tensors."""
        known: dict[AtenValue, torch.Tensor] = {}

        def value(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                made = AtenValue(
                    TensorType(item.dtype, tuple(item.shape), None if item.is_quantized else item.stride())
                )
                known[made] = item
                return made
            return [value(one) for one in item] if isinstance(item, (list, tuple)) else item

        args = {name: value(item) for name, item in {**self.real, **self.kept}.items()}
        return Call(self.target, args, [AtenValue(type_of(item)) for item in results(self.run(self.fresh()))]), known


def results(found: Any) -> list[Any]:
    """What a call gives, as the outputs of a call in a graph."""
    return list(found) if isinstance(found, tuple) else [found]


def type_of(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return TensorType(item.dtype, tuple(item.shape)) if item.is_quantized else tensor_type(item)
    return ListType() if isinstance(item, list) else ScalarType(type(item))


def _copied(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.clone()
    return [_copied(one) for one in item] if isinstance(item, list) else item


def example(target: str, *args: Any, **kwargs: Any) -> Example:
    return Example(target, bind(target, args, kwargs))


X, SQUARE, CUBE = numbers(2, 3), numbers(3, 3), numbers(2, 3, 4)
COMPLEX = torch.complex(numbers(2, 3), numbers(2, 3))
CHANNELS = numbers(3, 2, 2)
STATISTICS = (numbers(3), torch.ones(3))
NET = (numbers(4, 3, 2), None, None, *STATISTICS)
ONES = (numbers(4, 3, 2), torch.ones(3), torch.zeros(3), *STATISTICS)
IMAGE, LINE, VOLUME = numbers(1, 2, 5, 5), numbers(1, 2, 5), numbers(1, 2, 5, 5, 5)
STATE, WEIGHTS = numbers(1, 2, 4), [numbers(4, 3), numbers(4, 4), numbers(4), numbers(4)]
TRUE_BY_TWO = [mask(1, 0, 1), mask(1, 1, 1)]


def weights(gates: int) -> list[torch.Tensor]:
    return [numbers(4 * gates, 3), numbers(4 * gates, 4), numbers(4 * gates), numbers(4 * gates)]


def recurrent(name: str, gates: int, states: Any) -> Iterator[Example]:
    options = (True, 1, 0.0, False, False)
    yield example(f"aten::{name}.input", numbers(5, 2, 3), states, weights(gates), *options, False)
    sizes = integers(2, 2, 1)
    yield example(f"aten::{name}.data", numbers(5, 3), sizes, states, weights(gates), *options)


def transformed(name: str, *axes: Any) -> Example:
    return example(f"aten::{name}", CUBE, *axes)


EXAMPLES: list[Example] = [
    # views
    transformed("view", [6, 4]),
    transformed("view.dtype", torch.int32),
    example("aten::view", numbers(3, 2).t().contiguous(), [-1]),
    example("aten::view_as", CUBE, numbers(6, 4)),
    transformed("unflatten.int", 2, [2, 2]),
    *(example(f"aten::squeeze{name}", numbers(1, 3, 1), *dims) for name, dims in [("", ()), (".dim", (0,))]),
    example("aten::squeeze.dims", numbers(1, 3, 1), [0, 2]),
    transformed("unsqueeze", 1),
    *(example("aten::reshape", tensor, [3, 2]) for tensor in (X, numbers(3, 2).t())),
    *(example("aten::reshape_as", tensor, numbers(3, 2)) for tensor in (X, numbers(3, 2).t())),
    *(example("aten::ravel", tensor) for tensor in (X, numbers(3, 2).t())),
    *(example("aten::flatten.using_ints", tensor, 0, 1) for tensor in (X, numbers(3, 2).t())),
    example("aten::flatten.using_ints", X, 1, -1),
    example("aten::_unsafe_view", X, [3, 2]),
    *(example(f"aten::atleast_{rank}d", tensor) for rank in (1, 2, 3) for tensor in (numbers(), CUBE)),
    *(example(f"aten::{name}", X) for name in ("alias", "detach", "lift_fresh", "positive", "cpu", "lift_fresh_copy")),
    *(example("aten::contiguous", tensor) for tensor in (X, X.t())),
    *(example("aten::to.dtype", X, dtype) for dtype in (torch.float32, torch.float64)),
    *(example("aten::type_as", X, other) for other in (X, integers(1))),
    *(
        example(f"aten::{name}", CUBE, 0.5, train)
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
        for train in (True, False)
    ),
    *(example(f"aten::{name}", x) for name in ("real", "resolve_conj", "resolve_neg", "conj") for x in (X, COMPLEX)),
    example("aten::resolve_conj", COMPLEX.conj()),
    example("aten::resolve_neg", COMPLEX.conj().imag),
    *(example("aten::sum_to_size", X, size) for size in ([2, 3], [1, 3])),
    transformed("transpose.int", 0, -1),
    *(transformed(name, 0, -1) for name in ("swapaxes", "swapdims")),
    example("aten::t", X),
    *(example("aten::numpy_T", item) for item in (X,)),
    *(example(f"aten::{name}", item) for name in ("mT", "mH", "adjoint") for item in (CUBE, X)),
    transformed("permute", [1, -1, 0]),
    transformed("movedim.int", 0, 2),
    transformed("movedim.intlist", [0, 1], [2, 0]),
    transformed("moveaxis.int", -1, 0),
    transformed("moveaxis.intlist", [0, 1], [1, 2]),
    transformed("slice.Tensor", 2, 1, -1, 2),
    transformed("slice.Tensor", 1, None, 2),
    transformed("narrow", 1, 1, 2),
    transformed("narrow", 2, -2, 2),
    transformed("select.int", -1, 2),
    transformed("diagonal", 1, 0, 2),
    example("aten::linalg_diagonal", CUBE, offset=-1),
    example("aten::expand", X, [1, 2, 3]),
    example("aten::expand_as", X, numbers(1, 2, 3)),
    example("aten::broadcast_to", X, [2, 3]),
    example("aten::view_as_complex", numbers(3, 2)),
    example("aten::view_as_real", COMPLEX),
    # pieces
    transformed("split.Tensor", 3, 2),
    transformed("split_with_sizes", [1, 3], 2),
    transformed("chunk", 3, 2),
    transformed("unsafe_split.Tensor", 3, -1),
    transformed("unsafe_split_with_sizes", [1, 3], 2),
    transformed("unsafe_chunk", 3, 2),
    transformed("unbind.int", 1),
    transformed("tensor_split.sections", 3, 2),
    transformed("tensor_split.indices", [1, 3], 2),
    example("aten::hsplit.int", numbers(4), 2),
    example("aten::hsplit.int", numbers(2, 4), 2),
    *(example("aten::hsplit.array", item, [1]) for item in (numbers(4), numbers(2, 4))),
    transformed("vsplit.int", 2),
    transformed("vsplit.array", [1]),
    transformed("dsplit.int", 2),
    transformed("dsplit.array", [1, 3]),
    # in place
    example("aten::normal_", X),
    *(example("aten::bernoulli_.float", X, p) for p in (0.0, 1.0)),
    *(example(f"aten::__{name}__.Tensor", integers(6, 5), integers(3, 1)) for name in ("iand", "ior", "ixor")),
    *(example(f"aten::__{name}__.Tensor", integers(6, 5), integers(3, 1)) for name in ("ilshift", "irshift")),
    example("aten::_index_put_impl_", X, [integers(1)], numbers(3)),
    example("aten::pow_.Scalar", X, 3),
    example("aten::pow_.Tensor", X, torch.full((2, 3), 3.0)),
    example("aten::float_power_.Scalar", X.double(), 3),
    example("aten::float_power_.Tensor", X.double(), torch.full((2, 3), 3.0)),
    example("aten::transpose_", X, 0, 1),
    example("aten::t_", X),
    example("aten::squeeze_", numbers(1, 3, 1)),
    example("aten::squeeze_.dim", numbers(1, 3, 1), 0),
    example("aten::squeeze_.dims", numbers(1, 3, 1), [0, 2]),
    example("aten::unsqueeze_", X, 0),
    example("aten::swapaxes_", X, 0, 1),
    example("aten::swapdims_", X, 0, 1),
    example("aten::detach_", X),
    example("aten::requires_grad_", X, False),
    example("aten::resize_", X, [2, 2]),
    example("aten::set_.source_Tensor", X, numbers(4)),
    example("aten::as_strided_", X, [2], [1]),
    example("aten::resize_as_", X, numbers(2, 2)),
    example("aten::fill_diagonal_", SQUARE, 1.0),
    example("aten::copy_", X, numbers(3)),
    *(example(f"aten::masked_fill{end}.Scalar", X, mask(1, 0, 1), 1.0) for end in ("", "_")),
    *(example(f"aten::{name}_loss", numbers(2, 1), numbers(2, 3), 0) for name in ("mse", "l1")),
    # composites that compute
    *(example("aten::conv1d", LINE, numbers(3, 2, 2)), example("aten::conv2d", IMAGE, numbers(3, 2, 2, 2))),
    example("aten::conv3d", VOLUME, numbers(3, 2, 2, 2, 2)),
    example(
        *("aten::_convolution", IMAGE, numbers(3, 2, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        *(False, False, True, True),
    ),
    example("aten::_convolution_mode", IMAGE, numbers(3, 2, 2, 2), None, [1, 1], "same", [1, 1], 1),
    example("aten::conv_transpose1d", LINE, numbers(2, 3, 2)),
    example("aten::conv_transpose2d.input", IMAGE, numbers(2, 3, 2, 2)),
    example("aten::conv_transpose3d.input", VOLUME, numbers(2, 3, 2, 2, 2)),
    example("aten::linear", X, numbers(4, 3)),
    example("aten::matmul", X, SQUARE),
    example("aten::scaled_dot_product_attention", *[numbers(1, 2, 3)] * 3),
    *(example(f"aten::{name}.int", X, 0) for name in ("softmax", "log_softmax")),
    *(
        example(f"aten::max_pool{rank}d{kind}", item, [size] * rank)
        for rank, item in ((1, LINE), (2, IMAGE), (3, VOLUME))
        for kind in ("", "_with_indices")
        for size in (1, 2)
    ),
    example("aten::avg_pool1d", LINE, [1]),
    example("aten::avg_pool2d", IMAGE, [1, 2]),
    example("aten::avg_pool3d", VOLUME, [1, 2, 1]),
    example("aten::unfold", X, 1, 2, 1),
    *(example(f"aten::{name}", 0, 1, 3) for name in ("linspace", "logspace")),
    *(example(f"aten::{name}_window", 3) for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")),
    *(example(f"aten::{name}_indices", 3, 2, 1) for name in ("tril", "triu")),
    *(
        example(f"aten::adaptive_avg_pool{rank}d", item, [5] * rank)
        for rank, item in ((1, LINE), (2, IMAGE), (3, VOLUME))
    ),
    *(example(f"aten::{name}", X) for name in ("relu6", "selu")),
    example("aten::upsample_nearest2d.vec", IMAGE, None, [1.0, 1.0]),
    *(example(f"aten::upsample_{name}2d.vec", IMAGE, None, False, [1.0, 1.0]) for name in ("bilinear", "bicubic")),
    *(
        example(f"aten::{name}", X, q, *rest)
        for name in ("quantile", "nanquantile")
        for q in (numbers(2).sigmoid(), numbers(1)[0].sigmoid())
        for rest in ((), (1,), (-1, True), (None, True))
    ),
    *(example(f"aten::{name}.scalar", X, 0.5, 0) for name in ("quantile", "nanquantile")),
    # dtypes
    *(
        example(f"aten::{name}.Tensor", X, numbers(3))
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal", "not_equal"]
    ),
    example("aten::logical_not", X),
    *(example(f"aten::logical_{name}", X, numbers(3)) for name in ("and", "or", "xor")),
    *(
        example(f"aten::{name}", X.to(dtype), 0)
        for name in ("cumsum", "cumprod")
        for dtype in (torch.int32, torch.float32)
    ),
    # normalization
    *(example("aten::batch_norm", *NET, training, 0.3, 1e-5, False) for training in (True, False)),
    *(example("aten::native_batch_norm", *NET, training, 0.3, 1e-5) for training in (True, False)),
    *(example("aten::_batch_norm_impl_index", *ONES, training, 0.3, 1e-5, False) for training in (True, False)),
    *(example("aten::instance_norm", *NET, training, 0.3, 1e-5, False) for training in (True, False)),
    example("aten::layer_norm", X, [3]),
    example("aten::group_norm", CHANNELS, 1),
    # sizes that data decides: of each two whose sizes differ
    *(example("aten::_reshape_from_tensor", numbers(6), shape) for shape in (integers(2, 3), integers(6, 1))),
    *(example(f"aten::{name}", item) for name in ("_unique", "_unique2") for item in (integers(1, 2), integers(3, 3))),
    *(example(f"aten::{name}", item) for name in ("argwhere", "nonzero") for item in TRUE_BY_TWO),
    *(example("aten::nonzero_numpy", item) for item in TRUE_BY_TWO),
    *(example("aten::bincount", item) for item in (integers(1, 2), integers(0, 0))),
    *(example("aten::masked_select", numbers(3), item) for item in TRUE_BY_TWO),
    *(example("aten::repeat_interleave.Tensor", item) for item in (integers(1, 2), integers(0, 0))),
    *(example("aten::unique_consecutive", item) for item in (integers(1, 2), integers(3, 3))),
    *(example("aten::unique_consecutive", item, dim=-1) for item in (integers(1, 2), integers(3, 3))),
    *(
        example(f"aten::{name}", item, -1)
        for name in ("unique_dim", "unique_dim_consecutive")
        for item in (integers(1, 2), integers(3, 3))
    ),
    *(example("aten::one_hot", item) for item in (integers(1, 2), integers(3, 3))),
    example("aten::one_hot", integers(1, 2), 7),
    *(example("aten::index.Tensor", numbers(3), [item]) for item in TRUE_BY_TWO),
    example("aten::index.Tensor", CUBE, [None, integers(1, 0), torch.tensor(2)]),
    example("aten::_unsafe_index.Tensor", CUBE, [None, integers(1, 0), torch.tensor(2)]),
    *(example("aten::combinations", numbers(4), r, again) for r in (0, 2, 3) for again in (True, False)),
    *(
        example("aten::tensor_split.tensor_indices_or_sections", numbers(5), item)
        for item in (integers(1), integers(3))
    ),
    example("aten::take_along_dim", numbers(3, 5), torch.tensor([[1, 4]]), 1),
    example("aten::take_along_dim", numbers(3, 5), torch.tensor([[1], [0]])),
    *(example("aten::vander", numbers(4), count, True) for count in (None, 3)),
    example("aten::istft", torch.ones(2, 5, 9, dtype=torch.complex64), 8, 4, 8, torch.ones(8), length=20),
    *(example("aten::affine_grid_generator", numbers(2, r, r + 1), [2, 3, 4, 5, 6][: r + 2], True) for r in (2, 3)),
    example("aten::roll", CUBE, [1, 2], [0, -1]),
    *(
        example(f"aten::adaptive_avg_pool{r}d", numbers(2, 3, 5, 4, 6)[:, 0] if r == 2 else CUBE[None], [2] * r)
        for r in (2, 3)
    ),
    example("aten::group_norm", numbers(2, 4, 3), 2),
    # linear algebra
    *(example("aten::linalg_cond", item) for item in (SQUARE, numbers(2, 4, 3))),
    example("aten::linalg_cond.p_str", torch.eye(3), "fro"),
    example("aten::linalg_matrix_norm", CUBE, 2, [0, -1], True),
    example("aten::linalg_matrix_norm.str_ord", CUBE, "fro", dtype=torch.float64),
    *(example("aten::linalg_norm", CUBE[0], None, dim, keep) for dim in (None, [1]) for keep in (True, False)),
    example("aten::linalg_norm.ord_str", X, "nuc"),
    example("aten::kron", X, integers(1, 2)),
    example("aten::_dim_arange", X, 1),
    *(
        example("aten::_grouped_mm", *args)
        for args in (
            (numbers(6, 4), numbers(2, 4, 8), torch.tensor([2, 6], dtype=torch.int32)),
            (numbers(3, 4), numbers(4, 8), torch.tensor([2, 4], dtype=torch.int32)),
            (numbers(2, 3, 4), numbers(2, 4, 8)),
        )
        if hasattr(torch, "_grouped_mm")  # from torch 2.8 on
    ),
    example("aten::linalg_multi_dot", [X, SQUARE, numbers(3)]),
    example("aten::linalg_multi_dot", [X, SQUARE]),
    *(example("aten::cov", item) for item in (X, numbers(3), X.to(torch.int64), numbers(1, 3))),
    example("aten::cov", X, fweights=integers(1, 2, 1), aweights=numbers(3).double().abs()),
    *(example("aten::corrcoef", item) for item in (X, numbers(3))),
    *(
        example("aten::linalg_lstsq", torch.eye(4, 3), b, None, driver=driver)
        for b in (numbers(4, 2), numbers(4, 1))
        for driver in (None, "gels", "gelsd", "gelss", "gelsy")
    ),
    example("aten::linalg_lstsq", torch.eye(3).expand(2, 3, 3), numbers(2, 3), None),
    *(
        example(
            "aten::ctc_loss.IntList",
            numbers(5, 2, 3).log_softmax(2),
            integers(1, 2, 1, 1).reshape(2, 2),
            [5, 4],
            [2, 1],
            reduction=reduction,
        )
        for reduction in (0, 1)
    ),
    example("aten::ctc_loss.Tensor", numbers(5, 3).log_softmax(1), integers(1, 2), torch.tensor(5), torch.tensor(2)),
    # recurrent layers
    *recurrent("lstm", 4, [STATE[:, :, :4], STATE[:, :, :4]]),
    *(item for name, gates in (("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)) for item in recurrent(name, gates, STATE)),
    # numbers
    example("aten::size.int", CUBE, -1),
    example("aten::numel", CUBE),
    *(example(f"aten::{name}.Tensor", torch.tensor(3)) for name in ("Int", "Float", "Bool")),
    example("aten::IntImplicit", torch.tensor(3)),
    example("aten::scalar_tensor", 3),
    *(example(f"aten::{name}", [2]) for name in ("zeros", "ones")),
    example("aten::full", [2], 3.0),
    *(example(f"aten::{name}", *args) for name, args in [("arange", (3,)), ("arange.start", (1, 3))]),
    *(example(f"aten::{name}", *args) for name, args in [("range", (1, 3)), ("range.step", (0.5, 2, 0.5))]),
]
