"""Invariant: our checker and the official one give the same verdict on a model; ours raises CheckError only.

An input is a stream of choices: one of the models of the checker's tests or of the bundled ones, and one to four
changes of it, by the field table: a field cleared, set to something likely, exchanged for one of another model; an
element of a list left out, doubled, moved. Where the two may differ is listed in KNOWN, and nothing else is excused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import proto_schema as ps
from fuzz.build import Choices
from fuzz.harness import Harness, Violation
from fuzz.seeds import bundled
from proto_schema import checker
from proto_schema.wire.fields import (
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    MESSAGE,
    PAYLOAD,
    STRING,
    Field,
    Message,
    message_class,
    present,
)
from proto_schema.wire.scalars import RANGES, enum_values
from tests.proto_schema.checker_models import loop, valid
from tests.proto_schema.checker_rows_data import VALID

NUMBERS = (*range(11), *range(12, 24), 28, 99, -1, 2**31 - 1, 2**31, 2**62, -(2**63))
# not "ai.onnx", the other name of "", which the official checker takes in some places only
TEXTS = ("", "x", "w", "y", "z", "c", "my", "ai.onnx.ml", "Relu", "Add", "Identity", "Twice", "k", "__k", "value")
DATA = (b"", bytes(4), bytes(8), bytes(1), bytes(432), b"\xff")

Excuse = Callable[[str, str, ps.ModelProto], bool]


def _only_ours(pattern: str) -> Excuse:
    return lambda ours, theirs, _: not theirs and re.search(pattern, ours) is not None


def _only_theirs(pattern: str) -> Excuse:
    return lambda ours, theirs, _: not ours and re.search(pattern, theirs) is not None


_NO_TYPE = (
    r"Invalid tensor data type|Unsupported type proto|"
    r".*mismatch. existing=(sequence|optional|map|sparse_tensor)_type inferred"
)


def _declared_twice(_: str, theirs: str, model: ps.ModelProto) -> bool:
    graph = model.graph or ps.GraphProto()
    types = {value.name: value.type for value in graph.input}
    return not theirs and any(types.get(one.name, one.type) != one.type for one in [*graph.output, *graph.value_info])


# what official inference puts before the complaint about a node within a branch, loop or function
_WRAPPED = r"(.ShapeInferenceError. )?(Inference error.s.: .op_type:[^)]*.: (.ShapeInferenceError. )?)*"


def _about_shapes(ours: str, theirs: str, _: ps.ModelProto) -> bool:
    """A complaint about a shape, and not one about a type that is wrapped as if it were."""
    said = r"\[ShapeInferenceError\] (?!Inference error)|Invalid value of attribute 'axis'. Rank="
    return not ours and re.search(said, theirs) is not None


KNOWN: list[tuple[Excuse, str]] = [
    (_only_ours(r"_data: has (\d+) (bytes|entries); .* needs (?!\1)"), "not as many values as the shape needs"),
    (_only_ours(r"(elem|key|data)_type: -?\d+ is not a data type"), "a type that does not exist"),
    (_only_ours(r"IR version \d+ has no functions"), "no reader of that version knows functions"),
    (_only_ours("has a value, although it refers"), "a value and a reference: readers disagree on which counts"),
    (_only_ours("ref_attr_name: refers to an attribute of a function"), "outside a function nothing is referred to"),
    (_only_ours("is not made in this function"), "an output of a function that nothing makes"),
    (_only_ours(r"^functions\[\d+\].attribute\[\d+\]: '.*' appears more"), "with and without a default"),
    (_only_ours("calls are nested more than 100 deep"), "there it depends on where the search begins"),
    (_only_ours("is an operator of the standard: nodes"), "a function that no node calls"),
    (_only_ours("is not UTF-8"), "a name that is no text"),
    (_only_ours("is a segment of a tensor"), "no tool writes segments"),
    (_only_ours(r"put: the call has \d+ (in|out)puts; the function .* has"), "a call with more than a function takes"),
    (_only_ours("the function .* has no such attribute$"), "a call with an attribute that the function has not"),
    (_only_ours("is required by the function .*, but absent$"), "a call without an attribute that the function needs"),
    (_only_ours(r"output: has \d+ outputs; (Loop|Scan) takes"), "a loop without a name for a result of its body"),
    (_only_ours("output.*: is declared as .*, but .* makes"), "inference there follows the first input, ours any"),
    (
        _only_theirs("should be stored in .*, but it"),
        "without a folder we look for no file",
    ),
    (_only_theirs(f"^{_WRAPPED}(.TypeInferenceError. )?({_NO_TYPE})"), "an empty type within a type, which we leave"),
    (_only_theirs("No opset import for domain *optype"), "IR versions 1 and 2 have no imports; inference expects them"),
    (_only_theirs(f"^{_WRAPPED}.TypeInferenceError. Input \\d+ expected to have type"), "a call without an input"),
    (
        _only_theirs(f"^{_WRAPPED}.TypeInferenceError. Input type for input at index \\d+ is null"),
        "an input of no type",
    ),
    (_about_shapes, "our full check is about types, not about shapes"),
    (_declared_twice, "an input that is declared again with another type: official inference takes the last"),
]
"""Whether our complaint and the official one, empty for none, may differ so on this model; the reason."""


def odd() -> list[bytes]:
    """The valid models of the checker's tests, most with something odd."""
    made = []
    for change in [loop("c", "x"), *(row[1] for row in VALID if "nested calls" not in row[0])]:
        model = valid()
        change(model)
        made.append(model.SerializeToString())
    return made


