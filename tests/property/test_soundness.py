from __future__ import annotations

import pytest

from tests.examples import examples

from .soundness import check_predicate


@pytest.mark.parametrize("numbers", examples(150, every_day=25))
def test_the_first_predicates_of_the_long_run_are_sound(numbers: range) -> None:
    """`python -m tests.property.soundness` goes on from here."""
    assert sum(check_predicate(0, index) for index in numbers) > 13 * len(numbers)
