from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from attncc.executor import work


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(128, 64, 64), (100, 256, 64), (5, 256, 2048), (1, 16, 16), (0, 8, 8)]
)
def test_products_are_made_of_pieces_for_one_thread(rows: int, inner: int, columns: int) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, rows, inner)), rng.standard_normal((2, columns, inner)).swapaxes(-1, -2)
    np.testing.assert_allclose(work.product(a, b), np.einsum("hik,hkj->hij", a, b), rtol=1e-10, atol=1e-10)
    with mock.patch.object(np, "concatenate", side_effect=np.concatenate) as joined:
        work.product(a, b)
    pieces = joined.call_args.args[0] if joined.called else [np.empty((2, rows, columns))]
    assert all(piece.shape[-2] in (0, 1) or piece.shape[-2] * inner * columns <= 2**18 for piece in pieces)
