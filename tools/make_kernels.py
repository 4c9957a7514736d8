"""Write proto_schema/data/kernels.json: what ONNX Runtime's CPU provider computes, as data, from its packages.

    python -m tools.make_kernels FOLDER ... [--write]

The installed package is the newest release of the file; each FOLDER holds an older one (`pip install --no-deps --target
FOLDER onnxruntime==1.23.2`, with a numpy that it can import).  Each is asked in a process of its own: for its kernel
definitions, for the newest opset that it loads, and for operators with a function body but without a kernel of a dtype,
by loading a model of one node.  Without FOLDERs the older releases stay as the file has them.  Without `--write` the
tool says whether the file is what it would write.  Form of the file, which `proto_schema.operators.runtimes` reads:

    sets       every set of element types that some constraint allows, once, as codes of TensorProto.DataType
    releases   [[version, newest opset], ...], oldest first
    kernels    operator -> [[first, last, releases, {constraint: set}], ...]

where `first` and `last` are versions of the operator (`last` is 0 for a kernel of its one version `first`, until the
operator changes), and `releases` is a mask: bit n is set for release n that has the kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proto_schema import helper, operators
from proto_schema.tensors.dtypes import DTYPES
from tools.make_operators import Interned, compact, keyed, listed

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "proto_schema" / "data" / "kernels.json"
OPEN = 2**31 - 1
IR_VERSION = 7  # which all releases of the file load
PROVIDER = "CPUExecutionProvider"

# kernels that are registered for a dtype and refuse it when they run ("... does not support double")
REFUSING = {("LSTM", 11), ("GRU", 11)}
CODES = {f"tensor({row.text})": row.code for row in DTYPES.values()}

# constraint -> codes; and the rows of a release by operator
Allowed = dict[str, tuple[int, ...]]
Rows = dict[str, list[tuple[int, int, Allowed]]]


# In the process of one release ---------------------------------------------------------------------------------------


def asked() -> dict[str, Any]:
    """What the package that this process imports says of itself."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    onnxruntime.set_default_logger_severity(4)
    rows: Rows = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.domain not in ("", "ai.onnx") or kernel.provider != PROVIDER:
            continue
        first, last = kernel.version_range
        allowed = {
            name: tuple(code for code in _elements(types) if (kernel.op_name, code) not in REFUSING)
            for name, types in kernel.type_constraints.items()
        }
        rows.setdefault(kernel.op_name, []).append((first, 0 if last == OPEN else last, allowed))
    opset = max(
        opset for opset in range(7, operators.newest_opset() + 1) if _loads("Identity", opset, ["tensor(float)"])
    )
    for op_type in operators.operators(opset):
        known = operators.versions(op_type)
        for version, following in zip(known, (*known[1:], opset + 1), strict=True):
            schema = operators.schema(op_type, version)
            if schema is not None and schema.is_function and version <= opset:
                found = _expanded(schema, min(following - 1, opset))
                if found:
                    rows.setdefault(op_type, []).append((version, version, found))
    return {"version": onnxruntime.__version__, "opset": opset, "rows": rows}


def _elements(types: Iterable[str]) -> tuple[int, ...]:
    """The codes of those that are tensors."""
    return tuple(sorted(CODES[text] for text in types if text in CODES))


def _expanded(schema: operators.OpSchema, last: int) -> Allowed:
    """The types of the first input with which a model of one node loads, the other constraints at their first type.

    The node has all of its inputs, and the model the lowest and the highest opset that has this version: bodies are
    written for one opset, and not always for the others.
    """
    name = schema.inputs[0].type if schema.inputs else ""
    if name not in schema.constraints or any(item.required for item in schema.attributes.values()):
        return {}
    given = {key: sorted(types)[0] for key, types in schema.constraints.items()}
    found = []
    for code in _elements(schema.constraints[name]):
        given[name] = f"tensor({DTYPES[code].text})"
        inputs = [given.get(formal.type, formal.type) for formal in schema.inputs]
        output = schema.outputs[0].type
        if all(_loads(schema.name, at, inputs, given.get(output, output)) for at in (schema.since_version, last)):
            found.append(code)
    return {name: tuple(found)} if found else {}


