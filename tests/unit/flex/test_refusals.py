"""What a user is shown whose mod or call can't be had: the whole text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.diagnostics import AttnccError, AttnccWarning

FOLDER = Path(__file__).parent
NO_TORCH = """
import sys
sys.modules["torch"] = None
import attncc
try:
    attncc.flex_attention(None, None, None)
except attncc.AttnccError as error:
    print(error)
"""


def test_without_torch() -> None:
    ran = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=True)
    assert (
        ran.stdout == "error[A716]: flex_attention needs torch, which isn't installed\n   = help: pip install torch\n"
    )


torch = pytest.importorskip("torch")

from tests.unit.flex import refused  # noqa: E402  (needs torch)


def test_mods(golden: Any) -> None:
    """Every mod of `refused`, in one text."""
    shown = []
    for mod in (*refused.MASKS, *refused.SCORES):
        score_mod, mask_mod = (None, mod) if mod in refused.MASKS else (mod, None)
        with pytest.raises(AttnccError) as raised:
            attncc.flex_spec(score_mod, mask_mod=mask_mod)
        assert all(item.code in ("A705", "A707", "A713") and item.help for item in raised.value.diagnostics)
        shown.append(f"{mod.__name__}\n{raised.value}\n".replace(f"{FOLDER}/", ""))
    golden(FOLDER / "errors" / "A713_mods.txt", "\n".join(shown))


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask

    q, few = torch.zeros(2, 4, 8, 16), torch.zeros(2, 2, 8, 16)
    masks = create_block_mask(causal, None, None, 256, 256, device="cpu")
    return {
        "three axes": ((q[0], q, q), {}),
        "no tensor": ((q, None, q), {}),
        "heads": ((q, few, few), {}),
        "dtype": ((q.int(), q.int(), q.int()), {}),
        "fallback": ((q, q, q), {"fallback": "cudnn"}),
        "lengths": ((q, q, q, None, masks), {}),
        "slice": ((q, q, q, None, create_block_mask(causal, 2, 4, 8, 8, device="cpu")[0:1]), {}),
        "a function": ((q, q, q, None, causal), {}),
        "a text": ((q, q, q), {"mask_mod": "causal"}),
        "a score": ((q, q, q, "alibi"), {}),
        "a BlockMask for a score": ((q, q, q, masks), {}),
        "a tensor for a mask": ((q, q, q), {"mask_mod": q[0, 0] > 0}),
        "twice": ((q, q, q), {"return_lse": True, "return_aux": AuxRequest(lse=True)}),
        "no request": ((q, q, q), {"return_aux": True}),
        "maxima": ((q, q, q), {"return_aux": AuxRequest(max_scores=True)}),
    }


def test_calls(golden: Any) -> None:
    shown = []
    for name, (given, options) in calls().items():
        with pytest.raises(AttnccError) as raised:
            attncc.flex_attention(*given, **options)
        shown.append(f"{name}\n{raised.value}\n")
    golden(FOLDER / "errors" / "A714_calls.txt", "\n".join(shown))


def test_a_thousand_steps() -> None:
    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        for i in range(1000):
            score = score + (q_idx == kv_idx + i) * 0.5
        return score

    with pytest.raises(AttnccError, match="A711"):
        attncc.flex_spec(score_mod)


def test_kernel_options_are_not_silently_dropped() -> None:
    q = torch.zeros(1, 1, 8, 16)
    with pytest.warns(AttnccWarning, match="A715") as warned:
        attncc.flex_attention(q, q, q, kernel_options={"BLOCK_M": 64})
    assert warned[0].filename == __file__
