"""`Kernel` on the CPU: NumPy, torch and foreign arrays run on the executor, and come back as they came."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncc import reference
from attncc.diagnostics import AttnccError
from attncc.runtime.kernel import Kernel
from tests import plans
from tests.unit.runtime.fakes import FakeArray, FakeStore

torch = pytest.importorskip("torch")


def kernel(*dtypes: str, variant: Any = plans.ALIBI) -> Kernel:
    return Kernel(FakeStore(*(plans.plan(variant, dtype) for dtype in dtypes or ("fp32",))))


def call() -> dict[str, Any]:
    return plans.arguments(plans.ALIBI, 2, 4, 70)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_numpy_in_numpy_out(dtype: str) -> None:
    q, k, v = plans.qkv(dtype)
    out, lse = kernel(dtype)(q, k, v, return_lse=True, **call())
    assert (out.dtype, out.shape) == (q.dtype, q.shape)
    assert lse.dtype == (np.float64 if dtype == "fp64" else np.float32)
    expected, expected_lse = reference.forward(plans.ALIBI, q, k, v, **call())
    tolerance = {"fp16": 2e-3, "bf16": 2e-2, "fp32": 1e-5, "fp64": 1e-12}[dtype]
    assert np.abs(out.astype(np.float64) - expected).max() < tolerance
    assert expected_lse is not None
    assert np.abs(lse - expected_lse).max() < 1e-4


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_torch_in_torch_out_with_the_same_bits(dtype: str) -> None:
    arrays = plans.qkv(dtype)
    expected = kernel(dtype)(*arrays, **call())
    tensors = [tensor(array) for array in arrays]
    inputs = {"slope": tensor(call()["slope"]), "cap": torch.tensor(5.0)}
    out = torch.empty_like(tensors[0])
    result, lse = kernel(dtype)(*tensors, out=out, return_lse=True, **inputs)
    assert result is out
    assert np.array_equal(bits(out), expected.view(np.int8))
    assert lse.dtype == torch.float32


def test_out_has_the_order_of_q_in_memory() -> None:
    q, k, v = plans.qkv("fp32")
    expected = kernel()(q, k, v, **call())
    transposed = q.swapaxes(1, 2).copy().swapaxes(1, 2)
    out = kernel()(transposed, k, v, **call())
    assert out.strides == transposed.strides != expected.strides
    assert np.array_equal(out, expected)
    tensors = kernel()(*map(tensor, (transposed, k, v)), slope=tensor(call()["slope"]), cap=5.0)
    assert tensors.transpose(1, 2).is_contiguous()


def test_int64_is_taken_for_int32() -> None:
    own = kernel(variant=plans.DOCUMENTS)
    q, k, v = plans.qkv("fp32")
    doc = plans.arguments(plans.DOCUMENTS, *k.shape[:2], k.shape[2])["doc"]
    assert np.array_equal(own(q, k, v, doc=doc.astype(np.int64)), own(q, k, v, doc=doc))
    with pytest.raises(AttnccError, match=r"A610.*`doc`(.*\n)*.*32-bit"):
        own(q, k, v, doc=doc + np.int64(2**31))
    starts = np.array([0, 5, q.shape[2]])
    packed = {"cu_seqlens_q": starts, "cu_seqlens_kv": np.array([0, 5, k.shape[2]]), "doc": doc[0]}
    narrow = {name: array.astype(np.int32) for name, array in packed.items()}
    assert np.array_equal(own(q[0], k[0], v[0], **packed), own(q[0], k[0], v[0], **narrow))


def test_k_and_v_of_batch_1_serve_all_sequences() -> None:
    q, k, v = plans.qkv("fp32")
    own, repeated = kernel(), np.repeat(v[:1], 2, axis=0)
    assert np.array_equal(own(q, k, v[:1], **call()), own(q, k, repeated, **call()))
    expected, _ = reference.forward(plans.ALIBI, q, k, repeated, **call())
    assert np.array_equal(reference.forward(plans.ALIBI, q, k, v[:1], **call())[0], expected)


def tensor(array: Any) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def bits(array: Any) -> Any:
    return array.view(torch.int8).numpy()


def test_the_configuration_follows_the_arrays() -> None:
    both = kernel("fp16", "fp32")
    assert both(*plans.qkv("fp16"), **call()).dtype == np.float16
    assert both(*plans.qkv("fp32"), **call()).dtype == np.float32
    q, k, v = plans.qkv("fp64")
    with pytest.raises(AttnccError, match=r"A506.*float64(.*\n)*.*fp64 can't be built"):
        both(q, k, v, **call())
    for wrong, advice in (
        ([x.astype(np.int32) for x in (q, k, v)], "convert the arrays: kernels can't be built for int32"),
        ([x[..., :0].astype(np.float16) for x in (q, k, v)], "head dims are from 1 to 576"),
        ([np.zeros((1, 1, 1, 520), np.float16)] * 3, "head dims are from 1 to 576, those of values to 512"),
        ([x[..., :8].astype(np.float16) for x in (q, k, v)], "attncc build FILE --dtype fp16 --head-dim 8"),
    ):
        with pytest.raises(AttnccError, match="A506") as caught:
            both(*wrong, **call())
        assert advice in caught.value.diagnostics[0].help
    for rank in (0, 1, 2, 5):
        with pytest.raises(AttnccError, match=r"A601.*`q` has the wrong rank"):
            both(np.zeros((3,) * rank, np.float16), *plans.qkv("fp16")[1:], **call())
    with pytest.raises(AttnccError, match=r"A604.*`q`"):  # the others are of a type that it was built for
        both(q, k.astype(np.float32), v.astype(np.float32), **call())
    assert repr(both) == "<attncc kernel alibi: fp16_d16, fp32_d16>"


@pytest.mark.parametrize("device", ["cuda:1", torch.device("cuda:1"), None, 1.0])
def test_a_device_is_a_number(device: Any) -> None:
    with pytest.raises(AttnccError, match=r"A615(.|\n)*help: for cuda:1 pass 1$"):
        kernel().load(device)


def test_numbers_may_be_0d_arrays() -> None:
    expected = kernel()(*plans.qkv(), **call())
    for cap in (np.float64(5), np.array(5.0, np.float32), torch.tensor(5.0), 5):
        assert np.array_equal(kernel()(*plans.qkv(), **{**call(), "cap": cap}), expected)


def test_refusals_name_the_argument() -> None:
    q, k, v = plans.qkv()
    with pytest.raises(AttnccError, match=r"A607.*`cap`"):
        kernel()(q, k, v, slope=call()["slope"])
    with pytest.raises(AttnccError, match=r"A605.*`k`"):
        kernel()(q, torch_on_gpu(), v, **call())
    with pytest.raises(AttnccError, match=r"A622.*`v`"):
        kernel()(q, k, 3, **call())
    with pytest.raises(AttnccError, match=r"A622.*`q`"):
        kernel()([1.0], k, v, **call())
    with pytest.raises(AttnccError, match=r"A610.*`cap`(.*\n)*.*a number or a 0-d array, for cap: f32"):
        kernel()(q, k, v, slope=call()["slope"], cap="3")
    with pytest.raises(AttnccError, match=r"A622.*`k` is a masked array"):
        kernel()(q, np.ma.masked_array(k), v, **call())


def test_a_stream_means_nothing_on_the_cpu() -> None:
    arrays = plans.qkv()
    for given in (arrays, tuple(map(tensor, arrays))):
        with pytest.raises(AttnccError, match=r"A651(.*\n)*.*expected None, since the arrays are on the CPU"):
            kernel()(*given, **call(), stream=3)
        with pytest.raises(AttnccError, match="A651"):
            kernel().backward(given[0], *given, given[0], None, **call(), stream=3)


def torch_on_gpu() -> Any:
    from attncc.runtime.frameworks import arrays
    from tests.unit.runtime.fakes import FakeFramework

    arrays.known_frameworks[FakeArray] = FakeFramework()  # type: ignore[assignment]
    return FakeArray((2, 2, 70, 16), "float32")


# -------------------------------------------------------------------- other frameworks


class Foreign:
    """An array of a framework that attncc doesn't know, in the manner of JAX's on a CPU."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array

    def __array_namespace__(self) -> Any:
        class Namespace:
            asarray = Foreign

        return Namespace


