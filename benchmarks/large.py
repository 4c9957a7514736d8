"""Models of gigabytes: our save and export beside plain writes, cp, and torch.onnx, in one run.

    python benchmarks/large.py [--works linears llama checkpoint reference sparse] [--repeat 2] [--folder DIR]

Each measurement is a process of its own that makes the model, imports the exporter, and then times the call that
writes the file.  Memory is given twice: the growth of the resident set during the call over the loaded model, and the
peak of the whole process, torch included, both by the kernel's high-water mark.  Needs Linux, 40 GB of disk in
`--folder` (default: the folder for temporary files) and 12 GB of memory.
The measure of time is the disk's own: the same bytes by plain writes and fsync, or `cp` of the checkpoint and fsync.
Afterwards each file is checked by path with onnx's checker, and run in ONNX Runtime beside torch.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.export import _resident_mb as resident_mb  # noqa: E402
from benchmarks.export import _return_freed_memory as return_freed_memory  # noqa: E402

OPSET = 18  # the oldest that all write
CHUNK = 1 << 22
Model = tuple[Any, tuple[Any, ...]]


# Models ---------------------------------------------------------------------------------------------------------------


def linears(count: int = 12, width: int = 8192) -> Model:
    """3.2 GB in float32."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(count)))
    return model.eval(), (torch.randn(1, width),)


def llama() -> Model:
    """1.1 billion parameters in float32, 4.4 GB."""
    import torch

    from tests.models.llama import Llama, Shape

    model = Llama(Shape(width=2048, heads=32, groups=8, layers=16, inner=8192, vocabulary=32000))
    return model.eval(), (torch.randint(0, 32000, (1, 16)),)


def made(make: Callable[[], Model], *, meta: bool) -> Model:
    """The model on the meta device without any weights, or with the same random ones each time."""
    import torch

    with torch.device("meta"):
        model, args = make()
    counted = [torch.arange(item.numel()).view(item.shape) % 97 for item in args]
    args = tuple(
        (count / 97 if item.is_floating_point() else count).to(item.dtype)
        for item, count in zip(args, counted, strict=True)
    )
    if not meta:
        model = model.to_empty(device="cpu")
        for name, tensor in overlay(model).items():
            setattr(model, name, tensor)
        block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            for tensor in model.parameters():  # of one block, because drawing billions of numbers takes minutes
                for piece in tensor.view(-1).split(len(block)):
                    torch.mul(block[: len(piece)], tensor.shape[-1] ** -0.5, out=piece)
    return model, args


def sparse_layers() -> Model:
    """30 GB in float32."""
    return linears(28, 16384)


def write_checkpoint(path: Path, model: Any, *, sparse: bool = False) -> None:
    """A .safetensors file of the parameters; `sparse` leaves their bytes a hole."""
    entries: dict[str, Any] = {}
    end = 0
    for name, tensor in model.named_parameters():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        if sparse:
            file.truncate(8 + len(header) + end)
        else:
            for _, tensor in model.named_parameters():
                file.write(tensor.detach().numpy().data)
        os.fsync(file.fileno())


