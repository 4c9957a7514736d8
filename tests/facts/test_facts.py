"""The facts of operators, held against torch: each column is a check that walks all rows.

A check takes a row and the examples of its operator, and says what is not true.  `PLANTED` shows of each check that it
sees the fault that it is for.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

import purexport
from purexport.aten.graph import AtenValue, Call, ListType, TensorType, map_values
from purexport.aten.names import operator_of, overloads_of, parsed
from purexport.aten.schema import changes_shape, signature
from purexport.dtypes import is_quantized
from purexport.facts import table, views
from purexport.facts.fact import Aliases, Fact, Pieces, ResultDtype, Statistics, UnknownInverse
from purexport.facts.table import FACTS, collected
from purexport.functionalize.aliasing import hidden_sources
from purexport.functionalize.running_stats import new_statistics
from purexport.functionalize.view_inverses import inverse
from purexport.shapes.fakes import FakeMachine
from tests.facts import quantized_examples
from tests.facts.examples import EXAMPLES, Example, results

# these are asked by the operators that torch composes, and need what no test has
WITHOUT_EXAMPLE = {
    "aten::cudnn_batch_norm": "it runs on CUDA only",
    "aten::_pack_padded_sequence": "its sizes follow from lengths; tests/lowering/nn run it with other ones",
    "aten::_pad_packed_sequence": "likewise",
    "torchvision::nms": "torchvision is not installed where this runs",
}
Check = Callable[[Fact, Sequence[Example]], Iterator[str]]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def by_operator() -> Mapping[str, list[Example]]:
    found: dict[str, list[Example]] = defaultdict(list)
    for item in [*EXAMPLES, *quantized_examples.examples()]:
        found[str(parsed(item.target)._replace(overload=""))].append(item)
    return found


BY_OPERATOR = by_operator()


# What is written down exists ------------------------------------------------------------------------------------------


@check
def exists(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    """torch knows the operator, and the overloads that are named."""
    if row.operator == "torchvision::nms":
        return
    known = {parsed(target).overload for target in overloads_of(row.operator)}
    if not known:
        yield "torch has no such operator"
    named = [column for column in (row.shapes, row.becomes, row.out_of_place) if isinstance(column, Mapping)]
    for overload in {*itertools.chain(*named), *row.reinterprets} - known:
        yield f"torch has no overload {overload!r}"


@check
def says_something(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if row == Fact(row.operator):
        yield "an empty row"


@check
def has_examples(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if not examples and row.operator not in WITHOUT_EXAMPLE:
        yield "no example"
    wanted = row.shapes if isinstance(row.shapes, Mapping) else {}
    shown = {parsed(item.target).overload for item in examples}
    for overload in {*wanted, *row.becomes} - shown:
        if not overload.endswith("out") and overload != "Scalar2":  # of which the names alone differ
            yield f"no example of the overload {overload!r}"


# Memory ---------------------------------------------------------------------------------------------------------------


def storages(item: Any) -> set[int]:
    found = item if isinstance(item, (list, tuple)) else [item]
    return {one.untyped_storage()._cdata for one in found if isinstance(one, torch.Tensor)}


def shares(item: Example) -> bool:
    """Whether a result shares memory with an argument."""
    arguments = item.fresh()
    result = item.run(arguments)
    return bool(storages(result) & set().union(*map(storages, arguments.values())))


def is_annotated(item: Example) -> bool:
    return signature(item.target).aliased() is not None


@check
def views_share(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    """What has an inverse is a view: by torch's annotation, or seen to share memory."""
    if row.inverse is None and row.pieces is None:
        return
    if not all(map(is_annotated, examples)) and not any(map(shares, examples)):
        yield "it has an inverse, and is not a view"


