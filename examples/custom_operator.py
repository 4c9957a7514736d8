"""An operator of one's own, exported as a node that the runtime knows: QuickGelu of ONNX Runtime's contrib operators.

python examples/custom_operator.py
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

import purexport
from purexport.symbolic_helper import parse_args

LIBRARY = torch.library.Library("examples", "DEF")
LIBRARY.define("quick_gelu(Tensor x, float alpha=1.702) -> Tensor")
LIBRARY.impl("quick_gelu", lambda x, alpha=1.702: x * torch.sigmoid(alpha * x), "CompositeExplicitAutograd")


class Layer(nn.Module):
    """[n, 8] -> [n, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.examples.quick_gelu(self.linear(x))


@parse_args("v", "f")
def quick_gelu(g: Any, x: Any, alpha: float) -> Any:
    """What becomes of the operator: one node of the domain com.microsoft."""
    return g.op("com.microsoft::QuickGelu", x, alpha_f=alpha)


def main() -> None:
    model, example = Layer().eval(), torch.randn(2, 8)
    try:
        purexport.export(model, (example,))
    except purexport.UnsupportedOperatorError as error:
        print(f"without a symbolic function:\n{error}\n")

    purexport.register_custom_op_symbolic("examples::quick_gelu", quick_gelu, 9)
    program = purexport.export(model, (example,), custom_opsets={"com.microsoft": 1}, dynamic_axes={"x": {0: "n"}})
    print("with one:", ", ".join(f"{node.domain or 'ONNX'} {node.op_type}" for node in program.model_proto.graph.node))

    if find_spec("onnxruntime"):
        more = torch.randn(5, 8)
        with torch.no_grad():
            print(f"largest difference to torch: {(program(more)[0] - model(more)).abs().max():.1e}")


if __name__ == "__main__":
    main()
