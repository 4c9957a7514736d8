"""The codes of the errors: one row a cause, with what it means, what to do about it and how such an error reads.

A code is a name for a cause, and stays the same when the words of a message change: `error.code` of every error that
`purexport.errors` and `proto_schema.errors` define. `docs/error-codes.md` is this table as a page. A cause is what a
user would look up, so that raise sites with one cause and one remedy share a row; the message says the rest.
"""

from __future__ import annotations

from purexport.errors import codes_of_capture, codes_of_files
from purexport.errors.code import Code, Family

FAMILIES: tuple[Family, ...] = (*codes_of_capture.FAMILIES, *codes_of_files.FAMILIES)

CODES: dict[str, Code] = {row.name: row for _, rows in FAMILIES for row in rows}
