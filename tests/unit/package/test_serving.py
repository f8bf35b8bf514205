"""Packages for serving: what calls with new rows need is in them."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

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


def prefix_kernels(spec: str, **asked: Any) -> set[str]:
    (package,) = prepare(spec, **{"archs": ["sm_80"], "dtypes": ["fp16"], "head_dims": [16], "serving": True, **asked})
    return {name for name in package.kernel_names if "_prefix_" in name}


def test_they_share_prefixes() -> None:
    """A pair of kernels for contiguous caches, and one for pages."""
    pairs = {f"mine_{name}_fp16_d16{paged}_prefix_sm_80" for name in ("forward", "decode") for paged in ("", "_paged")}
    assert prefix_kernels(SPEC) == prefix_kernels(SPEC, kv_dtypes=["int8"]) == pairs
    assert prefix_kernels(SPEC, serving=False, decode=True) == set()
    (package,) = prepare(SPEC, archs=["sm_80"], dtypes=["fp16"], head_dims=[16], serving=True)
    text = package.files()["__init__.py"]
    for end in ("fp16 over pages with a shared prefix", "fp16 with a shared prefix", "fp16 over pages"):
        assert f"{end}, head dim 16, sm_80" in text


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ("dropout 0.5", {}),
        ("scale 1.0 / kv_len", {}),
        ("", {"head_dims": [(576, 512)]}),
        ("", {"dtypes": ["e4m3"], "archs": ["sm_90a"], "head_dims": [64]}),
    ],
)
def test_kernels_that_share_none(lines: str, asked: dict[str, Any]) -> None:
    """Their calls with `shared_prefix` are refused in any case (A631)."""
    assert prefix_kernels(f"attn 1\nvariant mine {{\n    {lines}\n}}\n", **asked) == set()


@pytest.mark.usefixtures("compiles_nothing")
def test_the_variant_of_a_package_is_the_users(tmp_path: Path) -> None:
    """Kernels over a prefix have another."""
    (built,) = build(SPEC, tmp_path / "made", archs=["sm_80"], dtypes=["fp16"], head_dims=[16], serving=True)
    store = PackageStore(built.folder)
    assert not store.variant.inputs and [item.name for item in store.configurations] == ["fp16_d16"]
    prefixed = store.configurations[0]._replace(paged=True, prefixed=True)
    over, behind = store.plans(prefixed, "sm_80")
    assert (over.pass_name, behind.pass_name) == ("forward", "decode") and over.prefixed and behind.prefixed
    assert over.variant.inputs and behind.variant == store.variant
    assert {item.name for item in store.ready} == {
        "fp16_d16", "fp16_d16_paged", "fp16_d16_prefix", "fp16_d16_paged_prefix",
    }  # fmt: skip
