"""Every name that the language brings along, with a line on each: what `attncc` prints as help comes from here."""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..operators import OPERATORS, Operator
from ..operators.record import Function as Form
from ..problem.call_arguments import APPENDED, ARGUMENTS, STREAM

# -------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Value:
    """A name that every expression may read (`score` excepted: not in a `keep`)."""

    name: str
    type: ir.Type
    doc: str
    counts: str = ""  # what it counts, if it is an index


VALUES: dict[str, Value] = {
    value.name: value
    for value in (
        Value("b", ir.Type.INT, "the sequence of the batch", "a sequence of the batch"),
        Value("h", ir.Type.INT, "the query head", "a query head"),
        Value("kv_h", ir.Type.INT, "the key and value head that serves `h`: h // group", "a key and value head"),
        Value("q_idx", ir.Type.INT, "the query's index in its sequence, from 0", "a query index"),
        Value("kv_idx", ir.Type.INT, "the key's index in its sequence, from 0", "a key index"),
        Value("q_pos", ir.Type.INT, "the query's position among the keys: q_idx + kv_len - q_len", "a key position"),
        Value("q_len", ir.Type.INT, "the number of queries of this sequence"),
        Value("kv_len", ir.Type.INT, "the number of keys of this sequence"),
        Value("num_heads", ir.Type.INT, "the number of query heads"),
        Value("num_kv_heads", ir.Type.INT, "the number of key and value heads"),
        Value("head_dim", ir.Type.INT, "the head dimension of q and k"),
        Value("scale", ir.Type.FLOAT, "the factor on q·k: 1 / sqrt(head_dim), or what the variant or the call says"),
        Value("score", ir.Type.FLOAT, "the score so far, in natural units; at first scale · q·k"),
    )
}

# -------------------------------------------------------------------- functions


@dataclass(frozen=True, slots=True)
class Function:
    """A built-in function; `operator` is its record, None for one that is written out with others."""

    name: str
    form: Form
    operator: Operator | None = None

    @property
    def signature(self) -> str:
        return f"{self.name}({self.form.parameters})"


FUNCTIONS: dict[str, Function] = {
    item.name: Function(item.name, item.function, item) for item in OPERATORS.values() if item.function is not None
} | {"clamp": Function("clamp", Form("x, low, high", "x, but not below low and not above high", 3, 3))}

# What `any`, `all` and `sum` combine with, and what they are over no iterations at all.
REDUCTIONS: dict[str, str] = {"any": "or", "all": "and", "sum": "add"}
MAX_ITERATIONS = 64

# -------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Tag:
    """What an axis counts, and the built-in values that index it."""

    name: str
    indexed_by: tuple[str, ...]
    doc: str


TAGS: dict[str, Tag] = {
    tag.name: tag
    for tag in (
        Tag("batch", ("b",), "the sequences of the batch"),
        Tag("head", ("h",), "the query heads"),
        Tag("kv_head", ("kv_h",), "the key and value heads"),
        Tag("q", ("q_idx",), "the queries: q_len of them"),
        Tag("kv", ("kv_idx",), "the keys: kv_len of them"),
        Tag("pos", ("kv_idx", "q_pos", "q_idx"), "key positions: kv_len or more of them"),
    )
}

DTYPES: dict[str, str] = {
    "bool": "bool, one byte each",
    "i32": "32-bit ints",
    "i64": "64-bit ints",
    "f16": "half-precision floats",
    "bf16": "bfloat16 floats",
    "f32": "single-precision floats",
}

PROPERTIES: dict[str, str] = {
    "nondecreasing": "along its last axis no entry is below the one before it (ints only)",
    "learnable": "the backward pass gives it a gradient (floats only)",
}

CONST_TYPES: dict[str, ir.Type] = {kind.value: kind for kind in ir.Type}
NORMALIZERS: dict[str, str] = {
    "softmax": "exp(score) / the row's sum of exp(score)",
    "sigmoid": "sigmoid(score), no row sum",
    "none": "the score itself, no row sum",
}
PASSES = ("forward", "decode", "patches", "backward", "backward_dq", "backward_patches")
MAX_RANK = 4

# -------------------------------------------------------------------- names that users may not give

# Arguments of the calls that take a variant's inputs by keyword (kernels, `backward`, `mask`, `tile_map`, `reference`),
# now or in the versions that come next.
CALL_ARGUMENTS = frozenset(
    {
        *(item.name for item in (*ARGUMENTS.values(), *APPENDED, STREAM)),
        *("self", "q", "k", "v", "lse", "dout", "dlse", "deterministic", "kv_offset", "q_place"),
        *("q_descale", "k_descale", "v_descale", "variant", "schedule"),
        *("batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "block_q", "block_kv"),
    }
)

# -------------------------------------------------------------------- names that people bring from elsewhere

FOREIGN_VALUES: dict[str, str] = {
    "True": "write `true`",
    "False": "write `false`",
    "None": "there is no such value",
    "q": "write `q_idx` for the query's index, `q_pos` for its position among the keys",
    "k": "write `kv_idx` for the key's index",
    "kv": "write `kv_idx` for the key's index",
    **dict.fromkeys(("k_idx", "k_index", "key_idx"), "write `kv_idx`"),
    **dict.fromkeys(("kv_pos", "k_pos", "key_pos"), "write `kv_idx` for the key's position"),
    **dict.fromkeys(("query_idx", "q_id"), "write `q_idx`"),
    **dict.fromkeys(("query_pos", "q_position"), "write `q_pos`"),
    **dict.fromkeys(("batch", "batch_idx", "b_idx"), "write `b` for the sequence of the batch"),
    "head": "write `h` for the query head, `kv_h` for the key and value head",
    **dict.fromkeys(("head_idx", "h_idx", "q_head", "hq"), "write `h` for the query head"),
    **dict.fromkeys(("kv_head", "kv_head_idx", "kv_h_idx", "hkv"), "write `kv_h` for the key and value head"),
    **dict.fromkeys(("heads", "h_q"), "write `num_heads`"),
    "kv_heads": "write `num_kv_heads`",
    "head_size": "write `head_dim`",
    **dict.fromkeys(("seq_len", "seqlen", "seq_length"), "write `q_len` or `kv_len`"),
    "seqlen_q": "write `q_len`",
    **dict.fromkeys(("seqlen_k", "k_len", "key_len"), "write `kv_len`"),
    "inf": "to leave a pair out, write `keep if` and the condition under which it stays",
    "nan": "there is no such value",
    "pi": "write 3.14159265",
}
