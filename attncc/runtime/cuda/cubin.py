"""What a cubin, the machine code of kernels in an ELF file, says of the registers and the memory that it takes.

NVIDIA documents the tools that print these fields (CUDA Binary Utilities: `cuobjdump --dump-resource-usage`,
`nvdisasm`), not their bytes. The layouts below are those of nvdisasm's listings, for sm_80 and later. The section
`.nv.info` is a list of attributes: a format, a code, two bytes of length, the value. `EIATTR_REGCOUNT` and
`EIATTR_FRAME_SIZE` hold a symbol and a number each. `EIATTR_ANNOTATIONS`, in the `.nv.info.NAME` of a kernel, lists the
instructions that ptxas added to spill registers; nvdisasm marks them as "SpillRefill". How wide each is, its bits say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
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


class _Section(NamedTuple):
    name: str
    offset: int
    size: int

    def of(self, image: bytes) -> bytes:
        return image[self.offset : self.offset + self.size]


def read_usage(image: bytes, target: str) -> Usage:
    """CubinError if the file lacks any of it: nothing is taken for zero."""
    try:
        sections = {section.name: section for section in _sections(image)}
        numbers = list(_attributes(sections[".nv.info"].of(image)))
        spills = list(_spills(image, sections))
        return Usage(
            registers=max(struct.unpack("<II", value)[1] for code, value in numbers if code == _REGCOUNT),
            stack_bytes=max(struct.unpack("<II", value)[1] for code, value in numbers if code == _FRAME_SIZE),
            spill_stores=sum(width for opcode, width in spills if opcode == _STORE),
            spill_loads=sum(width for opcode, width in spills if opcode == _LOAD),
            shared_bytes=_shared_bytes(sections.values(), target),
        )
    except (struct.error, LookupError, ValueError) as error:
        raise CubinError(f"{type(error).__name__}: {error}") from None


def code_bytes(image: bytes) -> int:
    """The length of the kernels' instructions. CubinError if the file can't be read."""
    try:
        return sum(section.size for section in _sections(image) if section.name.startswith(".text."))
    except (struct.error, LookupError, ValueError) as error:
        raise CubinError(f"{type(error).__name__}: {error}") from None


def _sections(image: bytes) -> Iterator[_Section]:
    if image[:5] != b"\x7fELF\x02":
        raise CubinError("it is no ELF file of 64 bits")
    (first,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [_SECTION.unpack_from(image, first + number * size) for number in range(count)]
    for name, _, _, _, offset, length, *_ in headers:
        start = headers[names][4] + name
        yield _Section(image[start : image.index(b"\0", start)].decode(), offset, length)


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Code and value of each attribute of a section `.nv.info`."""
    at = 0
    while at < len(info):
        form, code, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _LONG_ATTRIBUTE:
            yield code, info[at : at + size]
            at += size


def _spills(image: bytes, sections: Mapping[str, _Section]) -> Iterator[tuple[int, int]]:
    """Opcode and width of each instruction that spills a register or fetches it back."""
    for name, section in sections.items():
        if name.startswith(".nv.info."):
            text = sections[".text." + name.removeprefix(".nv.info.")].of(image)
            for code, value in _attributes(section.of(image)):
                if code == _ANNOTATIONS:
                    yield from (_memory_access(text, kind, offset) for kind, offset in struct.iter_unpack("<II", value))


def _memory_access(text: bytes, kind: int, offset: int) -> tuple[int, int]:
    low, high = struct.unpack_from("<QQ", text, offset)
    opcode, width = low & 0xFFF, _WIDTHS.get(high >> 9 & 7)
    if kind != _SPILL or opcode not in (_STORE, _LOAD) or width is None:
        raise CubinError(f"an annotation of kind {kind} for the instruction {low:#x}, which is unknown")
    return opcode, width


def _shared_bytes(sections: Iterable[_Section], target: str) -> int:
    reserved = _RESERVED_SHARED if int(target.strip("sm_a")) >= 90 else 0
    own = [item for item in sections if item.name.startswith(".nv.shared.") and ".reserved." not in item.name]
    return max((item.size - reserved for item in own), default=0)
