"""Tools on the bytes of ONNX files, as functions: whole or broken files, of any size, without reading the weights.

Strategy: `elements` maps bytes to fields, one level at a time; everything else is made of those, or of a mapped model.
None of it imports torch. The verbs of the command line print what these functions return.
"""

from __future__ import annotations

from purexport.inspect.elements import Bytes, Element
from purexport.inspect.locate import Location, Owner, locate, owners
from purexport.inspect.paths import find
from purexport.inspect.values import text_of, value_of

__all__ = ["Bytes", "Element", "Location", "Owner", "find", "locate", "owners", "text_of", "value_of"]
