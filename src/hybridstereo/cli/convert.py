"""`hstereo convert` on the command line."""

from __future__ import annotations

import click


@click.command(short_help="Convert the authors' published parameters to a model file.")
@click.argument("parameters", metavar="PARAMS.npz")
@click.option(
    "--config",
    metavar="FILE.cfg",
    help="The cfg beside the parameters: penalties, label range, iterations.  "
    "[default: the program's defaults, and the penalties and Pairwise-CNN of the parameters]",
)
@click.option("-o", "--output", metavar="MODEL.h5", required=True, help="Model file to write.")
def convert(parameters: str, config: str | None, output: str) -> None:
    """Convert published parameters (PARAMS.npz, a list of arrays) to an HDF5 model file.

    All published variants are understood: 3 and 7 layers, with and without x,y channels, with
    contrast weights or the Pairwise-CNN. Their licence (AGPL-3.0) stays with the converted file.
    """
    from ..models.convert import convert as run

    model = run(parameters, config, output)
    edges = "Pairwise-CNN" if model.config.edge_model == "cnn" else "contrast weights"
    click.echo(
        f"{len(model.unary)} layers, {edges}, {model.parameter_count:,} parameters", err=True
    )
    click.echo(output)
