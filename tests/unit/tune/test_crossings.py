"""Which crossing points a measurement finds, on a simulated GPU whose forms cross where a test says."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import pytest

from attncc.kernels.crossings import NEVER, Chip, Crossings
from attncc.tune.crossings import Found, Measurement, shown
from attncc.tune.points import POINTS, Point, Sample
from tests.unit.tune.simulated import Simulated, SimulatedGpu

TRUE = Crossings(split_keys=1000, merged_rows=30)  # where the forms of this GPU cross


def samples(chip: Chip) -> Iterator[Sample]:
    return (Sample(1, 1, 1, 1, keys) for keys in (192, 384, 768, 1536, 3072, 6144))


KEYS = Point("split_keys", "keys", (128, 256, 512, 1024, 2048, 4096, NEVER), samples)
ROWS = Point("merged_rows", "rows", (6, 24, 48), samples)


class Forms:
    """Two forms of each call: one is faster below TRUE, the other from there on, by `gap`. `linked`: the second point
    is right where it is until the first one is `linked`."""

    multiprocessors = 132

    def __init__(self, gap: float = 0.05, linked: float | None = None, seed: int = 0, seconds: float = 0.0) -> None:
        self.gpu, self.gap, self.linked, self.windows, self.seconds = SimulatedGpu(seed), gap, linked, 0, seconds
        self.prepared = False

    def clock(self) -> float:
        return self.windows * self.seconds

    def prepare(self) -> None:
        self.prepared = True

    def form(self, sample: Sample, crossings: Crossings) -> Hashable:
        return sample.kv_len >= crossings.split_keys, crossings.merged_rows

    def window(self, sample: Sample, crossings: Crossings) -> float:
        assert self.prepared
        self.windows += 1
        late, rows = self.form(sample, crossings)  # type: ignore[misc]
        time = 1.0 if late == (sample.kv_len >= TRUE.split_keys) else 1 + self.gap
        if self.linked is None or crossings.merged_rows == self.linked:
            time *= 1 + self.gap * (rows != 24)
        return self.gpu.window(Simulated(time), 20)


def measured(forms: Forms, held: Crossings, *points: Point, budget: float = 1e9) -> dict[str, Found]:
    found = Measurement(forms, held, budget, points=points)
    found.run()
    return found.found


@pytest.mark.parametrize(("held", "now"), [(128, 1024), (8192, 1024), (NEVER, 1024), (1024, 1024)])
def test_it_finds_where_forms_cross(held: float, now: float) -> None:
    found = measured(Forms(), Crossings(split_keys=held), KEYS)["split_keys"]
    assert (found.was, found.now) == (held, now)
    assert bool(found.why) == (held == now)
    if not found.why:
        assert found.interval[0] < found.gain < found.interval[1]
        assert found.gain == pytest.approx(0.05, abs=0.01)


def test_a_point_that_lies_as_well_stays() -> None:
    """1100 and 1024 divide the calls alike."""
    assert measured(Forms(), Crossings(split_keys=1100), KEYS)["split_keys"].now == 1100


@pytest.mark.parametrize("seed", range(10))
def test_forms_that_take_as_long_move_nothing(seed: int) -> None:
    found = measured(Forms(gap=0.0, seed=seed), Crossings(split_keys=2048), KEYS)["split_keys"]
    assert found.now == 2048 and found.why


def test_each_call_and_form_is_told() -> None:
    found = measured(Forms(), Crossings(split_keys=2048), KEYS)["split_keys"]
    of_1536 = next(timed for timed in found.timed if timed.sample.kv_len == 1536)
    assert of_1536.values == (128, 256, 512, 1024) and of_1536.ratio == pytest.approx(1 / 1.05, abs=0.02)


def test_points_that_depend_on_each_other() -> None:
    """The second pass sees what the first has moved."""
    found = measured(Forms(), Crossings(split_keys=128, merged_rows=6), KEYS, ROWS)
    assert (found["split_keys"].now, found["merged_rows"].now, found["merged_rows"].was) == (1024, 24, 6)


def test_a_gpu_with_one_form() -> None:
    class One(Forms):
        def form(self, sample: Sample, crossings: Crossings) -> Hashable:
            return "portable"

    forms = One()
    found = measured(forms, Crossings(), KEYS)["split_keys"]
    assert (found.now, found.is_measured, forms.windows) == (Crossings().split_keys, False, 0)
    assert "one form" in found.why


@pytest.mark.parametrize("budget", [0, 10, 25])
def test_time_is_over(budget: float) -> None:
    """What was measured before counts; a point that wasn't stays, and says so."""
    forms = Forms(seconds=0.1)
    found = measured(forms, Crossings(split_keys=128, merged_rows=6), KEYS, ROWS, budget=budget)
    assert forms.clock() <= budget + 0.2
    assert found["merged_rows"].now == 6 and found["merged_rows"].why == "time was over"
    assert found["split_keys"].now == (1024 if budget == 25 else 128)


def test_after_a_long_compilation() -> None:
    """There is half of the budget for windows."""

    class Slow(Forms):
        def prepare(self) -> None:
            self.windows += 1000

    forms = Slow(seconds=0.1)
    forms.prepared = True
    assert measured(forms, Crossings(split_keys=128), KEYS, budget=50)["split_keys"].now == 1024
    assert 100 < forms.clock() <= 125.2


def test_a_gpu_with_little_memory() -> None:
    class Small(Forms):
        def window(self, sample: Sample, crossings: Crossings) -> float:
            if sample.kv_len > 2000:
                raise MemoryError
            return super().window(sample, crossings)

    found = measured(Small(), Crossings(), KEYS, ROWS)
    assert [(item.is_measured, item.now == item.was) for item in found.values()] == [(False, True)] * 2
    assert "too little memory" in found["split_keys"].why


def test_every_crossing_point_is_measured() -> None:
    """Once, with the usual value or others on both sides of it; calls are large enough to be told apart by it."""
    assert sorted(point.name for point in POINTS) == sorted(Crossings._fields)
    for point in POINTS:
        usual = getattr(Crossings(), point.name)
        assert min(point.values) <= usual <= max(point.values)
        assert list(point.values) == sorted(set(point.values))
        for multiprocessors in (1, 20, 108, 132, 148):
            found = list(point.samples(Chip(multiprocessors)))
            assert found and all(sample.problem.kv_len > 0 for sample in found)


def test_numbers() -> None:
    assert [shown(value) for value in (2048, 0.9375, NEVER)] == ["2048", "0.9375", "never"]
