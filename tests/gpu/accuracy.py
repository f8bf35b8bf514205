"""The accuracy rule, for tensors on a GPU."""

from __future__ import annotations

from typing import Any

from attncc.reference.accuracy import EPSILON, Accuracy

FEW_ERRORS = 64  # so few have no mean to speak of


def judge(out: Any, plain: Any, exact: Any, dtype: str, *, terms: Any = None, spread: Any = None) -> Accuracy:
    """`attncc.reference.accuracy`, computed where the arrays are. `terms`: what `out` sums up in fp32, unsigned. The
    roundoff of that counts as an error of the baseline. `spread`: how large the baseline's error typically is, which
    counts where it is less by chance."""
    own, other = (out.double() - exact).abs(), (plain - exact).abs()
    if spread is not None:
        other = other.maximum(spread)
    if terms is not None:
        other = other + EPSILON["fp32"] / 2 * terms
    allowance = EPSILON[dtype] * float(exact.square().mean().sqrt())
    return Accuracy(float(own.max()), float(own.mean()), float(other.max()), float(other.mean()), allowance)


def gradient_holds(accuracy: Accuracy, plain: Any, exact: Any) -> bool:
    """The rule for dq, dk or dv, whose rows are along the last axis.

    Of a gradient that is 0 throughout, as where no query sees two keys, an error of a row is one number times its key,
    or query: so many rows, so many errors. Of few the largest alone is judged.
    """
    errors = int((plain != exact).any(-1).sum())
    if errors < FEW_ERRORS and not exact.any():
        return accuracy.max_error <= accuracy.max_limit
    return accuracy.holds


def check_forward(out: Any, lse: Any, arguments: Any, dtype: str) -> None:
    """The rule for out, and lse, if there is one, within what the exponentials' fp32 allows."""
    import torch

    from tests.gpu.calls import DTYPES
    from tests.gpu.torch_oracle import baseline, oracle

    exact, exact_lse = oracle(arguments)
    accuracy = judge(out, baseline(arguments, DTYPES[dtype]), exact, dtype)
    assert accuracy.holds, accuracy
    if lse is not None:
        torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-3)
