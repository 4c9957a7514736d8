"""What of torch's own operator and module databases exports, and computes the same: the sweeps behind docs/coverage.md
and docs/coverage-dtypes.md.

    python benchmarks/coverage.py [--routes trace export script] [--peer] [--names 'linalg.*' ...] [--write]
    python benchmarks/coverage.py --dtypes float64 int32 --opsets 11 20 [--routes trace export] [--write]

A name of the database (float32, else int64, else bool) gives a few samples; each is exported at opset 20, run in ONNX
Runtime and compared with torch: values within the bounds of their dtype (`BOUNDS`), dtype and shape. Eigenvectors, of
which a sign is free, are compared by what they compose. A value that torch itself rounds by more than the bounds
(matrix_exp, and whatever it computes in half precision) passes too where it is nearer to torch's float64 result for
the same inputs than torch's own. A complex tensor is a pair of real ones in a file. A name passes when all its
samples pass. Names without a deterministic, dense result are listed apart. Each name runs in a process forked from
this one, with a time limit a sample, and in a new one after a crash, so that a crash costs the samples of one run.
Results are kept in a file of JSON lines, one a name, route, dtype and opset; a sweep that was stopped goes on where it
was (`--fresh` begins again). `--peer` measures both exporters of torch.onnx by the same code. Needs Linux, onnxruntime
and expecttest.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import fnmatch
import io
import itertools
import json
import logging
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

OPSET = 20
# relative, absolute: below the rounding of the next lower dtype, and four units in the last place of the half ones
BOUNDS = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (2**-8, 2**-8),
    torch.bfloat16: (2**-5, 2**-5),
}
HALVES = (torch.float16, torch.bfloat16)
SECONDS = 90  # a sample
MEMORY = 8 << 30  # a process
ROUTES = ("trace", "export", "script")
BFLOAT16 = 16  # its code in the format; numpy has no such type
BFLOAT16_SINCE = 13  # the opset in which most operators took it
PEERS = ("torch.onnx dynamo=False", "torch.onnx dynamo=True")
DTYPES = (torch.float32, torch.int64, torch.bool)
# torch's float32 is off by more than the bounds
ROUNDED = ("matrix_exp",)
# what holds in place of values that are free up to a sign: (eigenvalues, vectors) compose the matrix
COMPOSED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "linalg.eigh": lambda pair: [pair[0], *_composed(*pair)],
}
# which of equal elements comes first is free, so a position counts by the element there: the axis, as an argument
POSITIONS = {"sort": 1, "argsort": 1, "topk": 2, "kthvalue": 2}
RESULTS = ROOT / "build" / "coverage.jsonl"
PAGE = ROOT / "docs" / "coverage.md"
RESULTS_BY_DTYPE = ROOT / "build" / "coverage_dtypes.jsonl"
PAGE_BY_DTYPE = ROOT / "docs" / "coverage-dtypes.md"

# random only where an option of a sample says so
SOMETIMES_RANDOM = ("nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention")
# results that hold whatever was in memory
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_")


# Names and samples ----------------------------------------------------------------------------------------------------


class Bound(nn.Module):
    """An operator as a module of its tensors: the sample's other arguments are part of it."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        leaves, self.tree = pytree.tree_flatten((args, dict(kwargs)))
        self.function = function
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.leaves = [None if place in self.places else leaf for place, leaf in enumerate(leaves)]
        if isinstance(function, nn.Module):
            self.inner = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.function(*args, **kwargs)


Sample = tuple[Bound, tuple[torch.Tensor, ...]]


def database() -> dict[str, Any]:
    """Every entry of both databases by name; modules are called `nn.Linear`, variants `std.unbiased`."""
    from torch.testing._internal import common_methods_invocations as invocations
    from torch.testing._internal.common_modules import module_db

    # the database seeds its random operators at each call; unseeded, they show what they are
    invocations.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)
    entries = {f"{item.name}.{item.variant_test_name}".rstrip("."): item for item in invocations.op_db}
    modules = {f"nn.{item.module_cls.__name__}": item for item in module_db}
    return {**entries, **modules}


def dtype_of(entry: Any) -> torch.dtype | None:
    """The dtype that a name is swept in; None when it takes complex numbers only."""
    supported = entry.dtypes if hasattr(entry, "dtypes") else entry.supported_dtypes("cpu")
    return next((dtype for dtype in DTYPES if dtype in supported), None)


