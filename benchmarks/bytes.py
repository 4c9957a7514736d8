"""The verbs on files of several GB: seconds and peak memory of each, beside the least that the official onnx can do.

    python benchmarks/bytes.py [--folder /tmp] [--inline-gb 1.5] [--external-gb 5] [--rounds 3] [--no-peer] [--json]

Two models, 400 layers of two weights each: one with its weights inside, filled with random bytes, and one with external
data, a sparse file. Every verb runs as a process of its own. Seconds are the best round's, start of Python included;
memory is the peak of resident pages, mapped ones included. The peer loads the model, and for `check` and `edit` does
what its documentation says: `check_model` of a path; load, set, save. Both run on a warm page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import proto_schema as ps

ROOT = Path(__file__).parent.parent
LAYERS = 400
BLOCK = 1 << 22

RENAMES = ["--rename-input", "h0=image", "--rename-dim", "batch=N"]

# what is run, the name of the peer's program
VERBS: list[tuple[list[str], str]] = [
    (["inspect", "FILE"], "load"),
    (["inspect", "FILE", "--json"], "load"),
    (["inspect", "FILE", 'graph.initializer["layers.99.weight"]'], "load"),
    (["locate", "FILE", "OFFSET"], "load"),
    (["stat", "FILE"], "load"),
    (["show", "FILE"], "load"),
    (["check", "FILE"], "check"),
    (["edit", "FILE", "--set", "producer_name=NEW", "--dry-run"], "load"),
    (["edit", "FILE", "--set", "producer_name=NEW"], "edit"),
    (["edit", "FILE", *RENAMES, "-o", "COPY"], "edit"),
    (["edit", "FILE", "--set", "producer_name=NEW", "--append"], "edit"),
]

HEAD = """\
| verb | s | CPU s | MiB | peer | s | CPU s | MiB | its time / ours |
|---|---|---|---|---|---|---|---|---|"""

PEERS = {
    "load": "import onnx, sys; onnx.load(sys.argv[1], load_external_data=False)",
    "check": "import onnx, sys; onnx.checker.check_model(sys.argv[1])",
    "edit": "import onnx, sys; m = onnx.load(sys.argv[1], load_external_data=False); m.producer_name = 'peer'; "
    "onnx.save(m, sys.argv[1] + '.peer.onnx')",
}


# A small process starts and measures another: the peak of a child begins at what its parent has.
LAUNCHER = """
import os, sys, time
start = time.perf_counter()
child = os.fork()
if not child:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
sys.exit(status != 0)
"""


@dataclass(frozen=True, order=True)
class Cost:
    """Seconds of the clock and of the processor, and the peak of resident memory in MiB."""

    seconds: float
    cpu: float
    mb: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} | {self.cpu:.2f} | {self.mb:.0f}"


def run(command: list[str]) -> Cost:
    """What a process costs. Raises RuntimeError with its words where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-S", "-E", "-c", LAUNCHER, *command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
    return Cost(*map(float, done.stdout.split()))


def model(size: int, external: bool) -> Any:
    """A chain of layers whose weights have `size` bytes in all; inline ones are made as they are written."""
    width = int((size / LAYERS / 4) ** 0.5)
    nodes, weights = [], []
    for at in range(LAYERS):
        name = f"layers.{at}"
        for kind, inputs, output in (
            ("MatMul", [f"h{at}", f"{name}.weight"], f"m{at}"),
            ("Add", [f"m{at}", f"{name}.bias"], f"a{at}"),
            ("Relu", [f"a{at}"], f"h{at + 1}"),
        ):
            nodes.append(ps.helper.make_node(kind, inputs, [output], name=f"/{name}/{kind}"))
        for part, dims in (("weight", [width, width]), ("bias", [width])):
            tensor = ps.TensorProto(name=f"{name}.{part}", dims=dims, data_type=ps.TensorProto.FLOAT)
            count = 4 * width * (width if part == "weight" else 1)
            if not external:
                tensor.raw_data = ps.LazyPayload(count, lambda n=count, s=at: noise(n, s), identity=tensor.name)
            weights.append(tensor)
    if external:
        lay_out(weights)
    ends = [ps.helper.make_tensor_value_info(name, 1, ["batch", width]) for name in ("h0", f"h{LAYERS}")]
    graph = ps.helper.make_graph(nodes, "big", ends[:1], ends[1:], weights)
    return ps.helper.make_model(
        graph, producer_name="bench", opset_imports=[ps.helper.make_opsetid("", 20)], ir_version=10
    )


