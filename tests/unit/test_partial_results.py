"""attncc.merge: attention over two sets of keys, from that over each."""

from __future__ import annotations

import numpy as np
import pytest

import attncc
from attncc import reference
from attncc.diagnostics import AttnccError
from tests.plans import FULL


def halves(cut: int, layout: str = "bhsd") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """out and lse over the keys before a place and behind it, and over all."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4, rows, 16)).astype(np.float32) for rows in (5, 30, 30))
    parts = []
    for keys in (slice(0, cut), slice(cut, 30), slice(0, 30)):
        out, lse = reference.forward(FULL, q, k[:, :, keys], v[:, :, keys])
        assert lse is not None
        parts += [out if layout == "bhsd" else out.swapaxes(1, 2), lse]
    return parts[:4], parts[4:]


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("cut", [0, 7, 30])
def test_two_sides_are_all_keys(cut: int, layout: str) -> None:
    """A side may be empty: it has the lse -inf."""
    sides, (out, lse) = halves(cut, layout)
    found, found_lse = attncc.merge(*sides, layout=layout)
    np.testing.assert_allclose(found, out, atol=1e-6)
    np.testing.assert_allclose(found_lse, lse, atol=1e-6)


def test_an_empty_side_changes_no_bit() -> None:
    (out, lse, *_), _ = halves(30)
    nothing = np.full_like(out, np.nan), np.full_like(lse, -np.inf)
    for sides in ((out, lse, *nothing), (*nothing, out, lse)):
        found, found_lse = attncc.merge(*sides)
        assert np.array_equal(found, out.astype(np.float32).astype(out.dtype))
        assert np.array_equal(found_lse, lse.astype(np.float32))
    found, found_lse = attncc.merge(*nothing, *nothing)
    assert not found.any() and np.isneginf(found_lse).all()


def test_results_of_an_invalid_sequence_stay_nan() -> None:
    """lse as well: -inf would let the next merge drop that side."""
    (out, lse, *_), (whole, whole_lse) = halves(7)
    out[1], lse[1] = np.nan, np.nan
    sides = out, lse
    for _ in range(2):
        sides = attncc.merge(*sides, whole, whole_lse)
        assert all(np.isnan(x[1]).all() and np.isfinite(x[0]).all() for x in sides)


def test_gradients() -> None:
    """Those of torch's own formula, and 0 for a side that saw nothing."""
    torch = pytest.importorskip("torch")
    sides = [torch.tensor(x, dtype=torch.float32) for x in halves(7)[0]]
    sides[3][0, 0, 0], sides[1][1] = -torch.inf, -torch.inf
    sides[3][1, 2] = -torch.inf
    leaves = [x.requires_grad_() for x in sides]
    out, lse = attncc.merge(*leaves)
    found = torch.autograd.grad(out.square().sum() + lse[lse > -torch.inf].sum(), leaves)
    assert all(torch.isfinite(x).all() for x in found)
    weights = torch.softmax(torch.stack([leaves[1], leaves[3]]), 0).nan_to_num()[..., None]
    plain = (weights * torch.stack([leaves[0], leaves[2]])).sum(0)
    total = torch.logaddexp(leaves[1], leaves[3])
    wanted = torch.autograd.grad(plain.square().sum() + total[total > -torch.inf].sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.nan_to_num())


def test_what_does_not_go_together_is_refused() -> None:
    (out, lse, *rest), _ = halves(7)
    for given, code in (
        ((out, lse, out[:1], lse), "A602"),
        ((out, lse, out, lse[:1]), "A602"),
        ((out.swapaxes(1, 2), lse, *rest), "A602"),
        ((out, lse, out.tolist(), lse), "A654"),
        ((out.astype(np.int32), lse, *rest), "A604"),
        ((out, lse > 0, *rest), "A604"),
    ):
        with pytest.raises(AttnccError, match=code):
            attncc.merge(*given)
    with pytest.raises(AttnccError, match="A618"):
        attncc.merge(out, lse, *rest, layout="sbhd")


def test_arrays_on_two_devices_are_refused() -> None:
    torch = pytest.importorskip("torch")
    out, lse, *rest = map(torch.tensor, halves(7)[0])
    for given in ((out, lse.to("meta"), *rest), (out.to("meta"), lse, *rest)):
        with pytest.raises(AttnccError, match="A605"):
            attncc.merge(*given)
