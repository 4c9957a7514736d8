"""What a config.json of a stranger may say, and which of the files around it are read.  transformers is not needed."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from purexport.errors import ExportError, WeightsError
from purexport.language import building, folder_files
from purexport.language.config import DEEPEST, check_sizes, keys_of, plain_config, taken_packing
from purexport.language.folder_files import check_index, contents_of, file_in, json_of
from purexport.torch_patches.empty import parameters_without_values
from tests import imports

ROOT = Path(__file__).parent.parent.parent


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = {"a": [found]}
    return found


# (what config.json is, what is said of it)
REFUSED: list[tuple[Any, str]] = [
    (None, "config.json: it is null, not a JSON object"),
    ([], r"it is \[\], not a JSON object"),
    ("llama", "it is 'llama', not a JSON object"),
    ({"architectures": [5]}, r"architectures is \[5\], not a list of names of classes"),
    ({"architectures": "LlamaForCausalLM"}, "architectures is 'LlamaForCausalLM', not a list of names"),
    ({"model_type": 5}, "model_type is 5, not a name"),
    ({"model_type": ["llama"]}, r"model_type is \['llama'\], not a name"),
    ({"dtype": "os.system"}, "dtype: 'os.system' is not a dtype of weights; known are float32"),
    ({"torch_dtype": "load"}, "torch_dtype: 'load' is not a dtype"),
    ({"text_config": {"dtype": "hub.load"}}, "text_config.dtype: 'hub.load' is not a dtype"),
    ({"dtype": ["float32"]}, r"dtype: \['float32'\] is not a dtype"),
    ({"num_attention_heads": 0}, "num_attention_heads: 0 is not a number of heads, from 1 to"),
    ({"n_head": -1}, "n_head: -1 is not a number of heads"),
    ({"hidden_size": 0}, "hidden_size: 0 is not a size, from 1"),
    ({"hidden_size": -64}, "hidden_size: -64 is not a size"),
    ({"hidden_size": 10**9}, "hidden_size: 1000000000 is not a size"),
    ({"hidden_size": 10**400}, "hidden_size: 1000.* is not a size"),
    ({"hidden_size": float("nan")}, "hidden_size: nan is not a size"),
    ({"num_hidden_layers": -2}, "num_hidden_layers: -2 is not a number of things"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not a number of things"),
    ({"encoder_layers": 10**9}, "encoder_layers: 1000000000 is not"),
    ({"vision_config": {"depth": 10**9}}, "vision_config.depth: 1000000000 is not"),
    ({"vision_config": {"depths": [2, 10**9]}}, r"vision_config.depths\[1\]: 1000000000 is not"),
    ({"parts": [{"num_experts": 10**9}]}, r"parts\[0\].num_experts: 1000000000 is not"),
    ({"num_labels": 10**9}, "num_labels: 1000000000 is not"),
    ({"max_position_embeddings": 10**12}, "max_position_embeddings: 1000000000000 is not a number of positions"),
    ({"bos_token_id": 1 << 64}, "bos_token_id: 18446744073709551616 has more than 64 bits"),
    (nested(DEEPEST), f"nested more than {DEEPEST} levels deep"),
]


@pytest.mark.parametrize(("found", "message"), REFUSED, ids=[row[1][:50] for row in REFUSED])
def test_refused(found: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        plain_config(found, "config.json")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400 and caught.value.code == "odd-config"


# what models have: nothing of it is refused or left out
TAKEN: list[dict[str, Any]] = [
    {"n_head": 12, "n_layer": 12, "n_embd": 768, "n_inner": None, "n_positions": 1024, "vocab_size": 50257},
    {"vision_feature_layer": -2, "image_token_index": 32000, "vision_config": {"hidden_size": 1024, "depths": [2, 2]}},
    {"vision_feature_layer": [-24, -1], "mm_vision_select_layer": -2, "no_rope_layers": [1, 1, 0]},
    {"time_step_limit": [0.0, float("inf")], "num_heads": 80, "n_groups": 1, "expand": 2},
    {"d_model": 512, "num_layers": 6, "relative_attention_num_buckets": 32, "n_positions": 512, "d_ff": 2048},
    {"rope_theta": 1e6, "rope_scaling": {"mrope_section": [16, 24, 24], "type": "default"}, "sliding_window": -1},
    {"max_position_embeddings": 10485760, "num_key_value_heads": None, "num_local_experts": 128, "head_dim": 128},
    {"max_position_embeddings": -1, "num_nextn_predict_layers": 1, "first_k_dense_replace": 3, "topk_group": 4},
    {"torch_dtype": "bfloat16", "eos_token_id": [1, 106], "pad_token_id": -1, "seed": (1 << 64) - 1},
    {"architectures": None, "quantization_config": {"quant_method": "awq", "dtype": 5, "hidden_size": -1}},
    {"dtype": None, "id2label": {"0": "auto_map"}, "layer_types": ["full_attention"] * 3, "tie_word_embeddings": True},
    {"_attn_implementation": "eager", "experts_implementation": "grouped_mm"},
    nested(DEEPEST // 2 - 1),
]


@pytest.mark.parametrize("config", TAKEN, ids=[next(iter(row)) for row in TAKEN])
def test_taken(config: dict[str, Any]) -> None:
    assert plain_config(config, "config.json") == (config, [])


# (what config.json has, what is left of it, what the report says)
LEFT_OUT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"auto_map": {"AutoConfig": "evil.EC"}}, {}, "names Python code in auto_map, which is neither run nor copied"),
    ({"text_config": {"auto_map": {"AutoModel": "evil.M"}, "a": 1}}, {"text_config": {"a": 1}}, "auto_map"),
    ({"parts": [{"auto_map": "evil.M"}]}, {"parts": [{}]}, "auto_map"),
    ({"custom_pipelines": {"x": {"impl": "evil.P"}}}, {}, "names Python code in custom_pipelines"),
    (
        {"_attn_implementation": "evil/kernel"},
        {},
        "asks for 'evil/kernel' as _attn_implementation, which",
    ),
    ({"attn_implementation": {"text_config": "evil/kernel@main:f"}}, {}, "evil/kernel@main:f"),
    ({"_attn_implementation_internal": "evil/kernel"}, {}, "evil/kernel"),
    ({"vision_config": {"attn_implementation": "flash_attention_2"}}, {"vision_config": {}}, "flash_attention_2"),
    ({"experts_implementation": "sonicmoe"}, {}, "sonicmoe"),
    ({"kernel_config": {"kernel_mapping": {"RMSNorm": "evil/kernel"}}}, {}, "kernel_config"),
    ({"use_kernels": True, "allow_all_kernels": True}, {}, ""),
    ({"configuration_files": ["config.5.0.json"]}, {}, ""),
    ({"transformers_weights": "../secret.safetensors", "name_or_path": "/etc", "_name_or_path": "org/other"}, {}, ""),
]


@pytest.mark.parametrize(("config", "left", "remark"), LEFT_OUT, ids=[next(iter(row[0])) for row in LEFT_OUT])
def test_left_out(config: dict[str, Any], left: dict[str, Any], remark: str) -> None:
    found, remarks = plain_config(config, "config.json")
    assert found == left
    assert len(remarks) == bool(remark) and all(remark in text for text in remarks)


# (the config, the tensors and the numbers of its checkpoint, what is said)
SIZES: list[tuple[dict[str, Any], int, int, str]] = [
    ({"num_hidden_layers": 50000, "hidden_size": 1}, 21, 56000, "50000 layers cannot fit the checkpoint"),
    ({"decoder_layers": 22, "encoder_layers": 40}, 21, 56000, "40 layers cannot .* which has 21 tensors"),
    ({"hidden_size": 10**6, "intermediate_size": 48}, 21, 56000, "a layer of 1000000 times 48 cannot"),
    ({"d_model": 64, "d_ff": 10**8}, 21, 56000, "a layer of 64 times 100000000 cannot .* 56000 numbers"),
    ({"num_hidden_layers": 30, "hidden_size": 10**7}, 40, 56000, "30 layers of width 10000000 cannot"),
    ({"vocab_size": 10**8}, 21, 56000, "100000000 tokens cannot"),
    (
        {"vision_config": {"hidden_size": 10**8, "intermediate_size": 9}},
        21,
        5,
        "config.json: vision_config: a layer of",
    ),
    ({"num_hidden_layers": 12, "n_embd": 768, "vocab_size": 50257}, 148, 124_000_000, ""),
    ({"num_hidden_layers": 24, "hidden_size": 1024, "word_embed_proj_dim": 512}, 388, 331_000_000, ""),
    ({"num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 99}, 1, 6336, ""),
]


@pytest.mark.parametrize(("config", "tensors", "elements", "message"), SIZES, ids=[str(row[0])[:60] for row in SIZES])
def test_sizes(config: dict[str, Any], tensors: int, elements: int, message: str) -> None:
    if not message:
        check_sizes(config, "config.json", tensors, elements)
        return
    with pytest.raises(ExportError, match=message):
        check_sizes(config, "config.json", tensors, elements)


def test_packing_is_taken_out() -> None:
    """Also that of a part; nobody but the readers of weights sees it."""
    awq, fp8 = {"quant_method": "awq"}, {"quant_method": "fp8", "quantization_config": 5}
    config = {"quantization_config": awq, "text_config": {"a": 1, "quantization_config": fp8}, "b": {"c": {}}}
    assert taken_packing(config, "config.json") == [awq, fp8]
    assert config == {"text_config": {"a": 1}, "b": {"c": {}}} and taken_packing(config, "config.json") == []
    for path in ([], ["text_config"], ["a", "b"]):
        odd: dict[str, Any] = {"quantization_config": 5}
        for key in path:
            odd = {key: odd}
        with pytest.raises(ExportError, match="quantization_config is 5, not a JSON object"):
            taken_packing(odd, "config.json")


# what a constructor may make beside its parameters, none of which has values
TABLES: list[Callable[[], Any]] = [
    lambda: torch.ones(60_000, 60_000, dtype=torch.bool),
    lambda: torch.arange(10**10),
    lambda: torch.arange(10**5)[:, None] < torch.arange(10**5),
    lambda: torch.zeros(10).repeat(10**9),
    lambda: [torch.empty(0) for _ in range(3000)],
]


@pytest.mark.parametrize("make", TABLES, ids=["ones", "arange", "less", "repeat", "many"])
def test_tables_are_bounded(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted before they are made."""
    monkeypatch.setattr(building, "_CALLS_BESIDE", 0)
    with pytest.raises(ExportError, match="its model is far larger"), building.bounded_building(9, 10**6):
        make()


