"""The small languages of the command line: `--input x=float32[1,3,224,224]`, `--dynamic x:0=batch`.

An input is `NAME=DTYPE[SIZES]`, with a range of whole numbers `NAME=DTYPE[SIZES]:LOW..HIGH` (HIGH included), or
`NAME=@FILE.npy`.  Without a range, floating point numbers are standard normal and whole numbers 0 or 1, the same
numbers in each run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proto_schema.budget import Budget
from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES as ROWS
from proto_schema.tensors.dtypes import MOST_ELEMENTS, element_count
from purexport.cli.errors import UsageError

if TYPE_CHECKING:
    import torch

FLOAT8E8M0 = TensorProto.FLOAT8E8M0  # without a sign and a zero, which drawn numbers have
DTYPES = tuple(row.torch for row in ROWS.values() if row.torch and row.code != FLOAT8E8M0)
# torch's other names: float, long, half
_ALIASES = {row.scalar.lower(): row.torch for row in ROWS.values() if row.storage}

_SHAPED = re.compile(r"(?P<dtype>\w+)\[(?P<sizes>[\d,\s]*)\](?::(?P<low>-?\d+)\.\.(?P<high>-?\d+))?", re.ASCII)
_LONGEST = 30  # digits of a number; Python takes long to convert thousands of them, or refuses
_LOWEST, _HIGHEST = -(2**63), 2**63 - 2  # what torch.randint draws
ALL = "all"  # for --dynamic: every axis that the model lets vary
_INPUT_HELP = "write NAME=DTYPE[SIZES], as in x=float32[1,3,224,224], or NAME=@FILE.npy"


@dataclass(frozen=True)
class InputSpec:
    """One `--input`: an array from a file, or a shape and dtype to draw numbers for."""

    name: str
    dtype: str = ""
    sizes: tuple[int, ...] = ()
    low: int | None = None
    high: int | None = None
    file: Path | None = None

    def make(self, generator: torch.Generator) -> torch.Tensor:
        """The tensor.  Raises UsageError for a file that is no .npy file, a range that the dtype cannot hold, and sizes
        that do not fit into memory.
        """
        import torch

        if self.file is not None:
            return _read_array(self.file)
        dtype: torch.dtype = getattr(torch, self.dtype)
        span = self._span(dtype)
        normal = torch.complex64 if dtype.is_complex else torch.float32 if dtype.is_floating_point else None
        drawn = normal if normal is not None and span is None else torch.int64
        need = element_count(self.sizes) * (drawn.itemsize + (0 if drawn is dtype else dtype.itemsize))
        if need > _memory():
            raise self._too_large(need)
        try:
            if drawn is torch.int64:
                low, high = span or (0, 1)
                return torch.randint(low, high + 1, self.sizes, generator=generator).to(dtype)
            return torch.randn(self.sizes, generator=generator, dtype=drawn).to(dtype)
        except (MemoryError, RuntimeError) as error:  # torch's allocator raises the latter
            raise self._too_large(need) from error

    def _span(self, dtype: torch.dtype) -> tuple[int, int] | None:
        """The range, HIGH included.  Raises UsageError for one that the dtype cannot hold."""
        import torch

        if self.low is None or self.high is None:
            return None
        if dtype is torch.bool:
            least, most = 0, 1
        elif dtype.is_floating_point or dtype.is_complex:
            most = min(int(torch.finfo(dtype).max), _HIGHEST)
            least = max(-most, _LOWEST)
        else:
            least, most = max(torch.iinfo(dtype).min, _LOWEST), min(torch.iinfo(dtype).max, _HIGHEST)
        if not least <= self.low <= self.high <= most:
            raise UsageError(
                f"--input {self.name}: {self.dtype} drawn here has only {least} to {most}; write a range within it"
            )
        return self.low, self.high

    def _too_large(self, need: int) -> UsageError:
        return UsageError(f"--input {self.name}: it needs {need / 1e9:,.0f} GB of memory; write smaller sizes")


def parse_input(text: str) -> InputSpec:
    """`x=float32[1,3]` -> InputSpec.  Raises UsageError that says how to write it."""
    name, equals, what = text.partition("=")
    if not (name and equals and what):
        raise UsageError(f"--input {text!r}: {_INPUT_HELP}")
    if what.startswith("@"):
        return InputSpec(name, file=Path(what[1:]))
    match = _SHAPED.fullmatch(what)
    if match is None:
        raise UsageError(f"--input {text!r}: {_INPUT_HELP}")
    dtype = _ALIASES.get(match["dtype"], match["dtype"])
    if dtype not in DTYPES:
        raise UsageError(f"--input {text!r}: unknown dtype {match['dtype']!r}; known are {', '.join(DTYPES)}")
    sizes = [size.strip() for size in match["sizes"].split(",")] if match["sizes"].strip() else []
    if not all(sizes):
        raise UsageError(f"--input {text!r}: a size is missing; {_INPUT_HELP}")
    given = [*sizes, *(match[group] or "" for group in ("low", "high"))]
    if max(map(len, given)) > _LONGEST:
        raise UsageError(f"--input {name}: a number has more than {_LONGEST} digits; {_INPUT_HELP}")
    if element_count([int(size) or 1 for size in sizes]) >= MOST_ELEMENTS:
        raise UsageError(f"--input {name}: these are more elements than a tensor can have; write smaller sizes")
    low, high = (None if match[group] is None else int(match[group]) for group in ("low", "high"))
    if low is not None and high is not None and low > high:
        raise UsageError(f"--input {text!r}: the range is empty; write the lower bound first")
    return InputSpec(name, dtype, tuple(map(int, sizes)), low, high)


def parse_names(text: str) -> list[str]:
    """`scores,boxes` -> its names. A comma in a name is written `\\,`."""
    return [name.replace("\\,", ",") for name in re.split(r"(?<!\\),", text) if name]


def parse_dynamic(texts: Sequence[str], names: Sequence[str] | None) -> dict[str, dict[int, str]]:
    """`["x:0=batch", "x:2=height,3=width"]` -> `{"x": {0: "batch", 2: "height", 3: "width"}}`; "all" is left out.

    `names` are the inputs that exist; None where only the export knows.  Raises UsageError that says how to write it.
    """
    axes: dict[str, dict[int, str]] = {}
    for text in texts:
        if text == ALL:
            continue
        name, colon, rest = text.rpartition(":")
        if not colon:
            raise UsageError(f"--dynamic {text!r}: write INPUT:AXIS=NAME, as in x:0=batch, or all")
        if names is not None and name not in names:
            known = ", ".join(names) or "none"
            raise UsageError(f"--dynamic {text!r}: no --input is called {name!r}; there is {known}")
        for part in rest.split(","):
            axis, equals, label = part.partition("=")
            if not (equals and label and re.fullmatch(r" *[0-9]{1,9} *", axis)):
                raise UsageError(f"--dynamic {text!r}: write INPUT:AXIS=NAME, as in x:0=batch or x:2=height,3=width")
            other = axes.setdefault(name, {}).setdefault(int(axis), label)
            if other != label:
                raise UsageError(f"--dynamic: axis {int(axis)} of {name!r} is given twice, as {other!r} and {label!r}")
    return axes


def parse_size(text: str | None, option: str = "--shard-size") -> int | None:
    """`2GB`, `1.5 GiB`, `500MB` or `4096` -> bytes; decimal units, binary with an i.  Raises UsageError."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?:([kmgt])(i?)b?|b)?", text.strip().lower())
    count = 0
    if match is not None:
        count = int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " "))
    if count < 1:
        raise UsageError(f"{option} {text!r}: write a size, as in 2GB, 1.5GiB or 500MB")
    return count


