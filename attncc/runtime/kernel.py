"""`Kernel`: one variant, ready to be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, cast

from ..ir import Variant
from ..problem.call_arguments import Arguments, Given
from ..problem.gradients import Gradients, check_backward_names, check_deterministic
from ..problem.refusal import refused
from .call.backward_arguments import BackwardArguments
from .call.launch import Launcher, Run
from .frameworks.arrays import (
    framework_of,
    is_foreign,
    is_traced,
    known_frameworks,
    no_stream_here,
    stream_handle,
)
from .frameworks.foreign import handed_back, opened
from .frameworks.framework import Array, DeviceFramework, HostFramework
from .store.loaded_kernels import KernelLoader
from .store.store import Configuration, KernelStore
from .torch.tokens import BackwardAgain, token_of

if TYPE_CHECKING:
    from .call.appender import Appender
    from .call.backward_launch import BackwardLauncher


class Kernel:
    """A callable for one variant. `attncc.compile` and built packages make them.

    q is [batch, heads, q_len, head_dim], k and v [batch, kv_heads, kv_len, head_dim] in layout "bhsd"; "bshd" has heads
    and length exchanged. Packed batches (cu_seqlens_q, cu_seqlens_kv: int32 [batch + 1]) leave the batch axis out.
    k and v of batch 1 serve all sequences; their gradients are sums over these. int64 arrays stand for int32 ones, as
    cu_seqlens, other lengths and inputs: each call copies them first. Their numbers must fit in int32. The CPU refuses
    others; a GPU takes the low 32 bits, since to look at them would cost a synchronisation. Of head dims that aren't
    multiples of 8 (e4m3: 16) a call on a GPU copies q, k and v, rows filled up with zeros; out and the gradients are
    views of such rows, without the zeros.
    """

    def __init__(self, store: KernelStore, loaders: tuple[KernelLoader, KernelLoader] | None = None) -> None:
        """`loaders`: of both passes, another kernel's of the same store."""
        self._store = store
        self._loaders = loaders or (KernelLoader(store), KernelLoader(store, backward=True))
        self._launcher = Launcher(store, self, self._loaders[0])
        self._appender: Appender | None = None
        self._backward: BackwardLauncher | None = None
        # A call of a form that is known, on a GPU and on the current stream; None for any other. It judges the call's
        # arrays and numbers, so a caller that judged such a call before needn't judge this one.
        self.again = self._launcher.again
        self.token = token_of(self)

    @property
    def store(self) -> KernelStore:
        """Where its plans and machine code are."""
        return self._store

    def sibling(self) -> Kernel:
        """One with the same machine code that knows a form of call of its own: where forms take turns, each has one."""
        return Kernel(self._store, self._loaders)

    @property
    def variant(self) -> Variant:
        return self._store.variant

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """What it was built for: (dtype, head_dim, value_head_dim)."""
        return self._store.configurations

    def report(self) -> Mapping[str, Mapping[str, Any]]:
        """What the compiler said of each kernel that exists so far, by name; the entries of a package's manifest.

        Registers, spills and messages of ptxas, and under `choice` the tiles, why it is these, and what was rejected.
        """
        return self._store.report()

    def __repr__(self) -> str:
        return f"<attncc kernel {self.variant.name}: {', '.join(item.name for item in self.configurations)}>"

    def _repr_html_(self) -> str:
        """For notebooks: its variant, with a picture of the mask."""
        from ..show.variants import html

        return html(self.variant, repr(self).strip("<>"))

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float | None = None,
        layout: str = "bhsd",
        cu_seqlens_q: Array | None = None,
        cu_seqlens_kv: Array | None = None,
        kv_lens: Array | None = None,
        block_table: Array | None = None,
        q_offset: Any = None,
        k_scale: Array | None = None,
        v_scale: Array | None = None,
        shared_prefix: int = 0,
        seed: Any = None,
        out: Array | None = None,
        return_lse: bool = False,
        stream: Any = None,
        k_new: Array | None = None,
        v_new: Array | None = None,
        rotary: tuple[Array, Array] | None = None,
        interleaved: bool = False,
        **inputs: Any,
    ) -> Any:
        """Attention of q, k and v: out, or (out, lse) with return_lse.

        Arrays are NumPy's, CuPy's or torch's, or come by DLPack; results are of q's kind. On a GPU the work is queued
        on `stream` (default: the current stream of the arrays' framework) and the call returns at once. NumPy arrays
        and CPU tensors run on the CPU executor. Where a torch tensor requires a gradient, autograd records the call:
        see docs/backward.md.

        lse is the natural logarithm, fp32 [batch, heads, q_len], of packed batches [heads, all rows]. What stands
        in rows that no sequence owns is undefined, in `out` as well. The axes of a new out lie in memory as those of q,
        unless the batch is packed: of a q that came by `transpose(1, 2)`, out.transpose(1, 2) is contiguous. Gradients
        follow their operands.

        `inputs` are those of the variant, by name. `scale` takes the place of the variant's. `out` shares no memory
        with q, k, v and inputs. `seed`, an int or a 0-d int64 array, is needed with dropout; of torch tensors it is
        drawn from torch's generator where it is missing.

        A cache (docs/serving.md) has k and v with room for more keys. `kv_lens`, int32 [batch], says how many count;
        `block_table`, int32 [batch, max_blocks], in which pages they are; `q_offset`, an int or int32 [batch], where
        the queries stand. `shared_prefix` keys are the same in all sequences, and are read once. With `k_new`, `v_new`
        and `kv_lens`, `attncc.append` writes new rows into the cache first, and with `rotary` rotates them and q.

        8 bits: k and v may be a cache of e4m3 or int8 where q is fp16 or bf16. They stand for their numbers times
        `k_scale` and `v_scale`, f32 [batch, kv_heads] or, with a block_table, [pages, kv_heads]; 1 where missing.
        Kernels of e4m3 take `q_descale`, `k_descale` and `v_descale`, f32 [batch, kv_heads], 1 where missing: what
        q, k and v of a sequence and key head are multiplied by. Their out is bf16.

        Raises AttnccError (A5xx, A6xx) before any launch, except the one that writes new rows.
        """
        if k_new is not None or v_new is not None or rotary is not None or interleaved is not False:
            where = kv_lens, block_table, cu_seqlens_q, q_offset, layout, stream, k_scale, v_scale
            q = self.appended(q, k, v, (k_new, v_new, rotary, interleaved), *where)
        # fmt: off
        given = (  # one tuple at once: to put others into it takes as long as two pointers
            q, k, v, inputs, scale, layout, cu_seqlens_q, cu_seqlens_kv,
            kv_lens, block_table, q_offset, k_scale, v_scale, shared_prefix, seed, out, return_lse,
        )
        # fmt: on
        return self.called(given, stream)

    def appended(  # noqa: PLR0917  (as the call has them, by position: packages do so)
        self,
        q: Array,
        k: Array,
        v: Array,
        new: tuple[Any, Any, Any, Any],
        kv_lens: Array | None,
        block_table: Array | None,
        cu_seqlens_q: Array | None,
        q_offset: Any,
        layout: str,
        stream: Any,
        k_scale: Array | None = None,
        v_scale: Array | None = None,
    ) -> Array:
        """The q of a call after its `new` rows (`k_new`, `v_new`, `rotary`, `interleaved`) were written into its cache:
        rotated with `rotary`, else as it came.

        AttnccError A628 where arguments don't go together, else as `attncc.append`.
        """
        from ..problem.appended import Append, check_appended
        from .call.appender import Appender

        k_new, v_new, rotary, interleaved = new
        rotated = None if rotary is None else q
        cache = kv_lens, block_table, cu_seqlens_q
        call = Append(k, v, k_new, v_new, *cache, q=rotated, k_scale=k_scale, v_scale=v_scale)
        check_appended(call, q_offset)
        if self._appender is None:
            self._appender = Appender(self._store.append_code)
        out = self._appender.run(call, rotary, interleaved=interleaved, layout=layout, stream=stream)
        return q if out is None else out

    def called(self, given: Given, stream: Any) -> Any:
        """A call by all of its arguments, which takes less time than by keywords: packages do so."""
        framework = known_frameworks.get(type(given[0]))
        if framework is None or stream is not None or framework.traces():
            return self._run(Arguments(*given), stream)
        result = self.again(given)
        if result is not None:
            return result
        ordinal = framework.ordinal(given[0])
        if ordinal < 0:
            return self._run(Arguments(*given), None)
        return self._launcher.run(framework, ordinal, given)

    def backward(  # noqa: PLR0917  (what flows back, the operands, what the call gave)
        self,
        dout: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array | None,
        lse: Array | None,
        *,
        scale: float | None = None,
        layout: str = "bhsd",
        cu_seqlens_q: Array | None = None,
        cu_seqlens_kv: Array | None = None,
        kv_lens: Array | None = None,
        q_offset: Any = None,
        seed: Any = None,
        dlse: Array | None = None,
        deterministic: bool = False,
        stream: Any = None,
        **inputs: Any,
    ) -> Gradients:
        """The gradients of a call: dq, dk, dv, and by name those of learnable inputs; dout is the gradient of its out.

        `out` and `lse` are what the call gave (None without softmax), `dlse` is the gradient of lse (None: zeros); all
        else is as it was in that call, `seed` as well. dq, dk and dv are shaped as q, k and v, in their type; the
        gradient of an input is shaped as the input, in its type. `deterministic`: bit for bit the same in every run.
        Raises AttnccError (A5xx, A6xx) before any launch.
        """
        check_backward_names(inputs)
        check_deterministic(deterministic)
        starts = cu_seqlens_q, cu_seqlens_kv
        call = Arguments(q, k, v, inputs, scale, layout, *starts, kv_lens=kv_lens, q_offset=q_offset, seed=seed)
        arguments = BackwardArguments(call, dout, out, lse, dlse, deterministic)
        if not is_traced():
            return self.run_backward(arguments, stream)
        from .torch.autograd import traced_backward

        return traced_backward(self, arguments, stream)

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        """Itself: models are copied, as for a moving average of weights, and a kernel has no state that changes."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew from its plans: a token that was pickled would stand for another kernel in another process."""
        return Kernel, (self._store,)

    def load(self, device: int = 0) -> None:
        """Loads its machine code on a GPU now rather than at the first call, as recording a CUDA graph needs it: all of
        a package; of `attncc.compile` what calls without pages, 8-bit caches and shared prefixes may need, compiled if
        it isn't. The first call of `backward` compiles and loads what that needs.

        `device` counts the GPUs as the frameworks do. AttnccError A615 for what is no number, A5xx as calls."""
        try:
            ordinal = index(device)
        except TypeError:
            what, expected = "`device` can't be used", "the number of a GPU"
            raise refused("A615", what, expected=expected, came=f"{device!r:.60}", help="for cuda:1 pass 1") from None
        self._launcher.load(ordinal)

    def check_backward(self, configuration: Configuration, ordinal: int) -> None:
        """AttnccError A520 if it is a package's, built without the backward pass for this GPU."""
        self._launcher.check_backward(configuration, ordinal)

    def run_unrecorded(self, call: Arguments) -> Any:
        """A call that torch doesn't record, on the current stream."""
        framework = framework_of(call.q, "q")
        ordinal = framework.ordinal(call.q)
        if ordinal >= 0:
            return self._launcher.run(cast(DeviceFramework, framework), ordinal, call)
        from .call.host import run_on_host

        return run_on_host(self._store, cast(HostFramework, framework), call)

    def judge(self, call: Arguments) -> None:
        """AttnccError for what is wrong with a call, of which nothing is run."""
        framework = framework_of(call.q, "q")
        ordinal = framework.ordinal(call.q)
        if ordinal >= 0:
            self._launcher.judge(cast(DeviceFramework, framework), call)
            return
        from .call.host import bound_on_host

        bound_on_host(self._store, cast(HostFramework, framework), call)

    def run_backward(self, arguments: BackwardArguments, stream: Any = None) -> Gradients:
        """`backward`, of arguments that stand together."""
        from .call.backward import run_backward

        return run_backward(self._store, self._backward_launcher(), arguments, stream)

    @property
    def backward_again(self) -> BackwardAgain:
        """The gradients of a call on a GPU whose form is known, on the current stream; None for any other."""
        return self._backward_launcher().again

    def _backward_launcher(self) -> BackwardLauncher:
        from .call.backward_launch import BackwardLauncher

        if self._backward is None:
            self._backward = BackwardLauncher(self._store, self._loaders[1])
        return self._backward

    def _run(self, call: Arguments, stream: Any) -> Any:
        if not is_traced():
            return self.run(call, stream)
        from .torch.autograd import traced

        return traced(self, call, stream)

    def run(self, call: Arguments, stream: Any) -> Any:
        """A call that torch.compile doesn't look at, of arguments that stand together."""
        if is_foreign(call.q):
            return self._through_dlpack(call, stream)
        framework = framework_of(call.q, "q")
        ordinal = framework.ordinal(call.q)
        if ordinal < 0:
            if stream is not None:
                raise no_stream_here(stream)
            wanted = framework.records(self.variant, self.configurations, call)
            return self.record(call) if wanted else self.run_unrecorded(call)
        device = cast(DeviceFramework, framework)
        if stream is None:
            return self._launcher.run(device, ordinal, call)
        with device.on_stream(stream_handle(stream, ordinal), ordinal):
            return self._launcher.run(device, ordinal, call)

    def record(self, call: Arguments) -> Any:
        """See `call.launch.Recorder`."""
        from .torch.autograd import recorded

        return recorded(self, call)

    def recorded_form(self, call: Arguments, prepare: Callable[[Arguments], Run]) -> Run | None:
        """See `call.launch.Recorder`."""
        from .torch.autograd import recorded_form

        return recorded_form(self, call, prepare)

    def _through_dlpack(self, call: Arguments, stream: Any) -> Any:
        """A call with arrays of another framework: seen as CuPy or NumPy arrays, the results handed back."""
        if call.out is not None:
            raise refused(
                "A655",
                "`out` can't be used with arrays that come by DLPack",
                expected="out=None",
                came=f"{type(call.out).__module__}.{type(call.out).__qualname__}",
                help="take the result that the call returns",
            )
        result = self._run(call.each_read(opened), stream)
        if call.return_lse:
            return handed_back(result[0], call.q), handed_back(result[1], call.q)
        return handed_back(result, call.q)


def kernel_of(name: str, given: Any) -> Kernel:
    """A kernel, or that of a built package's function. AttnccError A656 if the argument of this name is neither."""
    kernel = given if isinstance(given, Kernel) else getattr(getattr(given, "package", None), "kernel", None)
    if not isinstance(kernel, Kernel):
        expected = "what attncc.compile gives, or a function of a built package"
        came, help = type(given).__qualname__, ""
        if isinstance(given, str):
            help = f"pass attncc.compile({given!r}, dtype=…, head_dim=…)"
        raise refused("A656", f"`{name}` is not a kernel", expected=expected, came=came, help=help)
    return kernel
