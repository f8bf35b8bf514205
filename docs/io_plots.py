"""The plots of `docs/io-analysis.md`: `python -m docs.io_plots` writes them to `docs/io/`.

Lines are predictions. Points are what the newest `benchmarks/results/io_model_*.json` holds, if there is one; then the
predictions are those of its GPU too. Needs matplotlib (the extra `plot`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.io_model import predictions
from benchmarks.io_points import points

FOLDER, RESULTS = Path(__file__).parent / "io", Path(__file__).parent.parent / "benchmarks" / "results"
DEVICE = "h200"
COLORS = {"q_outer": "#2f6f8f", "kv_outer": "#e8a33d", "standard": "#7a7a7a"}
LABELS = {
    "q_outer": "q_outer (FlashAttention-2)",
    "kv_outer": "kv_outer (FlashAttention-1)",
    "standard": "standard (Algorithm 0)",
}
AXES = {"block_q": "block_q (rows)", "length": "length", "head_dim": "head dim"}
KINDS = {"sm": "L2 to multiprocessors and back", "hbm": "HBM to L2"}
LEAST_RANGE = 4.0  # of the MB on an axis: what hardly changes is to look so

Row = Mapping[str, Any]
Curve = tuple[list[int], list[float]]


def rows() -> tuple[str, list[Row]]:
    """Measured ones with the name of their GPU, or predictions."""
    files = sorted(RESULTS.glob("io_model_*.json"), key=lambda path: path.stem[-10:])
    if files:
        told = json.loads(files[-1].read_text("utf-8"))
        return told["environment"]["device"], told["rows"]
    return f"{DEVICE}, predicted", list(predictions(DEVICE, list(points())))


def moved(totals: Mapping[str, int], kind: str) -> float | None:
    """MB; None where the model says nothing. Of HBM what is read: much of what is written stays in the L2 cache."""
    names = {"sm": ("sm_reads", "sm_writes", "reductions"), "hbm": ("hbm_reads",)}[kind]
    if names[0] not in totals:
        return None
    return sum(totals.get(name, 0) for name in names) / 1e6


def curve(found: Sequence[Row], sweep: str, order: str, kind: str, source: str) -> Curve:
    """Places and MB; `source`: predicted or measured."""
    chosen = [row for row in found if row["sweep"] == sweep and row["order"] == order and source in row]
    pairs = sorted((row[sweep], size) for row in chosen if (size := moved(row[source], kind)) is not None)
    return [place for place, _ in pairs], [size for _, size in pairs]


def specs(found: Sequence[Row], pass_name: str) -> dict[str, tuple[float, float | None]]:
    """For each spec the bytes that reach multiprocessors, predicted, as a share of those without a mask; and measured
    over predicted."""
    own = {row["variant"]: row for row in found if row["sweep"] == "specs" and row["pass_name"] == pass_name}
    own = {name: row for name, row in own.items() if "predicted" in row}
    full = own["full"]["predicted"]["sm_reads"]
    shares = {}
    for name, row in own.items():
        predicted = row["predicted"]["sm_reads"]
        shares[name] = predicted / full, row["measured"]["sm_reads"] / predicted if "measured" in row else None
    return shares


# -------------------------------------------------------------------- pictures


def draw_sweep(found: Sequence[Row], device: str, sweep: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, (kind, title) in zip(figure.subplots(1, 2), KINDS.items(), strict=True):
        axes.set(title=title, xlabel=AXES[sweep], ylabel="MB a call", xscale="log", yscale="log")
        for order, color in COLORS.items():
            places, sizes = curve(found, sweep, order, kind, "predicted")
            if places:
                axes.plot(places, sizes, color=color, label=LABELS[order])
            places, sizes = curve(found, sweep, order, kind, "measured")
            axes.plot(places, sizes, "o", color=color, fillstyle="none")
        low, high = axes.get_ylim()
        wider = max(LEAST_RANGE / (high / low), 1) ** 0.5
        axes.set_ylim(low / wider, high * wider)
        ticks = sorted({row[sweep] for row in found if row["sweep"] == sweep})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[-1].legend(frameon=False, fontsize=8)
    figure.suptitle(device, fontsize=9)
    _save(figure, path)


def draw_specs(found: Sequence[Row], device: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.4), layout="constrained")
    for axes, pass_name in zip(figure.subplots(1, 2, sharey=True), ("forward", "backward"), strict=True):
        shares = specs(found, pass_name)
        names = list(shares)[::-1]
        axes.barh(names, [shares[name][0] for name in names], color=COLORS["q_outer"])
        for place, name in enumerate(names):
            ratio = shares[name][1]
            if ratio is not None:
                axes.text(shares[name][0] + 0.02, place, f"{ratio:.3f}", va="center", fontsize=7)
        axes.set_xlim(0, 1.15 * max(share for share, _ in shares.values()))
        axes.set(title=pass_name, xlabel="bytes that reach multiprocessors, of full's")
    figure.suptitle(device, fontsize=9)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """The same bytes each time, by one version of matplotlib."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    device, found = rows()
    for sweep in AXES:
        draw_sweep(found, device, sweep, FOLDER / f"{sweep}.svg")
    draw_specs(found, device, FOLDER / "specs.svg")


if __name__ == "__main__":
    main()
