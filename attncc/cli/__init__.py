"""The command line. Each command is a module of its own, imported only when a user calls it."""

from __future__ import annotations

import difflib
import errno
import gc
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import click

from ..diagnostics import AttnccError, AttnccWarning, Diagnostic, did_you_mean
from ..version import __version__
from .console import report
from .files import on_the_command_line
from .interrupts import STATUS, Interrupted, ignore_interrupts, say_interrupted, watch_interrupts

COMMANDS = ("list", "new", "check", "fmt", "build", "show", "explain", "run", "tune", "bench", "import-flex", "lsp")
_MODULES = {"list": "list_variants"}  # a module `list` would hide Python's in this one


class Commands(click.Group):
    """A group that imports `attncc.cli.<name>` on first use, and renders what a command raises."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = _MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        module = importlib.import_module(f".{name}", __package__)
        return cast(click.Command, module.command)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0].startswith("-") or args[0] in COMMANDS:
            return super().resolve_command(ctx, args)
        help = did_you_mean(args[0], COMMANDS)
        raise click.UsageError(f"there is no command `{args[0]}`{': ' * bool(help)}{help}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):  # no-color.org
            ctx.color = False
        try:
            with _warnings_as_diagnostics():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _const_of(error) from None
        except AttnccError as error:
            report([on_the_command_line(item) for item in error.diagnostics])
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError, KeyboardInterrupt):
            raise
        except MemoryError as error:
            report([out_of_memory(error)])
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of stdout, as a rule, which has no name
                raise click.ClickException(f"{error.filename or 'the output'} can't be written: disk full") from None
            if os.environ.get("ATTNCC_DEBUG"):
                raise
            report([internal_error(error)])
        ctx.exit(1)


def _const_of(error: click.NoSuchOption) -> click.UsageError:
    """The same, with what to write for the const of a file, which users take for an option."""
    options = error.ctx.command.params if error.ctx is not None else []
    name = error.option_name.lstrip("-")
    misspelled = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.8)
    if misspelled or not name.isidentifier() or not any(option.name == "defines" for option in options):
        return error
    advice = f"`-D {name}=…` sets a const of the file"
    return click.UsageError(f"{error.format_message()} {advice}", error.ctx)


@contextmanager
def _warnings_as_diagnostics() -> Iterator[None]:
    """Prints what attncc warns of as it is, without Python's file name and line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AttnccWarning)
        show = warnings.showwarning

        def shown(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, AttnccWarning):
                click.echo(f"{message}\n", err=True)
            else:
                show(message, category, *where, **more)

        setattr(warnings, "showwarning", shown)  # noqa: B010  (its declared type names each argument)
        yield


def internal_error(error: Exception) -> Diagnostic:
    """What a user sees of a mistake in attncc itself."""
    return Diagnostic(
        code="A900",
        message=f"internal error: {type(error).__name__}: {error}",
        notes=("this is a mistake in attncc, not in your file",),
        help="set ATTNCC_DEBUG=1 for the traceback, and report it together with the command and the .attn file",
    )


def out_of_memory(error: MemoryError) -> Diagnostic:
    """What a user sees where the numbers asked for are too large for this machine."""
    asked = re.search(r"Unable to allocate ([\d.]+ \w+)", str(error))  # as NumPy says it
    needs = f"another {asked[1]} is needed at once" if asked else "another array doesn't fit"
    return Diagnostic(
        "A905",
        f"there isn't enough memory: {needs}",
        help="give a smaller --q-len, --kv-len or --batch, or larger blocks",
    )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def attncc() -> None:
    """An ahead-of-time compiler for attention: a short .attn file becomes a fused CUDA kernel that Python imports.

    \b
    attncc run alibi_documents        from the file to checked attention
    attncc show sliding_window        the mask and its tiles, as a picture
    attncc explain causal             tiles skipped, bytes, FLOPs, registers
    attncc explain A203               what an error code means, how to mend it
    attncc build causal -o generated  in Python: from generated import causal
    attncc tune mine.attn             the fastest tiles on this GPU

    Exit status: 0 all is well, 1 a diagnostic was printed, 2 the command line itself was wrong,
    130 Ctrl-C ended it.
    """


def seldom_collect() -> None:
    """Modules and trees are no garbage: to look for some took a twelfth of a build's Python."""
    gc.set_threshold(100_000)


def main() -> None:
    """The console script `attncc`."""
    seldom_collect()
    watch_interrupts()
    try:
        attncc(prog_name="attncc")
    except Interrupted:
        say_interrupted()
        sys.exit(STATUS)
    finally:
        ignore_interrupts()
        gc.freeze()  # what is left goes with the process: to look for garbage took a build 0.1 s after its last word
