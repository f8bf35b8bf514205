"""What `attncc show --stage` prints: one step from the file to machine code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..quoting import json_text, printable
from .console import as_json, progress, report
from .files import load_specification, source, spec, writing

if TYPE_CHECKING:
    from ..kernels.candidates import Candidates
    from ..settle import Settled

_TEXTS = {"stage", "out"}
_VARIANTS = _TEXTS | {"variant", "defines", "allow_imports"}
_PLANS = _VARIANTS | {"dtype", "head_dim", "target", "pass_name"}

# The options that say something to each stage. The others are refused.
OPTIONS = {
    "ast": _TEXTS,
    "ir": _VARIANTS,
    "rules": _PLANS,
    "plan": _PLANS,
    "cuda": _PLANS,
    "ptx": _PLANS,
    "sass": _PLANS,
}
OF_STAGES_ALONE = {"out", "dtype", "target", "pass_name"}  # pictures of masks don't ask for them


def check_options(ctx: click.Context, stage: str | None) -> None:
    """A usage error for options that a picture, or a stage, has no use for."""
    for option in ctx.command.params:
        given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if not given or not isinstance(option, click.Option) or not option.expose_value:
            continue
        if stage is None and option.name in OF_STAGES_ALONE:
            raise click.UsageError(f"{option.opts[0]} is for --stage: a picture of the mask doesn't depend on it")
        if stage is not None and option.name not in OPTIONS[stage]:
            raise click.UsageError(f"{option.opts[0]} changes nothing in --stage {stage}: leave one of them out")


def print_stage(file: Path, stage: str, out: Path | None, given: dict[str, Any]) -> None:
    """Prints the text of a stage, or writes it to `out`. AttnccError with what is wrong with the file, or a kernel."""
    text = _text(file, stage, given)
    if out is not None:
        with writing(out):
            out.write_text(text, encoding="utf-8")
        click.echo(f"wrote {printable(str(out))}", err=as_json())
    if as_json():
        click.echo(json_text({"stage": stage, "text": text}))
    elif out is None:
        click.echo(text, nl=False)


def _text(file: Path, stage: str, given: dict[str, Any]) -> str:
    from .. import stages
    from ..syntax.parser import parse

    if stage == "ast":
        return stages.ast_text(parse(source(file)))
    if stage == "ir":
        return _ir_text(file, given)
    texts: dict[str, Callable[[Settled], str]] = {
        "rules": lambda found: stages.rules_text(found.plan),
        "plan": lambda found: stages.plan_text(found.plan),
        "cuda": lambda found: found.source.text,
        "ptx": lambda found: stages.ptx_text(found.source, found.plan.target),
        "sass": lambda found: stages.sass_text(found.compiled.code.image),
    }
    return texts[stage](_settled(file, given))


def _ir_text(file: Path, given: dict[str, Any]) -> str:
    """Of one variant, or of all of the file where none is named."""
    from ..compiler import load_specification, specify
    from ..semantics.load import load

    if given["variant"] is not None:
        specification, _ = load_specification(spec(file), given["variant"], given["defines"], given["allow_imports"])
        return specification.variant.show_lowered() + "\n"
    program = load(source(file), given["defines"], given["allow_imports"])
    if not program.variants:
        specify(program, None)  # says so
    if program.warnings:
        report(program.warnings, err=True)
    return program.show() + "\n"


def _settled(file: Path, given: dict[str, Any]) -> Settled:
    """The kernel asked for: its tiles are those that calls would get."""
    from ..settle import settle

    with progress("compiling"):
        return settle(_candidates(file, given))


def _candidates(file: Path, given: dict[str, Any]) -> Candidates:
    from ..compiler import check_targets
    from ..runtime.store.store import Configuration
    from ..schedule.plan import BACKWARD_PASSES, PASSES

    if given["pass_name"] not in PASSES:
        raise click.UsageError(f"--pass {given['pass_name']} is not one of {', '.join(PASSES)}")
    specification = load_specification(file, given)
    target, pass_name = given["target"], given["pass_name"]
    check_targets([target])
    configuration = Configuration(given["dtype"], given["problem"].head_dim, given["problem"].value_head_dim)
    of_pass = specification.backward_candidates if pass_name in BACKWARD_PASSES else specification.candidates
    found = {item.build.pass_name: item for item in of_pass(configuration, target)}
    if pass_name not in found:
        has = ", ".join(found)
        raise click.UsageError(f"{specification.variant.name} has no kernel of the pass {pass_name}: it has {has}")
    return found[pass_name]