def test_foreign_arrays_come_back_as_they_came() -> None:
    arrays = plans.qkv("bf16")
    expected = kernel("bf16")(*arrays, **call())
    out, lse = kernel("bf16")(*map(Foreign, arrays), slope=Foreign(call()["slope"]), cap=5.0, return_lse=True)
    assert isinstance(out, Foreign)
    assert isinstance(lse, Foreign)
    assert np.array_equal(out.array, expected)
    with pytest.raises(AttnccError, match="A655"):
        kernel("bf16")(*map(Foreign, arrays), **call(), out=Foreign(expected))


class DlpackOnly:
    """An array that says what it holds by DLPack and in no other way."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_alone_is_enough() -> None:
    arrays = plans.qkv("fp32")
    expected = kernel("fp32")(*arrays, **call())
    result = kernel("fp32")(*map(DlpackOnly, arrays), slope=DlpackOnly(call()["slope"]), cap=5.0)
    assert np.array_equal(result, expected)
    with pytest.raises(AttnccError, match=r"A622.*`k`"):
        kernel("fp32")(DlpackOnly(arrays[0]), DlpackOnly(tensor(plans.qkv("bf16")[1])), arrays[2], **call())


# -------------------------------------------------------------------- what out and the frameworks must be


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_out_shares_no_memory_with_what_is_read(name: str) -> None:
    buffer = np.zeros((2, 4, 50, 16), np.float32)
    arrays = dict(zip("qkv", (buffer[:, :, :45].copy() for _ in range(3)), strict=True))
    arrays[name] = buffer[:, :, 5:]
    inputs = plans.arguments(plans.ALIBI, 2, 4, 45)
    with pytest.raises(AttnccError, match=rf"A617.*`out` shares memory with `{name}`"):
        kernel()(**arrays, out=buffer[:, :, :45], **inputs)
    tensors = {key: tensor(array) for key, array in arrays.items()}
    with pytest.raises(AttnccError, match="A617"):
        kernel()(**tensors, out=tensor(buffer)[:, :, :45], slope=tensor(inputs["slope"]), cap=5.0)


def test_out_may_lie_between_the_rows_of_q() -> None:
    fused = np.ones((2, 4, 45, 2, 16), np.float32)
    q, out = fused[..., 0, :], fused[..., 1, :]
    inputs = plans.arguments(plans.ALIBI, 2, 4, 45)
    expected = kernel()(q.copy(), q.copy(), q.copy(), **inputs)
    kernel()(q, q, q, out=out, **inputs)
    assert np.array_equal(out, expected)


def test_out_must_be_writable() -> None:
    q, k, v = plans.qkv()
    out = np.empty_like(q)
    out.flags.writeable = False
    with pytest.raises(AttnccError, match=r"A617.*read-only"):
        kernel()(q, k, v, out=out, **call())


def test_frameworks_are_not_mixed() -> None:
    q, k, v = plans.qkv()
    with pytest.raises(AttnccError, match=r"A654.*`out`"):
        kernel()(*map(tensor, (q, k, v)), out=np.empty_like(q), slope=tensor(call()["slope"]), cap=5.0)
    with pytest.raises(AttnccError, match=r"A654.*`slope`"):
        kernel()(q, k, v, slope=tensor(call()["slope"]), cap=torch.tensor(5.0))


def test_arrays_by_dlpack_are_not_mixed_with_others() -> None:
    class Exchanged:
        def __init__(self, array: Any) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    q, k, v = plans.qkv()
    for given in ((q, Exchanged(k), v), (tensor(q), tensor(k), Exchanged(v))):
        with pytest.raises(AttnccError, match=r"A654.*\n.*\n.*Exchanged"):
            kernel()(*given, slope=call()["slope"], cap=5.0)


def test_tensors_without_plain_memory_are_refused() -> None:
    q, k, v = map(tensor, plans.qkv())
    slope = tensor(call()["slope"])
    negative = torch.view_as_complex(torch.stack([slope, slope], -1)).conj().imag
    with pytest.raises(AttnccError, match=r"A650.*\n.*\n.*sparse"):
        kernel()(q, k, v, slope=slope.to_sparse(), cap=5.0)
    with pytest.raises(AttnccError, match=r"A650.*\n.*\n.*negates"):
        kernel()(q, k, v, slope=negative, cap=5.0)
    with pytest.raises(AttnccError, match="A650"):
        kernel()(q.to_sparse(), k, v, slope=slope, cap=5.0)
    with pytest.raises(AttnccError, match=r"A650.*meta"):
        kernel()(q.to("meta"), k, v, slope=slope, cap=5.0)
