"""What several suites of the GPU share."""

from __future__ import annotations

import pytest

from tests.devices import cuda


@pytest.fixture(params=["portable", "hopper"])
def family(request: pytest.FixtureRequest) -> str:
    if request.param == "hopper" and cuda().target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    return str(request.param)
