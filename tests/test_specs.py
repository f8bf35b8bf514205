"""The specs and the library's masks keep exactly the pairs that independent loops in Python say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attncc import resources
from attncc.evaluate import Array
from attncc.ir import Variant, show
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.loaded import kept, variant

LENGTHS = [(1, 1), (7, 7), (5, 12), (12, 5), (1, 9), (13, 1)]


def spec(name: str, **defines: int) -> Variant:
    return load(SourceFile.read(resources.folder("specs") / f"{name}.attn"), defines).variants[0]


def pairs(q_len: int, kv_len: int, keep: Callable[[int, int], bool]) -> Array:
    """What `keep(position of the query among the keys, position of the key)` says, as bool [q_len, kv_len]."""
    return np.array([[keep(q + kv_len - q_len, kv) for kv in range(kv_len)] for q in range(q_len)])


@pytest.mark.parametrize(("q_len", "kv_len"), LENGTHS)
@pytest.mark.parametrize(
    ("mask", "keep"),
    [
        ("causal()", lambda q, kv: q >= kv),
        ("window(3)", lambda q, kv: kv in (q, q - 1, q - 2)),
        ("window(0)", lambda q, kv: False),
        ("local(2, 1)", lambda q, kv: kv in (q - 2, q - 1, q, q + 1)),
        ("dilated(3)", lambda q, kv: abs(q - kv) % 3 == 0),
        ("prefix(4)", lambda q, kv: kv < 4),
        ("block_diagonal(4)", lambda q, kv: q >= 0 and q // 4 == kv // 4),
    ],
)
def test_masks_of_the_library(mask: str, keep: Callable[[int, int], bool], q_len: int, kv_len: int) -> None:
    found = kept(variant(f"keep if {mask}", "import masks"), q_len, kv_len)
    np.testing.assert_array_equal(found, pairs(q_len, kv_len, keep))


@pytest.mark.parametrize(("q_len", "kv_len"), LENGTHS)
def test_causal_top_left(q_len: int, kv_len: int) -> None:
    found = kept(variant("keep if causal_top_left()", "import masks"), q_len, kv_len)
    np.testing.assert_array_equal(found, np.tri(q_len, kv_len, dtype=bool))


@pytest.mark.parametrize(("q_len", "kv_len"), LENGTHS)
def test_sliding_and_dilated_windows(q_len: int, kv_len: int) -> None:
    found = kept(spec("sliding_window", width=4), q_len, kv_len)
    np.testing.assert_array_equal(found, pairs(q_len, kv_len, lambda q, kv: 0 <= q - kv <= 3))
    found = kept(spec("dilated_window", width=3, step=2), q_len, kv_len)
    np.testing.assert_array_equal(found, pairs(q_len, kv_len, lambda q, kv: q - kv in (0, 2, 4)))


@pytest.mark.parametrize("prefix_len", [0, 3, 12, 100])
def test_prefix_lm(prefix_len: int) -> None:
    found = kept(spec("prefix_lm"), 5, 12, b=1, prefix_len=[7, prefix_len])
    np.testing.assert_array_equal(found, pairs(5, 12, lambda q, kv: kv < prefix_len or kv <= q))


def test_documents_and_alibi_documents() -> None:
    doc = [0, 0, 0, 1, 1, 2, 2, 2, 2]
    same = pairs(9, 9, lambda q, kv: kv <= q and doc[q] == doc[kv])
    np.testing.assert_array_equal(kept(spec("documents"), 9, 9, doc=[doc]), same)
    np.testing.assert_array_equal(kept(spec("documents"), 4, 9, doc=[doc]), same[5:])
    near = pairs(9, 9, lambda q, kv: kv in (q, q - 1) and doc[q] == doc[kv])
    np.testing.assert_array_equal(kept(spec("alibi_documents", width=2), 9, 9, doc=[doc]), near)


def neighbours(center: int, size: int, kernel: int) -> range:
    """The `kernel` indices around a center, moved inwards at the borders."""
    first = min(max(center - kernel // 2, 0), size - kernel)
    return range(first, first + kernel)


@pytest.mark.parametrize(("width", "height", "kernel"), [(5, 4, 3), (3, 7, 1), (6, 5, 5), (4, 4, 3)])
def test_natten(width: int, height: int, kernel: int) -> None:
    """Not square, since the published mask is wrong there; every query has kernel**2 keys."""

    def keep(q: int, kv: int) -> bool:
        across = kv % width in neighbours(q % width, width, kernel)
        return across and kv // width in neighbours(q // width, height, kernel)

    found = kept(
        spec("natten", canvas_width=width, canvas_height=height, kernel=kernel), width * height, width * height
    )
    np.testing.assert_array_equal(found, pairs(width * height, width * height, keep))
    assert (found.sum(axis=1) == kernel**2).all()


@pytest.mark.parametrize("name", ["full", "flash_attention_1", "relative_bias"])
def test_without_a_mask(name: str) -> None:
    assert spec(name).keeps == ()


@pytest.mark.parametrize(
    "name", ["causal", "alibi", "softcap", "dropout_attention", "decode", "sink_attention", "sigmoid_attention"]
)
def test_causal(name: str) -> None:
    np.testing.assert_array_equal(kept(spec(name), 4, 6), np.tri(4, 6, 2, dtype=bool))


def test_what_changes_the_score() -> None:
    scores = {
        name: [show(line.value) for line in spec(name).scores] for name in ("alibi", "softcap", "sigmoid_attention")
    }
    assert scores == {
        "alibi": ["(score - (slope[h] * to_float((q_pos - kv_idx))))"],
        "softcap": ["(50.0 * tanh((score / 50.0)))"],
        "sigmoid_attention": ["(score - log(to_float(kv_len)))"],
    }
