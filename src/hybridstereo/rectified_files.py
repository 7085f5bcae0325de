"""Two image files in, two rectified ones out: what `hstereo rectify` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InputError
from .io.atomic import atomic_write, check_distinct, create_folder
from .io.calib import calibration_text
from .io.camera_files import read_cameras
from .io.pixels import check_same_size
from .io.stored_images import StoredImage, read_stored_image
from .rectification import Rectification, corrected, estimate
from .remapping import Remapping, plan_remapping
from .rig import UNITS

CALIB_NAME = "calib.txt"
# Rows that far apart (median) after a full rectification: the calibration is not, or no longer,
# that of the cameras.  Good ones leave 0.1 to 0.3 px, as far as points can be found.
_BADLY_CALIBRATED = 1.0


@dataclass(frozen=True)
class RectifiedFiles:
    """What was written, and what it is worth.

    Attributes
    ----------
    left, right, calib
        The files; no calibration is written if none was given.
    matches
        How many points of both views tell how far apart rows are.
    before, after
        By how many rows they differ (median), as the views were and rectified; None if too few
        points match.
    rectification
        How the right view was corrected; None with a calibration.
    remapping
        How both were remapped; None without a calibration.
    shown
        The share of pixels of the left and of the right image that show something.
    """

    left: Path
    right: Path
    calib: Path | None
    matches: int
    before: float | None
    after: float | None
    rectification: Rectification | None = None
    remapping: Remapping | None = None
    shown: tuple[float, float] = (1.0, 1.0)

    @property
    def fits_badly(self) -> bool:
        """Whether rows still differ so much that the calibration cannot be right."""
        return self.remapping is not None and (self.after or 0.0) > _BADLY_CALIBRATED

    def describe(self) -> str:
        """One clause for people."""
        if self.rectification is not None:
            return self.rectification.describe()
        if self.after is None:
            return "both views are rectified; too few points match to compare their rows"
        was = "" if self.before is None else f", {self.before:.2f} px before"
        return f"rows of the rectified views are {self.after:.2f} px apart{was}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON; null where there is no value."""
        files = {"left": self.left, "right": self.right, "calib": self.calib}
        calibration = None
        if self.remapping is not None:
            calibration = {
                **{
                    key: value
                    for key, value in vars(self.remapping.calibration).items()
                    if value is not None
                },
                "baseline_unit": "mm",
                "baseline_unit_known": self.remapping.unit_known,
                "rectification_stated": self.remapping.stated,
                "shown": {"left": self.shown[0], "right": self.shown[1]},
            }
        return {
            "outputs": {key: str(path) for key, path in files.items() if path is not None},
            "rows_apart": {"matches": self.matches, "before": self.before, "after": self.after},
            "rectification": self.rectification and self.rectification.as_dict(),
            "calibration": calibration,
        }


