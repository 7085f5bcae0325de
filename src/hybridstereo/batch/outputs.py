"""The files that a matched pair gets: their names, and how each kind is written."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..display import map_picture
from ..errors import InputError, OutputError
from ..io.confidence import (
    check_confidence_output,
    check_validity_output,
    write_confidence,
    write_validity,
)
from ..io.depth import check_depth_output, write_depth
from ..io.disparity import check_output
from ..io.images import check_image_output, write_image
from ..io.points import check_ply_output
from ..io.volumes import check_volume_output, write_volume
from ..result import StereoResult
from ..rig import StereoRig
from .pairs import Pair

NAME = "{name}"
"""Stands for the name of the pair in the pattern of a file's name."""


@dataclass(frozen=True, eq=False)
class MatchedPair:
    """What files are made of.

    Attributes
    ----------
    pair
        The pair.
    left
        Its left image, (H, W, 3) float32 RGB in [0, 1].
    result
        What matching it gave.
    rig
        Its cameras, if they are known.
    """

    pair: Pair
    left: np.ndarray
    result: StereoResult
    rig: StereoRig | None = None

    @property
    def known_rig(self) -> StereoRig:
        """The cameras; raises InputError if they are not known."""
        if self.rig is None:
            raise InputError("Depth needs the cameras", "Give `calib`, or `focal` and `baseline`")
        return self.rig


@dataclass(frozen=True)
class Output:
    """A file for every pair; there is a class for each kind.

    Attributes
    ----------
    pattern
        Its name below the folder of the results, with ``{name}`` for that of the pair.
    of_right
        Whether it shows the right view, of a pair that is matched with ``view=both``.
    kind
        What it is called in the record of a pair, if it shows the view that was asked for.
    needs_volumes
        Whether it is made of the costs.
    """

    pattern: str
    of_right: bool = field(default=False, kw_only=True)
    kind: ClassVar[str]
    needs_volumes: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """What it is called in the record of a pair."""
        return f"{self.kind}_right" if self.of_right else self.kind

    def result_of(self, matched: MatchedPair) -> StereoResult:
        """What it shows."""
        if not self.of_right:
            return matched.result
        if matched.result.right is None:
            raise InputError("There is no map of the right view", "Match the pair with `view=both`")
        return matched.result.right

    def check(self, folder: str) -> None:
        """Refuse, before the work, what cannot be such a file for every pair.

        Raises
        ------
        StereoError
            If ``{name}`` is missing, the name leads out of the folder, or its suffix names no
            format.
        """
        if NAME not in self.pattern:
            raise InputError(
                f"'{self.pattern}' would be one file for all pairs",
                f"Write {NAME} for the name of the pair, as in '{NAME}_{self.pattern}'",
            )
        if os.path.isabs(self.pattern) or ".." in self.pattern.split("/"):
            raise OutputError(
                f"'{self.pattern}' lies outside the folder of the results",
                "Give a name below that folder",
            )
        self.check_path(os.path.join(folder, os.path.basename(self.pattern).replace(NAME, "x")))

    def name_for(self, pair: Pair) -> str:
        """The name of a pair's file below the folder of the results."""
        return self.pattern.replace(NAME, pair.name)

    def check_path(self, path: str) -> None:
        """Refuse a path that such a file cannot be written to."""
        raise NotImplementedError

    def write(self, path: str, matched: MatchedPair) -> int:
        """Write the file of a pair; returns how many pixels it cannot hold the value of."""
        raise NotImplementedError


@dataclass(frozen=True)
class DisparityFile(Output):
    """The disparity map; the suffix picks the format."""

    kind: ClassVar[str] = "disparity"

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        self.result_of(matched).save(path)
        return 0


@dataclass(frozen=True)
class ColorFile(Output):
    """A colour picture of the map.

    Attributes
    ----------
    color_range
        Disparities of the first and the last colour; None: those of the map.
    scale_bar
        Whether a bar says which colour is which disparity.
    """

    color_range: tuple[float, float] | None = None
    scale_bar: bool = False
    kind: ClassVar[str] = "color"

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_image_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        write_image(
            path, map_picture(self.result_of(matched).disparity, self.color_range, self.scale_bar)
        )
        return 0


@dataclass(frozen=True)
class ConfidenceFile(Output):
    """How likely each pixel is right; the suffix picks the format."""

    kind: ClassVar[str] = "confidence"

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_confidence_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        confidence = self.result_of(matched).confidence
        if confidence is None:
            raise InputError("There is no confidence", "Match the pair with `confidence=True`")
        write_confidence(path, confidence)
        return 0


@dataclass(frozen=True)
class ValidityFile(Output):
    """Which pixels the other view confirms."""

    kind: ClassVar[str] = "valid"

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_validity_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        validity = self.result_of(matched).validity
        if validity is None:
            raise InputError("The views were not compared", "Match the pair with `validity=True`")
        write_validity(path, validity)
        return 0


@dataclass(frozen=True)
class DepthFile(Output):
    """The depth map, of pairs whose cameras are known; the suffix picks the format."""

    kind: ClassVar[str] = "depth"

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_depth_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`: 16 bits hold 65.535 m."""
        return write_depth(path, matched.result.depth(matched.known_rig))


@dataclass(frozen=True)
class PointsFile(Output):
    """The point cloud, of pairs whose cameras are known.

    Attributes
    ----------
    max_depth
        Points that are farther away, in metres, are left out.
    """

    max_depth: float | None = None
    kind: ClassVar[str] = "ply"

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_ply_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        matched.result.points(matched.known_rig, matched.left, self.max_depth).save(path)
        return 0


@dataclass(frozen=True)
class CostsFile(Output):
    """The costs before the CRF."""

    kind: ClassVar[str] = "volume"
    needs_volumes: ClassVar[bool] = True

    def check_path(self, path: str) -> None:
        """As `Output.check_path`."""
        check_volume_output(path)

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        return _write_costs(path, matched.result, matched.result.costs)


@dataclass(frozen=True)
class MinorantFile(CostsFile):
    """The costs after the CRF, its minorant."""

    kind: ClassVar[str] = "volume_crf"

    def write(self, path: str, matched: MatchedPair) -> int:
        """As `Output.write`."""
        return _write_costs(path, matched.result, matched.result.minorant)


def _write_costs(path: str, result: StereoResult, costs: np.ndarray | None) -> int:
    if costs is None:
        raise InputError(
            "There are no costs after the CRF with `method=argmax`", "Use `method=crf`"
        )
    write_volume(path, costs, result.label_range.minimum, result.label_range.step)
    return 0
