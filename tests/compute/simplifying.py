"""Official cases through `ps.simplify`: as they are, and with tensors of the file instead of inputs."""

from __future__ import annotations

import dataclasses

import numpy as np

import proto_schema as ps
from proto_schema.reference import ReferenceEvaluator
from proto_schema.simplification import simplified
from tests.compute import cases


def check(case: cases.Case) -> bool:
    """Run a case after it was simplified; whether something was folded.  AssertionError where results differ."""
    cases.run(dataclasses.replace(case, model=ps.simplify(ps.loads(case.model)).SerializeToString(), folder=""))
    if (ps.loads(case.model).ir_version or 0) < 4 or not case.sets or case.folder:
        return False
    made = simplified(with_constants(case))
    left = {item.name for item in made.model.graph.input}
    feed = {name: value for name, value in cases.feed(case, case.sets[0][0]).items() if name in left}
    found = ReferenceEvaluator(made.model).run(None, feed)
    for mine, theirs in zip(found, case.sets[0][1], strict=True):
        cases.same(mine, cases.value(theirs), case.rtol, case.atol, True)
    return made.done.get("folded", 0) > 0


def with_constants(case: cases.Case) -> ps.ModelProto:
    """The case with its inputs as tensors of the file, so that all of it is computed of constants."""
    given = ps.loads(case.model)
    feed = cases.feed(case, case.sets[0][0])
    kept = []
    for item in given.graph.input:
        value, kind = feed.get(item.name or ""), item.type.tensor_type if item.type is not None else None
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and kind is not None:
            tensor = ps.numpy_helper.from_array(value, item.name)
            if tensor.data_type == kind.elem_type:
                given.graph.initializer.append(tensor)
                continue
        kept.append(item)
    given.graph.input = kept
    return given