def rectify_files(
    left: str | Path,
    right: str | Path,
    folder: str | Path,
    calib: Sequence[str | Path] = (),
    calib_right: str | Path | None = None,
    cameras: tuple[int, int] | None = None,
    alpha: float | None = None,
    unit: str | None = None,
    max_pixels: int | None = None,
) -> RectifiedFiles:
    """Write a pair with rows that agree.

    Without calibration the pair has to be rectified roughly: rows of the right view that lie too
    high or too low are corrected, see `hybridstereo.rectification`, and the left file is copied.
    With one, both views are remapped as the cameras took them, see `hybridstereo.remapping`, and
    the calibration of the new pair is written beside them, as ``calib.txt``.

    Files keep their names and their 8 or 16 bits, except that JPEG becomes PNG where pixels
    change; if both have the same name, ``left_`` and ``right_`` are put before it.  Nothing is
    written before everything is computed.

    Parameters
    ----------
    left, right
        The images.
    folder
        Where to write; created if it does not exist.
    calib, calib_right, cameras
        The cameras, see `hybridstereo.io.camera_files.read_cameras`.
    alpha
        How much of the images to keep, see `hybridstereo.remapping.plan_remapping`.
    unit
        Of lengths in the calibration, one of `UNITS`; None: what the format says, metres for KITTI
        and ROS, and otherwise millimetres.
    max_pixels
        An image whose header states more is refused, and not decoded; None: as the readers.

    Raises
    ------
    InputError
        If something cannot be read or used, or there is no calibration and too few points match to
        tell how far apart the rows are.
    OutputError
        If a file cannot be written, or would replace an input.

    """
    if not calib and (calib_right, cameras, alpha, unit) != (None, None, None, None):
        raise InputError(
            "`calib_right`, `cameras`, `alpha` and `unit` are about a calibration",
            "Give it as `calib`",
        )
    if unit is not None and unit not in UNITS:
        raise InputError(f"There is no unit '{unit}'", f"Use one of {', '.join(UNITS)}")
    stored = read_stored_image(left, max_pixels), read_stored_image(right, max_pixels)
    check_same_size(stored[0].rgb(), stored[1].rgb(), (str(left), str(right)))
    inputs = [left, right, *calib, calib_right]
    if not calib:
        return _correct(stored, Path(folder), inputs)
    remapping = plan_remapping(
        read_cameras(calib, calib_right, cameras),
        stored[0].size,
        alpha,
        None if unit is None else UNITS[unit],
    )
    return _remap(stored, remapping, Path(folder), inputs)


def _correct(
    stored: tuple[StoredImage, StoredImage], folder: Path, inputs: Sequence[str | Path | None]
) -> RectifiedFiles:
    """Copy the left file, and the right one too if there is nothing to correct."""
    left, right = stored
    found = estimate(left.rgb(), right.rgb())
    if not found.knows_rows:
        raise InputError(
            f"The pair cannot be rectified: {found.reason} in both views",
            "Check that they show the same scene, or give the calibration of the cameras as "
            "`calib`",
        )
    files = [(left.path.name, left.data), (right.path.name, right.data)]
    if found.corrects:
        pixels = right.from_unit(corrected(right.unit(), found))
        files[1] = right.name_to_write, right.encoded(pixels)
    new_left, new_right = _write(folder, files, inputs)
    return RectifiedFiles(
        new_left, new_right, None, found.matches, found.before, found.after, found
    )


def _remap(
    stored: tuple[StoredImage, StoredImage],
    remapping: Remapping,
    folder: Path,
    inputs: Sequence[str | Path | None],
) -> RectifiedFiles:
    """Remap both views; points that match tell what it was good for."""
    left, right = stored
    pixels = remapping.apply(0, left.pixels), remapping.apply(1, right.pixels)
    before = estimate(left.rgb(), right.rgb())
    after = estimate(left.rgb(pixels[0]), right.rgb(pixels[1]))
    files = [
        (left.name_to_write, left.encoded(pixels[0])),
        (right.name_to_write, right.encoded(pixels[1])),
        (CALIB_NAME, calibration_text(remapping.calibration).encode("ascii")),
    ]
    new_left, new_right, new_calib = _write(folder, files, inputs)
    return RectifiedFiles(
        new_left,
        new_right,
        new_calib,
        after.matches,
        before.before if before.knows_rows else None,
        after.before if after.knows_rows else None,
        remapping=remapping,
        shown=remapping.shown(left.size),
    )


def _write(
    folder: Path, files: list[tuple[str, bytes]], inputs: Sequence[str | Path | None]
) -> list[Path]:
    """Write all files, none of them over an input; returns their paths."""
    (left, _), (right, _), *_ = files
    paths = [folder / name for name, _ in files]
    if left == right:
        paths[:2] = folder / f"left_{left}", folder / f"right_{right}"
    check_distinct(inputs, paths)
    create_folder(folder)
    for path, (_, data) in zip(paths, files, strict=True):
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
    return paths
