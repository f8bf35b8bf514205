"""Which lines of a log can be gone on from: people edit files, and disks fill up in the middle of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..schedule.choice import KNOBS
from .race import HELD

Test = Callable[[Any], bool]


def is_whole(record: Mapping[str, Any]) -> bool:
    """Whether a record has all that is read of its kind. Of kinds that nobody reads, nothing is asked."""
    fields = _FIELDS.get(str(record["what"]), {})
    if not all(name in record and test(record[name]) for name, test in fields.items()):
        return False
    return record["what"] != "compiled" or record["settings"] is not None or record["name"] == HELD


def _is(*kinds: type) -> Test:
    return lambda value: type(value) in kinds


def _is_number(value: Any) -> bool:
    """A finite float; JSON has integers that no float holds."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _are(test: Test, count: int) -> Test:
    return lambda value: isinstance(value, list) and len(value) == count and all(map(test, value))


def _is_time(value: Any) -> bool:
    return _is_number(value) and value > 0


def _are_settings(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(map(_is_setting, value, value.values())))


def _is_setting(name: str, value: Any) -> bool:
    return name in KNOBS and type(value) in (int, str)


_FIELDS: dict[str, dict[str, Test]] = {
    "begun": {"identity": _is(dict)},
    "compiled": {"name": _is(str), "settings": _are_settings, "trouble": _is(str), "spills": _is(bool)},
    "block": {"kind": lambda kind: kind in ("raced", "confirmed"), "name": _is(str), "milliseconds": _are(_is_time, 3)},
    "checked": {"name": _is(str), "trouble": _is(str), "bits_differ": _is(bool, type(None))},
    "verdict": {
        **{"name": _is(str), "wins": _is(bool), "gain": _is_number, "floor": _is_number},
        **{"interval": _are(_is_number, 2), "bits_differ": _is(bool, type(None))},
    },
}
