"""`hstereo completion`: completion of commands, options and files in a shell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from .options import fitting_names

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_HSTEREO_COMPLETE"
_MODELS = Path(__file__).parents[1] / "models"
DATASETS = "csv", "kitti", "middlebury", "synthetic"
"""The keys of `datasets.registry.KINDS`, which would load NumPy."""
# Of options whose value is a file or a folder, as their help shows it.
_PATHS = ("FILE", "DIR", "PATH", "FOLDER", "CSV")


class FileName(click.types.StringParamType):
    """Text that a shell completes as the name of a file or folder."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell, which knows the files."""
        return [CompletionItem(incomplete, type="file")]


class NameOrFile(FileName):
    """One of some names, or a file."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names as far as they fit; files if none does."""
        fitting = fitting_names(self._names, incomplete)
        return fitting or super().shell_complete(ctx, param, incomplete)


class CommandName(click.types.StringParamType):
    """The name of a command."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """All commands that fit."""
        group = ctx.find_root().command
        assert isinstance(group, click.Group)
        return fitting_names(sorted(group.commands), incomplete)


def complete_names(command: click.Command) -> None:
    """Let a shell complete the names of files, models, data sets and commands in a command."""
    for param in command.params:
        if type(param.type) is not click.types.StringParamType:
            continue
        shown = (param.metavar or "").upper()
        if param.name in ("model", "models"):
            param.type = NameOrFile([*(x.stem for x in _MODELS.glob("*.h5")), "census"])
        elif (param.name, command.name) in (("dataset", "train"), ("targets", "eval")):
            param.type = NameOrFile(DATASETS)
        elif (param.name, command.name) == ("command", "config"):
            param.type = CommandName()
        elif isinstance(param, click.Argument) or any(x in shown for x in _PATHS):
            param.type = FileName()


@click.command(short_help="Print a script that completes options in a shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, models and files of hstereo.

    For bash, put 'eval "$(hstereo completion bash)"' into ~/.bashrc; for zsh, the same with zsh
    into ~/.zshrc, after compinit; for fish, write the script to
    ~/.config/fish/completions/hstereo.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "hstereo", _VARIABLE)
    # Not the method of the class: that of bash would start bash to ask for its version.
    click.echo(ShellComplete.source(script))
