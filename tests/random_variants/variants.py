"""Random variants: inputs of every dtype and rank, masks, score lines that add, multiply, bound or replace, lets,
sinks, dropout, other normalisers and scales. A seed gives the same variant everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.random_variants.expressions import FLOATS, POSITION_TAGS, Expressions, RandomInput, random_input


@dataclass(frozen=True)
class RandomVariant:
    """A variant as text, with a name of its own."""

    seed: int
    text: str
    inputs: tuple[RandomInput, ...]
    normalize: str
    drops: bool

    @property
    def packs(self) -> bool:
        """Whether packed batches may be its calls: an input has at most one axis of positions beside `batch`."""
        return all(
            "batch" not in item.axes or sum(axis in POSITION_TAGS for axis in item.axes) < 2 for item in self.inputs
        )


def random_variant(seed: int) -> RandomVariant:
    random = Random(seed)
    inputs = tuple(random_input(random, number) for number in range(random.choice((0, 1, 2, 2, 3, 4))))
    normalize = random.choice(("softmax",) * 5 + ("sigmoid", "none"))
    expressions = Expressions(random, inputs, [], [])
    lines = [*_masks(expressions), *_score_lines(expressions)]
    if not any(line.startswith("let") for line in lines):  # no line reads another
        random.shuffle(lines)
    more = list(_others(random, normalize))
    drops = any("dropout" in line for line in more)
    declared = [*(item.declaration for item in inputs), *(line for line in more if line.startswith("input "))]
    if normalize == "softmax" and any("sink " in line for line in more):
        inputs += (RandomInput("logit", _dtype_of(more, "logit"), ("head",), learnable="learnable" in " ".join(more)),)
    if any("input rate" in line for line in more):
        inputs += (RandomInput("rate", "f32", ()),)
    body = [*declared, *lines, *(line for line in more if not line.startswith("input "))]
    text = f"attn 1\nvariant random_{seed} {{\n" + "".join(f"    {line}\n" for line in body) + "}\n"
    return RandomVariant(seed, text, inputs, normalize, drops)


def _dtype_of(lines: list[str], name: str) -> str:
    (line,) = (line for line in lines if line.startswith(f"input {name}:"))
    return line.split()[2].partition("[")[0]


def _masks(expressions: Expressions) -> Iterator[str]:
    expressions.of_masks = True
    for _ in range(expressions.random.choice((0, 1, 1, 2, 3))):
        yield f"keep if {expressions.condition(2)}"
    expressions.of_masks = False


def _score_lines(expressions: Expressions) -> Iterator[str]:
    """With lets between them, some of which hold the score of where they stand."""
    random = expressions.random
    only_adds = random.random() < 0.3  # as the family hopper asks of what is learnable
    expressions.reads_score = not only_adds
    for number in range(random.choice((0, 1, 2, 2, 3, 4))):
        if random.random() < 0.4:
            yield f"let l{number} = {expressions.float(2)}"
            expressions.floats.append(f"l{number}")
        if random.random() < 0.15:
            yield f"let n{number} = {expressions.integer(2)}"
            expressions.ints.append(f"n{number}")
        yield f"score = score {random.choice('+-')} {expressions.float(2)}" if only_adds else _new_score(expressions)


def _new_score(expressions: Expressions) -> str:
    random, term = expressions.random, expressions.float
    replaced = Expressions(random, expressions.inputs, [], expressions.ints)
    value = random.choice(
        (
            lambda: f"score + {term(2)}",
            lambda: f"score - {replaced.float(2)}",
            lambda: f"score + {replaced.float(1)}",
            lambda: f"score * sigmoid({term(2)})",
            lambda: f"5.0 * tanh(score / 5.0) + {term(1)}",
            lambda: f"score if {expressions.condition(1)} else {term(2)}",
            lambda: replaced.float(2),
            lambda: term(3),
            lambda: "score * score * 0.25",
        )
    )()
    return f"score = {value}"


def _others(random: Random, normalize: str) -> Iterator[str]:
    """A sink, a scale, a normaliser and dropout, with the inputs that they read."""
    if normalize != "softmax":
        yield f"normalize {normalize}"
    elif random.random() < 0.3:
        yield f"input logit: {random.choice(FLOATS)}[head]{' learnable' * (random.random() < 0.6)}"
        yield "sink logit"
    if random.random() < 0.15:
        yield f"scale {random.choice(('0.2', '1 / head_dim', '0.5 / sqrt(head_dim)', '-0.2'))}"
    if random.random() < 0.25:
        by_call = random.random() < 0.4
        if by_call:
            yield "input rate: f32"
        yield f"dropout {'rate' if by_call else random.choice(('0.1', '0.3', '0.5'))}"
