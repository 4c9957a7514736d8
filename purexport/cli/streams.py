"""Where a verb writes: what may be replaced, and standard output as the target of a model.

Nothing else may be written to standard output then, and its reader may go away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, TextIO, TypedDict

import proto_schema as ps
from proto_schema.external.executors import NAMES, check_executor
from purexport.cli.errors import UsageError
from purexport.cli.specs import parse_size


def add_force(parser: argparse.ArgumentParser) -> None:
    """The option with which a verb replaces a file that is not known to be of its making."""
    text = (
        "also replace read-only files and files of other programs; input files, and data files of other models, "
        "are never replaced"
    )
    parser.add_argument("--force", action="store_true", help=text)


def add_data_files(parser: argparse.ArgumentParser, one_model: bool = True) -> None:
    """The options for data files: how many, and for the verbs that write one model, digests and who writes them."""
    add = parser.add_argument
    add("--shard-size", metavar="SIZE", help="external data in files of about this size, as in 5GB")
    if one_model:
        text = "write the SHA-256 of each tensor and each data file into the model, for `purexport check --checksums`"
        add("--checksums", action="store_true", help=text)
        add("--executor", metavar="NAME", help=f"who writes the data files, in pieces: {NAMES}")
        add("--resume", action="store_true", help="continue an interrupted run: keep the finished part of data files")


def data_files(args: argparse.Namespace) -> DataFiles:
    """What these options say. Raises UsageError."""
    return DataFiles(
        shard_size=parse_size(args.shard_size),
        checksums=args.checksums,
        executor=parse_executor(args.executor),
        resume=args.resume,
    )


def parse_executor(text: str | None) -> str | None:
    """The name of an executor, checked. Raises UsageError."""
    try:
        check_executor(text)
    except ValueError as error:
        raise UsageError(f"--executor: {error}") from None
    return text


class DataFiles(TypedDict):
    """How data files are written, as options of `proto_schema.save`."""

    shard_size: int | None
    checksums: bool
    executor: str | None
    resume: bool


def report_stream(target: str) -> TextIO:
    """Where a verb reports what it wrote to `target`: stderr if that is standard output itself."""
    with suppress(OSError):
        if os.path.samestat(os.stat(target), os.fstat(sys.stdout.fileno())):
            return sys.stderr
    return sys.stdout


class Stdout:
    """The binary standard output, while all other prints go to stderr; counts the bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.written = 0

    def write(self, data: memoryview) -> int:
        """As the `write` of a file: it may take less than all."""
        try:
            count = self._file.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from error
        if count is None:
            raise BlockingIOError("standard output does not wait for its reader; give a blocking one")
        self.written += count
        return count


@contextmanager
def model_to_stdout() -> Iterator[Stdout]:
    """Standard output for a model. Meanwhile the prints of models that are loaded or run go to stderr.

    Raises UsageError if it is a terminal, OSError if the reader goes away before the end.
    """
    if sys.stdout.isatty():
        raise UsageError("-o -: standard output is a terminal; redirect it, or give a file's name")
    sys.stdout.flush()
    place = sys.stdout.fileno()
    with open(os.dup(place), "wb", buffering=0) as file:
        os.dup2(sys.stderr.fileno(), place)
        try:
            yield Stdout(file)
        except BrokenPipeError:
            raise OSError("the reader of standard output went away before the model was complete") from None
        finally:
            sys.stdout.flush()
            os.dup2(file.fileno(), place)


def save_changed(
    model: ps.ModelProto, made: ps.ModelProto, source: str, target: str, force: bool, stored: DataFiles
) -> None:
    """Write what has other weights than the model of the file `source`. Raises ValueError for a target in its files."""
    from proto_schema.files.owned import files_of
    from proto_schema.files.targets import judge

    # the weights of before are not in the result: in place they would be lost
    judge(os.fspath(target), "model", files_of(os.fspath(source)), force)
    tensors = model.graph.initializer if model.graph is not None else ()
    outside = any(tensor.data_location == ps.TensorProto.EXTERNAL for tensor in tensors)
    where = True if outside or stored["resume"] or stored["shard_size"] is not None else None
    ps.save(made, target, external_data=where, overwrite=force, **stored)
