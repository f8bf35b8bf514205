"""Mods that `.attn` can't express, each with one mistake. `errors/` holds what their authors are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

TABLE = torch.linspace(-1, 1, 8)
ARRAY = np.arange(8) // 3
SMALL = torch.tensor([1, 2, 3], dtype=torch.uint8)


def an_if(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    if h > 2:
        return q_idx >= kv_idx
    return kv_idx >= 0


def an_and(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx > 3


def a_loop(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    for i in range(h):
        score = score + i
    return score


def an_item(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score * TABLE.tolist()[h.item()]


def a_running_sum(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (
        score
        + torch.cumsum(
            TABLE * score,
            0,
        )[h]
    )


def random_numbers(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + torch.rand(())


def dropout(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.nn.functional.dropout(score, 0.1)


def narrow_ints(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return SMALL[h] - SMALL[b] > 2


def doubles(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + (q_idx.double() / 3)


def a_table_of_doubles(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + TABLE_OF_DOUBLES[h]


def a_table(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + TABLE


def a_tuple(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score, h


def nothing(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> None:
    pass


def an_assignment(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    TABLE[h] = 0
    return score + TABLE[h]


def a_change(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + TABLE.mul_(2)[h]


def a_change_by_the_pair(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + TABLE.add_(h)[h]


def a_bool_index(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + TABLE[q_idx > kv_idx]


def too_many_indices(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + TABLE[b, h]


def a_long_sum(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + (torch.ones(100) * score).sum()


def arguments(score: Any, b: Any) -> Any:
    return score


def its_own_error(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + {"a": 1}["b"]


def infinity(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.tanh(torch.where(q_idx >= kv_idx, score, -float("inf")))


def a_power(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score**q_idx


def five_axes(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return DEEP[b, h, q_idx, kv_idx, 0]


DEEP = torch.ones(1, 1, 1, 1, 1, dtype=torch.bool)
TABLE_OF_DOUBLES = TABLE.double()
nowhere: Any = eval("lambda b, h, q_idx, kv_idx: not q_idx >= kv_idx")


def a_list(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return [0, 0, 1, 1][q_idx] == 0


def an_array(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return ARRAY[q_idx] == ARRAY[kv_idx]


def a_mask_for_a_score(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def a_score_for_a_mask(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + h


MASKS = (an_if, an_and, a_list, an_array, a_score_for_a_mask, narrow_ints, nothing, five_axes, nowhere)
SCORES = (
    a_loop, an_item, a_running_sum, random_numbers, dropout, doubles, a_table_of_doubles, a_table, a_tuple,
    an_assignment, a_change, a_change_by_the_pair,
    a_mask_for_a_score, a_bool_index, too_many_indices, a_long_sum, arguments, its_own_error, infinity, a_power,
)  # fmt: skip