def test_what_a_model_makes_is_not_refused() -> None:
    """Parameters go where they take no room; tables, and arithmetic on them, stay."""
    with parameters_without_values(), building.bounded_building(3, 2_000_000):
        layer = torch.nn.Linear(1000, 2000)
        table = torch.outer(torch.arange(8192.0), 1 / 10000 ** torch.arange(0, 1, 1 / 64)).cos().repeat(1, 2)
        mask = torch.ones(4096, 4096, dtype=torch.bool).tril()
    assert layer.weight.is_meta and table.shape == (8192, 128) and mask.sum() == 4096 * 4097 // 2


def test_places_of_a_text() -> None:
    config = {"hidden_act": "x", "a": {"b": ["x", 1]}, "x": "y"}
    assert keys_of(config, "x") == ["hidden_act", "a.b[0]"] and keys_of(config, 1) == []


# (the bytes of config.json, what is said of them)
NOT_JSON: list[tuple[bytes, str]] = [
    (b"", "config.json: it is not JSON: Expecting value"),
    (b"\xff\xfe\x00", "it is not JSON"),
    (b"[" * 100_000, "it is nested too deeply"),
    (b'{"a": ' + b"1" * 6000 + b"}", "it is not JSON: Exceeds the limit"),
    (b" " * (folder_files.MOST_JSON + 1), "has 16777217 bytes, and at most 16777216 are read"),
]


