"""Each kernel that the emulator runs takes a host compiler half a second. So of the cases of a test
the first stays, and every eleventh behind it; all others are marked slow. Some files choose for themselves."""

from __future__ import annotations

from itertools import groupby

import pytest

CHOOSE = {"test_emulated_caches.py", "test_emulated_low_scores.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Eleven is odd: so both values of a parameter that has two stay."""
    ours = [item for item in items if item.path.name.startswith("test_emulated_")]
    ours = [item for item in ours if item.path.name not in CHOOSE]
    for _, cases in groupby(ours, key=lambda item: item.nodeid.partition("[")[0]):
        for number, item in enumerate(cases):
            if number % 11:
                item.add_marker(pytest.mark.slow)
