"""Networks of transformers without a cache, and of torchvision: each is exported, run in ONNX Runtime and compared.

    python benchmarks/architectures.py transformers [--route trace export] [--peers] [--only bert ...] [--json FILE]
    python benchmarks/architectures.py torchvision [--route trace] ...

A line for each network and exporter: `right` (dtypes, shapes and numbers are those of torch, for the example and for
other numbers of the same sizes), `WRONG`, `stops` (ONNX Runtime refuses the file or does not run it), `refused` (no
file) or `slow`, with the first line of what was said.  Networks of transformers have tiny configs, those of torchvision
their own sizes; weights are random.  A number may be off by SHARE of the largest one of its output.  Where a file is
farther off than that, torch in float64 judges: the file is right if it is not farther from that than torch in float32.
ViLT is not among them: it draws its patches at random.
Detections whose scores are equal but for rounding may come in another order.  Each pair runs in a forked process.
Needs Linux, onnxruntime and the library.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import inspect
import io
import json
import logging
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from tests.models.decoders import library, line, tiny_config  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

OPSET = 18  # the oldest that all exporters write
SHARE = 1e-4
MEMORY = 10 << 30  # a process
BATCH, LENGTH = 2, 12
SAMPLES = 4000  # of sound
IMAGE = 64

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Network:
    """`model` makes it, `inputs` makes its arguments of a seed; `args` says that these go by position."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[nn.Module, int], Inputs]
    args: bool = False


# transformers ---------------------------------------------------------------------------------------------------------