@pytest.mark.parametrize(("content", "message"), NOT_JSON, ids=[row[1][:40] for row in NOT_JSON])
def test_not_json(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ExportError, match=message):
        json_of(tmp_path, "config.json")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder, a hub's cache with a snapshot, and a secret beside both."""
    (tmp_path / "secret.txt").write_text("SECRET")
    for folder in ("lm/sub", "hub/blobs", "hub/snapshots/abc/sub", "other/blobs", "other/inner/lm"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lm/real.json").write_text("{}")
    (tmp_path / "lm/sub/real.json").write_text("{}")
    (tmp_path / "hub/blobs/0123").write_text("{}")
    (tmp_path / "other/blobs/0123").write_text("{}")
    (tmp_path / "hub/blobs/away").symlink_to(tmp_path / "secret.txt")
    return tmp_path


OUTSIDE = "which is neither beneath the folder nor a blob of the same repository"
# (where the link is, what it says, whether it is followed)
LINKS: list[tuple[str, str, str]] = [
    ("lm/tokenizer.json", "real.json", ""),
    ("lm/tokenizer.json", "sub/real.json", ""),
    ("lm/tokenizer.json", "sub/../real.json", ""),
    ("hub/snapshots/abc/tokenizer.json", "../../blobs/0123", ""),
    ("hub/snapshots/abc/sub/tokenizer.json", "../../../blobs/0123", ""),
    ("lm/tokenizer.json", "../secret.txt", OUTSIDE),
    ("lm/tokenizer.json", "{}/secret.txt", OUTSIDE),
    ("lm/tokenizer.json", "sub/../../secret.txt", OUTSIDE),
    ("lm/tokenizer.json", "../hub/blobs/0123", OUTSIDE),
    ("lm/tokenizer.json", "/dev/zero", OUTSIDE),
    ("other/inner/lm/tokenizer.json", "../../blobs/0123", OUTSIDE),
    ("hub/snapshots/abc/tokenizer.json", "../../blobs/away", OUTSIDE),
    ("hub/snapshots/abc/tokenizer.json", "../../../other/blobs/0123", OUTSIDE),
    ("hub/snapshots/abc/tokenizer.json", "../../../secret.txt", OUTSIDE),
    ("lm/tokenizer.json", "nothing.json", "is not there, or is a link that leads nowhere"),
    ("lm/tokenizer.json", "tokenizer.json", "is not there, or is a link that leads nowhere"),
]


@pytest.mark.parametrize(("link", "target", "message"), LINKS, ids=[f"{row[0]} -> {row[1]}" for row in LINKS])
def test_links(link: str, target: str, message: str, place: Path) -> None:
    path = place / link
    path.symlink_to(target.format(place))
    if not message:
        assert file_in(path.parent, path.name) == path
        assert contents_of(path.parent, [path.name]) == {path.name: b"{}"}
        return
    with pytest.raises((ExportError, FileNotFoundError), match=message) as caught:
        contents_of(path.parent, [path.name])
    assert getattr(caught.value, "code", "file-outside-folder") == "file-outside-folder"


def test_a_folder_that_is_a_link(place: Path) -> None:
    """Who names the folder may name it as they like; a folder in it that leads elsewhere is a link like others."""
    (place / "named").symlink_to(place / "lm")
    assert contents_of(place / "named", ["real.json"]) == {"real.json": b"{}"}
    (place / "lm/away").symlink_to(place)
    with pytest.raises(ExportError, match=OUTSIDE):
        file_in(place / "lm", "away/secret.txt")


# (the files of an index, what is said)
INDEXES: list[tuple[Any, str]] = [
    ({"a": "../secret.txt"}, "names '../secret.txt', which is not a file of its folder"),
    ({"a": "/etc/passwd"}, "names '/etc/passwd', which is not a file of its folder"),
    ({"a": "away.safetensors"}, OUTSIDE),
    ({"a": "real.json", "b": "missing.safetensors", "c": 5}, ""),
    (5, ""),
]


@pytest.mark.parametrize(("files", "message"), INDEXES, ids=[str(row[0]) for row in INDEXES])
def test_files_of_an_index(files: Any, message: str, place: Path) -> None:
    (place / "lm/away.safetensors").symlink_to("../secret.txt")
    (place / "lm/model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    if not message:
        check_index(place / "lm", "model.safetensors.index.json")
        return
    with pytest.raises(ExportError, match=message):
        check_index(place / "lm", "model.safetensors.index.json")


def test_what_is_copied_is_bounded(tmp_path: Path) -> None:
    """All files together; a file of holes takes no room on the disk, but would in memory."""
    for name, size in (("a.json", 5), ("vocab.txt", folder_files.MOST_COPIED - 4)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
    with pytest.raises(ExportError, match=r"vocab\.txt has 268435452 bytes, and at most 268435451 are read") as caught:
        contents_of(tmp_path, ["a.json", "vocab.txt"])
    assert caught.value.code == "file-too-large"


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "vocab.txt")
    with pytest.raises(WeightsError, match=r"vocab\.txt is not a regular file, but a pipe"):
        contents_of(tmp_path, ["vocab.txt"])


# calls by which transformers reads a folder, and may import code of it
CALLS = ("from_pretrained", "from_config", "pipeline", "get_class_from_dynamic_module", "load_custom_generate")
TRUSTED = "purexport.language.trusted"  # the module whose calls run code of a folder
GATE = ("trusted_config", "trusted_class")  # its functions, which are called where `trust_remote_code` is asked first


def unsafe_calls(texts: imports.Sources) -> Iterator[str]:
    """The places of calls that may run code of a folder, where nobody asked for that."""
    for module, text in texts.items():
        if not any(name in text for name in (*CALLS, *GATE)):
            continue
        tree = ast.parse(text)
        asked = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, ast.Name)
            if node.test.id == "trust_remote_code"
            for part in ([node.body] if isinstance(node, ast.IfExp) else node.body)
            for inner in ast.walk(part)
        }
        for node in ast.walk(tree):
            name = getattr(node, "attr", getattr(node, "id", ""))
            if module != TRUSTED and name in GATE and id(node) not in asked:
                yield f"{module}:{node.lineno} {name}"  # type: ignore[attr-defined]
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CALLS:
                given = {keyword.arg: keyword.value for keyword in node.keywords}.get("trust_remote_code")
                own = isinstance(node.func, ast.Name) and "purexport.language.diffusion import pipeline" in text
                if module != TRUSTED and not own and not (isinstance(given, ast.Constant) and given.value is False):
                    yield f"{module}:{node.lineno} {ast.unparse(node.func)}"


