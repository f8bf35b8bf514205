"""`attncc.torch.Attention`, on the CPU executor."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from attncc.torch import Attention  # noqa: E402  (needs torch)

LEARNED = """attn 1
variant learned {
    input slope:  f32[head] learnable
    input cap:    f32 learnable
    input half:   f32[3] learnable
    input offset: i32[batch]
    input rate:   f32
    score = cap * tanh((score - slope[h] * abs(q_pos - kv_idx - offset[b]) + half[kv_idx % 3]) / cap)
    dropout rate
}
"""
MASKED = """attn 1
variant masked {
    input slope:  f32[head] learnable
    input offset: i32[batch]
    let distance = q_pos - kv_idx - offset[b]
    keep if distance >= 0
    keep if distance < 5
    score = score - slope[h] * distance
}
"""
DROPPED = "attn 1\nvariant dropped { dropout 0.5 }\n"
PLAIN = "attn 1\nvariant plain {}\n"


def kernel(source: str = LEARNED, dtype: str = "fp32") -> attncc.Kernel:
    return attncc.compile(source, dtype=dtype, head_dim=16)


def operands(dtype: Any = torch.float32) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 2, 7, 16, generator=generator).to(dtype) for _ in range(3))


def module(**changed: Any) -> Attention:
    given = {"slope": torch.tensor([0.1, 0.2]), "cap": 5.0, "half": torch.zeros(3), "rate": 0.25}
    return Attention(kernel(), **{**given, **changed})


OFFSET = torch.zeros(1, dtype=torch.int32)


def test_learnable_inputs_are_parameters_that_train() -> None:
    attention = module()
    assert {name for name, _ in attention.named_parameters()} == {"slope", "cap", "input_half"}
    assert attention.cap.shape == ()
    torch.manual_seed(0)
    attention(*operands(), offset=OFFSET).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in attention.parameters())


def test_it_calls_the_kernel() -> None:
    attention = module()
    out = attention(*operands(), offset=OFFSET, seed=4)
    with torch.no_grad():
        given = {"slope": torch.tensor([0.1, 0.2]), "cap": 5.0, "half": torch.zeros(3), "rate": 0.25, "offset": OFFSET}
        assert torch.equal(out, kernel()(*operands(), **given, seed=4))
    _, lse = attention(*operands(), offset=OFFSET, seed=4, return_lse=True)
    assert lse.shape == (1, 2, 7)


def test_inputs_that_are_kept_are_buffers_and_calls_beat_them() -> None:
    attention = module(offset=OFFSET)
    assert [name for name, _ in attention.named_buffers()] == ["offset"]
    kept = attention(*operands(), seed=4)
    assert torch.equal(kept, attention(*operands(), offset=OFFSET, seed=4))
    assert not torch.equal(kept, attention(*operands(), offset=OFFSET + 3, seed=4))


def test_state_moves_with_the_module() -> None:
    one, other = module(), module(slope=torch.ones(2), cap=1.0)
    other.load_state_dict(one.state_dict())
    call = {"offset": OFFSET, "seed": 4}
    assert torch.equal(one(*operands(), **call), other(*operands(), **call))
    assert torch.equal(one.half()(*operands(), **call), one(*operands(), **call))  # parameters of another type
    shared = torch.nn.Parameter(torch.ones(2))
    assert module(slope=shared).slope is shared


def test_modules_made_of_one_tensor_learn_apart() -> None:
    for given in (torch.tensor([0.1, 0.2]), np.array([0.1, 0.2], np.float32), torch.ones(1).expand(2)):
        one, other = module(slope=given), module(slope=given)
        with torch.no_grad():
            one.slope.add_(1)
        assert not torch.equal(one.slope, other.slope)
        assert float(given[0]) == pytest.approx(float(other.slope[0].detach()))


def test_copies_of_a_model_share_the_kernel() -> None:
    one = module()
    other = copy.deepcopy(one)
    assert other.kernel is one.kernel
    assert other.slope is not one.slope


ELSEWHERE = """
import sys, torch, attncc
q = torch.ones(1, 2, 7, 16, requires_grad=True)
attncc.compile("attn 1\\nvariant another { score = score * q_pos }", dtype="fp32", head_dim=16)(q, q, q)
attention, arrays, offset, expected = torch.load(sys.argv[1], weights_only=False)
assert torch.equal(attention(*arrays, offset=offset), expected)
"""


def test_a_saved_module_computes_the_same_in_another_process(tmp_path: Path) -> None:
    """Which has made another kernel before, and in which texts have other hashes."""
    attention = Attention(kernel(MASKED), slope=torch.tensor([0.1, 0.2]))
    path = tmp_path / "saved.pt"
    torch.save((attention, operands(), OFFSET, attention(*operands(), offset=OFFSET).detach()), path)
    root = Path(attncc.__file__).parent.parent
    for seed in ("1", "2"):
        given = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", ELSEWHERE, str(path)], cwd=root, env=given, check=True, timeout=100)


def test_a_pickled_kernel_is_another_one() -> None:
    """Compiled graphs tell kernels by their tokens."""
    one = module(cap=4.0)
    other = pickle.loads(pickle.dumps(one))
    assert other.kernel.token != one.kernel.token
    assert torch.equal(other(*operands(), offset=OFFSET, seed=4), one(*operands(), offset=OFFSET, seed=4))
    eight_bits = kernel(PLAIN, "e4m3")
    assert pickle.loads(pickle.dumps(eight_bits)).variant == eight_bits.variant


def test_a_name_is_no_kernel_and_the_help_compiles_it() -> None:
    with pytest.raises(AttnccError, match=r"A656(.|\n)*pass attncc\.compile\('causal', dtype=…, head_dim=…\)"):
        Attention("causal")


def test_no_dropout_in_eval_mode() -> None:
    attention = module().eval()
    one, other = (attention(*operands(), offset=OFFSET) for _ in range(2))
    assert torch.equal(one, other)
    dropped = Attention(kernel(DROPPED), in_eval=kernel(PLAIN))
    assert not torch.equal(dropped(*operands()), dropped(*operands()))
    with torch.no_grad():
        assert torch.equal(dropped.eval()(*operands()), kernel(PLAIN)(*operands()))
    with pytest.raises(AttnccError, match="A656"):
        Attention(kernel(DROPPED)).eval()(*operands())


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"slope": 1.0}, "A656"),
        ({"cap": torch.ones(2)}, "A656"),
        ({"half": torch.zeros(4)}, "A656"),
        ({"half": [[0.0], [0.0, 1.0]]}, "A656"),
        ({"slope": torch.ones(2, dtype=torch.complex64)}, "A656.*complex64"),
        ({"cap": "5"}, "A656.*`cap` is neither"),
        ({"cap": None}, "A656.*`cap` is neither"),
        ({"cap": True}, "A656.*bool"),
        ({"rate": None}, "A656"),
        ({"rate": [0.1]}, r"A656.*shape"),
        ({"offset": torch.zeros(1)}, "A656.*float32"),
        ({"offset": [0.5]}, "A656.*float32"),
        ({"layout": "sbhd"}, "A618"),
        ({"scale": "big"}, "A619"),
        ({"other": 1}, "A608"),
    ],
    ids=str,
)
def test_values_that_do_not_suit(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(AttnccError, match=f"(?s){code}"):
        module(**changed)


def test_values_that_make_tensors() -> None:
    attention = module(slope=np.array([0.1, 0.2]), cap=np.float32(5), half=[0, 0, 0], offset=[0])
    assert {x.dtype for x in attention.parameters()} == {torch.float32}
    assert torch.equal(attention(*operands(), seed=4), module()(*operands(), offset=OFFSET, seed=4))


def test_calls_beat_scale_and_layout() -> None:
    attention = module(scale=0.5)
    turned = [x.transpose(1, 2) for x in operands()]
    out = attention(*turned, offset=OFFSET, seed=4, scale=0.25, layout="bshd")
    assert torch.equal(out.transpose(1, 2), module(scale=0.25)(*operands(), offset=OFFSET, seed=4))


def test_inputs_named_as_the_modules_arguments() -> None:
    named = PLAIN.replace("{}", "{ input kernel: f32 learnable\n score = score * kernel }")
    assert Attention(kernel(named), kernel=2.0)(*operands()).requires_grad
    with pytest.raises(AttnccError, match=r"A656.*`in_eval`"):
        Attention(kernel(named.replace("kernel", "in_eval")))


def test_a_missing_value_and_what_is_no_kernel() -> None:
    with pytest.raises(AttnccError, match=r"A656.*`slope`"):
        Attention(kernel(), cap=1.0)
    with pytest.raises(AttnccError, match="A656"):
        Attention("kernel")


def test_compiles_as_part_of_a_model() -> None:
    attention = module(offset=OFFSET)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*operands(), seed=torch.tensor(4)), attention(*operands(), seed=4))
    compiled(*operands()).sum().backward()
    assert attention.slope.grad.any()


def test_built_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attncc.package import package_files, prepare

    for name, text in package_files(prepare(LEARNED, archs=["sm_80"], dtypes=["fp32"], head_dims=[16])).items():
        path = tmp_path / "packaged" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    from packaged import learned  # type: ignore[import-not-found]

    given = {"slope": torch.tensor([0.1, 0.2]), "cap": 5.0, "half": torch.zeros(3), "rate": 0.25, "offset": OFFSET}

    def model(q: Any, k: Any, v: Any, slope: Any) -> Any:
        return learned(q, k, v, **{**given, "slope": slope}, seed=4)

    q, k, v = (x.requires_grad_() for x in operands())
    slope = given["slope"].clone().requires_grad_()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")  # the package's first call
    found = torch.autograd.grad(compiled(q, k, v, slope).sum(), (q, k, v, slope))
    expected = torch.autograd.grad(kernel()(q, k, v, **{**given, "slope": slope}, seed=4).sum(), (q, k, v, slope))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert Attention(learned, **{**given, "offset": OFFSET}).slope.requires_grad
    arrays = [x.detach() for x in (q, k, v)]
    out, lse = learned(*arrays, **given, seed=4, return_lse=True)
    grads = learned.backward(torch.ones_like(out), *arrays, out, lse, **given, seed=4)
    assert torch.equal(grads.inputs["slope"], expected[3])
