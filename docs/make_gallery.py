"""Writes docs/gallery.md and its pictures: `python -m docs.make_gallery`, from the root. Needs matplotlib and pillow.

The compiler itself draws every spec of the library: the mask from its meaning, the tiles from what is proven about it.
Inputs are those that the tests of the library draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncc.analysis.rules import TileKind
from attncc.api import ParsedVariant
from attncc.evaluate import Environment
from attncc.ir import Variant, reads
from attncc.problem import Problem, Sequence
from attncc.problem.arrays import at_positions, environment
from attncc.quoting import markdown
from attncc.show.drawing import TILE_COLORS
from attncc.show.picture import Picture, picture
from attncc.show.plot import draw_mask, draw_tiles, tile_patches
from attncc.statements import scored
from tests.library import scores
from tests.library.cases import parsed
from tests.library.library import CASES

Array = NDArray[Any]

FOLDER = Path(__file__).parent
PICTURES = FOLDER / "gallery"
THUMBNAILS = PICTURES / "thumbnails"
BATCH, HEADS = 2, 4  # of the inputs of score lines; head 0 is drawn


@dataclass(frozen=True)
class Entry:
    spec: str
    consts: dict[str, int] = field(default_factory=dict)
    q_len: int = 512
    kv_len: int = 512
    block: int = 32
    seed: int = 0  # of the inputs
    b: int = 0  # which sequence is drawn
    scores: tuple[float, float] = (-6.0, 6.0)  # the range of a score line's curve

    @cached_property
    def variant(self) -> ParsedVariant:
        return parsed(self.spec, tuple(self.consts.items()))

    @cached_property
    def inputs(self) -> dict[str, Array]:
        """Of the keep lines as the mask's test draws them, of the score lines as theirs does."""
        random = np.random.default_rng(self.seed)
        drawn: dict[str, Array] = {}
        if self.spec in scores.CASES:
            zeros = np.zeros((BATCH, HEADS, self.q_len, self.kv_len))
            drawn, _ = scores.CASES[self.spec](scores.Scores(zeros, random))
        case = next(item for item in CASES if item.spec == self.spec)
        return drawn | case.draw(random, self.q_len, self.kv_len, **self.consts)[0]

    @cached_property
    def picture(self) -> Picture:
        """Of one sequence and its first head, which stand for all where the mask is the same."""
        needed = reads(self.variant.variant, *(keep.condition for keep in self.variant.variant.keeps))
        inputs: dict[str, Any] = {name: value for name, value in self.inputs.items() if name in needed}
        masks = self.variant.mask(self.q_len, self.kv_len, **inputs)
        maps = self.variant.tile_map(self.q_len, self.kv_len, self.block, self.block, **inputs)
        kept, kinds = masks[min(self.b, len(masks) - 1), 0], maps[min(self.b, len(maps) - 1), 0]
        sizes = {"q_len": self.q_len, "kv_len": self.kv_len, "block_q": self.block, "block_kv": self.block}
        return picture(self.spec, lambda rows, keys: kept[np.ix_(rows, keys)], kinds, **sizes)

    @property
    def environment(self) -> Environment:
        problem = Problem(BATCH, HEADS, HEADS, self.q_len, self.kv_len, 64, 64)
        sequence = Sequence.whole(0, self.q_len, self.kv_len)
        arrays = {name: np.asarray(value) for name, value in self.inputs.items()}
        bare = environment(self.variant.variant, problem, sequence, arrays, np.float64)
        return bare.with_symbols(h=0, kv_h=0, scale=0.125)


