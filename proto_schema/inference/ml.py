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
    given = site.dtype(0)
    return site.out(site.shape(0), _OTHER.get(given, 0))


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
    if table is not None:
        return site.out(site.shape(0), table.data_type or 0)
    for name, dtype in _VALUES.items():
        if site.attribute(name):
            return site.out(site.shape(0), dtype)
    # version 1 maps text to numbers and back
    return site.out(site.shape(0), _OTHER.get(site.dtype(0), 0) if site.version < 2 else 0)


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


@row("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor", "TreeEnsemble")
def regressor(site: Site) -> Type | None:
    """A number for each target of each example."""
    targets = site.attribute("targets" if site.schema.name == "LinearRegressor" else "n_targets", 1)
    return site.out((_examples(site), targets))


@row("OneHotEncoder")
def one_hot(site: Site) -> Type | None:
    """One more axis, as long as there are categories."""
    shape = site.shape(0)
    categories = site.attribute("cats_int64s") or site.attribute("cats_strings") or ()
    return site.out(None if shape is None else (*shape, len(categories)))


@row("ZipMap")
def zip_map(site: Site) -> Type | None:
    """For each example a map from labels to its numbers."""
    key = TensorProto.STRING if site.attribute("classlabels_strings") else TensorProto.INT64
    return SequenceOf(MapOf(key, Tensor(TensorProto.FLOAT, ())))
