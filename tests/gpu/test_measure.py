"""`attncc explain --measure` on a GPU whose counters may be read: the model against the hardware."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from attncc.cli import attncc
from attncc.diagnostics import AttnccError
from attncc.measure import ncu

pytestmark = pytest.mark.gpu
# What all heads share, 17 MB, fits one half of an L2 cache: beyond it HBM is read more often than predicted.
SIZES = ("--q-len", "4096", "--head-dim", "128", "--heads", "8", "--batch", "1", "--format", "json")
# Of the bytes that leave L2: lse and delta, for which blocks of a cluster ask at once, and L2 may answer once.
STATISTICS = 0.03


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


@pytest.mark.parametrize("variant", ["full", "causal"])
@pytest.mark.parametrize("asked", ["forward", "backward"])
def test_bytes_are_those_that_were_predicted(variant: str, asked: str) -> None:
    ratios = _measured(variant, "--pass", asked)
    assert 0.98 - (STATISTICS if asked == "backward" else 0) < ratios["l2_reads"] < 1.02
    assert ratios["sm_reads"] == pytest.approx(1, abs=0.02)
    assert ratios["hbm_reads"] == pytest.approx(1, abs=0.05)
    if asked == "backward":
        assert ratios["reductions"] == pytest.approx(1, abs=0.02)
