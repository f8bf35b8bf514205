"""Eight masks over an image or a video, each in many words: as people write them who know nothing of the analysis."""

from __future__ import annotations

import numpy as np

from attncc.evaluate import Array

from .grid import Grid

SQUARE = Grid(
    64,
    lambda q, k: (abs(q // 64 - k // 64) <= 6) & (abs(q % 64 - k % 64) <= 6),
    {
        "two lines": """
            keep if abs(q_idx // 64 - kv_idx // 64) <= 6
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "one line": "keep if abs(q_idx // 64 - kv_idx // 64) <= 6 and abs(q_idx % 64 - kv_idx % 64) <= 6",
        "positions among the keys": """
            keep if abs(q_pos // 64 - kv_idx // 64) <= 6
            keep if abs(q_pos % 64 - kv_idx % 64) <= 6""",
        "below seven": """
            let dy = kv_idx // 64 - q_idx // 64
            let dx = kv_idx % 64 - q_idx % 64
            keep if abs(dx) < 7 and abs(dy) < 7""",
        "chained": """
            keep if -6 <= q_idx // 64 - kv_idx // 64 <= 6
            keep if -7 < q_idx % 64 - kv_idx % 64 < 7""",
        "half a size": """
            const size: int = 13
            let row = q_idx // 64
            let column = q_idx % 64
            keep if abs(kv_idx // 64 - row) <= size / 2 and size / 2 > abs(kv_idx % 64 - column)""",
        "pairs of comparisons": """
            let row = q_idx // 64
            let column = q_idx % 64
            keep if kv_idx // 64 >= row - 6 and kv_idx // 64 <= row + 6
            keep if kv_idx % 64 >= column - 6 and kv_idx % 64 <= column + 6""",
        "either way round": """
            keep if q_idx // 64 - kv_idx // 64 <= 6
            keep if kv_idx // 64 - q_idx // 64 <= 6
            keep if q_idx % 64 - kv_idx % 64 <= 6
            keep if kv_idx % 64 - q_idx % 64 <= 6""",
        "a mask of its own": """
            mask near(mine, other, reach) = abs(mine - other) <= reach
            keep if near(q_idx // 64, kv_idx // 64, 6) and near(q_idx % 64, kv_idx % 64, 6)""",
        "the farther of the two": """
            const width: int = 64
            let dy = abs(q_idx // width - kv_idx // width)
            let dx = abs(q_idx % width - kv_idx % width)
            keep if max(dx, dy) <= 6""",
        "shifts and bits": "keep if abs((q_idx >> 6) - (kv_idx >> 6)) <= 6 and abs((q_idx & 63) - (kv_idx & 63)) <= 6",
        "what the rows leave": """
            let qy = q_idx // 64
            let ky = kv_idx // 64
            let qx = q_idx - 64 * qy
            let kx = kv_idx - 64 * ky
            keep if abs(qy - ky) <= 6
            keep if abs(qx - kx) <= 6""",
        "clamped to the range": """
            let qy = q_idx // 64
            let qx = q_idx % 64
            keep if clamp(kv_idx // 64, qy - 6, qy + 6) == kv_idx // 64
            keep if clamp(kv_idx % 64, qx - 6, qx + 6) == kv_idx % 64""",
        "first and last": """
            let first = max(q_idx % 64 - 6, 0)
            let last = min(q_idx % 64 + 6, 63)
            keep if first <= kv_idx % 64 <= last
            keep if max(q_idx // 64 - 6, 0) <= kv_idx // 64 <= q_idx // 64 + 6""",
        "not too far": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if not (dy > 6 or dy < -6 or dx > 6 or dx < -6)""",
        "squares": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if dx * dx <= 36 and dy * dy <= 36""",
        "room on both sides": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if min(dx + 6, 6 - dx, dy + 6, 6 - dy) >= 0""",
        "a choice of signs": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if (dy if dy >= 0 else -dy) <= 6
            keep if (dx if dx > 0 else -dx) <= 6""",
        "nested choices": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if (dx <= 6 if dy <= 6 else false)""",
        "counted from one": """
            let dy = (q_idx // 64 + 1) - (kv_idx // 64 + 1)
            let dx = (q_idx % 64 + 1) - (kv_idx % 64 + 1)
            keep if abs(2 * dy) <= 13 and abs(2 * dx) < 14""",
        "a quotient of zero": """
            keep if (q_idx // 64 - kv_idx // 64 + 6) // 13 == 0
            keep if (q_idx % 64 - kv_idx % 64 + 6) // 13 == 0""",
        "keys of the rows": """
            let row = q_idx // 64
            keep if (row - 6) * 64 <= kv_idx < (row + 7) * 64
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "the distance of the positions": """
            keep if abs(q_idx - kv_idx) <= 6 * 64 + 6
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "the columns by the distance": """
            let dy = q_idx // 64 - kv_idx // 64
            keep if abs(dy) <= 6
            keep if abs(q_idx - kv_idx - 64 * dy) <= 6""",
        "rows that are listed": """
            keep if any(kv_idx // 64 == q_idx // 64 + i - 6 for i in range(13))
            keep if any(kv_idx % 64 == q_idx % 64 + i - 6 for i in range(13))""",
        "no more than needed": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if dx + dy <= 12
            keep if dy <= 6 and dx <= 6
            keep if abs(q_idx - kv_idx) < 7 * 64""",
    },
)

RECTANGLE = Grid(
    48,
    lambda q, k: (abs(k // 48 - q // 48 + 3) <= 7) & (abs(2 * (k % 48 - q % 48) - 5) <= 11),
    {
        "chained": """
            keep if -10 <= kv_idx // 48 - q_idx // 48 <= 4
            keep if -3 <= kv_idx % 48 - q_idx % 48 <= 8""",
        "from and to": """
            let y = q_pos // 48
            let x = q_pos % 48
            keep if y - 10 <= kv_idx // 48 <= y + 4
            keep if x - 3 <= kv_idx % 48 <= x + 8""",
        "counted from the first": """
            let dy = kv_idx // 48 - (q_idx // 48 - 10)
            let dx = kv_idx % 48 - (q_idx % 48 - 3)
            keep if 0 <= dy < 15 and 0 <= dx < 12""",
        "twice the distance from the middle": """
            keep if abs(2 * (kv_idx // 48 - q_idx // 48) + 6) <= 14
            keep if abs(2 * (kv_idx % 48 - q_idx % 48) - 5) <= 11""",
        "negations": """
            let dy = q_idx // 48 - kv_idx // 48
            let dx = q_idx % 48 - kv_idx % 48
            keep if not dy > 10 and not dy < -4
            keep if not (dx > 3 or dx < -8)""",
        "keys of the rows": """
            let begin = (q_idx // 48 - 10) * 48
            keep if begin <= kv_idx < begin + 15 * 48
            keep if 0 <= kv_idx % 48 - q_idx % 48 + 3 < 12""",
        "the distance of the positions": """
            let dx = kv_idx % 48 - q_idx % 48
            keep if -3 <= dx <= 8
            keep if -10 * 48 - 3 <= kv_idx - q_idx <= 4 * 48 + 8""",
    },
)


def _clamped(place: Array, size: int, reach: int) -> Array:
    return np.clip(place, reach, size - 1 - reach)


NATTEN = Grid(
    64,
    lambda q, k: (abs(_clamped(q // 64, 48, 6) - k // 64) <= 6) & (abs(_clamped(q % 64, 64, 6) - k % 64) <= 6),
    {
        "neighborhood": """
            keep if neighborhood(q_pos % 64, kv_idx % 64, 64, 6, 6)
            keep if neighborhood(q_pos // 64, kv_idx // 64, 48, 6, 6)""",
        "of indices": """
            let x = neighborhood(q_idx % 64, kv_idx % 64, 64, 6, 6)
            keep if x and neighborhood(q_idx // 64, kv_idx // 64, 48, 6, 6)""",
        "the centre": """
            let cy = min(max(q_idx // 64, 6), 41)
            let cx = min(max(q_idx % 64, 6), 57)
            keep if abs(cy - kv_idx // 64) <= 6 and abs(cx - kv_idx % 64) <= 6""",
        "the first": """
            let y = clamp(q_pos // 64 - 6, 0, 48 - 13)
            let x = clamp(q_pos % 64 - 6, 0, 64 - 13)
            keep if y <= kv_idx // 64 < y + 13
            keep if x <= kv_idx % 64 < x + 13""",
        "choices": """
            let qy = q_idx // 64
            let qx = q_idx % 64
            let y = 0 if qy < 6 else (35 if qy > 41 else qy - 6)
            let x = 0 if qx < 6 else (51 if qx > 57 else qx - 6)
            keep if 0 <= kv_idx // 64 - y <= 12
            keep if 0 <= kv_idx % 64 - x <= 12""",
        "keys of the rows": """
            let first = clamp(q_idx // 64 - 6, 0, 35)
            let x = clamp(q_idx % 64, 6, 57)
            keep if first * 64 <= kv_idx < (first + 13) * 64
            keep if -6 <= kv_idx % 64 - x <= 6""",
        "the start, taken back at the end": """
            let qy = q_idx // 64
            let qx = q_idx % 64
            let y = max(qy - 6, 0) + (48 - qy - 6 - 1 if qy + 6 >= 48 else 0)
            let x = max(qx - 6, 0) + (64 - qx - 6 - 1 if qx + 6 >= 64 else 0)
            keep if y <= kv_idx // 64 and kv_idx // 64 < y + 13
            keep if x <= kv_idx % 64 and kv_idx % 64 < x + 13""",
    },
)

ABOVE = Grid(
    64,
    lambda q, k: (q // 64 - k // 64 >= 0) & (q // 64 - k // 64 <= 8) & (abs(q % 64 - k % 64) <= 5),
    {
        "chained": """
            keep if 0 <= q_idx // 64 - kv_idx // 64 <= 8
            keep if abs(q_idx % 64 - kv_idx % 64) <= 5""",
        "two comparisons": """
            let qy = q_pos // 64
            keep if kv_idx // 64 <= qy
            keep if kv_idx // 64 > qy - 9
            keep if -5 <= q_pos % 64 - kv_idx % 64 <= 5""",
        "a window of rows": """
            mask back(d, size) = 0 <= d and d < size
            keep if back(q_idx // 64 - kv_idx // 64, 9)
            keep if back(q_idx % 64 - kv_idx % 64 + 5, 11)""",
        "up to the end of the row": """
            keep if kv_idx < (q_idx // 64 + 1) * 64
            keep if kv_idx >= (q_idx // 64 - 8) * 64
            keep if abs((q_idx & 63) - (kv_idx & 63)) < 6""",
        "causal in rows": """
            keep if q_idx // 64 >= kv_idx // 64 and abs(q_idx % 64 - kv_idx % 64) <= 5
            keep if q_idx - kv_idx <= 8 * 64 + 5""",
    },
)

DILATED = Grid(
    64,
    lambda q, k: (
        (abs(q // 64 - k // 64) <= 8)
        & (abs(q % 64 - k % 64) <= 8)
        & ((q // 64 - k // 64) % 2 == 0)
        & ((q % 64 - k % 64) % 2 == 0)
    ),
    {
        "reach and step": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if abs(dy) <= 8 and dy % 2 == 0
            keep if abs(dx) <= 8 and dx % 2 == 0""",
        "of positions": """
            let dy = q_pos // 64 - kv_idx // 64
            let dx = q_pos % 64 - kv_idx % 64
            keep if dy % 2 == 0 and dx % 2 == 0
            keep if -8 <= dy <= 8 and -8 <= dx <= 8""",
        "the same parity": """
            keep if abs(q_idx // 64 - kv_idx // 64) <= 8
            keep if abs(q_idx % 64 - kv_idx % 64) <= 8
            keep if q_idx // 64 % 2 == kv_idx // 64 % 2
            keep if q_idx % 2 == kv_idx % 2""",
        "bits": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if (dy & 1) == 0 and (dx & 1) == 0
            keep if max(abs(dy), abs(dx)) <= 8""",
        "bits of both": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if ((dy | dx) & 1) == 0
            keep if abs(dy) < 9 and abs(dx) < 9""",
        "bits of the positions": """
            keep if abs(q_idx // 64 - kv_idx // 64) <= 8 and abs(q_idx % 64 - kv_idx % 64) <= 8
            keep if ((q_idx ^ kv_idx) & 65) == 0""",
    },
)

TILED = Grid(
    64,
    lambda q, k: (q // 64 // 16 == k // 64 // 16) & (q % 64 // 8 == k % 64 // 8),
    {
        "tiles": """
            keep if q_idx // 64 // 16 == kv_idx // 64 // 16
            keep if q_idx % 64 // 8 == kv_idx % 64 // 8""",
        "tiles of rows": """
            keep if q_pos // 1024 == kv_idx // 1024
            keep if q_pos // 8 % 8 == kv_idx // 8 % 8""",
        "distance of the tiles": """
            let dy = q_idx // (64 * 16) - kv_idx // (64 * 16)
            let dx = q_idx % 64 // 8 - kv_idx % 64 // 8
            keep if abs(dy) < 1 and abs(dx) < 1""",
        "numbers of the tiles": """
            mask same(i, j) = i // 1024 * 8 + i % 64 // 8 == j // 1024 * 8 + j % 64 // 8
            keep if same(q_pos, kv_idx)""",
        "from the first of the tile": """
            let y = q_idx // 64 // 16 * 16
            let x = q_idx % 64 - q_idx % 8
            keep if y <= kv_idx // 64 < y + 16
            keep if x <= kv_idx % 64 < x + 8""",
    },
)

SHIFTED = Grid(
    64,
    lambda q, k: (abs(q // 64 - k // 64) <= 4) & (k % 64 - q % 64 >= 4) & (k % 64 - q % 64 <= 13),
    {
        "to the right": """
            keep if abs(q_idx // 64 - kv_idx // 64) <= 4
            keep if 4 <= kv_idx % 64 - q_idx % 64 <= 13""",
        "around a centre": """
            let x = q_pos % 64 + 4
            keep if x <= kv_idx % 64 < x + 10
            keep if -4 <= q_pos // 64 - kv_idx // 64 <= 4""",
        "an image further on": """
            let y = (q_idx + 640) // 64
            let ky = (kv_idx + 640) // 64
            let x = (q_idx + 640) % 64
            let kx = (kv_idx + 1280) % 64
            keep if abs(y - ky) <= 4
            keep if 4 <= kx - x and kx - x < 14""",
        "the distance of the positions": """
            let dx = kv_idx % 64 - q_idx % 64
            keep if 4 <= dx <= 13
            keep if -4 * 64 + 4 <= kv_idx - q_idx <= 4 * 64 + 13""",
    },
)

VIDEO = Grid(
    64,
    lambda q, k: (
        (abs(q // 1536 - k // 1536) <= 1) & (abs(q // 64 % 24 - k // 64 % 24) <= 6) & (abs(q % 64 - k % 64) <= 6)
    ),
    {
        "three distances": """
            keep if abs(q_idx // (64 * 24) - kv_idx // (64 * 24)) <= 1
            keep if abs(q_idx // 64 % 24 - kv_idx // 64 % 24) <= 6
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "places in a frame": """
            const frame: int = 64 * 24
            let dt = q_idx // frame - kv_idx // frame
            let dy = q_idx % frame // 64 - kv_idx % frame // 64
            let dx = q_idx % frame % 64 - kv_idx % frame % 64
            keep if -1 <= dt <= 1 and -6 <= dy <= 6 and -6 <= dx <= 6""",
        "the farthest": """
            let dt = abs(q_pos // 1536 - kv_idx // 1536)
            let dy = abs(q_pos // 64 % 24 - kv_idx // 64 % 24)
            let dx = abs(q_pos % 64 - kv_idx % 64)
            keep if max(dy, dx) < 7
            keep if dt < 2""",
        "what is left": """
            let qt = q_idx // 1536
            let qy = (q_idx - qt * 1536) // 64
            let qx = q_idx - qt * 1536 - qy * 64
            let kt = kv_idx // 1536
            let ky = (kv_idx - kt * 1536) // 64
            let kx = kv_idx - kt * 1536 - ky * 64
            keep if abs(qt - kt) <= 1
            keep if abs(qy - ky) <= 6
            keep if abs(qx - kx) <= 6""",
        "frames of keys": """
            let first = (q_idx // 1536 - 1) * 1536
            keep if first <= kv_idx < first + 3 * 1536
            keep if not (abs(q_idx // 64 % 24 - kv_idx // 64 % 24) > 6 or abs(q_idx % 64 - kv_idx % 64) > 6)""",
        "rows of all frames": """
            let qr = q_idx // 64
            let kr = kv_idx // 64
            keep if abs(qr // 24 - kr // 24) <= 1 and abs(qr % 24 - kr % 24) <= 6
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
    },
)

EIGHT = {
    "square": SQUARE, "rectangle": RECTANGLE, "natten": NATTEN, "above": ABOVE, "dilated": DILATED, "tiled": TILED,
    "shifted": SHIFTED, "video": VIDEO,
}  # fmt: skip
