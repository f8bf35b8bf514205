"""The table of docs/io-analysis.md is what the cost model says, and so are the formulas around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.io_table import SWEEP, io_row, markdown

PAGE = Path(__file__).resolve().parents[1] / "docs" / "io-analysis.md"


def test_the_page_holds_the_table() -> None:
    """If the model changed with good reason, put what `markdown()` gives into the page."""
    _, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- table: docs.io_table.markdown() -->\n")
    table, end, _ = rest.partition("\n<!-- end of table -->")
    assert begin
    assert end
    assert table == markdown()


@pytest.mark.parametrize("sizes", [(4096, 64, 32), (8192, 128, 64)])
def test_the_formulas_of_the_page(sizes) -> None:
    """For blocks that divide N."""
    row, (n, d, _) = io_row(*sizes), sizes
    block_kv, block_q = row.kv_blocks[1], row.q_blocks[0]
    assert n % block_kv == 0
    assert n % block_q == 0
    assert row.standard.total == 8 * n * d + 8 * n**2
    assert row.kv_outer.total == (10 * d + 16) * n**2 // block_kv + 14 * n * d + 20 * n
    assert row.q_outer.total == 4 * d * n**2 // block_q + 4 * n * d + 4 * n


def test_claims_of_the_text() -> None:
    rows = {sizes: io_row(*sizes) for sizes in SWEEP}
    assert rows[16384, 128, 99].kv_outer.total > rows[16384, 128, 99].standard.total
    assert rows[16384, 64, 99].kv_outer.total < rows[16384, 64, 99].standard.total
    for row in rows.values():
        assert row.q_outer.total < row.kv_outer.total
        assert 40 <= row.kv_outer_constant < 60
