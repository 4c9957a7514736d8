"""The version, which both packages of the wheel have."""

from proto_schema.version import VERSION

__all__ = ["VERSION"]
