"""Tools on the bytes of ONNX files, as functions: for whole and broken files of any size, without reading the weights.

Strategy: `elements` maps bytes to fields, one level at a time. All else is built on these elements, or on a mapped
model. Nothing here imports torch. The verbs of the command line print what these functions return.
"""

from __future__ import annotations

from purexport.inspect.compare import Difference, compare, compare_files
from purexport.inspect.diff_page import DiffPage, diff_page
from purexport.inspect.edit import Edited, edit
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.errors import Apart, Errors
from purexport.inspect.extract import extract_subgraph, subgraph, tensor_to_npy, to_safetensors
from purexport.inspect.forms import Finding, canonicalize, findings
from purexport.inspect.histograms import Histogram, histogram
from purexport.inspect.html import Page, html
from purexport.inspect.locate import Location, Owner, locate, owners
from purexport.inspect.orders import Edits
from purexport.inspect.paths import find
from purexport.inspect.salvage import Salvage, salvage
from purexport.inspect.sizes import Sizes, duplicates, sizes
from purexport.inspect.values import text_of, value_of

__all__ = [
    "Apart",
    "Bytes",
    "DiffPage",
    "Difference",
    "Edited",
    "Edits",
    "Element",
    "Errors",
    "Finding",
    "Histogram",
    "Location",
    "Owner",
    "Page",
    "Salvage",
    "Sizes",
    "canonicalize",
    "compare",
    "compare_files",
    "diff_page",
    "duplicates",
    "edit",
    "extract_subgraph",
    "find",
    "findings",
    "histogram",
    "html",
    "locate",
    "owners",
    "salvage",
    "sizes",
    "subgraph",
    "tensor_to_npy",
    "text_of",
    "to_safetensors",
    "value_of",
]
