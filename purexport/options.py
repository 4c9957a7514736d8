"""The options of an export as one value, checked when it is made, and the two enums of the public surface."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, get_args

from proto_schema import operators
from proto_schema.external.executors import ExecutorLike, check_executor
from proto_schema.files.saving import Archive, Where, Writable
from proto_schema.operators import runtimes
from proto_schema.operators.runtimes import Release
from proto_schema.wire.records import dataclass
from purexport.errors import ExportError

if TYPE_CHECKING:  # loaded for exports that ask for them
    from proto_schema.calibration import CalibrationOptions as Activations
    from proto_schema.quantization import Scheme
    from proto_schema.quantization.model import Target

Capture: TypeAlias = Literal["auto", "trace", "export"]
MutatedState: TypeAlias = Literal["warn", "error", "io"]
Branches: TypeAlias = Literal["example", "both"]
TargetName: TypeAlias = Literal["onnx", "onnx; any", "onnxruntime"] | str  # also "onnx; onnxruntime==VERSION"
QuantizedType: TypeAlias = Literal[
    "int4",
    "uint4",
    "int8",
    "uint8",
    "int2",
    "uint2",
    "float8e4m3fn",
    "float8e5m2",
    "float4e2m1",
    "nvfp4",
    "mxfp4",
    "float16",
    "bfloat16",
]

OLDEST_OPSET, DEFAULT_OPSET = 9, 20
RUNTIME = "onnxruntime"  # the target whose files may have operators of com.microsoft
_OF_ACTIVATIONS = ("calibration", "method", "percentile", "bins", "per_channel")
MUTATION_POLICIES = get_args(MutatedState)

Kind = TypeVar("Kind", bound=enum.Enum)


class Named(Protocol):
    """A member of an enum of torch, which has the names of ours."""

    @property
    def name(self) -> str: ...


class QuantizeOptions(TypedDict, total=False):
    """The fields that `quantize` takes as a mapping; those of `proto_schema.quantization.Scheme`, and more."""

    type: QuantizedType
    block_size: int | None
    symmetric: bool | None
    include: str | Sequence[str]
    exclude: str | Sequence[str]
    embeddings: bool
    clip: bool
    algorithm: Literal["rtn", "k-quant", "hqq", "gptq", "awq"]
    smallest: int
    accuracy_level: int
    threads: int | None
    target: Literal["onnx", "onnxruntime"]
    activations: Literal["uint8", "int8"]
    calibration: object
    method: str
    percentile: float
    bins: int
    per_channel: bool


class SchemeLike(Protocol):
    """A `proto_schema.quantization.Scheme`, which is loaded for exports that ask for one."""

    @property
    def type(self) -> str: ...

    @property
    def block_size(self) -> int | None: ...


Destination: TypeAlias = str | os.PathLike[str] | Writable | None
Quantize: TypeAlias = QuantizedType | QuantizeOptions | Mapping[str, object] | SchemeLike | None


class TrainingMode(enum.Enum):
    """The mode in which the model is captured."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """What becomes of ATen operators."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    RAW = 3
    ONNX_FALLTHROUGH = 4


def ours(kind: type[Kind], value: Any) -> Any:
    """A member of torch's enum of the same name as ours; anything else as it is."""
    theirs = type(value)
    if theirs.__name__ == kind.__name__ and theirs.__module__.startswith("torch."):
        return kind.__members__.get(value.name, value)
    return value


