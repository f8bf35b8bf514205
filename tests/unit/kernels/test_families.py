"""The families: each is registered in one place, and nobody else asks which one a plan is of."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import attncc
from attncc.kernels.registry import find, load, why_not
from attncc.schedule.families import FAMILIES, KINDS
from attncc.schedule.plan import PASSES

PACKAGE = Path(attncc.__file__).parent
FOLDERS = {path.parent.name for path in (PACKAGE / "kernels").glob("*/__init__.py") if "FAMILY = " in path.read_text()}
# Where a family may be asked for by its name: in its own folder, and where it is registered.
OWN = [PACKAGE / "kernels", PACKAGE / "schedule" / "families.py", PACKAGE / "schedule" / "plan.py"]
# The name of a family, unless it is the key of a dict.
QUESTIONS = re.compile(rf"\bplan\.family\b|\.family\s*(==|!=|in\b)|[\"']({'|'.join(KINDS)})[\"'](?!:)")


def test_each_folder_is_registered() -> None:
    assert set(FAMILIES) == FOLDERS


def test_nobody_else_asks_which_family_a_plan_is_of() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if not any(path.is_relative_to(own) for own in OWN)]
    asked = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if QUESTIONS.search(line)
    ]
    assert asked == []


@pytest.mark.parametrize("pass_name", PASSES)
def test_one_family_of_each_kind_has_a_pass_or_says_why_it_lacks_it(pass_name: str) -> None:
    for kind in KINDS:
        having = [name for name, value in FAMILIES.items() if value == kind and pass_name in load(name).passes]
        assert len(having) == 1 or (not having and why_not(kind, pass_name))
    assert any(find(kind, pass_name) for kind in KINDS)


def test_no_two_families_have_the_same_plans() -> None:
    pairs = [(kind, name) for folder, kind in FAMILIES.items() for name in load(folder).passes]
    assert len(pairs) == len(set(pairs)) and set(pairs) <= set(product(KINDS, PASSES))
