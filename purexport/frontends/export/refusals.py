"""Explains in the user's terms where torch.export failed or specialized a size: one sentence and the user's line.

The model's `forward` runs under watch.  An error is caught as it leaves the user's code, with the whole stack.  It is
raised again as an error of our own, for which torch prints no partial graphs.  After each operator the watch asks which
dynamic sizes have been specialized.  Functions that fail under torch.export are recorded in another form.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.utils import _pytree as pytree

from purexport.aten.graph import Frame, Source
from purexport.errors import ExportError
from purexport.frontends.core import row_loops
from purexport.frontends.core.request import refuse_output
from purexport.frontends.core.single_calls import recorded_in_other_forms
from purexport.frontends.core.structures import Path, StructureNode, apart
from purexport.frontends.export.constants import decided_by_constants
from purexport.frontends.export.positions import by_numbers
from purexport.frontends.export.specs import Place, Relation
from purexport.shapes.failures import code_of
from purexport.shapes.guards import holds_but_for_the_smallest
from purexport.torch_patches.calls import functions_handed_to
from purexport.torch_patches.sizes import conditions_handed_to

_LONGEST = 300
_MOST_LINES = 40
_OUTPUTS = (torch.Tensor, bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


# Functions whose condition on the data only chooses the faster of two ways to one result, and the answer to it.
_EITHER_WAY = {"torchvision.ops.boxes.batched_nms": False}

# Functions of torch that check their arguments, and whose condition holds for those that are right.
_CHECKED = {
    "torch.distributions.distribution.__init__": "the parameters of a distribution",
    "torch.distributions.distribution._validate_sample": "the sample of a distribution",
}


class _Stopped(Exception):  # noqa: N818  it carries an error out of torch, and never reaches a user
    """An error of the model's code."""


