"""The members of a zip archive where they lie: names, and the ranges of those that are stored uncompressed.

The central directory at the end lists the members. Each member's own header, before its data, says where the data
begins. Both are untrusted: numbers are checked against the file before they are used, and two members of one name are
refused. A member must end before the next one begins, so that all of them together are no larger than the file.
A compressed or encrypted member is refused when it is asked for, because its bytes are not in the file.
Source: PKWARE's APPNOTE 6.3, sections 4.3 to 4.5.
"""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

from proto_schema.wire.records import dataclass
from purexport.weights.stored import CheckpointFile, shown

_END = struct.Struct("<4s4H2LH")  # the end of the central directory
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 0xFFFF
_LARGEST_DIRECTORY = 1 << 26  # half a million members and more
_ABSENT = 0xFFFFFFFF  # marks a number that is in the zip64 field instead
_ENCRYPTED = 1
_METHODS = {8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}


@dataclass(frozen=True, slots=True)
class Member:
    """One row of the central directory: where its header is, and its data's size, packed and not."""

    name: str
    header: int
    packed: int
    size: int
    method: int
    flags: int
    crc: int


class Archive:
    """The directory of a zip file."""

    def __init__(self, file: CheckpointFile) -> None:
        """Reads the directory. WeightsError where it is malformed."""
        self.file = file
        count, size, self._directory = _find_directory(file)
        self.members: dict[str, Member] = {}
        data = file.read(self._directory, size)
        at = 0
        for _ in range(count):
            at = self._add(data, at)
        if at != size:
            raise file.error(f"its directory has {size} bytes, but its {count} entries have {at}")
        begins = sorted(member.header for member in self.members.values())
        self._ends = dict(pairwise([*begins, self._directory]))

    def _add(self, data: bytes, at: int) -> int:
        if at + _ENTRY.size > len(data):
            raise self.file.error(f"its directory ends within an entry; {COPY_AGAIN}")
        row = _ENTRY.unpack_from(data, at)
        signature, flags, method, crc, packed, size = row[0], row[3], row[4], row[7], row[8], row[9]
        name_size, extra_size, comment_size, header = row[10], row[11], row[12], row[16]
        begin = at + _ENTRY.size
        end: int = begin + name_size + extra_size + comment_size
        if signature != b"PK\1\2" or end > len(data):
            raise self.file.error(f"its directory is damaged at byte {at}; {COPY_AGAIN}")
        name = self._name(data[begin : begin + name_size])
        if _ABSENT in (packed, size, header):
            extra = data[begin + name_size : begin + name_size + extra_size]
            size, packed, header = self._wide(name, extra, [size, packed, header])
        if name in self.members:
            raise self.file.error(f"it has two members of the name {shown(name)}; {COPY_AGAIN}")
        self.members[name] = Member(name, header, packed, size, method, flags, crc)
        return end

    def _name(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.file.error(f"the name {shown(data)} of a member is not UTF-8") from None

    def _wide(self, name: str, extra: bytes, numbers: list[int]) -> list[int]:
        """Size, packed size and place of the header; from the zip64 field if they need 64 bits."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                field = extra[at + 4 : at + 4 + length]
                wanted = [place for place, number in enumerate(numbers) if number == _ABSENT]
                if len(field) >= 8 * len(wanted):
                    for place, number in zip(wanted, struct.unpack_from(f"<{len(wanted)}Q", field), strict=True):
                        numbers[place] = number
                    return numbers
            at += 4 + length
        raise self.file.error(f"the size or place of member {shown(name)} is missing; {COPY_AGAIN}")

    def range(self, member: Member, advice: str) -> tuple[int, int]:
        """(offset, size) of a member's data. WeightsError if its bytes are not there unpacked; `advice` says more."""
        if member.flags & _ENCRYPTED:
            raise self.file.error(f"member {shown(member.name)} is encrypted; {advice}")
        if member.method:
            how = _METHODS.get(member.method, f"method {member.method}")
            raise self.file.error(f"member {shown(member.name)} is compressed ({how}); {advice}")
        name = member.name.encode()
        wrong = f"the header of member {shown(member.name)}, at {member.header},"
        if member.header + _LOCAL.size + len(name) > self._directory:
            raise self.file.error(f"{wrong} lies outside of the file's data; {COPY_AGAIN}")
        found = self.file.read(member.header, _LOCAL.size + len(name))
        row = _LOCAL.unpack_from(found)
        begin = member.header + _LOCAL.size + row[9] + row[10]
        if row[0] != b"PK\3\4" or row[3] != member.method or row[9] != len(name) or found[_LOCAL.size :] != name:
            raise self.file.error(f"{wrong} is not what the directory says; {COPY_AGAIN}")
        left = self._ends[member.header] - begin
        if member.packed != member.size or member.size > left:
            raise self.file.error(
                f"member {shown(member.name)} would have {member.size} bytes at {begin}, packed {member.packed}, "
                f"but {left} follow before the next one; {COPY_AGAIN}"
            )
        return begin, member.size

    def content(self, member: Member, most: int, advice: str) -> bytes:
        """The bytes of a small member, checked against their checksum."""
        begin, size = self.range(member, advice)
        if size > most:
            what = f"member {shown(member.name)} has {size} bytes, more than the {most} that it may have"
            raise self.file.error(f"{what}; {advice}")
        data = self.file.read(begin, size)
        if zlib.crc32(data) != member.crc:
            raise self.file.error(f"the bytes of member {shown(member.name)} do not fit its checksum; {COPY_AGAIN}")
        return data


COPY_AGAIN = "the file is damaged: copy or download it again"


def _find_directory(file: CheckpointFile) -> tuple[int, int, int]:
    """(members, bytes, offset) of the central directory."""
    length = min(file.size, _END.size + _LONGEST_COMMENT)
    start = file.size - length
    tail = file.read(start, length)
    at = tail.rfind(b"PK\5\6")
    while at >= 0 and len(tail) - at != _END.size + int.from_bytes(tail[at + 20 : at + 22], "little"):
        at = tail.rfind(b"PK\5\6", 0, at)
    if at < 0:
        raise file.error("the directory at the end of the zip archive is missing; the file is cut off: copy it again")
    end = start + at
    _, disk, first_disk, here, count, size, offset, _ = _END.unpack_from(tail, at)
    if end >= _LOCATOR.size:
        locator = file.read(end - _LOCATOR.size, _LOCATOR.size)
        if locator.startswith(b"PK\6\7"):
            end = _LOCATOR.unpack(locator)[2]
            if end + _END64.size > file.size:
                raise file.error(f"the end of its directory would be at {end}, outside of the file; {COPY_AGAIN}")
            row = _END64.unpack(file.read(end, _END64.size))
            if row[0] != b"PK\6\6":
                raise file.error(f"the end of its directory is not at {end}; {COPY_AGAIN}")
            disk, first_disk, here, count, size, offset = row[4:]
    if disk or first_disk or here != count:
        raise file.error("it is one part of an archive in several; join them first")
    if offset + size > end or count * _ENTRY.size > size or size > _LARGEST_DIRECTORY:
        what = f"{count} members in {size} bytes at {offset}"
        raise file.error(f"its directory would have {what}, which the file does not hold; {COPY_AGAIN}")
    return count, size, offset
