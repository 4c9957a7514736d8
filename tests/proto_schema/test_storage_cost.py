"""The model of the cost counts what is asked of a storage, and the page shows what the model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.external import addresses, payload
from proto_schema.numpy_helper import from_array
from proto_schema.quantization import quantize
from tests.proto_schema.test_addresses import Flaky, storage  # noqa: F401
from tools import storage_cost
from tools.storage_cost import Layout, cost

ROOT = Path(__file__).parents[2]


def stored(rows: int, columns: int, count: int) -> int:
    """A model of such matrices in storage; returns the bytes of its own file."""
    weights = [from_array(np.ones((rows, columns), np.float16), f"w{place}") for place in range(count)]
    nodes = [helper.make_node("MatMul", ["x", item.name or ""], [f"y_{item.name}"]) for item in weights]
    given = helper.make_tensor_value_info("x", 10, ["n", rows])
    results = [helper.make_tensor_value_info(f"y_{item.name}", 10, ["n", columns]) for item in weights]
    graph = helper.make_graph(nodes, "g", [given], results, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    ps.save(made, "flaky://b/m.onnx", external_data=True)
    return len(Flaky.store["/b/m.onnx"].getvalue())


@pytest.mark.parametrize(("scheme", "passes"), [("int4", 1), ({"type": "int4", "block_size": 0}, 2)], ids=str)
def test_what_is_counted(scheme: Any, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and requests for weights; beside them, only a few of the model's own file and its folder."""
    for module in (addresses, payload, storage_cost):
        monkeypatch.setattr(module, "CHUNK", 1 << 14)
    rows, columns, count = 512, 160, 6
    own = stored(rows, columns, count)
    found = cost(Layout("", ((count, rows * columns),)), shard=100_000, passes=passes)
    Flaky.log.clear()
    quantized = quantize(ps.load("flaky://b/m.onnx"), scheme)
    ps.save(quantized, "flaky://c/q.onnx", external_data=True, shard_size=100_000, alignment=1)
    read = [size for what, path, size in Flaky.log if what == "read" and path.endswith(".data")]
    looked = [path for what, path, _ in Flaky.log if what == "info" and path.endswith(".data")]
    assert sum(read) == found.read and len(read) + count * passes == found.reads
    assert len(looked) == count * passes + 1  # the first look at the data file
    files = {path: file.getvalue() for path, file in Flaky.store.items() if path.startswith("/c/q.onnx.")}
    if passes == 1:
        marks = sum(len(data) - data.rindex(b"\n#proto_schema") for data in files.values())
        assert len(files) == found.pieces and sum(map(len, files.values())) - marks == found.written
    assert own < 2000


def test_the_parts_of_an_upload() -> None:
    assert storage_cost._requests(addresses.PART * 3 + 1) == 2 + 4
    assert storage_cost._requests(400 * 10**9) <= 2 + addresses.MOST_PARTS


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "large-models.md").read_text()
    assert "\n".join(storage_cost.lines()) in page, "python -m tools.storage_cost prints the table of the page"