def noise(count: int, seed: int) -> Iterator[bytes]:
    made = random.Random(seed)
    while count:
        part = made.randbytes(min(count, BLOCK))
        count -= len(part)
        yield part


def lay_out(weights: list[Any]) -> None:
    """The weights one after the other in big.data."""
    offset = 0
    for tensor in weights:
        length = 4 * int(tensor.dims[0]) * (int(tensor.dims[1]) if len(tensor.dims) > 1 else 1)
        ps.external.set_entries(tensor, "big.data", offset, length)
        offset += -(-length // 4096) * 4096


def make(folder: Path, size: int, external: bool) -> Path:
    """The file of a model, and, where it is `external`, a sparse one of its data."""
    path = folder / ("external.onnx" if external else "inline.onnx")
    made = model(size, external)
    if external:
        last = ps.external.entries(made.graph.initializer[-1])
        with open(folder / "big.data", "wb") as file:
            file.truncate(last.offset + (last.length or 0))
        path.write_bytes(ps.dumps(made))
    else:
        ps.save(made, path, external_data=False)
    return path


def measured(path: Path, rounds: int, peer: bool) -> Iterator[dict[str, Any]]:
    """A row a verb."""
    copy = path.with_name(f"copy-{path.name}")
    fixed = {"FILE": str(path), "COPY": str(copy), "OFFSET": str(path.stat().st_size // 2)}
    peers: dict[str, Cost] = {}
    for argv, other in VERBS:
        found = []
        for at in range(rounds):
            words = [fixed.get(word, word).replace("=NEW", f"=made{at}{len(argv)}") for word in argv]
            found.append(run([sys.executable, "-m", "purexport", *words]))
            copy.unlink(missing_ok=True)
        row: dict[str, Any] = {"verb": " ".join(argv), "ours": min(found)}
        if peer:
            if other not in peers:
                peers[other] = min(run([sys.executable, "-c", PEERS[other], str(path)]) for _ in range(min(rounds, 2)))
                path.with_name(f"{path.name}.peer.onnx").unlink(missing_ok=True)
            row.update(does=other, peer=peers[other])
        yield row


def line(row: dict[str, Any]) -> str:
    other = (
        f" {row['does']} | {row['peer']} | {row['peer'].seconds / row['ours'].seconds:.1f} |" if "peer" in row else ""
    )
    return f"| `{row['verb']}` | {row['ours']} |{other}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=Path, help="where the files are made for a while (default: a temporary one)")
    parser.add_argument("--inline-gb", type=float, default=1.5)
    parser.add_argument("--external-gb", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    results: dict[str, list[dict[str, Any]]] = {}
    try:
        for size, external in ((args.inline_gb, False), (args.external_gb, True)):
            path = make(folder, int(size * 1e9), external)
            title = f"{size:g} GB, {'external data' if external else 'inline'}"
            results[title] = []
            if not args.json:
                sys.stdout.write(f"\n{title}\n\n{HEAD}\n")
            for row in measured(path, args.rounds, not args.no_peer):
                results[title].append(row)
                if not args.json:
                    sys.stdout.write(line(row) + "\n")
                    sys.stdout.flush()
            path.unlink()
    finally:
        shutil.rmtree(folder)
    if args.json:
        sys.stdout.write(json.dumps(results, indent=2, default=asdict) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
