"""The pictures of the report, each as a data URI.

Disparity maps and error maps are PNG files with a palette, always of 256 colours: to show a map in
other colours the page replaces the palette and needs no second picture.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridstereo.datasets import StereoPair
from hybridstereo.io.color import FARTHEST, NEAREST, disparity_levels, palette, robust_range
from hybridstereo.metrics import BAD_THRESHOLDS, KITTI_ABSOLUTE, KITTI_RELATIVE
from hybridstereo.opencv import cv2

DISPARITY_COLORS = {"turbo": "Turbo", "kitti": "KITTI", "jet": "Jet", "grey": "Grey"}
"""The colour maps that the page offers, and what it calls them; the first is shown first."""

KITTI_ERROR_EDGES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Between the ten error colours of KITTI's development kit; in units of the D1 threshold, the
larger of 3 px and 5 % of the truth."""

KITTI_ERROR_COLORS = (
    (49, 54, 149), (69, 117, 180), (116, 173, 209), (171, 217, 233), (224, 243, 248),
    (254, 224, 144), (253, 174, 97), (244, 109, 67), (215, 48, 39), (165, 0, 38),
)  # fmt: skip
_FIRST_OUTLIER_COLOR = KITTI_ERROR_EDGES.index(1.0) + 1

NO_ESTIMATE_COLOR = (197, 27, 125)
"""Where a method gives no estimate, for which KITTI has no colour."""

UNDECIDED_GREY = 140
"""Occluded or unknown pixels of the black-and-white error maps."""

ERROR_STYLES = {
    "kitti": "KITTI colours",
    "d1": "Black = D1 outlier",
    **{f"bad{limit:g}": f"Black = over {limit:g} px" for limit in BAD_THRESHOLDS},
}
"""How the page can show errors, and what it calls that; the first is shown first."""

# A pixel of an error map is 0 where the truth is unknown, else 1 + this code:
# 70 if occluded + 10 * the number of exceeded bad-x thresholds (6: no estimate) + KITTI's colour.
_SIZES, _KITTI = len(BAD_THRESHOLDS) + 2, len(KITTI_ERROR_COLORS)
_NO_ESTIMATE = _SIZES - 1

_JPEG_QUALITY = 85
_NO_IMAGE = 0.5  # grey, where there is no left image
_SPARSE = 0.5  # known share up to which pixels are enlarged: single laser points are hard to see


@dataclass(frozen=True)
class ScenePictures:
    """One scene: data URIs, and the disparities at the two ends of the colour bar."""

    left: str
    truth: str
    maps: dict[str, str]
    errors: dict[str, str]
    lo: float
    hi: float
    width: int
    height: int

    @property
    def size(self) -> int:
        """Characters that the pictures take in the page."""
        sources = (self.left, self.truth, *self.maps.values(), *self.errors.values())
        return sum(map(len, sources))


def scene_pictures(
    pair: StereoPair, maps: Mapping[str, NDArray[np.floating]], widest: int
) -> ScenePictures:
    """Draw a scene; pictures wider than ``widest`` pixels are reduced."""
    lo, hi = color_range(pair)
    height, width = pair.height, pair.width
    size = (width, height) if width <= widest else (widest, max(1, round(height * widest / width)))

    def small(pixels: NDArray[np.uint8], method: int = cv2.INTER_NEAREST) -> NDArray[np.uint8]:
        return np.asarray(cv2.resize(pixels, size, interpolation=method), np.uint8)

    levels = palette(next(iter(DISPARITY_COLORS)))
    classes = error_palette(next(iter(ERROR_STYLES)))
    image = pair.left if pair.has_left else np.full((height, width, 3), _NO_IMAGE, np.float32)
    left = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return ScenePictures(
        left=_jpeg(small(left, cv2.INTER_AREA)),
        truth=_png(small(_thicken(disparity_levels(pair.disparity, lo, hi))), levels),
        maps={
            name: _png(small(disparity_levels(disparity, lo, hi)), levels)
            for name, disparity in maps.items()
        },
        errors={
            name: _png(small(_thicken(error_codes(disparity, pair))), classes)
            for name, disparity in maps.items()
        },
        lo=lo,
        hi=hi,
        width=size[0],
        height=size[1],
    )


