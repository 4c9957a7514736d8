"""docs/bytes.md is what the verbs print: each of its commands is run, on the files that it speaks of."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import proto_schema as ps
from purexport.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "bytes.md"


def network() -> ps.ModelProto:
    """Four layers of MatMul and Relu, with weights that are the same everywhere."""
    nodes, weights = [], []
    for at in range(4):
        x = f"r{at - 1}" if at else "x"
        name = f"layer{at}.weight"
        nodes.append(ps.helper.make_node("MatMul", [x, name], [f"h{at}"], name=f"/layer{at}/MatMul"))
        nodes[-1].doc_string = f"net.py:{12 + at}"
        nodes.append(ps.helper.make_node("Relu", [f"h{at}"], [f"r{at}"], name=f"/layer{at}/Relu"))
        values = ((np.arange(4096) * 37 + at) % 101 - 50).astype(np.float32) / 64
        weights.append(ps.numpy_helper.from_array(values.reshape(64, 64), name))
    x, y = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, ["N", 64]) for name in ("x", "r3"))
    graph = ps.helper.make_graph(nodes, "net", [x], [y], weights)
    opset = [ps.helper.make_opsetid("", 20)]
    return ps.helper.make_model(graph, producer_name="me", ir_version=10, opset_imports=opset)


def commands() -> Iterator[tuple[str, str]]:
    """(command, what the page shows of its output) in the order of the page."""
    for block in re.findall(r"(?m)(?:^    .*\n|^\n(?=    ))+", PAGE.read_text()):
        for one in re.split(r"(?m)^\$ ", dedent(block))[1:]:
            command, _, shown = one.partition("\n")
            yield command, shown.rstrip()


def sizeless(text: str) -> str:
    """Without what depends on the version of zlib, and on the file system."""
    text = re.sub(r"[\d.]+ kB; open it", "N kB; open it", text)
    return re.sub(r"[\d,]+ of these copied by the kernel", "N of these copied by the kernel", text)


def test_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    data = ps.dumps(network())
    Path("net.onnx").write_bytes(data)
    Path("broken.onnx").write_bytes(data[:40000])
    ps.save(network(), "large.onnx", external_data=True)
    ran = list(commands())
    for command, shown in ran:
        words = shlex.split(command)
        assert words[0] == "purexport"
        main(words[1:])
        streams = capsys.readouterr()
        assert sizeless((streams.out + streams.err).rstrip()) == sizeless(shown), command
    assert len(ran) == 18 and os.path.exists("kept.onnx")