# class by name of the architecture, for each kind of input
TEXT = {
    "albert": "AlbertForMaskedLM",
    "bert": "BertForSequenceClassification",
    "big_bird": "BigBirdForMaskedLM",
    "camembert": "CamembertForMaskedLM",
    "canine": "CanineModel",
    "convbert": "ConvBertForMaskedLM",
    "data2vec-text": "Data2VecTextForMaskedLM",
    "deberta": "DebertaForMaskedLM",
    "deberta-v2": "DebertaV2ForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "ernie": "ErnieForMaskedLM",
    "esm": "EsmForMaskedLM",
    "flaubert": "FlaubertModel",
    "fnet": "FNetForMaskedLM",
    "funnel": "FunnelForMaskedLM",
    "ibert": "IBertForMaskedLM",
    "layoutlm": "LayoutLMForMaskedLM",
    "longformer": "LongformerForMaskedLM",
    "luke": "LukeForMaskedLM",
    "megatron-bert": "MegatronBertForMaskedLM",
    "mobilebert": "MobileBertForMaskedLM",
    "modernbert": "ModernBertForMaskedLM",
    "mpnet": "MPNetForMaskedLM",
    "nystromformer": "NystromformerForMaskedLM",
    "rembert": "RemBertForMaskedLM",
    "roberta": "RobertaForQuestionAnswering",
    "roberta-prelayernorm": "RobertaPreLayerNormForMaskedLM",
    "roformer": "RoFormerForMaskedLM",
    "squeezebert": "SqueezeBertForMaskedLM",
    "xlm": "XLMModel",
    "xlm-roberta": "XLMRobertaForTokenClassification",
    "xlnet": "XLNetModel",
    "xmod": "XmodForMaskedLM",
    "yoso": "YosoForMaskedLM",
    # decoders
    "biogpt": "BioGptForCausalLM",
    "bloom": "BloomForCausalLM",
    "codegen": "CodeGenForCausalLM",
    "cohere": "CohereForCausalLM",
    "ctrl": "CTRLLMHeadModel",
    "falcon": "FalconForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "gptj": "GPTJForCausalLM",
    "llama": "LlamaForCausalLM",
    "mamba": "MambaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "mpt": "MptForCausalLM",
    "olmo": "OlmoForCausalLM",
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "opt": "OPTForCausalLM",
    "persimmon": "PersimmonForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "rwkv": "RwkvForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "xglm": "XGLMForCausalLM",
}
BOTH = {
    "bart": "BartForConditionalGeneration",
    "bigbird_pegasus": "BigBirdPegasusForConditionalGeneration",
    "blenderbot": "BlenderbotForConditionalGeneration",
    "blenderbot-small": "BlenderbotSmallForConditionalGeneration",
    "fsmt": "FSMTForConditionalGeneration",
    "led": "LEDForConditionalGeneration",
    "longt5": "LongT5ForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
    "marian": "MarianMTModel",
    "mbart": "MBartForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "mvp": "MvpForConditionalGeneration",
    "nllb-moe": "NllbMoeForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "pegasus_x": "PegasusXForConditionalGeneration",
    "plbart": "PLBartForConditionalGeneration",
    "prophetnet": "ProphetNetForConditionalGeneration",
    "switch_transformers": "SwitchTransformersForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}
PICTURE = {
    "beit": "BeitForImageClassification",
    "convnext": "ConvNextForImageClassification",
    "convnextv2": "ConvNextV2ForImageClassification",
    "cvt": "CvtForImageClassification",
    "deit": "DeiTForImageClassification",
    "detr": "DetrForObjectDetection",
    "dinov2": "Dinov2ForImageClassification",
    "dpt": "DPTForDepthEstimation",
    "efficientnet": "EfficientNetForImageClassification",
    "levit": "LevitForImageClassification",
    "mobilenet_v1": "MobileNetV1ForImageClassification",
    "mobilenet_v2": "MobileNetV2ForImageClassification",
    "mobilevit": "MobileViTForImageClassification",
    "poolformer": "PoolFormerForImageClassification",
    "regnet": "RegNetForImageClassification",
    "resnet": "ResNetForImageClassification",
    "segformer": "SegformerForSemanticSegmentation",
    "swin": "SwinForImageClassification",
    "swinv2": "Swinv2ForImageClassification",
    "vit": "ViTForImageClassification",
    "yolos": "YolosForObjectDetection",
}
SOUND = {
    "data2vec-audio": "Data2VecAudioForCTC",
    "hubert": "HubertForCTC",
    "sew": "SEWForCTC",
    "sew-d": "SEWDForCTC",
    "unispeech": "UniSpeechForCTC",
    "wav2vec2": "Wav2Vec2ForCTC",
    "wavlm": "WavLMForCTC",
}
SEVERAL = {
    "audio-spectrogram-transformer": "ASTForAudioClassification",
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
    "speech_to_text": "Speech2TextForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}
# arguments of configs beside those that all have
CONFIGS: dict[str, dict[str, Any]] = {
    "convbert": {"embedding_size": 32},
    **{key: {"attention_window": 4} for key in ("led", "longformer")},
    **{key: {"block_size": 2, "num_random_blocks": 1} for key in ("big_bird", "bigbird_pegasus")},
    "xlnet": {"d_inner": 48},
    "esm": {"position_embedding_type": "rotary", "mask_token_id": 98},
    "mobilebert": {"intra_bottleneck_size": 16, "embedding_size": 16, "true_hidden_size": 16},
    "funnel": {"block_sizes": [1, 1], "d_head": 8},
    "nystromformer": {"segment_means_seq_len": LENGTH, "num_landmarks": LENGTH},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 32},
    **{key: {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]} for key in ("deberta", "deberta-v2")},
    "modernbert": {"local_attention": 4},
    "nllb-moe": {"encoder_sparse_step": 2, "decoder_sparse_step": 2, "num_experts": 4, "expert_capacity": 8},
    "fsmt": {"src_vocab_size": 99, "tgt_vocab_size": 99, "langs": ["en", "de"]},
    "longt5": {"local_radius": 3},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 16},
    "swin": {"image_size": 224},
    "detr": {"use_timm_backbone": False, "use_pretrained_backbone": False, "num_queries": 5},
    "yolos": {"image_size": [IMAGE, IMAGE], "num_detection_tokens": 5},
}
# these have their own sizes but for the image, because they take lists of one number a stage
STAGED = ("cvt", "dpt", "detr", "levit", "segformer", "swin", "swinv2", "yolos")


def transformers_networks() -> list[Network]:
    kinds = ((TEXT, _text), (BOTH, _both), (PICTURE, _picture), (SOUND, _sound), (SEVERAL, _several))
    return [
        Network(name, lambda name=name, made=made: _model(name, made), inputs)
        for found, inputs in kinds
        for name, made in found.items()
    ]


def _model(name: str, class_name: str) -> nn.Module:
    """A model with a tiny config.  Its layers say different things of different inputs."""
    model_class = getattr(library(), class_name)
    taken = dict(CONFIGS.get(name, {}))
    if name in STAGED:
        if "image_size" in _taken(model_class.config_class.__init__):
            taken.setdefault("image_size", IMAGE)
        if name == "detr":
            taken["backbone_config"] = library().ResNetConfig(
                depths=[1, 1], hidden_sizes=[8, 16], embedding_size=8, out_features=["stage2"]
            )
        config = model_class.config_class(**taken)
    else:
        config = tiny_config(model_class.config_class, leave=("is_decoder", "use_cache"))
        if hasattr(config, "image_size"):
            taken.setdefault("image_size", IMAGE)
        if taken:
            given = {key: value for key, value in config.to_dict().items() if key in _set_by_us(config)}
            config = model_class.config_class(**(given | taken))
    for each in (config, *(getattr(config, key) for key in config.sub_configs or () if hasattr(config, key))):
        if hasattr(each, "use_cache"):
            each.use_cache = False
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.1)
    return model  # type: ignore[no-any-return]


