"""What makes `flex_attention` trace and compile again, and what doesn't; each time the result is that of the mod."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from attncc.flex import attention  # noqa: E402  (needs torch)
from tests.unit.flex.live import dense  # noqa: E402

FACTOR = 2.0
TABLE = torch.tensor([0.5, -1.0])


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "cache", attention.Cache())
    attncc.api._kernels.clear()


def traces(score_mod: Any, lengths: tuple[int, int] = (8, 8)) -> int:
    """How often a call, which must give what torch gives, has traced."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, rows, 8) for rows in (lengths[0], lengths[1], lengths[1]))
    before = attention.cache.traces
    ours = attncc.flex_attention(q, k, v, score_mod)
    torch.testing.assert_close(ours, dense(q, k, v, score_mod), rtol=1e-5, atol=1e-5)
    return attention.cache.traces - before


def made(table: Any, by: Any = 1.0) -> Callable[..., Any]:
    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + table[h] * by

    return score_mod


def test_tensors_and_lengths_change_nothing() -> None:
    assert traces(made(TABLE)) == 1
    kernels = len(attncc.api._kernels)
    assert traces(made(torch.tensor([3.0, 4.0]))) == 0
    assert traces(made(torch.tensor([3.0, 4.0, 5.0])), (8, 19)) == 0
    table = TABLE.clone()
    mod = made(table)
    assert traces(mod) == 0
    table.mul_(3)
    assert traces(mod) == 0
    assert len(attncc.api._kernels) == kernels == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: made(TABLE, 2.0), id="number"),
        pytest.param(lambda: made(TABLE, True), id="bool for a number"),
        pytest.param(lambda: made(TABLE.bfloat16()), id="dtype"),
        pytest.param(lambda: made(TABLE.clone().requires_grad_()), id="gradient"),
        pytest.param(lambda: made(TABLE, torch.tensor(2.0)), id="a tensor for a number"),
    ],
)
def test_what_traces_again(other: Callable[[], Any]) -> None:
    mod = other()
    assert traces(made(TABLE)) == 1
    assert traces(mod) == 1
    assert traces(mod) == 0


def by_global(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return helper(score) + TABLE[h]


def helper(score: Any) -> Any:
    return score * FACTOR


def test_globals_of_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [traces(by_global), traces(by_global)] == [1, 0]
    monkeypatch.setitem(globals(), "TABLE", torch.tensor([7.0, 8.0]))
    assert traces(by_global) == 0
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert traces(by_global) == 1
    monkeypatch.setitem(globals(), "helper", lambda score: score - 1)
    assert traces(by_global) == 1


def test_defaults_and_partial() -> None:
    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any, by: Any = 2.0) -> Any:  # noqa: PLR0917
        return score * by

    assert [traces(score_mod), traces(score_mod)] == [1, 0]
    assert [traces(functools.partial(score_mod, by=3.0)), traces(functools.partial(score_mod, by=3.0))] == [1, 0]
    assert traces(functools.partial(score_mod, by=torch.tensor(3.0))) == 1
    assert traces(functools.partial(score_mod, by=torch.tensor(4.0))) == 0
    score_mod.__defaults__ = (5.0,)
    assert traces(score_mod) == 1


