"""`hstereo infer` beyond disparities: options about the cameras, depth maps and point clouds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..limits import BASELINE, DEPTH, DISPARITY, FOCAL
from .infer_report import Tell
from .options import OutputOption, camera_numbers_option, number_type

if TYPE_CHECKING:
    import numpy as np

    from ..options import MatchOptions
    from ..result import StereoResult
    from ..rig import RigSource, StereoRig
    from ..stereo import Stereo

_OPTIONS = (
    click.option(
        "--calib",
        metavar="FILE",
        multiple=True,
        help="Calibration of the rectified pair, for --depth and --ply: Middlebury's calib.txt, "
        "which 'hstereo rectify' writes, too; KITTI's calib_cam_to_cam.txt; OpenCV's YAML or XML "
        "with P1 and P2 (repeat it for several files); or ROS's camera_info of the left camera. "
        "With --disparities auto, the range that Middlebury's states is searched. For many pairs, "
        "{dir} is the folder of LEFT: '{dir}/calib.txt'.",
    ),
    click.option("--calib-right", metavar="FILE", help="ROS's camera_info of the right camera."),
    camera_numbers_option,
    click.option(
        "--unit",
        type=click.Choice(["mm", "cm", "m", "in"]),
        help="Unit of lengths in the calibration.  [default: m for KITTI and ROS, mm for "
        "Middlebury and OpenCV]",
    ),
    click.option(
        "--focal",
        type=number_type(FOCAL),
        metavar="PIXELS",
        help="Focal length of the rectified cameras, instead of --calib; with --baseline.",
    ),
    click.option(
        "--baseline",
        type=number_type(BASELINE),
        metavar="METRES",
        help="Distance of the cameras, instead of --calib; with --focal.",
    ),
    click.option(
        "--doffs",
        type=number_type(DISPARITY),
        metavar="PIXELS",
        help="Principal point of the right camera minus that of the left one, in x; with --focal.  "
        "[default: 0]",
    ),
    click.option(
        "--depth",
        cls=OutputOption,
        metavar="FILE",
        help="Also write the depth: .npy or .tif in metres (float, NaN = invalid), .png in "
        "millimetres (16 bit, 0 = invalid).",
    ),
    click.option(
        "--ply",
        cls=OutputOption,
        metavar="FILE.ply",
        help="Also write a coloured point cloud in metres, without points where the depth jumps.",
    ),
    click.option(
        "--max-depth",
        type=number_type(DEPTH),
        metavar="METRES",
        help="Leave out points that are farther away.  [default: none]",
    ),
)
_OWN = (
    "calib", "calib_right", "cameras", "unit", "focal", "baseline", "doffs", "depth", "ply",
    "max_depth",
)  # fmt: skip


@dataclass(frozen=True)
class DepthRequest:
    """What the user says about cameras, and wants of depth.

    Attributes
    ----------
    source
        The cameras; None if nothing is said about them.
    depth, ply, max_depth
        The options.
    """

    source: RigSource | None
    depth: str | None
    ply: str | None
    max_depth: float | None

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """The files that are read."""
        return () if self.source is None else (*self.source.calib, self.source.calib_right)

    @property
    def outputs(self) -> tuple[str | None, ...]:
        """The files that are written."""
        return self.depth, self.ply

    def check_outputs(self) -> None:
        """Refuse, before the work, names that cannot be written to."""
        from ..io.depth import check_depth_output
        from ..io.points import check_ply_output

        if self.depth is not None:
            check_depth_output(self.depth)
        if self.ply is not None:
            check_ply_output(self.ply)

    def read_rig(self, width: int, height: int, tell: Tell) -> StereoRig | None:
        """The cameras, before the work, if they are needed."""
        if self.source is None or self.outputs == (None, None):
            return None
        rig = self.source.read().for_size(width, height)
        if not rig.unit_known:
            tell_unit(rig, tell)
        return rig

    def match_arguments(
        self, stereo: Stereo, settings: MatchOptions, width: int, height: int
    ) -> tuple[dict[str, Any], str | None]:
        """The arguments of `Stereo.match`, and the calibration whose range they hold, if any."""
        from ..batch.work import labelled

        source = self.source
        if source is None or not source.calib or settings.disparities != "auto":
            return vars(settings), None
        stated = source.stated_range(width, height)
        names = " and ".join(source.calib)
        if stated is None and self.outputs == (None, None):
            raise InputError(
                f"{names} states no disparity range",
                "Leave out `calib`, ask for `depth` or `ply`, or, for Middlebury's format, add a "
                "line such as ndisp=64 to the file",
            )
        return labelled(stereo, settings, stated), None if stated is None else names

    def write(
        self, result: StereoResult, rig: StereoRig | None, left: np.ndarray, tell: Tell
    ) -> dict[str, str]:
        """Write what was asked for; returns what was written where."""
        from ..io.depth import write_depth

        outputs: dict[str, str] = {}
        if rig is not None and self.depth is not None:
            beyond = write_depth(self.depth, result.depth(rig))
            tell_beyond(beyond / result.disparity.size, self.depth, tell)
            outputs["depth"] = self.depth
        if rig is not None and self.ply is not None:
            result.points(rig, left, self.max_depth).save(self.ply)
            outputs["ply"] = self.ply
        return outputs


def depth_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one argument ``depth_request``."""

    @wraps(command)
    def run(**params: Any) -> None:
        others = {name: value for name, value in params.items() if name not in _OWN}
        command(**others, depth_request=depth_request(params))

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def depth_request(params: dict[str, Any]) -> DepthRequest:
    """What the parameters of a command ask for; refuses half of it."""
    numbers = params["focal"], params["baseline"], params["doffs"]
    files = params["calib"], params["calib_right"], params["cameras"], params["unit"]
    wanted = params["depth"] is not None or params["ply"] is not None
    if params["max_depth"] is not None and params["ply"] is None:
        raise click.UsageError("--max-depth is about the points of --ply.")
    if not params["calib"] and any(files[1:]):
        raise click.UsageError("--calib-right, --cameras and --unit are about --calib.")
    if params["calib"] and numbers != (None, None, None):
        raise click.UsageError("Give --calib, or --focal and --baseline, but not both.")
    if numbers != (None, None, None) and None in numbers[:2]:
        missing = [name for name in ("focal", "baseline") if params[name] is None]
        verb = "are" if len(missing) > 1 else "is"
        raise click.UsageError(
            "--focal and --baseline belong together, and --doffs to both:"
            f" {' and '.join(f'--{x}' for x in missing)} {verb} missing."
        )
    if wanted and not params["calib"] and params["focal"] is None:
        raise click.UsageError("Depth needs --calib FILE, or --focal and --baseline.")
    return DepthRequest(
        _source(params) if params["calib"] or params["focal"] is not None else None,
        params["depth"],
        params["ply"],
        params["max_depth"],
    )


def _source(params: dict[str, Any]) -> RigSource:
    from ..rig import RigSource, StereoRig

    if params["focal"] is not None:
        rig = StereoRig(params["focal"], params["baseline"], params["doffs"] or 0.0)
        return RigSource(rig=rig)
    return RigSource(params["calib"], params["calib_right"], params["cameras"], params["unit"])


def rig_report(rig: StereoRig | None) -> dict[str, float] | None:
    """The cameras for JSON; null if depth was not asked for."""
    if rig is None:
        return None
    return {"focal_pixels": rig.focal, "baseline_metres": rig.baseline, "doffs": rig.doffs}


def tell_unit(rig: StereoRig, tell: Tell) -> None:
    """Say what a calibration does not."""
    tell(f"hstereo: baseline {1000 * rig.baseline:.6g} mm; if its unit is not mm, give --unit")


def tell_beyond(share: float, path: str, tell: Tell) -> None:
    """Say what 16 bits cannot."""
    if share > 0:
        tell(
            f"hstereo: {100 * share:.1f} % of the pixels are farther away than 65.535 m, the most "
            f"that {path} can hold, and have that depth there; .npy and .tif hold any"
        )
