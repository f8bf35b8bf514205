"""Random expressions as text: ints, floats of about 1, conditions that rounding doesn't decide, or decides alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

INDEX_OF_TAG = {"batch": "b", "head": "h", "kv_head": "kv_h", "q": "q_idx", "kv": "kv_idx", "pos": "kv_idx"}
POSITION_TAGS = ("q", "kv", "pos")
TAGS = tuple(INDEX_OF_TAG)
DTYPES = ("bool", "i32", "i64", "f16", "bf16", "f32")
FLOATS = ("f16", "bf16", "f32")

Axis = str | int | None  # a tag, a length, or any length


@dataclass(frozen=True)
class RandomInput:
    name: str
    dtype: str
    axes: tuple[Axis, ...]
    nondecreasing: bool = False
    learnable: bool = False

    @property
    def declaration(self) -> str:
        axes = ", ".join("_" if axis is None else str(axis) for axis in self.axes)
        marks = " nondecreasing" * self.nondecreasing + " learnable" * self.learnable
        return f"input {self.name}: {self.dtype}{f'[{axes}]' if self.axes else ''}{marks}"


def random_axes(random: Random, rank: int) -> tuple[Axis, ...]:
    """Each tag once at most."""
    tags = random.sample(TAGS, rank)
    others: tuple[Axis, ...] = (None, random.randrange(1, 18))
    return tuple(tag if random.random() < 0.7 else random.choice(others) for tag in tags)


def random_input(random: Random, number: int) -> RandomInput:
    dtype = random.choice(DTYPES + FLOATS)
    axes = random_axes(random, random.choice((0, 1, 1, 2, 2, 3, 4)))
    rises = dtype in ("i32", "i64") and bool(axes) and random.random() < 0.5
    learnable = dtype in FLOATS and random.random() < 0.5
    return RandomInput(f"{dtype[0]}{number}", dtype, axes, rises, learnable)


@dataclass
class Expressions:
    """Draws expressions over inputs and the lets so far."""

    random: Random
    inputs: Sequence[RandomInput]
    floats: list[str]  # names of lets
    ints: list[str]
    reads_score: bool = False  # whether floats may
    of_masks: bool = False  # whether conditions are those of keep lines, which round as f32 does everywhere

    # ---------------------------------------------------------------- ints

    def index(self, axis: Axis) -> str:
        """In range mostly, of an axis."""
        if isinstance(axis, str):
            own = INDEX_OF_TAG[axis]
            own = self.random.choice((own, "q_pos")) if axis == "pos" else own
            return own if self.random.random() < 0.8 else self.random.choice((f"{own} + 1", f"{own} - 3", "0"))
        length = axis or 16
        return self.random.choice(
            (
                f"kv_idx % {length}",
                f"(q_pos - kv_idx) % {length}",
                f"q_idx // {self.random.randrange(2, 30)}",
                f"kv_idx // {self.random.randrange(2, 30)}",
                f"clamp(q_pos - kv_idx, -{length // 2}, {length // 2}) + {length // 2}",
                "h",
                f"{self.random.randrange(length + 1)}",
                self.integer(1),
            )
        )

    def read(self, declared: RandomInput) -> str:
        return declared.name + (f"[{', '.join(map(self.index, declared.axes))}]" if declared.axes else "")

    def integer(self, depth: int) -> str:
        reads = [item for item in self.inputs if item.dtype in ("i32", "i64")]
        if depth > 0 and self.random.random() < 0.6:
            a, b = self.integer(depth - 1), self.integer(depth - 1)
            return self.random.choice(_INTS).format(a, b)
        if reads and depth > 0 and self.random.random() < 0.5:
            return self.read(self.random.choice(reads))
        return self.random.choice(("q_idx", "kv_idx", "q_pos", "h", "kv_h", "b", "5", "kv_len", *self.ints))

    # ---------------------------------------------------------------- floats

    def float(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.15:
            return self._leaf()
        kind = self.random.random()
        if kind < 0.45:
            return self.random.choice(_BINARY).format(self.float(depth - 1), self.float(depth - 1))
        if kind < 0.85:
            return self.random.choice(_UNARY).format(self.float(depth - 1))
        then, otherwise = self.float(depth - 1), self.float(depth - 1)
        return f"({then} if {self.condition(1)} else {otherwise})"

    def _leaf(self) -> str:
        reads = [item for item in self.inputs if item.dtype in FLOATS]
        kind = self.random.random()
        if self.reads_score and kind < 0.35:
            return "score"
        if reads and kind < 0.75:
            return self.read(self.random.choice(reads))
        if self.floats and kind < 0.85:
            return self.random.choice(self.floats)
        ints = f"(({self.integer(1)}) % 9 / 8)", "((kv_idx - q_pos) / 64)", "((q_pos - kv_idx) * 0.01)", "(h / 4)"
        return self.random.choice((*ints, "0.5", "1.25", "-0.75", "0.0", "scale"))

    # ---------------------------------------------------------------- conditions

    def condition(self, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.3:
            form = self.random.choice(("({} or {})", "({} and {})", "(not {} or {})"))
            return form.format(self.condition(depth - 1), self.condition(depth - 1))
        forms: tuple[Callable[[], str], ...] = (
            self._distance, self._distance, self._remainder, self._of_tensor, self._of_tensor, self._of_blocks,
            self._slanted,
        )  # fmt: skip
        return self.random.choice(forms)()

    def _distance(self) -> str:
        width = self.random.choice((1, 5, 16, 33, 70))
        return self.random.choice(
            (
                "q_pos >= kv_idx",
                "q_idx >= kv_idx",
                f"0 <= q_pos - kv_idx < {width}",
                f"abs(q_pos - kv_idx) <= {width}",
                f"kv_idx < {width} + h",
                f"kv_idx <= q_pos + {width}",
            )
        )

    def _remainder(self) -> str:
        n = self.random.choice((2, 3, 6, 8))
        return self.random.choice(
            (f"kv_idx % {n} != 1", f"q_idx % {n} == kv_idx % {n}", f"(q_pos - kv_idx) % {n} != 0")
        )

    def _of_blocks(self) -> str:
        n = self.random.choice((4, 8, 16))
        return self.random.choice((f"q_idx // {n} >= kv_idx // {n}", f"(q_idx // {n} + kv_idx // {n}) % 3 != 0"))

    def _slanted(self) -> str:
        """Floats, of which many are equal where nothing is rounded."""
        if not self.of_masks:
            return self._distance()
        slope, shift, step = (
            self.random.choice(each) for each in (("0.1", "0.3", "0.7"), ("0.2", "3.3"), ("0.1", "0.9"))
        )
        return self.random.choice(
            (f"kv_idx * {step} <= q_idx * {slope} + {shift}", f"abs(q_pos * {slope} - kv_idx * {step}) > 0.6")
        )

    def _of_tensor(self) -> str:
        """Floats are compared with what they never are."""
        if not self.inputs:
            return self._distance()
        item = self.random.choice(self.inputs)
        if item.dtype == "bool":
            return self.read(item)
        if item.dtype in FLOATS:
            return f"{self.read(item)} < 0.3001"
        if "pos" in item.axes or "kv" in item.axes:
            return self._same(item)
        return self.random.choice((f"{self.read(item)} != 2", f"{self.read(item)} % 8 * 8 <= kv_idx"))

    def _same(self, item: RandomInput) -> str:
        """One entry for the query and one for the key."""
        names = [INDEX_OF_TAG.get(str(axis), "0") for axis in item.axes]
        of_key = f"{item.name}[{', '.join(names)}]"
        of_query = f"{item.name}[{', '.join('q_pos + 0' if name == 'kv_idx' else name for name in names)}]"
        return f"{of_query} {self.random.choice(('==', '==', '>='))} {of_key}"


_INTS = (
    "({} + {})", "({} - {})", "min({}, {})", "({} // 3 + {})", "({} % 7 + {})", "({} & {})", "({} ^ ({} | 5))",
    "(~{} - {})", "({} // -3 + {})", "({} % -5 - {})", "(({} << 2) - {})", "(({} >> 1) + {})", "max({}, {})",
    "(abs({}) - sign({}))",
)  # fmt: skip
_BINARY = (
    "({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})", "({} / (1.5 + abs({})))", "({} + {}) * 0.5",
)  # fmt: skip
_UNARY = (
    "tanh({})", "sigmoid({})", "erf({})", "sin({})", "cos({})", "exp(min({}, 1.0))", "exp2(-abs({}))", "-({})",
    "log(0.5 + abs({}))", "sqrt(0.1 + abs({}))", "abs({})", "clamp({}, -1.5, 2.0)", "(2.0 * tanh({} / 2.0))",
)  # fmt: skip
