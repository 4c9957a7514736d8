"""The trace: the model runs once on tensors without data, and each call is recorded as it is made.

Sizes that can change are symbols while the model runs, so that nothing must be traced again to find out what follows
from them.  What the model cannot be captured with is refused with its line.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from typing import Any, NamedTuple

import torch

from proto_schema.sizes import Dim, Size
from purexport.aten.axes import Axes, Specialised
from purexport.aten.graph import Arg, Assigned, AtenGraph, ScalarType
from purexport.aten.graph import AtenValue as Value
from purexport.errors import ExportError, is_out_of_memory
from purexport.frontends.core import row_loops
from purexport.frontends.core.attributes import Buffers, attributes_kept
from purexport.frontends.core.module_tensors import ModuleTensor
from purexport.frontends.core.request import (
    Captured,
    Flat,
    Request,
    flatten,
    is_same,
    named_axes,
    output_names,
    refuse_output,
)
from purexport.frontends.core.route import Route
from purexport.frontends.core.single_calls import declare_operators, recorded_in_other_forms
from purexport.frontends.core.structures import Path, results_in
from purexport.frontends.trace import indices, shapes
from purexport.frontends.trace.argument_numbers import (
    refuse_flags,
    refuse_others,
    refuse_unused,
    with_constants,
    with_numbers,
)
from purexport.frontends.trace.branches import Way, remarks_on, with_branches
from purexport.frontends.trace.builtins import BUILTINS, MATH, OF_TORCH
from purexport.frontends.trace.data import AnotherExample
from purexport.frontends.trace.decisions import LEAST, Decisions, of_least_size, without
from purexport.frontends.trace.literals import literal
from purexport.frontends.trace.loops import are_same, in_loops, pruned
from purexport.frontends.trace.numbers import SYMBOLIC, hash_of
from purexport.frontends.trace.pieces import counted, joined
from purexport.frontends.trace.recorder import Recorder, StaticAxesError
from purexport.frontends.trace.scripts import ScriptOfTracesError
from purexport.frontends.trace.source_lines import line_of
from purexport.frontends.trace.tensors import Recorded
from purexport.shapes.failures import code_of
from purexport.torch_patches.attention import symbols_taken_by_attention
from purexport.torch_patches.before_composites import below, calls_before_composites
from purexport.torch_patches.calls import functions_handed_to
from purexport.torch_patches.conversions import conversions_recorded
from purexport.torch_patches.eager import compiler_is_loaded, uncompiled
from purexport.torch_patches.math_functions import math_recorded
from purexport.torch_patches.scans import scans_in_rounds
from purexport.torch_patches.sizes import sizes_hashed
from purexport.torch_patches.torch_jit import called_a_trace, scripts_handed_to


def capture_by_trace(request: Request) -> Captured:
    """Capture the model by one run.  Raises ExportError for what it does that cannot be recorded exactly."""
    declare_operators()
    flat = flatten(request)
    axes = named_axes(request, flat.names, flat.tensors, flat.paths)
    labels = _examples(flat, axes)
    refuse_flags(request)
    sizes = {label: size for label, size in labels.items() if label not in request.derived}
    remarks: list[str] = []
    runs = _Runs.of(request, flat, axes, sizes)
    try:
        runs, found = _first_of(runs)
        if request.numbers:
            _hold_numbers(runs, found)
        least = _of_least_sizes(runs, found)
        _forget_questions_of_few(runs, found)
    except StaticAxesError as error:
        return _with_static(runs, labels, error.names, error.line)
    except ExportError as error:
        if error.__cause__ is None:
            raise
        return _with_one_element(runs, labels, error)
    decisions, graph = found.recorder.decisions, found.graph
    if decisions.required and decisions.specialised():
        loops = _in_loops(runs, found.recorder)
        if loops is not None:
            graph, decisions = loops
            remarks += _loops_of(graph)
        elif found.recorder.splits:
            pieces = _in_pieces(runs)
            if pieces is not None and len(pieces.recorder.decisions.specialised()) < len(decisions.specialised()):
                graph, decisions = pieces.graph, pieces.recorder.decisions
    if request.both and graph is found.graph:
        graph, more = _in_both_ways(runs, found)
        remarks += more
    static = decisions.specialised()
    axes = without(axes, _with_derived(request, [item.axis for item in static]))
    scripts = found.recorder.scripts
    fixed = {item.axis for item in static}
    remarks += [text for name, text in least if name not in fixed]
    remarks += [*map(str, static), *decisions.remarks(), *scripts.remarks]
    return Captured(
        pruned(graph),
        axes,
        remarks=remarks,
        listed=found.listed,
        derived=request.derived,
        scripted=scripts.interpreted,
        enlarged=bool(runs.small),
    )


def _with_static(runs: _Runs, labels: Mapping[str, int], names: Collection[str], line: str) -> Captured:
    """The capture with axes that have the sizes of the example, and what a line has to do with it."""
    request = runs.request
    names = _with_derived(request, names)
    rest = {name: dict(named) for name, named in without(runs.axes, names).items()}
    derived = {label: item for label, item in request.derived.items() if label not in names}
    again = capture_by_trace(
        dataclasses.replace(request, dynamic_axes=rest, input_names=runs.flat.names, derived=derived)
    )
    remarks = [str(Specialised(name, labels[name], line)) for name in names]
    return dataclasses.replace(again, remarks=[*remarks, *again.remarks])


def _with_one_element(runs: _Runs, labels: Mapping[str, int], error: ExportError) -> Captured:
    """The capture with axes of one element as they are, for a model that takes no more.

    Raises the error of the model where it is not that.
    """
    small, line = runs.small, line_of(error.__cause__)
    for names in [*({name} for name in small if len(small) > 1), *([set(small)] if small else [])]:
        with suppress(ExportError):
            return _with_static(runs, labels, names, line)
    raise error


def _with_derived(request: Request, names: Collection[str]) -> list[str]:
    """The names, and those of the sizes that follow from them."""
    return sorted({*names, *(label for label, (root, _) in request.derived.items() if root in names)})


class _Captured(NamedTuple):
    recorder: Recorder
    graph: AtenGraph
    listed: bool
    results: list[Any]


@dataclasses.dataclass
class _Runs:
    """The runs of one capture, which differ in what Python code is told.

    `flat` are the arguments, with at least two elements on each of the declared `axes`; `sizes` are those of these
    axes, by name, and the `small` ones what the user's example has instead.  `sums` are names that say what the size
    is, as "past + seq" does.  In `namespaces` builtins keep symbolic
    numbers, `compiled` are functions that torch's tracer would have as scripts, and `without` are steps of loops over
    rows that the model does not have.
    """

    request: Request
    flat: Flat
    axes: Mapping[str, Axes]
    sizes: Mapping[str, int]
    small: Mapping[str, int]
    sums: Mapping[str, Size]
    namespaces: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    compiled: list[Any] = dataclasses.field(default_factory=list)
    without: set[row_loops.Step] = dataclasses.field(default_factory=set)

    @classmethod
    def of(cls, request: Request, flat: Flat, axes: Mapping[str, Axes], given: Mapping[str, int]) -> _Runs:
        """The runs for these sizes of the user's example.

        Only what torch decides about 0 and 1 changes by more elements.  If Python asks for them, those of the example
        repeat.
        """
        sums = shapes.sums(given)
        small = {label: size for label, size in given.items() if size < LEAST and label not in sums}
        sizes = dict(given)
        for label in small:
            others = {size for other, size in sizes.items() if other != label}
            sizes[label] = next(size for size in count(LEAST) if size not in others)
        return cls(request, flat, axes, given, small, sums).resized(sizes)

    def resized(self, sizes: Mapping[str, int]) -> _Runs:
        """The same with other sizes of the declared axes."""
        sizes = {**sizes, **{label: size.at(sizes) for label, size in self.sums.items()}}
        flat = _resized(self.request, self.flat, self.axes, sizes)
        return dataclasses.replace(self, flat=flat, sizes=sizes)

    def beside_larger(self) -> Iterator[_Runs]:
        """The same where another axis grows too, as the length of a mask does with that of an empty cache."""
        more = sum(self.sizes[label] - size for label, size in self.small.items())
        for label in (label for label in self.sizes if more and label not in self.small and label not in self.sums):
            yield self.resized({**self.sizes, label: self.sizes[label] + more})

    def gives_results_of_torch(self, found: _Captured) -> bool:
        """Whether the calls that were recorded give for the user's example what the model gives."""
        flat = flatten(self.request)
        arguments = dict(zip(flat.names, flat.tensors, strict=True))
        wanted = _run_by_torch(self.request)
        results = AnotherExample(found.recorder, arguments, self.small).results(found.results)
        if isinstance(wanted, Exception) or results is None or len(results) != len(wanted):
            return False
        return all(
            isinstance(one, torch.Tensor) and is_same(one, other) for one, other in zip(results, wanted, strict=True)
        )

    def captured(
        self,
        stays_open: bool = False,
        as_small: tuple[str, int] | None = None,
        as_many_pieces: bool = False,
        turned: str | None = None,
        turned_at: Collection[int] = (),
    ) -> _Captured:
        """One run of the model.

        Questions of Python code have the answer for the axis and size `as_small`, and those on the line `turned` the
        other answer than in the example, as the questions have whose numbers are `turned_at`.
        """
        while True:
            lists = self.request.loops_carry_lists
            modules = _modules(self.request.model)
            told = (stays_open, as_small, as_many_pieces, turned, lists, self.without)
            questions = (self.request.both, turned_at)
            recorder = Recorder(modules, self.sizes, self.small, self.request.bounds, *told, *questions)
            try:
                return self._captured(recorder)
            except ScriptOfTracesError as error:
                if error.function in self.compiled:
                    raise
                self.compiled.append(error.function)
            except ExportError as error:
                if not recorder.rows.must_leave_out(error.__cause__):
                    raise

    def _captured(self, recorder: Recorder) -> _Captured:
        request, flat, axes = self.request, self.flat, self.axes

        def symbol(label: str) -> Dim:
            if label in self.sums:
                return self.sums[label].replaced({name: recorder.symbol(name) for name in self.sums[label].symbols})
            root, size = request.derived.get(label, (label, None))
            return recorder.symbol(root) if size is None else size(recorder.symbol(root))

        tensors = [
            recorder.input(tensor, name, {axis: symbol(label) for axis, label in axes.get(name, {}).items()})
            for name, tensor in zip(flat.names, flat.tensors, strict=True)
        ]
        for kind, name, tensor in [*_state(request.model), *_attributes(request.valueless)]:
            recorder.state(kind, name, tensor)
        recorder.valueless = frozenset(id(getattr(*item.places[0])) for item in request.valueless)
        buffers = Buffers(request.model)
        with (
            self._refusals(),
            attributes_kept(request.model),
            torch.no_grad(),
            uncompiled(),
            scans_in_rounds() if self.axes else nullcontext(),
            called_a_trace(self.compiled),
            scripts_handed_to(recorder.scripts.run),
            sizes_hashed(hash_of),
            recorded_in_other_forms(recorder.decisions.checks) if axes or request.numbers else nullcontext(),
            math_recorded(MATH, OF_TORCH),
            functions_handed_to(_followed),
            symbols_taken_by_attention(),
            conversions_recorded(self.namespaces, BUILTINS),
            calls_before_composites(recorder.call),
        ):
            recorder.root = sys._getframe()
            # inside, because what a cache holds beside its state is copied, and the model may write to the copies
            args, kwargs = flat.rebuild(with_numbers(recorder, request.numbers, flat.names, tensors))
            result = request.model(*args, **kwargs)
            found = results_in(result)
            outputs = [_output(recorder, leaf) for _, leaf in found]
            changed = buffers.assigned()
            outputs += [_output(recorder, tensor) for _, tensor in changed]
        graph = _named(recorder.graph.graph(outputs), [path for path, _ in found], [path for path, _ in changed])
        counts: dict[Value, Any] = {value: (value.tensor.shape or ())[0] for value in recorder.counts}
        graph = joined(graph, counts)
        for value in counted(graph, counts):
            recorder.decisions.of_data.setdefault(
                f"the model takes the elements of a tensor one by one at {recorder.counts[value]}, as many as the data "
                "decides; the file takes as many as there are in the example"
            )
        return _Captured(recorder, graph, isinstance(result, list), [leaf for _, leaf in found])

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Inside, errors are ours; where the model does not run without the capture either, they are torch's."""
        try:
            with warnings.catch_warnings():
                yield
        except (ExportError, StaticAxesError, ScriptOfTracesError):
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise MemoryError(f"there is too little memory to run the model: {error}") from error
            if type(error).__name__ == "UncapturedHigherOrderOpError" or "HigherOrderOperator" in str(error):
                raise ExportError(
                    "torch.cond, while_loop, scan and other operators that torch compiles first are not recorded here; "
                    "use capture='export'",
                    code="trace-cannot-record",
                ) from error
            without = error if self.request.valueless else _run_by_torch(self.request)
            said, code = "the model does not run on these args", "model-does-not-run"
            if not isinstance(without, Exception):
                said, code = "the capture does not take the model, which runs without it", "trace-cannot-record"
            cause = without if isinstance(without, Exception) else error
            text = str(cause).partition("\nException raised from ")[0]  # a list of addresses in torch's libraries
            raise ExportError(f"{said}: {type(cause).__name__}: {text}", code=code_of(cause, code)) from error


