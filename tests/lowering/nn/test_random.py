"""Random operators.  The numbers are the runtime's own: rows ask what holds for every draw, and some tests more."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest
import torch
from torch.nn import functional

import purexport
from tests.harness import Row, _ort_session, f32, run_ort, values
from tests.row_plans import Plan, row_params, run_row


def draw(name, model, *inputs, **options):
    """A row at opsets before and after 22, from which on ONNX Runtime has no kernels of the random operators."""
    return Row(name, model, *inputs, opsets=(9, 13, 23), **options)


ONE = {0: {0: "rows"}}


def thinned(kept, x, p):
    """True where a place is zero, or as much greater as dropout makes it."""
    return (kept == 0) | ((kept - x / (1 - p)).abs() < 1e-4)


def inside(drawn, low, high):
    return (drawn >= low) & (drawn < high)


ROWS = [
    draw("rand", lambda x: inside(torch.rand(3, 4) + 0 * x, 0, 1), f32(3, 4)),
    draw("rand-dynamic", lambda x: inside(torch.rand(x.shape[0], 2), 0, 1), f32(3, 4), dynamic=ONE),
    draw("rand-double", lambda x: torch.rand(3, dtype=torch.float64) * 0 + x, f32(3)),
    draw("rand-generator", lambda x: inside(torch.rand(3, generator=None), 0, 1) & (x < 9), f32(3)),
    draw("rand-like", lambda x: inside(torch.rand_like(x), 0, 1), f32(3, 4), dynamic=ONE),
    draw("randn", lambda x: torch.randn(3, 4).abs() + 9 > x, f32(3, 4)),
    draw("randn-zero-dim", lambda x: torch.randn(()).abs() + 9 > x, f32(3)),
    draw("randn-like", lambda x: torch.randn_like(x).isfinite(), f32(3, 4), dynamic=ONE),
    draw("uniform", lambda x: inside(torch.empty_like(x).uniform_(2.0, 3.0), 2, 3), f32(3, 4), dynamic=ONE),
    draw("normal", lambda x: torch.empty_like(x).normal_(100.0, 0.5) > 90, f32(3, 4), dynamic=ONE),
    draw("normal-numbers", lambda x: torch.normal(100.0, 0.5, (3, 4)) > 90 + 0 * x, f32(3, 4)),
    draw("normal-mean", lambda x: torch.normal(x * 0 + 100, 0.5) > 90, f32(3, 4)),
    draw("normal-deviation", lambda x: torch.normal(100.0, x) > 90, f32(3, 4, low=0, high=1)),
    draw("normal-tensors", lambda x, y: torch.normal(x + 100, y) > 80, f32(3, 4), f32(4, low=0, high=1)),
    draw("exponential", lambda x: torch.empty_like(x).exponential_(2.0) >= 0, f32(3, 4)),
    draw("log-normal", lambda x: torch.empty_like(x).log_normal_() > 0, f32(3, 4)),
    draw("cauchy", lambda x: torch.empty_like(x).cauchy_().isfinite(), f32(3, 4)),
    draw("geometric", lambda x: torch.empty_like(x).geometric_(0.3) >= 1, f32(3, 4)),
    draw("randint", lambda x: inside(torch.randint(5, (3, 4)), 0, 5) & (x < 99), f32(3, 4)),
    draw("randint-one", lambda x: torch.randint(7, 8, (3, 4)) + (x * 0).long(), f32(3, 4)),
    draw("randint-like", lambda x: inside(torch.randint_like(x, 5), 0, 5), f32(3, 4)),
    draw("randint-like-low", lambda x: torch.randint_like(x, 4, 5), f32(3, 4)),
    draw("randperm", lambda x: torch.randperm(5).sum() + (x * 0).long(), f32(5)),
    draw("bernoulli", torch.bernoulli, values([0.0, 1.0, 1.0])),
    draw("bernoulli-number", lambda x: torch.ops.aten.bernoulli.p(x, 1.0), f32(3)),
    draw("bernoulli-tensor", lambda x, p: torch.ops.aten.bernoulli.Tensor(x, p), f32(3), values([0.0, 1.0, 1.0])),
    draw("multinomial", lambda x: torch.multinomial(x, 1), values([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])),
    draw("multinomial-all", lambda x: torch.multinomial(x, 3).sum(-1), f32(2, 3, low=0.1, high=1)),
    draw("multinomial-again", lambda x: torch.multinomial(x, 4, replacement=True), values([0.0, 0.0, 1.0])),
    draw("multinomial-rows", lambda x: torch.multinomial(x, 4, True), values([[0.0, 1.0], [1.0, 0.0]])),
    draw("dropout-eval", lambda x: functional.dropout(x, 0.5, False), f32(3, 4)),
    draw("dropout", lambda x: thinned(functional.dropout(x, 0.5), x, 0.5), f32(3, 4), dynamic=ONE),
    draw("dropout-all", lambda x: functional.dropout(x, 1.0), f32(3, 4)),
    draw("dropout-none", lambda x: functional.dropout(x, 0.0), f32(3, 4)),
    draw("native-dropout", lambda x: thinned(torch.native_dropout(x, 0.25, True)[0], x, 0.25), f32(3, 4)),
    draw("native-dropout-eval", lambda x: torch.native_dropout(x, 0.25, False), f32(3, 4)),
    draw("channel-dropout", lambda x: thinned(torch.feature_dropout(x, 0.5, True), x, 0.5), f32(2, 3, 4), dynamic=ONE),
    draw("channel-dropout-eval", lambda x: torch.feature_dropout(x, 0.5, False), f32(2, 3, 4)),
    draw("alpha-dropout", lambda x: functional.alpha_dropout(x, 0.2, True).isfinite(), f32(3, 4)),
    draw("alpha-dropout-eval", lambda x: functional.alpha_dropout(x, 0.2), f32(3, 4)),
    draw("channel-alpha-dropout", lambda x: torch.feature_alpha_dropout(x, 0.2, True).isfinite(), f32(2, 3, 4)),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize(
    ("name", "model", "mean", "deviation"),
    [
        ("uniform", torch.rand_like, 0.5, 12**-0.5),
        ("normal", lambda x: torch.randn_like(x) * 2 + 3, 3, 2),
        ("exponential", lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
        ("geometric", lambda x: torch.empty_like(x).geometric_(0.5), 2, 2**0.5),
        ("integers", lambda x: torch.randint(2, 6, x.shape).float(), 3.5, 1.25**0.5),
        ("bernoulli", lambda x: torch.bernoulli(x + 0.25), 0.25, (3 / 16) ** 0.5),
        ("dropout", lambda x: functional.dropout(x + 1, 0.5), 1, 1),
        ("alpha-dropout", lambda x: functional.alpha_dropout(torch.randn_like(x), 0.2, True), 0, 1),
    ],
)
def test_distribution(name, model, mean, deviation, opset) -> None:
    """Mean and deviation of many draws, within five standard errors or so."""
    zeros = torch.zeros(200, 100)
    data = purexport.export(model, (zeros,), opset_version=opset).model_proto.SerializeToString()
    (drawn,) = run_ort(data, [zeros.numpy()])
    assert np.mean(drawn) == pytest.approx(mean, abs=0.05 * deviation), name
    assert np.std(drawn) == pytest.approx(deviation, rel=0.08), name


@pytest.mark.parametrize("opset", [17, 23])
def test_draws_differ(opset) -> None:
    """Those of one run, and those of the next one: nothing is merged or folded."""
    zeros = torch.zeros(100)

    def model(x):
        return torch.rand_like(x), torch.rand_like(x), torch.rand(100), torch.randn(100)

    session = _ort_session(purexport.export(model, (zeros,), opset_version=opset).model_proto.SerializeToString())
    drawn = [item for _ in range(2) for item in session.run(None, {session.get_inputs()[0].name: zeros.numpy()})]
    for place, one in enumerate(drawn):
        assert not any(np.array_equal(one, other) for other in drawn[:place])


def test_operators_themselves() -> None:
    """With a target that is no release they stay; onnx's own evaluator runs them."""
    zeros = torch.zeros(3, 4)
    program = purexport.export(
        lambda x: torch.rand_like(x) + 2, (zeros,), input_names=["x"], opset_version=23, target="onnx; any"
    )
    loaded = onnx.load_from_string(program.model_proto.SerializeToString())
    assert next(node.op_type for node in loaded.graph.node) == "RandomUniform"
    evaluator = onnx.reference.ReferenceEvaluator(loaded)
    (drawn,) = evaluator.run(None, {"x": zeros.numpy()})
    assert drawn.shape == (3, 4) and drawn.dtype == np.float32
    assert ((drawn >= 2) & (drawn < 3)).all()
