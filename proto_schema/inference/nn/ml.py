"""Rows of the domain ai.onnx.ml: models of one row of features an example.

A tensor of rank 1 is one example, where the operators take it.
"""

from __future__ import annotations

from collections.abc import Callable

from proto_schema.inference import rows
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import MapOf, SequenceOf, Tensor, Type
from proto_schema.onnx import TensorProto
from proto_schema.sizes import Dim


def row(*names: str) -> Callable[[rows.Row], rows.Row]:
    """Declare a function as the row of these operators of the domain."""
    return rows.row(*names, domain="ai.onnx.ml")


def _examples(site: Site) -> Dim:
    """The number of examples."""
    shape = site.shape(0)
    if shape is None or not shape:
        return site.fresh()
    return shape[0] if len(shape) > 1 else 1


@row("Binarizer", "Imputer", "Normalizer", "Scaler")
def keep_shape(site: Site) -> Type | None:
    """The shape of the input."""
    return site.out(site.shape(0))


@row("ArrayFeatureExtractor")
def take(site: Site) -> Type | None:
    """As many columns as there are indices."""
    shape, places = site.shape(0), site.shape(1)
    if shape is None:
        return site.out(None)
    if not shape:
        site.fail("input 'X' has rank 0, and ArrayFeatureExtractor takes rank 1 or more")
    count: Dim = site.fresh() if places is None else 1
    for size in places or ():
        count = count * size
    # of a vector comes a row
    return site.out((*(shape[:-1] or (1,)), count))


@row("CastMap")
def cast_map(site: Site) -> Type | None:
    """One row of the map's values, as wide as is asked for."""
    dtype = _CASTS.get(site.text("cast_to", "TO_FLOAT"), 0)
    sparse = site.text("map_form", "DENSE") == "SPARSE"
    return site.out((1, site.attribute("max_map", 1) if sparse else site.fresh()), dtype)


_CASTS = {"TO_FLOAT": TensorProto.FLOAT, "TO_INT64": TensorProto.INT64, "TO_STRING": TensorProto.STRING}


@row("CategoryMapper")
def category(site: Site) -> Type | None:
    """Numbers of text, or text of numbers."""
    numbers, words = site.attribute("cats_int64s") or (), site.attribute("cats_strings") or ()
    if not numbers or len(numbers) != len(words):
        site.fail(f"cats_int64s has {len(numbers)} items and cats_strings {len(words)}: they must be as many, and some")
    return site.out(site.shape(0), _OTHER.get(site.dtype(0), 0))


_OTHER = {TensorProto.STRING: TensorProto.INT64, TensorProto.INT64: TensorProto.STRING}


@row("DictVectorizer")
def vectorized(site: Site) -> Type | None:
    """One row with a column for each word of the vocabulary."""
    words = site.attribute("string_vocabulary") or site.attribute("int64_vocabulary") or ()
    given = site.type(0)
    value = given.value if isinstance(given, MapOf) else None
    return site.out((1, len(words)), value.dtype if isinstance(value, Tensor) else 0)


@row("FeatureVectorizer")
def joined(site: Site) -> Type | None:
    """The columns of all inputs, side by side; `inputdimensions` says how many of each."""
    widths = site.attribute("inputdimensions")
    if widths:
        return site.out((_examples(site), sum(widths)))
    total: Dim = 0
    for place in range(len(site.inputs)):
        shape = site.shape(place)
        total = total + (shape[-1] if shape else site.fresh())
    return site.out((_examples(site), total))


@row("LabelEncoder")
def label(site: Site) -> Type | None:
    """The shape of the input, in the dtype of the labels."""
    table = site.attribute("values_tensor")
    default = site.attribute("default_tensor")
    if default is not None:
        if list(default.dims) != [1]:
            site.fail(f"default_tensor has shape {list(default.dims)}, and must have shape [1]")
        dtype = table.data_type if table is not None else _values_dtype(site)
        if dtype and default.data_type != dtype:
            site.fail("default_tensor has another data type than the values")
    if table is not None:
        return site.out(site.shape(0), table.data_type or 0)
    found = _values_dtype(site)
    if found:
        return site.out(site.shape(0), found)
    # version 1 maps text to numbers and back
    return site.out(site.shape(0), _OTHER.get(site.dtype(0), 0) if site.version < 2 else 0)


def _values_dtype(site: Site) -> int:
    return next((dtype for name, dtype in _VALUES.items() if site.attribute(name)), 0)


_VALUES = {
    "values_strings": TensorProto.STRING,
    "values_int64s": TensorProto.INT64,
    "values_floats": TensorProto.FLOAT,
}


@row("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
def classifier(site: Site) -> Outputs:
    """A label for each example, and scores: one a class, but for two classes or SVMs, where it depends."""
    numbers = site.attribute("classlabels_ints") or site.attribute("classlabels_int64s")
    words = site.attribute("classlabels_strings")
    dtype = TensorProto.STRING if words else TensorProto.INT64
    count = len(words or numbers or ())
    examples = _examples(site)
    known = count > 1 and site.schema.name != "SVMClassifier"
    return [site.out((examples,), dtype), site.out((examples, count if known else site.fresh()))]


@row("TreeEnsemble")
def trees(site: Site) -> Type | None:
    """A number for each target of each example.  The lists have an item for each node, or for each leaf."""
    shapes: dict[str, int] = {}
    for name in (*_OF_NODES, *_OF_LEAVES):
        given = site.attribute(name)
        if given is None:
            continue
        if isinstance(given, TensorProto):
            if len(given.dims) != 1:
                site.fail(f"{name} has rank {len(given.dims)}, and must have rank 1")
            if name in _OF_INPUT and site.dtype(0) and given.data_type != site.dtype(0):
                site.fail(f"{name} has another data type than the input")
        shapes[name] = given.dims[0] if isinstance(given, TensorProto) else len(given)
    for group in (_OF_NODES, _OF_LEAVES):
        found = {name: shapes[name] for name in group if name in shapes}
        if len(set(found.values())) > 1:
            site.fail("there are not as many of each: " + ", ".join(f"{name} {count}" for name, count in found.items()))
    return site.out((_examples(site), site.attribute("n_targets", 1)))


_OF_NODES = (
    "nodes_featureids",
    "nodes_splits",
    "nodes_modes",
    "nodes_truenodeids",
    "nodes_falsenodeids",
    "nodes_trueleafs",
    "nodes_falseleafs",
)
_OF_LEAVES = ("leaf_targetids", "leaf_weights")
_OF_INPUT = ("nodes_splits", "leaf_weights")


@row("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor")
def regressor(site: Site) -> Type | None:
    """A number for each target of each example."""
    targets = site.attribute("targets" if site.schema.name == "LinearRegressor" else "n_targets", 1)
    return site.out((_examples(site), targets))


@row("OneHotEncoder")
def one_hot(site: Site) -> Type | None:
    """One more axis, as long as there are categories."""
    shape = site.shape(0)
    numbers, words = site.attribute("cats_int64s") or (), site.attribute("cats_strings") or ()
    if bool(numbers) == bool(words):
        site.fail("one of cats_int64s and cats_strings must hold the categories")
    categories = numbers or words
    return site.out(None if shape is None else (*shape, len(categories)))


@row("ZipMap")
def zip_map(site: Site) -> Type | None:
    """For each example a map from labels to its numbers."""
    key = TensorProto.STRING if site.attribute("classlabels_strings") else TensorProto.INT64
    return SequenceOf(MapOf(key, Tensor(TensorProto.FLOAT, ())))
