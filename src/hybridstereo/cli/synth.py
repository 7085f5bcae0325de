"""`hstereo synth` on the command line."""

from __future__ import annotations

from typing import Any

import click

from ..limits import SCENE_DISPARITY, SCENE_OBJECTS, SCENE_SIDE, SCENES, SEED
from .options import number_type
from .progress import Progress


@click.command(short_help="Generate synthetic stereo scenes with exact ground truth.")
@click.argument("folder", metavar="DIR")
@click.option("--count", type=number_type(SCENES), default=1, help="Number of scenes.")
@click.option(
    "--seed",
    type=number_type(SEED),
    default=0,
    help="Seed of the first scene; scene i uses seed + i. The same seed gives the same scene.",
)
@click.option("--width", type=number_type(SCENE_SIDE), default=512, help="Columns of the images.")
@click.option("--height", type=number_type(SCENE_SIDE), default=384, help="Rows of the images.")
@click.option(
    "--min-disparity",
    type=number_type(SCENE_DISPARITY),
    default=2.0,
    help="Smallest disparity, in pixels.",
)
@click.option(
    "--max-disparity",
    type=number_type(SCENE_DISPARITY),
    default=63.0,
    help="Largest disparity, in pixels.",
)
@click.option(
    "--objects",
    type=number_type(SCENE_OBJECTS),
    default=16,
    help="Objects to place in front of the walls.",
)
@click.option(
    "--photometric",
    is_flag=True,
    help="Let gain, gamma, noise and blur differ between the views.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Large, nearly plain, slanted surfaces under shadows, such as streets, with few objects.",
)
def synth(folder: str, count: int, seed: int, photometric: bool, **options: Any) -> None:
    """Generate random scenes of textured planes, boxes, spheres and thin structures below DIR.

    Each scene is a folder in the Middlebury layout: im0.png, im1.png, disp0GT.pfm, disp1GT.pfm
    (exact sub-pixel truth of both views), mask0nocc.png and calib.txt.
    """
    from ..synthetic import Photometric, SceneOptions
    from ..synthetic.write import synthesize

    scene_options = SceneOptions(**options, photometric=Photometric() if photometric else None)
    with Progress() as progress:

        def show(done: int, total: int) -> None:
            progress.advance(done / total, f"scene {done} of {total}")

        written = synthesize(folder, count, seed, scene_options, show)
    for scene in dict.fromkeys(path.parent for path in written):
        click.echo(scene)
