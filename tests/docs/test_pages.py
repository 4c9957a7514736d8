"""Every code block of README and of the pages runs, or stands in a table that says why it does not.

`tests/docs/blocks.py` says what running a block means. A block is named by its first line. Where a verb of purexport is
named, in a block or in a sentence, it exists and has the options.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import proto_schema as ps
import purexport.distributed
import purexport.weights
from purexport.cli.main import build_parser
from tests.docs.blocks import PAGES, ROOT, Block, blocks, run
from tests.torchvision_shim import torchvision
from tests.weights.made import of_arrays
from tools import command_line


def nothing() -> None:
    """Nothing needs to be there before the first block."""


def small_network() -> None:
    """The model of README's first block as a class."""
    Path("net.py").write_text(
        "import torch\n\n\n"
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())\n"
    )


_SIZES = {"layers": 2, "ffn_dim": 32, "attention_heads": 4}


def language_models() -> None:
    """Models of transformers' classes with a few weights, under the names of models that people know."""
    torchvision()  # which transformers imports, also one without operators
    import transformers

    words = {"vocab_size": 99, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    words |= {"num_key_value_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**words))
    llama.save_pretrained("Llama-3.2-1B")
    llama.save_pretrained("Qwen3-0.6B")
    both = {"d_model": 16, "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    both |= {"decoder_start_token_id": 1}
    text = {"d_ff": 32, "d_kv": 4, "num_heads": 4, "num_layers": 2}
    transformers.T5ForConditionalGeneration(transformers.T5Config(**both, **text)).save_pretrained("t5-small")
    halves = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in _SIZES.items()}
    sound = {"num_mel_bins": 20, "max_source_positions": 30, "max_target_positions": 64}
    whisper = transformers.WhisperConfig(**both, **halves, **sound)
    transformers.WhisperForConditionalGeneration(whisper).save_pretrained("whisper-tiny")


def encoders() -> None:
    """A BERT of a few weights."""
    torchvision()
    import transformers

    words = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
    transformers.BertModel(transformers.BertConfig(**words, intermediate_size=32)).save_pretrained("bert-base-uncased")


def models_for_browsers() -> None:
    """Both."""
    language_models()
    encoders()


def checkpoints() -> None:
    """Classes and their checkpoints, and a sample, which docs/large-models.md takes for given."""
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.encoder = nn.Embedding(1000, 256)\n"
        "        self.head = nn.Linear(256, 8)\n\n"
        "    def forward(self, ids):\n"
        "        return self.head(self.encoder(ids))\n\n\n"
        "class Rotated(Net):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.rotary = nn.Module()\n"
        "        self.rotary.register_buffer('rates', torch.ones(8), persistent=False)\n\n"
        "    def forward(self, ids):\n"
        "        return self.head(self.encoder(ids)) * self.rotary.rates\n"
    )
    values = {"encoder.weight": (1000, 256), "head.weight": (8, 256), "head.bias": (8,)}
    arrays = {name: np.ones(shape, np.float32) for name, shape in values.items()}
    for folder in ("checkpoint", "samples"):
        Path(folder).mkdir()
    for name in ("model.safetensors", "checkpoint/model.safetensors"):
        aligned(of_arrays(Path(name), arrays))
    np.save("samples/1.npy", np.ones((1, 3, 8, 8), np.float32))


def small_perceptron() -> None:
    """A file of a few layers, and a sample."""
    nn = torch.nn
    layers = [nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16), nn.Softmax(-1)]
    purexport.export(nn.Sequential(*layers).eval(), (torch.rand(2, 16),), "net.onnx")
    Path("samples").mkdir()
    np.save("samples/1.npy", np.ones((2, 16), np.float32))


