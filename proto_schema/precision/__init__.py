"""float16, bfloat16 and mixed precision: `ps.convert_float`.

    half = ps.convert_float("model.onnx", "float16")
    ps.save(half, "half.onnx")

`signatures` says which places of an operator can have the type, `kept` decides which nodes stay in float32 and why
(by `constants`, and by what `observed` finds on samples; `search` looks for the fewest), and `rewriting` puts the casts
in. `engine` does one conversion, which the checker and strict inference pass, and `report` says what it did.
Invariants. A value is cast at most once to a type. Nothing stays in float32 without a reason in the report. Weights are
payloads that are made when the model is written, so the sources must stay as they are until then.
"""

from proto_schema.precision.engine import Converted, convert_float, converted
from proto_schema.precision.options import Options
from proto_schema.precision.report import PrecisionReport, Stay

__all__ = ["Converted", "Options", "PrecisionReport", "Stay", "convert_float", "converted"]
