"""Smaller models that compute the same: `ps.simplify`.

`engine` walks over the nodes of the graph in order, with the inputs of each node as they have become: it folds what is
computed of constants (`folding`), puts numbers where inference knows the content of a value, applies the rows of
`rewrites` (what changes nothing, and pairs that cancel), merges batch normalizations into convolutions (`merging`) and
drops nodes that compute what another one does. What nothing needs goes at the end. Rounds follow until one changes
nothing. The graph is that of `proto_schema.ir`, so who reads a value is never counted here. `proof` runs the model
before and after on the same inputs.

Invariants. Inputs and outputs keep names, order and types. Operators that draw random numbers stay, and so do the
bodies of If, Loop and Scan, and functions. A tensor is read only if it is small; weights of any size stay where they
are, and those that a normalization scales are read when the model is written. A value that has a name in the result has
the type that it had.
"""

from __future__ import annotations

from proto_schema.rewrite.proof import ProofError
from proto_schema.simplification.engine import FOLDED_BYTES, Simplified, simplified, simplify

__all__ = ["FOLDED_BYTES", "ProofError", "Simplified", "simplified", "simplify"]
