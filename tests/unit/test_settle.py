"""Which of its candidates a kernel gets, by what a compiler says of each; none is compiled here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from attncc import settle as module
from attncc.codegen.render import KernelSource
from attncc.diagnostics import AttnccError, Diagnostic
from attncc.ir import Variant
from attncc.kernels import known_tiles
from attncc.kernels.candidates import Candidates, make_candidates
from attncc.machine_code import Compiled
from attncc.runtime.cuda.nvrtc import Resources
from attncc.runtime.store.store import MachineCode
from attncc.schedule.choice import Value
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule
from attncc.settle import FEW_SPILLS, LONGEST_CODE, Settled, settle
from tests.elf import image
from tests.emulator.sources import rendered

LOSS = "ptxas info : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized"
Said = int | str | AttnccError  # of a candidate: bytes of spills, a message, or that it can't be compiled


def candidates(
    target: str = "sm_90a", head_dim: int = 128, dtype: str = "bf16", pass_name: str = "forward", **settings: Value
) -> Candidates:
    given = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("s", "full", pass_name, target, given)
    return make_candidates(Variant("full"), Build(pass_name, target, dtype, head_dim, head_dim), schedule)


class Compiler:
    """Says of each candidate what a test wants, by its tiles. `begun` and `ended`: what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: dict[str, Said] = {}
        self.lengths: dict[str, int] = {}
        self.static: dict[str, int] = {}  # bytes of shared memory besides tiles
        self.begun: list[str] = []
        self.ended: list[str] = []
        self._tiles: dict[str, str] = {}
        self._futures: dict[Any, str] = {}
        monkeypatch.setattr(module, "render", rendered)  # most tests have the same candidates
        monkeypatch.setattr(module, "submit", self._submit)
        monkeypatch.setattr(module, "compiled", self._compiled)
        monkeypatch.setattr(module, "abandon", lambda future: self.ended.append(self._futures[future]))

    def knows(self, of: Candidates) -> None:
        self._tiles |= {rendered(plan).text: plan.tiles for plan in of.plans()}

    def _submit(self, source: KernelSource, target: str) -> Future[Any]:
        future: Future[Any] = Future()
        self._futures[future] = self._tiles[source.text]
        self.begun.append(self._tiles[source.text])
        return future

    def _compiled(self, source: KernelSource, target: str, begun: Future[Any] | None = None) -> Compiled:
        tiles = self._tiles[source.text]
        if begun is None:
            self.begun.append(tiles)
        found = self.said.get(tiles, 0)
        if isinstance(found, AttnccError):
            raise found
        spills, messages = (found, ()) if isinstance(found, int) else (0, (found,))
        resources = Resources(168, spills, spills, self.static.get(tiles, 0), 0.1, messages)
        code = MachineCode(
            image(self.lengths.get(tiles, 100)), "13.0", source.entry, source.threads, source.shared_bytes
        )
        return Compiled(code, resources)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path))
    monkeypatch.setattr(known_tiles, "_rows", dict)
    return Compiler(monkeypatch)


def settled(compiler: Compiler, of: Candidates, said: dict[str, Said], at_once: int = 1) -> Settled:
    compiler.knows(of)
    compiler.said = said
    return settle(of, at_once)


def tiles_of(of: Candidates) -> Sequence[str]:
    return [plan.tiles for plan in of.plans()]


def test_the_first_guess_if_it_does_not_spill(compiler: Compiler) -> None:
    found = settled(compiler, candidates(family="hopper"), {})
    assert found.plan.tiles == tiles_of(candidates(family="hopper"))[0]
    assert found.report()["choice"] == {"tiles": found.plan.tiles, "why": "the first guess: no spills", "rejected": {}}


@pytest.mark.parametrize("trouble", [4, LOSS])
def test_trouble_rejects(compiler: Compiler, trouble: int | str) -> None:
    first, second, *_ = tiles_of(candidates(family="hopper"))
    found = settled(compiler, candidates(family="hopper"), {first: trouble})
    assert found.plan.tiles == second
    assert list(found.rejected) == [first] and ("4 bytes" in found.rejected[first] or LOSS in found.rejected[first])
    assert found.why == "the first legal candidate without spills"


