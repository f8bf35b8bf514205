"""What a cubin, the machine code of kernels in an ELF file, says of the registers and the memory that it takes.

NVIDIA documents the tools that print these fields (CUDA Binary Utilities: `cuobjdump --dump-resource-usage`,
`nvdisasm`), not their bytes. The layouts below are those of nvdisasm's listings, for sm_80 and later. The section
`.nv.info` is a list of attributes: a format, a code, two bytes of length, the value. `EIATTR_REGCOUNT` and
`EIATTR_FRAME_SIZE` hold a symbol and a number each. `EIATTR_ANNOTATIONS`, in the `.nv.info.NAME` of a kernel, lists the
instructions that ptxas added to spill registers; nvdisasm marks them as "SpillRefill". How wide each is, its bits say.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_NO_BITS = 8  # type of a section that takes memory, but none of the file
_LONG_ATTRIBUTE = 4  # the format whose value follows; those of others are the two bytes themselves
_FRAME_SIZE, _REGCOUNT, _ANNOTATIONS = 0x11, 0x2F, 0x55
_SPILL = 1  # the kind of annotation; an offset in the code follows
_STORE, _LOAD = 0x387, 0x983  # bits 0 to 11 of the instructions STL and LDL
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}  # bytes, by bits 73 to 75
_RESERVED_SHARED = 1024  # bytes that CUDA keeps for itself at the start of a block's shared memory, from sm_90 on


class CubinError(ValueError):
    """The file isn't the machine code of a kernel, or has a form that this module doesn't know."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of several kernels in a file, the most registers, stack and shared memory, and the sum of their spills."""

    registers: int  # for each thread
    stack_bytes: int  # for each thread
    spill_stores: int  # bytes, counted once for each instruction
    spill_loads: int
    shared_bytes: int  # static shared memory, without what CUDA reserves


class Section(NamedTuple):
    name: str
    data: bytes
    size: int  # in memory

    @property
    def kind(self) -> str:
        """`.text` of `.text.causal_forward`: a kernel's name is no part of its code."""
        return re.sub(r"^(\.(?:rela?\.)?(?:nv\.)?\w+).*", r"\1", self.name)


class Attribute(NamedTuple):
    """One of a section `.nv.info`: its format, code and two bytes of length, as they stand there, and its value."""

    header: bytes
    code: int
    value: bytes  # none of formats whose length is the value


def read_usage(image: bytes, target: str) -> Usage:
    """CubinError if the file lacks any of it: nothing is taken for zero."""
    try:
        found = {section.name: section for section in sections(image)}
        numbers = [(item.code, item.value) for item in attributes(found[".nv.info"])]
        spills = list(_spills(found))
        return Usage(
            registers=max(struct.unpack("<II", value)[1] for code, value in numbers if code == _REGCOUNT),
            stack_bytes=max(struct.unpack("<II", value)[1] for code, value in numbers if code == _FRAME_SIZE),
            spill_stores=sum(width for opcode, width in spills if opcode == _STORE),
            spill_loads=sum(width for opcode, width in spills if opcode == _LOAD),
            shared_bytes=_shared_bytes(found.values(), target),
        )
    except (struct.error, LookupError, ValueError) as error:
        raise CubinError(f"{type(error).__name__}: {error}") from None


def code_bytes(image: bytes) -> int:
    """The length of the kernels' instructions. CubinError if the file can't be read."""
    try:
        return sum(section.size for section in sections(image) if section.name.startswith(".text."))
    except (struct.error, LookupError, ValueError) as error:
        raise CubinError(f"{type(error).__name__}: {error}") from None


def sections(image: bytes) -> Iterator[Section]:
    """All of a file. CubinError, or another ValueError, struct.error or LookupError if it can't be read."""
    if image[:5] != b"\x7fELF\x02":
        raise CubinError("it is no ELF file of 64 bits")
    (first,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [_SECTION.unpack_from(image, first + number * size) for number in range(count)]
    for name, kind, _, _, offset, length, *_ in headers:
        start = headers[names][4] + name
        data = b"" if kind == _NO_BITS else image[offset : offset + length]
        yield Section(image[start : image.index(b"\0", start)].decode(), data, length)


def attributes(section: Section) -> Iterator[Attribute]:
    """Those of a section `.nv.info`."""
    info, at = section.data, 0
    while at < len(info):
        form, code, size = struct.unpack_from("<BBH", info, at)
        end = at + 4 + (size if form == _LONG_ATTRIBUTE else 0)
        yield Attribute(info[at : at + 4], code, info[at + 4 : end])
        at = end


def _spills(found: Mapping[str, Section]) -> Iterator[tuple[int, int]]:
    """Opcode and width of each instruction that spills a register or fetches it back."""
    for name, section in found.items():
        if name.startswith(".nv.info."):
            text = found[".text." + name.removeprefix(".nv.info.")].data
            for _, code, value in attributes(section):
                if code == _ANNOTATIONS:
                    yield from (_memory_access(text, kind, offset) for kind, offset in struct.iter_unpack("<II", value))


def _memory_access(text: bytes, kind: int, offset: int) -> tuple[int, int]:
    low, high = struct.unpack_from("<QQ", text, offset)
    opcode, width = low & 0xFFF, _WIDTHS.get(high >> 9 & 7)
    if kind != _SPILL or opcode not in (_STORE, _LOAD) or width is None:
        raise CubinError(f"an annotation of kind {kind} for the instruction {low:#x}, which is unknown")
    return opcode, width


def _shared_bytes(found: Iterable[Section], target: str) -> int:
    reserved = _RESERVED_SHARED if int(target.strip("sm_a")) >= 90 else 0
    own = [item for item in found if item.name.startswith(".nv.shared.") and ".reserved." not in item.name]
    return max((item.size - reserved for item in own), default=0)