def overlay(model: Any) -> dict[str, Any]:
    """What no checkpoint holds: the buffers that are computed when the model is made."""
    from tests.models.llama import Llama, Shape

    if not isinstance(model, Llama):
        return {}
    shape = model.shape
    small = Llama(Shape(width=shape.width // shape.heads, heads=1, groups=1, layers=0))
    return {name: getattr(small, name) for name in ("rates", "turns")}


# Contenders: each is made ready, and then called with the folder to write to ------------------------------------------

Call = Callable[[Path], Any]
Stages = dict[str, float]


def _stage_clock(stages: Stages) -> Callable[..., None]:
    def at(stage: str, *_: Any) -> None:
        stages.setdefault(stage, time.perf_counter())

    return at


def ours(model: Any, args: Any, stages: Stages, route: str) -> Call:
    import purexport

    return lambda folder: purexport.export(
        model, args, folder / "m.onnx", opset_version=OPSET, capture=route, progress=_stage_clock(stages)
    )


def ours_from_checkpoint(model: Any, args: Any, stages: Stages, checkpoint: Path, external: Any) -> Call:
    import purexport

    weights = [checkpoint, overlay(model)]
    return lambda folder: purexport.export(
        model,
        args,
        folder / "m.onnx",
        opset_version=OPSET,
        weights=weights,
        external_data=external,
        progress=_stage_clock(stages),
    )


def torch_onnx(model: Any, args: Any, dynamo: bool) -> Call:
    import torch.onnx

    kind: dict[str, Any] = {"external_data": True} if dynamo else {}
    return lambda folder: torch.onnx.export(
        model, args, str(folder / "m.onnx"), opset_version=OPSET, dynamo=dynamo, verbose=False, **kind
    )


def plain_writes(model: Any) -> Call:
    def write(folder: Path) -> None:
        with (folder / "plain.bin").open("wb", buffering=0) as file:
            for tensor in model.parameters():
                view = memoryview(tensor.detach().numpy()).cast("B")
                for start in range(0, len(view), CHUNK):
                    file.write(view[start : start + CHUNK])
            os.fsync(file.fileno())

    return write


def copied(checkpoint: Path) -> Call:
    def copy(folder: Path) -> None:
        subprocess.run(["cp", str(checkpoint), str(folder / "copy.bin")], check=True)
        with (folder / "copy.bin").open("rb") as file:
            os.fsync(file.fileno())

    return copy


# The works ------------------------------------------------------------------------------------------------------------

MAKERS = {"linears": linears, "llama": llama, "checkpoint": llama, "reference": llama, "sparse": sparse_layers}
CONTENDERS = {
    "linears": ["plain writes", "trace", "export", "dynamo=True"],
    "llama": ["plain writes", "trace", "export", "dynamo=True"],
    "checkpoint": ["cp", "meta"],
    "reference": ["meta"],
    "sparse": ["meta"],
}
GOALS = {
    "linears": "trace or export: under 64 MB over the model, at most 1.2x of plain writes, 3x faster than dynamo=True",
    "llama": "trace or export: under 64 MB over the model, 4x faster than dynamo=True",
    "checkpoint": "meta: peak under 700 MB, at most 1.1x of cp plus what comes before the save",
    "reference": "meta: no weight byte written, under 3 s beyond the capture",
    "sparse": "meta: peak under 1 GB",
}


def measure(work: str, contender: str, folder: Path) -> dict[str, Any]:
    """Seconds of the call, by stages where it tells them, bytes written, and memory; the file stays in `folder`."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    checkpoint = folder.parent / f"{MAKERS[work].__name__}.safetensors"
    model, args = (None, ()) if contender == "cp" else made(MAKERS[work], meta=contender == "meta")
    stages: Stages = {}
    calls: dict[str, Callable[[], Call]] = {
        "plain writes": lambda: plain_writes(model),
        "cp": lambda: copied(checkpoint),
        "trace": lambda: ours(model, args, stages, "trace"),
        "export": lambda: ours(model, args, stages, "export"),
        "meta": lambda: ours_from_checkpoint(
            model, args, stages, checkpoint, "reference" if work == "reference" else True
        ),
        "dynamo=True": lambda: torch_onnx(model, args, True),
        "dynamo=False": lambda: torch_onnx(model, args, False),
    }
    call = calls[contender]()
    target = folder.parent if work == "reference" else folder  # what is referred to must lie beside the model
    held = set(target.iterdir())
    return_freed_memory()
    before = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    result = call(target)
    seconds = time.perf_counter() - start
    peak = resident_mb("VmHWM")
    del result
    gc.collect()
    written = sum(path.stat().st_size for path in set(target.iterdir()) - held if path.is_file())
    save = stages.get("save")
    return {
        "seconds": seconds,
        "before_save": None if save is None else save - start,
        "extra_mb": max(0.0, peak - before),
        "peak_mb": peak,
        "written_mb": written / 1e6,
    }


def judge(work: str, contender: str, folder: Path) -> dict[str, Any]:
    """onnx's checker by path, and ONNX Runtime beside torch on the example where both fit into memory."""
    import numpy as np
    import onnx
    import onnxruntime
    import torch

    path = folder / "m.onnx"
    onnx.checker.check_model(str(path))
    if work == "sparse":
        return {"equals_torch": None}
    model, args = made(MAKERS[work], meta=False)
    with torch.no_grad():
        expected = model(*args).numpy()
    del model
    gc.collect()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: args[0].numpy()})[0]
    close = bool(np.allclose(found, expected, rtol=1e-3, atol=1e-4))
    return {"equals_torch": close, "largest_difference": float(np.abs(found - expected).max())}


