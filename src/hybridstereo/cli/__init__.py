"""The command line: parse, call, print.  Heavy imports wait until a command really runs.

There is one module per command.  This one puts them together and turns failures into a sentence
and an exit code.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from .. import __version__
from ..errors import StereoError
from . import bench, check, convert, evaluate, infer, info, synth, train
from .exits import EXIT_FAILURE, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_USAGE
from .text import with_flags

__all__ = ["EXIT_FAILURE", "EXIT_INCOMPLETE", "EXIT_INTERRUPTED", "EXIT_USAGE", "cli", "main"]

_OUT_OF_MEMORY = "Not enough memory. Use fewer `disparities` or smaller images."


class _Failure(click.ClickException):
    """A command could not do its work; the message is one sentence, or two with a hint."""

    exit_code = EXIT_FAILURE

    def show(self, file: Any = None) -> None:
        click.echo(f"hstereo: {self.message}", err=True)


class _Commands(click.Group):
    """The commands; errors of the library are reported in terms of the running one's options."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (StereoError, MemoryError) as error:
            message = str(error) if isinstance(error, StereoError) else _OUT_OF_MEMORY
            command = self.commands[str(ctx.invoked_subcommand)]
            raise _Failure(with_flags(message, command)) from error


@click.group(
    cls=_Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog="Example: hstereo infer left.png right.png",
)
@click.version_option(__version__, "-V", "--version", prog_name="hstereo")
def cli() -> None:
    """Dense stereo with hybrid CNN-CRF models: two rectified images in, a disparity map out."""


for _command in (
    infer.infer,
    check.check,
    convert.convert,
    synth.synth,
    train.train,
    evaluate.evaluate,
    bench.bench,
    info.info,
):
    cli.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with 0 or one of the codes in `exits`."""
    try:
        sys.exit(cli.main(arguments, prog_name="hstereo", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("hstereo: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output is gone; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILURE)
