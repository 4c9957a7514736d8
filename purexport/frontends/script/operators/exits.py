"""Raise, warn, print and `with` in a script: which of their effects become part of a file."""

from __future__ import annotations

from typing import Any

import torch

from purexport.errors import ExportError
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import Handlers, ScriptNode
from purexport.frontends.script.values import ComputedText, Raised

handles = Handlers()


@handles("prim::RaiseException")
def _raise(machine: Machine, node: ScriptNode, message: Any, *_: Any) -> None:
    said = message.text if isinstance(message, ComputedText) else str(message)
    raise Raised(node.source, said)


@handles("prim::Print", "aten::warn", "prim::Exit")
def _nothing(machine: Machine, node: ScriptNode, *_: Any) -> None:
    return None


@handles("prim::Enter")
def _context(machine: Machine, node: ScriptNode, _: Any) -> None:
    """`with`: contexts for gradients have no effect on a file; the effect of any other context is unknown."""
    entered = next(iter(node.torch.inputs()))
    kind = str(entered.type()).removeprefix("__torch__.")
    if kind != "torch.autograd.grad_mode.no_grad":
        raise ExportError(
            f"the script enters {kind} at {machine.place(entered.node())}, whose effect a script does not show; "
            "export the module itself by trace",
            code="script-hides-effect",
        )


@handles("prim::PythonOp")
def _python_function(machine: Machine, node: ScriptNode, *_: Any) -> None:
    owner = getattr(node.torch.pyobj(), "__self__", None)
    if not (isinstance(owner, type) and issubclass(owner, torch.autograd.Function)):
        raise ExportError(
            f"the script calls the Python function {node.torch.pyname()} at {node.source}, which torch.jit.ignore "
            "keeps out of the script; export the model without torch.jit.script, or script that function too",
            code="script-hides-effect",
        )
    raise ExportError(
        f"the script applies the autograd Function {node.torch.pyname()} at {node.source}; export the model without "
        "torch.jit.script, or declare the operation by torch.library",
        code="autograd-function",
    )
