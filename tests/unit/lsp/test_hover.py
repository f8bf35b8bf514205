"""What is shown where somebody points."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncc.checks import tile_rules, tile_shares
from attncc.lsp.hover import hover
from attncc.lsp.outline import Outline
from attncc.semantics.load import load
from tests.unit.lsp.opened import SPECS, marked, opened, spec

TEXT = """attn 1
import masks
# Of the test,
# with two lines.
mask near(x, y) = abs(x - y) < 8
fn half(x) = x / 2
# What `v` is.
variant v {
    const w: int = 8 * 80  # a width
    const far: float[2] = [0.5, 2]
    input slope: f32[head]
    input doc: i32[batch, pos] nondecreasing
    let distance = q_pos - kv_idx
    let one = 1
    keep if causal() and near(q_pos, kv_idx + one if w > 3 else 7)
    keep if window(w)
    keep if same_document(doc) and all(kv_idx > i for i in range(2))
    score = half(score) - slope[h] * distance * far[h % 2]
    dropout 0.5
}
schedule s for v backward on sm_80 {
    stages = {1, 2}
}
"""

# A place by the text that begins there, and what is said.
SAID = {
    "masks\n": ["specs/masks.attn"],
    "near(x, y) =": ["mask near(x, y)", "Of the test,\nwith two lines."],
    "near(q_pos": ["mask near(x, y)"],
    "half(score": ["fn half(x)"],
    "window(w)": ["mask window(width)", "from `masks.attn`", "Exactly `width` keys"],
    "x / 2": ["parameter x"],
    "v {": ["variant v", "What `v` is.", "% empty", "- a pre-pass verifies that doc never decreases"],
    "v backward": ["variant v", "% empty"],
    "w: int": ["const w: int = 8 * 80", "= 640", "a width"],
    "w)": ["= 640"],
    "far[h": ["= [0.5, 2.0]"],
    "slope:": ["input slope: f32[head]", "float, read as `slope[h]`"],
    "doc)": ["int, read as `doc[b, kv_idx]`"],
    "distance *": ["let distance = q_pos - kv_idx", "\n\nint"],
    "one if": ["a number that is known when the kernel is built"],
    "i for": ["loop variable i", "int"],
    "int =": ["the type of a const"],
    "f32": ["single-precision floats"],
    "head]": ["the query heads; indexed by h"],
    "nondecreasing": ["no entry is below the one before it"],
    "q_pos -": ["q_pos: int", "the query's position among the keys"],
    "score = half": ["score = value", "replaces the score"],
    "score) -": ["score: float", "in natural units"],
    "abs(": ["abs(x)"],
    "all(": ["all(value for i in range(n))"],
    "dropout": ["dropout rate"],
    "backward": ["the backward pass"],
    "sm_80": ["compute capability 8.0"],
    "stages": ["an int from 1 to 8", "K/V tiles in flight"],
    "* distance": ["slope[h] * distance", "\n\nfloat"],
    "- kv_idx": ["q_pos - kv_idx", "\n\nint"],
    "if w >": ["a if c else b"],
}


@pytest.mark.parametrize("place", SAID)
def test_what_is_said(place: str) -> None:
    documents, document = opened(TEXT)
    found = hover(documents, document, TEXT.index(place))
    assert found is not None
    for part in SAID[place]:
        assert part in found.text
    assert found.span.start <= TEXT.index(place) < found.span.end


def test_shares_are_those_of_check() -> None:
    documents, document = opened(TEXT)
    (variant,) = load(document.source).variants
    shares = tile_shares(variant, tile_rules(variant))
    expected = ", ".join(f"{shares[kind]:.1%} {kind}" for kind in ("empty", "partial", "full"))
    assert f"**{expected}**".replace(" 0.0%", " 0%") in hover(documents, document, TEXT.index("v {")).text


def test_each_keep_line_has_its_own_proof() -> None:
    documents, document = opened(TEXT)
    places = [TEXT.index(line) for line in ("keep if causal", "keep if window", "keep if same")]
    said = [hover(documents, document, place).text for place in places]
    assert all(text.startswith("This line alone: **") for text in said)
    own = {text.partition("**")[2].partition("**")[0] for text in said}
    assert len(own) == 3
    of_all = {text.partition("All keep lines of `v`: ")[2].partition("\n")[0] for text in said}
    assert len(of_all) == 1 and "; doc: " in of_all.pop()
    assert hover(documents, document, places[0] + len("keep ")).text.startswith(said[0].partition("```")[0])


def test_a_single_line_is_the_whole_mask() -> None:
    text = hover(*marked("attn 1\nvariant v { |keep if q_pos >= kv_idx }")).text
    assert text.startswith(
        "**48.4% empty, 3.1% partial, 48.4% full** (128 x 128 tiles, q_len = kv_len = 4096, 2 heads)"
    )


@pytest.mark.parametrize("text", ["attn 1\nvariant v { |keep", "attn 1\nvariant v { |keep if q_pos >= nobody }"])
def test_of_a_wrong_file_words_are_known(text: str) -> None:
    assert "only pairs for which it is true attend" in hover(*marked(text)).text


@pytest.mark.parametrize("text", ["|", "attn 1 # com|ment", "attn 1\nvariant v { keep if | }", "attn 1\nimport no|ne"])
def test_nothing_to_say(text: str) -> None:
    assert hover(*marked(text)) is None


@pytest.mark.parametrize("path", SPECS[::3], ids=lambda path: path.stem)
def test_there_is_something_to_say_of_every_word(path: Path) -> None:
    documents, document = spec(path)
    for token in Outline.of(document.source).tokens:
        if token.type != "INT" and token.start_pos and str(token)[0].isalpha() and str(token) not in ("keep",):
            assert hover(documents, document, token.start_pos) is not None, token
