"""A model as one page to look at: `page/` filled with the content of the file, without network and build step.

Strategy: the page carries the bytes of the structure and the table of fields, and decodes them itself. So the content
of any file is looked at as bytes first. Of the values of tensors and other long fields the page has only the two ends.
What the page cannot know is computed here: histograms, the data files, what a damaged file seems to be.
Invariants: all of the file's content is one block of base64, so that no name in it can be markup. The page's policy
admits only the script and the style that it was written with. The time is linear in the structure. Weights are read
only for histograms, once for all tensors at one place of a data file, within a budget.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from proto_schema.errors import DecodeError
from proto_schema.external import Folder, set_origin
from proto_schema.external.addresses import refuse_address
from proto_schema.files.commit import replacing
from proto_schema.files.owned import files_of
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.units import counted
from proto_schema.wire.codec import decode
from purexport.inspect.data_ranges import Readings, place_of
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.errors import Errors
from purexport.inspect.filling import DRAWING, Structure, packed, parts, schema
from purexport.inspect.histograms import Histogram, histogram
from purexport.inspect.salvage import Salvage, diagnosis
from purexport.inspect.sizes import DataFile, audit
from purexport.version import VERSION

HISTOGRAMS = ("auto", "all", "none")
"""Every value of tensors up to 16 MB and samples of larger ones, within 256 MB in all; every value; none.

With "auto", tensors that share parts of their bytes in a data file are left out when they come to twice the file.
"""

_EXACT = 16 << 20
_SAMPLE = 1 << 20
_BUDGET = 256 << 20
_TIMES = 2  # the size of a data file
_SCRIPTS = (
    *DRAWING,
    "tree.js",
    "outline.js",
    "sizes.js",
    "tensors.js",
    "strip.js",
    "details.js",
    "search.js",
    "errors.js",
    "main.js",
)


@dataclass
class Page:
    """What was written: its size, how the tensors' histograms were made, what is wrong with the file."""

    file: str
    bytes: int
    tensors: int
    whole: int
    sampled: int
    left_out: int
    unreadable: int
    damage: Salvage = field(default_factory=Salvage)


def html(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    histograms: str = "auto",
    *,
    overwrite: bool = False,
    errors: Errors | None = None,
) -> Page:
    """Writes the page of the model at `path` to `target`. A damaged file has a page too, which places the error.

    `histograms`: one of HISTOGRAMS; ValueError for another. With `errors` nodes have the color of their error. A page
    that this function made may be replaced, any other file with `overwrite`, but not the model or its data. Raises
    OSError if the file cannot be read or the page cannot be written.
    """
    if histograms not in HISTOGRAMS:
        raise ValueError(f"histograms={histograms!r} is not one of {', '.join(HISTOGRAMS)}")
    path, target = os.fspath(path), os.fspath(target)
    refuse_address(path, "a model with a page")
    source = Bytes(path)
    with replacing(target, "page", files_of(path), overwrite) as file:
        page, pieces = _page(source, path, target, histograms, errors)
        file.write(pieces, page.bytes)
    return page


def _page(source: Bytes, path: str, target: str, histograms: str, errors: Errors | None) -> tuple[Page, list[bytes]]:
    kept = Structure(source)
    kept.take(source.whole())
    weights = _Weights(os.path.dirname(path), histograms)
    page = Page(target, 0, len(kept.tensors), 0, 0, 0, 0)
    files: list[DataFile] = []  # nothing is said of them for a damaged file
    try:
        files = audit(decode(ModelProto, source.view), os.path.dirname(path))[0]
    except DecodeError:
        page.damage = diagnosis(source)
    facts = {
        "file": os.path.basename(path),
        **kept.facts(),
        "made_by": f"purexport {VERSION}",
        "damage": _damage_facts(page.damage),
        "histograms": {str(at): weights.histogram_of(source, tensor, page) for at, tensor in kept.tensors.items()},
        "files": [{**vars(file), "sound": file.sound} for file in files],
        "errors": None if errors is None else asdict(errors),
        **schema(source.root),
    }
    facts["note"] = _note(page, histograms)
    pieces = parts("page.html", _SCRIPTS, os.path.basename(path), packed(facts, [kept]))
    page.bytes = sum(map(len, pieces))
    return page, pieces


# What the page is told ------------------------------------------------------------------------------------------------


def _damage_facts(damage: Salvage) -> dict[str, Any] | None:
    if damage.first_bad < 0:
        return None
    return {"at": damage.first_bad, "path": damage.path, "reason": damage.reason, "cause": damage.cause}


def _note(page: Page, histograms: str) -> str:
    if histograms == "none":
        return "made without histograms"
    notes = []
    if page.sampled:
        notes.append(f"histograms of {page.sampled} large tensors are of samples")
    if page.left_out:
        notes.append(f"those of {page.left_out} more are left out: --histograms all reads all")
    if page.unreadable:
        notes.append(f"the values of {counted(page.unreadable, 'tensor')} cannot be read")
    return "; ".join(notes)


class _Weights:
    """Histograms within a budget of bytes read."""

    def __init__(self, folder: str, mode: str) -> None:
        self.folder = Folder(folder or ".")
        self.mode = mode
        self.left = _BUDGET
        self._readings = Readings(_TIMES)
        self._made: dict[tuple[str, int | None, int], Histogram | None] = {}  # by place, type and number of elements

    def histogram_of(self, source: Bytes, element: Element, page: Page) -> list[Any] | None:
        """The row of a tensor for the page, None if it has no histogram; counted in `page`."""
        if self.mode == "none":
            return None
        try:
            tensor = decode(TensorProto, source.view[element.body : element.stop])
            set_origin([tensor], self.folder)
            found = self._histogram(tensor, page)
        except (DecodeError, ValueError, TypeError, OSError):
            page.unreadable += 1
            return None
        if found is None:
            return None
        if found.seen < found.total:
            page.sampled += 1
        else:
            page.whole += 1
        return [_rounded(item) for item in vars(found).values()]

    def _histogram(self, tensor: TensorProto, page: Page) -> Histogram | None:
        row, count = DTYPES.get(tensor.data_type or 0), element_count(tensor.dims)
        place = place_of(tensor)
        key = None if place is None else (place, tensor.data_type, count)
        if key is not None and key in self._made:
            return self._made[key]
        need, limit = row.nbytes(count) if row is not None else 0, None
        if self.mode != "all":
            if need > _EXACT:
                need = limit = _SAMPLE
            if need > self.left or self._readings.too_many(tensor):
                page.left_out += 1
                return None
            self.left -= need
        found = histogram(tensor, limit)
        if key is not None:
            self._made[key] = found
        return found


def _rounded(item: Any) -> Any:
    """None for a spread too large for a float, because JSON has no infinity."""
    if not isinstance(item, float):
        return item
    return float(f"{item:.6g}") if abs(item) < float("inf") else None
