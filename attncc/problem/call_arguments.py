"""The arguments of calls besides the variant's inputs: a record each, which all that treats arguments alike follows.

`bind` checks them by it, launches number their operands, kernels get their fields of `Params`, torch's operators their
schema, and packages their signatures and texts. `Arguments` is what a call was given, `Call` the facts of that: both
have a field for each record. What an argument means, only those say that read this field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NamedTuple

from ..ir import Variant
from .facts import ArrayFacts
from .problem import Problem

Array = Any  # of any framework
Given = tuple[Any, ...]  # a call as its `Arguments` have it, maybe as a plain tuple


class Arguments(NamedTuple):
    """One call as the user made it, `stream` apart."""

    q: Array
    k: Array
    v: Array
    inputs: Mapping[str, Any]
    scale: Any = None
    layout: Any = "bhsd"
    cu_seqlens_q: Array | None = None
    cu_seqlens_kv: Array | None = None
    kv_lens: Array | None = None
    block_table: Array | None = None
    q_offset: Any = None
    k_scale: Array | None = None
    v_scale: Array | None = None
    shared_prefix: int = 0
    seed: Any = None
    out: Array | None = None
    return_lse: bool = False

    @classmethod
    def of(cls, q: Array, k: Array, v: Array, keywords: Mapping[str, Any], taken: Collection[str]) -> Arguments:
        """A call with these keywords: arguments with the names that are `taken`, all others inputs."""
        own = {name: value for name, value in keywords.items() if name in taken}
        inputs = {name: value for name, value in keywords.items() if name not in taken}
        return cls(q, k, v, inputs, **own)

    def keywords(self) -> dict[str, Any]:
        """All but q, k and v, by name."""
        return {**self.inputs, **{name: getattr(self, name) for name in ARGUMENTS}}

    def each_read(self, change: Callable[[str, Any], Any]) -> Arguments:
        """The call with all that may be an array to read, inputs too, as `change` of name and value gives it."""
        changed = {name: change(name, getattr(self, name)) for name in ("q", "k", "v", *READ)}
        inputs = {name: change(name, value) for name, value in self.inputs.items()}
        return self._replace(inputs=inputs, **changed)

    def facts(self, array: Callable[[str, Any], ArrayFacts], scalar: Callable[[str, Any], ArrayFacts | type]) -> Call:
        """The facts of the call, which `array` tells of what must be one, `scalar` of what may be a number as well."""
        q, k, v = (array(name, value) for name, value in (("q", self.q), ("k", self.k), ("v", self.v)))
        inputs = tuple((name, scalar(name, value)) for name, value in self.inputs.items())
        own: dict[str, Any] = {name: getattr(self, name) for name in ARGUMENTS if name not in NUMBERS}
        for name, value in own.items():
            if value is not None and name not in OPTIONS:
                own[name] = (scalar if name in SCALARS else array)(name, value)
        return Call(q, k, v, inputs, **own)


class Call(NamedTuple):
    """The facts of one call. Equal calls bind to equal problems, so this is the key of a launcher's cache.

    Python numbers appear as their type (`int`, `float`, `bool`): values are checked apart, by `check_values`, and
    arguments that are always numbers have no facts.
    """

    q: ArrayFacts
    k: ArrayFacts
    v: ArrayFacts
    inputs: tuple[tuple[str, ArrayFacts | type], ...] = ()
    layout: str = "bhsd"
    cu_seqlens_q: ArrayFacts | None = None
    cu_seqlens_kv: ArrayFacts | None = None
    kv_lens: ArrayFacts | None = None
    block_table: ArrayFacts | None = None
    q_offset: ArrayFacts | type | None = None
    k_scale: ArrayFacts | None = None
    v_scale: ArrayFacts | None = None
    shared_prefix: int = 0
    seed: ArrayFacts | type | None = None
    out: ArrayFacts | None = None
    return_lse: bool = False


class Sort(Enum):
    """What an argument is given as. All but options may be left out: None."""

    ARRAY = auto()  # an array of q's framework, which is read
    SCALAR = auto()  # a number, or a 0-d array of it; where it has a shape, an array of that too
    NUMBER = auto()  # a number, never an array
    OPTION = auto()  # what the form of a call depends on
    RESULT = auto()  # an array that is written


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape that an array has to have, contiguous unless it may be strided."""

    axes: str  # for people
    lengths: Callable[[Problem], tuple[int | None, ...]]  # None: any
    unfit: str  # what is said of another array
    help: str
    strided: bool = False  # any strides will do


