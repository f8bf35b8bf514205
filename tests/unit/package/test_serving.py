"""Packages for serving: what calls with new rows need is in them."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.package import build, prepare
from attncc.package.text import init_text
from attncc.runtime.store.package_store import PackageStore

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
NEW = ["k_new", "v_new", "rotary", "interleaved"]


@pytest.mark.usefixtures("compiles_nothing")  # tests/unit/kernels/helpers/test_append.py does
def test_they_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "kernels_for_serving"
    build(SPEC, out, archs=["sm_80"], dtypes=["fp16"], head_dims=[16], serving=True)
    manifest = json.loads((out / "mine" / "manifest.json").read_text())
    names = [f"append_fp16_{angles}_sm_80" for angles in ("fp16", "fp32")]
    assert [name for name in sorted(manifest["kernels"]) if name.startswith("append")] == names
    assert PackageStore(out / "mine").append_code("fp16", "fp32", 86).entry == "append"

    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module(out.name).mine
    assert list(inspect.signature(mine).parameters)[-4:] == NEW
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 5, 16)).astype(np.float16) for heads in (4, 2, 2))
    caches = [np.full((2, 2, 8, 16), np.nan, np.float16) for _ in range(2)]
    found = mine(q, *caches, kv_lens=np.int32([5, 5]), k_new=k, v_new=v)
    assert np.array_equal(found, mine(q, k, v)) and np.array_equal(caches[0][:, :, :5], k)


@pytest.mark.usefixtures("compiles_nothing")
def test_others_have_no_such_arguments(tmp_path: Path) -> None:
    (package,) = prepare(SPEC, archs=["sm_80"], dtypes=["fp16"], head_dims=[16])
    text = init_text(package.specification.variant, package.plans, package.origin)
    assert "k_new" not in text and "append" not in text
    (built,) = build(SPEC, tmp_path / "kernels", archs=["sm_80"], dtypes=["fp16"], head_dims=[16])
    with pytest.raises(AttnccError, match="--serving") as caught:
        PackageStore(built.folder).append_code("fp16", "fp32", 90)
    assert caught.value.diagnostics[0].code == "A505"
