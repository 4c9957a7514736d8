"""A folder with a language model of 7 billion parameters: seconds and memory of `language_model`, beside `cp`.

    python benchmarks/language_large.py [--layers 32] [--dtype float16] [--repeat 2] [--folder DIR]

The checkpoint has the true sizes of Llama 2 7B (two .safetensors files and an index) and random values.  (A file with
holes would not do: `cp` does not read them.)  `copy` writes a folder with its own data, `reference` a file beside the
checkpoint that refers to it, which takes as long as the capture.  Each runs in a process of its own.  Memory is the
growth of the resident set over transformers and torch, by the kernel's high-water mark.  `cp` gets the same files, and
what it wrote is brought to the disk, as a save does.  `copy` and `cp` take turns.  Needs Linux, transformers and 30 GB
of disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.export import _resident_mb as resident_mb  # noqa: E402
from proto_schema.tensors.dtypes import DTYPES  # noqa: E402
from purexport.dtypes import onnx_code  # noqa: E402
from purexport.torch_patches.empty import parameters_without_values  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

SHARDS = 2


def checkpoint(folder: Path, layers: int, dtype: torch.dtype) -> None:
    """A folder as `save_pretrained` writes it; its values are a random block again and again."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_hidden_layers=layers, dtype=dtype, architectures=["LlamaForCausalLM"])
    config.save_pretrained(folder)
    with parameters_without_values():
        shapes = {name: list(item.shape) for name, item in LlamaForCausalLM._from_config(config).named_parameters()}
    names = list(shapes)
    kind, width = DTYPES[onnx_code(dtype)].safetensors, dtype.itemsize
    numbers = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)) * 0.02
    block = numbers.to(dtype).view(torch.uint8).numpy()
    index = {}
    for shard in range(SHARDS):
        path = folder / f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        header: dict[str, Any] = {}
        at = 0
        for name in names[shard * len(names) // SHARDS : (shard + 1) * len(names) // SHARDS]:
            size = torch.Size(shapes[name]).numel() * width
            header[name] = {"dtype": kind, "shape": shapes[name], "data_offsets": [at, at + size]}
            index[name], at = path.name, at + size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for start in range(0, at, block.nbytes):
                rolled = np.roll(block, start // block.nbytes % 977 * width)
                file.write(rolled[: at - start].data)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def measured(folder: Path, out: Path, how: str) -> None:
    """Print the seconds and megabytes of one call, in this process."""
    torchvision()
    import transformers

    import purexport
    from purexport.language import model

    assert model and transformers.LlamaForCausalLM
    before = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    begun, spent = time.perf_counter(), time.process_time()
    purexport.language_model(folder, out, external_data="reference" if how == "reference" else None)
    seconds, spent = time.perf_counter() - begun, time.process_time() - spent
    print(f"{how:10} {seconds:7.2f} s  {spent:6.2f} s of the processor  {resident_mb('VmHWM') - before:6.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the files are written (default: for temporary files)")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measured(Path(chosen.measure[0]), Path(chosen.measure[1]), chosen.measure[2])
        return
    torchvision()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as place:
        source = Path(place, "from")
        source.mkdir()
        checkpoint(source, chosen.layers, getattr(torch, chosen.dtype))
        size = sum(path.stat().st_size for path in source.iterdir())
        print(f"{size / 1e9:.2f} GB", flush=True)
        out = Path(place, "out")
        subprocess.run([sys.executable, __file__, "--measure", str(source), str(source), "reference"], check=True)
        for _ in range(chosen.repeat):
            begun = time.perf_counter()
            subprocess.run(["cp", "-r", str(source), str(out)], check=True)
            subprocess.run(["sync", *map(str, out.iterdir())], check=True)
            print(f"{'cp, sync':10} {time.perf_counter() - begun:7.2f} s", flush=True)
            shutil.rmtree(out)
            subprocess.run([sys.executable, __file__, "--measure", str(source), str(out), "copy"], check=True)
            shutil.rmtree(out)


if __name__ == "__main__":
    main()
