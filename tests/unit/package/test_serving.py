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
from attncc.runtime.store.package_store import PackageStore

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
SMALL: dict[str, Any] = {"archs": ["sm_80"], "dtypes": ["fp16"], "head_dims": [16]}
NEW = ["k_new", "v_new", "rotary", "interleaved"]


@pytest.mark.usefixtures("compiles_nothing")  # tests/unit/kernels/helpers/test_append.py does
def test_they_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "kernels_for_serving"
    build(SPEC, out, **SMALL, serving=True)
    manifest = json.loads((out / "mine" / "manifest.json").read_text())
    names = [f"append_fp16_{angles}_sm_80" for angles in ("fp16", "fp32")]
    assert [name for name in sorted(manifest["kernels"]) if name.startswith("append")] == names
    assert PackageStore(out / "mine").append_code("fp16", "fp32", 86).entry == "append"

    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module(out.name).mine
    assert list(inspect.signature(mine).parameters)[-5:-1] == NEW
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 5, 16)).astype(np.float16) for heads in (4, 2, 2))
    caches = [np.full((2, 2, 8, 16), np.nan, np.float16) for _ in range(2)]
    found = mine(q, *caches, kv_lens=np.int32([5, 5]), k_new=k, v_new=v)
    assert np.array_equal(found, mine(q, k, v)) and np.array_equal(caches[0][:, :, :5], k)


@pytest.mark.usefixtures("compiles_nothing")
def test_others_append_on_the_cpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "kernels_for_training"
    build(SPEC, out, **SMALL)
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module(out.name).mine
    assert list(inspect.signature(mine).parameters)[-5:-1] == NEW
    rows = np.ones((1, 1, 2, 16), np.float16)
    caches = [np.zeros((1, 1, 8, 16), np.float16) for _ in range(2)]
    assert (mine(rows, *caches, kv_lens=np.int32([2]), k_new=rows, v_new=rows) == 1).all()
    with pytest.raises(AttnccError, match=r"(?s)A505.*help: build it with that: attncc build FILE --serving$"):
        PackageStore(out / "mine").append_code("fp16", "fp32", 90)


@pytest.mark.usefixtures("compiles_nothing")
def test_inputs_keep_their_names_beside_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("new", "where", "item", "Array")
    lines = [f"input {name}: f32\nscore = score + {name}" for name in names]
    build("\n".join(["attn 1", "variant mine {", *lines, "}", ""]), tmp_path / "kernels_of_names", **SMALL)
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("kernels_of_names").mine
    rows, caches = np.ones((1, 1, 2, 16), np.float16), [np.zeros((1, 1, 8, 16), np.float16) for _ in range(2)]
    given = {name: float(number) for number, name in enumerate(names)}
    _, lse = mine(rows, *caches, kv_lens=np.int32([2]), k_new=rows, v_new=rows, return_lse=True, **given)
    assert np.allclose(lse, 4 + sum(given.values()) + np.log(2))


@pytest.mark.usefixtures("compiles_nothing")
def test_what_appends_may_be_for_other_gpus(tmp_path: Path) -> None:
    (built,) = build(SPEC, tmp_path / "kernels", **SMALL, serving=True)
    with pytest.raises(AttnccError, match=r"(?s)A505.*on this GPU: it has that for sm_80\n.*--arch sm_80,sm_90a"):
        PackageStore(built.folder).append_code("fp16", "fp32", 90)
    with pytest.raises(AttnccError, match=r"(?s)A505.*caches of int8\n.*--serving --kv-dtype int8$"):
        PackageStore(built.folder).append_code("fp16", "fp32", 80, "int8")


def prefix_kernels(spec: str, **asked: Any) -> set[str]:
    (package,) = prepare(spec, **SMALL | {"serving": True} | asked)
    return {name for name in package.kernel_names if "_prefix_" in name}


def test_they_share_prefixes() -> None:
    """A pair of kernels for contiguous caches, and one for pages."""
    pairs = {f"mine_{name}_fp16_d16{paged}_prefix_sm_80" for name in ("forward", "decode") for paged in ("", "_paged")}
    assert prefix_kernels(SPEC) == prefix_kernels(SPEC, kv_dtypes=["int8"]) == pairs
    assert prefix_kernels(SPEC, serving=False, decode=True) == set()
    (package,) = prepare(SPEC, **SMALL, serving=True)
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
    (built,) = build(SPEC, tmp_path / "made", **SMALL, serving=True)
    store = PackageStore(built.folder)
    assert not store.variant.inputs and [item.name for item in store.configurations] == ["fp16_d16"]
    prefixed = store.configurations[0]._replace(paged=True, prefixed=True)
    over, behind = store.plans(prefixed, "sm_80")
    assert (over.pass_name, behind.pass_name) == ("forward", "decode") and over.prefixed and behind.prefixed
    assert over.variant.inputs and behind.variant == store.variant
    assert {item.name for item in store.ready} == {
        "fp16_d16", "fp16_d16_paged", "fp16_d16_prefix", "fp16_d16_paged_prefix",
    }  # fmt: skip