def samples(entry: Any, dtype: torch.dtype, count: int, spread: bool) -> list[Sample]:
    """The first `count` samples of a name, or as many spread over all of them."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    if hasattr(entry, "module_cls"):
        found = _module_samples(entry, dtype)
    else:
        found = ((entry.op, (item.input, *item.args), item.kwargs) for item in entry.sample_inputs("cpu", dtype))
    if spread:
        known = list(found)
        found = iter([known[index * (len(known) - 1) // max(count - 1, 1)] for index in range(min(count, len(known)))])
    return [_bound(*item) for item in itertools.islice(found, count)]


def _module_samples(entry: Any, dtype: torch.dtype) -> Iterator[tuple[Any, tuple[Any, ...], Any]]:
    given = entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=False, training=False)
    for item in given:
        torch.manual_seed(0)
        module = entry.module_cls(*item.constructor_input.args, **item.constructor_input.kwargs)
        if item.forward_input is not None:
            yield module.to(dtype).eval(), item.forward_input.args, item.forward_input.kwargs


def _bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Sample:
    model = Bound(function, args, kwargs)
    leaves = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    return model.eval(), tuple(leaf.detach() for leaf in leaves)


def results_of(model: Bound, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What torch computes, on copies (with all of the memory that a view is of)."""
    with torch.no_grad():
        result = model(*copy.deepcopy(tensors))
    return [torch.as_tensor(leaf).detach() for leaf in pytree.tree_leaves(result) if leaf is not None]


def set_apart(name: str, found: Sequence[Sample]) -> tuple[str, list[Sample]]:
    """Why a name cannot be compared (`random` or `sparse`, or `complex` results of real inputs; empty when it can), and
    what to compare."""
    if name in UNINITIALISED:
        return "random", []
    fixed = []
    for sample in found:
        runs = []
        for seed in range(2):
            torch.manual_seed(seed)
            runs.append(results_of(*sample))
        if not runs[0]:
            continue  # nothing to compare
        if any(tensor.layout != torch.strided or tensor.is_nested for tensor in runs[0]):
            return "sparse", []
        if any(tensor.is_complex() for tensor in runs[0]) and not any(tensor.is_complex() for tensor in sample[1]):
            return "complex", []
        if all(_same(one, other) for one, other in zip(*runs, strict=True)):
            fixed.append(sample)
        elif name not in SOMETIMES_RANDOM:
            return "random", []
    return ("", fixed) if fixed else ("random", [])


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    wide = torch.complex128 if one.is_complex() else torch.float64
    return one.shape == other.shape and torch.allclose(one.to(wide), other.to(wide), equal_nan=True)


# Exporters ------------------------------------------------------------------------------------------------------------


def exported(route: str, model: Bound, tensors: tuple[torch.Tensor, ...], opset: int = OPSET) -> bytes:
    """The file that an exporter writes for a sample."""
    args = copy.deepcopy(tensors)
    if route in PEERS:
        buffer = io.BytesIO()
        torch.onnx.export(model, args, buffer, opset_version=opset, dynamo=route.endswith("True"))
        return buffer.getvalue()
    import purexport

    if route == "script":
        scripted = torch.jit.trace(model, args, check_trace=False)
        return bytes(purexport.export(scripted, args, opset_version=opset).model_proto.SerializeToString())
    program = purexport.export(model, args, opset_version=opset, capture=route)
    return bytes(program.model_proto.SerializeToString())


def computed(data: bytes, tensors: tuple[torch.Tensor, ...]) -> list[np.ndarray[Any, Any]]:
    """What the file computes in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    feeds = [_value(tensor) for tensor in tensors]
    if len(names) != len(feeds):  # an exporter may leave unused inputs out
        feeds = feeds[: len(names)]
    return [_read(value) for value in session.run_with_ort_values(None, dict(zip(names, feeds, strict=True)))]


def _value(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    if tensor.dtype is torch.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(_array(tensor), BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(_array(tensor), order="C"))


def _read(value: onnxruntime.OrtValue) -> np.ndarray[Any, Any]:
    if value.is_tensor() and value.element_type() == BFLOAT16:
        data = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(value.shape())))
        return np.frombuffer(data, np.uint16).reshape(value.shape())
    return np.asarray(value.numpy())


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The numbers as the runtime takes and gives them: bfloat16 as bits, a complex one as a pair."""
    plain = tensor.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.dtype is torch.bfloat16:
        return plain.contiguous().view(torch.uint16).numpy()
    return plain.numpy()


