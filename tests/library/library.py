"""All cases."""

from __future__ import annotations

from tests.library import blocks, documents, images, serving, windows
from tests.library.cases import Case

CASES: tuple[Case, ...] = tuple(
    item for family in (windows, documents, blocks, images, serving) for item in family.case.cases
)
