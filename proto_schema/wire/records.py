"""`dataclass` of the standard library, with methods that cost nothing until they are called.

The standard decorator compiles up to six functions for each class.  An export imports more than a hundred such classes,
and compiling for them was a quarter of the time of a small one.  Here `__init__` is compiled when the first object is
made, and the other methods are closures that share their code.  What the classes do is the same: the fields are those
of `dataclasses.fields`, and `replace`, `asdict`, `copy` and `pickle` work.  For a type checker it is the standard one.

Two things differ.  `__dataclass_params__` does not say that a class is frozen, so that a frozen dataclass of the
standard library cannot inherit from it.  A NaN equals itself, as in the standard one before Python 3.13.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import reprlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

Fields = tuple[dataclasses.Field[Any], ...]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False, kw_only=False):
        """The decorator, with those options of the standard one that are used here."""
        if cls is None:
            return functools.partial(_dataclass, frozen=frozen, eq=eq, repr=repr, slots=slots, kw_only=kw_only)
        return _dataclass(cls, frozen, eq, repr, slots, kw_only)


def _dataclass(cls: type, frozen: bool, eq: bool, repr: bool, slots: bool, kw_only: bool) -> type:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard decorator writes the signature, which takes its time
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    fields = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _init_when_called(made, frozen, slots), "__signature__": _Signature(made)}
    if repr:
        methods["__repr__"] = _repr(fields)
    if eq:
        methods["__eq__"] = _eq(field.name for field in fields if field.compare)
        methods["__hash__"] = _hash(fields) if frozen else None
    if frozen:
        methods |= _frozen(made, {field.name for field in fields})
    if frozen and slots:
        methods |= _state([field.name for field in fields])
    # a class that defines __eq__ has a __hash__ of None among its own
    own = {name for name, value in vars(made).items() if name != "__hash__" or value is not None}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


# __init__ -------------------------------------------------------------------------------------------------------------


def _init_when_called(cls: Any, frozen: bool, slots: bool) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _init(cls, frozen, slots)
        cls.__init__(self, *args, **kwargs)

    init.compiled = functools.partial(_init, cls, frozen, slots)  # type: ignore[attr-defined]
    return init


def _init(cls: Any, frozen: bool, slots: bool) -> Callable[..., None]:
    """`__init__` as the standard decorator makes it."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    positional = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for number, field in enumerate(dataclasses.fields(cls)):
        default, factory = f"_default_{number}", f"_factory_{number}"
        names |= {default: field.default, factory: field.default_factory}
        has_default, has_factory = (
            field.default is not dataclasses.MISSING,
            field.default_factory is not dataclasses.MISSING,
        )
        if field.init:
            shown = f"={default}" if has_default else "=_missing" if has_factory else ""
            (by_name if field.kw_only else positional).append(field.name + shown)
            value = f"{factory}() if {field.name} is _missing else {field.name}" if has_factory else field.name
        elif has_factory or (has_default and slots):
            value = f"{factory}()" if has_factory else default
        else:
            continue
        body.append(f"_set(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n    " + "\n    ".join(body or ["pass"]), names)
    found: Any = names["__init__"]
    found.__qualname__, found.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    found.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    return found  # type: ignore[no-any-return]


class _Signature:
    """What `inspect.signature` says of the class."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __get__(self, item: Any, cls: Any) -> inspect.Signature:
        if item is not None or cls is not self.cls:
            raise AttributeError("__signature__")
        compiled = getattr(cls.__init__, "compiled", None)
        whole = inspect.signature(compiled() if compiled is not None else cls.__init__)
        return whole.replace(parameters=[*whole.parameters.values()][1:])


# The other methods ----------------------------------------------------------------------------------------------------


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The function that gives the fields of these names as a tuple."""
    listed = list(names)
    if len(listed) > 1:
        return operator.attrgetter(*listed)
    return lambda item: tuple(getattr(item, name) for name in listed)


def _repr(fields: Fields) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    @reprlib.recursive_repr()
    def shown(self: Any) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(values)})"

    return shown


def _eq(names: Iterable[str]) -> Callable[[Any, Any], Any]:
    values = _values(names)

    def is_equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return is_equal


def _hash(fields: Fields) -> Callable[[Any], int]:
    values = _values(field.name for field in fields if (field.compare if field.hash is None else field.hash))
    return lambda self: hash(values(self))


def _frozen(cls: Any, names: set[str]) -> dict[str, Callable[..., None]]:
    def refuse_to_set(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_to_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": refuse_to_set, "__delattr__": refuse_to_delete}


def _state(names: list[str]) -> dict[str, Callable[..., Any]]:
    """How an object with slots that refuse to be set is copied and pickled."""

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": state, "__setstate__": restore}


__all__ = ["dataclass"]
