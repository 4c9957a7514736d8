"""The files that the exporters write for a sample, at several opsets.

By our routes a sample is captured once, as no stage before the lowering asks for the opset, and lowered at each opset;
most of an export by torch.export is the capture.  `--apart` exports at each opset anew, which gives the same bytes.
torch.onnx is called for each opset.
"""

from __future__ import annotations

import copy
import dataclasses
import io
from collections.abc import Iterator, Sequence

import torch
from coverage_samples import Bound, Sample
from torch import nn

ROUTES = ("trace", "export", "script")
PEERS = ("torch.onnx dynamo=False", "torch.onnx dynamo=True")

File = bytes | Exception


def exports(route: str, sample: Sample, opsets: Sequence[int], apart: bool = False) -> Iterator[tuple[int, File]]:
    """The opsets in turn with the files, or with the errors in their place."""
    if route in PEERS or apart:
        for opset in opsets:
            try:
                yield opset, exported(route, *sample, opset)
            except Exception as error:
                yield opset, error
        return
    try:
        files = _at_opsets(route, *sample, opsets)
    except Exception as error:
        files = [error] * len(opsets)
    yield from zip(opsets, files, strict=True)


def exported(route: str, model: Bound, tensors: tuple[torch.Tensor, ...], opset: int) -> bytes:
    """The file that an exporter writes for a sample."""
    args = copy.deepcopy(tensors)
    if route in PEERS:
        buffer = io.BytesIO()
        torch.onnx.export(model, args, buffer, opset_version=opset, dynamo=route.endswith("True"))
        return buffer.getvalue()
    import purexport

    module, capture = _module(route, model, args)
    program = purexport.export(module, args, opset_version=opset, capture=capture)
    return bytes(program.model_proto.SerializeToString())


def _module(route: str, model: Bound, args: tuple[torch.Tensor, ...]) -> tuple[nn.Module, str]:
    """What is exported, and by which capture."""
    if route == "script":
        return torch.jit.trace(model, args, check_trace=False), "auto"
    return model, route


def _at_opsets(route: str, model: Bound, tensors: tuple[torch.Tensor, ...], opsets: Sequence[int]) -> list[File]:
    """What `exported` gives at each opset, or its error; raises that of a capture."""
    from purexport.options import Options
    from purexport.stages.build import build_program
    from purexport.stages.capture import capture_model
    from purexport.stages.functionalize import make_pure
    from purexport.stages.lower import lower_to_onnx
    from purexport.stages.run import opened

    args = copy.deepcopy(tensors)
    module, capture = _module(route, model, args)
    options = {opset: Options(opset_version=opset, capture=capture) for opset in opsets}
    files: list[File] = []
    with opened(module, args, None, options[opsets[0]]) as run:
        pure = make_pure(run, capture_model(run))
        for opset in opsets:
            at_opset = dataclasses.replace(run, options=options[opset])
            try:
                program = build_program(at_opset, lower_to_onnx(at_opset, pure))
                files.append(bytes(program.model_proto.SerializeToString()))
            except Exception as error:
                files.append(error)
    return files


def import_early(peer: bool) -> None:
    """What every process would import, once before they are forked."""
    import torch.export

    from purexport.lowering.rules import registered

    registered()
    sample = (Bound(torch.relu, (torch.ones(1),), {}), (torch.ones(1),))
    for route in PEERS if peer else ("trace", "export"):
        next(exports(route, sample, [20]), None)
