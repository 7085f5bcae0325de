"""The options about workers elsewhere, which several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..limits import WORKERS
from .options import number_type

if TYPE_CHECKING:
    from ..engines.dask_workers import DaskWorkers

scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Have the workers of a Dask scheduler do the work, such as tcp://10.0.0.1:8786; they find "
    "all files under the same names (docs/scaling.md).",
)
workers_option = click.option(
    "--workers",
    type=number_type(WORKERS),
    metavar="N",
    help="Have N processes on this machine do the work, with an equal share of the cores each "
    "(needs Dask).",
)


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add both to a command."""
    return scheduler_option(workers_option(command))


def wants_engine(scheduler: str | None, workers: int | None) -> bool:
    """Whether a command line asks for workers; refuses one that asks for both kinds."""
    if scheduler is not None and workers is not None:
        raise click.UsageError("Give --scheduler or --workers, but not both.")
    return scheduler is not None or workers is not None


@contextmanager
def opened_engine(
    scheduler: str | None, workers: int | None, threads: int | None, tell: Callable[[str], Any]
) -> Iterator[DaskWorkers | None]:
    """The workers that were asked for, until the block ends; None if none were."""
    if not wants_engine(scheduler, workers):
        yield None
        return
    from ..engines.dask_workers import DaskWorkers

    with DaskWorkers(scheduler, workers, threads, lambda text: tell(f"hstereo: {text}.")) as engine:
        yield engine