def test_what_would_not_load_is_rejected(compiler: Compiler) -> None:
    """The values of a variant's lines may stand in shared memory, beside the tiles; ptxas doesn't add them up."""
    of = candidates(family="hopper")
    first, second, *_ = tiles_of(of)
    compiler.static = {first: 227 * 1024}
    found = settled(compiler, of, {})
    assert found.plan.tiles == second and "the rest of the kernel 232448" in found.rejected[first]
    of = candidates(family="hopper", head_dim=64)
    compiler.static = dict.fromkeys(tiles_of(of), 227 * 1024)
    with pytest.raises(AttnccError) as error:
        settled(compiler, of, {})
    assert error.value.diagnostics[0].code == "A406"


def test_the_least_spills_if_all_do(compiler: Compiler) -> None:
    of = candidates(family="hopper")
    first, second, *others = tiles_of(of)
    found = settled(compiler, of, {first: 40, second: 8} | dict.fromkeys(others, 8))
    assert found.plan.tiles == second and set(found.rejected) == {first, *others}
    assert found.why == "of all tiles these have least trouble: 8 bytes of spills stored and 8 loaded"


def _families(of: Candidates) -> dict[str, list[str]]:
    """Tiles of the candidates, by their family, in order."""
    found: dict[str, list[str]] = {}
    for plan in of.plans():
        found.setdefault(plan.family, []).append(plan.tiles)
    return found


