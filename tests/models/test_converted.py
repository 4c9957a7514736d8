"""Exported networks converted to other opsets: ONNX Runtime gives the same numbers before and after, at all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch.utils import _pytree as pytree

import proto_schema as ps
import purexport
from proto_schema.version_converter import convert_ir, convert_version, opset
from tests.models.case import Case
from tests.models.test_zoo import CASES

SOURCE = 21
TARGETS = (9, 11, 17, 25)
NAMES = (
    "word-lstm", "word-transformer", "bert-sdpa", "gpt-triu", "llama-half-gqa-torch-norm", "unet-corners",
    "gan-generator", "experts-dense", "state-space-log", "wav2vec-parametrized", "whisper", "windows-batch",
    "graph-mean",
)  # fmt: skip
SLOW = ("word-transformer", "wav2vec-parametrized", "windows-batch", "graph-mean")  # their kinds of nodes are in others
LEFT_OUT = {"unet-corners": (9,)}  # resizing to computed sizes by corners came with opset 11


def session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def numbers(data: bytes, examples: Sequence[object]) -> list[np.ndarray[Any, Any]]:
    """The outputs for each of several examples."""
    running = session(data)
    found = []
    for example in examples:
        leaves = [item.numpy() for item in pytree.tree_leaves(example) if isinstance(item, torch.Tensor)]
        feed = {item.name: value for item, value in zip(running.get_inputs(), leaves, strict=True)}
        found += [np.asarray(item) for item in running.run(None, feed)]
    return found


def converts(case: Case, targets: Sequence[int] = TARGETS) -> None:
    args = case.example()
    names = [f"x{place}" for place in range(len(pytree.tree_leaves(args)))]
    program = purexport.export(
        case.model(), args, opset_version=SOURCE, input_names=names, dynamic_axes=case.dynamic_axes()
    )
    data = program.model_proto.SerializeToString()
    examples = [args, *case.other_examples()]
    wanted = numbers(data, examples)
    for target in targets:
        made = convert_version(data, target)
        ps.checker.check_model(made)
        assert opset(made) == target
        if target < SOURCE:
            made = convert_ir(made, max(4, ps.operators.ir_version_for(target)))
        for one, other in zip(numbers(made.SerializeToString(), examples), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in SLOW else name for name in NAMES]
)
def test_the_numbers_stay(name: str) -> None:
    left = LEFT_OUT.get(name, ())
    converts(next(case for case in CASES if case.name == name), [item for item in TARGETS if item not in left])
