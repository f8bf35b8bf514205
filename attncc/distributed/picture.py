"""A plan as a picture: the owner of each chunk, and of each mask the rows that go from rank to rank."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .plan_data import MaskPlan, PlanData

_WIDTH, _CELL, _GAP = 640, 18, 26


def drawn(plan: PlanData) -> str:
    """An SVG."""
    cell = max(min(_CELL, _WIDTH // plan.ranks), 3)
    height = 60 + len(plan.masks) * (cell * plan.ranks + 2 * _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 80}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_owners(plan),
    ]
    for number, mask in enumerate(plan.masks):
        parts += _traffic(plan, mask, 60 + number * (cell * plan.ranks + 2 * _GAP), cell)
    return "\n".join([*parts, "</svg>\n"])


def _owners(plan: PlanData) -> Iterator[str]:
    yield f'<text x="10" y="16">owner of each of {plan.chunks} chunks, by color</text>'
    for chunk, rank in enumerate(plan.owners):
        begin, end = (10 + _WIDTH * place // plan.chunks for place in (chunk, chunk + 1))
        hue = 360 * rank // plan.ranks
        title = f"<title>chunk {chunk}: rank {rank}</title>"
        yield f'<rect x="{begin}" y="22" width="{end - begin}" height="16" fill="hsl({hue},60%,60%)">{title}</rect>'


def _traffic(plan: PlanData, mask: MaskPlan, top: int, cell: int) -> Iterator[str]:
    yield f'<text x="10" y="{top}">{escape(mask.variant)}: rows received (down: receiver, across: sender)</text>'
    received = [mask.rows_by_sender(rank) for rank in range(plan.ranks)]
    most = max((count for of_rank in received for count in of_rank.values()), default=1)
    for rank, of_rank in enumerate(received):
        y = top + 8 + rank * cell
        yield f'<rect x="{10 + rank * cell}" y="{y}" width="{cell}" height="{cell}" fill="#ddd"/>'
        for sender, count in of_rank.items():
            title = f"<title>{count} rows from {sender} to {rank}</title>"
            shade = 0.1 + 0.9 * count / most
            x = 10 + sender * cell
            box = f'x="{x}" y="{y}" width="{cell}" height="{cell}"'
            yield f'<rect {box} fill="#1f4e9c" opacity="{shade:.2f}">{title}</rect>'
