"""Rows of matrix products and what is near them."""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.inference.given import listed
from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import Shape, Type
from proto_schema.sizes import Dim


@row("MatMul", "MatMulInteger")
def matmul(site: Site) -> Type | None:
    """As numpy.matmul: the last two axes are matrices, the others broadcast, a vector is a row or a column."""
    return site.out(_matmul(site, site.shape(0), site.shape(1)))


@row("QLinearMatMul")
def quantized_matmul(site: Site) -> Type | None:
    """A product of quantized matrices, each with its scale and zero point."""
    return site.out(_matmul(site, site.shape(0), site.shape(3)))


def _matmul(site: Site, one: Shape, other: Shape) -> Shape:
    if one is None or other is None:
        return None
    if not one or not other:
        site.fail(f"shapes {listed(one)} and {listed(other)} have no matrix product")
    inner = other[-2] if len(other) > 1 else other[0]
    if one[-1] != inner:
        if isinstance(one[-1], int) and isinstance(inner, int):
            site.fail(f"shapes {listed(one)} and {listed(other)} have no matrix product: {one[-1]} is not {inner}")
        site.same(one[-1], inner, f"the inner sizes of the product of {listed(one)} and {listed(other)}")
    batch = site.broadcast(one[:-2], other[:-2])
    if batch is None:
        return None
    return (*batch, *one[-2:-1], *(other[-1:] if len(other) > 1 else ()))


@row("Gemm")
def gemm(site: Site) -> Type | None:
    """A product of two matrices, either transposed, and a term that broadcasts to it."""
    sizes = []
    for place, name in enumerate(("transA", "transB")):
        shape = site.shape_of_rank(place, 2) or (site.fresh(), site.fresh())
        sizes.append(shape[::-1] if site.attribute(name, 0) else shape)
    (rows, inner), (depth, columns) = sizes
    if isinstance(inner, int) and isinstance(depth, int) and inner != depth:
        site.fail(f"matrices {listed(sizes[0])} and {listed(sizes[1])} have no product: {inner} is not {depth}")
    site.same(inner, depth, "the inner sizes of the product")
    made = (rows, columns)
    term = site.shape(2) if site.version >= 7 else None
    if term is not None:
        if len(term) > 2:
            site.fail(f"input 'C' has shape {listed(term)}, which does not broadcast to {listed(made)}")
        for size, whole in zip(reversed(term), reversed(made), strict=False):
            if isinstance(size, int) and size != 1:
                site.same(size, whole, f"the sizes of 'C', {listed(term)}, and of the product, {listed(made)},")
    return site.out(made)


@row("Det")
def determinant(site: Site) -> Type | None:
    """A number for each square matrix."""
    shape = site.shape(0)
    if shape is None:
        return site.out(None)
    if len(shape) < 2:
        site.fail(f"the input has rank {len(shape)}, and must have 2 or more")
    site.same(shape[-2], shape[-1], "the last two sizes")
    return site.out(shape[:-2])


# Einsum --------------------------------------------------------------------------------------------------------------

_DOTS = "..."


@row("Einsum")
def einsum(site: Site) -> Type | None:
    """The sizes of the letters in the result.

    Without an arrow, the result has what the dots stand for, and then the letters that occur once, sorted.
    """
    equation = site.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(site.inputs):
        site.fail(f"equation {equation!r} has {len(terms)} terms, and there are {len(site.inputs)} inputs")
    sizes: dict[str, Dim] = {}
    dots: list[Shape] = []
    for place, term in enumerate(terms):
        before, with_dots, after = term.partition(_DOTS)
        shape = site.shape(place)
        if shape is None:
            if with_dots:
                dots.append(None)
            else:
                shape = site.unknown(len(before))
        if shape is None:
            continue
        count = len(before) + len(after)
        if len(shape) < count or (not with_dots and len(shape) > count):
            site.fail(f"term {term!r} of equation {equation!r} does not fit an input of rank {len(shape)}")
        middle = len(shape) - len(after)
        if with_dots:
            dots.append(shape[len(before) : middle])
        _learn(site, sizes, before + after, (*shape[: len(before)], *shape[middle:]))
    letters = left.replace(",", "").replace(".", "")
    if not arrow:
        right = (_DOTS if dots else "") + "".join(sorted({letter for letter in letters if letters.count(letter) == 1}))
    before, with_dots, after = right.partition(_DOTS)
    counts = {len(shape) for shape in dots if shape is not None}
    if len(counts) > 1:  # ONNX Runtime 1.31 crashes on it
        site.fail(f"the dots of equation {equation!r} stand for {min(counts)} axes and for {max(counts)}")
    common = site.broadcast(*dots) if with_dots and dots else ()
    if common is None:
        return site.out(None)
    if any(letter not in letters for letter in before + after):
        site.fail(f"the result of equation {equation!r} has a letter that no term has")
    made = [sizes.get(letter) for letter in before], [sizes.get(letter) for letter in after]
    whole = [*made[0], *common, *made[1]]
    return site.out(tuple([site.fresh() if size is None else size for size in whole]))


def _learn(site: Site, sizes: dict[str, Dim], letters: str, shape: Sequence[Dim]) -> None:
    """Add the sizes of one term's letters.  Between terms they broadcast, as in numpy.einsum."""
    own: dict[str, Dim] = {}
    for letter, size in zip(letters, shape, strict=True):
        own[letter] = site.same(own[letter], size, f"the sizes of {letter!r}") if letter in own else size
    for letter, size in own.items():
        common = site.broadcast((sizes.get(letter, 1),), (size,))
        sizes[letter] = size if common is None else common[0]
