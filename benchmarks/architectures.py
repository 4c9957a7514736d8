"""Every architecture of transformers, and the networks of torchvision: exported, run in ONNX Runtime and compared.

    python benchmarks/architectures.py transformers [--route trace export] [--part 1/8] [--only bert ...]
    python benchmarks/architectures.py torchvision [--route trace] [--peers] [--json FILE] ...

An architecture is a type of config of transformers.  Its model is of the first class in MAPPINGS that makes a tiny one
with random weights, and that runs on inputs which its config says.  The axes of batch and lengths are dynamic, and
those of pictures if the model takes others.  Networks of torchvision have their own sizes, and none is dynamic.

A line for each network and exporter: `right` (dtypes, shapes and numbers are those of torch, at the sizes of the
example, at larger and at smaller ones), `static` (the same, but an axis has the size of the example), `WRONG`, `stops`
(ONNX Runtime refuses the file or does not run it), `refused` (no file) or `slow`, with the first line of what was said;
the processor seconds of the export, and the most memory that it took beside the model.  At the end the causes, by
number.  A number may be off by SHARE of the largest one of its output.  Where a file is farther off than that, torch in
float64 judges: the file is right if it is not farther from that than torch in float32.  Detections whose scores are
equal but for rounding may come in another order.  Each pair runs in a forked process.  Needs Linux, onnxruntime and
the library.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import io
import json
import logging
import multiprocessing
import os
import re
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from purexport.language.interface import part_of  # noqa: E402
from purexport.language.parts import GraphPart, Port  # noqa: E402
from purexport.language.tasks import FEATURES, Task  # noqa: E402
from tests.models import pretrained  # noqa: E402
from tests.models.decoders import LeftOutError, library, line  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

ROUTES = ("trace", "trace+both", "export", "auto", "auto+both")  # "both" is what of an `if` is exported
OPSET = 18  # the oldest that all exporters write
SHARE = 1e-4
MEMORY = 10 << 30  # a process


@dataclass(frozen=True)
class Network:
    """`made` gives the model with its inputs, or raises LeftOutError."""

    name: str
    made: Callable[[], GraphPart]


# transformers ---------------------------------------------------------------------------------------------------------

# the first that has a class of an architecture is asked first
MAPPINGS = (
    *("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "OBJECT_DETECTION", "CTC"),
    *("SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION"),
    *("DEPTH_ESTIMATION", "VIDEO_CLASSIFICATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "IMAGE_TEXT_TO_TEXT"),
    *("SEQUENCE_CLASSIFICATION", "TEXT_TO_WAVEFORM", "TEXT_TO_SPECTROGRAM", "KEYPOINT_DETECTION"),
)
# sizes after those of the example, by the names of axes; each is taken if the model runs with it
LARGER = {"batch_size": 3, "text_batch_size": 4, "sequence_length": 17, "encoder_sequence_length": 19}
LARGER |= {"decoder_sequence_length": 8, "num_choices": 4}
SMALLER = {"batch_size": 1, "text_batch_size": 2, "sequence_length": 5, "encoder_sequence_length": 6}
SMALLER |= {"decoder_sequence_length": 3, "num_choices": 2}


def transformers_networks() -> list[Network]:
    auto = library("models.auto.modeling_auto")
    found: dict[str, list[str]] = {}
    for mapping in (*(f"MODEL_FOR_{name}" for name in MAPPINGS), "MODEL"):
        for kind, name in getattr(auto, f"{mapping}_MAPPING_NAMES").items():
            found.setdefault(kind, []).extend([name] if isinstance(name, str) else name)
    return [Network(kind, partial(_of_transformers, found[kind])) for kind in sorted(found)]


def _of_transformers(names: Sequence[str]) -> GraphPart:
    said = ""
    for name in names:
        try:
            model = pretrained.made(name)
            _without_ties(model)
            part = part_of(model, Task(FEATURES, (), ()))
            with torch.no_grad():
                first, second = (pytree.tree_leaves(part.module(*part.args())) for _ in range(2))
        except Exception as error:  # whatever a class wants that its config does not say
            said = said or f"{name}: {line(error)}"
            continue
        if not all(map(torch.equal, first, second)):
            raise LeftOutError(f"{name} draws random numbers, or has some that are not")
        return part
    raise LeftOutError(said)


def _without_ties(model: nn.Module) -> None:
    """Give the padding an embedding: a token of zeros has the same score for all experts, and ties have no order."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = module.weight.mean(0)


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
    return [Network(name, partial(_of_torchvision, name)) for name in CLASSES]


