"""Does what a row wrote compute what stood there?  Both are run in torch, on random values.

What is compared begins at the values that the new calls take.  Those that follow from weights or from numbers of the
user are random.  What follows from tokens, masks and positions alone (angles, masks) is computed from an example:
rows look at how it is made.  Operators that only rows make are run by their definitions.

The same pattern with the same sizes is proven once: a row sees nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch

from purexport.aten.graph import Arg, AtenGraph, AtenValue, Call, Input
from purexport.aten.names import operator_of
from purexport.aten.schema import number_parameters
from purexport.errors import VerificationError
from purexport.fusion.definitions import DEFINITIONS
from purexport.fusion.expressions import Expressions, shape_of

_ROUNDING = 0.6  # the power of a type's epsilon: as far apart, of the largest number, another order of sums may be
_NUMBERS = ("aten::ScalarImplicit", "aten::Int", "aten::IntImplicit")


class _UnprovableError(Exception):
    """Torch cannot run something, which is named."""


class Prover:
    """Proves what rows write into one graph.  `given` has tensors for the inputs of the user, by name."""

    def __init__(self, given: Mapping[str, torch.Tensor]) -> None:
        self._given = given
        self._proven: set[Hashable] = set()
        self._known = Expressions(AtenGraph())
        self._learnt: set[AtenValue] = set()

    def look_at(self, graph: AtenGraph, known: Expressions) -> None:
        """The next row begins: these are the calls that it sees."""
        self._known = known
        self._learnt = {item.value for item in graph.inputs if self._is_learnt(item)}
        for call in graph.calls:
            if call.base != "aten::size" and any(value in self._learnt for value in call.inputs()):
                self._learnt.update(call.outputs)

    def _is_learnt(self, item: Input) -> bool:
        if item.kind == "user":
            given = self._given.get(item.name)
            return given is None or given.is_floating_point()
        return item.kind == "parameter" or item.tensor is None or item.tensor.is_meta

    def prove(
        self, row: str, call: Call, written: Sequence[Call], pairs: Sequence[tuple[AtenValue, AtenValue]]
    ) -> str | None:
        """None where the new values of `pairs` are the old ones, otherwise why that cannot be found out.

        Raises VerificationError where they are not.
        """
        made = {value for new in written for value in new.outputs}
        taken = [value for new in written for value in new.inputs()]
        ends = [new for _, new in pairs if new not in made]
        cut = [value for value in dict.fromkeys([*taken, *ends]) if value not in made]
        key = (row, self._signature(written, pairs, cut))
        if key in self._proven:
            return None
        values = _Values(self._known, self._given, self._learnt)
        try:
            for value in cut:
                values.give(value)
            old = [values.of(value) for value, _ in pairs]
        except _UnprovableError as error:
            return f"{call.source}: {row}: {error}"
        try:
            for new in written:
                values.run(new)
            found = [values.of(value) for _, value in pairs]
        except _UnprovableError as error:
            raise _mistake(row, call, str(error)) from error
        for place, (one, other) in enumerate(zip(old, found, strict=True)):
            difference = _difference(one, other)
            if difference is not None:
                raise _mistake(row, call, f"{difference} (result {place}, on random values)")
        self._proven.add(key)
        return None

    def _signature(
        self, written: Iterable[Call], pairs: Iterable[tuple[AtenValue, AtenValue]], cut: Iterable[AtenValue]
    ) -> Hashable:
        """What is equal for two sites with the same calls of values of the same types."""
        numbers: dict[AtenValue, int] = {}
        signed: list[Hashable] = []
        ends = set(cut)
        inside = {value: call for call in written for value in call.outputs}

        def sign(arg: Arg) -> Hashable:
            if isinstance(arg, (list, tuple)):
                return tuple(map(sign, arg))
            if not isinstance(arg, AtenValue):
                return repr(arg)
            if arg not in numbers:
                call = inside.get(arg) or (None if arg in ends else self._known.call(arg))
                item = self._known.inputs.get(arg)
                if call is None:
                    numbers[arg] = len(numbers)
                    held = id(item.tensor) if item is not None and arg not in self._learnt else None
                    signed.append((str(arg.type), arg in self._learnt, held))
                else:
                    args = tuple((name, sign(value)) for name, value in call.args.items())
                    for value in call.outputs:
                        numbers[value] = len(numbers)
                    signed.append((call.target, args, len(call.outputs)))
            return numbers[arg]

        ended = tuple((sign(old), sign(new)) for old, new in pairs)
        return (*signed, ended)


def _mistake(row: str, call: Call, what: str) -> VerificationError:
    return VerificationError(
        f"{call.source}: the row {row!r} writes something else than the model has there: {what}; this is a mistake of "
        "purexport: please report it, with the model's config"
    )


class _Values:
    """The tensors of values, random where they are learnt."""

    def __init__(self, known: Expressions, given: Mapping[str, torch.Tensor], learnt: set[AtenValue]) -> None:
        self._known, self._given, self._learnt = known, given, learnt
        self._found: dict[AtenValue, Any] = {}
        self._generator = torch.Generator().manual_seed(0)

    def give(self, value: AtenValue) -> None:
        """Make the value one that others are computed of."""
        if value in self._learnt and _is_float(value):
            self._found[value] = self._random(value)
        else:
            self.of(value)

    def of(self, arg: Arg) -> Any:
        """The tensor or number of an argument."""
        if isinstance(arg, (list, tuple)):
            return [self.of(item) for item in arg]
        if not isinstance(arg, AtenValue):
            return arg
        if arg not in self._found:
            call = self._known.call(arg)
            item = self._known.inputs.get(arg)
            if item is not None:
                self._found[arg] = self._input(item)
            elif call is None or call.blocks:
                raise _UnprovableError("it takes a value of a loop or a branch")
            else:
                self.run(call)
        return self._found[arg]

    def run(self, call: Call) -> None:
        """Compute the results of a call."""
        if call.base == "aten::size" and (size := self._size(call)) is not None:
            self._found[call.outputs[0]] = size
            return
        args = {name: self.of(arg) for name, arg in call.args.items()}
        for name in number_parameters(call.target) & args.keys():
            args[name] = args[name].item() if isinstance(args[name], torch.Tensor) else args[name]
        if call.target == "prim::getitem":
            self._found[call.outputs[0]] = args["list"][args["index"]]
            return
        if call.base in _NUMBERS:
            self._found[call.outputs[0]] = args["a"]
            return
        function = DEFINITIONS.get(call.target) or operator_of(call.target)
        if function is None:
            raise _UnprovableError(f"torch has no {call.target}")
        try:
            results = function(**args)
        except (RuntimeError, TypeError, IndexError) as error:
            raise _UnprovableError(f"{call.target} does not run: {str(error).partition(chr(10))[0]}") from error
        self._found.update(zip(call.outputs, (results,) if len(call.outputs) == 1 else results, strict=True))

    def _size(self, call: Call) -> int | None:
        """A size that the recorded shape has, so that the tensor itself is not computed."""
        shape, dim = shape_of(call.args["self"]), call.args.get("dim")
        found = shape[dim] if shape is not None and isinstance(dim, int) else None
        return found if isinstance(found, int) else None

    def _input(self, item: Input) -> Any:
        if item.value in self._learnt:
            return self._random(item.value)
        return self._given[item.name] if item.kind == "user" else item.tensor.detach()  # type: ignore[union-attr]

    def _random(self, value: AtenValue) -> torch.Tensor:
        """Numbers of about 1, and weights whose products are of about 1, so that no softmax sees one key alone."""
        shape = shape_of(value)
        if shape is None or not all(isinstance(size, int) for size in shape) or not _is_float(value):
            raise _UnprovableError(f"no random values are made for {value.type}")
        item = self._known.inputs.get(value)
        found = torch.randn(shape, generator=self._generator)
        if item is not None and item.kind != "user" and len(shape) > 1:
            found /= max(shape[-1], 1) ** 0.5
        return found.to(value.tensor.dtype)


def _is_float(value: AtenValue) -> bool:
    return shape_of(value) is not None and value.tensor.dtype.is_floating_point


def _difference(old: Any, new: Any) -> str | None:
    """How two results differ, None where they are one."""
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return None if old == new else f"{old} and {new}"
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{old.dtype} {list(old.shape)} and {new.dtype} {list(new.shape)}"
    if not old.is_floating_point():
        return None if torch.equal(old, new) else "other numbers"
    if not old.numel():
        return None
    one, other = old.double(), new.double()
    apart = torch.where(one == other, 0.0, (one - other).abs()).max() / one.abs().max().clamp(min=1e-6)
    bound = torch.finfo(old.dtype).eps ** _ROUNDING
    return None if apart <= bound else f"numbers differ by {float(apart):.2g} of the largest"
