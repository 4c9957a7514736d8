"""Do folders for transformers.js give the tokens and scores of torch, in node?

    npm install @huggingface/transformers        # into a folder, FOLDER
    python benchmarks/transformers_js.py FOLDER [--only NAME ...] [--variants fp32,q4]

Tiny models with random weights, one of each task, are written by `target="transformers.js"`.  node runs each folder
with the package of FOLDER (`transformers_js.mjs`).  For fp32 greedy tokens must be those of `generate` of torch, and
outputs those of the model.  For other types the largest difference of an output is shown, or how many tokens are the
same: tiny random weights lose much to 4 bits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import purexport  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

SCRIPT = Path(__file__).with_suffix(".mjs")
IDS = torch.tensor([[5, 6, 7, 8, 9], [11, 12, 13, 14, 3]])
LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
TOKENS = 12
BOUND = 1e-3  # of the largest element of an output, with weights that are not rounded
TEXT = {"input_ids": IDS, "attention_mask": LEFT.flip(1), "token_type_ids": torch.zeros_like(IDS)}
WORDS = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
PICTURE = {"image_size": 32, "patch_size": 8}


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _clip() -> Any:
    import transformers

    text = {**WORDS, "max_position_embeddings": 64, "eos_token_id": 2, "projection_dim": 16}
    vision = {**WORDS, **PICTURE, "projection_dim": 16}
    return transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)


def cases() -> list[tuple[str, Any, dict[str, torch.Tensor], bool]]:
    """(task, model, inputs, whether it generates)."""
    import transformers

    from tests.language import test_language_model, test_several

    def other(name: str, **sizes: Any) -> Any:
        kind = getattr(transformers, name)
        torch.manual_seed(0)
        config = _clip() if name == "CLIPModel" else kind.config_class(**{**WORDS, **sizes})
        return test_several._random(kind(config))

    torch.manual_seed(0)
    llava, gemma = (
        test_several._random(getattr(transformers, name)(test_several._pictures(name)))
        for name in ("LlavaForConditionalGeneration", "Gemma3ForConditionalGeneration")
    )
    layers = {"layer_types": ["conv", "full_attention"]}
    lfm2 = test_several._random(transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**test_several.WORDS, **layers)))
    seen = torch.tensor([[5, 6, *[98] * 4, 7, 8]])
    picture = {"input_ids": seen, "attention_mask": torch.ones_like(seen), "pixel_values": _random(1, 3, 16, 16)}
    whole = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    text = {"input_ids": IDS, "attention_mask": LEFT}
    pixels = {"pixel_values": _random(2, 3, 32, 32)}
    after = {"input_ids": IDS, "attention_mask": LEFT.flip(1)}
    return [
        ("text-generation", test_language_model.made("LlamaForCausalLM"), text, True),
        ("text-generation", test_language_model.made("BloomForCausalLM"), text, True),
        ("text2text-generation", test_several.made("T5ForConditionalGeneration"), after, True),
        ("summarization", test_several.made("BartForConditionalGeneration"), after, True),
        (
            "automatic-speech-recognition",
            test_several.made("WhisperForConditionalGeneration"),
            {"input_features": _random(1, 20, 60)},  # the package takes one sound at a time
            True,
        ),
        ("image-text-to-text", llava, picture, True),
        ("image-text-to-text", gemma, picture, True),
        ("text-generation", lfm2, whole, True),
        ("feature-extraction", other("BertModel"), TEXT, False),
        ("text-classification", other("BertForSequenceClassification", num_labels=5), TEXT, False),
        (
            "token-classification",
            other("DistilBertForTokenClassification", dim=32, n_heads=4, n_layers=2),
            after,
            False,
        ),
        ("question-answering", other("BertForQuestionAnswering"), TEXT, False),
        ("fill-mask", other("BertForMaskedLM"), TEXT, False),
        ("image-classification", other("ViTForImageClassification", **PICTURE), pixels, False),
        ("ctc", other("Wav2Vec2ForCTC"), {"input_values": _random(2, 4000)}, False),
        (
            "zero-shot-image-classification",
            other("CLIPModel"),
            after | pixels,
            False,
        ),
    ]


def _case(folder: Path, model: Any, dtype: str, inputs: dict[str, torch.Tensor], generates: bool) -> dict[str, Any]:
    given = {
        name: {
            "type": "float32" if item.is_floating_point() else "int64",
            "dims": list(item.shape),
            "data": item.flatten().tolist(),
        }
        for name, item in inputs.items()
    }
    options = {"max_new_tokens": TOKENS, "do_sample": False} if generates else None
    return {"folder": str(folder), "class": type(model).__name__, "dtype": dtype, "inputs": given, "options": options}


def _wanted(model: Any, inputs: dict[str, torch.Tensor], generates: bool) -> Any:
    with torch.no_grad():
        if not generates:
            return model(**inputs)
        return model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False).tolist()


def _line(found: dict[str, Any], wanted: Any, dtype: str) -> tuple[bool, str]:
    """Whether a result is right, and what it is in words."""
    if "error" in found:
        return False, found["error"].partition("\n")[0][:160]
    if "tokens" in found:
        # the package returns the tokens that Whisper begins with, too
        tokens = [row[-len(want) :] for row, want in zip(found["tokens"], wanted, strict=True)]
        tokens, wanted = ([row[-TOKENS:] for row in rows] for rows in (tokens, wanted))
        pairs = [
            mine == theirs
            for row, want in zip(tokens, wanted, strict=True)
            for mine, theirs in zip(row, want, strict=True)
        ]
        return all(pairs) or dtype != "fp32", f"{sum(pairs)} of {len(pairs)} tokens are torch's"
    worst = 0.0
    for name, item in found["outputs"].items():
        theirs = wanted[name].float()
        mine = torch.tensor(item["data"]).reshape(item["dims"])
        worst = max(worst, float((mine - theirs).abs().max() / theirs.abs().max()))
    return worst < BOUND or dtype != "fp32", f"{', '.join(found['outputs'])}: largest difference {worst:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where npm installed @huggingface/transformers")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--variants", default="fp32,fp16,q8,q4,q4f16")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torchvision()
    types = args.variants.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for task, model, inputs, generates in cases():
            name = type(model).__name__
            if args.only and name not in args.only:
                continue
            folder = Path(place, name)
            write: Any = purexport.language_model if generates else purexport.pretrained_model
            write(model, folder, target="transformers.js", variants=types)
            told = {"token_type_ids": (inputs["input_ids"] == 98).long()} if name.startswith("Gemma3") else {}
            wanted = _wanted(model, inputs | told, generates)
            rows += [(task, name, dtype, wanted, _case(folder, model, dtype, inputs, generates)) for dtype in types]
        path = Path(place, "cases.json")
        path.write_text(json.dumps([row[-1] for row in rows]))
        command = ["node", str(SCRIPT), str(path), str(Path(args.folder).resolve())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "RESULTS" not in done.stdout:
        print(done.stdout, done.stderr, file=sys.stderr)
        return 2
    results = json.loads(done.stdout.partition("RESULTS")[2])
    wrong = 0
    for (task, name, dtype, wanted, _), found in zip(rows, results, strict=True):
        right, text = _line(found, wanted, dtype)
        wrong += not right
        print(f"{'right' if right else 'WRONG'}  {dtype:6} {task:31} {name}: {text}")
    print(f"{len(rows) - wrong} of {len(rows)} right")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
