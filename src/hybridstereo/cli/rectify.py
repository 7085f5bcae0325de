"""`hstereo rectify` on the command line."""

from __future__ import annotations

import json
from typing import Any

import click

from ..limits import SHARE
from .options import OutputOption, camera_numbers_option, max_pixels_option, number_type


@click.command(short_help="Rectify a pair: bring its rows in line.")
@click.argument("left")
@click.argument("right")
@click.option(
    "-o",
    "--output",
    cls=OutputOption,
    metavar="DIR",
    required=True,
    help="Folder for the rectified pair; created if it does not exist.",
)
@click.option(
    "--calib",
    metavar="FILE",
    multiple=True,
    help="How the cameras were calibrated: OpenCV's YAML or XML (repeat it for intrinsics.yml and "
    "extrinsics.yml), KITTI's calib_cam_to_cam.txt, or ROS's camera_info of the left camera.",
)
@click.option("--calib-right", metavar="FILE", help="ROS's camera_info of the right camera.")
@camera_numbers_option
@click.option(
    "--alpha",
    type=number_type(SHARE),
    metavar="A",
    help="Compute the rectification: 0 cuts off what would leave black margins, 1 keeps every "
    "pixel that was taken.  [default: the rectification that the file states, else 0]",
)
@click.option(
    "--unit",
    type=click.Choice(["mm", "cm", "m", "in"]),
    help="Unit of lengths in the calibration.  [default: m for KITTI and ROS, mm for OpenCV]",
)
@max_pixels_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: files, rows apart before and after, the new calibration.",
)
def rectify(
    left: str, right: str, output: str, calib: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Write LEFT and RIGHT with rows that agree to DIR, ready for 'hstereo infer'.

    Without --calib the pair has to be rectified roughly: LEFT is copied, and rows of RIGHT that lie
    too high or too low are corrected. Disparities do not change. If too few points match to tell,
    nothing is written and the exit code is 1.

    With --calib the images are as the cameras took them: lenses are undistorted, the cameras turned
    until rows agree, and the new calibration is written beside the images as calib.txt, in
    Middlebury's format with the baseline in millimetres. Images may be smaller or larger than those
    that were calibrated, by the same factor in both directions.

    Files keep their names and their 8 or 16 bits; JPEG becomes PNG where pixels change. If both
    have the same name, left_ and right_ are put before it. The names of the written files go to
    standard output, everything else to standard error.
    """
    from ..rectified_files import rectify_files

    result = rectify_files(left, right, output, calib, **options)
    click.echo(f"hstereo: {result.describe()}.", err=True)
    remapping = result.remapping
    if remapping is not None:
        baseline = f"{remapping.calibration.baseline:.6g} mm"
        guess = "" if remapping.unit_known else "; if its unit is not mm, give --unit"
        shown = 100 * min(result.shown)
        click.echo(
            f"hstereo: baseline {baseline}{guess}; at least {shown:.0f} % of each view shows "
            "something.",
            err=True,
        )
    if result.fits_badly:
        click.echo(
            "hstereo: the calibration does not fit these images well. Check that it is that of "
            "these cameras, or rectify the written pair again without --calib.",
            err=True,
        )
    report = result.as_dict()
    if as_json:
        click.echo(json.dumps(report))
    else:
        for path in report["outputs"].values():
            click.echo(path)