def add_budget(parser: argparse.ArgumentParser, what: str, default: int) -> None:
    """The option that says how much memory and work a file may ask for; work is a fixed multiple of the memory."""
    text = f"the memory limit for {what}; the limit of work follows from it (default: {default >> 20:,} MiB)"
    parser.add_argument("--budget", metavar="SIZE", help=text)


def parse_budget(text: str | None) -> Budget | None:
    """`--budget 4GiB` as a budget, None for the default.  Raises UsageError."""
    size = parse_size(text, "--budget")
    return None if size is None else Budget(size)


def parse_kwargs(text: str | None) -> dict[str, Any]:
    """`{"scale": 2}` as a dict.  Raises UsageError that says how to write it."""
    if text is None:
        return {}
    try:
        kwargs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--kwargs: not JSON ({error}); write an object as in '{{\"scale\": 2}}'") from error
    if not isinstance(kwargs, dict):
        raise UsageError("--kwargs: write a JSON object as in '{\"scale\": 2}'")
    return kwargs


def _memory() -> float:
    """The bytes of memory of this machine; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return float("inf")


def _read_array(path: Path) -> torch.Tensor:
    """The array of a .npy file.  It is read as a checkpoint is: the header is not evaluated, no memory is promised."""
    from purexport.weights import npy
    from purexport.weights.model.mapped import Mapped
    from purexport.weights.stored import CheckpointFile

    with CheckpointFile(path) as file:
        if not file.size:
            raise UsageError(f"{path}: the file is empty; write it with numpy.save")
        try:
            [stored] = npy.read(file)
        except ValueError as error:
            raise UsageError(f"{path}: {str(error).removeprefix(f'{file.label}: ')}") from error
    made = Mapped(runs=True).copy(stored)
    if made is None:
        raise UsageError(f"{path}: torch has no dtype for its numbers; convert them")
    return made
