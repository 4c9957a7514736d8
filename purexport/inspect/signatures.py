"""What bytes begin like: programs, archives, pickles, scripts.

Each row is long enough that weights do not begin so by chance: 32 bits at least, or a second mark further on. Of texts
and attributes, which are bytes somebody chose, shorter beginnings count, too.
"""

from __future__ import annotations

import re

HEAD = 1024  # bytes that are looked at

_Row = tuple[re.Pattern[bytes], str]

_SURE: list[_Row] = [
    (re.compile(pattern, re.DOTALL), what)
    for pattern, what in (
        (rb"\x7fELF[\x01\x02][\x01\x02]\x01", "an ELF program"),
        (rb"[\xce\xcf]\xfa\xed\xfe|\xfe\xed\xfa[\xce\xcf]|\xca\xfe\xba\xbe\x00", "a macOS or Java program"),
        (rb"\x00asm\x01\x00\x00\x00", "a WebAssembly program"),
        (rb"PK\x03\x04|PK\x05\x06", "a zip archive"),
        (rb"\x1f\x8b\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", "a gzip archive"),
        (rb"\xfd7zXZ\x00|7z\xbc\xaf'\x1c|Rar!\x1a\x07|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd", "a compressed archive"),
        (rb"\x80[\x04\x05]\x95.{3}\x00{5}", "a pickle"),
        (rb"\x80[\x02-\x05](?:[}\])]q.|[(c}\]]?c[A-Za-z_][\w.]+\n[\w.]+\n|\x8c.[A-Za-z_])", "a pickle"),
        (rb"[(]?c(?:os|posix|nt|sys|subprocess|builtins|__builtin__|runpy|importlib)\n\w+\n", "a pickle"),
        (rb"#! ?/(?:usr|bin|sbin|opt|system)", "a script"),
    )
]
_SHORT: list[_Row] = [
    (re.compile(pattern, re.DOTALL), what)
    for pattern, what in (
        (rb"\x7fELF", "an ELF program"),
        (rb"MZ\x90", "a Windows program"),
        (rb"\x1f\x8b\x08", "a gzip archive"),
        (rb"\x80[\x02\x03]}|\x80[\x04\x05]\x95", "a pickle"),
        (rb"#!/", "a script"),
    )
]


def signature(head: bytes, *, chosen: bool = False) -> str:
    """What bytes that begin so are; '' for nothing known. `chosen`: they are no numbers, so that less is enough."""
    for pattern, what in [*_SURE, *_SHORT] if chosen else _SURE:
        if pattern.match(head):
            return what
    return "a Windows program" if _is_portable_executable(head) else ""


def _is_portable_executable(head: bytes) -> bool:
    """Whether the old header leads to the new one."""
    place = int.from_bytes(head[0x3C:0x40], "little")
    return head.startswith(b"MZ") and place >= 0x40 and head[place : place + 4] == b"PE\0\0"
