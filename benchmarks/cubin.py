"""Reads cubins: which parts of their ELF files a GPU runs or loads, and a hash of these alone."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, ...
NO_BITS = 8  # type of a section that takes memory, but none of the file
TOOL = re.compile(rb"release [\d.]+, V([\d.]+)")  # ptxas names itself in a note

# Sections that the GPU runs, reads, or has memory for.
LOADED = re.compile(r"\.text|\.rela?\.text|\.nv\.constant[0-35-9]|\.nv\.shared|\.nv\.local")
# Bank 4 holds the addresses of global variables. Every constexpr of the text becomes one, in an order that depends on
# names; they count only where code reads them.
TABLES = re.compile(r"\.nv\.constant4|\.rela?\.nv\.constant4|\.nv\.global")
TABLE_BANK = 4
CONSTANT_OPERANDS = (3, 5)  # bits 9 to 11 of an instruction: which operand comes from a constant bank
BARRIER = 0xB1D  # has the bits of such an operand, but none

# Attributes of `.nv.info`: `format, attribute, size` and a payload of so many bytes if the format is this.
PAYLOAD = 4
PARAMETERS = 0x0A  # begins with the number of a symbol, and so does all that stands in the section of the whole file


class Section(NamedTuple):
    name: str
    data: bytes
    size: int  # in memory

    @property
    def kind(self) -> str:
        """`.text` of `.text.causal_forward`: a kernel's name is no part of its code."""
        return re.sub(r"^(\.(?:rela?\.)?(?:nv\.)?\w+).*", r"\1", self.name)


def sections(image: bytes) -> list[Section]:
    (first,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [SECTION_HEADER.unpack_from(image, first + number * size) for number in range(count)]
    return [_section(image, header, headers[names][4]) for header in headers]


def _section(image: bytes, header: tuple[int, ...], names: int) -> Section:
    name, kind, _, _, offset, size, *_ = header
    end = image.index(b"\0", names + name)
    data = b"" if kind == NO_BITS else image[offset : offset + size]
    return Section(image[names + name : end].decode(), data, size)


def instructions(section: Section) -> NDArray[np.uint64]:
    """The lower halves of the instructions (128 bits each) of a `.text` section."""
    return np.frombuffer(section.data, np.uint64)[::2]


def compiler_version(image: bytes) -> str:
    """`13.0.88`: the ptxas that made a cubin."""
    found = TOOL.search(image)
    return found[1].decode() if found else "unknown"


def fingerprint(image: bytes) -> str:
    """A hash of the machine code and of what is loaded with it. Line tables, symbols and names are left out."""
    found = sections(image)
    code = [item for item in found if item.kind == ".text"]
    tables = any(map(_reads_tables, code))
    parts = sorted(part for item in found for part in _parts(item, tables))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _reads_tables(section: Section) -> bool:
    words = instructions(section)
    form, bank, opcode = words >> 9 & 7, words >> 54 & 31, words & 0xFFF
    return bool((np.isin(form, CONSTANT_OPERANDS) & (bank == TABLE_BANK) & (opcode != BARRIER)).any())


def _parts(section: Section, tables: bool) -> Iterator[tuple[str, int, bytes]]:
    if LOADED.match(section.name) or (tables and TABLES.match(section.name)):
        yield section.kind, section.size, section.data
    if section.name.startswith(".nv.info"):
        yield section.kind, section.size, b"".join(_attributes(section))


def _attributes(section: Section) -> Iterator[bytes]:
    """What the loader reads: registers, stack, parameters. Numbers of symbols are left out."""
    of_file, at = section.name == ".nv.info", 0
    while at < len(section.data):
        form, attribute, size = struct.unpack_from("<BBH", section.data, at)
        end = at + 4 + (size if form == PAYLOAD else 0)
        yield section.data[at : at + 4]
        yield section.data[at + 4 + 4 * (of_file or attribute == PARAMETERS) : end]
        at = end