GALLERY: dict[str, tuple[Entry, ...]] = {
    "Everything, causal, windows": (
        Entry("full"),
        Entry("causal", q_len=320),
        Entry("causal_top_left", q_len=320),
        Entry("inverse_causal", q_len=320),
        Entry("sliding_window", {"width": 100}),
        Entry("local_window"),
        Entry("dilated_window", {"width": 16, "step": 4}, 192, 192, 16),
        Entry("dilated_sliding_window", {"reach": 48, "step": 4}, 192, 192, 16),
        Entry("global_sliding_window", {"reach": 40}),
        Entry("token_window"),
        Entry("key_threshold"),
        Entry("prefix_lm", seed=5, b=4),
    ),
    "Documents in one sequence": (
        Entry("documents", seed=2),
        Entry("documents_bidirectional"),
        Entry("documents_by_start", seed=1),
        Entry("documents_prefix_lm", seed=9),
        Entry("shared_prefix", seed=9),
        Entry("alibi_documents", {"width": 120}),
    ),
    "Blocks and trees": (
        Entry("block_diagonal", {"size": 100}),
        Entry("batchify", {"size": 100}),
        Entry("mini_causal", {"size": 100}),
        Entry("block_diffusion", {"block": 32}),
        Entry("jetspec_tree", q_len=96, kv_len=192, block=16),
        Entry("speculative_tree", q_len=48, kv_len=192, block=16),
        Entry("jetspec_training", {"block": 40}, q_len=320),
        Entry("block_map", {"block_rows": 64, "block_keys": 64}),
        Entry("vsa", {"tile": 64, "top": 3}),
    ),
    "Images and video": (
        Entry("natten", {"canvas_width": 20, "canvas_height": 16, "kernel": 5}, 320, 320, 16),
        Entry(
            "tiled_natten",
            {"canvas_width": 20, "canvas_height": 16, "tile_width": 4, "tile_height": 4, "kernel": 5},
            320,
            320,
            16,
        ),
        Entry("morton_natten", {"bits": 4, "kernel": 5}, 256, 256, 16),
        Entry("sta_2d", {"tile": 32, "across": 6, "down": 4, "kernel_across": 3, "kernel_down": 3}, 800, 800),
        Entry(
            "sta_3d",
            {"tile": 32, "across": 3, "down": 3, "long": 3, "kernel_across": 3, "kernel_down": 2, "kernel_long": 2},
            q_len=896,
            kv_len=896,
        ),
        Entry("svg_spatial", {"frame": 60, "width": 2, "multiple": 32}),
        Entry("svg_temporal", {"frame": 60, "frames": 8, "width": 2}),
        Entry("flamingo", {"tokens": 64}, q_len=320, seed=2),
    ),
    "Decoding and pools of keys": (
        Entry("decode", q_len=64, block=16),
        Entry("selected_attention", {"width": 40, "count": 4}, q_len=256),
    ),
    "Biases": (
        Entry("alibi"),
        Entry("alibi_signed"),
        Entry("alibi_symmetric"),
        Entry("relative_distance"),
        Entry("relative_causal"),
        Entry("relative_bias"),
        Entry("sandwich"),
        Entry("graphormer_spatial", q_len=48, kv_len=48, block=16),
        Entry("graphormer_edge", q_len=48, kv_len=48, block=16),
        Entry("head_and_query_bias"),
        Entry("query_bias"),
        Entry("key_bias"),
        Entry("batch_bias"),
    ),
    "Functions of the score": (
        Entry("softcap", scores=(-150.0, 150.0)),
        Entry("doubled_score"),
        Entry("squared_score"),
        Entry("head_factor"),
        Entry("trigonometric"),
        Entry("sigmoid_attention"),
        Entry("relu_attention"),
        Entry("gelu_attention"),
        Entry("silu_attention"),
    ),
    "Sinks, dropout, heads, loop orders": (
        Entry("sink_attention"),
        Entry("dropout_attention"),
        Entry("mla"),
        Entry("mla_decode"),
        Entry("flash_attention_1"),
    ),
}

ABOUT_SCORES = ("Biases", "Functions of the score")

INTRODUCTION = """# Gallery

This page shows every variant that ships in `specs/`: the comment of its file, its mask, and the tiles that a kernel
sees. In the first panel black pairs are kept; rows are queries, columns are keys. In the second panel, a kernel skips
the tiles that are proven empty, computes those that are proven full without mask code, and all others with it. If score
lines depend on positions, the third panel shows what they make of a score of 0: blue is below 0, red above. If they
don't, it shows the new score against the old one.

`python -m docs.make_gallery` writes this page. `attncc show causal --png causal.png` draws any mask. In a
notebook `attncc.parse("causal")` shows itself: [masks.ipynb](../examples/masks.ipynb).
"""

# -------------------------------------------------------------------- the page


def page() -> str:
    parts = [INTRODUCTION]
    for title, entries in GALLERY.items():
        parts.append(f"**[{title}](#{title.lower().replace(',', '').replace(' ', '-')})**\n")
        parts.append("\n".join(_linked_thumbnail(entry) for entry in entries) + "\n")
    for title, entries in GALLERY.items():
        parts.append(f"## {title}\n")
        parts.extend(_section(entry) for entry in entries)
    return "\n".join(parts)


def _linked_thumbnail(entry: Entry) -> str:
    return f"[![{entry.spec}](gallery/thumbnails/{entry.spec}.png)](#{entry.spec})"


