"""Some hundreds of damaged files; `python -m tests.property.mutations 100000` runs more of them."""

from __future__ import annotations

import random
import time

import pytest

from tests.examples import slow_beyond
from tests.property import mutations


@pytest.mark.parametrize("seed", slow_beyond(3, range(10)))
def test_an_answer_or_diagnostics_and_soon(seed: int) -> None:
    texts = mutations.sources()
    for number in range(50):
        text = mutations.mutated(random.Random(f"{seed} {number}"), texts)
        start = time.process_time()
        mutations.check(text)
        assert time.process_time() - start < 2 * mutations.SECONDS, text  # twice: machines that run tests are busy


def test_many_of_them_are_still_variants() -> None:
    """Else nothing behind the parser was tried."""
    texts = mutations.sources()
    found = [mutations.check(mutations.mutated(random.Random(f"0 {number}"), texts)) for number in range(100)]
    assert found.count("ok") > 5 and len(set(found)) > 8
