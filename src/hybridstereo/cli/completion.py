"""`hstereo completion`: completion of commands, options and files in a shell."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_HSTEREO_COMPLETE"
_MODELS = Path(__file__).parents[1] / "models"
# Of options whose value is a file or a folder, as their help shows it.
_PATHS = ("FILE", "DIR", "PATH", "FOLDER", "CSV")


class FileName(click.types.StringParamType):
    """Text that a shell completes as the name of a file or folder."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell, which knows the files."""
        return [CompletionItem(incomplete, type="file")]


class ModelName(FileName):
    """A built-in model, or a file."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names of the models as far as they fit; files if none does."""
        names = sorted([*(x.stem for x in _MODELS.glob("*.h5")), "census"])
        fitting = [CompletionItem(x) for x in names if x.startswith(incomplete)]
        return fitting or super().shell_complete(ctx, param, incomplete)


def complete_files(command: click.Command) -> None:
    """Let a shell complete the names of files and models of a command."""
    for param in command.params:
        if type(param.type) is not click.types.StringParamType:
            continue
        shown = (param.metavar or "").upper()
        if param.name == "model":
            param.type = ModelName()
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
