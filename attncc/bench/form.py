"""What a variant amounts to on one problem: libraries have causal masks, windows and soft caps as options.

The functions of a variant are looked at, not its text, so it doesn't matter how it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..ir import reads
from .case import Case, Mod, Tensor

_PROBES = 1024
_CLOSE = 1e-9


@dataclass(frozen=True)
class Form:
    """`left` and `right`: a row keeps the keys from q_pos - left to q_pos + right, all there are where it is None;
    `band` says whether the mask is that. Scores are plain, capped at `cap`, or have something added (`additive`)."""

    band: bool
    left: int | None = None
    right: int | None = None
    plain: bool = True
    cap: float | None = None
    additive: bool = True

    @property
    def full(self) -> bool:
        return self.band and self.left is None and self.right is None

    @property
    def causal(self) -> bool:
        return self.band and self.left is None and self.right == 0


def form_of(case: Case) -> Form:
    return _with_scores(case, _band(case))


def _band(case: Case) -> Form:
    """Where the mask depends on positions alone, the band that it is."""
    conditions = [keep.condition for keep in case.variant.keeps]
    tensors = {item.name for item in case.variant.inputs if item.axes}
    if reads(case.variant, *conditions) & (tensors | {"b", "h", "kv_h"}):
        return Form(band=False)
    ahead, kv_len = case.problem.kv_len - case.problem.q_len, case.problem.kv_len
    keys = torch.arange(kv_len, device=case.device)
    least, most = kv_len, -kv_len  # of q_pos - kv_idx, over kept pairs
    for rows, kept in case.masked(0, 0):
        distance = (rows[:, None] + ahead - keys)[kept]
        if distance.numel():
            least, most = min(least, int(distance.min())), max(most, int(distance.max()))
    for rows, kept in case.masked(0, 0):
        distance = rows[:, None] + ahead - keys
        if not torch.equal(kept, (distance >= least) & (distance <= most)):
            return Form(band=False)
    first, last = ahead - (kv_len - 1), ahead + case.problem.q_len - 1
    return Form(True, None if most >= last else most, None if least <= first else -least)


def _with_scores(case: Case, form: Form) -> Form:
    """The same with what is seen of the score lines at random pairs."""
    score_mod = case.mods(torch.float64)[1]
    if score_mod is None:
        return form
    places = _places(case)
    changed = _changed(score_mod, places)
    score = changed.new_tensor(_SCORES)
    zero = changed[_SCORES.index(0.0)]
    additive = _same(changed, score[:, None] + zero)
    cap = None
    if _same(changed, changed[:, :1].expand_as(changed)):
        limit = float(changed[-1, 0])
        cap = limit if limit > 0 and _same(changed[:, 0], limit * torch.tanh(score / limit)) else None
    plain = additive and _same(zero, torch.zeros_like(zero))
    return Form(form.band, form.left, form.right, plain, cap, additive)


_SCORES = (-90.0, -7.0, -1.0, -0.25, 0.0, 0.5, 3.0, 25.0, 1e12)


def _places(case: Case) -> list[Tensor]:
    problem, generator = case.problem, torch.Generator().manual_seed(0)
    lengths = problem.batch, problem.num_heads, problem.q_len, problem.kv_len
    return [torch.randint(length, (_PROBES,), generator=generator).to(case.device) for length in lengths]


def _changed(score_mod: Mod, places: list[Tensor]) -> Tensor:
    """Some scores at some places after the score lines [scores, places]."""
    at = torch.zeros(_PROBES, dtype=torch.float64, device=places[0].device)
    return torch.stack([score_mod(at + score, *places).expand(_PROBES) for score in _SCORES])


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs() <= _CLOSE * (1 + other.abs())).all())