@dataclass(frozen=True, slots=True)
class CallArgument:
    """One argument.

    `annotation` and `text` stand in the functions of packages. `code` is that of the diagnostic where it can't be used.
    `fields` are those of `struct Params` that take it, as C types and names: a pointer for an array, the other for a
    number; only of variants that it `concerns`.
    """

    name: str
    sort: Sort
    code: str
    annotation: str
    text: str | Callable[[Variant], str]
    default: Any = None
    dtypes: tuple[str, ...] = ()  # of an array, NumPy's names; int64 after int32: calls copy it to int32 first
    shape: Shape | None = None  # of a Sort.ARRAY
    backward: bool = True  # `Kernel.backward` takes it
    recorded: bool = True  # torch's operators take it
    fields: tuple[tuple[str, str], ...] = ()
    concerns: Callable[[Variant], bool] = lambda variant: True

    def described(self, variant: Variant) -> str:
        return self.text if isinstance(self.text, str) else self.text(variant)

    @property
    def declaration(self) -> str:
        """As the signature of a function has it."""
        missing = " | None" if self.default is None else ""
        default = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        return f"{self.name}: {self.annotation}{missing} = {default}"


def _starts(name: str) -> CallArgument:
    """cu_seqlens_q or cu_seqlens_kv; `bind` asks that both are given or none."""
    shape = Shape(
        "[batch + 1]",
        lambda problem: (problem.batch + 1,),
        unfit="isn't a list of sequence starts",
        help="start at 0 and append each sequence's end; both arrays have batch + 1 entries",
    )
    text = (
        "int32 [batch + 1], the starts of the sequences of a packed batch and its end; "
        "q, k, v and out have no batch axis, rows of no sequence are undefined then"
    )
    return CallArgument(
        name,
        Sort.ARRAY,
        "A616",
        "Array",
        text,
        dtypes=("int32", "int64"),
        shape=shape,
        fields=(("const int*", name),),
    )


_KV_LENS = CallArgument(
    "kv_lens",
    Sort.ARRAY,
    "A625",
    "Array",
    "int32 [batch], on the device: how many keys each sequence has, where k and v have room for more (a cache). "
    "Rows behind them may hold anything",
    dtypes=("int32", "int64"),
    shape=Shape(
        "[batch]",
        lambda problem: (problem.batch,),
        unfit="isn't a list of lengths",
        help="one length for each sequence of q",
    ),
    fields=(("const int*", "kv_lens"),),
)
_BLOCK_TABLE = CallArgument(
    "block_table",
    Sort.ARRAY,
    "A625",
    "Array",
    "int32 [batch, max_blocks]: k and v are pools of pages, [pages, kv_heads, page, head dim] in layout bhsd, "
    "[pages, page, kv_heads, head dim] in bshd, and key j of sequence b is row j % page of page "
    "block_table[b, j // page]. Needs kv_lens; entries behind these are never read",
    dtypes=("int32", "int64"),
    shape=Shape(
        "[batch, max_blocks]",
        lambda problem: (problem.batch, None),
        unfit="isn't a table of pages",
        help="one row for each sequence of q: the numbers of its pages",
    ),
    backward=False,
    fields=(("const int*", "block_table"),),
)
_Q_OFFSET = CallArgument(
    "q_offset",
    Sort.SCALAR,
    "A626",
    "Scalar",
    "an int, or int32 [batch] or 0-d on the device: q_pos = q_idx + q_offset. If not given, the last query is at the "
    "last key",
    dtypes=("int32", "int64"),
    shape=Shape(
        "[batch]", lambda problem: (problem.batch,), unfit="can't be used", help="one offset for each sequence of q"
    ),
    fields=(("const int*", "q_offsets"), ("int", "q_offset")),
)


def _cache_scale(name: str) -> CallArgument:
    """k_scale or v_scale; which rows there may be, `quantized.check_scales` says."""
    text = (
        f"float32 [batch, kv_heads], or [pages, kv_heads] with block_table: what {name} is multiplied by, where k and "
        "v are e4m3 or int8 and q has 16 bits; 1 if not given"
    )
    shape = Shape(
        "[batch or pages, kv_heads]",
        lambda problem: (None, problem.num_kv_heads),
        unfit="doesn't fit the cache",
        help="one row for each sequence of q, or each page of the pool; [1, kv_heads] serves all",
        strided=True,
    )
    return CallArgument(
        f"{name}_scale", Sort.ARRAY, "A629", "Array", text, dtypes=("float32",), shape=shape, backward=False
    )


