"""`attncc explain --measure` on a GPU whose counters may be read: the model against the hardware."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from attncc.cli import attncc
from attncc.diagnostics import AttnccError
from attncc.measure import ncu

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
SIZES = ("--batch", "1", "--format", "json")
# At most 17 MB of keys and values, which fit one half of an L2 cache: beyond it HBM is read more often than predicted.
# Full attention has as many heads as make one wave of the kernel with clusters: with 8 it runs the one for few blocks,
# whose blocks go over the same keys side by side, and 0.4 of what is predicted is read from L2.
CASES = (
    ("full", 4096, 128, 6),
    ("causal", 4096, 128, 8),
    ("sliding_window", 3000, 80, 8),  # half-empty boxes of TMA
)


def _measured(variant: str, *arguments: str) -> dict[str, float]:
    """The ratio of each quantity of the call's own kernel."""
    try:
        ncu.find(None)
    except AttnccError as error:
        pytest.skip(str(error))
    result = CliRunner().invoke(attncc, ["explain", variant, *SIZES, "--measure", *arguments])
    if "A541" in result.output:
        pytest.skip(result.output)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    print(json.dumps(told, indent=2))
    own = f"{variant}_{told['plan']['pass']}"
    return {row["name"]: row["ratio"] for row in told["rows"] if row["kernel"] == own}


@pytest.mark.parametrize("asked", ["forward", "backward"])
@pytest.mark.parametrize(("variant", "length", "head_dim", "heads"), CASES)
def test_bytes_are_those_that_were_predicted(variant: str, length: int, head_dim: int, heads: int, asked: str) -> None:
    sizes = ("--q-len", str(length), "--head-dim", str(head_dim), "--heads", str(heads))
    ratios = _measured(variant, *sizes, "--pass", asked)
    assert ratios["sm_reads"] == pytest.approx(1, abs=0.005)
    assert ratios["sm_writes"] == pytest.approx(1, abs=0.005)
    assert ratios["hbm_reads"] == pytest.approx(1, abs=0.05)
    if head_dim % 64 == 0:  # multiprocessors that ask at the same time are often answered at once
        assert 0.9 < ratios["l2_reads"] < 1.01
    if asked == "backward":
        assert ratios["reductions"] == pytest.approx(1, abs=0.005)