def _run_by_torch(request: Request) -> list[Any] | Exception:
    """The results of the model when it runs on its arguments without being captured, or its error."""
    flat = flatten(request)
    given = [request.numbers.get(place, tensor.detach().clone()) for place, tensor in enumerate(flat.tensors)]
    args, kwargs = flat.rebuild(given)
    with attributes_kept(request.model), torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [leaf for _, leaf in results_in(request.model(*args, **kwargs))]
        except Exception as error:  # whatever the model raises
            return error


def _first_of(runs: _Runs) -> tuple[_Runs, _Captured]:
    """The first run that the model takes.  Raises StaticAxesError where it takes the user's example alone."""
    try:
        return runs, _first(runs)
    except StaticAxesError:
        for other in runs.beside_larger():
            with suppress(ExportError, StaticAxesError):
                return other, _first(other)
        raise


def _first(runs: _Runs) -> _Captured:
    """The first run, with the builtins that keep symbolic numbers where Python's would ask for them.

    It is made once more where torch loaded its compiler in it, which is kept out only if it is loaded before.
    """
    loaded = compiler_is_loaded()
    try:
        found = runs.captured()
    except ExportError:
        if loaded or not compiler_is_loaded():
            raise
        found = runs.captured()
    if found.recorder.namespaces:
        runs.namespaces += found.recorder.namespaces
        with suppress(ExportError):
            other = runs.captured()
            if _compute_the_same(found, other):
                return other
        runs.namespaces.clear()
    return found


