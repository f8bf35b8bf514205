from __future__ import annotations

import numpy as np

from attncc.reference import accuracy, accuracy_where_defined

ORACLE = np.linspace(-1, 1, 101)


def test_figures() -> None:
    figures = accuracy(ORACLE + 0.02, ORACLE + 0.01, ORACLE, "fp16")
    np.testing.assert_allclose((figures.max_error, figures.mean_error), 0.02, rtol=1e-12)
    np.testing.assert_allclose((figures.baseline_max_error, figures.baseline_mean_error), 0.01, rtol=1e-12)
    np.testing.assert_allclose(figures.allowance, 2**-10 * np.sqrt((ORACLE**2).mean()), rtol=1e-12)


def test_both_limits_must_hold() -> None:
    baseline = ORACLE + 0.01
    one_off = baseline.copy()
    one_off[3] = ORACLE[3] + 0.0199
    assert accuracy(baseline, baseline, ORACLE, "bf16").holds
    assert accuracy(one_off, baseline, ORACLE, "fp32").holds
    one_off[3] = ORACLE[3] + 0.0201  # the maximum alone
    assert not accuracy(one_off, baseline, ORACLE, "fp32").holds
    assert not accuracy(ORACLE + 0.0111, baseline, ORACLE, "fp32").holds  # the mean alone


def test_the_allowance_grows_with_the_type() -> None:
    out = ORACLE + 1e-4
    assert not accuracy(out, ORACLE, ORACLE, "fp32").holds
    assert not accuracy(out, ORACLE, ORACLE, "fp16").holds  # within its maximum, beyond its mean
    assert accuracy(out, ORACLE, ORACLE, "bf16").holds


def test_nan_never_holds() -> None:
    out = ORACLE.copy()
    out[0] = np.nan
    assert not accuracy(out, ORACLE + 1, ORACLE, "bf16").holds


def test_nothing_to_compare_holds() -> None:
    empty = np.zeros((2, 0))
    assert accuracy(empty, empty, empty, "bf16").holds


def test_what_arithmetic_leaves_undefined_is_not_compared() -> None:
    """`out` may be inf or NaN where the oracle or the precision of kernels makes that; nowhere else."""
    rows, nan = ORACLE[:100].reshape(25, 4), np.nan
    exact, computed, out = rows.copy(), rows.copy(), rows + 1e-4
    exact[3], computed[3:5], out[3:5] = np.inf, nan, (nan, nan, -np.inf, nan)
    judged = accuracy_where_defined(out, computed, exact, computed, "bf16")
    finite = accuracy(np.delete(out, (3, 4), 0), *(np.delete(rows, (3, 4), 0),) * 2, "bf16")
    assert judged.holds and judged.undefined_rows == 2
    assert (judged.max_error, judged.allowance) == (finite.max_error, finite.allowance)
    for where, value in ((3, 1.0), (5, nan), (6, np.inf), (7, 1e3)):
        wrong = out.copy()
        wrong[where, 1] = value
        assert not accuracy_where_defined(wrong, computed, exact, computed, "bf16").holds, where


def test_rounded_scores_that_overflow_excuse_nothing() -> None:
    rows = ORACLE[:100].reshape(25, 4)
    baseline, out = rows.copy(), rows.copy()
    baseline[3, 1] = np.nan
    assert accuracy_where_defined(out, baseline, rows, rows, "bf16").holds
    out[3, 1] += 1
    assert not accuracy_where_defined(out, baseline, rows, rows, "bf16").holds
