"""Vision models with dynamic batch, height and width: the file is equal to torch at three other sizes.

`benchmarks/vision.py` runs the same models and says which are right, beside torch.onnx.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import purexport
from tests.harness import CAPTURES, run_ort
from tests.models.vision_families import FAMILIES, Family, share_off

# the model asks Python for the float of a size, of which torch's captures keep the number
HELD = ("dino_v3",)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("route", CAPTURES)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_family_sweep(family: Family, route: str) -> None:
    model = family.model()

    def export() -> purexport.ONNXProgram:
        return purexport.export(
            model,
            family.inputs(family.example),
            input_names=family.input_names(),
            dynamic_axes=family.dynamic_axes(),
            opset_version=18,
            capture=route,
        )

    if family.name in HELD:
        if route == "export":
            with pytest.raises(purexport.ExportError, match="makes a size static"):
                export()
        else:
            held = [text for text in export().report.warnings if "but the model fixes it at" in text]
            assert [text.split("'")[1] for text in held] == ["height", "width"]
        return
    program = export()
    data = program.model_proto.SerializeToString()
    for size in (family.example, *family.others):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*family.inputs(size, seed=1)))
        found = run_ort(data, [tensor.numpy() for tensor in family.tensors(size, seed=1)])
        for got, want in zip(found, expected, strict=True):
            assert got.shape == tuple(want.shape), size
            assert share_off(got, want.numpy()) < 1e-3, size