def _hold_numbers(runs: _Runs, found: _Captured) -> None:
    """Raise NumbersHeldError for numbers of the arguments that must not, or need not, be inputs of the file."""
    request, names = runs.request, runs.flat.names
    refuse_unused(request, names, found.recorder, pruned(found.graph))
    plain = dataclasses.replace(request, numbers={})
    other = dataclasses.replace(runs, request=plain, flat=with_constants(runs.flat, request.numbers)).captured()
    refuse_others(request, names, (found.recorder, found.results), (other.recorder, other.results))


def _compute_the_same(one: _Captured, other: _Captured) -> bool:
    """Whether a model that gets symbolic numbers for Python's, whose types it may ask for, does what it does else.

    Other operators may do so too; then the results for the example say it.
    """
    if _operators(one.graph) == _operators(other.graph):
        return True
    results = [
        [item.recorder.elements.of(leaf) for leaf in item.results if type(leaf) is Recorded] for item in (one, other)
    ]
    return len(results[0]) == len(results[1]) and all(map(is_same, *results))


def _operators(graph: AtenGraph) -> list[str]:
    """The operators that give tensors, in their order."""
    return [call.target for call in graph.calls if not all(isinstance(item.type, ScalarType) for item in call.outputs)]


def _of_least_sizes(runs: _Runs, first: _Captured) -> list[tuple[str, str]]:
    """Axes whose least size makes the model go another way, each with a remark.

    Where the axis has that size in the example, and the model has values, both ways are compared for it.  Raises
    StaticAxesError where they give other results.
    """
    remarks = []
    said: set[str] = set()
    for (name, size), paths in first.recorder.decisions.of_least.items():
        if size == 0 and name not in runs.small and said.issuperset(map(str, paths)):
            continue  # it is as for one element
        with suppress(ExportError, StaticAxesError):  # what the model does for one element may need one element
            other = runs.captured(as_small=(name, size))
            if are_same(pruned(first.graph), pruned(other.graph)):
                continue
        if runs.small.get(name) == size and not runs.request.valueless:
            if runs.gives_results_of_torch(first):
                continue
            raise StaticAxesError({name}, paths[0].line)
        remarks.append((name, of_least_size(name, size, paths)))
        said.update(map(str, paths))
    return remarks


