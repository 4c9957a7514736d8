"""The networks of the zoo, whole: exported, judged by onnx, and equal to torch in ONNX Runtime.

By default some small ones run, on small images with a dynamic batch.  `pytest -m full` runs every network by both
routes, and `pytest -m sweep` all opsets and sizes.  Our evaluator runs the files of one route and opset, too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import proto_schema as ps
from tests.harness import CAPTURES, OPSETS, check_export, run_ort
from tests.models.zoo import NETWORKS, Network
from tests.tolerances import CHAIN, assert_near

NAMES = [network.name for network in NETWORKS]


# Those that run by default, with the route: one that only convolves, one with normalization, two that enlarge.
SMALL = {"squeezenet1_1": "export", "mobilenet_v2": "trace", "dcgan": "trace", "super_resolution": "export"}
# Of the networks with hundreds of MB of weights one way is enough here; the sweep takes all.
LARGE = {"alexnet": "trace", "vgg11_bn": "trace", "swin_t": "trace", "vit_b_32": "export"}


def tier(name: str, route: str = "") -> Any:
    """The mark of a test of a network, by one route or of the network alone."""
    return () if name in SMALL and route in ("", SMALL[name]) else pytest.mark.full


WAYS = [
    pytest.param(network, route, opset, id=f"{network.name}-{route}-{opset}", marks=tier(network.name, route))
    for place, network in enumerate(NETWORKS)
    for route, opset in (("trace", (13, 20)[place % 2]), ("export", 17))
    if LARGE.get(network.name, route) == route
]


@pytest.mark.parametrize(("network", "route", "opset"), WAYS)
def test_network(network: Network, route: str, opset: int) -> None:
    program = check_network(network, route, opset, dynamic=True, full=False)
    if route == "trace" and network.name not in LARGE:
        evaluate(program.model_proto, network.example(3))


@pytest.mark.sweep
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("route", CAPTURES)
@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_network_sweep(network: Network, route: str, opset: int, dynamic: bool) -> None:
    program = check_network(network, route, opset, dynamic=dynamic, full=True)
    evaluate(program.model_proto, network.example(2, True))


def evaluate(model: Any, images: torch.Tensor) -> None:
    """Our evaluator computes what ONNX Runtime does."""
    data = model.SerializeToString()
    found = ps.reference.ReferenceEvaluator(ps.loads(data)).run(None, {"x0": images.numpy()})
    for ours, theirs in zip(found, run_ort(data, [images.numpy()]), strict=True):
        assert_near(ours, theirs, CHAIN)


@pytest.mark.parametrize("network", [pytest.param(item, id=item.name, marks=tier(item.name)) for item in NETWORKS])
def test_network_says_something(network: Network) -> None:
    """The comparison can fail: two images give results that differ by far more than the tolerance."""
    with torch.no_grad():
        first, second = network.make()(network.example(2))
    assert (first - second).abs().max() > 0.01
    assert first.abs().max() < 10


def check_network(network: Network, route: str, opset: int, *, dynamic: bool, full: bool) -> Any:
    return check_export(
        network.make(full),
        (network.example(2, full),),
        opset=opset,
        capture=route,
        dynamic_axes={"x0": {0: "batch"}} if dynamic else None,
        other_args=[(network.example(3, full),)] if dynamic else [],
        bounds=CHAIN,
    )
