"""Matches the tensors of a checkpoint to those of a model by name; one error lists all that does not fit.

A tensor of the model may have several names (tied weights): the checkpoint may hold it under any of them, and under
several if these hold the same bytes.  If one prefix explains everything, the error names the option that helps.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from proto_schema.tensors.dtypes import type_name
from proto_schema.wire.records import dataclass
from purexport.errors import WeightsError
from purexport.weights.convert import SOURCES, TARGETS
from purexport.weights.stored import LONGEST_SHOWN, Stored, shown

MOST_LISTED = 20
_WHERE = (
    "(rename, strict and cast are options of purexport.Checkpoint(source, ...); on the command line --rename, "
    "--partial and --cast)"
)
_GIVE = (
    'lay them over the checkpoint: weights=[checkpoint, {"NAME": tensor}]; on the command line by a second --weights, '
    "a file of torch.save"
)


@dataclass(frozen=True)
class Wanted:
    """A tensor of the model: its names, data type and shape.

    `kept` says that the state_dict does not list it, so that no checkpoint has it. `required` says that it must be
    given nevertheless, because the model has no values of its own.
    """

    names: tuple[str, ...]
    dtype: int
    shape: tuple[int, ...]
    kept: bool = False
    required: bool = True

    def __str__(self) -> str:
        return f"{shown(self.names[0])} {_type(self.dtype, self.shape)}"


def match(
    weights: Mapping[str, Stored], wanted: Sequence[Wanted], *, strict: bool = True, cast: bool = False
) -> list[Stored | None]:
    """For each wanted tensor its row of the checkpoint; None if the checkpoint may lack it, or if it has no elements.

    Raises WeightsError that lists everything missing, unexpected and mismatched.
    """
    found: list[Stored | None] = []
    missing, mismatched = [], []
    for item in wanted:
        named = [(name, weights[name]) for name in item.names if name in weights]
        wrong = [line for name, stored in named if (line := _mismatch(name, item, stored, cast))]
        mismatched += wrong or [line for line in _differing(named) if line]
        found.append(named[0][1] if named else None)
        if not named and strict and item.required:
            missing.append(item)
    known = {name for item in wanted for name in item.names}
    unexpected = [name for name in weights if name not in known] if strict else []
    if missing or unexpected or mismatched:
        raise WeightsError(_report(weights, wanted, missing, unexpected, mismatched), code="weights-do-not-fit")
    return found


def _mismatch(name: str, item: Wanted, stored: Stored, cast: bool) -> str:
    fits = stored.dtype == item.dtype or (cast and stored.dtype in SOURCES and item.dtype in TARGETS)
    if fits and stored.shape == item.shape:
        return ""
    return (
        f"{shown(name)} is {_type(item.dtype, item.shape)} in the model and "
        f"{_type(stored.dtype, stored.shape)} in {stored.origin}"
    )


def _differing(named: Sequence[tuple[str, Stored]]) -> Iterator[str]:
    """Names of one tensor of the model that are several tensors in the checkpoint."""
    for name, stored in named[1:]:
        first = named[0][1].payload
        same = stored.payload.identity is not None and stored.payload.identity == first.identity
        if not same and stored.payload != first:
            yield f"{shown(named[0][0])} and {shown(name)} are one tensor in the model, and differ in {stored.origin}"


def _type(dtype: int, shape: Sequence[int]) -> str:
    return f"{type_name(dtype).lower()}{shown(list(shape))}"


# The error ------------------------------------------------------------------------------------------------------------


def _report(
    weights: Mapping[str, Stored],
    wanted: Sequence[Wanted],
    missing: Sequence[Wanted],
    unexpected: Sequence[str],
    mismatched: Sequence[str],
) -> str:
    counts = [(missing, "missing"), (unexpected, "unexpected"), (mismatched, "mismatched")]
    head = ", ".join(f"{len(items)} {what}" for items, what in counts if items)
    known = {name for item in wanted for name in item.names}
    spare = list(unexpected) or [name for name in weights if name not in known]
    lines = [f"the checkpoint ({getattr(weights, 'origin', 'a mapping')}) does not fit the model: {head}"]
    lines += _listed("missing", [f"{item}{_near(item, spare)}" for item in missing[:MOST_LISTED]], len(missing))
    shown_names = [f"{shown(name)} in {weights[name].origin}" for name in unexpected[:MOST_LISTED]]
    lines += _listed("unexpected", shown_names, len(unexpected))
    lines += _listed("mismatched", mismatched[:MOST_LISTED], len(mismatched))
    return "\n".join([*lines, *_advice(weights, missing, unexpected, mismatched)])


def _listed(what: str, lines: Iterable[str], count: int) -> list[str]:
    more = [f"  {what}: and {count - MOST_LISTED} more"] if count > MOST_LISTED else []
    return [*(f"  {what}: {line}" for line in lines), *more]


def _near(item: Wanted, spare: Sequence[str]) -> str:
    if item.kept:
        return ", which checkpoints do not hold"
    tail = item.names[0].rpartition(".")[2]
    # only what ends alike is compared: a checkpoint may have 100,000 names
    alike = [name for name in spare if name.rpartition(".")[2] == tail] if len(spare) > 1000 else spare
    near = difflib.get_close_matches(item.names[0], alike[:1000], n=1, cutoff=0.5)
    return f" (the checkpoint has {shown(near[0])})" if near else ""


def _advice(
    weights: Mapping[str, Stored], missing: Sequence[Wanted], unexpected: Sequence[str], mismatched: Sequence[str]
) -> list[str]:
    """What to do, in lines: the one rename that explains all, else what each kind of fault needs."""
    absent = [item for item in missing if not item.kept]
    rename = _prefix(weights, absent, set(unexpected)) if absent else None
    lines = []
    if rename is not None:
        old, new = rename
        lines.append(f"all missing tensors are there under another prefix: rename={{{old!a}: {new!a}}}")
    elif absent:
        lines.append(f"for other names pass rename={{old: new}}; for tensors that the checkpoint lacks, {_GIVE}")
    if any(item.kept for item in missing):
        lines.append(f"attributes and buffers that are not persistent have no values here; {_GIVE}")
    if rename is None and unexpected and not absent:
        lines.append("to leave out tensors that the model does not have, pass strict=False, or rename={old: None}")
    if any(" is " in line for line in mismatched):
        lines.append(
            "cast=True converts floating-point types to the model's when they are written; shapes must be equal"
        )
    return [*lines, _WHERE] if lines else lines


def _prefix(weights: Mapping[str, Stored], absent: Sequence[Wanted], spare: set[str]) -> tuple[str, str] | None:
    """The prefix to take off the checkpoint's names, or to put before them, so that nothing is missing any more."""
    first = absent[0].names[0]
    for name in sorted(spare or set(weights), key=len):
        before = name.removesuffix(first)
        if before != name and before.endswith(".") and len(name) <= LONGEST_SHOWN:
            named = [any(before + one in weights for one in item.names) for item in absent]
            if all(named):
                return before, ""
        after = first.removesuffix(name)
        if after != first and after.endswith("."):
            stripped = [[one.removeprefix(after) for one in item.names if one.startswith(after)] for item in absent]
            if all(any(one in weights for one in names) for names in stripped):
                return "", after
    return None