def _forget_questions_of_few(runs: _Runs, first: _Captured) -> None:
    """Forget what code asks about no or one element of the data, where the model does the same for both answers."""
    decisions = first.recorder.decisions
    for line in decisions.lines_of_few()[:_TURNED]:
        with suppress(ExportError, StaticAxesError):
            other = runs.captured(turned=line)
            if are_same(pruned(first.graph), pruned(other.graph)):
                decisions.forget(line)


_TURNED = 4  # lines that ask such a question, for which the model runs again


def _in_loops(runs: _Runs, recorder: Recorder) -> tuple[AtenGraph, Decisions] | None:
    """The graph and the decisions with numbers of steps as Loops; None where not all numbers are those of steps."""

    def capture(sizes: Mapping[str, int]) -> tuple[AtenGraph, Decisions]:
        grown = math.prod(max(1, sizes[name] / max(size, 1)) for name, size in runs.sizes.items())
        if grown * sum(tensor.numel() for tensor in runs.flat.tensors) > _MOST_ELEMENTS:
            raise StaticAxesError(sizes, "")
        found = runs.resized(sizes).captured(stays_open=True)
        return pruned(found.graph), found.recorder.decisions

    try:
        return in_loops(capture, runs.sizes, list(recorder.decisions.required))
    except (ExportError, StaticAxesError):  # the model does not take these sizes
        return None


