"""What rules of several themes share: functions of `op` and of values.  No rule is declared here.

- Sizes and places: `common` (reshaping, permuting, constants of a shape), `sizes` (an expression of axis names,
  computed in the graph), `positions` (along an axis), `regions` (of an image).
- Kinds of tensors that are no values of ONNX: `pairs` (complex), `qdq` (quantized).
- Arithmetic: `kernels` (dtypes that a version or a runtime does not compute), `matrices` (rows, columns, triangles).
- Control: `loops` (steps, written out or as a Loop).
"""
