"""`hstereo train` under mpirun: one rank speaks, and one that fails ends all."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..errors import StereoError
from .exits import EXIT_FAILURE
from .text import with_flags

if TYPE_CHECKING:
    from ..engines.ranks import Ranks


@contextmanager
def ending_together(ranks: Ranks, command: click.Command) -> Iterator[None]:
    """Of several ranks, have one that fails say why and end the others, which wait for it.

    An interruption is no failure: all ranks hear of it and end after the same step.
    """
    try:
        yield
    except (KeyboardInterrupt, click.exceptions.Exit):
        raise
    except Exception as error:
        if ranks.size == 1:
            raise
        if isinstance(error, StereoError | MemoryError | OSError):
            reason = with_flags(str(error) or "Not enough memory.", command)
        else:
            reason = traceback.format_exc()
        click.echo(f"hstereo: rank {ranks.rank} of {ranks.size} failed: {reason}", err=True)
        ranks.abort(EXIT_FAILURE)