def _set_by_us(config: Any) -> set[str]:
    from tests.models.decoders import OVERRIDES, TINY

    return set(TINY) | set(OVERRIDES.get(config.model_type, {})) | set(config.sub_configs or ())


def _ids(model: nn.Module, generator: torch.Generator, length: int = LENGTH) -> Tensor:
    return torch.randint(3, 90, (BATCH, length), generator=generator)


def _text(model: nn.Module, seed: int) -> Inputs:
    ids = _ids(model, torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    if "attention_mask" not in _taken(model.forward):
        return {"input_ids": ids}
    return {"input_ids": ids, "attention_mask": mask}


def _taken(function: Callable[..., Any]) -> Mapping[str, Any]:
    return inspect.signature(function).parameters


def _both(model: nn.Module, seed: int) -> Inputs:
    target = _ids(model, torch.Generator().manual_seed(seed + 100), 5)
    return {**_text(model, seed), "decoder_input_ids": target}


def _picture(model: nn.Module, seed: int) -> Inputs:
    channels = getattr(model.config, "num_channels", 3)
    size = getattr(model.config, "image_size", None) or IMAGE
    height, width = (size, size) if isinstance(size, int) else size
    generator = torch.Generator().manual_seed(seed)
    return {"pixel_values": torch.randn(BATCH, channels, height, width, generator=generator)}


def _sound(model: nn.Module, seed: int) -> Inputs:
    return {"input_values": torch.randn(BATCH, SAMPLES, generator=torch.Generator().manual_seed(seed))}


def _several(model: nn.Module, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    kind = config.model_type
    if kind == "audio-spectrogram-transformer":
        return {"input_values": torch.randn(BATCH, config.max_length, config.num_mel_bins, generator=generator)}
    if kind == "whisper":
        frames = torch.randn(BATCH, config.num_mel_bins, 2 * config.max_source_positions, generator=generator)
        return {"input_features": frames, "decoder_input_ids": _ids(model, generator, 5)}
    if kind == "speech_to_text":
        frames = torch.randn(BATCH, 40, config.input_feat_per_channel, generator=generator)
        return {"input_features": frames, "decoder_input_ids": _ids(model, generator, 5)}
    size = getattr(config, "image_size", None) or config.vision_config.image_size
    pixels = torch.randn(BATCH, 3, size, size, generator=generator)
    return {**_text(model, seed), "pixel_values": pixels}


# torchvision ----------------------------------------------------------------------------------------------------------

# names of functions of torchvision.models (and its rooms), by the sizes of the example
SMALL, USUAL = (2, 3, 64, 64), (1, 3, 224, 224)
CLASSES: dict[str, Sequence[int]] = {
    **dict.fromkeys(("alexnet", "squeezenet1_0", "squeezenet1_1", "vgg11", "vgg11_bn", "vgg16"), (2, 3, 96, 96)),
    **dict.fromkeys(("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121"), SMALL),
    **dict.fromkeys(("convnext_tiny", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "mnasnet0_5"), SMALL),
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "shufflenet_v2_x0_5"), SMALL),
    **dict.fromkeys(("regnet_x_400mf", "regnet_y_400mf", "swin_t", "swin_v2_t"), SMALL),
    **dict.fromkeys(("maxvit_t", "vit_b_16"), USUAL),
    "inception_v3": (2, 3, 107, 107),
    **{
        f"segmentation.{name}": SMALL
        for name in (
            "deeplabv3_resnet50",
            "deeplabv3_mobilenet_v3_large",
            "fcn_resnet50",
            "lraspp_mobilenet_v3_large",
        )
    },
    **dict.fromkeys((f"video.{name}" for name in ("r3d_18", "mc3_18", "r2plus1d_18")), (1, 3, 8, 56, 56)),
    "video.s3d": (1, 3, 16, 224, 224),
    "video.swin3d_t": (1, 3, 8, 56, 56),
    "video.mvit_v1_b": (1, 3, 16, 224, 224),
    "video.mvit_v2_s": (1, 3, 16, 224, 224),
    "optical_flow.raft_small": (1, 3, 128, 128),
    **{
        f"detection.{name}": (3, 96, 96)
        for name in (
            "fasterrcnn_resnet50_fpn",
            "fasterrcnn_mobilenet_v3_large_fpn",
            "fcos_resnet50_fpn",
            "keypointrcnn_resnet50_fpn",
            "maskrcnn_resnet50_fpn",
            "retinanet_resnet50_fpn",
            "ssd300_vgg16",
            "ssdlite320_mobilenet_v3_large",
        )
    },
}
OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False},
    "segmentation": {"weights_backbone": None},
    "detection": {"weights_backbone": None, "min_size": 96, "max_size": 128},
    "detection.ssd300_vgg16": {"weights_backbone": None},
    "detection.ssdlite320_mobilenet_v3_large": {"weights_backbone": None},
}