def training_mode(value: TrainingMode | bool | Named | None) -> TrainingMode:
    """`training` as old code gives it: a bool, the enum, or torch's own.  Raises ExportError for anything else."""
    value = ours(TrainingMode, value)
    if isinstance(value, TrainingMode):
        return value
    if value is None or isinstance(value, bool):
        return TrainingMode.TRAINING if value else TrainingMode.EVAL
    raise ExportError(f"training={value!r} is neither a bool nor a TrainingMode", code="wrong-option")


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """The options of `purexport.export`, with the same names and defaults; `export` documents them.

    The constructor checks everything that can be checked without the model.  Raises ValueError for an option out of
    range, ExportError for a `training` that is no mode.
    """

    export_params: bool = True
    verbose: bool | Callable[[str], object] = False
    training: TrainingMode | bool | Named = TrainingMode.EVAL
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX
    opset_version: int | None = None
    do_constant_folding: bool = True
    keep_initializers_as_inputs: bool | None = None
    dynamic_axes: Mapping[str, Any] | None = None
    custom_opsets: Mapping[str, int] | None = None
    export_modules_as_functions: bool | Collection[type] = False
    use_external_data_format: bool | None = None
    dynamic_shapes: Any = None
    dynamic: bool = False
    external_data: Where = None
    shard_size: int | None = None
    archive: Archive = None
    resume: bool = False
    overwrite: bool = False
    checksums: bool = False
    executor: ExecutorLike = None
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None
    verify: bool | list[Any] = False
    rtol: float | None = None
    atol: float | None = None
    report: bool = False
    capture: str = "auto"
    mutated_state: str = "warn"
    branches: str = "example"
    metadata: bool = False
    progress: Any = None
    weights: Any = None
    target: str = "onnx"
    quantize: Any = None

    def __post_init__(self) -> None:
        check_executor(self.executor)
        _check_opset(self.opset_version)
        _check_choices(self.operator_export_type, self.mutated_state, self.branches)
        _check_names(self.input_names, self.output_names)
        training_mode(self.training)
        _check_verification(self.verify, self.rtol, self.atol)
        _check_target(self.target, self.opset_version)
        _check_quantization(self.quantization, self.opset_version, self.export_params)
        if not isinstance(self.dynamic, bool):
            raise ValueError(f"dynamic={self.dynamic!r} is neither True nor False; dynamic_axes names axes")
        if self.dynamic and self.dynamic_shapes is not None:
            raise ValueError(
                "dynamic=True finds the dynamic axes; give it without dynamic_shapes, or with dynamic_axes"
            )

    @property
    def opset(self) -> int:
        """The opset that the file says: the asked one, or the default, or the first that has what `quantize` needs."""
        if self.opset_version is not None:
            return self.opset_version
        asked = self.quantization
        return DEFAULT_OPSET if asked is None else max(DEFAULT_OPSET, asked.needed_opset)

    @property
    def quantization(self) -> Quantization | None:
        """What becomes of the weights on the way to the file.  Raises ValueError for what is no scheme."""
        if self.quantize is None:
            return None
        return quantization_of(self.quantize, "onnxruntime" if self.for_runtime else "onnx")

    @property
    def verifies(self) -> bool:
        """Whether the file is compared with the model."""
        return self.verify is not False

    @property
    def verified_arguments(self) -> Sequence[Any]:
        """The arguments of further calls on which the file is compared with the model."""
        return () if isinstance(self.verify, bool) else self.verify

    @property
    def release(self) -> Release | None:
        """The release of ONNX Runtime whose kernels decide the forms of operators; None where any form will do."""
        return release_of(self.target)

    @property
    def for_runtime(self) -> bool:
        """Whether the file may have operators of ONNX Runtime's domain com.microsoft."""
        return self.target == RUNTIME

    def trains(self, model: Any) -> bool:
        """Whether the file is for training, so that nothing may be computed from its parameters in advance."""
        mode = training_mode(self.training)
        return mode is TrainingMode.TRAINING or (
            mode is TrainingMode.PRESERVE and bool(getattr(model, "training", False))
        )

    @property
    def keeps_training_operators(self) -> bool:
        """Whether the file is for a training runtime, which looks for operators in their training mode."""
        return training_mode(self.training) is TrainingMode.TRAINING

    def folds(self, model: Any) -> bool:
        """Whether values that the model computes from its parameters become constants.

        Such a constant would be wrong for parameters that come from outside the file or that are trained.
        """
        return self.do_constant_folding and self.export_params and not self.trains(model)


class Quantization(NamedTuple):
    """A scheme, and whose operators read the weights; how activations become integers, and samples of arguments."""

    scheme: Scheme
    target: Target
    activations: Activations | None = None
    samples: Any = None

    @property
    def needed_opset(self) -> int:
        """The first opset that has what it takes."""
        if self.activations is not None:
            return 13 if self.activations.per_channel else 10
        from proto_schema.quantization import needed_opset

        return needed_opset(self.scheme, target=self.target)


def quantization_of(asked: Any, target: Target = "onnx") -> Quantization:
    """What `quantize` means: a type's name, a Scheme, or a mapping of its fields, of a "target", and of activations.

    Raises ValueError for anything else.
    """
    from proto_schema.quantization import Scheme
    from proto_schema.quantization.model import TARGETS
    from proto_schema.quantization.scheme import BY_SAMPLES

    if isinstance(asked, Mapping):
        given = dict(asked)
        if "activations" in given:
            return _with_activations(given)
        samples = given.pop("calibration", None) if given.get("algorithm") in BY_SAMPLES else None
        strange = [name for name in _OF_ACTIVATIONS if name in given]
        if strange:
            raise ValueError(f"quantize: {strange[0]!r} is of activations; give 'activations': 'uint8', too")
        if given.get("algorithm") in BY_SAMPLES and samples is None:
            raise ValueError(f"quantize: {given['algorithm']} needs 'calibration', samples that show the inputs")
        target = given.pop("target", target)
        if target not in TARGETS:
            raise ValueError(f"quantize: there is no target {target!r}; it can be {' or '.join(map(repr, TARGETS))}")
        return Quantization(Scheme.of(given), target, samples=samples)
    if not isinstance(asked, (str, Scheme)):
        raise ValueError(f"quantize={asked!r} is neither a type as in 'int4', nor a mapping as in {{'type': 'int4'}}")
    return Quantization(Scheme.of(asked), target)


