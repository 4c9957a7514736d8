"""Probes far beyond the example end after some thousand calls, and few questions of sizes search the whole trace."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport
from purexport.frontends.trace import chosen_sizes, route

X = torch.arange(12.0).reshape(3, 4)


def walked(x: Tensor) -> Tensor:
    """A loop without an effect, so that no probe near the example holds the axis."""
    for row in range(x.shape[0]):
        x[row].sum()
    return x * 2


def walked_twice(x: Tensor) -> Tensor:
    for row in range(x.shape[0]):
        for other in range(x.shape[0]):
            x[row].sum() + x[other].sum()
    return x * 2


def in_pieces(x: Tensor) -> Tensor:
    """Each call gives as many tensors as the axis is long."""
    for _ in range(x.shape[0]):
        x.unbind(0)
    return x * 2


def warned(model: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        purexport.export(model, (X,), input_names=["x"], dynamic_axes={"x": {0: "n"}}, capture="trace")
    return [str(item.message) for item in caught]


@pytest.mark.parametrize(
    ("model", "most", "said"),
    [
        (walked, 4000, []),
        (walked, 1000, ["sizes far above 273 were not tried"]),
        (walked, 100, ["sizes far above 3 were not tried"]),
        (in_pieces, 4000, ["sizes far above 3 were not tried"]),
        pytest.param(walked_twice, 1000, ["sizes far above 3 were not tried"], marks=pytest.mark.full),
    ],
)
def test_a_probe_ends_where_it_takes_too_long(
    model: Any, most: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "FAR_CALLS", most)
    found = [text for text in warned(model) if "not tried" in text]
    assert len(found) == len(said)
    for text, words in zip(found, said, strict=True):
        assert text == f"the model makes too many calls where 'n' is large; {words}"


class Counted(tuple[str, ...]):
    """Kinds of nodes that count how often they are walked."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        Counted.walks += 1
        return super().__iter__()


def asked_of_often(x: Tensor) -> Tensor:
    for _ in range(100):
        if x.shape[0] > 1:
            x = x + 1
    return x


def asked_of_often_then_filtered(x: Tensor) -> Tensor:
    x = asked_of_often(x)
    return x.new_zeros(int(x[:, 0].nonzero().shape[0])) + x.sum()


def test_few_questions_search_the_whole_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_sizes, "_MAY_DECIDE", Counted(chosen_sizes._MAY_DECIDE))
    monkeypatch.setattr(Counted, "walks", 0)
    assert not [text for text in warned(asked_of_often) if "depends on data" in text]
    assert 0 < Counted.walks <= 3 * 64


@pytest.mark.full
def test_after_many_questions_a_size_that_data_decides_is_seen() -> None:
    said = [text for text in warned(asked_of_often_then_filtered) if "depends on data" in text]
    assert len(said) == 1 and "uses a number at" in said[0]
