"""What programs for onnx use of protobuf, for where protobuf is not installed: `message`, `text_format`, `json_format`.

Only messages of ONNX are taken. Where protobuf is installed nothing of this is used.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from proto_schema.compat.foreign import TextError
from proto_schema.compat.jsonproto import merge_json, to_json
from proto_schema.compat.messages import Mannered, plain
from proto_schema.compat.textproto import merge_text
from proto_schema.errors import DecodeError, EncodeError
from proto_schema.text import text_format

NAME = "google.protobuf"


def _text(message: Any, **options: Any) -> str:
    """The message in text format. Options of protobuf's own function are refused: they change the text."""
    _refuse(options)
    return text_format(plain(message))


def _parse(text: str | bytes, message: Any, **options: Any) -> Any:
    """The message with what the text says. Raises ParseError."""
    _refuse(options)
    merge_text(text if isinstance(text, str) else text.decode(), plain(message))
    return message


def _json(message: Any, preserving_proto_field_name: bool = False, indent: int | None = 2, **options: Any) -> str:
    """The message as JSON."""
    return json.dumps(_dict(message, preserving_proto_field_name, **options), indent=indent)


def _dict(message: Any, preserving_proto_field_name: bool = False, **options: Any) -> Any:
    """The message as Python's dicts and lists, as JSON has them."""
    _refuse(options)
    made = json.loads(to_json(plain(message)))
    return made if preserving_proto_field_name else _renamed(made)


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    words = {name: name.split("_") for name in value}
    return {
        first + "".join(word.capitalize() for word in others): _renamed(value[name])
        for name, (first, *others) in words.items()
    }


def _parse_json(text: str | bytes, message: Any, **options: Any) -> Any:
    """The message with what the JSON says. Raises ParseError."""
    _refuse(options)
    merge_json(text if isinstance(text, str) else text.decode(), plain(message))
    return message


def _parse_dict(js_dict: Any, message: Any, **options: Any) -> Any:
    """The same for dicts and lists."""
    return _parse_json(json.dumps(js_dict), message, **options)


def _refuse(options: dict[str, Any]) -> None:
    if options:
        raise NotImplementedError(f"the options {', '.join(options)} need the package protobuf; install it")


CONTENT: dict[str, dict[str, Any]] = {
    "google": {},
    NAME: {},
    f"{NAME}.message": {
        "DecodeError": DecodeError,
        "EncodeError": EncodeError,
        "Error": ValueError,
        "Message": Mannered,
    },
    f"{NAME}.text_format": {"MessageToString": _text, "Merge": _parse, "Parse": _parse, "ParseError": TextError},
    f"{NAME}.json_format": {
        "MessageToDict": _dict,
        "MessageToJson": _json,
        "Parse": _parse_json,
        "ParseDict": _parse_dict,
        "ParseError": TextError,
    },
}
"""The modules, by their names."""


def fill(module: ModuleType) -> None:
    """Puts the content of the module of that name into it."""
    vars(module).update(CONTENT[module.__name__])
    module.__doc__ = "Of proto_schema.compat: protobuf is not installed."