def aligned(path: Path) -> None:
    """Puts spaces behind the header of a safetensors file, so that data begins where other writers put it."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length] + b" " * (-length % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


@dataclass(frozen=True)
class Page:
    """A page whose blocks run, first to last, in one folder."""

    name: str
    set_up: Callable[[], None] = nothing
    needs: str = ""


RUN = [
    Page("README.md", small_network),
    Page("docs/api/purexport.md"),
    Page("docs/index.md"),
    Page("docs/comparing.md"),
    Page("docs/cookbook.md"),
    Page("docs/coming-from-torch-onnx.md"),
    Page("docs/custom-operators.md"),
    Page("docs/graphs.md"),
    Page("docs/half-precision.md", small_perceptron),
    Page("docs/language-models.md", language_models, needs="transformers"),
    Page("docs/large-models.md", checkpoints),
    Page("docs/minimal-environment.md"),
    Page("docs/observed-inputs.md"),
    Page("docs/quantizing.md"),
    Page("docs/running-folders.md", language_models, needs="transformers"),
    Page("docs/transformers-js.md", models_for_browsers, needs="transformers"),
    Page("docs/transformers-models.md", encoders, needs="transformers"),
    Page("docs/tutorial.md"),
]

APART = {"docs/coming-from-onnx.md"}
"""Pages that change what `import onnx` gives, and run in a process of their own."""

_SET_UP = "CI makes its environment so, and tests/test_packaging.py compares the lines"
_SOURCE = "a piece of a file: test_pieces_of_the_source finds it there"
_OUTPUT = "tests/test_errors.py finds the message in the code"
_NETWORK = "downloads from the package index"

NOT_RUN = {
    ("README.md", "python3 -m venv .venv"): _SET_UP,
    ("README.md", "-import onnx"): "changes of a script; docs/coming-from-torch-onnx.md runs such lines",
    ("CONTRIBUTING.md", "python3 -m venv .venv"): _SET_UP,
    ("CONTRIBUTING.md", ""): _SOURCE,
    ("docs/architecture.md", "torch model --capture-->"): "a drawing",
    ("docs/bytes.md", ""): "test_bytes.py runs each command and compares all of its output",
    ("docs/coming-from-onnx.md", "python -m proto_schema.compat"): "tests/import_onnx/test_installing.py runs it",
    ("docs/coming-from-onnx.md", "pip download"): _NETWORK,
    ("docs/quantizing.md", "purexport quantize m.onnx"): "the same verb runs below, on models that the page makes",
    (
        "docs/cookbook.md",
        "cache = DynamicCache",
    ): "needs transformers; tests/frontends/test_structures.py has caches",
    (
        "docs/development/fuzzing.md",
        "python -m fuzz",
    ): "runs for minutes; tests/fuzz runs each for a moment",
    ("docs/command-line.md", ""): "test_the_page_of_the_command_line compares it with the parsers",
    ("docs/index.md", "pip install"): _SET_UP,
    ("docs/error-codes.md", "try:"): "a form, with `...` in it",
    ("docs/error-codes.md", ""): _OUTPUT,
    ("docs/language-models.md", "model = peft.PeftModel"): "needs peft; tests/language/test_adapters.py has adapters",
    ("docs/language-models.md", "tensors = {}"): "needs peft; tests/language/test_adapters.py has adapters",
    ("docs/language-models.md", 'purexport.language_model("gemma-3-4b-it"'): "needs the processor of a real model",
    ("docs/diffusion-pipelines.md", ""): "needs diffusers; tests/language/test_diffusion.py has such pipelines",
    ("docs/transformers-js.md", "import { pipeline }"): "JavaScript; tests/language/test_transformers_js.py runs node",
    ("docs/observed-inputs.md", "with purexport.observe(model)"): "needs transformers; tests/language/test_observed.py",
    ("docs/large-models.md", "purexport export: m.onnx: cannot save"): "a disk that is too small: tests/cli has it",
    (
        "docs/large-models.md",
        "python write.py | ssh",
    ): "another machine; tests/cli/test_streams.py reads such tars",
    (
        "docs/large-models.md",
        "purexport quantize m.onnx -o q.onnx --executor",
    ): "processes, Dask and MPI; tests/proto_schema/test_executors.py has processes",
    (
        "docs/large-models.md",
        "purexport export net.py:Net --meta --input ids=int64[1,16]:0..999 --weights s3",
    ): "storage; tests/proto_schema/test_s3.py has a server",
    (
        "docs/large-models.md",
        "purexport export net.py:Net --meta --input ids=int64[1,16]:0..999 --weights step-1000 -o net.onnx",
    ): "the block above, with processes",
    ("docs/large-models.md", "purexport quantize s3"): "storage; tests/proto_schema/test_addresses.py has such verbs",
    ("docs/large-models.md", "import purexport"): "a group of processes; tests/distributed runs groups",
    ("docs/minimal-environment.md", "pip install ."): _SET_UP,
    ("docs/tutorial.md", "python3 -m venv .venv"): _SET_UP,
}
"""(page, how the block begins): why it is not run.  With "" all blocks of the page that do not run otherwise."""


def left_out(block: Block) -> tuple[str, str] | None:
    """The row of NOT_RUN for a block."""
    rows = [row for row in NOT_RUN if row[0] == block.page and block.first.removeprefix("$ ").startswith(row[1])]
    return max(rows, key=lambda row: len(row[1]), default=None)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore")
def test_blocks_run(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.needs:
        pytest.importorskip(page.needs)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    page.set_up()
    every = blocks(page.name)
    kept = [block for block in every if left_out(block) is None]
    assert run(kept, monkeypatch) == kept


@pytest.mark.parametrize("name", sorted(APART))
def test_blocks_run_apart(name: str, tmp_path: Path) -> None:
    code = "\n".join(block.text for block in blocks(name) if block.kind == "python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_block_is_run_or_listed() -> None:
    running = {page.name for page in RUN} | APART
    every = [block for page in PAGES for block in blocks(page)]
    unknown = [str(block) for block in every if block.page not in running and left_out(block) is None]
    unknown += [str(block) for block in every if block.page in APART and block.kind != "python" and not left_out(block)]
    unused = NOT_RUN.keys() - {left_out(block) for block in every}
    assert not unknown and not unused


def test_pieces_of_the_source() -> None:
    """What CONTRIBUTING.md shows of rules, rows and adapters stands in the code, line after line."""
    rooms = ("proto_schema", "purexport", "tests")
    sources = [plain(path.read_text()) for room in rooms for path in (ROOT / room).rglob("*.py")]
    pieces = [block for block in blocks("CONTRIBUTING.md") if block.kind == "python"]
    assert pieces
    assert not [str(piece) for piece in pieces if not any(plain(piece.text) in source for source in sources)]


def plain(text: str) -> str:
    """The text without indents."""
    return "\n".join(line.strip() for line in text.strip().split("\n"))


def test_the_reference_has_every_public_name() -> None:
    shown = set(re.findall(r"(?m)^::: (\S+)$", "".join(path.read_text() for path in (ROOT / "docs/api").glob("*.md"))))
    packages = (purexport, ps, purexport.weights, purexport.distributed)
    public = {f"{package.__name__}.{name}" for package in packages for name in package.__all__ if name[0] != "_"}
    public -= {"purexport.distributed", "purexport.weights.WeightsError"}  # a page of its own, and shown as purexport's
    assert public - shown == set()
    rooms = {name: importlib.import_module(name.rpartition(".")[0]) for name in shown}
    missing = [name for name, room in rooms.items() if not hasattr(room, name.rpartition(".")[2])]
    assert [name for name in missing if find_spec(name) is None] == []


def test_the_page_of_the_command_line() -> None:
    """It is what the parsers say, and every verb has an example."""
    assert command_line.PAGE.read_text() == command_line.page(), "python -m tools.command_line --write"
    (verbs,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    text = command_line.PAGE.read_text()
    assert [verb for verb in verbs.choices if f"purexport {verb}" not in text.partition(f"\n## {verb}\n")[2]] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_figures_stand_on_the_page_that_is_linked(page: str) -> None:
    """The table of reasons repeats measured figures; a row without a link is about the one above it."""
    linked = ""
    rows = [line for line in (ROOT / page).read_text().split("\n") if re.match(r"\| .*\d (s|MB|of \d+)\b", line)]
    assert len(rows) == 4
    for row in rows:
        link = re.search(r"\]\(([^)#]+)", row)
        linked = ((ROOT / page).parent / link[1]).read_text() if link else linked
        missing = [figure for figure in re.findall(r"[\d.]+ s|[\d.]+x|\d+ MB|\d+ of \d+", row) if figure not in linked]
        assert not missing, row


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_options_exist(page: str) -> None:
    parser = build_parser()
    (actions,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    text = (ROOT / page).read_text()
    spans = [span for span in re.findall(r"`([^`\n]+)`", text) if span.startswith("purexport ")]
    spans += [line.strip().removeprefix("$ ") for block in blocks(page) for line in block.text.split("\n")]
    for span in spans:
        named = re.match(r"purexport ([a-z]+)\b(.*)", span)
        if named is None:
            continue
        assert named[1] in actions.choices, span
        options = {option for action in actions.choices[named[1]]._actions for option in action.option_strings}
        wrong = [word for word in re.findall(r"(?<= )--?[a-z][\w-]*", named[2]) if word not in options]
        assert not wrong, f"{span}: no option {wrong}"
