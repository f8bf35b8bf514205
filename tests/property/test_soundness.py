from __future__ import annotations

from .soundness import check_predicate


def test_the_first_predicates_of_the_long_run_are_sound() -> None:
    """`python -m tests.property.soundness` goes on from here."""
    assert sum(check_predicate(0, index) for index in range(150)) > 2000
