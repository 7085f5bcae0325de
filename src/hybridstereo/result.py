"""What matching a pair gives: the disparity map and how it came about."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .depth import PointCloud, depth_map, point_cloud
from .disparity import enlarged_disparity
from .io.disparity import write_disparity
from .labels import LabelRange
from .rectification import Rectification
from .rig import StereoRig

RangeOrigin = Literal["caller", "data set", "pair", "model"]
"""Who chose the labels of a result."""


@dataclass(frozen=True, eq=False)
class StereoResult:
    """A disparity map and how it came about.

    Attributes
    ----------
    disparity
        float32 (H, W), in pixels: left pixel ``x`` matches right pixel ``x - disparity``.
    unrefined
        The disparities of the labels themselves.
    label_range
        What was searched.
    range_from
        Who chose it: the ``caller``, the ``data set``, the ``pair`` in which it was found, or the
        ``model`` because the pair does not show it.
    energy
        Of the labelling; None without a CRF, or in strips.
    bounds
        Lower bound on the energy after every sweep: no labelling has a lower energy than the last
        one; None without a CRF, or in strips.
    seconds
        By stage, in order.
    costs, minorant
        float32 (H, W, K), the costs before and after the CRF, low is good, if ``volumes`` were
        asked for; there is no minorant without a CRF.
    strips
        In how many strips of rows the map was computed (`hybridstereo.strips`).
    rectification
        How the right view was corrected, if that was asked for.
    """

    disparity: np.ndarray
    unrefined: np.ndarray
    label_range: LabelRange
    energy: float | None
    bounds: np.ndarray | None
    seconds: dict[str, float]
    range_from: RangeOrigin = "caller"
    costs: np.ndarray | None = None
    minorant: np.ndarray | None = None
    rectification: Rectification | None = None
    strips: int = 1

    def __repr__(self) -> str:
        height, width = self.disparity.shape
        labels = f"{self.label_range.minimum:g} to {self.label_range.maximum:g}"
        return f"<StereoResult: {width}x{height} pixels, disparities {labels}>"

    def _repr_png_(self) -> bytes:
        """The map in colours with a scale, as IPython and Jupyter show a result."""
        from .display import png_with_scale

        return png_with_scale(self.disparity)

    def _repr_html_(self) -> str:
        """The same picture with a line about the result below it."""
        picture = b64encode(self._repr_png_()).decode("ascii")
        height, width = self.disparity.shape
        labels = f"{self.label_range.minimum:g} to {self.label_range.maximum:g}"
        seconds = f", {sum(self.seconds.values()):.2f} s" if self.seconds else ""
        return (
            f'<figure style="margin:0"><img src="data:image/png;base64,{picture}" alt="disparity'
            f' map"><figcaption>{width}x{height} pixels, disparities {labels} px{seconds}'
            "</figcaption></figure>"
        )

    @property
    def at_range_ends(self) -> float:
        """Fraction of the pixels on the first or the last label: many mean too short a range.

        Label 0 is no end: the sky belongs there.
        """
        minimum, maximum = self.label_range.minimum, self.label_range.maximum
        at_end = self.unrefined >= maximum
        if minimum != 0:
            at_end |= self.unrefined <= minimum
        return float(np.mean(at_end))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map as ``.pfm``, ``.png`` (KITTI's 16 bit), ``.npy`` or ``.tif``."""
        write_disparity(os.fspath(path), self.disparity)

    def depth(self, rig: StereoRig) -> np.ndarray:
        """Distances along the optical axis in metres, float32 (H, W), NaN where there is none.

        Parameters
        ----------
        rig
            The rectified cameras, as `hybridstereo.read_rig` reads them from a calibration.
        """
        return depth_map(self.disparity, rig)

    def points(
        self, rig: StereoRig, left: np.ndarray, max_depth: float | None = None
    ) -> PointCloud:
        """The points in space, without those where the depth jumps.

        Parameters
        ----------
        rig
            As for `depth`.
        left
            The left image, (H, W, 3) RGB in [0, 1], as `hybridstereo.read_pair` reads it.
        max_depth
            Points that are farther away, in metres, are left out.
        """
        return point_cloud(self.disparity, rig, left, max_depth)

    def enlarged(self, factor: int, height: int, width: int, labels: LabelRange) -> StereoResult:
        """The result of views at 1/``factor`` of their size, as one of the views themselves."""
        disparity, unrefined = (
            enlarged_disparity(x, factor, height, width) for x in (self.disparity, self.unrefined)
        )
        return replace(self, disparity=disparity, unrefined=unrefined, label_range=labels)
