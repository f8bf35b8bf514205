from __future__ import annotations

from itertools import product

import pytest

from attncc.kernels.instruction_cost import Pressure
from attncc.kernels.portable.shared import forward_parts, shared_parts
from attncc.kernels.portable.tables import default_tile
from attncc.kernels.settings import FixedTile
from attncc.kernels.shared import shared_bytes
from attncc.schedule.plan import DTYPE_BYTES, Build
from attncc.schedule.target import KIB, TARGETS

HEAD_DIMS = range(16, 257, 16)
PASSES = [
    ("forward", "q_outer"), ("decode", "q_outer"), ("forward", "kv_outer"), ("backward", "kv_outer"),
    ("backward_dq", "q_outer"),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("pass_name", "loop"), PASSES)
@pytest.mark.parametrize("room", Pressure)
def test_every_head_dim_has_tiles_that_fit(target, dtype, pass_name, loop, room) -> None:
    for head_dim, value_head_dim in product(HEAD_DIMS, HEAD_DIMS):
        tiles = default_tile(Build(pass_name, target, dtype, head_dim, value_head_dim), loop, room)
        size = shared_bytes(shared_parts(pass_name, tiles, head_dim, value_head_dim, DTYPE_BYTES[dtype]))
        assert size <= TARGETS[target].shared_bytes
        if pass_name == "backward":
            assert tiles.block_kv % (16 * tiles.warps) == tiles.block_q % 16 == 0
            continue
        assert tiles.block_q % (16 * tiles.warps) == 0
        assert tiles.block_kv % (32 if room == Pressure.MUCH else 16) == 0  # which variants with dropout need


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("pass_name", ["forward", "decode"])
def test_tiles_of_caches_of_8_bits_fit(target: str, paged: bool, pass_name: str) -> None:
    """On Hopper a multiprocessor has room for two blocks of decode kernels of head dims to 128."""
    for dims in product(HEAD_DIMS, HEAD_DIMS):
        build = Build(pass_name, target, "bf16", *dims, paged, "e4m3")
        size = shared_bytes(forward_parts(default_tile(build, "q_outer"), build))
        assert size <= TARGETS[target].shared_bytes
        if target.startswith("sm_90") and pass_name == "decode" and max(dims) <= 128:
            assert 2 * (size + 1280) <= 228 * KIB  # with what is reserved, and a few bytes of static shared memory


def test_large_shared_memory_is_used() -> None:
    assert default_tile(Build("forward", "sm_90", "bf16", 128, 128), "q_outer").stages == 2
    assert default_tile(Build("forward", "sm_80", "bf16", 128, 128), "q_outer").stages == 1


def test_shared_bytes_count_every_tile() -> None:
    def of(pass_name: str, element_bytes: int = 2) -> int:
        return shared_bytes(shared_parts(pass_name, FixedTile(128, 64, 4, 2), 192, 128, element_bytes))

    assert of("forward") == 2 * (128 * 192 + 2 * 64 * (192 + 128))
    assert of("backward_dq") == of("forward") + 2 * 128 * 128
    looped = 2 * 128 * (2 * (192 + 128) + 8)
    assert of("backward") == 2 * 64 * (192 + 128) + looped + 2 * 128 * 64
    assert of("backward", 4) == 4 * (64 + 2 * 128) * (192 + 128) + 2 * 128 * 16  # of lse, what rounding took as well


def test_kv_outer_follows_the_paper() -> None:
    """B_r = min(B_c, d): at head dim 16 a block has 16 rows; a block of four warps holds 64 at most."""
    assert default_tile(Build("forward", "sm_90", "bf16", 16, 16), "kv_outer").block_q == 16
    assert default_tile(Build("forward", "sm_90", "bf16", 128, 128), "kv_outer").block_q == 64


def test_no_tiles_above_head_dim_256() -> None:
    with pytest.raises(LookupError, match="272"):
        default_tile(Build("forward", "sm_90", "bf16", 272, 64), "q_outer")
