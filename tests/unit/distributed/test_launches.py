"""What a rank's launches are given, without other ranks: K and V are there, and NaN where nothing may be read."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import attncc  # noqa: E402  (needs torch)
from attncc.distributed import plan  # noqa: E402
from attncc.distributed.call_parts import Options  # noqa: E402
from attncc.distributed.launches import Saved, ToBackward, launches_of  # noqa: E402
from attncc.distributed.transport import Fetched  # noqa: E402

ROWS, WIDTH, CHUNK, DIM = 64, 8, 8, 16
OPTIONS = Options({}, None, "bhsd", None)
RANKS = range(2)


def of_rank(rank: int) -> tuple[Any, Any, Any]:
    kernel = attncc.compile("sliding_window", dtype="fp32", head_dim=DIM, width=WIDTH)
    made = plan(kernel, ROWS, ranks=2, chunk=CHUNK, heads=(4, 2), head_dim=DIM)
    assert made.tried[0].name == "sequential"
    return kernel, made, launches_of(kernel, made, made.masks[0], rank, "cpu")


def drawn() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, ROWS, DIM, generator=generator) for heads in (4, 2, 2, 4)]


def test_launches_have_the_keys_of_their_window() -> None:
    """One chunk of the second rank needs the end of the first rank's rows: its launch has these and its own rows."""
    first, second = (of_rank(rank)[2] for rank in RANKS)
    assert (first.keys.others, first.keys.own) == ((), ((0, 32),))
    assert (second.keys.others, second.keys.own) == (((24, 40),), ((32, 64),))
    assert second.keys_back == second.keys


def spoiled(whole: Any, own: Any, read: tuple[tuple[int, int], ...]) -> Fetched:
    """The rows that are read; own ones beside them; NaN elsewhere."""
    pair = [torch.full_like(x, torch.nan) for x in whole]
    for x, into in zip(whole, pair, strict=True):
        for begin, end in read:
            into[..., begin:end, :] = x[..., begin:end, :]
    return Fetched(pair[0], pair[1], ((0, 2),), None, own=own)


class Kept:
    """Gradients of K and V, of each launch."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def start(self, group: int, found: Any) -> None:
        self.found += found

    def add(self, group: int, dk: Any, dv: Any) -> None:
        self.found.append((dk, dv))


@pytest.mark.parametrize("rank", RANKS)
def test_launches_read_nothing_else(rank: int) -> None:
    """Launches on own rows read the rank's own tensors, and gradients are those of each launch's keys."""
    kernel, made, launches = of_rank(rank)
    q, k, v, dout = drawn()
    rows = torch.from_numpy(made.rows(rank))
    out, lse = kernel(q, k, v, return_lse=True)
    own_q, own_dout = q[..., rows, :], dout[..., rows, :]
    fetched = spoiled((k, v), (k[..., rows, :], v[..., rows, :]), launches.keys.others)
    found, found_lse = launches.forward(own_q, fetched, OPTIONS)
    assert torch.allclose(found, out[..., rows, :], atol=1e-5) and torch.allclose(found_lse, lse[..., rows], atol=1e-5)
    masked = torch.zeros_like(dout)
    masked[..., rows, :] = own_dout
    wanted = kernel.backward(masked, q, k, v, out, lse)
    kept = Kept()
    saved = Saved(own_q, fetched.own[0], fetched.own[1], found, found_lse)
    back = launches.backward(saved, fetched, ToBackward(own_dout, None), OPTIONS, kept, repeats=True)
    assert torch.allclose(back.dq, wanted.dq[..., rows, :], atol=1e-4)
    total = [torch.zeros_like(k), torch.zeros_like(v)]
    keys = (*launches.keys_back.others, *launches.keys_back.own)
    for pair, (begin, end) in zip(kept.found, keys, strict=True):
        for sums, x in zip(total, pair, strict=True):
            assert x.shape[-2] == end - begin
            sums[..., begin:end, :] += x
    assert torch.allclose(total[0], wanted.dk, atol=1e-4) and torch.allclose(total[1], wanted.dv, atol=1e-4)