_SHARED_PREFIX = CallArgument(
    "shared_prefix",
    Sort.OPTION,
    "A631",
    "int",
    "how many keys all sequences share: the first of each, the same rows in the pages that block_table names first, or "
    "equal ones in k and v. Keys of sequence 0 are then read for all. Each sequence has these, and one for each query "
    "behind them. Needs kv_lens; results are as without it",
    default=0,
    backward=False,
    recorded=False,
)


def _own_scale(variant: Variant) -> str:
    default = "the variant's own" if variant.scale is not None else "1 / sqrt(head dim)"
    return f"what q·k is multiplied by; {default}, if not given"


def _seed_text(variant: Variant) -> str:
    if variant.dropout is None:
        return "not used"
    return (
        "an int or a 0-d int64 array: the same seed drops the same pairs; of torch tensors drawn by torch, if not given"
    )


_LAYOUT = '"bhsd" as above, or "bshd": [batch, length, heads, head dim]'
_OUT = "where the result is written, if given: memory that q, k and v don't share"
_LSE = (
    "also return the log-sum-exp of each row's scores, fp32 [batch, heads, q_len]; of packed batches [heads, all rows]"
)
_STREAM = "where the work is queued; the current stream of the arrays' framework, if not given"

_RECORDS = (
    CallArgument("scale", Sort.NUMBER, "A619", "float", _own_scale),
    CallArgument("layout", Sort.OPTION, "A618", "str", _LAYOUT, "bhsd"),
    _starts("cu_seqlens_q"),
    _starts("cu_seqlens_kv"),
    _KV_LENS,
    _BLOCK_TABLE,
    _Q_OFFSET,
    _cache_scale("k"),
    _cache_scale("v"),
    _SHARED_PREFIX,
    CallArgument(
        "seed",
        Sort.SCALAR,
        "A612",
        "Scalar",
        _seed_text,
        dtypes=("int64",),
        fields=(("const long long*", "seed_pointer"), ("unsigned long long", "seed")),
        concerns=lambda variant: variant.dropout is not None,
    ),
    CallArgument("out", Sort.RESULT, "A617", "Array", _OUT, backward=False, recorded=False),
    CallArgument("return_lse", Sort.OPTION, "A614", "bool", _LSE, False, backward=False, recorded=False),
)

# Stand apart, as `stream` does: no fields of `Arguments`. `attncc.append` does with them what it says.
APPENDED = tuple(
    replace(item, backward=False, recorded=False)
    for item in (
        CallArgument(
            "k_new",
            Sort.ARRAY,
            "A601",
            "Array",
            "[batch, kv heads, n, head dim]: new keys, written into the cache first, where the last n of each "
            "sequence's kv_lens keys stand. Needs v_new and kv_lens; nothing has gradients then",
        ),
        CallArgument("v_new", Sort.ARRAY, "A601", "Array", "new values, as k_new"),
        CallArgument(
            "rotary",
            Sort.OPTION,
            "A627",
            "tuple[Array, Array]",
            "(cos, sin), each [positions, rotary dim / 2]: k_new and q are rotated at their positions (RoPE). "
            "Needs k_new",
        ),
        CallArgument(
            "interleaved",
            Sort.OPTION,
            "A627",
            "bool",
            "column 2i is rotated with 2i + 1 (GPT-J) instead of i with i + rotary dim / 2",
            False,
        ),
    )
)

ARGUMENTS = {item.name: item for item in _RECORDS}
STREAM = CallArgument("stream", Sort.OPTION, "A651", "Stream", _STREAM)  # stands apart: no field of `Arguments`

ARRAYS = tuple(item.name for item in _RECORDS if item.sort is Sort.ARRAY)
SCALARS = tuple(item.name for item in _RECORDS if item.sort is Sort.SCALAR)
NUMBERS = tuple(item.name for item in _RECORDS if item.sort is Sort.NUMBER)
FORWARD_ALONE = tuple(item.name for item in _RECORDS if not item.backward)
RECORDED = tuple(item for item in _RECORDS if item.recorded)
OPTIONS = tuple(item.name for item in _RECORDS if item.sort is Sort.OPTION)
READ = ARRAYS + SCALARS  # what may be an array that is read
