"""Strided copies between two tensors as a copy engine takes them: pieces of bytes at two distances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

MOST = 2**30  # bytes of a piece, and between two


class Move(NamedTuple):
    """`height` pieces of `width` bytes. Offsets, and the distances of pieces, are in bytes."""

    source: int
    target: int
    width: int
    height: int
    source_pitch: int
    target_pitch: int

    @property
    def size(self) -> int:
        return self.width * self.height


def moves(
    shape: Sequence[int], source: Sequence[int], target: Sequence[int], size: int, offsets: tuple[int, int] = (0, 0)
) -> Iterator[Move]:
    """The fewest that copy a tensor of this shape. `source` and `target`: strides in elements of `size` bytes."""
    if 0 in shape:
        return
    axes = _joined([(n, a * size, b * size) for n, a, b in zip(shape, source, target, strict=True) if n > 1])
    width = axes.pop()[0] * size if axes and axes[-1][1:] == (size, size) else size
    height, *pitches = axes.pop() if axes else (1, width, width)
    for place in product(*(range(n) for n, _, _ in axes)):
        from_, to = (sum(at * axis[side] for at, axis in zip(place, axes, strict=True)) for side in (1, 2))
        yield from _allowed(Move(offsets[0] + from_, offsets[1] + to, width, height, *pitches))


def _allowed(move: Move) -> Iterator[Move]:
    """In parts, where distances are larger than CUDA takes."""
    if max(move[2:3] + move[4:]) <= MOST:
        yield move
        return
    for number in range(move.height):
        for begin in range(0, move.width, MOST):
            width = min(MOST, move.width - begin)
            from_, to = (x + number * pitch + begin for x, pitch in zip(move[:2], move[4:], strict=True))
            yield Move(from_, to, width, 1, width, width)


def _joined(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Neighbouring axes that both tensors have as one."""
    found = list[tuple[int, int, int]]()
    for count, from_, to in axes:
        same = bool(found) and found[-1][1:] == (count * from_, count * to)
        found.append((count * found.pop()[0] if same else count, from_, to))
    return found