def test_no_code_runs_unasked() -> None:
    texts = imports.sources(ROOT, ("proto_schema", "purexport"))
    assert TRUSTED in texts and not list(unsafe_calls(texts))


PLANTED = {
    "x = library().AutoConfig.from_pretrained(folder, local_files_only=True)": 1,
    "x = AutoConfig.from_pretrained(folder, trust_remote_code=True)": 1,
    "x = AutoConfig.from_pretrained(folder, trust_remote_code=None)": 1,
    "x = AutoConfig.from_pretrained(folder, trust_remote_code=flag)": 1,
    "x = pipeline('text-generation', folder)": 1,
    "x = library('dynamic_module_utils').get_class_from_dynamic_module(name, folder)": 1,
    "x = trusted_config(folder)": 1,
    "x = trusted_config(folder) if not trust_remote_code else None": 1,
    "x = None if trust_remote_code else trusted_config(folder)": 1,
    "f = trusted_class": 1,
    "x = AutoConfig.from_pretrained(folder, trust_remote_code=False)": 0,
    "x = trusted_config(folder) if trust_remote_code else None": 0,
}


@pytest.mark.parametrize(("text", "count"), PLANTED.items())
def test_the_search_finds_such_calls(text: str, count: int) -> None:
    assert len(list(unsafe_calls({"purexport.planted": text}))) == count
