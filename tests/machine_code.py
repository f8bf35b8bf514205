"""Instructions in the machine code of kernels, found by their bits: a disassembler takes as long as the compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

REDUX = 0x3C4  # a warp's common value: `redux.sync`
ALWAYS = 7  # the predicate of an instruction that has none
SECTION = struct.Struct("<IIQQQQIIQQ")  # of ELF: name, type, flags, address, offset, size, and more


def conditional_common_values(image: bytes) -> int:
    """How many REDUX of a cubin stand under a predicate."""
    return sum(
        int(np.count_nonzero((words & 0xFFF == REDUX) & (words >> 12 & 15 != ALWAYS))) for words in kernels(image)
    )


def instructions(image: bytes) -> int:
    """How many a cubin has."""
    return sum(len(words) for words in kernels(image))


def kernels(image: bytes) -> Iterator[NDArray[np.uint64]]:
    """The lower halves of the instructions (128 bits: the opcode in bits 0 to 11, its predicate in 12 to 15) of each
    kernel of a cubin."""
    (first,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    sections = [SECTION.unpack_from(image, first + number * size) for number in range(count)]
    for name, _, _, _, offset, length, *_ in sections:
        if image.startswith(b".text.", sections[names][4] + name):
            yield np.frombuffer(image, np.uint64, length // 8, offset)[::2]
