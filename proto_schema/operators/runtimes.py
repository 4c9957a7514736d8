"""What runtimes compute: the kernels of releases of ONNX Runtime (CPU provider), by operator, version and dtype.

The facts are data, `data/kernels.json`, made from the packages by `tools/make_kernels.py`, which also describes the
form of the file. It is read once, on first use. A kernel is for the versions of an operator from its first to its
last one; one without a last version is for its first alone, as in ONNX Runtime's `KernelRegistry::VerifyKernelDef`. A
constraint that a kernel does not name may be of any dtype. A float16 input runs wherever a float32 one does, because
the runtime inserts casts there (`InsertCastTransformer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proto_schema.operators import packaged
from proto_schema.wire.records import dataclass

__all__ = ["Release", "newest", "release", "releases"]

FLOAT, FLOAT16 = 1, 10


@dataclass(frozen=True)
class Release:
    """One release of the file: its version, the newest opset that it loads, and its number in the file."""

    version: str
    newest_opset: int
    number: int

    def runs(self, op_type: str, since_version: int, types: Mapping[str, int]) -> bool:
        """True when it has a kernel of this version of the operator for these dtypes, by name of the constraint.

        True for operators of which the file says nothing.
        """
        rows = _data()["kernels"].get(op_type)
        if rows is None:
            return True
        sets = _data()["sets"]
        return any(
            (first == since_version or first < since_version <= last)
            and mask >> self.number & 1
            and all(_taken(types[name], sets[index]) for name, index in allowed.items() if name in types)
            for first, last, mask, allowed in rows
        )

    def has_kernel(self, op_type: str, since_version: int, constraint: str, code: int) -> bool:
        """True when it has a kernel of this version whose constraint names the dtype, so that no cast is inserted."""
        sets = _data()["sets"]
        return any(
            (first == since_version or first < since_version <= last)
            and mask >> self.number & 1
            and code in sets[allowed[constraint]]
            for first, last, mask, allowed in _data()["kernels"].get(op_type, ())
            if constraint in allowed
        )


def releases() -> tuple[Release, ...]:
    """The releases of the file, oldest first."""
    return tuple(Release(version, opset, number) for number, (version, opset) in enumerate(_data()["releases"]))


def newest() -> Release:
    """The newest release of the file."""
    return releases()[-1]


def release(version: str) -> Release:
    """The newest release of the file that is not newer than `version`, such as "1.18" or "1.20.1".

    "1.20" stands for all of its patches. Raises ValueError for text that is no version, and for versions before the
    first and after the last of the file.
    """
    try:
        wanted = tuple(map(int, version.split(".")))
    except ValueError:
        raise ValueError(f"{version!r} is not a version of ONNX Runtime, such as {newest().version}") from None
    known = releases()
    older = [item for item in known if _numbers(item)[: len(wanted)] <= wanted]
    if not older or wanted > _numbers(known[-1])[: len(wanted)]:
        raise ValueError(
            f"the kernels of ONNX Runtime {version} are not known; the known versions are {known[0].version} to "
            f"{known[-1].version}"
        )
    return older[-1]


def _numbers(item: Release) -> tuple[int, ...]:
    return tuple(map(int, item.version.split(".")))


def _taken(code: int, codes: list[int]) -> bool:
    return code in codes or (code == FLOAT16 and FLOAT in codes)


def _data() -> dict[str, Any]:
    return packaged("kernels.json")