def torchvision_networks() -> list[Network]:
    return [
        Network(name, lambda name=name: _of_torchvision(name), lambda model, seed, name=name: _images(name, seed), True)
        for name in CLASSES
    ]


def _of_torchvision(name: str) -> nn.Module:
    room, _, last = name.rpartition(".")
    module: Any = importlib.import_module(f"torchvision.models.{room}".rstrip("."))
    torch.manual_seed(0)
    options = OPTIONS.get(name, OPTIONS.get(room, {}))
    model: nn.Module = getattr(module, last)(weights=None, **options).eval()
    with torch.no_grad():
        for buffer_name, buffer in model.named_buffers():  # fresh statistics let numbers grow from layer to layer
            if buffer_name.endswith("running_var"):
                buffer.fill_(2.0)
        if "ssdlite" in name:  # dies out with these, and then all boxes have one score
            norms = [module.train() for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
            for norm in norms:
                norm.momentum = 1.0
            model([*torch.rand(4, *CLASSES[name])])
            for parameter in model.head.classification_head.parameters():
                parameter.normal_(std=0.02)
    return model.eval()


def _images(name: str, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    count = 2 if name.startswith("optical_flow") else 1
    return {f"input_{index}": torch.rand(CLASSES[name], generator=generator) for index in range(count)}


# Exporters and verdicts -----------------------------------------------------------------------------------------------


def _call(network: Network, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not network.args:
        return (), dict(inputs)
    args: tuple[Any, ...] = tuple(inputs.values())
    return ((list(args),) if network.name.startswith("detection") else args), {}


def exported(exporter: str, network: Network, model: nn.Module, inputs: Inputs) -> bytes:
    args, kwargs = _call(network, inputs)
    if exporter in ("trace", "export"):
        import purexport

        program = purexport.export(model, args, kwargs=kwargs, opset_version=OPSET, capture=exporter)
        return bytes(program.model_proto.SerializeToString())
    buffer: Any = io.BytesIO()
    dynamo = exporter == "dynamo=True"
    torch.onnx.export(model, args, buffer, kwargs=kwargs, opset_version=OPSET, dynamo=dynamo)
    return bytes(buffer.getvalue())


def outcome(network: Network, exporter: str) -> dict[str, Any]:
    """The verdict, the first line of what was said, and the processor seconds of the export."""
    model = network.model()
    inputs = network.inputs(model, 0)
    apart = copy.deepcopy(model)  # torch.export leaves tensors without numbers in what a model keeps for later calls
    start = time.process_time()
    try:
        data = exported(exporter, network, model, inputs)
    except Exception as error:
        return {"verdict": "refused", "said": line(error), "seconds": time.process_time() - start}
    seconds = time.process_time() - start
    try:
        verdict, said = judge(network, apart, data)
    except Exception as error:
        verdict, said = "stops", line(error)
    return {"verdict": verdict, "said": said, "seconds": seconds}


def judge(network: Network, model: nn.Module, data: bytes) -> tuple[str, str]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    said = ""
    for seed in (0, 1):
        inputs = network.inputs(model, seed)
        wanted = _results(network, model, inputs)
        values = list(inputs.values())
        feeds = {name: inputs.get(name, values[min(place, len(values) - 1)]) for place, name in enumerate(names)}
        found = session.run(None, {name: value.numpy() for name, value in feeds.items()})
        if len(found) != len(wanted):
            return "WRONG", f"{len(found)} outputs, torch gives {len(wanted)}"
        if network.name.startswith("detection"):
            found = _in_order_of(wanted, found)
        for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
            if got.shape != want.shape or got.dtype != want.dtype:
                return "WRONG", f"output {place}: {got.dtype}{list(got.shape)}, torch {want.dtype}{list(want.shape)}"
            off = _off(got, want)
            if off <= SHARE:
                continue
            try:
                true = _results(network, copy.deepcopy(model).double(), inputs, torch.float64)[place]
            except RuntimeError:  # the model makes float32 numbers by itself
                return "WRONG", f"output {place}: off by {off:.1e} of the largest; it does not run in float64"
            ours, theirs = _off(got, true), _off(want, true)
            said = f"output {place}: off by {off:.1e} of the largest; from float64: file {ours:.1e}, torch {theirs:.1e}"
            if not ours <= theirs:
                return "WRONG", said
    return "right", said


def _in_order_of(wanted: list[Any], found: list[Any]) -> list[Any]:
    """Detections whose scores are equal but for rounding come in any order: here, in that of torch."""
    if not len(wanted[0]) or any(got.shape != want.shape for got, want in zip(found, wanted, strict=True)):
        return found
    rows = [
        np.concatenate([item.reshape(len(item), -1).astype(np.float64) for item in items if item.ndim < 3], axis=1)
        for items in (found, wanted)
    ]
    distance = np.abs(rows[0][:, None] - rows[1][None]).max(-1)
    order = distance.argmin(0)
    return [item[order] for item in found] if len(set(order)) == len(order) else found


def _results(network: Network, model: nn.Module, inputs: Inputs, dtype: torch.dtype | None = None) -> list[Any]:
    if dtype is not None:
        inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    args, kwargs = _call(network, inputs)
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*args, **kwargs))
    return [leaf.numpy() for leaf in leaves if isinstance(leaf, Tensor)]


def _off(found: Any, true: Any) -> float:
    """How far numbers are off, as a share of the largest; infinitely where one is not finite and the other is."""
    if not true.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        distance = np.where(found == true, 0.0, np.abs(found.astype(np.float64) - true))
    both = np.isnan(found) & np.isnan(true) if true.dtype.kind == "f" else np.zeros(true.shape, bool)
    distance = np.where(both, 0.0, np.where(np.isnan(distance), np.inf, distance))
    finite = np.abs(true[np.isfinite(true)]) if true.dtype.kind == "f" else np.abs(true.astype(np.float64))
    return float(distance.max() / max(float(finite.max(initial=0.0)), 1e-6))


def _child(pipe: Connection, network: Network, exporter: str, loud: bool) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if not loud:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
    try:
        found = outcome(network, exporter)
    except Exception as error:
        found = {"verdict": "no model", "said": line(error), "seconds": 0.0}
    pipe.send(found)


def measured(network: Network, exporter: str, limit: float, loud: bool = False) -> dict[str, Any]:
    mine, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(theirs, network, exporter, loud))
    process.start()
    theirs.close()
    try:
        found = (
            mine.recv()
            if mine.poll(limit)
            else {"verdict": "slow", "said": f"more than {limit:.0f} s", "seconds": limit}
        )
    except EOFError:
        process.join()
        found = {"verdict": "crash", "said": f"the process ended with {process.exitcode}", "seconds": 0.0}
    process.kill()
    process.join()
    return {"name": network.name, "exporter": exporter, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("transformers", "torchvision"))
    parser.add_argument("--route", nargs="*", default=["trace", "export"], choices=("trace", "export"))
    parser.add_argument("--peers", action="store_true", help="the exporters of torch.onnx too")
    parser.add_argument("--only", nargs="+", help="names of networks")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one network and exporter")
    parser.add_argument("--json", type=Path, help="append one record a line to this file")
    parser.add_argument("--loud", action="store_true", help="let the processes write to the terminal")
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torchvision()  # transformers imports it where it is installed
    importlib.import_module("onnxruntime")
    networks = torchvision_networks()
    if options.library == "transformers":
        library().logging.set_verbosity_error()
        networks = transformers_networks()
    import purexport

    purexport.export(nn.ReLU(), torch.ones(2), capture="trace")
    exporters = [*options.route, *(("dynamo=False", "dynamo=True") if options.peers else ())]
    right: dict[str, set[str]] = {}
    counts: dict[str, Counter[str]] = {exporter: Counter() for exporter in exporters}
    chosen = [network for network in networks if not options.only or network.name in options.only]
    for network in chosen:
        for exporter in exporters:
            record = measured(network, exporter, options.limit, options.loud)
            counts[exporter][record["verdict"]] += 1
            if record["verdict"] == "right":
                right.setdefault(network.name, set()).add(exporter)
            print(
                f"{network.name:<42} {exporter:<13} {record['verdict']:<8} {record['seconds']:6.1f} s ",
                record["said"],
                flush=True,
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    for exporter, found in counts.items():
        print(f"{exporter}: {found['right']} of {len(chosen)} right; {dict(found)}")
    ours = sum(bool(found & {"trace", "export"}) for found in right.values())
    print(f"by at least one route: {ours} of {len(chosen)}")


if __name__ == "__main__":
    main()
