"""Pictures of variants for given and for drawn inputs, and what notebooks show."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import attncc
from attncc import library
from attncc.diagnostics import AttnccError
from tests.examples import slow_beyond


def test_a_picture_of_given_inputs() -> None:
    shown = attncc.parse("documents").picture(100, 100, 16, 32, doc=np.repeat(np.arange(2), 50)[None])
    assert shown.kept == 2 * 50 * 51 // 2
    assert (shown.block_q, shown.block_kv, shown.title) == (16, 32, "documents")


def test_of_one_sequence_and_head() -> None:
    prefixes = attncc.parse("prefix_lm")
    shown = prefixes.picture(64, 64, b=1, batch=2, prefix_len=np.array([0, 64], np.int32))
    assert (shown.kept, shown.title) == (64 * 64, "prefix_lm, sequence 1")
    with pytest.raises(AttnccError, match=r"A615.*`b`"):
        prefixes.picture(64, 64, b=1)
    with pytest.raises(AttnccError, match=r"A615.*`h`"):
        prefixes.picture(64, 64, h=-1)
    with pytest.raises(AttnccError, match="A609"):
        prefixes.picture(64, 64, prefix_len=np.zeros(3, np.int32))


def test_the_seed_draws_what_is_not_given() -> None:
    documents = attncc.parse("documents")
    one, same, other = (documents.picture(2000, 2000, seed=seed).row_keys.tolist() for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("name", slow_beyond(6, library.names()))
def test_a_notebook_shows_every_variant(name: str) -> None:
    shown = ElementTree.fromstring(f"<div>{attncc.parse(name)._repr_html_()}</div>")
    texts = "".join(shown.itertext())
    assert texts.lstrip().startswith(f"attncc variant {name}")
    assert "1024" in texts


def test_a_notebook_shows_a_kernel() -> None:
    kernel = attncc.compile("alibi", dtype="bf16", head_dim=64)
    shown = kernel._repr_html_()
    assert "attncc kernel alibi: bf16_d64" in shown
    assert "input slope: f32[head]" in shown
    assert "<svg " in shown


def test_text_from_outside_is_escaped() -> None:
    shown = attncc.parse("attn 1\n# A <b>bold</b> claim.\nvariant mine {}\n")._repr_html_()
    assert "A &lt;b&gt;bold&lt;/b&gt; claim." in shown
