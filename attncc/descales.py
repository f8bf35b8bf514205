"""What 8-bit operands stand for: q, k and v of each sequence and key head times a factor that the call brings."""

from __future__ import annotations

from dataclasses import replace

from .diagnostics import AttnccError, Diagnostic
from .ir import Axis, Expr, Input, Load, Symbol, Type, Variant, apply, symbol

Q_DESCALE, K_DESCALE, V_DESCALE = DESCALES = ("q_descale", "k_descale", "v_descale")
PRODUCT_SCALE = "product_scale"  # a symbol of code generation alone


def with_descales(variant: Variant) -> Variant:
    """The variant with q_descale, k_descale and v_descale, f32[batch, kv_head], as inputs that are 1 if left out.

    AttnccError A414 if it has an input of such a name, or what has no meaning in 8 bits.
    """
    troubles = [*_own_names(variant), *_without_meaning(variant)]
    if troubles:
        raise AttnccError(troubles)
    axes = Axis("batch"), Axis("kv_head")
    return replace(variant, inputs=(*variant.inputs, *(Input(name, "f32", axes, default=1.0) for name in DESCALES)))


def descaled(variant: Variant) -> bool:
    """Whether it is the work of `with_descales`."""
    return any(item.name == Q_DESCALE and item.default is not None for item in variant.inputs)


def score_descale() -> Expr:
    """What the product of a row of q and one of k is multiplied by, beside the scale."""
    return apply("mul", _descale(Q_DESCALE), _descale(K_DESCALE))


def product_scale(variant: Variant) -> Symbol:
    """What makes the score of the product of a row of q and one of k, as a kernel holds them. Lines that read `scale`
    mean it without descales."""
    return Symbol(Type.FLOAT, PRODUCT_SCALE if descaled(variant) else "scale")


def value_descale() -> Expr:
    return _descale(V_DESCALE)


def _descale(name: str) -> Expr:
    return Load(Type.FLOAT, name, (symbol("b"), symbol("kv_h")))


def _own_names(variant: Variant) -> list[Diagnostic]:
    return [
        Diagnostic(
            "A414",
            f"{variant.name} has an input `{item.name}`, which e4m3 kernels have themselves",
            item.span,
            help="rename the input",
        )
        for item in variant.inputs
        if item.name in DESCALES
    ]


def _without_meaning(variant: Variant) -> list[Diagnostic]:
    what = []
    if variant.normalize != "softmax":
        what.append((f"`normalize {variant.normalize}`", "its probabilities have no largest one to be scaled by"))
    if variant.dropout is not None:
        what.append(("`dropout`", "its random bits are laid out for operands of 16 bits"))
    return [
        Diagnostic("A414", f"e4m3 kernels have no {name}", variant.span, notes=(why,), help="build for bf16 or fp16")
        for name, why in what
    ]