_MOST_ELEMENTS = 1 << 26  # of arguments that are made for a capture at other sizes


def _in_pieces(runs: _Runs) -> _Captured | None:
    """The same with axes that are split into as many pieces as those of the example, which the file requires."""
    try:
        return runs.captured(as_many_pieces=True)
    except (ExportError, StaticAxesError):
        return None


def _in_both_ways(runs: _Runs, found: _Captured) -> tuple[AtenGraph, list[str]]:
    """The graph with both ways of what Python code asks, where they come together again, and remarks on these."""
    recorder, asked = found.recorder, found.recorder.questions.asked

    def way(item: _Captured) -> Way:
        return Way(item.graph, item.recorder.questions.asked, item.recorder.questions.sizes)

    def run(places: Collection[int]) -> Way | None:
        with suppress(ExportError, StaticAxesError):
            other = runs.captured(turned_at=places)
            if not other.recorder.counts and other.recorder.decisions.takes_no_more_than(recorder.decisions):
                return way(other)
        return None

    if recorder.counts or not asked:
        return found.graph, []
    graph, answered = with_branches(way(found), run, pruned)
    recorder.decisions.forget_both([item.said for item in asked], [item.said for item in answered])
    return graph, remarks_on(asked, answered)


def _loops_of(graph: AtenGraph) -> list[str]:
    loops = [call for call in graph.calls if call.target == "prim::Scan"]
    return [f"the steps at {call.source} are a Loop of the file, as many as the axis is long" for call in loops]


def _examples(flat: Flat, axes: Mapping[str, Axes]) -> dict[str, int]:
    """The example's size of each declared axis, the largest; 1 may stand beside it, which broadcasts.

    Raises ExportError where one name has two other sizes.
    """
    found: dict[str, int] = {}
    for name, tensor in zip(flat.names, flat.tensors, strict=True):
        for axis, label in axes.get(name, {}).items():
            size = found.setdefault(label, tensor.shape[axis])
            found[label] = max(size, tensor.shape[axis])
            if size != tensor.shape[axis] and min(size, tensor.shape[axis]) != 1:
                raise ExportError(
                    f"axis {label!r} has the sizes {size} and {tensor.shape[axis]} in the example; one name is one "
                    "size",
                    code="dynamic-shapes-do-not-fit",
                )
    return found


