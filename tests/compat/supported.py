"""The operators and modules that torch.onnx has listed as supported over the years, each as a row by its listed name.

One axis of each is dynamic. Random ones give what does not depend on the numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.harness import Row, boolean, f32, i64, layer, values

OPSETS = (9, 11, 13, 17)
ROUTES = ("trace", "script")

# as the pages have them, in the order of the alphabet; "and" and "or" are those of booleans
LISTED = (
    "Addmm AvgPool2d BatchNorm Concat ConstantPadNd Conv Convolution Dropout Embedding FeatureDropout Index "
    "LeakyRelu MaxPool1d MaxPool2d MaxPool3d Negate Permute RNN Sigmoid Slice Squeeze Tanh Transpose View abs "
    "absolute acos adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d add addmm and arange argmax argmin asin atan avg_pool1d avg_pool2d "
    "avg_pool3d baddbmm bitshift cat ceil celu clamp clamp_max clamp_min concat copy cos cumsum det dim_arange div "
    "dropout einsum elu empty empty_like eq erf exp expand expand_as flatten floor floor_divide frobenius_norm full "
    "full_like gather ge gelu glu group_norm gt hardtanh im2col index_copy index_fill index_put index_select "
    "instance_norm interpolate isnan layer_norm le leaky_relu log log1p log2 log_sigmoid log_softmax logdet "
    "logsumexp lt masked_fill masked_scatter masked_select max mean min mm mul multinomial narrow ne neg nll_loss "
    "nonzero norm ones ones_like or permute pixel_shuffle pow prelu prod rand randn randn_like reciprocal "
    "reflection_pad relu repeat replication_pad reshape reshape_as round rrelu rsqrt rsub scalar_tensor scatter "
    "scatter_add select selu sigmoid sign sin size slice softmax softplus sort split sqrt squeeze stack std sub sum "
    "t tan tanh threshold to topk transpose true_divide type_as unbind unfold unique unsqueeze upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d view weight_norm where zeros zeros_like"
)

X = f32(3, 4)
IMAGE = f32(2, 3, 6, 6)
LINE, VOLUME = f32(2, 3, 8), f32(1, 2, 5, 6, 4)
PLACES = values([[2, 0, 2, 1]], torch.int64)


def operator(name: str, model: Any, *inputs: Any, **options: Any) -> Row:
    """A row of one operator; the batch is dynamic where nothing else is said."""
    options = {"dynamic": "batch", **options}
    return Row(name, model, *inputs, opsets=OPSETS, routes=ROUTES, **options)


MODULES = [
    operator("BatchNorm", layer(nn.BatchNorm2d, 3), IMAGE),
    operator("ConstantPadNd", layer(nn.ConstantPad2d, (1, 2, 0, 1), 0.5), IMAGE),
    operator("Conv", layer(nn.Conv2d, 3, 4, 3, stride=2, padding=1), IMAGE),
    operator("Convolution", layer(nn.ConvTranspose2d, 3, 4, 3, stride=2), IMAGE),
    operator("Dropout", layer(nn.Dropout), X),
    operator("Embedding", layer(nn.Embedding, 5, 3, padding_idx=0), i64(3, 2, low=0, high=5)),
    operator("FeatureDropout", layer(nn.Dropout2d), IMAGE),
    operator("LeakyRelu", layer(nn.LeakyReLU, 0.2), X),
    operator("MaxPool1d", layer(nn.MaxPool1d, 2), LINE, dynamic={0: {2: "n"}}),
    operator("MaxPool2d", layer(nn.MaxPool2d, 3, stride=2, padding=1), IMAGE),
    operator("MaxPool3d", layer(nn.MaxPool3d, 2), VOLUME),
    operator("AvgPool2d", layer(nn.AvgPool2d, 2), IMAGE, dynamic={0: {2: "n"}}),
    operator("RNN", layer(nn.RNN, 3, 4, num_layers=2), f32(5, 2, 3)),
    operator("Sigmoid", layer(nn.Sigmoid), X),
    operator("Tanh", layer(nn.Tanh), X),
    operator("Addmm", layer(nn.Linear, 4, 5), X),
    operator("Concat", lambda x: torch.cat([x, x * 2], 1), X),
    operator("Index", lambda x: (x[0], x[:, 1], x[..., -1]), X),
    operator("Negate", lambda x: -x, X),
    operator("Permute", lambda x: x.permute(2, 0, 1), LINE),
    operator("Slice", lambda x: (x[1:, :2], x[:-1], x[:, 1:4:2]), X),
    operator("Squeeze", lambda x: x.squeeze(1), f32(3, 1, 4)),
    operator("Transpose", lambda x: x.transpose(0, 1), X),
    operator("View", lambda x: x.view(x.shape[0], -1), LINE),
]

OPERATORS = [
    operator("abs", torch.abs, X),
    operator("absolute", torch.absolute, X),
    operator("acos", torch.acos, f32(3, 4, low=-1.0, high=1.0)),
    operator("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), LINE, dynamic={0: {2: "n"}}),
    operator("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (1, 1)), IMAGE, dynamic={0: {3: "n"}}),
    operator("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 2, 2)), VOLUME),
    operator("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), LINE, dynamic={0: {2: "n"}}),
    operator("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (1, 1)), IMAGE),
    operator("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (1, 1, 1)), VOLUME),
    operator("add", lambda x, y: torch.add(x, y, alpha=2), X, X),
    operator("addmm", lambda x, a, b: torch.addmm(x, a, b), f32(4), f32(3, 2), f32(2, 4), dynamic={1: {0: "n"}}),
    operator("and", torch.logical_and, boolean(3, 4), boolean(3, 4)),
    operator("arange", lambda x: torch.arange(x.shape[0]), X),
    operator("argmax", lambda x: x.argmax(0), X),
    operator("argmin", lambda x: x.argmin(1), X),
    operator("asin", torch.asin, f32(3, 4, low=-1.0, high=1.0)),
    operator("atan", torch.atan, X),
    operator("avg_pool1d", lambda x: F.avg_pool1d(x, 2, ceil_mode=True), LINE, dynamic={0: {2: "n"}}),
    operator("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    operator("avg_pool3d", lambda x: F.avg_pool3d(x, 2), VOLUME),
    operator("baddbmm", lambda x, a, b: torch.baddbmm(x, a, b, beta=2.0), f32(2, 3, 4), f32(2, 3, 2), f32(2, 2, 4)),
    operator("bitshift", lambda x: (x << 2, x >> 1), i64(3, 4)),
    operator("cat", lambda x, y: torch.cat([x, y]), X, X),
    operator("ceil", torch.ceil, X),
    operator("celu", lambda x: F.celu(x, 0.5), X),
    operator("clamp", lambda x: x.clamp(-0.5, 0.5), X),
    operator("clamp_max", lambda x: torch.clamp_max(x, 0.5), X),
    operator("clamp_min", lambda x: torch.clamp_min(x, 0.5), X),
    operator("concat", lambda x, y: torch.concat([x, y], 1), X, X),
    operator("copy", lambda x, y: x.clone().copy_(y), X, X),
    operator("cos", torch.cos, X),
    operator("cumsum", lambda x: x.cumsum(0), X),
    operator("det", torch.det, f32(2, 3, 3, low=1.0, high=2.0)),
    operator("dim_arange", lambda x: torch._dim_arange(x, 0), X),
    operator("div", lambda x, y: x / y, X, f32(3, 4, low=1.0, high=2.0)),
    operator("dropout", lambda x: F.dropout(x, 0.5, False), X),
    operator("einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), f32(2, 3, 4), f32(2, 4, 5)),
    operator("elu", lambda x: F.elu(x, 0.5), X),
    operator("empty", lambda x: torch.zeros_like(torch.empty([x.shape[0], 2])), X),
    operator("empty_like", lambda x: torch.zeros_like(torch.empty_like(x)), X),
    operator("eq", torch.eq, i64(3, 4, low=0, high=2), i64(3, 4, low=0, high=2)),
    operator("erf", torch.erf, X),
    operator("exp", torch.exp, X),
    operator("expand", lambda x: x.expand(-1, 4), f32(3, 1)),
    operator("expand_as", lambda x, y: x.expand_as(y), f32(3, 1), X),
    operator("flatten", lambda x: torch.flatten(x, 1), LINE),
    operator("floor", torch.floor, X),
    operator("floor_divide", torch.floor_divide, X, f32(3, 4, low=1.0, high=2.0)),
    operator("frobenius_norm", lambda x: torch.norm(x, "fro", dim=[0, 1]), X),
    operator("full", lambda x: torch.full([x.shape[0], 2], 1.5), X),
    operator("full_like", lambda x: torch.full_like(x, 1.5), X),
    operator("gather", lambda x, i: x.gather(0, i), X, PLACES, dynamic={0: {0: "n"}}),
    operator("ge", torch.ge, X, X),
    operator("gelu", F.gelu, X),
    operator("glu", lambda x: F.glu(x, 1), X),
    operator("group_norm", lambda x: F.group_norm(x, 3), f32(2, 6, 4)),
    operator("gt", torch.gt, X, X),
    operator("hardtanh", lambda x: F.hardtanh(x, -0.5, 0.7), X),
    operator("im2col", lambda x: F.unfold(x, 2, stride=2), IMAGE, dynamic={0: {2: "n"}}),
    operator("index_copy", lambda x, s: x.index_copy(1, torch.tensor([2, 0]), s), X, f32(3, 2)),
    operator("index_fill", lambda x: x.index_fill(1, torch.tensor([2, 0]), 0.5), X),
    operator("index_put", lambda x, v: x.index_put((torch.tensor([2, 0]),), v), X, f32(2, 4), dynamic={0: {0: "n"}}),
    operator("index_select", lambda x: x.index_select(0, torch.tensor([2, 0])), X),
    operator("instance_norm", F.instance_norm, IMAGE),
    operator("interpolate", lambda x: F.interpolate(x, scale_factor=2.0), IMAGE, dynamic={0: {2: "n"}}),
    operator("isnan", torch.isnan, values([[1.0, float("nan")]] * 3)),
    operator("layer_norm", lambda x: F.layer_norm(x, [4]), X),
    operator("le", torch.le, X, X),
    operator("leaky_relu", lambda x: F.leaky_relu(x, 0.2), X),
    operator("log", torch.log, f32(3, 4, low=0.5)),
    operator("log1p", torch.log1p, f32(3, 4, low=0.5)),
    operator("log2", torch.log2, f32(3, 4, low=0.5)),
    operator("log_sigmoid", F.logsigmoid, X),
    operator("log_softmax", lambda x: F.log_softmax(x, 0), X),
    operator("logdet", lambda x: torch.logdet(x @ x.mT + torch.eye(3)), f32(2, 3, 3)),
    operator("logsumexp", lambda x: torch.logsumexp(x, 0), X),
    operator("lt", torch.lt, X, X),
    operator("masked_fill", lambda x, m: x.masked_fill(m, 0.5), X, boolean(3, 4)),
    operator("masked_scatter", lambda x, m: x.masked_scatter(m, x * 2), X, boolean(3, 4)),
    operator("masked_select", lambda x: x.masked_select(x > 0), X),
    operator("max", lambda x: (x.max(), x.max(0)[0], torch.max(x, x * 2)), X),
    operator("mean", lambda x: (x.mean(), x.mean(0)), X),
    operator("min", lambda x: (x.min(), x.min(0)[1], torch.min(x, x * 2)), X),
    operator("mm", torch.mm, X, f32(4, 2), dynamic={0: {0: "n"}}),
    operator("mul", lambda x, y: x * y, X, X),
    operator("multinomial", lambda x: torch.multinomial(x, 3) < 4, f32(3, 4, low=0.5, high=1.0)),
    operator("narrow", lambda x: x.narrow(0, 1, 2), X),
    operator("ne", torch.ne, X, X),
    operator("neg", torch.neg, X),
    operator("nll_loss", F.nll_loss, X, i64(3, low=0, high=4)),
    operator("nonzero", torch.nonzero, i64(3, 4, low=0, high=2)),
    operator("norm", lambda x: (torch.norm(x), torch.norm(x, 1, 0)), X),
    operator("ones", lambda x: torch.ones([x.shape[0], 2]), X),
    operator("ones_like", torch.ones_like, X),
    operator("or", torch.logical_or, boolean(3, 4), boolean(3, 4)),
    operator("permute", lambda x: x.permute(1, 0), X),
    operator("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), f32(2, 8, 3, 3), dynamic={0: {2: "n"}}),
    operator("pow", lambda x, y: (x.pow(2), torch.pow(x, y)), f32(3, 4, low=0.5), X),
    operator("prelu", layer(nn.PReLU, 3), IMAGE),
    operator("prod", lambda x: (x.prod(), x.prod(0)), X),
    operator("rand", lambda x: torch.rand([x.shape[0], 2]) >= 0, X),
    operator("randn", lambda x: torch.randn([x.shape[0], 2]) < 1e9, X),
    operator("randn_like", lambda x: torch.randn_like(x) < 1e9, X),
    operator("reciprocal", torch.reciprocal, f32(3, 4, low=1.0, high=2.0)),
    operator("reflection_pad", lambda x: F.pad(x, [1, 2], "reflect"), LINE, dynamic={0: {2: "n"}}),
    operator("relu", torch.relu, X),
    operator("repeat", lambda x: x.repeat(2, 1), X),
    operator("replication_pad", lambda x: F.pad(x, [1, 2], "replicate"), LINE, dynamic={0: {2: "n"}}),
    operator("reshape", lambda x: x.reshape(-1, 2), X),
    operator("reshape_as", lambda x, y: x.reshape_as(y), X, f32(3, 2, 2)),
    operator("round", torch.round, X),
    operator("rrelu", lambda x: F.rrelu(x, 0.1, 0.3, False), X),
    operator("rsqrt", torch.rsqrt, f32(3, 4, low=0.5)),
    operator("rsub", lambda x: (torch.rsub(x, 2.0), 1 - x), X),
    operator("scalar_tensor", lambda x: x + torch.scalar_tensor(2.0), X),
    operator(
        "scatter",
        lambda x, i, s: x.scatter(0, i, s),
        X,
        values([[2, 0, 1, 1]], torch.int64),
        f32(1, 4),
        dynamic={0: {0: "n"}},
    ),
    operator("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), X, values([[2, 2, 1, 2]] * 3, torch.int64), X),
    operator("select", lambda x: x.select(0, -1), X),
    operator("selu", F.selu, X),
    operator("sigmoid", torch.sigmoid, X),
    operator("sign", torch.sign, X),
    operator("sin", torch.sin, X),
    operator("size", lambda x: x.new_ones(x.size(0), x.size(1)) * x.size(0), X),
    operator("slice", lambda x: x[1:3, ::2], X),
    operator("softmax", lambda x: F.softmax(x, 0), X),
    operator("softplus", F.softplus, X),
    operator("sort", lambda x: x.sort(0, descending=True), X),
    operator("split", lambda x: x.split(2, 1)[1], X),
    operator("sqrt", torch.sqrt, f32(3, 4, low=0.5)),
    operator("squeeze", lambda x: x.squeeze(-1), f32(3, 1)),
    operator("stack", lambda x, y: torch.stack([x, y], 1), X, X),
    operator("std", lambda x: (x.std(), x.std(0)), X),
    operator("sub", lambda x, y: torch.sub(x, y, alpha=2), X, X),
    operator("sum", lambda x: (x.sum(), x.sum(0)), X),
    operator("t", lambda x: x.t(), X),
    operator("tan", torch.tan, f32(3, 4, low=-1.0, high=1.0)),
    operator("tanh", torch.tanh, X),
    operator("threshold", lambda x: F.threshold(x, 0.1, 7.0), X),
    operator("to", lambda x: x.to(torch.int64), X),
    operator("topk", lambda x: x.topk(2, 0), X),
    operator("transpose", lambda x: x.transpose(1, 0), X),
    operator("true_divide", torch.true_divide, i64(3, 4), i64(3, 4, low=1, high=5)),
    operator("type_as", lambda x, y: x.type_as(y), X, i64(3, 4)),
    operator("unbind", lambda x: x.unbind(1)[2], X),
    operator("unfold", lambda x: x.unfold(0, 2, 1), X),
    operator("unique", lambda x: torch.unique(x), i64(9, low=0, high=4)),
    operator("unsqueeze", lambda x: x.unsqueeze(0), X),
    operator("upsample_nearest1d", lambda x: F.interpolate(x, scale_factor=2.0), LINE, dynamic={0: {2: "n"}}),
    operator("upsample_nearest2d", lambda x: F.interpolate(x, size=[7, 9]), IMAGE, dynamic={0: {3: "n"}}),
    operator("upsample_nearest3d", lambda x: F.interpolate(x, scale_factor=2.0), VOLUME),
    operator("view", lambda x: x.view(-1), X),
    operator(
        "weight_norm",
        lambda x, v, g: x @ torch._weight_norm(v, g, 0).t(),
        X,
        f32(2, 4),
        f32(2, 1),
        dynamic={0: {0: "n"}},
    ),
    operator("where", lambda x, y: torch.where(x > 0, x, y), X, X),
    operator("zeros", lambda x: torch.zeros([x.shape[0], 2]), X),
    operator("zeros_like", torch.zeros_like, X),
]
