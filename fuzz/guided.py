"""Mutation guided by coverage: atheris (libFuzzer) sees the branches of the codec, the generated functions included.

What libFuzzer says of coverage goes to stderr alone, which is read back for the summary.
Generated functions never pass an import hook, so each is instrumented when it has been made. libFuzzer ends the
process itself, hence the session is over, summed up and left inside the callback.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any

from fuzz.engine import Session
from fuzz.harness import CLASSES
from fuzz.mutate import mutated
from proto_schema import external, wire
from proto_schema.checking import graphs, models, nodes, types
from proto_schema.checking import tensors as checking_tensors
from proto_schema.derived import strided
from proto_schema.external import payload
from proto_schema.tensors import arrays as tensors
from proto_schema.wire import codec, fields, generate, interpret, scalars
from purexport.weights import (
    bitsandbytes,
    gguffile,
    gptq_awq,
    index,
    jsontext,
    npy,
    packed,
    safetensors,
    statedict,
    stored,
    torchlegacy,
    torchvalues,
    torchzip,
    unpickle,
    ziparchive,
)

CODEC = (wire, fields, scalars, payload, interpret, codec)
PICKLED = (torchzip, torchlegacy, unpickle, torchvalues, statedict)
PACKED = (packed, gptq_awq, bitsandbytes)
READERS = (jsontext, safetensors, *PACKED, *PICKLED, ziparchive, gguffile, npy, index, stored, strided)
CHECKER = (external, tensors, graphs, models, nodes, types, checking_tensors)
_LOOK = ("elements", "values", "paths", "locate", "sizes", "forms", "compare", "histograms", "html")
_WRITE = ("orders", "rewrite", "edit", "extract", "salvage")
TOOLS = [import_module(f"purexport.inspect.{name}") for name in (*_LOOK, *_WRITE)]  # some are called as a function
MODULES = (*CODEC, *READERS, *CHECKER, *TOOLS)


def functions() -> Iterator[Callable[..., Any]]:
    """Everything between bytes and messages."""
    for cls in CLASSES:
        yield from (generate.decoder(cls, False), generate.decoder(cls, True))
        yield from (generate.encoder(cls), generate.sizer(cls))
    for module in MODULES:
        yield from _defined_in(module)


def _defined_in(module: ModuleType) -> Iterator[Callable[..., Any]]:
    for value in list(vars(module).values()):
        members = list(vars(value).values()) if isinstance(value, type) and value.__module__ == module.__name__ else []
        for item in [value, *members]:
            if isinstance(item, FunctionType) and item.__module__ == module.__name__:
                yield item


def run(session: Session, seed: int, finish: Callable[[Session], int]) -> None:
    """Fuzzes until the session is over, then leaves the process with the status that `finish` returns."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    for function in functions():
        atheris.instrument_func(function)
    seeds = session.harness.seeds()
    folder = tempfile.TemporaryDirectory()  # of libFuzzer's corpus
    said = os.memfd_create("said")

    def one_input(data: bytes) -> None:
        session.execute(data)
        if session.over:
            lines = os.pread(said, os.fstat(said).st_size, 0)
            reached = re.findall(rb"cov: (\d+) ft: (\d+)", lines) or [(b"0", b"0")]
            session.coverage = "coverage of {} branches, {} with counts".format(*map(bytes.decode, reached[-1]))
            status = finish(session)
            folder.cleanup()
            sys.stdout.flush()
            os._exit(status)

    def mutate(data: bytes, most: int, number: int) -> bytes:
        rng = Random(number)
        if rng.random() < 0.5:
            changed: bytes = atheris.Mutate(data, most)
            return changed
        return mutated(bytes(data), rng.choice(seeds), rng, most, session.harness.head)

    for at, data in enumerate(seeds):
        Path(folder.name, f"{at:04}").write_bytes(data)
    options = [f"-max_len={session.harness.longest}", f"-seed={seed + 1}", "-verbosity=1", "-timeout=600"]
    options += [f"-artifact_prefix={folder.name}/", "-report_slow_units=600"]
    atheris.Setup(["fuzz", *options, folder.name], one_input, custom_mutator=mutate, internal_libfuzzer=True)
    session.started = time.monotonic()  # instrumenting took its time
    os.dup2(said, sys.stderr.fileno())
    atheris.Fuzz()
