"""onnx.serialization: the registry of formats that models are read from and written to.

"protobuf" is the encoding, "textproto" and "json" are protobuf's other forms, "onnxtxt" is the textual syntax of ONNX.
The registry is the one of the process, as in onnx: programs add their own formats to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any, Protocol

from proto_schema.compat.jsonproto import merge_json, to_json
from proto_schema.compat.messages import PROTOS, plain
from proto_schema.compat.mirrors import mirror
from proto_schema.compat.textproto import merge_text
from proto_schema.text import text_format

__all__ = ["ProtoSerializer", "registry"]


class ProtoSerializer(Protocol):
    """What writes and reads one format."""

    supported_format: str
    file_extensions: Collection[str]

    def serialize_proto(self, proto: Any) -> Any:
        """The message in this format."""

    def deserialize_proto(self, serialized: Any, proto: Any) -> Any:
        """The message in `serialized`; it may be `proto`, filled."""


class _Registry:
    """Serializers by the name of their format, and formats by the extension of files."""

    def __init__(self, serializers: Collection[ProtoSerializer]) -> None:
        self._serializers: dict[str, ProtoSerializer] = {}
        self._formats: dict[str, str] = {}
        for serializer in serializers:
            self.register(serializer)

    def register(self, serializer: ProtoSerializer) -> None:
        """Adds a format; one of the same name is replaced."""
        self._serializers[serializer.supported_format] = serializer
        self._formats.update(dict.fromkeys(serializer.file_extensions, serializer.supported_format))

    def get(self, fmt: str) -> ProtoSerializer:
        """The serializer of a format. ValueError for an unknown one."""
        if fmt not in self._serializers:
            raise ValueError(f"unsupported format {fmt!r}; there are {', '.join(self._serializers)}")
        return self._serializers[fmt]

    def get_format_from_file_extension(self, file_extension: str) -> str | None:
        """The format that goes with an extension such as ".json", or None."""
        return self._formats.get(file_extension)


class _Protobuf(ProtoSerializer):
    supported_format = "protobuf"
    file_extensions = frozenset({".onnx", ".pb"})

    def serialize_proto(self, proto: Any) -> bytes:
        if not callable(getattr(proto, "SerializeToString", None)):
            raise TypeError(f"a message is expected, not a {type(proto).__name__}")
        made: bytes = proto.SerializeToString()
        return made

    def deserialize_proto(self, serialized: Any, proto: Any) -> Any:
        if not isinstance(serialized, bytes):
            raise TypeError(f"parameter 'serialized' must be bytes, but got type: {type(serialized)}")
        proto.ParseFromString(serialized)
        return proto


class _Text(ProtoSerializer):
    supported_format = "textproto"
    file_extensions = frozenset({".txtpb", ".textproto", ".prototxt", ".pbtxt"})

    def serialize_proto(self, proto: Any) -> bytes:
        return text_format(plain(proto)).encode()

    def deserialize_proto(self, serialized: Any, proto: Any) -> Any:
        merge_text(_text(serialized), plain(proto))
        return proto


class _Json(ProtoSerializer):
    supported_format = "json"
    file_extensions = frozenset({".json", ".onnxjson"})

    def serialize_proto(self, proto: Any) -> bytes:
        return to_json(plain(proto)).encode()

    def deserialize_proto(self, serialized: Any, proto: Any) -> Any:
        merge_json(_text(serialized), plain(proto))
        return proto


class _Textual(ProtoSerializer):
    supported_format = "onnxtxt"
    file_extensions = frozenset({".onnxtxt", ".onnxtext"})

    def serialize_proto(self, proto: Any) -> bytes:
        made: str = mirror("printer").to_text(proto)
        return made.encode()

    def deserialize_proto(self, serialized: Any, proto: Any) -> Any:
        warnings.warn("the onnxtxt format is experimental", stacklevel=2)
        for name in ("model", "graph", "function", "node"):
            if isinstance(proto, PROTOS[f"{name.capitalize()}Proto"]):
                return getattr(mirror("parser"), f"parse_{name}")(_text(serialized))
        raise ValueError(f"unsupported proto type: {type(proto)}")


def _text(serialized: Any) -> str:
    if not isinstance(serialized, (bytes, str)):
        raise TypeError(f"parameter 'serialized' must be bytes or str, but got type: {type(serialized)}")
    return serialized if isinstance(serialized, str) else _decoded(serialized)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="backslashreplace")  # what is no text fails where it is parsed, with its place


registry = _Registry([_Protobuf(), _Text(), _Json(), _Textual()])
