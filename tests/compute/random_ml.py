"""More random nodes: attention, strings, what makes tensors of nothing but sizes, and ai.onnx.ml.

`random_nodes` says what is left out, and why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compute.random_nodes import ML, SUMS, Draw, given, kind
from tests.compute.runtime import Node

TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@kind
def attention(draw: Draw) -> Node:
    batch, heads, length, size, made = 2, 4, draw.randint(1, 4), 8, draw.choice([8, 6])
    shared, keys, past = draw.choice([4, 2, 1]), draw.randint(1, 6), draw.choice([0, 0, 3])
    tensors = [
        draw.f32(batch, heads, length, size),
        draw.f32(batch, shared, keys, size),
        draw.f32(batch, shared, keys, made),
    ]
    attributes: dict[str, Any] = {}
    if draw.random() < 0.4:
        tensors = [
            np.ascontiguousarray(item.transpose(0, 2, 1, 3)).reshape(batch, item.shape[2], -1) for item in tensors
        ]
        attributes |= {"q_num_heads": heads, "kv_num_heads": shared}
    total, mask = keys + past, None
    if draw.random() < 0.6:
        shapes = [(length, total), (1, 1, length, total), (batch, heads, length, total), (batch, 1, length, total)]
        mask = draw.f32(*draw.choice(shapes))
        if draw.random() < 0.4:
            mask = mask > -0.5
            mask[..., 0] = True
    if not past and draw.random() < 0.4:
        attributes["is_causal"] = 1
    for name, number in (("scale", 0.3), ("softcap", 2.0)):
        if draw.random() < 0.3:
            attributes[name] = number
    held = [draw.f32(batch, shared, past, size), draw.f32(batch, shared, past, made)] if past else []
    outputs = draw.choice([3, 4]) if past else 1
    if outputs == 4:
        attributes["qk_matmul_output_mode"] = draw.choice([0, 1, 3])
    return Node("Attention", given(*tensors, mask, *held), attributes, 23, outputs, bounds=SUMS)


@kind
def rotary(draw: Draw) -> Node:
    batch, heads, length, size = 2, 3, 4, 8
    turned = draw.choice([0, 4])
    attributes: dict[str, Any] = {"interleaved": draw.randint(0, 1), "num_heads": heads}
    if turned:
        attributes["rotary_embedding_dim"] = turned
    data, half = draw.f32(batch, length, heads * size), (turned or size) // 2
    if draw.random() < 0.5 and not turned:
        data = draw.f32(batch, heads, length, size)
        del attributes["num_heads"]
    if draw.random() < 0.5:
        return Node(
            "RotaryEmbedding",
            [data, draw.f32(10, half), draw.f32(10, half), draw.ints(0, 10, batch, length)],
            attributes,
            23,
        )
    return Node("RotaryEmbedding", [data, draw.f32(batch, length, half), draw.f32(batch, length, half)], attributes, 23)


@kind
def made(draw: Draw) -> Node:
    name = draw.choice(["depth", "space", "unpool", "crop", "mel", "window", "columns", "grid", "pool", "grams"])
    if name == "depth":
        opset = draw.choice([7, 11, 13])
        attributes: dict[str, Any] = {"blocksize": 2} | ({"mode": draw.choice(["DCR", "CRD"])} if opset > 7 else {})
        return Node("DepthToSpace", [draw.f32(2, 8, 2, 3)], attributes, opset)
    if name == "space":
        return Node("SpaceToDepth", [draw.f32(2, 3, 4, 6)], {"blocksize": 2}, draw.choice([7, 13]))
    if name == "unpool":
        places = np.array([[[[0, 3], [9, 14]]]])
        return Node(
            "MaxUnpool",
            [draw.f32(1, 1, 2, 2), places],
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            draw.choice([9, 11]),
        )
    if name == "crop":
        return Node(
            "CenterCropPad",
            [draw.f32(5, 6, 7), np.array(draw.list(2, 9, 2))],
            {"axes": draw.choice([[0, 1], [-1, 0]])},
            18,
        )
    if name == "mel":
        sizes = [np.array(item) for item in (draw.randint(2, 10), draw.choice([32, 64]), 8000)]
        edges = [np.float32(draw.choice([0, 50, 300])), np.float32(draw.choice([2000, 4000]))]
        return Node("MelWeightMatrix", [*sizes, *edges], {}, 17)
    if name == "window":
        window = draw.choice(["HannWindow", "HammingWindow", "BlackmanWindow"])
        return Node(window, [np.array(draw.randint(2, 12))], {"periodic": draw.randint(0, 1)}, 17)
    if name == "columns":
        choices = [({}, 12), ({"pads": [1, 0, 0, 1]}, 20), ({"strides": [2, 1]}, 8), ({"dilations": [2, 1]}, 8)]
        attributes, places = draw.choice(choices)
        return Node("Col2Im", [draw.f32(2, 8, places), np.array([4, 5]), np.array([2, 2])], attributes, 18)
    if name == "grid":
        axes = draw.choice([2, 3])
        size = np.array([2, 3, *draw.list(2, 5, axes)])
        return Node("AffineGrid", [draw.f32(2, axes, axes + 1), size], {"align_corners": draw.randint(0, 1)}, 20)
    if name == "pool":
        pool = draw.choice(["GlobalLpPool", "GlobalMaxPool", "GlobalAveragePool"])
        return Node(pool, [draw.f32(2, 3, 4, 5)], {}, draw.choice([7, 22]))
    attributes = {
        "mode": draw.choice(["TF", "IDF", "TFIDF"]),
        "min_gram_length": draw.randint(1, 2),
        "max_gram_length": 2,
        "max_skip_count": draw.randint(0, 3),
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4, 5],
        "pool_int64s": [1, 2, 3, 1, 2, 2, 3, 4, 1],
        "weights": [0.5, 1.0, 2.0, 3.0, 1.0, 1.0],
    }
    return Node("TfIdfVectorizer", [draw.ints(1, 5, *draw.choice([(8,), (2, 8)]))], attributes, 9)


@kind
def string(draw: Draw) -> Node:
    def words(*shape: int) -> Any:
        return draw.arrays.choice(["a", "b c", "c,d,,e", " x y ", "Hello World"], shape).astype(object)

    name = draw.choice(["concat", "split", "normalize", "match"])
    if name == "concat":
        return Node("StringConcat", [words(2, 3), words(3)], {}, 20)
    if name == "split":
        attributes: dict[str, Any] = draw.choice([{}, {"delimiter": ","}, {"delimiter": " "}, {"delimiter": ""}])
        return Node(
            "StringSplit", [words(2, 3)], attributes | draw.choice([{}, {"maxsplit": 1}, {"maxsplit": 2}]), 20, 2
        )
    if name == "match":
        return Node(
            "RegexFullMatch", [words(5)], {"pattern": draw.choice(["a|b.*", "[a-z ]+", r"\w*", "(?i)hello.*"])}, 20
        )
    attributes = {
        "case_change_action": draw.choice(["LOWER", "UPPER", "NONE"]),
        "is_case_sensitive": draw.randint(0, 1),
        "stopwords": ["A", "b c"],
        "locale": "C",
    }
    return Node("StringNormalizer", [words(*draw.choice([(4,), (1, 4)]))], attributes, 10)


def _labels(draw: Draw, count: int, ints: str = "classlabels_int64s") -> dict[str, Any]:
    return draw.choice([{ints: list(range(10, 10 + count))}, {"classlabels_strings": list("abcdef"[:count])}])


@kind
def linear(draw: Draw) -> Node:
    features, attributes = draw.randint(1, 4), {"post_transform": draw.choice(TRANSFORMS)}
    if draw.random() < 0.4:
        targets = draw.randint(1, 3)
        attributes |= {
            "coefficients": draw.f32(targets * features).tolist(),
            "intercepts": draw.f32(targets).tolist(),
            "targets": targets,
        }
        return Node("LinearRegressor", [draw.f32(5, features)], attributes, 1, domain=ML, bounds=SUMS)
    count = draw.choice([2, 3, 4])
    targets = draw.choice([1, 2]) if count == 2 else count
    attributes |= _labels(draw, count, "classlabels_ints")
    attributes |= {"coefficients": draw.f32(targets * features).tolist(), "intercepts": draw.f32(targets).tolist()}
    return Node("LinearClassifier", [draw.f32(5, features)], attributes, 1, 2, domain=ML, bounds=SUMS)


@kind
def support_vectors(draw: Draw) -> Node:
    features, kernel = draw.randint(1, 4), draw.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])
    data, attributes = draw.f32(5, features), {"rho": [0.3]}
    if draw.random() < 0.3:
        attributes |= {
            "coefficients": draw.f32(3).tolist(),
            "n_supports": 3,
            "support_vectors": draw.f32(3 * features).tolist(),
        }
        attributes |= {"kernel_type": kernel, "kernel_params": [0.3, 0.2, 2.0], "one_class": draw.randint(0, 1)}
        return Node("SVMRegressor", [data], attributes, 1, domain=ML, bounds=SUMS)
    count = draw.choice([2, 2, 3, 4])
    attributes |= {"post_transform": draw.choice(TRANSFORMS), **_labels(draw, count, "classlabels_ints")}
    if count == 2 and draw.random() < 0.3:
        attributes |= {
            "coefficients": draw.f32(2 * features).tolist(),
            "kernel_type": kernel,
            "kernel_params": [0.3, 0.2, 2.0],
        }
        return Node("SVMClassifier", [data], attributes, 1, 2, domain=ML, bounds=SUMS)
    vectors, pairs = draw.list(1, 3, count), count * (count - 1) // 2
    coefficients = draw.f32(sum(vectors) * (count - 1))
    attributes |= {
        "coefficients": (np.abs(coefficients) if draw.random() < 0.3 else coefficients).tolist(),
        "rho": draw.f32(pairs).tolist(),
        "vectors_per_class": vectors,
        "support_vectors": draw.f32(sum(vectors) * features).tolist(),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.2, 2.0],
    }
    if draw.random() < 0.5:
        attributes |= {"prob_a": (-np.abs(draw.f32(pairs)) - 0.5).tolist(), "prob_b": (draw.f32(pairs) / 10).tolist()}
    return Node("SVMClassifier", [data], attributes, 1, 2, domain=ML, bounds=SUMS)


@kind
def trees(draw: Draw) -> Node:
    features = draw.randint(1, 4)
    data = np.round(draw.f32(6, features), 1)
    if draw.random() < 0.3:
        data[0, 0] = np.nan
    nodes, leaves = _forest(draw, features)
    nodes["post_transform"] = draw.choice(TRANSFORMS)
    positive, opset = draw.random() < 0.5, draw.choice([1, 3])

    def weight() -> float:
        number = round(draw.gauss(0, 1), 2)
        return abs(number) if positive else number

    if draw.random() < 0.5:
        count = draw.randint(1, 3)
        votes = [(*leaf, draw.randrange(count), weight()) for leaf in leaves]
        nodes |= {"n_targets": count, "aggregate_function": draw.choice(["SUM", "AVERAGE", "MIN", "MAX"])}
        if count == 1 and draw.random() < 0.5:
            nodes["base_values"] = [weight()]
        prefix = "target"
    else:
        count = draw.choice([2, 3, 4])
        votes = [(*leaf, draw.randrange(count) if count > 2 else 0, weight()) for leaf in leaves]
        nodes |= _labels(draw, count)
        if draw.random() < 0.4:
            nodes["base_values"] = [weight() for _ in range(count if count > 2 else 1)]
        prefix = "class"
    for place, name in enumerate(("treeids", "nodeids", "ids", "weights")):
        nodes[f"{prefix}_{name}"] = [vote[place] for vote in votes]
    if prefix == "target":
        return Node("TreeEnsembleRegressor", [data], nodes, opset, domain=ML, bounds=SUMS)
    return Node("TreeEnsembleClassifier", [data], nodes, opset, 2, domain=ML, bounds=SUMS)


def _forest(draw: Draw, features: int) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Full trees, and their leaves."""
    columns = (
        "treeids",
        "nodeids",
        "featureids",
        "modes",
        "values",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    nodes: dict[str, Any] = {f"nodes_{name}": [] for name in columns}
    leaves, same = [], draw.choice(["BRANCH_LEQ", None])
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ"]
    for tree in range(draw.randint(1, 4)):
        inner = 2 ** draw.randint(1, 3) - 1
        for node in range(2 * inner + 1):
            if node < inner:
                values = (
                    draw.randrange(features),
                    same or draw.choice(modes),
                    round(draw.uniform(-1, 1), 1),
                    2 * node + 1,
                    2 * node + 2,
                    draw.randint(0, 1),
                )
            else:
                values = (0, "LEAF", 0.0, 0, 0, 0)
                leaves.append((tree, node))
            for name, value in zip(columns, (tree, node, *values), strict=True):
                nodes[f"nodes_{name}"].append(value)
    return nodes, leaves


@kind
def label(draw: Draw) -> Node:
    def words(*shape: int) -> Any:
        return draw.arrays.choice(["a", "b", "c", "zz"], shape).astype(object)

    name = draw.choice(["encoder", "old", "category", "hot", "zip", "extract", "join"])
    if name == "encoder":
        source, target = draw.choice(["floats", "int64s", "strings"]), draw.choice(["floats", "int64s", "strings"])
        keys: dict[str, Any] = {"floats": [1.0, 2.0, 4.0], "int64s": [1, 2, 3], "strings": ["a", "b", "c"]}
        data = {"floats": np.array([[1, 2], [4, 5]], np.float32), "int64s": np.array([1, 7, 3]), "strings": words(2, 3)}
        attributes: dict[str, Any] = {f"keys_{source}": keys[source], f"values_{target}": keys[target]}
        if draw.random() < 0.5:
            missing = {
                "floats": ("default_float", 7.5),
                "int64s": ("default_int64", -9),
                "strings": ("default_string", "none"),
            }
            attributes |= dict([missing[target]])
        return Node("LabelEncoder", [data[source]], attributes, draw.choice([2, 4]), domain=ML)
    if name == "old":
        data_ = draw.choice([words(3), np.array([0, 2, 9])])
        return Node("LabelEncoder", [data_], {"classes_strings": ["a", "b", "c"]}, 1, domain=ML)
    if name == "category":
        data_ = draw.choice([words(2, 2), np.array([1, 3, 9])])
        return Node("CategoryMapper", [data_], {"cats_strings": ["a", "b"], "cats_int64s": [1, 3]}, 1, domain=ML)
    if name == "hot":
        if draw.random() < 0.5:
            return Node("OneHotEncoder", [words(2, 2)], {"cats_strings": ["a", "b"]}, 1, domain=ML)
        return Node(
            "OneHotEncoder",
            [draw.choice([np.array([1, 3, 9]), draw.f32(4) * 3])],
            {"cats_int64s": [1, 3, 0]},
            1,
            domain=ML,
        )
    if name == "zip":
        return Node("ZipMap", [draw.f32(2, 3)], _labels(draw, 3), 1, domain=ML)
    if name == "extract":
        return Node(
            "ArrayFeatureExtractor",
            [draw.f32(*draw.choice([(5,), (2, 5), (2, 3, 5)])), np.array(draw.choice([[1, 3], [4]]))],
            {},
            1,
            domain=ML,
        )
    return Node("FeatureVectorizer", [draw.f32(2, 3), draw.f32(2, 2)], {"inputdimensions": [3, 2]}, 1, domain=ML)


@kind
def scaling(draw: Draw) -> Node:
    name = draw.choice(["Binarizer", "Imputer", "Normalizer", "Scaler"])
    if name == "Binarizer":
        return Node(name, [draw.f32(2, 3)], {"threshold": 0.2}, 1, domain=ML)
    if name == "Imputer":
        if draw.random() < 0.5:
            return Node(
                name,
                [np.array([[1, 0], [0, 3]])],
                {"imputed_value_int64s": [5, 6], "replaced_value_int64": 0},
                1,
                domain=ML,
            )
        data = draw.f32(3, 4)
        data[1, 1] = np.nan
        imputed = draw.choice([[1.0], [1.0, 2.0, 3.0, 4.0]])
        return Node(name, [data], {"imputed_value_floats": imputed, "replaced_value_float": float("nan")}, 1, domain=ML)
    if name == "Normalizer":
        return Node(
            name, [draw.f32(*draw.choice([(3, 4), (5,)]))], {"norm": draw.choice(["MAX", "L1", "L2"])}, 1, domain=ML
        )
    data = draw.choice([draw.f32(3, 4), draw.ints(0, 9, 3, 4)])
    return Node(name, [data], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 2.0, 3.0, 4.0]}, 1, domain=ML)