def run(arguments: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def work_rows(work: str, contenders: list[str], repeat: int, top: Path) -> Iterator[dict[str, Any]]:
    """The best of each contender's runs; they take turns, so that a slow minute hits them all."""
    if work in ("checkpoint", "reference", "sparse"):
        run(["--make-checkpoint", work, "-", str(top)])
    best: dict[str, dict[str, Any]] = {}
    judged: dict[str, dict[str, Any]] = {}
    for turn in range(repeat):
        for contender in contenders:
            folder = top / f"{work}-{turn}"
            folder.mkdir()
            found = run(["--measure", work, contender, str(folder)])
            print(f"{work}, {contender}: {found['seconds']:.2f} s", file=sys.stderr)
            old = best.get(contender, found)
            best[contender] = {key: value if old[key] is None else min(value, old[key]) for key, value in found.items()}
            place = top if work == "reference" else folder
            if turn == 0 and contender not in ("cp", "plain writes"):
                judged[contender] = run(["--judge", work, contender, str(place)])
            shutil.rmtree(folder)
            for left in top.glob("m.onnx*"):
                left.unlink()
    base = best.get("plain writes") or best.get("cp")
    for contender in contenders:
        row = {"work": work, "contender": contender, **best[contender], **judged.get(contender, {})}
        row["ratio"] = best[contender]["seconds"] / base["seconds"] if base else None
        yield row


def table(rows: list[dict[str, Any]]) -> str:
    """For people; the ratio is to plain writes or cp of the same bytes, both with fsync."""
    header = ("work", "contender", "seconds", "before the save", "ratio", "extra MB", "peak MB", "written MB", "right")
    lines = [header]
    for row in rows:
        before, ratio = row["before_save"], row["ratio"]
        right = {True: f"yes ({row.get('largest_difference', 0):.1e})", False: "NO", None: "checked"}
        lines.append(
            (
                row["work"],
                row["contender"],
                f"{row['seconds']:.2f}",
                "-" if before is None else f"{before:.2f}",
                "-" if ratio is None else f"{ratio:.2f}",
                f"{row['extra_mb']:.0f}",
                f"{row['peak_mb']:.0f}",
                f"{row['written_mb']:.1f}",
                right[row["equals_torch"]] if "equals_torch" in row else "-",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, "", *(f"goal, {work}: {GOALS[work]}" for work in dict.fromkeys(r["work"] for r in rows))])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--works", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS), metavar="WORK")
    parser.add_argument("--repeat", type=int, default=2, help="measurements of each (default: 2)")
    parser.add_argument("--folder", type=Path, help="where the files are written (default: for temporary files)")
    parser.add_argument("--legacy", action="store_true", help="torch.onnx dynamo=False too, which takes a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    for hidden in ("--measure", "--judge", "--make-checkpoint"):
        parser.add_argument(hidden, nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure[:2], Path(args.measure[2]))))
        return
    if args.judge:
        print(json.dumps(judge(*args.judge[:2], Path(args.judge[2]))))
        return
    if args.make_checkpoint:
        work, _, top = args.make_checkpoint
        path = Path(top) / f"{MAKERS[work].__name__}.safetensors"
        if not path.exists():
            write_checkpoint(path, made(MAKERS[work], meta=work == "sparse")[0], sparse=work == "sparse")
        print("{}")
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as top:
        for work in args.works:
            contenders = CONTENDERS[work] + (["dynamo=False"] if args.legacy and work == "linears" else [])
            rows += work_rows(work, contenders, args.repeat, Path(top))
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