class Watch:
    """The watch over one module.

    `signature` is the one that torch.export gets.  `arguments` are the example's arguments by parameter name.  `names`
    are the input names of their tensors, by identity.  `structure` are the arguments as the model takes them, where
    torch.export sees plain containers.  `relations` hold between the sizes, and with `small` the sizes may be 0 and 1.
    `results` are the paths of the last run's results.  Loops over rows leave the steps `without` out.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        signature: inspect.Signature,
        arguments: Mapping[str, Any],
        names: Mapping[int, str],
        structure: StructureNode,
        relations: Sequence[Relation],
        small: bool,
        without: set[row_loops.Step],
    ) -> None:
        self.module = module
        self.signature = signature
        self.names = [names.get(id(leaf), "") for leaf in pytree.tree_leaves(arguments)]
        self.paths = {id(part): path for path, part in module.named_modules()}
        self.structure = structure
        self.results: list[Path] = []
        self.relations = relations
        self.small = small
        self.free: dict[Place, Any] = {}
        self.places: dict[Place, Source] = {}
        self.remarks: list[str] = []
        self.shapes: Any = None  # torch's shape environment, once the model runs with symbolic sizes
        self.asked: set[int] = set()  # the guards that the model's own code caused, by their position
        self.decided: dict[Any, tuple[bool, Source]] = {}  # conditions on sizes that the data decides
        self.declared = 0  # the guards that follow from the relations, which come first
        self.without = without
        self.rows = row_loops.Rows(without)
        self._seen = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, the module's `forward` is watched."""
        forward = self.module.forward
        own = self.module.__dict__.get("forward")
        self.module.forward = self._watched(forward)
        try:
            yield
        finally:
            del self.module.forward
            if own is not None:
                self.module.forward = own

    def _watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves(self.signature.bind(*args, **kwargs).arguments)
            self._begin(leaves)
            self.rows = row_loops.Rows(self.without)
            try:
                given, keywords = self.structure.restored((args, kwargs))
                with (
                    conditions_handed_to(self._decided),
                    recorded_in_other_forms(self.remarks),
                    functions_handed_to(self._call),
                ):
                    result = forward(*given, **keywords)
                self._note_asked()
                found = apart(result, results=True)
                leaves = [leaf for _, leaf in found.leaves()]
                for leaf in leaves:
                    if leaf is not None and not isinstance(leaf, _OUTPUTS):
                        raise refuse_output(leaf)
                self.results = [path for path, leaf in found.leaves() if leaf is not None]
                return found.plain(iter(leaves))
            except Exception as error:
                raise _Stopped from error

        watched.__signature__ = self.signature  # type: ignore[attr-defined]
        return watched

    def _begin(self, leaves: Sequence[Any]) -> None:
        """Take the symbolic sizes of the arguments, and tell torch what holds between them."""
        sizes = {
            (name, axis): size
            for name, leaf in zip(self.names, leaves, strict=True)
            for axis, size in enumerate(leaf.shape if isinstance(leaf, torch.Tensor) else ())
        }
        for relation in self.relations:
            size, root = sizes[relation.place], sizes[relation.root]
            _hold(size == (root if relation.size is None else relation.size(root)))
            _hold(size >= relation.low)
            if relation.high is not None:
                _hold(size <= relation.high)
        self.free = {key: size for key, size in sizes.items() if isinstance(size, torch.SymInt)}
        self.shapes = next((size.node.shape_env for size in self.free.values()), None)
        self.declared = self._seen = self._guards()

    def _guards(self) -> int:
        return 0 if self.shapes is None else len(self.shapes.guards)

    def _note_asked(self) -> None:
        """Everything that was asked since the last operator was asked by the model's own code."""
        self.asked.update(range(self._seen, self._guards()))

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_dynamo_compiling():  # the subprograms of torch.cond and the like
            return function(*args, **kwargs)
        self._note_asked()
        name = getattr(function, "__name__", "")
        if self.rows.runs:
            self.rows.writes(name, args, kwargs)
        args = by_numbers(function, args)
        rows = name in row_loops.NAMES
        result = self.rows.call(function, name, args, kwargs) if rows else function(*args, **kwargs)
        if self._guards() != self._seen:
            self._look()
            self._seen = self._guards()
        return result

    def _decided(self, node: Any) -> bool | None:
        """The answer to a question that torch leaves to the data, where constants decide it, or where it is about sizes
        and all but the smallest agree.

        None for a question about other data, and for one that depends on the size.
        """
        condition, shapes = node.expr, node.shape_env
        frames = _outwards(sys._getframe(1))
        asking = next((name for name in map(_function, frames) if not name.startswith(("torch.", "purexport."))), "")
        if asking in _EITHER_WAY:
            return _EITHER_WAY[asking]
        checked = next((_CHECKED[name] for name in map(_function, frames) if name in _CHECKED), "")
        if checked and free_unbacked_symbols(condition):
            remark = f"torch raises an error where {checked} are not valid; the file does not check it"
            if remark not in self.remarks:
                self.remarks.append(remark)
            return True
        if not free_unbacked_symbols(condition) <= shapes.size_like:
            constant = decided_by_constants(condition)
            if constant is not None:
                _check(node, constant)
            return constant
        holds = holds_but_for_the_smallest(condition)
        if not holds and not holds_but_for_the_smallest(sympy.Not(condition)):
            return None
        self.decided.setdefault(condition, (holds, self._source(frames)))
        _check(node, holds)
        return holds

    def _look(self) -> None:
        fixed = [key for key, size in self.free.items() if size.node.expr.is_Integer]
        for key in fixed:
            del self.free[key]
            self.places[key] = self._source(_outwards(sys._getframe(1)))

    def place(self, name: str, axis: int) -> Source:
        """The line after which an axis was first seen as specialized; an empty place where it was not seen."""
        return self.places.get((name, axis), Source())

    def explained(self, error: Exception) -> ExportError:
        """torch's error as an error of our own."""
        cause = _cause(error)
        stack = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)][::-1]
        lines = [line for _, line in traceback.walk_tb(cause.__traceback__)][::-1]
        place = self._source(stack, lines)
        if isinstance(cause, ExportError):
            return cause
        if isinstance(cause, GuardOnDataDependentSymNode):
            return ExportError(
                f"torch.export does not take the model: its Python code decides on the content of a tensor at {place}; "
                "use torch.where or torch.cond there, say what holds with torch._check, or script the function",
                code="data-dependent",
            )
        where = f" at {place}" if place.line else ""
        said, more = f"{_short(cause)}{where}", ""
        lines_of_it = str(cause).strip().splitlines()
        if len(lines_of_it) > 1 and stack and not _function(stack[0]).startswith(("torch.", "purexport.")):
            # raised by the model itself: no line of it is advice of torch
            said = f"{type(cause).__name__}{where}: {lines_of_it[0]}"
            more = "".join(f"\n{line}" for line in lines_of_it[1:_MOST_LINES])
        return ExportError(
            f"torch.export does not take the model: {said}{more}", code=code_of(cause, "torch-export-refuses")
        )

    def must_run_again(self, error: BaseException | None) -> bool:
        """Whether torch failed in a step of a loop that the next run leaves out."""
        return isinstance(error, Exception) and self.rows.must_leave_out(_cause(error))

    def _source(self, stack: Sequence[FrameType], lines: Sequence[int] | None = None) -> Source:
        """The user's line and module of a stack, the innermost frame first."""
        frames: list[Frame] = [
            (frame.f_code.co_filename, frame.f_lineno if lines is None else lines[place])
            for place, frame in enumerate(stack)
        ]
        owners = (self.paths.get(id(frame.f_locals.get("self"))) for frame in stack)
        return Source(next((path for path in owners if path is not None), ""), lambda: frames)


def _cause(error: Exception) -> Exception:
    """The error of the model's code."""
    return error.__cause__ if isinstance(error, _Stopped) and isinstance(error.__cause__, Exception) else error


def _hold(condition: Any) -> None:
    """Tell torch what holds of its symbolic sizes; numbers were compared before."""
    if isinstance(condition, torch.SymBool):
        torch._check(condition)  # type: ignore[no-untyped-call]


def _check(node: Any, holds: bool) -> None:
    """Tell torch the answer to a question, so that it does not ask again."""
    symbolic = torch.SymBool(node)  # type: ignore[no-untyped-call]
    torch._check(symbolic if holds else torch.sym_not(symbolic))  # type: ignore[no-untyped-call]


def _function(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"


def _outwards(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _short(error: BaseException) -> str:
    """The message of an error without torch's advice: its first line, or the explanation in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("Explanation:")), lines[0] if lines else "")
    text = said.removeprefix("Explanation:").strip()
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
