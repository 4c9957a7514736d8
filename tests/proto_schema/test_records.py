"""`proto_schema.wire.records.dataclass` beside the standard library's: each row makes a class with both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from proto_schema.wire import records


def _fields(decorate: Callable[..., Any], **options: Any) -> Any:
    @decorate(**options)
    class Item:
        count: int
        names: list[str] = dataclasses.field(default_factory=list)
        known: ClassVar[int] = 7
        hidden: int = dataclasses.field(default=4, repr=False, compare=False)
        fixed: int = dataclasses.field(default=5, init=False)
        made: list[int] = dataclasses.field(default_factory=lambda: [6], init=False)
        late: int = dataclasses.field(default=1, kw_only=True)

    return Item


def _inherited(decorate: Callable[..., Any], **options: Any) -> Any:
    @decorate(**options)
    class Base:
        """A base."""

        first: int = 1

        def __post_init__(self) -> None:
            object.__setattr__(self, "first", self.first + 1)

    @decorate(**options)
    class Item(Base):
        """With a method of its own."""

        second: tuple[int, ...] = ()

        def __repr__(self) -> str:
            return "mine"

    return Item


def _one(decorate: Callable[..., Any], **options: Any) -> Any:
    @decorate(**options)
    class Item:
        value: float = float("nan")

    return Item


ROWS = [
    (_fields, (3,)),
    (_fields, (3, ["a"], 8)),
    (_inherited, ()),
    (_inherited, (2, (3,))),
    (_one, ()),
    (_one, (0.5,)),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"repr": False},
    {"frozen": True, "eq": False, "slots": True},
]


def _said(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except AttributeError:  # FrozenInstanceError too
        return "refused"
    except TypeError as error:
        # of an object with slots that is frozen the standard decorator says something else up to Python 3.13
        return "refused" if str(error).startswith("super(type, obj)") else str(error).rpartition(".")[2]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("make", "args"), ROWS)
def test_as_the_standard_one(make: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    found = []
    for decorate in (dataclasses.dataclass, records.dataclass):
        found.append(_asked(make, decorate, args, options))
    assert found[0] == found[1]


def _asked(make: Any, decorate: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    cls = make(decorate, **options)
    signature = str(inspect.signature(cls)).replace("<factory>", "MISSING")
    item, same = cls(*args), cls(*args)
    is_nan = make is _one and not args  # since Python 3.13 the standard one does not take a NaN for itself
    return [
        [parameter.split("=")[0] for parameter in signature.split(", ")],
        repr(item) if options.get("repr", True) else "",
        is_nan or item == same,
        is_nan or item == copy.copy(item),
        item != object(),
        _said(lambda: isinstance(hash(item), int)),
        _said(lambda: hash(item) == hash(copy.copy(item))),
        [(field.name, field.init, field.kw_only) for field in dataclasses.fields(cls)],
        dataclasses.asdict(item) if make is not _one else len(dataclasses.asdict(item)),
        cls.__match_args__,
        _said(lambda: setattr(item, dataclasses.fields(item)[0].name, 9)),
        _said(lambda: delattr(item, dataclasses.fields(item)[0].name)),
        _said(lambda: setattr(item, "other", 9)),
        _said(lambda: repr(type(cls()))),
        _said(lambda: cls(unknown=1)),
        hasattr(item, "__dict__"),
        vars(type(copy.deepcopy(item))).keys() >= {"__init__"},
    ]


@records.dataclass(frozen=True, slots=True)
class Kept:
    """For pickle, which looks for classes in modules."""

    one: int
    other: str = "b"


def test_is_pickled_and_replaced() -> None:
    item = Kept(1)
    assert pickle.loads(pickle.dumps(item)) == item
    assert dataclasses.replace(item, one=2) == Kept(2, "b")
    assert dataclasses.is_dataclass(item)


@pytest.mark.full
def test_an_export_compiles_no_methods_at_import() -> None:
    """What an export imports takes our decorator; the standard one costs a quarter of the time of a small export."""
    pytest.importorskip("torch")
    code = (
        "import sys, dataclasses, torch, purexport, warnings; warnings.simplefilter('ignore')\n"
        "purexport.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), dynamic=True)\n"
        "print(sorted(name for name, module in sys.modules.items() if name.startswith(('purexport', 'proto_schema'))"
        " and vars(module).get('dataclass') is dataclasses.dataclass))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
