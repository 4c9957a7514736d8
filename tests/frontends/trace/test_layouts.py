"""What the route says of results before anything is computed: dtype and sizes are those of torch's real kernels.

`pytest -m sweep` asks about every operator of torch's own database, in every dtype; it needs the package expecttest.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from purexport.errors import ExportError
from purexport.frontends.trace import metas
from purexport.frontends.trace.data import Entry
from purexport.frontends.trace.operators import Operator
from purexport.frontends.trace.recorder import Recorder
from purexport.frontends.trace.tensors import Recorded
from purexport.torch_patches.before_composites import below, calls_before_composites

aten: Any = torch.ops.aten
SAMPLES = 6  # of an operator in a dtype, from all over its list

# what torch's meta functions say otherwise than its kernels, of results that no rule reads
OTHERWISE = {
    "aten::embedding_bag": "the sizes of its second and third results, which only a gradient needs",
    "aten::embedding_bag.padding_idx": "likewise",
    "aten::native_batch_norm": "in eval mode its statistics, which are empty in the kernel",
}


def wrong(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], rows: set[str] | None = None
) -> Iterator[str]:
    """The calls of which something else was said than the kernels give, strides among it where a row said them.

    `rows` gets the names of these rows.
    """
    recorder = Recorder({}, {}, {}, {})
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[place] = recorder.input(leaf.detach(), f"x{place}", {})
    given, named = pytree.tree_unflatten(leaves, spec)
    made: list[tuple[str, bool, Recorded]] = []
    of_rows: list[str] = []
    form_of = metas.form_of

    def form(operator: Operator, bound: Mapping[str, Any]) -> Any:
        found = form_of(operator, bound)
        of_rows.append(operator.target)
        return found

    def by_row(target: str) -> bool:
        name, dot, overload = target.partition(".")
        return target in of_rows and not {target, f"{name.removesuffix('_')}{dot}{overload}"}.isdisjoint(metas.ROWS)

    keep = Entry.made

    def noted(entry: Entry, results: Sequence[Any]) -> None:
        keep(entry, results)
        found = [item for item in pytree.tree_leaves(list(results)) if type(item) is Recorded]
        made.extend((entry.operator.target, by_row(entry.operator.target), item) for item in found)
        of_rows.clear()

    with pytest.MonkeyPatch.context() as patch, torch.no_grad(), calls_before_composites(recorder.call):
        patch.setattr(Entry, "made", noted)
        patch.setattr(metas, "form_of", form)
        function(*given, **named)
    with below(), torch.no_grad():
        for entry in recorder.log:
            if not entry.done:
                recorder.elements._run_entry(entry)
    for target, known, item in made:
        if known and rows is not None:
            rows.add(target)
        real, said = item.elements, item.layout_
        if target in OTHERWISE or real is None:
            continue
        found = (real.dtype, tuple(real.shape), real.stride() if known else None)
        wanted = (said.dtype, tuple(said.example), said.meta.stride() if known else None)
        if found != wanted:
            yield f"{target}: {found}, not {wanted}"


X = torch.rand(4, 6)
HALF = X.to(torch.bfloat16)
WHOLE = torch.arange(12).reshape(3, 4)


def norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4), torch.ones(4), torch.zeros(4))


CALLS: list[tuple[str, Callable[..., Any], Sequence[Any]]] = [
    ("two dtypes", torch.nn.functional.huber_loss, (X, X.double())),
    ("statistics in half precision", torch.native_layer_norm, (HALF, [6], None, None, 1e-5)),
    ("sum of bools", torch.sum, (X > 0.5,)),
    ("running sum of int8", torch.cumsum, (WHOLE.to(torch.int8), 0)),
    ("quotient of integers", torch.div, (WHOLE, 3)),
    ("a number of another kind", torch.mul, (WHOLE, 0.5)),
    ("places that the data decides", torch.nonzero, (X > 0.5,)),
    ("lists in a tuple", torch.histogramdd, (X[:, :2], [3, 2])),
    ("a result that grows", lambda x: torch.add(x, 1, out=torch.empty(0)), (X,)),
    ("quantized", lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).int_repr(), (X,)),
    ("a complex number", torch.fft.rfft, (X,)),
    ("recurrent", lambda x: torch.nn.LSTM(6, 3)(x), (X,)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args"), [item[1:] for item in CALLS], ids=[item[0] for item in CALLS])
def test_results_are_those_of_the_kernels(function: Callable[..., Any], args: Sequence[Any]) -> None:
    assert not list(wrong(function, args, {}))


FORMATS = (torch.contiguous_format, torch.channels_last)
IMAGE = torch.ones(2, 4, 3, 3)


@pytest.mark.parametrize("x", [*(IMAGE.contiguous(memory_format=form) for form in FORMATS), IMAGE[..., 0]])
def test_a_batch_norm_lies_in_memory_as_that_of_the_kernel(x: torch.Tensor) -> None:
    recorder = Recorder({}, {}, {}, {})
    given = recorder.input(x, "x", {})
    with torch.no_grad(), calls_before_composites(recorder.call):
        found = norm(given)
    assert found.stride() == norm(x).stride()


@pytest.mark.sweep
@pytest.mark.parametrize("initials", ["_abc", "defghi", "jklm", "n", "opqr", "stuvwxyz"])
def test_database(initials: str) -> None:
    pytest.importorskip("expecttest", reason="torch's database needs it")
    from torch.testing._internal import common_methods_invocations as invocations

    found: set[str] = set()
    for entry in invocations.op_db:
        if entry.name[0] not in initials or entry.name.startswith("jiterator"):
            continue
        for dtype in sorted(entry.dtypes, key=str):
            for sample in _samples(entry, dtype):
                args, kwargs = (sample.input, *sample.args), sample.kwargs
                if not _is_dense((args, kwargs)):
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        found |= {f"{entry.name} in {dtype}: {said}" for said in wrong(entry.op, args, kwargs)}
                    except (ExportError, RuntimeError) as error:  # refused, by the route or by the kernel itself
                        if _runs(entry.op, args, kwargs) and entry.name not in REFUSED:
                            found.add(f"{entry.name} in {dtype}: {str(error)[:200]}")
    assert not found, "\n".join(sorted(found))


REFUSED = {
    "as_strided": "of a part of a storage, of which the route knows the part",
    "to_sparse": "it gives a sparse tensor",
}


def _samples(entry: Any, dtype: torch.dtype) -> list[Any]:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    found = list(entry.sample_inputs("cpu", dtype))
    count = len(found)
    return found if count <= SAMPLES else [found[place * (count - 1) // (SAMPLES - 1)] for place in range(SAMPLES)]


def _is_dense(tree: Any) -> bool:
    tensors = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return all(item.layout is torch.strided and not item.is_nested for item in tensors)


def _runs(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    try:
        with torch.no_grad():
            function(*args, **kwargs)
    except Exception:  # all that a sample of the database may raise
        return False
    return True
