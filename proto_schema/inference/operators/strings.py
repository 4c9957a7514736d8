"""Rows of operators on strings."""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import Type
from proto_schema.sizes import Dim


@row("StringConcat")
def string_concat(site: Site) -> Type | None:
    """Two operands that broadcast."""
    return site.out(site.broadcast(site.shape(0), site.shape(1)))


@row("RegexFullMatch")
def regex_full_match(site: Site) -> Type | None:
    """Whether each string matches."""
    return site.out(site.shape(0))


@row("StringSplit")
def string_split(site: Site) -> Outputs:
    """The parts of each string, as many as the most that one has; and their number for each."""
    shape = site.shape(0)
    return [site.out(None if shape is None else (*shape, site.fresh())), site.out(shape)]


@row("StringNormalizer")
def string_normalizer(site: Site) -> Type | None:
    """The strings that are no stop words; one empty string where none is left."""
    shape = site.shape(0)
    if shape is None:
        return site.out(None)
    if len(shape) not in (1, 2):
        site.fail(f"the input has rank {len(shape)}, and must have 1 or 2")
    if len(shape) == 2:
        site.same(shape[0], 1, "the first size of a matrix of strings and 1")
    size = shape[-1]
    low = size if isinstance(size, int) else size.low
    left: Dim = size if not site.attribute("stopwords") and low else site.fresh()
    return site.out((1, left) if len(shape) == 2 else (left,))


@row("TfIdfVectorizer")
def tf_idf_vectorizer(site: Site) -> Type | None:
    """A number for each n-gram of the pool."""
    shape = site.shape(0)
    if shape is not None and len(shape) not in (1, 2):
        site.fail(f"the input has rank {len(shape)}, and must have 1 or 2")
    indexes = site.attribute("ngram_indexes")
    width: Dim = max(indexes) + 1 if indexes else site.fresh()
    return site.out(None if shape is None else (*shape[:-1], width))
