"""Which rows run as scripts: how many by file, and why others run as traces that are scripts.

A row that says `script` and that torch.jit.script refuses fails by itself.  Here stands what no single row can tell:
that their number does not drop, and that the reasons of the others are still true.
"""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from torch.jit.frontend import FrontendError

from purexport.errors import ExportError
from tests.functionalize import test_order, test_writes
from tests.harness import Row
from tests.lowering.test_rules_have_rows import operator_modules, rows_of
from tests.row_plans import export_row
from tests.scripting import CannotBeWrittenError

# The rows that run as scripts, by file: raise a number when rows are added, lower it for a reason only.
SCRIPTS = {
    "complex.test_complex": 236,
    "complex.test_elements": 11,
    "linalg.test_complex_matrices": 13,
    "core.test_decomposed": 7,
    "elementwise.test_activations": 48,
    "elementwise.test_arithmetic": 212,
    "elementwise.test_bitwise": 44,
    "elementwise.test_compare": 127,
    "elementwise.test_numbers": 15,
    "fft.test_fourier": 133,
    "linalg.test_eigen": 31,
    "linalg.test_einsum": 35,
    "linalg.test_factorizations": 42,
    "linalg.test_grouped": 16,
    "linalg.test_ldl": 12,
    "linalg.test_powers": 11,
    "linalg.test_products": 62,
    "linalg.test_solve": 48,
    "linalg.test_spectral": 67,
    "nn.test_attention": 46,
    "nn.test_conv": 39,
    "nn.test_ctc": 3,
    "nn.test_grid": 39,
    "nn.test_im2col": 9,
    "nn.test_losses": 92,
    "nn.test_norm": 57,
    "nn.test_pool": 65,
    "nn.test_random": 41,
    "nn.test_resize": 79,
    "nn.test_rnn": 36,
    "quantized.test_conversions": 37,
    "quantized.test_layers": 98,
    "reduce.test_counting": 47,
    "reduce.test_covariance": 14,
    "reduce.test_reductions": 116,
    "reduce.test_sorting": 92,
    "special.test_functions": 71,
    "special.test_series": 50,
    "tensor.test_as_strided": 6,
    "tensor.test_create": 72,
    "tensor.test_indexing": 72,
    "tensor.test_layout": 137,
    "tensor.test_padding": 52,
    "tensor.test_scatter": 95,
    "tensor.test_sequence": 4,
    "vision.test_vision": 40,
    "functionalize.test_order": 119,
    "functionalize.test_writes": 35,
}
# Files without any, and why.
WITHOUT = {
    "core.test_context": "no rows: it reads how rules use their context",
    "core.test_folding": "no rows: it folds nodes, and exports nothing",
    "core.test_inferring": "calls op itself",
    "core.test_promotion": "no rows: it asks for the dtypes, and exports nothing",
    "core.test_versions": "no rows: it compares tables, and exports nothing",
    "forms.test_forms": "forms are chosen by the nodes that rules write, whatever the route",
    "nn.test_contrib": "what a target writes does not depend on the route",
    "nn.test_language": "scripts do not know the operators that language models are recorded with",
    "nn.test_recurrences": "scripts do not know the operators that language models are recorded with",
    "nn.test_onnx_ops": "TorchScript compiles none of torch.onnx.ops",
    "core.test_older_forms": "calls op itself",
}
# What torch.jit.script, or the export of a script, raises where it refuses.
REFUSALS = (RuntimeError, FrontendError, AttributeError, CannotBeWrittenError, ExportError)
FILES = [*operator_modules(), test_order, test_writes]


def name_of(module: ModuleType) -> str:
    return module.__name__.removeprefix("tests.").removeprefix("lowering.")


def scripts() -> dict[str, int]:
    return {name_of(module): sum("script" in row.routes for row in rows_of(module)) for module in FILES}


def test_the_number_of_scripts_does_not_drop() -> None:
    found = scripts()
    fewer = {name: (number, found[name]) for name, number in SCRIPTS.items() if found[name] < number}
    assert not fewer, f"rows that run as scripts, wanted and found: {fewer}"


def test_every_file_has_scripts() -> None:
    none = {name for name, number in scripts().items() if not number}
    assert none == set(WITHOUT)
    assert set(SCRIPTS) | none == set(scripts())


TRACED = [(name_of(module), row) for module in FILES for row in rows_of(module) if row.traced]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{name}-{row.name}") for name, row in TRACED])
def test_reasons_are_still_true(row: Row) -> None:
    """A row runs as a trace that is a script only as long as its script is refused, in these words."""
    with pytest.raises(REFUSALS, match=re.escape(row.traced)):
        export_row(row, "script", max(row.opsets))