def _section(entry: Entry) -> str:
    shown, consts = entry.picture, "".join(f" `-D {name}={value}`" for name, value in entry.consts.items())
    shares = ", ".join(f"{shown.tiles(kind) / shown.kinds.size:.1%} {kind.name.lower()}" for kind in TileKind)
    empty_rows = int(np.count_nonzero(shown.row_keys == 0))
    return (
        f"### {entry.spec}\n\n"
        f"{markdown(entry.variant.variant.documentation)}\n\n"
        f"![mask and tiles of {entry.spec}](gallery/{entry.spec}.png)\n\n"
        f"[{entry.spec}.attn](../specs/{entry.spec}.attn), "
        f"{entry.q_len} queries, {entry.kv_len} keys{',' * bool(consts)}{consts}: "
        f"{shown.kept / (entry.q_len * entry.kv_len):.1%} of the pairs kept"
        f"{f', {empty_rows} rows keep nothing' if empty_rows else ''}; "
        f"of the {shown.kinds.size} tiles of {entry.block} x {entry.block}, {shares}.\n"
    )


# -------------------------------------------------------------------- pictures


def draw(entry: Entry) -> None:
    """Writes one picture, with few colors to keep it small."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 7, "axes.titlesize": 8, "axes.linewidth": 0.5}):
        panels = 3 if entry.variant.variant.scores else 2
        figure = Figure(figsize=(2.5 * panels, 2.6), dpi=120, layout="constrained")
        axes = figure.subplots(1, panels)
        draw_mask(axes[0], entry.picture)
        axes[0].set(title=entry.spec)
        draw_tiles(axes[1], entry.picture)
        axes[1].set(ylabel="")
        patches = tile_patches([kind.name.lower() for kind in TileKind])
        figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False)
        if panels == 3:
            drawn = _draw_scores(axes[2], entry)
            if drawn is not None:
                figure.colorbar(drawn, ax=axes[2], fraction=0.05, pad=0.02)
        _save(figure, PICTURES / f"{entry.spec}.png")


def draw_thumbnail(entry: Entry) -> None:
    """Writes one panel, small, above the name: what becomes of scores, for those that are about scores, or the mask."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.12, 1.38), dpi=100, facecolor="white")
    axes = figure.add_axes((0.03, 0.237, 0.94, 0.763))
    if any(entry in GALLERY[group] for group in ABOUT_SCORES):
        _draw_scores(axes, entry)
    else:
        draw_mask(axes, entry.picture)
    axes.set(xticks=[], yticks=[], xlabel="", ylabel="", title="")
    name = entry.spec if len(entry.spec) <= 17 else "_\n".join(entry.spec.rsplit("_", 1))
    figure.text(0.5, 0.2, name, ha="center", va="top", fontsize=7, linespacing=1)
    _save(figure, THUMBNAILS / f"{entry.spec}.png")


def _save(figure: Any, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image.quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)


def _draw_scores(axes: Any, entry: Entry) -> Any:
    """A bias, which needs a bar of its colors, or a curve, which doesn't: None."""
    variant = entry.variant.variant
    if reads(variant, *(line.value for line in variant.scores)) & {"q_idx", "kv_idx", "q_pos"}:
        return _draw_bias(axes, entry, variant)
    _draw_curve(axes, entry, variant)
    return None


def _draw_bias(axes: Any, entry: Entry, variant: Variant) -> Any:
    """What a score of 0 becomes, white where the pair isn't kept."""
    seen = at_positions(entry.environment, np.arange(entry.q_len), np.arange(entry.kv_len))
    bias = np.broadcast_to(scored(variant, seen, np.zeros((entry.q_len, entry.kv_len))), (entry.q_len, entry.kv_len))
    kept = entry.picture.density > 0
    limit = float(np.abs(bias[kept & np.isfinite(bias)]).max()) or 1.0
    extent = (0, entry.kv_len, entry.q_len, 0)
    shown = np.ma.masked_array(bias, ~(kept & np.isfinite(bias)))
    drawn = axes.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=extent, aspect="auto")
    axes.set(title="bias, head 0", xlabel="kv_idx")
    return drawn


def _draw_curve(axes: Any, entry: Entry, variant: Variant) -> None:
    """The new score against the old one; with another normaliser, the weight."""
    before = np.linspace(*entry.scores, 201)
    after = scored(variant, entry.environment, before)
    if variant.normalize == "sigmoid":
        after = 1 / (1 + np.exp(-after))
    axes.axhline(0, color="#999999", linewidth=0.5)
    axes.plot(before, after, color=TILE_COLORS[TileKind.FULL])
    axes.set(title="new score" if variant.normalize == "softmax" else "weight", xlabel="score")


def entries() -> Iterator[Entry]:
    for group in GALLERY.values():
        yield from group


def main() -> None:
    THUMBNAILS.mkdir(parents=True, exist_ok=True)
    for entry in entries():
        draw(entry)
        draw_thumbnail(entry)
    (FOLDER / "gallery.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
