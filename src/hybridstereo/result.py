"""What matching a pair gives: the disparity map and how it came about."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .confidence import Cues
from .depth import PointCloud, depth_map, point_cloud
from .disparity import enlarged_disparity, join_tiles
from .errors import InputError
from .filling import filled_disparity
from .io.disparity import write_disparity
from .labels import LabelRange
from .options import View
from .rectification import Rectification
from .rig import StereoRig
from .validity import GOOD, masked_disparity

RangeOrigin = Literal["caller", "data set", "pair", "model"]
"""Who chose the labels of a result."""


@dataclass(frozen=True, eq=False)
class StereoResult:
    """A disparity map and how it came about.

    Attributes
    ----------
    disparity
        float32 (H, W), in pixels: left pixel ``x`` matches right pixel ``x - disparity``; for the
        right view, right pixel ``x`` matches left pixel ``x + disparity``.  +inf where the other
        view does not confirm it, if ``lr_check`` was asked for.
    unrefined
        The disparities of the labels themselves, for every pixel.
    label_range
        What was searched.
    range_from
        Who chose it: the ``caller``, the ``data set``, the ``pair`` in which it was found, or the
        ``model`` because the pair does not show it.
    precision
        Of the CRF; with ``half``, energy and bounds are those of the rounded costs (docs/model.md
        6.9).
    energy
        Of the labelling; None without a CRF, or in tiles.
    bounds
        Lower bound on the energy after every sweep: no labelling has a lower energy than the last
        one; None without a CRF, or in tiles.
    seconds
        By stage, in order.
    costs, minorant
        float32 (H, W, K), the costs before and after the CRF, low is good, if ``volumes`` were
        asked for; there is no minorant without a CRF.
    tiles
        In how many tiles the map was computed (`hybridstereo.tiles`).
    rectification
        How the right view was corrected, if that was asked for.
    view
        Whose map it is, ``left`` or ``right``.
    confidence
        float32 (H, W), how likely the disparity of each pixel (before any filling) is right, that
        is off by at most 2 pixels (`hybridstereo.confidence`); None unless asked for.
    validity
        uint8 (H, W): 255 where the other view confirms the pixel, 128 where it does not see the
        point, 0 where it contradicts (`hybridstereo.validity`); None unless something asked for it.
    right
        The result of the right view, if ``both`` were asked for.
    cues
        What the confidence is made from; None without it.
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
    precision: str = "single"
    tiles: int = 1
    view: View = "left"
    confidence: np.ndarray | None = None
    validity: np.ndarray | None = None
    right: StereoResult | None = None
    cues: Cues | None = None

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

        Raises
        ------
        InputError
            If this is the map of the right view: the points are the left camera's.
        """
        if self.view == "right":
            raise InputError("Points are made from the left view's map", "Match with `view=left`")
        return point_cloud(self.disparity, rig, left, max_depth)

    def enlarged(self, factor: int, height: int, width: int, labels: LabelRange) -> StereoResult:
        """The result of views at 1/``factor`` of their size, as one of the views themselves."""
        disparity, unrefined = (
            enlarged_disparity(x, factor, height, width) for x in (self.disparity, self.unrefined)
        )

        def repeated(values: np.ndarray | None) -> np.ndarray | None:
            if values is None:
                return None
            return values.repeat(factor, axis=0).repeat(factor, axis=1)[:height, :width]

        return replace(
            self,
            disparity=disparity,
            unrefined=unrefined,
            label_range=labels,
            confidence=repeated(self.confidence),
            validity=repeated(self.validity),
            right=self.right and self.right.enlarged(factor, height, width, labels),
            cues=None,
        )

    def masked(self) -> StereoResult:
        """The same with +inf, which means invalid, where the other view does not confirm the map.

        Raises
        ------
        InputError
            If the views were not compared.
        """
        disparity = masked_disparity(self.disparity, self._checked())
        return replace(self, disparity=disparity, right=self.right and self.right.masked())

    def filled(self) -> StereoResult:
        """The same with those pixels filled from the background (`hybridstereo.filling`).

        Raises
        ------
        InputError
            If the views were not compared.
        """
        disparity = filled_disparity(self.disparity, self._checked() == GOOD, self.label_range)
        return replace(self, disparity=disparity, right=self.right and self.right.filled())

    def _checked(self) -> np.ndarray:
        if self.validity is None:
            raise InputError(
                "The views were not compared", "Match them with `validity=True` or `lr_check=True`"
            )
        return self.validity

    def cropped(self, rows: slice, columns: slice) -> StereoResult:
        """Of the maps only some rows and columns: the part of a tile that is kept."""
        kept = rows, columns
        return replace(
            self,
            disparity=self.disparity[kept],
            unrefined=self.unrefined[kept],
            cues=self.cues and self.cues.cropped(rows, columns),
        )

    @classmethod
    def joined(
        cls,
        tiles: Sequence[StereoResult],
        places: Sequence[tuple[slice, slice]],
        shape: tuple[int, int],
    ) -> StereoResult:
        """One result of the maps of tiles and their places; they have no common energy."""
        cues = [tile.cues for tile in tiles if tile.cues is not None]
        return replace(
            tiles[0],
            disparity=join_tiles([tile.disparity for tile in tiles], places, shape),
            unrefined=join_tiles([tile.unrefined for tile in tiles], places, shape),
            energy=None,
            bounds=None,
            tiles=len(tiles),
            cues=Cues.joined(cues, places, shape) if cues else None,
        )
