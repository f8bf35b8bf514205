"""The statistics of `attncc tune`, on a simulated GPU: what is the fastest is found, and luck doesn't win."""

from __future__ import annotations

import pytest

from attncc.tune.race import GLANCE, HELD, ROUNDS, TWIN, Block, Board, Timer, confirm, halve, judge, ranked
from tests.unit.tune.simulated import Simulated, SimulatedGpu


def timer(gpu: SimulatedGpu, times: dict[str, float], seconds: float = 60) -> Timer:
    return Timer(gpu, {name: Simulated(time) for name, time in times.items()}, gpu.clock() + seconds)


def wins(times: dict[str, float], seed: int, **noise: float) -> bool:
    """Whether the fastest challenger beats what is held."""
    found, board = timer(SimulatedGpu(seed, **noise), times), Board()
    found.warm()
    first, *_ = halve(found, board, [name for name in times if name not in (HELD, TWIN)], seed)
    return confirm(found, board, first).wins


@pytest.mark.parametrize("challengers", [1, 12])
@pytest.mark.parametrize("batch", range(10))
def test_a_launch_never_beats_itself(challengers: int, batch: int) -> None:
    """Twenty tries for each of ten batches: not one win of 200."""
    times = {HELD: 1.0, TWIN: 1.0} | {f"same {number}": 1.0 for number in range(challengers)}
    assert not any(wins(times, seed) for seed in range(20 * batch, 20 * batch + 20))


def test_no_win_where_the_card_is_at_its_noisiest() -> None:
    times = {HELD: 0.3, TWIN: 0.3, "a": 0.3, "b": 0.3}
    assert not any(wins(times, seed, noise=0.02, spikes=0.2, warming=0.2, placement=0.0025) for seed in range(40))


def test_what_is_two_percent_faster_wins() -> None:
    times = {HELD: 1.0, TWIN: 1.0, "a": 0.98, "b": 1.3, "c": 1.05}
    assert sum(wins(times, seed) for seed in range(40)) >= 38


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_found_within_one_percent(seed: int) -> None:
    gpu = SimulatedGpu(seed)
    times = {HELD: 1.0, **{str(number): 0.9 + 0.013 * (number * 7 % 17) for number in range(17)}}
    found = halve(timer(gpu, times), Board(), [name for name in times if name != HELD], seed)
    assert times[found[0]] <= 1.01 * 0.9
    assert gpu.seconds < 30


def test_those_that_are_slow_for_sure_get_few_blocks() -> None:
    board, times = Board(), {HELD: 1.0, "slow": 2.0, "slower": 3.0, "good": 0.9, "better": 0.89}
    halve(timer(SimulatedGpu(1), times), board, [name for name in times if name != HELD])
    assert len(board.raced["slow"]) == len(board.raced["slower"]) == GLANCE
    assert len(board.raced["better"]) > ROUNDS[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_first_glance_keeps_the_best(seed: int) -> None:
    """Of a noisy card: whoever is within one percent of the best of 30 is found, though most go after two blocks."""
    times = {HELD: 1.0, "best": 0.95, **{str(number): 0.96 + 0.02 * number for number in range(29)}}
    found = timer(SimulatedGpu(seed, noise=0.015, spikes=0.1, warming=0.2), times)
    board = Board()
    found.warm()
    first, *_ = halve(found, board, [name for name in times if name != HELD], seed)
    assert times[first] <= 1.011 * times["best"]
    assert sum(len(blocks) == GLANCE for blocks in board.raced.values()) >= 15


def test_a_duel_shares_windows_between_two_launches_only() -> None:
    """Neighbouring blocks share a window of the held launch; those of one launch have none in common."""
    found, board = timer(SimulatedGpu(1), {HELD: 1.0, TWIN: 1.0, "a": 0.9}), Board()
    confirm(found, board, "a")
    duel, twin = board.confirmed["a"], board.confirmed[TWIN]
    assert all(one.after == other.before for one, other in zip(duel, twin, strict=True))
    assert not {block.after for block in duel} & {block.before for block in duel}
    alone = Board()
    confirm(timer(SimulatedGpu(1), {HELD: 1.0, "a": 0.9}), alone, "a")
    blocks = alone.confirmed["a"]
    assert not {block.after for block in blocks} & {block.before for block in blocks}


@pytest.mark.parametrize("seed", range(5))
def test_drift_favours_nobody(seed: int) -> None:
    """Blocks stand for themselves: from a cold card on, the ratio of equals is 1, which first against last isn't."""
    gpu = SimulatedGpu(seed, noise=0.001, spikes=0, placement=0, warming=0.2)
    times = {HELD: 1.0, "same": 1.0}
    found = timer(gpu, times)
    first = found.block("same")
    for _ in range(60):
        last = found.block("same")
        assert abs(last.ratio - 1) < 0.006
    assert last.own / first.own > 1.08


def test_time_that_runs_out_ends_the_race() -> None:
    gpu, board = SimulatedGpu(3), Board()
    times = {HELD: 5.0, **{str(number): 5.0 for number in range(30)}}
    halve(timer(gpu, times, seconds=2), board, [name for name in times if name != HELD])
    assert gpu.clock() < 2.2
    assert ranked(board, times)


def test_long_launches_keep_the_time() -> None:
    """A launch of half a second: its first window is one launch."""
    gpu = SimulatedGpu(3)
    found, board = timer(gpu, {HELD: 400.0, "a": 500.0, "b": 450.0}, seconds=10), Board()
    found.warm()
    halve(found, board, ["a", "b"])
    confirm(found, board, "b")
    assert gpu.clock() < 11


def test_blocks_of_an_earlier_run_count() -> None:
    times = {HELD: 1.0, "a": 0.9, "b": 0.95}
    board = Board({name: [Block(1.0, times[name], 1.0)] * ROUNDS[-1] for name in "ab"})
    gpu = SimulatedGpu()
    assert halve(timer(gpu, times), board, ["a", "b"]) == ["a"]
    assert gpu.launches == 0


def test_a_race_that_was_cut_short_is_believed_only_where_it_is_obvious() -> None:
    def board(ratio: float) -> Board:
        return Board({"a": [Block(1.0, ratio, 1.0)] * ROUNDS[0]})

    assert judge(board(0.8), "a").wins
    assert not judge(board(0.97), "a").wins
    assert not judge(Board({"a": [Block(1.0, 0.5, 1.0)] * 2}), "a").wins


def test_an_unsteady_twin_raises_the_floor() -> None:
    own, twin = [Block(1.0, 0.98, 1.0)] * 15, [Block(1.0, 0.985, 1.0)] * 15
    assert judge(Board(confirmed={"a": own}), "a").wins
    found = judge(Board(confirmed={"a": own, TWIN: twin}), "a")
    assert not found.wins and found.floor == pytest.approx(0.03)
