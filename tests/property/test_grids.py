"""Masks of images in plain words, and 2-D tiles and windows of them, against brute force."""

from __future__ import annotations

import numpy as np

from .soundness import check_grid


def test_plain_words_and_tiles_of_random_images_are_sound() -> None:
    """`python -m tests.property.soundness` goes on from here."""
    assert sum(check_grid(np.random.default_rng((12, index)), f"grid {index}") for index in range(120)) > 5000