@pytest.mark.parametrize("at_once", [1, 3])
def test_few_spills_cost_less_than_a_slower_family(compiler: Compiler, at_once: int) -> None:
    hopper, portable = _families(candidates(pass_name="backward")).values()
    spills = dict.fromkeys(hopper, FEW_SPILLS) | {hopper[1]: FEW_SPILLS // 2}  # as much loaded as stored
    found = settled(compiler, candidates(pass_name="backward"), spills, at_once)
    assert found.plan.tiles == hopper[1] and "of the fastest family" in found.why and found.serves
    again = settled(compiler, candidates(pass_name="backward"), spills, at_once)
    assert (again.plan.tiles, again.rejected) == (found.plan.tiles, found.rejected)
    spills[hopper[1]] += 2
    more = settled(compiler, candidates(pass_name="backward", skip="never"), spills, at_once)
    assert more.plan.tiles == portable[0] and more.why == "the first legal candidate without spills"


def test_serialised_products_are_worse_than_a_slower_family(compiler: Compiler) -> None:
    hopper, portable = _families(candidates(pass_name="backward")).values()
    assert settled(compiler, candidates(pass_name="backward"), dict.fromkeys(hopper, LOSS)).plan.tiles == portable[0]


@pytest.mark.parametrize("knob", [{"block_q": 128}, {"block_kv": 64}, {"warps": 8}])
def test_tiles_that_a_schedule_names_stay(compiler: Compiler, knob: dict[str, int]) -> None:
    of = candidates(family="hopper", **knob)
    assert len(tiles_of(of)) == 1
    found = settled(compiler, of, {tiles_of(of)[0]: 12})
    assert not found.rejected
    assert found.why == "the schedule names its tiles; 12 bytes of spills stored and 12 loaded"


def test_candidates_compile_beside_each_other(compiler: Compiler) -> None:
    """The next ones begin while one is waited for; those that nobody needs are ended."""
    of = candidates(family="hopper")
    first, second, third, fourth, *_ = tiles_of(of)
    found = settled(compiler, of, {first: 4}, at_once=2)
    assert found.plan.tiles == second
    assert compiler.begun == [first, second, third] and third in compiler.ended and fourth not in compiler.begun


def test_what_was_tried_is_remembered(compiler: Compiler) -> None:
    of = candidates(family="hopper")
    first, second, *_ = tiles_of(of)
    before = settled(compiler, of, {first: 4})
    compiler.begun.clear()
    after = settled(compiler, candidates(family="hopper"), {first: 4})
    assert (after.plan.tiles, after.rejected, after.why) == (before.plan.tiles, before.rejected, before.why)
    assert compiler.begun == [second]


def test_other_candidates_are_tried_anew(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the first is the same: what was remembered is of the texts that were tried."""
    first, second, third, *_ = tiles_of(candidates(family="hopper"))
    settled(compiler, candidates(family="hopper"), {first: 4})

    def changed(plan: Any) -> KernelSource:
        source = rendered(plan)
        if plan.tiles == second:
            source = KernelSource(source.name, source.text + "// new", source.entry, source.threads, 0)
        compiler._tiles[source.text] = plan.tiles
        return source

    monkeypatch.setattr(module, "render", changed)
    assert settled(compiler, candidates(family="hopper"), {first: 4, second: 4}).plan.tiles == third


def test_damaged_memory_is_no_memory(compiler: Compiler, tmp_path: Path) -> None:
    first, second, *_ = tiles_of(candidates(family="hopper"))
    settled(compiler, candidates(family="hopper"), {first: 4})
    (kept,) = tmp_path.glob("*.choice")
    for text in ("", "{}", '{"texts": [], "troubles": [], "chosen": 3}'):
        kept.write_text(text)
        assert settled(compiler, candidates(family="hopper"), {first: 4}).plan.tiles == second


def test_long_code_is_not_good(compiler: Compiler) -> None:
    of = candidates(family="hopper")
    first, second, *others = tiles_of(of)
    compiler.lengths = {first: LONGEST_CODE[False] + 1, second: LONGEST_CODE[False]}
    found = settled(compiler, of, {})
    assert found.plan.tiles == second and "7,001 instructions" in found.rejected[first]
    compiler.lengths = dict.fromkeys([first, second, *others], 9000) | {second: 8000}
    long = settled(compiler, candidates(family="hopper", skip="never"), {})
    assert long.plan.tiles == second and "least trouble" in long.why


def test_what_takes_too_much_to_compile_is_passed_by(compiler: Compiler) -> None:
    too_long = AttnccError(Diagnostic("A907", "NVRTC didn't compile it"))
    of = candidates(family="hopper")
    first, second, *others = tiles_of(of)
    found = settled(compiler, of, {first: too_long})
    assert found.plan.tiles == second and found.rejected[first] == "NVRTC didn't compile it"
    with pytest.raises(AttnccError, match="A907"):
        settled(compiler, candidates(family="hopper", skip="never"), dict.fromkeys([first, second, *others], too_long))


def test_two_candidates_that_take_too_long_are_enough(compiler: Compiler) -> None:
    """So a kernel is given up within twice the limit of one, however many tiles there are."""
    too_long = AttnccError(Diagnostic("A907", "NVRTC didn't compile it"))
    first, second, third, *others = tiles_of(candidates(family="hopper", skip="never"))
    with pytest.raises(AttnccError, match="A907"):
        settled(compiler, candidates(family="hopper", skip="never"), dict.fromkeys([first, second], too_long))
    assert compiler.begun == [first, second] and others
    spills = settled(compiler, candidates(family="hopper", skip="never"), {first: 8, second: too_long, third: too_long})
    assert spills.plan.tiles == first and len(spills.rejected) == 2


def test_the_table_saves_the_tries(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    of = candidates(family="hopper")
    first, second, third, *_ = tiles_of(of)
    monkeypatch.setattr(known_tiles, "_rows", lambda: {of.key: third})
    found = settled(compiler, of, {first: 4, second: 4})
    assert (found.plan.tiles, compiler.begun, found.rejected) == (third, [third], {})
    assert of.first.tiles == third and "table" in found.why


@pytest.mark.parametrize("row", ["spills", "is no candidate"])
def test_a_stale_row_does_no_harm(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    of = candidates(family="hopper")
    first, second, third, *_ = tiles_of(of)
    monkeypatch.setattr(known_tiles, "_rows", lambda: {of.key: third if row == "spills" else row})
    assert settled(compiler, of, {first: 4, third: 4}).plan.tiles == second


def test_rows_are_for_what_is_compiled() -> None:
    """A kernel that is called otherwise, or comes from elsewhere, is the same; other tiles and inputs are not."""
    build = Build("forward", "sm_80", "bf16", 64, 64)
    key = make_candidates(Variant("full"), build).key
    assert make_candidates(Variant("other", documentation="Says nothing."), build).key == key
    for changed in (Build("decode", "sm_80", "bf16", 64, 64), Build("forward", "sm_80", "fp16", 64, 64)):
        assert make_candidates(Variant("full"), changed).key != key
    assert make_candidates(Variant("full", normalize="none"), build).key != key
    never = Schedule("s", "full", "forward", "sm_80", (("skip", ("never",)),))
    assert make_candidates(Variant("full"), build, never).key != key
