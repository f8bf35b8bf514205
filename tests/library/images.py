"""Masks over images and videos: neighborhoods, tiles, bands of frames, and images that text looks at."""

from __future__ import annotations

import numpy as np

from attncc.evaluate import Array
from tests.library.cases import Drawn, Family, Random, distance, int32, positions

case = Family()

Place = tuple[int, int]  # x, y


def odd(kernel: int) -> int:
    return kernel + 1 - kernel % 2


def axis(size: int, kernel: int) -> Array:
    """[size, size]: which places of one axis see which: `kernel` of them, or all, moved inwards at the ends."""
    near = np.zeros((size, size), bool)
    for place in range(size):
        first = min(max(place - kernel // 2, 0), max(size - kernel, 0))
        near[place, first : first + kernel] = True
    return near


def neighborhood(q: list[Place], kv: list[Place], grid_2d: Place, kernel: Place) -> Array:
    """Keys outside the grid are seen by nobody; a query above or below it sees what the border pixel of its column
    sees."""
    width, height = grid_2d
    near_x, near_y = axis(width, kernel[0]), axis(height, kernel[1])
    inside = np.array([y < height for _, y in kv])
    rows_x, rows_y = np.array([x for x, _ in q]), np.array([min(max(y, 0), height - 1) for _, y in q])
    columns_x, columns_y = np.array([x for x, _ in kv]), np.array([min(y, height - 1) for _, y in kv])
    kept: Array = near_x[np.ix_(rows_x, columns_x)] & near_y[np.ix_(rows_y, columns_y)] & inside
    return kept


def row_major(place: int, width: int) -> Place:
    return place % width, place // width


def tile_major(place: int, width: int, tile: Place) -> Place:
    number, inner = divmod(place, tile[0] * tile[1])
    row, column = divmod(number, width // tile[0])
    y, x = divmod(inner, tile[0])
    return column * tile[0] + x, row * tile[1] + y


def z_order(place: int, bits: int) -> Place:
    """x from the even bits, y from the odd ones; positions beyond the grid begin again at its first pixel."""
    digits = format(place % 4**bits, f"0{2 * bits}b")
    return int(digits[1::2] or "0", 2), int(digits[::2] or "0", 2)


@case(
    "natten",
    {"canvas_width": 5, "canvas_height": 4, "kernel": 3},
    {"canvas_width": 4, "canvas_height": 9, "kernel_width": 3, "kernel_height": 5},
    {"canvas_width": 8, "canvas_height": 3, "kernel_width": 4, "kernel_height": 2},
    {"canvas_width": 7, "canvas_height": 3, "kernel_width": 1, "kernel_height": 9},
    {"canvas_width": 24, "canvas_height": 40, "kernel_width": 9, "kernel_height": 5},
)
def natten(random: Random, q_len: int, kv_len: int, *, canvas_width: int, canvas_height: int, **kernel: int) -> Drawn:
    q, kv = ([row_major(place, canvas_width) for place in side] for side in sides(q_len, kv_len))
    return {}, neighborhood(q, kv, (canvas_width, canvas_height), kernel_sides(kernel))


@case(
    "tiled_natten",
    {"canvas_width": 6, "canvas_height": 4, "tile_width": 3, "tile_height": 2, "kernel": 3},
    {
        "canvas_width": 4, "canvas_height": 9, "tile_width": 2, "tile_height": 3, "kernel_width": 1,
        "kernel_height": 4,
    },
    {
        "canvas_width": 24, "canvas_height": 40, "tile_width": 8, "tile_height": 4, "kernel_width": 9,
        "kernel_height": 5,
    },
)  # fmt: skip
def tiled_natten(
    random: Random,
    q_len: int,
    kv_len: int,
    *,
    canvas_width: int,
    canvas_height: int,
    tile_width: int,
    tile_height: int,
    **kernel: int,
) -> Drawn:
    tile = tile_width, tile_height
    q, kv = ([tile_major(place, canvas_width, tile) for place in side] for side in sides(q_len, kv_len))
    return {}, neighborhood(q, kv, (canvas_width, canvas_height), kernel_sides(kernel))


@case(
    "morton_natten",
    {"bits": 1, "kernel": 1},
    {"bits": 3, "kernel": 3},
    {"bits": 3, "kernel_width": 2, "kernel_height": 5},
    {"bits": 5, "kernel": 7},
)
def morton_natten(random: Random, q_len: int, kv_len: int, *, bits: int, **kernel: int) -> Drawn:
    q, kv = ([z_order(place, bits) for place in side] for side in sides(q_len, kv_len))
    return {}, neighborhood(q, kv, (2**bits, 2**bits), kernel_sides(kernel))


def sides(q_len: int, kv_len: int) -> tuple[list[int], list[int]]:
    return positions(q_len, kv_len), list(range(kv_len))


def kernel_sides(kernel: dict[str, int]) -> Place:
    both = kernel.get("kernel", 0)
    return odd(kernel.get("kernel_width", both)), odd(kernel.get("kernel_height", both))


def tiles_and_text(near: Array, q_len: int, kv_len: int, *, tile: int, first_row: int, text_len: int) -> Array:
    """A map of tiles as a mask, then text that all see and that sees all. A query before the first key sees what the
    tile of its column among the `first_row` first ones sees."""
    image = len(near) * tile
    kept = np.zeros((q_len, kv_len), bool)
    columns = np.arange(min(kv_len, image)) // tile
    for row, place in enumerate(positions(q_len, kv_len)):
        if place < image:
            own = place // tile if place >= 0 else place // tile % first_row
            kept[row, : len(columns)] = near[own, columns]
            kept[row, image : image + text_len] = True
        else:
            kept[row, : image + text_len] = True
    return kept


@case(
    "sta_2d",
    {"tile": 2, "across": 4, "down": 3, "kernel_across": 3, "kernel_down": 1},
    {"tile": 3, "across": 5, "down": 2, "kernel_across": 4, "kernel_down": 2},
    {"tile": 1, "across": 3, "down": 3, "kernel_across": 0, "kernel_down": 3},
    {"tile": 1, "across": 3, "down": 4, "kernel_across": 5, "kernel_down": 6},
    {"tile": 32, "across": 5, "down": 4, "kernel_across": 3, "kernel_down": 2},
)
def sta_2d(random: Random, q_len: int, kv_len: int, *, tile: int, across: int, down: int, **kernel: int) -> Drawn:
    near = np.kron(axis(down, kernel["kernel_down"]), axis(across, kernel["kernel_across"]))
    text_len = int(random.integers(0, 6))
    return {"text_len": int32(text_len)}, tiles_and_text(
        near, q_len, kv_len, tile=tile, first_row=across, text_len=text_len
    )


@case(
    "sta_3d",
    {"tile": 2, "across": 3, "down": 2, "long": 3, "kernel_across": 1, "kernel_down": 3, "kernel_long": 2},
    {"tile": 1, "across": 2, "down": 4, "long": 3, "kernel_across": 2, "kernel_down": 3, "kernel_long": 4},
    {"tile": 32, "across": 3, "down": 2, "long": 4, "kernel_across": 2, "kernel_down": 1, "kernel_long": 3},
)
def sta_3d(
    random: Random, q_len: int, kv_len: int, *, tile: int, across: int, down: int, long: int, **kernel: int
) -> Drawn:
    frame = np.kron(axis(down, kernel["kernel_down"]), axis(across, kernel["kernel_across"]))
    near = np.kron(axis(long, kernel["kernel_long"]), frame)
    text_len = int(random.integers(0, 6))
    return {"text_len": int32(text_len)}, tiles_and_text(
        near, q_len, kv_len, tile=tile, first_row=len(frame), text_len=text_len
    )


def seen_by_the_prompt(kept: Array, prompt_len: int, kv_len: int) -> Array:
    for row, place in enumerate(positions(len(kept), kv_len)):
        if place < prompt_len:
            kept[row] = True
    return kept


@case(
    "svg_spatial",
    {"frame": 6, "width": 2, "multiple": 4},
    {"frame": 3, "width": 1, "multiple": 4},
    {"frame": 5, "width": 2, "multiple": 4, "sink_frame": True},
    {"frame": 90, "width": 2, "multiple": 64},
)
def svg_spatial(
    random: Random, q_len: int, kv_len: int, *, frame: int, width: int, multiple: int, sink_frame: bool = False
) -> Drawn:
    prompt_len = int(random.integers(0, kv_len // 4 + 1))
    band = max(m for m in range(0, width * frame + 1, multiple))
    kept = np.isin(distance(q_len, kv_len), range(1 - band, band))
    kept[:, : prompt_len + frame * sink_frame] = True
    return {"prompt_len": int32(prompt_len)}, seen_by_the_prompt(kept, prompt_len, kv_len)


@case(
    "svg_temporal",
    {"frame": 6, "frames": 4, "width": 2},
    {"frame": 3, "frames": 4, "width": 1},
    {"frame": 90, "frames": 5, "width": 2},
)
def svg_temporal(random: Random, q_len: int, kv_len: int, *, frame: int, frames: int, width: int) -> Drawn:
    prompt_len = int(random.integers(0, kv_len // 4 + 1))
    band = width * frame // frames
    near = np.array([[abs(i - j) < band for j in range(frame)] for i in range(frame)])
    q, kv = ([(place - prompt_len) % frame for place in side] for side in sides(q_len, kv_len))
    kept = near[np.ix_(q, kv)]
    kept[:, :prompt_len] = True
    return {"prompt_len": int32(prompt_len)}, seen_by_the_prompt(kept, prompt_len, kv_len)


@case("flamingo", {"tokens": 1}, {"tokens": 3}, {"tokens": 64})
def flamingo(random: Random, q_len: int, kv_len: int, *, tokens: int) -> Drawn:
    """Images of which some are seen by no text, text that sees none, and keys beyond the last image listed."""
    images = max(-(-kv_len // tokens) - int(random.integers(0, 2)), 1)
    intervals = np.sort(random.integers(0, q_len + 2, (2, images, 2)), axis=-1)
    kept = np.zeros((2, 1, q_len, kv_len), bool)
    for b, image in np.ndindex(2, images):
        first, last = intervals[b, image]
        kept[b, 0, first:last, image * tokens : (image + 1) * tokens] = True
    return {"interval": int32(intervals)}, kept