class _Listed(nn.Module):
    """A detector, which takes a list."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Any:
        return self.model([image])


@dataclass(frozen=True)
class _Image(Port):
    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        return torch.rand([int(size) for size in self.shape], generator=generator)


def _of_torchvision(name: str) -> GraphPart:
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
    module = _Listed(model) if name.startswith("detection") else model
    count = 2 if name.startswith("optical_flow") else 1
    ports = [_Image(f"input_{index}", tuple(CLASSES[name]), torch.float32) for index in range(count)]
    return GraphPart(name, module.eval(), ports, [], {})


# Exporters and verdicts -----------------------------------------------------------------------------------------------


def exported(exporter: str, part: GraphPart) -> bytes:
    exporter, _, branches = exporter.partition("+")
    names = {"input_names": part.input_names, "dynamic_axes": part.axes or None, "opset_version": OPSET}
    if not exporter.startswith("dynamo"):
        import purexport

        options = {"branches": branches} if branches else {}
        program = purexport.export(part.module, part.args(), capture=exporter, **names, **options)
        return bytes(program.model_proto.SerializeToString())
    buffer: Any = io.BytesIO()
    torch.onnx.export(part.module, part.args(), buffer, dynamo=exporter == "dynamo=True", **names)
    return bytes(buffer.getvalue())


def outcome(network: Network, exporter: str) -> dict[str, Any]:
    """The verdict, the first line of what was said, the processor seconds of the export, and its memory in MB."""
    try:
        part = network.made()
    except LeftOutError as error:
        return {"verdict": "left", "said": str(error)[:200]}
    module = copy.deepcopy(part.module)  # torch.export leaves tensors without numbers in what a model keeps
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is counted from here
    before, start = _memory("VmRSS"), time.process_time()
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data = exported(exporter, part)
        except Exception as error:
            verdict, said = "refused", [line(error, 400)]
    took = {"seconds": time.process_time() - start, "mb": _memory("VmHWM") - before, "class": _class_of(part)}
    if said:
        return {"verdict": verdict, "said": said[0], **took}
    try:
        verdict, what = judge(part, module, data)
    except Exception as error:
        verdict, what = "stops", line(error, 400)
    if verdict == "static":
        what += "".join(f"; {item.message}" for item in caught if "dynamic" in str(item.message))
    took["remarks"] = [str(item.message)[:300] for item in caught if item.category is UserWarning]
    return {"verdict": verdict, "said": what, **took}


def _class_of(part: GraphPart) -> str:
    return type(getattr(part.module, "model", part.module)).__name__


def _memory(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def judge(part: GraphPart, module: nn.Module, data: bytes) -> tuple[str, str]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    static = {
        wanted
        for port in session.get_inputs()
        for wanted, size in zip(next(p.shape for p in part.inputs if p.name == port.name), port.shape, strict=True)
        if isinstance(wanted, str) and isinstance(size, int)
    }
    said = ""
    for seed, sizes in enumerate(_sizes(part, module, static)):
        args = part.args(seed, **sizes)
        try:
            wanted = _results(module, args)
        except Exception:
            if not seed:
                raise
            continue  # with other numbers the model does not run: random ones among them mark a picture
        given = dict(zip(part.input_names, args, strict=True))
        found = session.run(None, {item.name: given[item.name].numpy() for item in session.get_inputs()})
        where = ", ".join(f"{name} {size}" for name, size in sizes.items()) or f"seed {seed}"
        if len(found) != len(wanted):
            return "WRONG", f"{len(found)} outputs, torch gives {len(wanted)}"
        if part.file.startswith("detection"):
            found = _in_order_of(wanted, found)
        for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
            named = f"{where}: output {place}"
            if got.shape != want.shape or got.dtype != want.dtype:
                return "WRONG", f"{named}: {got.dtype}{list(got.shape)}, torch {want.dtype}{list(want.shape)}"
            off = _off(got, want)
            if off <= SHARE:
                continue
            try:
                double = [item.double() if item.is_floating_point() else item for item in args]
                true = _results(copy.deepcopy(module).double(), double)[place]
            except RuntimeError:  # the model makes float32 numbers by itself
                return "WRONG", f"{named}: off by {off:.1e} of the largest; it does not run in float64"
            ours, theirs = _off(got, true), _off(want, true)
            said = f"{named}: off by {off:.1e} of the largest; from float64: file {ours:.1e}, torch {theirs:.1e}"
            if not ours <= theirs:
                return "WRONG", said
    return ("static", f"{', '.join(sorted(static))}") if static else ("right", said)


def _sizes(part: GraphPart, module: nn.Module, static: set[str]) -> Iterator[dict[str, int]]:
    """The sizes of the example, larger and smaller ones; an axis that the model runs with alone may change."""
    named = {size for port in part.inputs for size in port.shape if isinstance(size, str)}
    first = {name: size for name, size in part.sizes.items() if name in named}
    yield first
    for seed, others in enumerate((LARGER, SMALLER), 1):
        sizes = dict(first)
        for name in first.keys() - static:
            other = sizes | {name: others.get(name) or _other(first[name], others is LARGER)}
            try:
                _results(module, part.args(seed, **other))
            except Exception:  # a size that the model does not take
                continue
            sizes = other
        yield sizes


def _other(size: int, larger: bool) -> int:
    return 2 * size if larger else size + size // 2


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


def _results(module: nn.Module, args: Sequence[Tensor]) -> list[Any]:
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*args))
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
        found = {"verdict": "no model", "said": line(error)}
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
        found = {"verdict": "crash", "said": f"the process ended with {process.exitcode}"}
    process.kill()
    process.join()
    return {"name": network.name, "exporter": exporter, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("transformers", "torchvision"))
    parser.add_argument("--route", nargs="*", default=["trace"], choices=ROUTES)
    parser.add_argument("--peers", action="store_true", help="the exporters of torch.onnx too")
    parser.add_argument("--only", nargs="+", help="names of networks")
    parser.add_argument("--part", default="1/1", help="of the networks, as in 1/2: spread over the alphabet")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one network and exporter")
    parser.add_argument("--json", type=Path, help="append one record a line to this file")
    parser.add_argument("--resume", action="store_true", help="run only what has no record in that file yet")
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

    exporters = [*options.route, *(("dynamo=False", "dynamo=True") if options.peers else ())]
    for route in options.route:
        purexport.export(nn.ReLU(), torch.ones(2), capture=route.partition("+")[0])
    resumed = options.resume and options.json and options.json.exists()
    records: list[dict[str, Any]] = list(map(json.loads, options.json.open())) if resumed else []
    known = {(record["name"], record["exporter"]) for record in records}
    place, parts = map(int, options.part.split("/"))
    for network in [one for one in networks if not options.only or one.name in options.only][place - 1 :: parts]:
        for exporter in (exporter for exporter in exporters if (network.name, exporter) not in known):
            record = measured(network, exporter, options.limit, options.loud)
            records.append(record)
            print(
                f"{network.name:<32} {exporter:<12} {record['verdict']:<8} {record.get('seconds', 0.0):6.1f} s "
                f"{record.get('mb', 0.0):6.0f} MB  {record.get('class', '')}  {record['said']}",
                flush=True,
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if record["verdict"] in ("left", "no model"):
                break
    for exporter in exporters:
        summary([record for record in records if record["exporter"] == exporter], exporter)


def summary(records: Sequence[Mapping[str, Any]], exporter: str) -> None:
    """Print how many have each verdict, and the causes of those that are not right, the most frequent first."""
    ran = [record for record in records if record["verdict"] not in ("left", "no model")]
    verdicts = Counter(record["verdict"] for record in ran)
    most = max((record.get("seconds", 0.0) for record in ran), default=0.0)
    print(f"{exporter}: {verdicts['right']} of {len(ran)} right; {dict(verdicts)}; at most {most:.1f} s")
    causes = Counter(re.sub(r"\d+", "N", record["said"])[:160] for record in ran if record["verdict"] != "right")
    for cause, count in causes.most_common():
        print(f"{count:4}  {cause}")


if __name__ == "__main__":
    main()
