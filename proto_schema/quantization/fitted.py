"""The weights of an algorithm by samples, with what it needs to know of their inputs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema.budget import BudgetLike
from proto_schema.onnx import ModelProto
from proto_schema.quantization.balanced import Balance
from proto_schema.quantization.candidates import Weight
from proto_schema.quantization.codes.streams import Quantized, WeightFit
from proto_schema.wire.records import dataclass


@dataclass(frozen=True)
class Fitted:
    """The fits of weights by their names, and for AWQ the factors of inputs by theirs."""

    fits: Mapping[str, WeightFit]
    balances: Mapping[str, Balance]

    @classmethod
    def of(
        cls,
        model: ModelProto,
        by_input: Mapping[str, Sequence[tuple[Weight, Quantized]]],
        algorithm: str,
        samples: Any,
        budget: BudgetLike,
    ) -> Fitted:
        """`by_input` are the weights by the name of what they are multiplied with. Raises ValueError as `Inputs`."""
        from proto_schema.quantization.inputs import Inputs  # runs models, which most quantizations do not

        lengths = {name: rows[0][1].layout.summed for name, rows in by_input.items()}
        inputs = Inputs(model, samples, lengths, moments=algorithm == "gptq", budget=budget)
        fits: dict[str, WeightFit] = {}
        balances: dict[str, Balance] = {}
        for name, rows in by_input.items():
            fit = WeightFit(spread=functools.partial(inputs.spread, name))
            if algorithm == "awq":
                balances[name] = Balance(inputs, name, [made for _, made in rows])
                fit = WeightFit(factors=balances[name].factors)
            fits.update((weight.name, fit) for weight, _ in rows)
        return cls(fits, balances)