def _resized(request: Request, flat: Flat, axes: Mapping[str, Axes], given: Mapping[str, int]) -> Flat:
    """The arguments with these sizes of the declared axes; their elements repeat.  An axis of 1 beside them stays."""
    largest = _examples(flat, axes)
    sizes = {**given, **{label: size(given[root]) for label, (root, size) in request.derived.items()}}
    leaves = list(flat.leaves)
    for name, position in zip(flat.names, flat.positions, strict=True):
        tensor = leaves[position]
        for axis, label in axes.get(name, {}).items():
            size, wanted = tensor.shape[axis], sizes[label]
            if size == wanted or size != largest[label]:
                continue
            if size == 1 and tensor.is_contiguous():
                tensor = tensor.expand(*tensor.shape[:axis], wanted, *tensor.shape[axis + 1 :])  # without a copy
            elif size:
                tensor = tensor.index_select(axis, torch.arange(wanted, device=tensor.device) % size)
            else:
                tensor = tensor.new_zeros((*tensor.shape[:axis], wanted, *tensor.shape[axis + 1 :]))
        leaves[position] = tensor
    return dataclasses.replace(flat, leaves=leaves)


def _modules(model: Any) -> dict[torch.nn.Module, str]:
    scopes: dict[torch.nn.Module, str] = {}
    for path, module in model.named_modules() if isinstance(model, torch.nn.Module) else ():
        scopes.setdefault(module, path)
    return scopes


def _state(model: Any) -> list[tuple[str, str, torch.Tensor]]:
    """The model's tensors, each once under its first name."""
    if not isinstance(model, torch.nn.Module):
        return []
    found: dict[int, tuple[str, str, torch.Tensor]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(id(parameter), ("parameter", name, parameter))
    for name, buffer in model.named_buffers():
        found.setdefault(id(buffer), ("buffer", name, buffer))
    return list(found.values())


def _attributes(valueless: Sequence[ModuleTensor]) -> list[tuple[str, str, torch.Tensor]]:
    """Tensors without values that are plain attributes of the model; the file takes them as weights too."""
    return [("constant", item.names[0], getattr(*item.places[0])) for item in valueless if item.kind == "constant"]


def _output(recorder: Recorder, leaf: Any) -> Arg:
    if type(leaf) is Recorded:
        return leaf.value
    if isinstance(leaf, torch.Tensor):
        return recorder.owned(leaf).value
    if isinstance(leaf, SYMBOLIC):
        value = recorder.emitted(leaf.node)
        if isinstance(value, Value):
            return value
        leaf = value
    if isinstance(leaf, (bool, int, float)):
        with below():
            return recorder.owned(torch.tensor(leaf)).value
    raise refuse_output(leaf)


def _named(graph: AtenGraph, paths: Sequence[Path], assigned: Sequence[str]) -> AtenGraph:
    """The graph with names for the model's results; the outputs after them are the buffers that the model assigned."""
    by_name = {item.name: item for item in graph.inputs}
    results, buffers = graph.outputs[: len(paths)], graph.outputs[len(paths) :]
    written = [Assigned(by_name[path], value) for path, value in zip(assigned, buffers, strict=True)]
    return dataclasses.replace(
        graph, outputs=results, output_names=output_names(paths), assigned=[*graph.assigned, *written]
    )


_FORMS: dict[Any, Callable[..., Any]] = {
    indices.GET: indices.part,
    indices.PUT: indices.put,
    torch.tensor: functools.partial(literal, torch.tensor),
    torch.as_tensor: functools.partial(literal, torch.as_tensor),
}


def _followed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of one of torch's functions, by a form that keeps the numbers in it where torch's own loses them."""
    return _FORMS.get(function, function)(*args, **kwargs)


TRACE = Route("trace", "the trace", capture_by_trace, takes_numbers=True, writes_arguments=False)
