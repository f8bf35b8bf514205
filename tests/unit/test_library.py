from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import attncc
from attncc import library
from attncc.diagnostics import AttnccError
from attncc.resources import folder


def test_every_shipped_file_has_a_name_and_its_variant() -> None:
    files = {path.stem for path in folder("specs").glob("*.attn")}
    assert set(library.names()) == files - {"masks"}
    assert [attncc.parse(name).name for name in library.names()] == list(library.names())


def test_consts_by_name() -> None:
    assert dict(attncc.parse("sliding_window", width=77).variant.consts) == {"width": 77}
    kernel = attncc.compile("sliding_window", dtype="fp32", head_dim=16, width=77)
    other = attncc.compile("sliding_window", dtype="fp32", head_dim=16, defines={"width": 77})
    assert kernel is other  # the same meaning, so the same kernel


def test_a_name_and_its_consts_are_enough() -> None:
    kernel = attncc.compile("sliding_window", width=77)
    assert kernel is attncc.compile("sliding_window", dtype="bf16", head_dim=128, width=77)
    shorter = np.zeros((1, 1, 8, 64), ml_dtypes.bfloat16)
    with pytest.raises(AttnccError, match=r"A603(.|\n)*compile the kernel with head_dim=64"):
        kernel(shorter, shorter, shorter)
    with pytest.raises(AttnccError, match=r'A604(.|\n)*build the kernel for "fp16"'):
        kernel(*[np.zeros((1, 1, 8, 128), np.float16)] * 3)


def test_a_const_comes_once() -> None:
    with pytest.raises(AttnccError, match=r"A114.*`width` came twice"):
        attncc.parse("sliding_window", width=3, defines={"width": 4})


def test_a_name_that_nothing_has() -> None:
    with pytest.raises(AttnccError, match=r"A511(.|\n)*did you mean `sliding_window`\?"):
        attncc.parse("slidin_window")
    with pytest.raises(AttnccError, match=r"A511(.|\n)*`attncc list`"):
        attncc.parse("zzz")


def test_a_file_without_a_suffix_is_found_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("causal", "own"):
        Path(name).write_text("attn 1\nvariant mine {}\n")
    assert attncc.parse("causal").name == "causal"
    assert attncc.parse("./causal").name == "mine"
    assert attncc.parse("own").name == "mine"


def test_masks_are_no_variant() -> None:
    assert library.find("masks") is None
