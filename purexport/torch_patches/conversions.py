"""Lets a capture record `int(x.shape[2] * 0.5)`, `float(x.shape[2])` and `len(x)`, in the modules that ask for it.

A size is a symbol there, but what `int`, `float` and `len` give is a number, whatever the symbol says.  So
these names stand for others for a while, in the namespaces of such modules alone.  There they are what they
were in all but the call: a class in `isinstance`, equal to the original, with its attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

Namespace = dict[str, Any]
# a function of the arguments; None where the original decides
Form = Callable[..., Any]

_replaced: list[Namespace] = []


def replaced_conversions() -> Any:
    """The namespaces that have other conversions at the moment."""
    return [id(namespace) for namespace in _replaced]


class _Kind(type):
    """The class of a class that stands for `int` or `float`."""

    original: type
    form: Form

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        taken = not kwargs and (len(args) == 1 or cls.original is range)  # int("11", 2) is about a text
        found = cls.form(*args) if taken else None
        return cls.original(*args, **kwargs) if found is None else found

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.original)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.original, name)


def _other(original: Any, form: Form) -> Any:
    if isinstance(original, type):
        return _Kind(original.__name__, (), {"original": original, "form": staticmethod(form)})

    def function(*args: Any, **kwargs: Any) -> Any:
        found = None if kwargs else form(*args)
        return original(*args, **kwargs) if found is None else found

    return function


@contextmanager
def conversions_recorded(namespaces: Sequence[Namespace], forms: Mapping[Any, Form]) -> Iterator[None]:
    """Inside, the names of the builtins `forms` have the forms in these namespaces, where nothing else has the name."""
    set_here = []
    for namespace in namespaces:
        for original, form in forms.items():
            if original.__name__ not in namespace:
                namespace[original.__name__] = _other(original, form)
                set_here.append((namespace, original.__name__))
    _replaced.extend(namespaces)
    try:
        yield
    finally:
        del _replaced[len(_replaced) - len(namespaces) :]
        for namespace, name in set_here:
            del namespace[name]
