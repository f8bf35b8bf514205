"""Six more masks over an image: steps, bits, slanted and round borders, and an image whose borders meet."""

from __future__ import annotations

from .grid import Grid

STEPPED = Grid(
    64,
    lambda q, k: (abs(q // 64 - k // 64) <= 12) & ((q // 64 - k // 64) % 2 == 0) & (abs(q % 64 - k % 64) <= 6),
    {
        "a remainder of the distance": """
            let dy = q_idx // 64 - kv_idx // 64
            keep if abs(dy) <= 12 and dy % 2 == 0
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "a bit of it": """
            let dy = q_idx // 64 - kv_idx // 64
            keep if abs(dy) <= 12 and (dy & 1) == 0
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "steps, and the same bit": """
            let qy = q_idx // 64
            let ky = kv_idx // 64
            keep if abs(qy // 2 - ky // 2) <= 6 and (qy & 1) == (ky & 1)
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
        "the same rest of two rows": """
            keep if abs(q_idx // 128 - kv_idx // 128) <= 6
            keep if q_idx % 128 // 64 == kv_idx % 128 // 64
            keep if abs(q_idx % 64 - kv_idx % 64) < 7""",
        "rows that are listed": """
            let dy = kv_idx // 64 - q_idx // 64
            keep if any(dy == 2 * i - 12 for i in range(13))
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6""",
    },
)

BITS = Grid(
    64,
    lambda q, k: (q // 512 == k // 512) & (q % 64 // 8 == k % 64 // 8),
    {
        "blocks": """
            keep if q_idx // 512 == kv_idx // 512
            keep if q_idx % 64 // 8 == kv_idx % 64 // 8""",
        "all other bits": "keep if (q_idx & ~455) == (kv_idx & ~455)",
        "what differs": "keep if ((q_idx ^ kv_idx) & ~455) == 0",
        "what differs, twice": """
            let differs = q_idx ^ kv_idx
            keep if differs >> 9 == 0 and (differs & 56) == 0""",
        "less than a block of rows": """
            let differs = q_pos ^ kv_idx
            keep if differs < 512
            keep if differs % 64 < 8""",
        "bits of the columns": """
            keep if q_idx >> 9 == kv_idx >> 9
            keep if ((q_idx % 64) & 56) == ((kv_idx % 64) & 56)""",
    },
)

DIAMOND = Grid(
    64,
    lambda q, k: abs(q // 64 - k // 64) + abs(q % 64 - k % 64) <= 6,
    {
        "the sum of both": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if dx + dy <= 6""",
        "what one leaves the other": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            keep if abs(q_idx % 64 - kv_idx % 64) <= 6 - dy""",
        "four sides": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if dx + dy <= 6 and dx - dy <= 6
            keep if dy - dx <= 6 and -dx - dy <= 6""",
        "two distances": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if max(abs(dx + dy), abs(dx - dy)) < 7""",
        "within its square": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if dx <= 6 and dy <= 6
            keep if dx + dy <= 6""",
        "twice": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if 2 * dx + 2 * dy <= 13""",
    },
)

LOZENGE = Grid(
    64,
    lambda q, k: abs(q // 64 - k // 64) + 2 * abs(q % 64 - k % 64) <= 12,
    {
        "the sum of both": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if dy + 2 * dx <= 12""",
        "what one leaves the other": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            keep if 2 * abs(q_idx % 64 - kv_idx % 64) <= 12 - dy""",
        "what a column leaves": """
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if abs(q_idx // 64 - kv_idx // 64) <= 12 - 2 * dx""",
        "within its rectangle": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if dx <= 6 and dy <= 12
            keep if dy + 2 * dx <= 12""",
    },
)

DISC = Grid(
    64,
    lambda q, k: (q // 64 - k // 64) ** 2 + (q % 64 - k % 64) ** 2 <= 36,
    {
        "squares": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if dx * dx + dy * dy <= 36""",
        "of absolute distances": """
            let dy = abs(q_idx // 64 - kv_idx // 64)
            let dx = abs(q_idx % 64 - kv_idx % 64)
            keep if dy * dy <= 36 - dx * dx""",
        "within its square": """
            let dy = q_idx // 64 - kv_idx // 64
            let dx = q_idx % 64 - kv_idx % 64
            keep if abs(dx) <= 6 and abs(dy) <= 6
            keep if dx * dx + dy * dy < 37""",
    },
)

TORUS = Grid(
    64,
    lambda q, k: ((k % 64 - q % 64 + 6) % 64 <= 12) & ((k // 64 - q // 64 + 6) % 48 <= 12),
    {
        "remainders": """
            keep if (kv_idx % 64 - q_idx % 64 + 6) % 64 <= 12
            keep if (kv_idx // 64 - q_idx // 64 + 6) % 48 <= 12""",
        "the other way round": """
            keep if (q_idx % 64 - kv_idx % 64 + 6) % 64 < 13
            keep if (q_idx // 64 - kv_idx // 64 + 6) % 48 < 13""",
        "the middle of the image": """
            keep if abs((q_idx % 64 - kv_idx % 64 + 32) % 64 - 32) <= 6
            keep if abs((q_idx // 64 - kv_idx // 64 + 24) % 48 - 24) <= 6""",
        "not too far": """
            keep if not (kv_idx - q_idx + 6) % 64 > 12
            keep if not (kv_idx // 64 - q_idx // 64 + 6) % 48 > 12""",
    },
)

SIX = {"stepped": STEPPED, "bits": BITS, "diamond": DIAMOND, "lozenge": LOZENGE, "disc": DISC, "torus": TORUS}
