"""Masks of images in plain words, and 2-D tiles and windows of them, against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import examples

from .soundness import check_grid


@pytest.mark.parametrize("numbers", examples(120, every_day=20))
def test_plain_words_and_tiles_of_random_images_are_sound(numbers: range) -> None:
    """`python -m tests.property.soundness` goes on from here."""
    tried = sum(check_grid(np.random.default_rng((12, index)), f"grid {index}") for index in numbers)
    assert tried > 40 * len(numbers)
