"""Each kernel that the emulator runs takes a host compiler half a second. So of tests with four cases and more, half of
the cases are marked slow."""

from __future__ import annotations

from itertools import groupby

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow are the cases whose number has an odd number of ones. So both values of a parameter that has two stay."""
    ours = [item for item in items if item.path.name.startswith("test_emulated_")]
    for _, cases in groupby(ours, key=lambda item: item.nodeid.partition("[")[0]):
        found = list(cases)
        for number, item in enumerate(found):
            if len(found) >= 4 and number.bit_count() % 2:
                item.add_marker(pytest.mark.slow)
