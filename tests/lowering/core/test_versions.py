"""Words that an attribute learns at some opset: the published schemas name them from that version on."""

from __future__ import annotations

import onnx.defs
import pytest

from proto_schema.operators.changes import WORDS


@pytest.mark.parametrize(("op_type", "attribute", "word"), WORDS, ids=["-".join(row) for row in WORDS])
def test_a_word_is_as_old_as_its_row_says(op_type: str, attribute: str, word: str) -> None:
    opset = WORDS[op_type, attribute, word]
    for version in (opset, opset - 1):
        said = onnx.defs.get_schema(op_type, version).attributes[attribute].description
        assert (word in said) == (version == opset), said