class Layer(torch.nn.Module):
    width = 1

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.tensor([0.5, -1.0]))
        self.register_buffer("ends", torch.tensor([3, 6]))
        self.options = {"by": 2.0, "tables": [TABLE]}

    @property
    def twice(self) -> Any:
        return self.options["by"] * 2

    def mod(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        inside = kv_idx < self.ends[b] + self.width
        return torch.where(inside, score * self.twice + self.table[h], score + self.options["tables"][0][h])


def test_modules() -> None:
    layer, other = Layer(), Layer()
    assert [traces(layer.mod), traces(layer.mod), traces(other.mod)] == [1, 0, 0]
    other.ends = torch.tensor([1, 2])
    other.table = torch.nn.Parameter(torch.tensor([9.0, 8.0]))
    other.options["tables"][0] = torch.tensor([4.0, 5.0])
    assert traces(other.mod) == 0
    other.options["by"] = 3.0
    assert traces(other.mod) == 1
    other.width = 2
    assert traces(other.mod) == 1
    other.table.requires_grad_(False)
    assert traces(other.mod) == 1
    assert traces(layer.mod) == 0


class Attention(torch.nn.Module):  # type: ignore[misc]
    """A module that hands out a method of its own: its `forward` leads to attncc itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.by = torch.nn.Linear(8, 8), 2.0

    def mod(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * self.by

    def forward(self, q: Any) -> Any:
        q = self.inner(q)
        return attncc.flex_attention(q, q, q, self.mod)


def test_a_module_that_calls_it_with_a_method_is_traced_once() -> None:
    layer = Attention()
    assert [traces(layer.mod), traces(layer.mod)] == [1, 0]
    layer.by = 3.0
    assert traces(layer.mod) == 1


def test_tensors_that_are_one_and_then_two() -> None:
    def made(left: Any, right: Any) -> Any:
        return lambda score, b, h, q_idx, kv_idx: score + left[h] * right[b]

    assert traces(made(TABLE, TABLE)) == 1
    assert traces(made(TABLE, TABLE + 1)) == 1
    assert traces(made(TABLE + 2, TABLE + 1)) == 0


def test_what_a_mod_computes_of_its_tensors() -> None:
    def made(table: Any) -> Any:
        def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            places = torch.arange(2) + 1
            return score * table.max() + (table * 2).softmax(0)[h] - table[-1] * places[h]

        return score_mod

    assert traces(made(TABLE)) == 1
    assert traces(made(TABLE + 3)) == 0
    assert traces(made(torch.tensor([3.0, 4.0, 5.0]))) == 0


def test_of_shapes_that_a_mod_asks_for_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_MOST_SHAPES", 2)

    def made(table: Any) -> Callable[..., Any]:
        return lambda score, b, h, q_idx, kv_idx: score * table.shape[0] + table[h]

    for length, expected in ((2, 1), (3, 1), (2, 0), (4, 1), (3, 0), (2, 1)):
        assert traces(made(torch.ones(length))) == expected
    (kept,) = attention.cache.entries.values()
    assert len(kept) == 2


def test_shapes_that_a_mod_asks_for() -> None:
    def made(table: Any) -> Any:
        return lambda score, b, h, q_idx, kv_idx: score * table.shape[0] + table[h]

    assert [traces(made(TABLE)), traces(made(TABLE + 1))] == [1, 0]
    longer = torch.tensor([3.0, 4.0, 5.0])
    assert [traces(made(longer)), traces(made(longer * 2)), traces(made(TABLE))] == [1, 0, 0]


def test_values_that_python_asks_for_are_traced_each_time() -> None:
    def made(table: Any) -> Any:
        return lambda score, b, h, q_idx, kv_idx: score * float(table[0]) if table[1] > 0 else score

    for first, second in ((1.0, 2.0), (3.0, 2.0), (3.0, -2.0)):
        assert traces(made(torch.tensor([first, second]))) == 1


class Sealed:
    """Gives a table by means that its key can't see."""

    def __init__(self, table: Any) -> None:
        self.held = {"table": table}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["held"]["table"]


def test_what_a_key_cannot_see_through_is_traced_each_time() -> None:
    def made(source: Any) -> Any:
        return lambda score, b, h, q_idx, kv_idx: score + source.anything[h]

    assert [traces(made(Sealed(TABLE))), traces(made(Sealed(TABLE + 1)))] == [1, 1]


class Doubled:
    def __get__(self, owner: Any, kind: Any) -> Any:
        return owner.half * 2


class Base:
    def __init__(self, by: float) -> None:
        self.by, self.half, self.shift = by, by / 2, 1.0

    def above(self) -> Any:
        return self.by


class Reading(Base):
    """An object whose one number can be read in many ways."""

    doubled = Doubled()

    @functools.cached_property
    def cached(self) -> Any:
        return self.by

    @functools.partialmethod
    def given(self, factor: float) -> Any:
        return self.by * factor

    def above(self) -> Any:
        return super().above()

    def __add__(self, other: float) -> Any:
        return self.by + other

    def __float__(self) -> Any:
        return self.by

    def __enter__(self) -> Any:
        return self.by

    def __exit__(self, *_: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return self.by == other

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self.by)


def matched(reading: Any) -> Any:
    match reading:
        case Reading(by=by):
            return by


def entered(reading: Any) -> Any:
    with reading as by:
        return by


READ = Reading(2.0)
WAYS: dict[str, Callable[[], Any]] = {
    "getattr": lambda: getattr(READ, "by"),  # noqa: B009  (the way that is tried)
    "vars": lambda: vars(READ)["by"],
    "globals": lambda: globals()["READ"].by,
    "eval": lambda: eval("READ.by"),
    "attrgetter": lambda: operator.attrgetter("by")(READ),
    "methodcaller": lambda: operator.methodcaller("above")(READ),
    "a class pattern": lambda: matched(READ),
    "a descriptor": lambda: READ.doubled,
    "a cached property": lambda: READ.cached,
    "a partial method": lambda: READ.given(1.0),
    "super": lambda: READ.above() * 1.0,
    "an operator": lambda: READ + 0.0,
    "float()": lambda: float(READ),
    "with": lambda: entered(READ),
    "==": lambda: 2.0 if READ == 2.0 else 3.0,
    "a format": lambda: float(f"{READ}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_reading_a_number_sees_that_it_changed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = WAYS[way]

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * read()

    for by in (2.0, 3.0):
        monkeypatch.setitem(globals(), "READ", Reading(by))
        assert traces(score_mod) == 1


def test_helpers_that_read_different_attributes_of_one_object() -> None:
    settings = Base(2.0)

    def scaled(score: Any) -> Any:
        return score * settings.by

    def shifted(score: Any) -> Any:
        return score + settings.shift

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return shifted(scaled(score)) * kv_idx

    assert [traces(score_mod), traces(score_mod)] == [1, 0]
    settings.shift = 5.0
    assert traces(score_mod) == 1
    settings.half = 7.0  # nobody reads it
    assert traces(score_mod) == 0


def test_an_object_that_is_made_in_a_mod(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        def __init__(self) -> None:
            self.by = FACTOR

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * Made().by

    assert [traces(score_mod), traces(score_mod)] == [1, 0]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert traces(score_mod) == 1


def test_plain_objects() -> None:
    def made(source: Any) -> Any:
        return lambda score, b, h, q_idx, kv_idx: score * source.by + source.table[h]

    assert [traces(made(SimpleNamespace(table=TABLE + n, by=2))) for n in range(2)] == [1, 0]
    assert traces(made(SimpleNamespace(table=TABLE, by=3))) == 1


class Settings(dict[str, Any]):
    """A collection with an attribute."""


def test_collections_with_attributes() -> None:
    settings = Settings(by=2.0)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * settings["by"] + settings.shift + TABLE.more

    settings.shift = TABLE.more = 1.0
    assert [traces(score_mod), traces(score_mod)] == [1, 0]
    settings.shift = 2.0
    assert traces(score_mod) == 1
    TABLE.more = 3.0
    assert traces(score_mod) == 1
    del TABLE.more


def test_gradients_of_what_a_mod_computes_are_not_lost_by_a_call_without_them() -> None:
    slope = torch.tensor([0.5, 0.25], requires_grad=True)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * slope.exp()[h]

    q = torch.randn(1, 2, 8, 8)
    with torch.no_grad():
        attncc.flex_attention(q, q, q, score_mod)
    for _ in range(2):
        (found,) = torch.autograd.grad(attncc.flex_attention(q, q, q, score_mod).sum(), [slope])
        (wanted,) = torch.autograd.grad(dense(q, q, q, score_mod).sum(), [slope])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_oldest_keys_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_MOST_ENTRIES", 2)
    assert [traces(made(TABLE, by)) for by in (1.0, 2.0, 3.0, 1.0, 3.0)] == [1, 1, 1, 1, 0]
    assert len(attention.cache.entries) == 2
