"""`hstereo warmup` on the command line."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from .options import announce_device, compile_beside, device_option
from .progress import MapProgress

if TYPE_CHECKING:
    from ..kernels.cpu.compile_times import CompiledKernel


@click.command(short_help="Compile all kernels now, for images and containers.")
@click.option(
    "--model",
    "models",
    metavar="NAME|FILE|DIR",
    multiple=True,
    default=["general"],
    help="Model to run once on a small pair; may be repeated. On the CPU all models have the same "
    "kernels, on a GPU those with other numbers of channels have others.",
)
@click.option(
    "--training/--no-training", default=True, help="Compile the kernels of training, too."
)
@device_option
@click.option(
    "--timings",
    is_flag=True,
    help="List how long each kernel took to compile, in seconds of one core; those that were kept "
    "already are not compiled and not listed.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard error but errors.")
def warmup(
    models: tuple[str, ...], training: bool, device: str, timings: bool, quiet: bool
) -> None:
    """Compile every kernel and keep it, so that no later command has to wait for that.

    Meant for the build of a container or a machine image, and for the first start of a service.
    Kernels are kept in the folder that 'hstereo cache' shows, for this version of hybridstereo and
    this kind of CPU. What is there already is not compiled again.
    """
    if not timings:  # which counts what this process compiles
        compile_beside(device, None)
    from ..kernelcache import describe_cache, explain_no_cache
    from ..system import format_bytes
    from ..warmup import warm_up

    progress = MapProgress(quiet=quiet)
    announce_device(device, progress.message)
    with ExitStack() as stack:
        stack.enter_context(progress)
        compiled: list[CompiledKernel] = []
        if timings:
            from ..kernels.cpu.compile_times import timed_compiling

            compiled = stack.enter_context(timed_compiling())
        warm_up(models, device, training, progress.stage)
    if timings:
        click.echo(_table(compiled))
    kept = describe_cache()
    if not explain_no_cache():
        size = format_bytes(int(kept["bytes"] or 0))
        progress.message(
            f"hstereo: {kept['kernels']} kernels, {size}, are kept in {kept['folder']}"
        )


def _table(compiled: list[CompiledKernel]) -> str:
    """Kernels and seconds, the longest first."""
    from ..tables import aligned

    rows = [["kernel", "seconds", "functions"]]
    for kernel in sorted(compiled, key=lambda x: -x.seconds):
        rows.append([kernel.name, f"{kernel.seconds:.2f}", str(kernel.functions)])
    total = [sum(x.seconds for x in compiled), sum(x.functions for x in compiled)]
    rows.append(["all", f"{total[0]:.2f}", f"{total[1]:d}"])
    return "\n".join(aligned(rows))
