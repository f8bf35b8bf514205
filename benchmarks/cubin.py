"""Which parts of cubins a GPU runs or loads, and a hash of these alone. `attncc.runtime.cuda.cubin` reads the files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attncc.runtime.cuda.cubin import Section, attributes, sections

TOOL = re.compile(rb"release [\d.]+, V([\d.]+)")  # ptxas names itself in a note

# Sections that the GPU runs, reads, or has memory for.
LOADED = re.compile(r"\.text|\.rela?\.text|\.nv\.constant[0-35-9]|\.nv\.shared|\.nv\.local")
# Bank 4 holds the addresses of global variables. Every constexpr of the text becomes one, in an order that depends on
# names; they count only where code reads them.
TABLES = re.compile(r"\.nv\.constant4|\.rela?\.nv\.constant4|\.nv\.global")
TABLE_BANK = 4
CONSTANT_OPERANDS = (3, 5)  # bits 9 to 11 of an instruction: which operand comes from a constant bank
BARRIER = 0xB1D  # has the bits of such an operand, but none

PARAMETERS = 0x0A  # this attribute begins with the number of a symbol, and so do all in the section of the whole file


def instructions(section: Section) -> NDArray[np.uint64]:
    """The lower halves of the instructions (128 bits each) of a `.text` section."""
    return np.frombuffer(section.data, np.uint64)[::2]


def compiler_version(image: bytes) -> str:
    """`13.0.88`: the ptxas that made a cubin."""
    found = TOOL.search(image)
    return found[1].decode() if found else "unknown"


def fingerprint(image: bytes) -> str:
    """A hash of the machine code and of what is loaded with it. Line tables, symbols and names are left out."""
    found = list(sections(image))
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
    of_file = section.name == ".nv.info"
    for header, code, value in attributes(section):
        yield header + value[4 * (of_file or code == PARAMETERS) :]