def _composed(values: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The matrix that has these eigenvalues and vectors, and the products of the vectors with each other."""
    if vectors.ndim > values.ndim + 1:  # complex ones
        vectors = vectors[..., 0] + 1j * vectors[..., 1]
    adjoint = np.swapaxes(vectors, -1, -2).conj()
    return [np.asarray((vectors * values[..., None, :]) @ adjoint), np.asarray(adjoint @ vectors)]


def judged(name: str, route: str, sample: Sample, opset: int = OPSET) -> str:
    """Empty when a sample passes, otherwise the reason in one line."""
    results = results_of(*sample)
    expected = [_array(tensor) for tensor in results]
    try:
        data = exported(route, *sample, opset)
    except Exception as error:
        return f"export: {_line(error)}"
    try:
        actual = computed(data, sample[1])
    except Exception as error:
        return f"runtime: {_line(error)}"
    if len(actual) != len(expected):
        return f"differs: {len(actual)} outputs, torch gives {len(expected)}"
    for got, want in zip(actual, expected, strict=True):
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"differs: {got.dtype}{list(got.shape)}, torch gives {want.dtype}{list(want.shape)}"
    compose = COMPOSED.get(name, list)
    found, wanted = ([_numbers(*pair) for pair in zip(arrays, results, strict=True)] for arrays in (actual, expected))
    if name in POSITIONS:
        found, wanted = (_elements(name, sample, arrays) for arrays in (found, wanted))
    pairs = list(zip(compose(found), compose(wanted), strict=True))
    bounds = [BOUNDS.get(tensor.dtype.to_real(), (0.0, 0.0)) for tensor in results]
    bounds += [bounds[0]] * (len(pairs) - len(bounds))
    apart = [
        ~np.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True) if relative else got != want
        for (got, want), (relative, absolute) in zip(pairs, bounds, strict=True)
    ]
    count = int(sum(places.sum() for places in apart))
    rounded = name in ROUNDED or any(tensor.dtype in HALVES for tensor in (*results, *sample[1]))
    if count and not (rounded and _nearer(sample, pairs, apart)):
        return f"differs: in {count} values"
    return ""


def _elements(name: str, sample: Sample, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results with the elements of the operand in place of positions; -1 for a position that comes twice."""
    model, (operand, *_) = sample
    args, kwargs = pytree.tree_unflatten(model.leaves, model.tree)
    place = POSITIONS[name]
    axis = kwargs.get("dim", args[place] if len(args) > place else -1)
    values = np.atleast_1d(_numbers(_array(operand), operand))
    found = []
    for array in arrays:
        if array is not arrays[-1]:
            found.append(array)
            continue
        wide = np.atleast_1d(array) if array.ndim == operand.dim() else np.expand_dims(array, axis)
        twice = (np.diff(np.sort(wide, axis=axis), axis=axis) == 0).any()
        found.append(np.full_like(wide, -1) if twice else np.take_along_axis(values, wide, axis))
    return found


def _numbers(array: np.ndarray[Any, Any], like: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array as numbers: floating point ones as float64, in which the bounds are computed."""
    if like.dtype is torch.bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _nearer(sample: Sample, pairs: Any, apart: Any) -> bool:
    """Whether each value that is apart from torch's is nearer to what torch computes of the same inputs in float64."""
    model, tensors = sample
    wide = tuple(_widened(tensor) for tensor in tensors)
    try:
        exact = [_array(tensor) for tensor in results_of(copy.deepcopy(model).double(), wide)]
    except (RuntimeError, TypeError):
        return False
    if any(got.shape != true.shape for (got, _), true in zip(pairs, exact, strict=True)):
        return False
    halves = [tensor.dtype if tensor.dtype in HALVES else None for tensor in results_of(*sample)]
    return all(
        (_off(got, true, half)[places] <= _off(want, true, half)[places]).all()
        for (got, want), true, places, half in zip(pairs, exact, apart, halves, strict=True)
    )


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _off(found: np.ndarray[Any, Any], true: np.ndarray[Any, Any], half: torch.dtype | None) -> np.ndarray[Any, Any]:
    """How far numbers are from the true ones, infinitely where NaN; what a half cannot hold is its infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        held = true if half is None else torch.from_numpy(np.asarray(true)).to(half).double().numpy()
        distance = np.where(found == held, 0.0, np.abs(found - true))
    return np.where(np.isnan(distance), np.inf, distance)


def _line(error: Exception) -> str:
    from purexport import UnsupportedOperatorError

    if isinstance(error, UnsupportedOperatorError):
        return "; ".join(dict.fromkeys(f"{gap.target} {gap.reason}" for gap in error.gaps))[:300]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


# One name in a process of its own -------------------------------------------------------------------------------------


@dataclass
class Run:
    """What is measured of a name at once, and what was found; `end` says that nothing is to come."""

    dtype: torch.dtype
    route: str
    opset: int
    verdicts: list[str] = field(default_factory=list)
    apart: str = ""
    end: bool = False

    def record(self, name: str, every: int) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "route": self.route, "dtype": _named(self.dtype), "opset": self.opset}
        if every > 1:
            found["every"] = every
        if self.apart:
            found["apart"] = self.apart
        return {**found, "verdicts": self.verdicts}


def _child(pipe: Connection, name: str, entry: Any, runs: Sequence[Run], options: Any) -> None:
    """Send, for each run, its `("apart", why)` or one `("verdict", why)` a sample, and then `("end", "")`."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    known: dict[torch.dtype, tuple[str, list[Sample]]] = {}
    for run in runs:
        if run.dtype not in known:
            known[run.dtype] = _usable(name, entry, run.dtype, options)
        apart, found = known[run.dtype]
        if apart:
            pipe.send(("apart", apart))
        for sample in found:
            verdict = judged(name, run.route, sample, run.opset)
            pipe.send(("verdict", verdict))
            if verdict and run.route in PEERS:
                break  # one failure decides, and these are slow
        pipe.send(("end", ""))


def _usable(name: str, entry: Any, dtype: torch.dtype, options: Any) -> tuple[str, list[Sample]]:
    """Why a name cannot be compared in a dtype, or empty and its samples."""
    try:
        found = samples(entry, dtype, options.samples, options.spread)
        return set_apart(name, found) if found else ("no samples", [])
    except Exception as error:
        return f"torch cannot run it: {_line(error)}", []


class Job:
    """A name in a process, for all of its runs; where the process dies, another one does the runs that are left.

    A new process costs ten times what a run does: it copies the pages of this one as it touches them.
    """

    def __init__(self, name: str, entry: Any, runs: Sequence[Run], options: Any) -> None:
        self.name, self.entry, self.options = name, entry, options
        self.runs = list(runs)
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        left = [run for run in self.runs if not run.end]
        arguments = (theirs, self.name, self.entry, left, self.options)
        self.process = context.Process(target=_child, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.since = time.monotonic()

    def advance(self) -> bool:
        """Take what the process says; True when all runs are done."""
        run = next(run for run in self.runs if not run.end)
        try:
            if not self.pipe.poll():
                return self._late(run)
            kind, value = self.pipe.recv()
        except EOFError:
            self.process.join()
            return self._died(run, f"crash: the process ended with {self.process.exitcode}")
        self.since = time.monotonic()
        if kind == "apart":
            run.apart = value
        elif kind == "verdict":
            run.verdicts.append(value)
        else:
            run.end = True
        if not all(other.end for other in self.runs):
            return False
        self.process.join()
        return True

    def _late(self, run: Run) -> bool:
        if time.monotonic() - self.since < SECONDS:
            return False
        self.process.kill()
        self.process.join()
        return self._died(run, f"time: more than {SECONDS} s")

    def _died(self, run: Run, why: str) -> bool:
        run.verdicts.append(why)
        run.end = True
        if all(other.end for other in self.runs):
            return True
        self._start()
        return False


def sweep(jobs: Sequence[tuple[str, Any, list[Run]]], options: Any, results: Path) -> None:
    """Run the jobs, `options.processes` at a time, and append each record to `results`."""
    waiting, running, done = list(jobs)[::-1], [], 0
    with results.open("a") as file:
        while waiting or running:
            while waiting and len(running) < options.processes:
                running.append(Job(*waiting.pop(), options))
            wait([job.pipe for job in running], timeout=1)
            for job in list(running):
                if not job.advance():
                    continue
                running.remove(job)
                done += 1
                for run in job.runs:
                    file.write(json.dumps(run.record(job.name, options.every)) + "\n")
                    if bad := next(filter(None, run.verdicts), ""):
                        print(f"{job.name}  {run.route}  {_named(run.dtype)}  {run.opset}  {bad[:150]}", flush=True)
                file.flush()
                if done % 50 == 0:
                    print(f"{done} of {len(jobs)} names", flush=True)


Key = tuple[str, str, str, int]


def known_results(results: Path) -> dict[Key, dict[str, Any]]:
    """The last record of each name, route, dtype and opset."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {
        (item["name"], item["route"], item["dtype"], item.get("opset", OPSET)): item for item in map(json.loads, lines)
    }


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtypes_of(entry: Any, wanted: Sequence[str] | None) -> list[torch.dtype]:
    """Those of the wanted dtypes that a name takes; its usual one when none are wanted."""
    if wanted is None:
        usual = dtype_of(entry)
        return [] if usual is None else [usual]
    supported = entry.dtypes if hasattr(entry, "dtypes") else entry.supported_dtypes("cpu")
    return [dtype for name in wanted if (dtype := getattr(torch, name)) in supported]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", default=["*"], help="names or patterns such as 'linalg.*'")
    parser.add_argument("--routes", nargs="+", default=list(ROUTES), choices=ROUTES)
    parser.add_argument("--peer", action="store_true", help="measure torch.onnx instead, dynamo=False and dynamo=True")
    parser.add_argument("--dtypes", nargs="+", help="these dtypes, such as float64, for the page by dtype")
    parser.add_argument("--opsets", nargs="+", type=int, default=[OPSET])
    parser.add_argument("--every", type=int, default=1, help="every n-th of the names only; the page says so")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--spread", action="store_true", help="samples from all over the list, not the first ones")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, help="the file of JSON lines")
    parser.add_argument("--fresh", action="store_true", help="measure what is measured already too")
    parser.add_argument("--failed", action="store_true", help="measure only what failed before")
    parser.add_argument("--write", action="store_true", help="write the page from all results")
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = options.results or (RESULTS_BY_DTYPE if options.dtypes else RESULTS)
    results.parent.mkdir(parents=True, exist_ok=True)
    entries = {
        name: entry
        for name, entry in database().items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in options.names)
    }
    entries = dict(itertools.islice(entries.items(), 0, None, options.every))
    known = known_results(results)
    routes = PEERS if options.peer else options.routes
    jobs = []
    for name, entry in entries.items():
        runs = []
        for dtype, route, opset in itertools.product(_dtypes_of(entry, options.dtypes), routes, options.opsets):
            if dtype is torch.bfloat16 and opset < BFLOAT16_SINCE:
                continue
            before = known.get((name, route, _named(dtype), opset))
            wanted = options.fresh or before is None
            if options.failed:
                wanted = before is not None and any(before["verdicts"])
            if wanted:
                runs.append(Run(dtype, route, opset))
        if runs:
            jobs.append((name, entry, runs))
    _import_early(options.peer)
    sweep(jobs, options, results)
    known = known_results(results)
    if options.dtypes:
        for key, text in by_dtype(known).items():
            print(*key, text)
        if options.write:
            from coverage_dtypes import page_by_dtype

            PAGE_BY_DTYPE.write_text(page_by_dtype(known))
        return
    usual = {(name, route): item for (name, route, _, opset), item in known.items() if opset == OPSET}
    for route in (*ROUTES, *PEERS):
        print(f"{route:<26}{_count(usual, route)}")
    if options.write:
        from coverage_page import page

        PAGE.write_text(page(usual))


def by_dtype(known: Mapping[Key, Any]) -> dict[tuple[str, str, int], str]:
    """How many names pass, by route, dtype and opset."""
    counted: dict[tuple[str, str, int], list[bool]] = {}
    for (_, route, dtype, opset), item in known.items():
        if "apart" not in item:
            counted.setdefault((route, dtype, opset), []).append(not any(item["verdicts"]))
    return {key: f"{sum(passed)} of {len(passed)}" for key, passed in counted.items()}


def _import_early(peer: bool) -> None:
    """What every process would import, once before they are forked."""
    import torch.export

    import purexport
    from purexport.lowering.rules import registered

    registered()
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory():
        purexport.export(nn.ReLU(), torch.ones(1), capture="export")
    if peer:
        import torch.onnx

        with contextlib.suppress(Exception):
            torch.onnx.export(nn.ReLU(), (torch.ones(1),), io.BytesIO(), dynamo=True, verbose=False)


def _count(known: Mapping[tuple[str, str], Any], route: str) -> str:
    measured = [item for (name, of), item in known.items() if of == route and "apart" not in item]
    operators = [item for item in measured if not item["name"].startswith("nn.") or "functional" in item["name"]]
    modules = [item for item in measured if item not in operators]
    passed = [sum(not any(item["verdicts"]) for item in items) for items in (operators, modules)]
    return f"{passed[0]} of {len(operators)} operators, {passed[1]} of {len(modules)} modules"


if __name__ == "__main__":
    main()
