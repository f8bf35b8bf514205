"""`min_max_table_i32_sm_80`: a pre-pass over inputs of one dtype: extremes of blocks, and whether none falls."""

from __future__ import annotations

from ..facts import Facts
from ..parameters import ELEMENT_TYPES, Parameter, input_prepasses, ints, ordered, pointers
from .helper import HelperKernel

THREADS = 256


def needed(facts: Facts) -> tuple[HelperKernel, ...]:
    """One for each dtype of the inputs that have a pre-pass."""
    plan = facts.plan
    dtypes = sorted({plan.variant.input(item.input).dtype for item in input_prepasses(plan)})
    return tuple(kernel(dtype, plan.target) for dtype in dtypes)


def kernel(dtype: str, target: str) -> HelperKernel:
    return HelperKernel(
        name=f"min_max_table_{dtype}_{target}",
        template="helpers/min_max_table.cu.j2",
        what=f"min_max_table: extremes of blocks, and whether hints hold, of an {dtype} input",
        parameters=parameters(dtype),
        threads=THREADS,
        values={"dtype": dtype},
    )


def parameters(dtype: str) -> tuple[Parameter, ...]:
    """The input is seen as 4 axes (leading ones 1 long).

    `minimum` and `maximum` are contiguous, [size0, size1, size2, ceil(size3 / block)], or null; so is `holds`, [size0,
    size1, size2, HINT_PIECES] of bools. `starts` are the `sequences` + 1 cumulative lengths of a packed axis, or null.
    """
    element = ELEMENT_TYPES[dtype]
    fields = [Parameter("input", f"const {element}*"), *pointers(element, "minimum", "maximum")]
    fields += [*pointers("unsigned char", "holds"), *pointers("const int", "starts")]
    steps = [Parameter(f"stride{axis}", "long long") for axis in range(4)]
    return ordered([*fields, *steps, *ints("size0", "size1", "size2", "size3", "block", "checked", "sequences")])