def _with_activations(given: dict[str, Any]) -> Quantization:
    from proto_schema.calibration import CalibrationOptions as Activations
    from proto_schema.quantization import Scheme

    if given.pop("target", "onnx") != "onnx":
        raise ValueError(
            "quantize: activations have standard operators only, which ONNX Runtime fuses; leave target out"
        )
    samples = given.pop("calibration", None)
    if samples is None:
        raise ValueError("quantize: activations need 'calibration', samples that show their ranges")
    more = {name: given.pop(name) for name in _OF_ACTIVATIONS if name in given and name != "calibration"}
    scheme = Scheme.of({"type": "int8", **{name: item for name, item in given.items() if name != "activations"}})
    return Quantization(scheme, "onnx", Activations.of(scheme, given["activations"], **more), samples)


def release_of(target: Any) -> Release | None:
    """The release that a `target` names: the newest for "onnx" and "onnxruntime", None for "onnx; any".

    Raises ValueError for what is no target.
    """
    words = [word.strip() for word in target.split(";")] if isinstance(target, str) else []
    available = 'available are "onnx", "onnx; onnxruntime==VERSION", "onnx; any" and "onnxruntime"'
    if words in (["onnx"], [RUNTIME]):
        return runtimes.newest()
    if words == ["onnx", "any"]:
        return None
    name, equals, version = words[1].partition("==") if len(words) == 2 and words[0] == "onnx" else ("", "", "")
    if (name.strip(), equals) != ("onnxruntime", "=="):
        raise ValueError(f"target={target!r} is not a target; {available}")
    return runtimes.release(version.strip())


def _check_target(target: str, opset: int | None) -> None:
    """Raise ValueError for what is no target, and for a release that does not load the opset."""
    release = release_of(target)
    if release is None or ";" not in target:
        return
    wanted = DEFAULT_OPSET if opset is None else opset
    if wanted > release.newest_opset:
        raise ValueError(
            f"target={target!r} loads opsets up to {release.newest_opset}; give an opset_version that is not above it"
        )


def _check_opset(version: int | None) -> None:
    newest = operators.newest_opset()
    if version is None:
        return
    if not isinstance(version, int) or isinstance(version, bool) or not OLDEST_OPSET <= version <= newest:
        raise ValueError(f"opset_version={version!r} is not one of {OLDEST_OPSET} to {newest}")


def _check_quantization(asked: Quantization | None, opset: int | None, with_weights: bool) -> None:
    """Raise ValueError for an opset that lacks what a quantization needs, and for weights that are not in the file."""
    if asked is None:
        return
    if not with_weights:
        raise ValueError("quantize needs the weights in the file; leave export_params=False out")
    needed = asked.needed_opset
    if opset is not None and opset < needed:
        integers = asked.activations is None and asked.scheme.kind.family == "integer" and asked.scheme.block_size != 0
        other = ', or quantize={"type": ..., "target": "onnxruntime"}' if integers else ""
        raise ValueError(
            f"opset_version={opset} lacks what quantize to {asked.scheme.type} needs; give {needed} or none{other}"
        )


def _check_choices(kind: OperatorExportTypes, mutated_state: str, branches: str) -> None:
    if not isinstance(kind, OperatorExportTypes):
        raise ValueError(f"operator_export_type={kind!r} is not an OperatorExportTypes")
    if mutated_state not in MUTATION_POLICIES:
        raise ValueError(f"mutated_state={mutated_state!r} is not one of {', '.join(map(repr, MUTATION_POLICIES))}")
    if branches not in get_args(Branches):
        raise ValueError(f"branches={branches!r} is not one of {', '.join(map(repr, get_args(Branches)))}")


def _check_names(input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> None:
    """Raise ValueError for a string instead of a list, and for a name that is given twice."""
    for names in (input_names, output_names):
        if isinstance(names, str):
            raise ValueError(f"input_names and output_names are lists of names, not the string {names!r}")
        if names is not None and len(set(names)) != len(names):
            raise ValueError(f"names must differ from each other: {list(names)}")
    both = [name for name in input_names or () if name in (output_names or ())]
    if both:
        raise ValueError(f"input_names and output_names both give {both[0]!r}; a name stands for one value of a file")


def _check_verification(verify: Any, rtol: float | None, atol: float | None) -> None:
    """Raise ValueError for a `verify` that is neither a bool nor a list, and for a bound below 0."""
    if not isinstance(verify, (bool, list)):
        raise ValueError(
            f"verify={type(verify).__name__} is neither True, False nor a list of arguments, as in verify=[(x, y)]"
        )
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float)) or not bound >= 0):
            raise ValueError(f"{name}={bound!r} is not a number from 0 on")
