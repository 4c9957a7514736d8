"""Faults of the kinds that earlier rounds had, each planted in one place, and the default tests that must see it.

    python -m tools.mutate planted --jobs 2

Mutants are small changes drawn at random (`tools/mutate.py`); these are whole mistakes that somebody made or may make:
a layer crossed, a bound loosened, a write lost, a count that is not kept up to date.  The tests of a row are files or
parts of files, as pytest takes them, which pass without the fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """`old`, which stands once in a file, becomes `new`; with no `old`, `new` is added at the file's end."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, tree: Path) -> dict[str, str]:
        """The file with the fault.  Raises ValueError where `old` does not stand there once."""
        text = (tree / self.file).read_text()
        if not self.old:
            return {self.file: f"{text}\n{self.new}\n"}
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.file}")
        return {self.file: text.replace(self.old, self.new)}


def _fault(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, file, old, new, tuple(f"tests/{test}" for test in tests))


FAULTS = [
    # layers and house rules
    _fault(
        "an import against the layers",
        "purexport/aten/scalars.py",
        "",
        "def _late() -> object:\n    from purexport.lowering import lower\n\n    return lower",
        "test_layers.py::test_imports",
    ),
    _fault(
        "a banned import",
        "purexport/inspect/sizes.py",
        "",
        "def _late() -> object:\n    import onnx\n\n    return onnx",
        "test_layers.py::test_imports",
    ),
    _fault(
        "a print in a library",
        "proto_schema/units.py",
        "",
        'print("loaded")',
        "test_layers.py::test_house_rules[proto_schema]",
    ),
    _fault(
        "global state",
        "purexport/options.py",
        "",
        "_count = 0\n\n\ndef _counted() -> None:\n    global _count\n    _count += 1",
        "test_layers.py::test_house_rules[purexport]",
    ),
    _fault(
        "a row of the layers that the page does not show",
        "docs/architecture.md",
        "| facts | `facts` | aten, base, toolkit |",
        "| facts | `facts` | base, toolkit |",
        "test_layers.py::test_architecture_shows_the_layers",
    ),
    # tolerances
    _fault(
        "a bound loosened",
        "tests/tolerances.py",
        '"float32": (2e-5, 2e-6)',
        '"float32": (2e-2, 2e-2)',
        "test_tolerances.py::test_a_lower_precision_is_refused",
    ),
    _fault(
        "a wide bound without a reason",
        "tests/tolerances.py",
        "if wider and not self.loose:",
        "if False:",
        "test_tolerances.py",
    ),
    _fault(
        "dtypes that are not compared",
        "tests/tolerances.py",
        "assert names[0] == names[1]",
        "assert names[0] is not None",
        "test_tolerances.py::test_what_must_be_equal",
    ),
    # capture
    _fault(
        "a value of the neutral graph that can be assigned",
        "purexport/aten/graph.py",
        '        raise FrozenInstanceError(f"cannot assign to field {name!r}")',
        "        object.__setattr__(self, name, value)",
        "aten/test_graph.py",
    ),
    _fault(
        "a script that is traced",
        "purexport/frontends/choose.py",
        "ROUTES: tuple[Route, ...] = (PROGRAM, SCRIPT, TRACE, EXPORT)",
        "ROUTES: tuple[Route, ...] = (PROGRAM, TRACE, EXPORT)",
        "frontends/test_route_choice.py",
    ),
    _fault(
        "a route that is asked for and not taken",
        "purexport/frontends/choose.py",
        "if route.name == request.route), None)",
        "if route.name == request.route and not request.route), None)",
        "frontends/test_route_choice.py",
    ),
    _fault(
        "a model that stays in eval mode",
        "purexport/frontends/core/mode.py",
        "                module.training = before[module]\n",
        "                pass\n",
        "test_export.py::test_mode_and_random_state_are_put_back",
    ),
    _fault(
        "a lost write to a view",
        "purexport/functionalize/graph.py",
        "        self.journal.set(root, new, version)\n\n",
        "        self.journal.set(root, new if root is alias else root.current, version)\n\n",
        "functionalize/test_writes.py",
    ),
    _fault(
        "a view that is read as it was",
        "purexport/functionalize/graph.py",
        "if alias.parent is not None and alias.version != version:",
        "if alias.parent is not None and alias.version > version:",
        "functionalize/test_writes.py",
    ),
    # lowering
    _fault(
        "a size of the example in a file with dynamic axes",
        "purexport/lowering/sized.py",
        "                shape[axis] = Size.symbol(label)\n",
        "                pass\n",
        "shapes/test_sizes_of_traces.py",
        "frontends/test_free_axes.py",
    ),
    _fault(
        "an opset that is off by one",
        "proto_schema/operators/changes.py",
        '("ScatterElements", "reduction", "max"): 18,',
        '("ScatterElements", "reduction", "max"): 17,',
        "lowering/core/test_versions.py",
    ),
    _fault(
        "a file that says another opset",
        "purexport/graph/build.py",
        'ps.OperatorSetIdProto(domain="", version=opset)]',
        'ps.OperatorSetIdProto(domain="", version=opset + 1)]',
        "test_export.py::test_the_file_says_the_opset_that_was_asked",
    ),
    _fault(
        "a constant quotient that is rounded down",
        "purexport/lowering/core/folding.py",
        'torch.div(a, b, rounding_mode="trunc")',
        'torch.div(a, b, rounding_mode="floor")',
        "lowering/core/test_folding.py",
    ),
    _fault(
        "a NaN that folding loses",
        "purexport/lowering/core/folding.py",
        "functools.reduce(torch.minimum, items)",
        "functools.reduce(torch.fmin, items)",
        "lowering/core/test_folding.py",
    ),
    _fault(
        "a dtype that is not widened",
        "purexport/lowering/core/promotion.py",
        "return (1 if operand.type.rank == 0 else 0), operand.type.dtype",
        "return 0, operand.type.dtype",
        "lowering/core/test_promotion.py",
    ),
    # the graph
    _fault(
        "a node that only a body uses is removed",
        "purexport/graph/passes/dce.py",
        "                used |= remove_dead_nodes(body)",
        "                remove_dead_nodes(body)",
        "functionalize/test_blocks.py",
    ),
    _fault(
        "a name that is given twice",
        "purexport/graph/passes/naming.py",
        "value.name = names.unique(node.name + suffix)",
        "value.name = node.op_type + suffix",
        "lowering/elementwise/test_numbers.py::test_row[mul]",
    ),
    _fault(
        "random numbers that are drawn once",
        "purexport/graph/passes/cse.py",
        "return not node.domain and node.op_type not in operators.RANDOM and",
        "return not node.domain and",
        "graph/test_cse.py",
    ),
    # proto_schema: bytes
    _fault(
        "a varint that ends one byte early",
        "proto_schema/wire/__init__.py",
        "    while value > 127:",
        "    while value > 255:",
        "proto_schema/test_wire.py",
    ),
    _fault(
        "a sign that is lost",
        "proto_schema/wire/__init__.py",
        "return value - (1 << bits) if value >> (bits - 1) else value",
        "return value",
        "proto_schema/test_wire.py",
        "proto_schema/test_messages.py",
    ),
    # proto_schema: files
    _fault(
        "a model that is committed before its data",
        "proto_schema/files/commit.py",
        """            for temporary, path in zip(written, self._paths(used), strict=True):
                commit.rename(temporary, path)
            sync_folder(self.path)
            commit.rename(model, self.path)
""",
        """            commit.rename(model, self.path)
            sync_folder(self.path)
            for temporary, path in zip(written, self._paths(used), strict=True):
                commit.rename(temporary, path)
""",
        "proto_schema/test_faults.py::test_calls",
    ),
    _fault(
        "a file that is not synchronized",
        "proto_schema/files/durable.py",
        "        os.fsync(descriptor)\n\n\ndef open_to_append",
        "        pass\n\n\ndef open_to_append",
        "proto_schema/test_files.py",
        "proto_schema/test_faults.py",
        "proto_schema/test_modes.py",
    ),
    _fault(
        "offsets that are not aligned",
        "proto_schema/external/datafiles.py",
        "offset = -(-self.size // alignment) * alignment",
        "offset = self.size",
        "proto_schema/test_files.py",
        "proto_schema/test_plan.py",
    ),
    _fault(
        "external data past the end of its file",
        "proto_schema/external/__init__.py",
        "if entry.offset > size or stop > size:",
        "if entry.offset > size:",
        "proto_schema/test_external.py",
    ),
    _fault(
        "external data outside of the folder",
        "proto_schema/external/__init__.py",
        'return "leaves the model\'s folder" if ".." in location.split("/") else ""',
        'return ""',
        "proto_schema/test_external.py",
    ),
    # proto_schema: models
    _fault(
        "a name that the checker takes twice",
        "proto_schema/checking/graphs.py",
        "                if name and scope.sees(name):",
        "                if name and index and scope.sees(name):",
        "proto_schema/test_checker.py",
    ),
    _fault(
        "a shape that is inferred wrong",
        "proto_schema/inference/operators/moving.py",
        "made.append(sum(sizes) if len(known) == len(shapes) else site.fresh())",
        "made.append(sizes[0] if len(known) == len(shapes) else site.fresh())",
        "proto_schema/test_inference_rows.py",
    ),
    _fault(
        "a result of the evaluator that is wrong",
        "proto_schema/compute/elementwise.py",
        "return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(a.dtype)",
        "return quotient",
        "compute/test_versions.py",
    ),
    _fault(
        "a use that is not counted",
        "proto_schema/ir/reading.py",
        "value._uses[node, len(reads)] = None",
        "value._uses[node, 0] = None",
        "proto_schema/test_simplification.py",
    ),
    _fault(
        "a value that a body still needs is dropped",
        "proto_schema/ir/reading.py",
        "            value._uses[node, len(reads)] = None\n",
        "            if name in values:\n                value._uses[node, len(reads)] = None\n",
        "proto_schema/test_simplification.py",
    ),
    _fault(
        "a conversion that computes something else",
        "proto_schema/legalization/activations.py",
        "op.HardSigmoid(X, alpha=1 / 6, beta=0.5)",
        "op.HardSigmoid(X)",
        "proto_schema/test_version_converter.py",
    ),
    _fault(
        "a range of codes that is off by one",
        "proto_schema/quantization/codes/integers.py",
        "return self.low + (1 << self.bits) - 1",
        "return self.low + (1 << self.bits)",
        "proto_schema/test_quantization.py",
    ),
    # weights and the command line
    _fault(
        "tensors of a checkpoint that overlap",
        "purexport/weights/safetensors.py",
        "        if begin < at:",
        "        if begin < 0:",
        "weights/test_safetensors.py",
    ),
    _fault(
        "a verb that says yes for no",
        "purexport/cli/verbs/check.py",
        "return 0 if sound and all(finding.kind == FORM for finding in found) else 1",
        "return 0",
        "proto_schema/test_checksums.py",
    ),
]
