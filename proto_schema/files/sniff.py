"""What a file that is no ONNX model seems to be, and what to do about it."""

from __future__ import annotations

from typing import Any

from proto_schema.errors import DecodeError
from proto_schema.external.payload import byte_view
from proto_schema.files.transfers import as_text

# (first bytes after white space, lower case; what it is and what next)
_BEGINNINGS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (b"<!doctype", "a web page, probably a login or error page: download the raw file"),
    (b"<html", "a web page, probably a login or error page: download the raw file"),
    (b"<?xml", "an XML document, perhaps a download's error message: look inside"),
    (b"pk\x03\x04", "a zip archive: unpack it (or a PyTorch checkpoint: export the model to ONNX)"),
    (b"\x1f\x8b", "gzip-compressed: decompress it first"),
    (b"bzh", "bzip2-compressed: decompress it first"),
    (b"\xfd7zxz", "xz-compressed: decompress it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed: decompress it first"),
    (b"\x89hdf", "an HDF5 file, perhaps a Keras model: convert it to ONNX"),
    (b"\x80\x02", "a pickle, perhaps a PyTorch checkpoint: export the model to ONNX"),
    (b"\x93numpy", "a numpy array: load it with numpy.load"),
    (b"ir_version", "an ONNX model in text form: convert it to the binary form"),
    (b"{", "JSON text, not the binary form of a model"),
)


def what_it_is(data: Any, error: DecodeError | None) -> str:
    """The end of an error message: "; this is ..." or "; the file is cut off ...", or something of the kind."""
    view = byte_view(data)
    if not view:
        return "; the file is empty: write or download it again"
    start = bytes(view[:64]).lstrip(b" \t\r\n\xef\xbb\xbf").lower()
    for beginning, meaning in _BEGINNINGS:
        if start.startswith(beginning):
            return f"; this is {meaning}"
    if bytes(view[257:262]) == b"ustar":
        return "; this is a tar archive: unpack it (`tar xf FILE`) and load the .onnx file in it"
    if not any(view[:64]):
        return "; it begins with zeros: the download or copy was not finished"
    if bytes(view[4:8]) == b"TFL3":
        return "; this is a TensorFlow Lite model: convert it to ONNX"
    transfer = as_text(view)
    if transfer is not None:
        return f"; {transfer}"
    if error is not None and error.reason.startswith("truncated"):
        return f"; perhaps the file is cut off at {len(view)} bytes: compare its size and copy or download it again"
    return "; this is no ONNX model, or a damaged one"