@check
def aliases_are_true(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    seen = [shares(item) for item in examples]
    match row.aliases:
        case Aliases.NEVER if any(seen) or any(map(is_annotated, examples)):
            yield "it shares memory"
        case Aliases.ALWAYS if not all(seen) or all(map(is_annotated, examples)):
            yield "it does not share memory, or torch says itself that it does"
        case Aliases.MAYBE if not any(seen):
            yield "it never shares memory"
        case None:
            for item, shared in zip(examples, seen, strict=True):
                if shared and not is_annotated(item) and not hidden_sources(item.call()[0]):
                    yield f"{item.target} shares memory, and neither torch nor the fact says so"


@check
def identity_is_true(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if row.inverse is None and row.aliases is not Aliases.MAYBE and not row.returns_itself:
        return
    seen = False
    for item in examples:
        arguments = item.fresh()
        result = item.run(arguments)
        itself = any(result is one for one in arguments.values())
        said = row.returns_itself if isinstance(row.returns_itself, bool) else row.returns_itself(item.call()[0])
        seen |= itself
        if itself and not said:
            yield f"{item.target} may return its very argument"
        if said and not itself and not isinstance(row.returns_itself, bool):
            yield f"{item.target} does not return its very argument"
    # `lift_fresh` returns its argument under functorch only, `alias`-like ones where they do not dispatch
    if row.returns_itself and not seen:
        yield "it never returns its very argument"


def computed(calls: Sequence[Call], known: Mapping[AtenValue, Any]) -> dict[AtenValue, Any]:
    """The values of calls, by torch."""
    env = dict(known)
    for call in calls:
        args = {name: map_values(arg, env.__getitem__) for name, arg in call.args.items()}
        if call.target == "prim::getitem":
            found: Any = args["list"][args["index"]]
        else:
            operator: Any = operator_of(call.target)
            found = operator(**args)
        env.update(zip(call.outputs, results(found), strict=True))
    return env


def written_through(row: Fact, item: Example) -> Iterator[str]:
    """The base after a write through the view, as torch has it and as the inverse says."""
    call, known = item.call()
    source = signature(item.target).aliased() or next(iter(item.real))
    base = call.args[source]
    shown = item.run(item.fresh())
    several = isinstance(shown, list)
    for index in range(len(shown)) if several else [None]:
        arguments = item.fresh()
        view = item.run(arguments)
        part = view if index is None else view[index]
        if not storages(part) & storages(arguments[source]):
            continue  # a copy
        new = AtenValue(TensorType(part.dtype, tuple(part.shape)))
        content = torch.rand_like(part) if part.is_floating_point() or part.is_complex() else part + 1
        part.copy_(content)
        calls: list[Call] = []
        if several:
            call = replace(call, outputs=[AtenValue(ListType())])
        try:
            result = inverse(call, index, base, new, calls.append)
        except UnknownInverse:
            known_sizes = not table.has_data_dependent_size(call)  # else a write is refused
            if known_sizes and parsed(item.target).overload not in row.reinterprets and not known[base].is_complex():
                yield f"{item.target} has no inverse of an example"
            continue
        found = computed(calls, {**known, new: content})[result]
        if not torch.equal(torch.view_as_real(found) if found.is_complex() else found, _real(arguments[source])):
            yield f"{item.target} puts what is written to another place"


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


@check
def inverses_are_true(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if row.inverse is not None or row.pieces is not None:
        for item in examples:
            yield from written_through(row, item)


# Writing --------------------------------------------------------------------------------------------------------------

RANDOM = {"aten::normal_"}


def tried(target: str, args: Mapping[str, Any]) -> Any:
    """torch's result; None where it does not take such arguments."""
    operator: Any = operator_of(target)
    try:
        return operator(**args)
    except RuntimeError:
        return None


@check
def pure_forms_are_true(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if not row.out_of_place:
        return
    for item in examples:
        said = row.out_of_place
        overload = parsed(item.target).overload
        target = str(parsed(said)._replace(overload=overload)) if isinstance(said, str) else said[overload]
        written, given = item.fresh(), item.fresh()
        expected = item.run(written)
        names = [parameter.name for parameter in signature(item.target).parameters]
        args = dict(
            zip([parameter.name for parameter in signature(target).parameters], map(given.get, names), strict=False)
        )
        if signature(target).writes:
            yield f"{target} writes"
        result = tried(target, args)
        if not torch.equal(given["self"], item.real["self"]):
            yield f"{target} writes to its argument"
        if result is None or (row.operator not in RANDOM and not torch.equal(result, expected)):
            yield f"{target} computes something else"


@check
def shapes_change_in_place(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    """torch's tag says that an operator changes what a name shows; the view that it becomes shows the same."""
    for item in examples if row.becomes else ():
        view = row.becomes[parsed(item.target).overload]
        if "detach" not in item.target and "requires" not in item.target and not changes_shape(item.target):
            yield "torch has no tag that it changes shapes in place"
        if signature(view).aliased() is None:
            yield "what it becomes is not a view"
        args = item.fresh()
        args.pop("requires_grad", None)
        shown = tried(view, args)
        if shown is None or not torch.equal(shown, item.run(item.fresh())):
            yield "what it becomes shows something else"


@check
def what_cannot_be_followed_writes(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if row.untraceable and not all(signature(item.target).writes for item in examples):
        yield "it writes nothing"


@check
def statistics_are_written(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    said = row.statistics
    if said is None:
        return
    for target in overloads_of(row.operator):
        names = {parameter.name for parameter in signature(target).parameters}
        if not target.endswith("out") and not {said.switch, said.momentum, "running_mean", "running_var"} <= names:
            yield f"{target} has no such arguments"
            return
    for item in examples:
        call, known = item.call()
        arguments = item.fresh()
        item.run(arguments)
        found = new_statistics(call)
        for name in ("running_mean", "running_var"):
            calls: list[Call] = []
            now = found[name](call.args[name], calls.append) if name in found else call.args[name]
            if not torch.allclose(computed(calls, known)[now], arguments[name]):
                yield f"{name} is another one, with {said.switch}={item.real[said.switch]}"


@check
def unsaid_statistics(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    """No example writes what neither its schema nor its fact says."""
    for item in examples:
        arguments = item.fresh()
        item.run(arguments)
        for name, before in item.real.items():
            told = name in signature(item.target).writes or row.statistics is not None
            after = arguments[name]
            if isinstance(before, torch.Tensor) and not told and not torch.equal(before, after):
                yield f"{item.target} writes {name!r}"


# Shapes ---------------------------------------------------------------------------------------------------------------


def sizes_of(item: Example) -> list[tuple[int, ...]]:
    return [tuple(one.shape) for one in flat(results(item.run(item.fresh()))) if isinstance(one, torch.Tensor)]


def without_content(item: Any) -> Any:
    """An argument, of whose tensors the shapes remain."""
    if isinstance(item, (list, tuple)):
        return [without_content(one) for one in item]
    return item.shape if isinstance(item, torch.Tensor) else item


@check
def sizes_depend_on_data(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    """Two arguments of one shape give results of two shapes where, and only where, the fact says so."""
    pairs = [
        (one, other)
        for one, other in itertools.combinations(examples, 2)
        if one.target == other.target
        and without_content([*one.real.values()]) == without_content([*other.real.values()])
        and sizes_of(one) != sizes_of(other)
    ]
    if row.data_dependent and not pairs and row.operator not in WITHOUT_EXAMPLE:
        yield "its sizes do not depend on data, or no two examples show it"
    for one, _ in pairs:
        if not table.has_data_dependent_size(one.call()[0]):
            yield f"the sizes of {one.target} depend on data"


def flat(found: Any) -> list[Any]:
    return [one for item in found for one in (item if isinstance(item, (list, tuple)) else [item])]


@check
def shape_functions_agree(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    """Sizes and dtypes are those of torch's results; a size may be unknown only where data decides."""
    if not row.shapes and row.shape_of_call is None:
        return
    for item in examples:
        call, known = item.call()
        machine = FakeMachine(distinct=True)
        with machine.running():
            fakes = {value: _fake(machine, tensor) for value, tensor in known.items()}
            found = flat(machine.evaluate(call, fakes.__getitem__))
        expected = flat(results(item.run(item.fresh())))
        if len(found) != len(expected):
            yield f"{item.target} has {len(expected)} results, and the shape function gives {len(found)}"
            continue
        for one, real in zip(found, expected, strict=True):
            yield from _differs(row, item, machine, one, real)


def _fake(machine: FakeMachine, tensor: torch.Tensor) -> torch.Tensor:
    return machine.tensor(TensorType(tensor.dtype, tuple(tensor.shape)), {})


def _known(size: Any) -> Any:
    """A size that is a number; None for one that only the run knows."""
    expression = size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat)) else None
    return size if expression is None else int(expression) if expression.is_Integer else None


def _differs(row: Fact, item: Example, machine: FakeMachine, fake: Any, real: Any) -> Iterator[str]:
    if not isinstance(real, torch.Tensor):
        if _known(fake) != real:
            yield f"{item.target} gives {real}, and the shape function {fake}"
        return
    sizes = tuple(_known(size) for size in fake.shape)
    known = all(size is not None for size in sizes)
    if len(sizes) != real.dim() or any(a not in (None, b) for a, b in zip(sizes, real.shape, strict=True)):
        yield f"{item.target} gives {tuple(real.shape)}, and the shape function {sizes}"
    if not known and not row.data_dependent:
        yield f"{item.target} has a size that only the run knows"
    dtype = torch.float32 if is_quantized(real.dtype) else real.dtype  # the numbers stand for it
    if fake.dtype != dtype:
        yield f"{item.target} gives {dtype}, and the shape function {fake.dtype}"


def takes_several(target: str) -> bool:
    """Whether an overload without `out` takes more than one tensor."""
    parameters = signature(target).parameters
    return sum(item.type == "Tensor" for item in parameters) > 1 and "out" not in [item.name for item in parameters]


@check
def operands_broadcast(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    if not row.broadcasts:
        return
    several = [target for target in overloads_of(row.operator) if takes_several(target)]
    if all(torch.Tag.pointwise in getattr(operator_of(target), "tags", ()) for target in several):
        yield "torch has a tag that it broadcasts"
    shapes = [{one.shape for one in item.real.values() if isinstance(one, torch.Tensor)} for item in examples]
    if not all(len(item) > 1 for item in shapes):
        yield "no example in which operands broadcast"


# Numbers and dtypes ---------------------------------------------------------------------------------------------------


@check
def dtypes_are_true(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    for item in examples if row.result_dtype is not None else ():
        given, found = item.real["self"].dtype, item.run(item.fresh()).dtype
        integers_only = row.result_dtype is ResultDtype.INTEGERS and given.is_floating_point
        if (given == found) is not integers_only:
            yield f"{item.target} gives {found} of {given}"


@check
def makers_take_numbers(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    for item in examples if row.makes_constant else ():
        if any(isinstance(one, torch.Tensor) for one in item.real.values()):
            yield f"{item.target} takes a tensor"
        if not isinstance(item.run(item.fresh()), torch.Tensor):
            yield f"{item.target} makes no tensor"


@check
def numbers_are_read(row: Fact, examples: Sequence[Example]) -> Iterator[str]:
    for item in examples if row.reads_number else ():
        if not isinstance(item.real.get("a"), torch.Tensor) or signature(item.target).returns != (None,):
            yield f"{item.target} reads no tensor's number"


# The rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", FACTS)
def test_fact(operator: str) -> None:
    row, examples = FACTS[operator], BY_OPERATOR.get(operator, [])
    found = [f"{name}: {text}" for name, function in CHECKS.items() for text in function(row, examples)]
    assert not found, "\n".join(found)


def _moved(view: Call, base: AtenValue, new: AtenValue) -> tuple[str, dict[str, Any]]:
    return "aten::flip", {"self": new, "dims": [0]}


def _wrong_dtype(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.empty(0)


def planted(operator: str, **columns: Any) -> Fact:
    return replace(FACTS.get(operator, Fact(operator)), **columns)


# (a row with a fault, the check that finds it)
PLANTED = [
    (Fact("aten::flaot", returns_itself=True), "exists"),
    (planted("aten::slice", shapes={"Tensr": views.slice_of}), "exists"),
    (Fact("aten::slice"), "says_something"),
    (Fact("aten::digamma", inverse=_moved), "has_examples"),
    (planted("aten::cumsum", inverse=_moved), "views_share"),
    (planted("aten::reshape", aliases=Aliases.NEVER), "aliases_are_true"),
    (planted("aten::cumsum", aliases=Aliases.ALWAYS), "aliases_are_true"),
    (planted("aten::chunk", aliases=Aliases.ALWAYS), "aliases_are_true"),
    (planted("aten::cumsum", aliases=Aliases.MAYBE), "aliases_are_true"),
    (planted("aten::unsafe_split", aliases=None), "aliases_are_true"),
    (planted("aten::contiguous", returns_itself=False), "identity_is_true"),
    (planted("aten::transpose", returns_itself=True), "identity_is_true"),
    (planted("aten::flatten", returns_itself=lambda call: True), "identity_is_true"),
    (planted("aten::alias", inverse=_moved), "inverses_are_true"),
    (planted("aten::permute", inverse=FACTS["aten::t"].inverse), "inverses_are_true"),
    (planted("aten::unbind", pieces=Pieces(size=lambda size, args: 1)), "inverses_are_true"),
    (planted("aten::pow_", out_of_place={"Scalar": "aten::mul.Scalar", "Tensor": "aten::t"}), "pure_forms_are_true"),
    (planted("aten::__iand__", out_of_place="aten::__or__"), "pure_forms_are_true"),
    (planted("aten::squeeze_", becomes=dict.fromkeys(("", "dim", "dims"), "aten::alias")), "shapes_change_in_place"),
    (planted("aten::copy_", becomes={"": "aten::alias"}), "shapes_change_in_place"),
    (planted("aten::slice", untraceable=True), "what_cannot_be_followed_writes"),
    (planted("aten::batch_norm", statistics=Statistics(switch="train")), "statistics_are_written"),
    (planted("aten::batch_norm", statistics=Statistics(by_instance=True)), "statistics_are_written"),
    (planted("aten::batch_norm", statistics=Statistics(momentum="eps")), "statistics_are_written"),
    (planted("aten::batch_norm", statistics=None), "unsaid_statistics"),
    (planted("aten::nonzero", data_dependent=False), "sizes_depend_on_data"),
    (planted("aten::cumsum", data_dependent=True), "sizes_depend_on_data"),
    (planted("aten::eq", broadcasts=True), "operands_broadcast"),
    (planted("aten::masked_select", broadcasts=True), "operands_broadcast"),
    (planted("aten::relu6", result_dtype=ResultDtype.ALWAYS), "dtypes_are_true"),
    (planted("aten::cumsum", result_dtype=ResultDtype.ALWAYS), "dtypes_are_true"),
    (planted("aten::eq", result_dtype=ResultDtype.INTEGERS), "dtypes_are_true"),
    (planted("aten::slice", makes_constant=True), "makers_take_numbers"),
    (planted("aten::full", reads_number=True), "numbers_are_read"),
]


@pytest.mark.parametrize(("row", "name"), PLANTED, ids=[f"{row.operator}-{name}" for row, name in PLANTED])
def test_planted_faults_are_found(row: Fact, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FACTS", {**FACTS, row.operator: row})
    assert list(CHECKS[name](row, BY_OPERATOR.get(row.operator, [])))


# (a wrong shape function, of which operator)
SHAPES = [
    ("aten::kron", lambda self, other: self.new_empty((4, 3))),
    ("aten::kron", lambda self, other: torch.empty((2, 6), dtype=torch.float64)),
    ("aten::lstm", lambda **others: others["hx"][0]),
    ("aten::numel", lambda self: 3),
    ("aten::tensor_split", {"indices": lambda self, indices, dim=0: [self, self, self]}),
]


@pytest.mark.parametrize(("operator", "function"), SHAPES)
def test_wrong_shape_functions_are_found(operator: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = planted(operator, shapes=function)
    monkeypatch.setattr(table, "FACTS", {**FACTS, operator: row})
    assert list(shape_functions_agree(row, BY_OPERATOR[operator]))


def test_every_column_has_a_check() -> None:
    """A planted fault in each column; the shape functions have a table of their own."""
    plain = Fact("aten::slice")
    columns = {item.name for item in fields(Fact)} - {"operator", "_", "shapes", "shape_of_call", "reinterprets"}
    shown = {name for row, _ in PLANTED for name in columns if getattr(row, name) != getattr(plain, name)}
    assert shown == columns


def test_an_operator_is_declared_once() -> None:
    again = Fact("aten::one_hot", data_dependent=True)
    with pytest.raises(ValueError, match="aten::one_hot is declared twice"):
        collected([*FACTS.values(), again])


def test_a_fact_is_for_all_overloads() -> None:
    with pytest.raises(ValueError, match="for all overloads together"):
        Fact("aten::slice.Tensor", inverse=_moved)


def test_sizes_that_torch_calls_dynamic_are_declared() -> None:
    """torch's tag `dynamic_output_shape`: each such operator has a fact, which says so or has a shape function."""
    unsaid = []
    for name in torch._C._dispatch_get_all_op_names():
        target = name if name.startswith("aten::") else ""
        if torch.Tag.dynamic_output_shape in getattr(operator_of(target) if target else None, "tags", ()):
            row = table.fact_of(target)
            if not row.data_dependent and not row.shapes and "_ctc_loss" not in target:  # of the form that torch calls
                unsaid.append(target)
    assert not unsaid


class PooledRows(torch.nn.Module):
    """A pool with `ceil_mode` of rows that the data counts, as in SSD."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = int((x[0, 0, :, 0] > 0).nonzero().shape[0])
        return torch.max_pool2d(x[:, :, :rows], [2, 3], [2, 2], [0, 1], [1, 1], True)


def test_pools_that_ceil_take_open_sizes() -> None:
    model = torch.jit.script(PooledRows())
    program = purexport.export(
        model, (torch.ones(1, 1, 7, 9),), input_names=["x"], dynamic_axes={"x": {2: "h", 3: "w"}}
    )
    for shape in ((7, 9), (6, 5), (9, 4)):
        x = torch.rand(1, 1, *shape) + 0.1
        assert torch.equal(program(x)[0], model(x))


@pytest.mark.parametrize(("wide", "step", "pad", "gap"), [(2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), (5, 3, 2, 1)])
def test_no_window_begins_beyond_the_end_where_windows_are_wide(wide: int, step: int, pad: int, gap: int) -> None:
    assert pad + step - 1 <= gap * (wide - 1)  # what the shape of a pool goes by
    for size in range(gap * (wide - 1) + 1, 40):
        found = torch.max_pool1d(torch.zeros(1, 1, size), wide, step, pad, gap, True).shape[-1]
        assert found == (size + 2 * pad - gap * (wide - 1) - 1 + step - 1) // step + 1
