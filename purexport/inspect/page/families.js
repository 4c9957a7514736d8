// What operators do, each family with the name of its colour; what is in none is elementwise.

const FAMILIES = {
  weights: "Conv ConvTranspose ConvInteger DeformConv Gemm MatMul MatMulInteger QLinearConv QLinearMatMul Einsum "
    + "LSTM GRU RNN Attention",
  norm: "BatchNormalization LayerNormalization GroupNormalization InstanceNormalization RMSNormalization "
    + "LpNormalization MeanVarianceNormalization LRN Dropout",
  activation: "Relu LeakyRelu PRelu ThresholdedRelu Sigmoid HardSigmoid HardSwish Tanh Elu Celu Selu Gelu Softmax "
    + "LogSoftmax Hardmax Softplus Softsign Mish Swish Erf Clip Shrink",
  reduce: "AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool ArgMax ArgMin TopK CumSum Resize "
    + "Upsample ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    + "ReduceSumSquare MaxRoiPool RoiAlign NonMaxSuppression",
  control: "If Loop Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    + "SequenceMap SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement",
  shape: "Reshape Transpose Concat Split Slice Gather GatherElements GatherND Scatter ScatterElements ScatterND "
    + "Squeeze Unsqueeze Flatten Expand Pad Tile Shape Size Identity Cast CastLike Constant ConstantOfShape Range "
    + "DepthToSpace SpaceToDepth Where QuantizeLinear DequantizeLinear DynamicQuantizeLinear Trilu OneHot NonZero",
};
const FAMILY_OF = new Map(Object.entries(FAMILIES).flatMap(([name, ops]) => ops.split(" ").map((op) => [op, name])));
const familyOf = (op) => FAMILY_OF.get(op) ?? "element";

// How many of some nodes are of each family, the most frequent first: [[family, count], ...].
function familiesOf(nodes) {
  const counts = new Map();
  for (const node of nodes) counts.set(familyOf(node.op), (counts.get(familyOf(node.op)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}
