"""Instructions in the machine code of kernels, found by their bits: a disassembler takes as long as the compiler."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attncc.runtime.cuda.cubin import sections
from benchmarks import cubin

REDUX = 0x3C4  # a warp's common value: `redux.sync`
ALWAYS = 7  # the predicate of an instruction that has none


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
    return (cubin.instructions(section) for section in sections(image) if section.kind == ".text")
