"""The command line: parse, call, print.  Heavy imports wait until a command really runs.

There is one module per command.  This one puts them together and turns failures into a sentence
and an exit code.
"""

from __future__ import annotations

import atexit
import gc
import sys
from contextlib import suppress
from typing import Any

import click

from .. import __version__
from ..errors import StereoError
from . import (
    bench,
    cache,
    check,
    completion,
    config,
    convert,
    evaluate,
    infer,
    info,
    rectify,
    stream,
    synth,
    train,
    warmup,
)
from .completion import complete_names
from .examples import add_examples
from .exits import EXIT_FAILURE, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_USAGE
from .settings import check_settings, closest, load_settings
from .standard_streams import messages_may_fail, settle
from .text import with_flags

__all__ = ["EXIT_FAILURE", "EXIT_INCOMPLETE", "EXIT_INTERRUPTED", "EXIT_USAGE", "cli", "main"]

_LONGEST_NAME = 100  # characters of a file's name in a message
_OUT_OF_MEMORY = "Not enough memory. Use fewer `disparities` or smaller images."


class _Failure(click.ClickException):
    """A command could not do its work; the message is one sentence, or two with a hint."""

    exit_code = EXIT_FAILURE

    def show(self, file: Any = None) -> None:
        click.echo(f"hstereo: {self.message}", err=True)


class _Interrupted(_Failure):
    """The user has stopped the command."""

    exit_code = EXIT_INTERRUPTED


class _Commands(click.Group):
    """The commands; errors of the library are reported in terms of the running one's options."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (StereoError, MemoryError) as error:
            message = str(error) if isinstance(error, StereoError) else _OUT_OF_MEMORY
            command = self.commands[str(ctx.invoked_subcommand)]
            raise _Failure(with_flags(message, command)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; of a misspelt one, say which was meant."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            hint = closest(args[0], self.commands)
            if args[0] == "help":
                hint = "'hstereo --help' lists them, and 'hstereo infer --help' explains one"
            raise click.UsageError(f"There is no command '{args[0]}'. {hint}", ctx)
        return super().resolve_command(ctx, args)


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
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="TOML file with defaults of options; see 'hstereo config'.  [default: the user's own]",
)
@click.pass_context
def cli(ctx: click.Context, config_file: str | None) -> None:
    """Dense stereo with hybrid CNN-CRF models: two rectified images in, a disparity map out."""
    name = str(ctx.invoked_subcommand)
    settings = load_settings(cli.commands, config_file)
    check_settings(settings, name, cli.commands[name])
    ctx.obj, ctx.default_map = settings, settings.default_map()


for _command in (
    infer.infer,
    stream.stream,
    check.check,
    rectify.rectify,
    convert.convert,
    synth.synth,
    train.train,
    evaluate.evaluate,
    bench.bench,
    info.info,
    cache.cache,
    warmup.warmup,
    config.config,
    completion.completion,
):
    cli.add_command(_command)
    complete_names(_command)
    add_examples(str(_command.name), _command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with 0 or one of the codes in `exits`."""
    # Python would look through all that Numba has made once more at the end, for 0.1 seconds.
    atexit.register(gc.freeze)
    with messages_may_fail():
        code = _run(arguments)
    settle(sys.stdout)
    settle(sys.stderr)
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    """Run the command line; failures are told on standard error.  Returns the exit code."""
    try:
        code = cli.main(arguments, prog_name="hstereo", standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # what cannot be written is a failure of the command
        return int(code)
    except click.ClickException as error:
        failure = error
    except (click.Abort, KeyboardInterrupt):
        failure = _Interrupted("interrupted")
    except BrokenPipeError:  # the reader of our output has seen enough
        return EXIT_FAILURE
    except OSError as error:
        failure = _Failure(_explain(error))
    with suppress(OSError):  # there may be nowhere left to say it
        failure.show()
    return failure.exit_code


def _explain(error: OSError) -> str:
    """A sentence about a failure that nobody nearer to it has explained."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{error.filename}: {reason}."
    # Standard output has no name; other files are written by those who know theirs.
    return f"The output cannot be written: {reason}."
