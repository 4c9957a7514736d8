"""Texts that look like what they are not: invisible and turning characters, and letters that look like others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from proto_schema.graphs.names import as_text

IN_NAMES = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Characters that no name needs."""

IN_TEXTS = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
"""Characters that turn the text around them, or hide in it. Joiners are left: emoji and some scripts need them."""

# letters of the Cyrillic, Greek and Armenian scripts that look like Latin ones in most fonts
_LIKE_LATIN = {
    ord(letter): latin
    for letters, latins in (
        ("\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0458\u0455\u04bb\u0501\u051b\u051d", "aeopcxyijshdqw"),
        ("\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0405\u0406\u0408", "ABEKMHOPCTXSIJ"),
        ("\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7", "ABEZHIKMNOPTYX"),
        ("\u03bf\u03bd\u03f2\u0578\u057d\u0585\u04cf\u2170\u217c", "ovcnuolil"),
    )
    for letter, latin in zip(letters, latins, strict=True)
}
_LIKE_LATIN |= {0xFF01 + at: chr(0x21 + at) for at in range(94)}  # full width


def look_alikes(names: Iterable[str | bytes]) -> Iterator[tuple[str, str]]:
    """(name, what it looks like) for names with such letters beside Latin ones, or that look like another one."""
    texts = {as_text(name) for name in names}
    for text in sorted(text for text in texts if not text.isascii()):
        latin = text.translate(_LIKE_LATIN)
        mixed = latin.isascii() and any(letter.isascii() and letter.isalpha() for letter in text)
        if latin != text and (mixed or latin in texts):
            yield text, latin
