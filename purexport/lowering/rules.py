"""All rules and forms: their files, imported by name, register themselves; and which rule a call gets, a user's or
ours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from proto_schema.wire.records import dataclass
from purexport.aten.schema import signature
from purexport.lowering.complex.by_parts import rule_by_parts
from purexport.lowering.core.registry import COMPLEX, TRAINING, Rule, declared, declared_by_parts

# every rule file, by folder
FILES = {
    "complex": "arithmetic by_parts elements functions reductions",
    "elementwise": "activations arithmetic bits bitwise compare numbers",
    "fft": "fourier spectrogram",
    "linalg": "eigen einsum factorizations grouped ldl powers products solve spectral",
    "nn": "adaptive_pool attention contrib conv ctc grid im2col language losses norm onnx_ops packed_sequences pool "
    "random recurrences resize rnn",
    "quantized": "conversions decomposed layers moves operators",
    "reduce": "counting covariance cumulative reductions sorting",
    "special": "functions gamma polynomials",
    "tensor": "as_strided concat create indexing layout padding scatter sequence slices",
    "vision": "boxes deform pool",
}

# every file of the folder `forms`, which rules need beside them
FORMS = "draws functions recurrent sequences windows"


@functools.cache
def registered() -> Mapping[str, Rule]:
    """Every rule by name: those for quantized and complex tensors by the names with their suffix."""
    for folder, files in FILES.items():
        for file in files.split():
            import_module(f"purexport.lowering.{folder}.{file}")
    for file in FORMS.split():
        import_module(f"purexport.lowering.forms.{file}")
    rules = declared()
    by_parts = declared_by_parts().items()
    pairs = {target + COMPLEX: rule_by_parts(rules[target], operands) for target, operands in by_parts}
    return MappingProxyType({**rules, **pairs})


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules of one lowering: `custom` ones of the user by ATen name, which go first, and ours.

    With `trains` those for training runtimes go before our others.
    """

    ours: Mapping[str, Rule]
    custom: Mapping[str, Callable[..., Any]]
    trains: bool = False

    def find(self, target: str) -> Rule | None:
        """The rule of an ATen name, which has a suffix for quantized or complex tensors; None where there is none."""
        custom = self.custom_of(target)
        if custom is not None:
            names = tuple(parameter.name for parameter in signature(target.removesuffix(COMPLEX)).parameters)
            return Rule(lambda op, **arguments: custom(op, *arguments.values()), names)
        return (self.ours.get(target + TRAINING) if self.trains else None) or self.ours.get(target)

    def custom_of(self, target: str) -> Callable[..., Any] | None:
        """The user's rule of an ATen name with or without its overload; None where there is none."""
        target = target.removesuffix(COMPLEX)
        return self.custom.get(target) or self.custom.get(target.partition(".")[0])