def _loads(op_type: str, opset: int, inputs: Sequence[str], output: str = "tensor(float)") -> bool:
    """True when a model of one node with these types loads."""
    import onnxruntime

    if not CODES.keys() >= {*inputs, output}:
        return False
    *taken, made = (CODES[text] for text in (*inputs, output))
    names = [f"x{place}" for place in range(len(taken))]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"])],
        "one",
        [helper.make_tensor_value_info(*pair, None) for pair in zip(names, taken, strict=True)],
        [helper.make_tensor_value_info("y", made, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    except Exception:  # the types of its errors differ between releases; each means that the model does not load
        return False
    return True


# The file ------------------------------------------------------------------------------------------------------------


def release(folder: Path | None) -> dict[str, Any]:
    """What the package in a folder says, or the installed one."""
    path = os.pathsep.join([*([str(folder)] if folder else []), str(ROOT)])
    command = [sys.executable, "-m", "tools.make_kernels", "--ask"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def united(rows: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, Allowed]]:
    """The rows with those made one that differ in the types of one constraint only."""
    left = [(first, last, {name: tuple(types) for name, types in allowed.items()}) for first, last, allowed in rows]
    while left:
        first, last, allowed = left.pop()
        for other in left:
            apart = [name for name in allowed if allowed[name] != other[2].get(name)]
            if other[:2] == (first, last) and other[2].keys() == allowed.keys() and len(apart) <= 1:
                for name in apart:
                    other[2][name] = tuple(sorted({*other[2][name], *allowed[name]}))
                break
        else:
            yield first, last, allowed


def known_releases() -> list[dict[str, Any]]:
    """The releases of the file, each as `asked` gives it."""
    if not TARGET.exists():
        return []
    data = json.loads(TARGET.read_text())
    found = []
    for number, (version, opset) in enumerate(data["releases"]):
        rows = {
            op_type: [
                (first, last, {name: data["sets"][index] for name, index in allowed.items()})
                for first, last, mask, allowed in listed_rows
                if mask >> number & 1
            ]
            for op_type, listed_rows in data["kernels"].items()
        }
        found.append({"version": version, "opset": opset, "rows": rows})
    return found


def render(releases: Sequence[Mapping[str, Any]]) -> str:
    """The whole file."""
    masks: dict[str, dict[tuple[Any, ...], int]] = {}
    for number, item in enumerate(releases):
        for op_type, rows in item["rows"].items():
            for first, last, allowed in united(rows):
                key = (first, last, tuple(sorted(allowed.items())))
                ours = masks.setdefault(op_type, {})
                ours[key] = ours.get(key, 0) | 1 << number
    sets = Interned()
    kernels = {
        op_type: listed(
            [first, last, mask, {name: sets(types) for name, types in allowed}]
            for (first, last, allowed), mask in sorted(rows.items())
        )
        for op_type, rows in sorted(masks.items())
    }
    parts = [
        ("source", compact("onnxruntime, " + PROVIDER)),
        ("sets", listed(sets.index)),
        ("releases", listed([item["version"], item["opset"]] for item in releases)),
        ("kernels", keyed(kernels.items())),
    ]
    return keyed(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="where older packages are")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(asked()))
        return 0
    installed = release(None)
    older = [release(folder) for folder in options.folders] if options.folders else known_releases()
    found = {item["version"]: item for item in (*older, installed)}
    text = render(sorted(found.values(), key=lambda item: tuple(map(int, item["version"].split(".")))))
    if options.write:
        TARGET.write_text(text, encoding="ascii", newline="\n")
        return 0
    same = TARGET.exists() and TARGET.read_text() == text
    print("up to date" if same else "differs; run with --write")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