@cache
def models() -> tuple[bytes, ...]:
    """Valid models."""
    return (*odd(), *bundled())


@cache
def _donors() -> dict[type[Message], list[Message]]:
    """The messages of all models, by class."""
    found: dict[type[Message], list[Message]] = defaultdict(list)
    for data in models():
        for message in _below(ps.loads(data)):
            found[type(message)].append(message)
    return found


def _below(message: Message) -> Iterator[Message]:
    yield message
    for field, value in present(message):
        if field.kind is MESSAGE:
            for child in value if field.repeated else [value]:
                yield from _below(child)


def changed(choices: Choices) -> ps.ModelProto:
    """A model with one to four changes."""
    model = ps.loads(models()[_wide(choices) % len(models())])
    for _ in range(1 + choices.below(4)):
        there = list(_below(model))
        _change(there[_wide(choices) % len(there)], choices, there)
    return model


def _wide(choices: Choices) -> int:
    return choices.below(256) * 256 + choices.below(256)


def _change(message: Message, choices: Choices, there: list[Message]) -> None:
    used = [field for field, _ in present(message)]
    field = choices.one_of(used if used and choices.below(3) else type(message).FIELDS)
    value = getattr(message, field.name)
    if not field.repeated:
        setattr(message, field.name, _value(message, field, choices, there) if choices.below(4) else None)
        return
    items = list(value)
    at = _wide(choices) % len(items) if items else 0
    match choices.below(5) if items else 0:
        case 0:
            items.insert(at, _value(message, field, choices, there))
        case 1:
            del items[at]
        case 2:
            items.append(deepcopy(items[at]))
        case 3:
            items.insert(_wide(choices) % len(items), items.pop(at))
        case _:
            items[at] = _value(message, field, choices, there)
    setattr(message, field.name, items)


def _value(message: Message, field: Field, choices: Choices, there: list[Message]) -> Any:
    """Something of the field's kind: mostly what stands in such a field somewhere."""
    kind = field.kind
    if kind is MESSAGE:
        child = message_class(type(message), field)
        donors = [one for one in there if type(one) is child] if choices.below(2) else _donors()[child]
        return deepcopy(donors[_wide(choices) % len(donors)]) if donors and choices.below(8) else child()
    donors = there if choices.below(2) else _donors()[type(message)]
    found = [getattr(one, field.name) for one in donors if type(one) is type(message)] if choices.below(4) else []
    flat = [item for value in found for item in (value if field.repeated else [value]) if item is not None]
    if flat:
        return flat[_wide(choices) % len(flat)]
    if kind is STRING:
        return choices.one_of(TEXTS)
    if kind in (BYTES, PAYLOAD):
        return choices.one_of(DATA)
    if kind is ENUM:
        return choices.one_of(sorted(enum_values(field.enum)))
    if kind in (FLOAT, DOUBLE):
        return 0.5
    lowest, highest = RANGES[kind.name]
    return min(max(choices.one_of(NUMBERS), lowest), highest)


def official(data: bytes, full: bool) -> str:
    """The official checker's complaint."""
    import onnx

    try:
        onnx.checker.check_model(data, full_check=full)
    except Exception as error:  # beside its own classes RuntimeError, from deep inside
        return str(error) or "no"
    return ""


def check(data: bytes) -> str:
    choices = Choices(data)
    full = choices.below(4) == 3
    model = changed(choices)
    theirs = official(model.SerializeToString(), full)
    try:
        checker.check_model(model, full)
        ours = ""
    except ps.CheckError as error:
        ours = str(error)
    if bool(ours) != bool(theirs) and not excused(ours, theirs, model):
        raise Violation(f"ours: {_plain(ours) or 'valid'}; the official one: {_plain(theirs) or 'valid'}")
    return _plain(ours)


def excused(ours: str, theirs: str, model: ps.ModelProto) -> str:
    """The reason of the row of KNOWN that has this disagreement; empty for none."""
    return next((reason for row, reason in KNOWN if row(ours, theirs, model)), "")


def _plain(complaint: str) -> str:
    """A complaint without the particulars of the model."""
    path, _, reason = complaint.partition(": ")
    step = re.sub(r"\[[^]]*\]", "", path).rpartition(".")[2]
    return re.sub(r"'[^']*'|\d+|\(op_type:.*|==>.*", "", f"{step}: {reason}" if reason else complaint)[:120].strip()


def seeds() -> list[bytes]:
    """Streams of choices."""
    rng = Random(0)
    return [rng.randbytes(64) for _ in range(200)]


HARNESS = Harness(
    "checker", "our verdict on a model is the official checker's", ps.CheckError, check, seeds, longest=128
)
