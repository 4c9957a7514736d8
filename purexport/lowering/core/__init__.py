"""What every rule is written with.

- `emitter` is `op`: it makes the nodes.  `context` holds the three values that an `op` is made of.
- `binding` fits a call of `op` to one version of an ONNX operator; `versions` asks the history of operators.
- `folding` computes on small constants while the graph is built.
- `registry` is where rules are declared; `promotion` is torch's type promotion, done before a rule runs.

The emitter uses `context`, `binding`, `versions` and `folding`; none of them uses it.
"""