def color_bar() -> str:
    """All colours from far to near, as a picture one pixel high that the page can recolour."""
    ramp = np.arange(FARTHEST, NEAREST + 1, dtype=np.uint8)[np.newaxis]
    return _png(ramp, palette(next(iter(DISPARITY_COLORS))))


def color_range(pair: StereoPair) -> tuple[float, float]:
    """The disparities of the first and the last colour, the same for all maps of a scene."""
    known = pair.disparity[np.isfinite(pair.disparity)]
    low, high = robust_range(known) if known.size else (0.0, 0.0)
    low, high = float(np.floor(low)), float(np.ceil(high))
    return (low, high) if low < high else (low, low + 1)


def error_codes(predicted: NDArray[np.floating], pair: StereoPair) -> NDArray[np.uint8]:
    """Class of each pixel of an error map, an index into any `error_palette`."""
    known = np.isfinite(pair.disparity)
    truth = np.where(known, pair.disparity, 0).astype(np.float64)
    estimated = np.isfinite(predicted)
    error = np.abs(np.where(estimated, predicted, 0) - truth)
    # Intervals include their upper end, so that the colours of outliers begin where D1 does.
    exceeded = np.searchsorted(BAD_THRESHOLDS, error, side="left")
    unit = np.maximum(KITTI_ABSOLUTE, KITTI_RELATIVE * np.abs(truth))
    color = np.searchsorted(KITTI_ERROR_EDGES, error / unit, side="left")
    occluded = ~pair.valid  # or unknown, which is overwritten below
    size = np.where(estimated, exceeded, _NO_ESTIMATE)
    code = 1 + (occluded * _SIZES + size) * _KITTI + np.where(estimated, color, _KITTI - 1)
    return np.where(known, code, 0).astype(np.uint8)


def error_palette(style: str) -> NDArray[np.uint8]:
    """The (256, 3) colours of the classes of `error_codes`, in one of the `ERROR_STYLES`."""
    classes = np.arange(2 * _SIZES * _KITTI)
    occluded, rest = np.divmod(classes, _SIZES * _KITTI)
    size, color = np.divmod(rest, _KITTI)
    colors = np.zeros((256, 3), np.uint8)
    used = colors[1 : 1 + classes.size]
    if style == "kitti":
        used[:] = np.asarray(KITTI_ERROR_COLORS)[color]
        used[size == _NO_ESTIMATE] = NO_ESTIMATE_COLOR
        used[occluded == 1] //= 2  # as the development kit does
        return colors
    if style == "d1":
        wrong = (color >= _FIRST_OUTLIER_COLOR) | (size == _NO_ESTIMATE)
    else:
        wrong = size > BAD_THRESHOLDS.index(float(style.removeprefix("bad")))
    used[:] = np.where(wrong, 0, 255)[:, np.newaxis]
    used[occluded == 1] = UNDECIDED_GREY
    colors[0] = UNDECIDED_GREY
    return colors


def _thicken(indices: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Let the known pixels of a sparse picture grow by one into the unknown ones (0)."""
    unknown = indices == 0
    if unknown.mean() < 1 - _SPARSE:
        return indices
    return np.where(unknown, cv2.dilate(indices, np.ones((3, 3), np.uint8)), indices)


def _jpeg(rgb: NDArray[np.uint8]) -> str:
    _, data = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()


def _png(indices: NDArray[np.uint8], colors: NDArray[np.uint8]) -> str:
    """A PNG with the palette at bytes 41 to 808, where the page's script replaces it."""
    height, width = indices.shape
    rows = np.pad(indices, ((0, 0), (1, 0)))  # each begins with its filter type, 0 for none
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", colors.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n"
    for kind, content in chunks:
        checksum = zlib.crc32(kind + content)
        data += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    return "data:image/png;base64," + base64.b64encode(data).decode()
