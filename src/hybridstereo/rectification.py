"""Correction of imperfectly rectified pairs: rows of the right view that lie too high or too low.

docs/model.md 10 has the mathematics.  Points that both views show (SIFT) tell by how many rows they
differ; a smooth model of the right camera explains it; the right view is resampled along its
columns.  Nothing moves sideways, so disparities stay what they were.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from .errors import InputError
from .opencv import cv2

PARAMETERS = ("k1", "p1", "p2", "df", "roll", "dcy")
"""Radial and tangential distortion, change of the focal length, roll, change of the centre's y."""

# The matching of the paper's program: layers per octave, and how much better the best candidate
# must be than the second.
_LAYERS, _RATIO = 7, 0.75
# The cost grows with the square: 5000 points of a KITTI frame take half a second to match.
_MOST_POINTS = 5000
# SIFT enlarges the image and keeps some ten copies: 2 megapixels take about 0.5 GB.
_MOST_PIXELS = 2_000_000
# Rows by which matches may differ from what is expected of them: first, as a share of the height,
# where nothing is known yet; then, in pixels as in the paper's program, around the first estimate.
_FIRST_GATE, _GATE = 0.05, 3.0
# Fewer matches, or a smaller share of them that agrees, do not tell a misaligned pair from chance.
_FEWEST, _AGREEING = 20, 0.5
# Where Huber's loss turns from squared to absolute, in pixels: SIFT finds points to 0.1 to 0.3 px.
_HUBER = 0.3
# Pixels at the border that a parameter may well explain: so many cost as much as a match that is
# `_HUBER` pixels off.  Of 3 to 0.1 px, 0.3 served matches best that the fit had not seen: those of
# every other field of a chessboard laid over the views.
_TYPICAL = {"k1": 0.3, "p1": 0.3, "p2": 0.3, "df": 0.3, "roll": 30.0, "dcy": 30.0}
_ROUNDS, _SETTLED = 50, 1e-7
# Below this (root mean square at the matches) resampling would blur more than it aligns.
_WORTHWHILE = 0.1
# Inverting the model: rows, and how often at most.
_INVERTED, _INVERSIONS = 1e-4, 100
# The cubic spline's pole, and after how many rows its filter has forgotten the border (1e-7).
_POLE, _MEMORY = np.float32(3**0.5 - 2), 12
# Why nothing is known about the rows of a pair.
_TOO_FEW, _CONTRADICTORY = "too few points match", "the matching points contradict each other"
_STRIP = 128  # rows that are resampled at a time


@dataclass(frozen=True)
class Camera:
    """Focal length and centre of a view, in pixels; pixel centres are whole numbers."""

    focal: float
    cx: float
    cy: float

    @classmethod
    def assumed(cls, height: int, width: int) -> Camera:
        """A common one: the focal length is the width, the centre that of the image."""
        return cls(float(width), (width - 1) / 2, (height - 1) / 2)


@dataclass(frozen=True)
class Rectification:
    """How the rows of a right view differ from those of the left one, and what corrects it.

    Attributes
    ----------
    camera
        The right one, known or assumed.
    parameters
        In the order of `PARAMETERS`; all 0 if nothing is to be corrected.
    matches
        How many points were found in both views.
    before, after
        By how many rows they differ (median of the absolute values), as the views are and
        corrected; NaN without matches.
    reason
        Why the view is left as it is, as a clause; empty if it is corrected.
    """

    camera: Camera
    parameters: tuple[float, ...] = (0.0,) * len(PARAMETERS)
    matches: int = 0
    before: float = float("nan")
    after: float = float("nan")
    reason: str = ""

    @property
    def corrects(self) -> bool:
        """Whether there is something to correct."""
        return not self.reason

    @property
    def knows_rows(self) -> bool:
        """Whether enough points match to tell how far apart the rows are."""
        return self.reason not in (_TOO_FEW, _CONTRADICTORY)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; null where there is no value."""
        unknown = math.isnan(self.before)
        return {
            "matches": self.matches,
            "before": None if unknown else self.before,
            "after": None if unknown else self.after,
            "corrected": self.corrects,
            "reason": self.reason or None,
            "parameters": dict(zip(PARAMETERS, self.parameters, strict=True)),
            "camera": asdict(self.camera),
        }

    def describe(self) -> str:
        """One clause for people."""
        if np.isnan(self.before):
            return f"the right view is left as it is: {self.reason}"
        apart = f"rows of the views were {self.before:.2f} px apart"
        if self.reason:
            return f"{apart}, the right view is left as it is: {self.reason}"
        return f"{apart}, {self.after:.2f} px after correcting the right view"


def rectify(
    left: np.ndarray, right: np.ndarray, camera: Camera | None = None
) -> tuple[np.ndarray, Rectification]:
    """The right view with its rows corrected, and how; see `estimate` and `corrected`."""
    found = estimate(left, right, camera)
    return corrected(right, found), found


def estimate(left: np.ndarray, right: np.ndarray, camera: Camera | None = None) -> Rectification:
    """Find out how the rows of the views differ.

    Never fails on images: where there is too little to go by, nothing is corrected and the result
    says why.  It has the same bits with any number of threads.

    Parameters
    ----------
    left, right
        (H, W, 3) RGB in [0, 1], of one size.
    camera
        The right one; None: `Camera.assumed`.

    Raises
    ------
    InputError
        If the views are no images of one size.
    """
    if left.shape != right.shape or left.ndim != 3:
        raise InputError(
            f"The views have the shapes {left.shape} and {right.shape}", "Both must be of one size"
        )
    height, width, _ = left.shape
    camera = camera or Camera.assumed(height, width)
    matches = matched_points(left, right, _MOST_POINTS, _LAYERS)
    first = np.abs(matches[:, 3] - matches[:, 1]) < correctable_rows(height)
    if np.count_nonzero(first) < _FEWEST:
        return Rectification(camera, matches=int(np.count_nonzero(first)), reason=_TOO_FEW)
    model = _Model(camera, height, width)
    rough = model.fit(matches[first], ("roll", "dcy"))
    close = first & (np.abs(model.residuals(rough, matches)) < _GATE)
    kept = matches[close]
    apart = np.abs(kept[:, 3] - kept[:, 1])
    result = Rectification(
        camera, matches=len(kept), before=float(np.median(apart)) if len(kept) else float("nan")
    )
    result = replace(result, after=result.before)
    if len(kept) < max(_FEWEST, _AGREEING * len(matches)):
        return replace(result, reason=_CONTRADICTORY)
    parameters = model.fit(kept, PARAMETERS, rough)
    if np.sqrt(np.mean(model.shifts(parameters, kept) ** 2)) < _WORTHWHILE:
        return replace(result, reason="it is well rectified")
    after = float(np.median(np.abs(model.residuals(parameters, kept))))
    if after >= result.before:
        return replace(result, reason="no correction brings the rows closer")
    return replace(result, parameters=tuple(map(float, parameters)), after=after)


def corrected(right: np.ndarray, found: Rectification) -> np.ndarray:
    """The right view, resampled along its columns.

    Output row Y of column x shows the row y of the view for which ``u_y(x, y) = Y``; it is read by
    a cubic spline, the view being reflected at its borders.

    Parameters
    ----------
    right
        (H, W, 3) in [0, 1]; another one of the same camera will do, too.
    found
        What `estimate` gave; a view that is left as it is is returned itself.
    """
    if not found.corrects:
        return right
    height, width, _ = right.shape
    model = _Model(found.camera, height, width)
    parameters = np.array(found.parameters)
    columns = np.arange(width)
    shifts = model.shift(parameters, columns[None, :], np.arange(height)[:, None])
    margin = int(np.ceil(np.abs(shifts).max())) + 3 + _MEMORY
    spline = _spline(right.astype(np.float32, copy=False), margin)
    result = np.empty(right.shape, np.float32)
    for begin in range(0, height, _STRIP):
        wanted = np.arange(begin, min(begin + _STRIP, height), dtype=np.float64)[:, None]
        rows = model.inverted(parameters, columns[None, :], wanted) + margin
        rows = np.clip(rows, 1, len(spline) - 3)
        base = np.floor(rows).astype(np.intp)
        t = (rows - base).astype(np.float32)[..., None]
        weights = (
            (1 - t) ** 3 / 6,
            2 / 3 - t**2 * (2 - t) / 2,
            2 / 3 - (1 - t) ** 2 * (1 + t) / 2,
            t**3 / 6,
        )
        taps = (spline[base + k - 1, columns] * weight for k, weight in enumerate(weights))
        result[begin : begin + len(wanted)] = sum(taps)
    return np.clip(result, 0, 1, out=result).astype(right.dtype, copy=False)


def correctable_rows(height: int) -> float:
    """By how many rows the views may differ so that `estimate` still finds it."""
    return max(_FIRST_GATE * height, _GATE)


def matched_points(
    left: np.ndarray, right: np.ndarray, most_points: int, layers: int
) -> np.ndarray:
    """Points that both views show, by SIFT.

    Parameters
    ----------
    left, right
        (H, W, 3) RGB in [0, 1], of one size.
    most_points
        Of each view; the clearest are kept.
    layers
        Of each octave of SIFT: more find more points, and cost as much more.

    Returns
    -------
    ndarray, (N, 4)
        x and y in the left view, then in the right one, in pixels of the views as given.
    """
    height, width, _ = left.shape
    shrink = int(np.ceil(np.sqrt(height * width / _MOST_PIXELS)))
    size = max(width // shrink, 1), max(height // shrink, 1)
    sift = cv2.SIFT.create(nfeatures=most_points, nOctaveLayers=layers)
    points, descriptors = [], []
    for view in (left, right):
        pixels = np.rint(255 * np.clip(view, 0, 1)).astype(np.uint8)
        grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        if shrink > 1:
            grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
        found, described = sift.detectAndCompute(grey, None)
        factor = np.array([width, height]) / size
        places = np.array([point.pt for point in found]).reshape(-1, 2)
        points.append((places + 0.5) * factor - 0.5)
        descriptors.append(described)
    if min(map(len, points)) < 2:
        return np.empty((0, 4))
    both = cv2.BFMatcher(cv2.NORM_L2).knnMatch(descriptors[0], descriptors[1], k=2)
    clear = [best for best, second in both if best.distance < _RATIO * second.distance]
    ours, theirs = ([getattr(x, name) for x in clear] for name in ("queryIdx", "trainIdx"))
    return np.hstack([points[0][ours], points[1][theirs]]).reshape(-1, 4)


class _Model:
    """``u_y``: in which row of the left view a point (x, y) of the right one should lie.

    With ``x, y`` relative to the centre and divided by the focal length, and ``r² = x² + y²``::

        u_y = (f + df) (y + k1 y r² + p1 (r² + 2 y²) + 2 p2 x y + roll x) + cy + dcy
    """

    def __init__(self, camera: Camera, height: int, width: int) -> None:
        self._camera = camera
        columns, rows = np.meshgrid(np.linspace(0, width - 1, 9), np.linspace(0, height - 1, 9))
        reach = np.abs(self._terms(np.zeros(len(PARAMETERS)), columns.ravel(), rows.ravel()))
        typical = np.array([_TYPICAL[name] for name in PARAMETERS])
        self._prior = (np.maximum(reach.max(axis=0), 1e-12) / typical) ** 2

    def fit(
        self, matches: np.ndarray, names: tuple[str, ...], start: np.ndarray | None = None
    ) -> np.ndarray:
        """Parameters, those not named staying as they are, with the least of Huber's losses.

        Gauss-Newton steps on re-weighted squares.  Sums are taken in a fixed order, not by BLAS,
        so that they do not depend on the number of threads.
        """
        parameters = np.zeros(len(PARAMETERS)) if start is None else start.copy()
        free = np.array([name in names for name in PARAMETERS])
        if start is None:  # half of the matches may be wrong: the median is not
            parameters[PARAMETERS.index("dcy")] = np.median(matches[:, 1] - matches[:, 3])
        for _ in range(_ROUNDS):
            residuals = self.residuals(parameters, matches)
            weights = _HUBER / np.maximum(np.abs(residuals), _HUBER) / _HUBER**2
            terms = self._terms(parameters, matches[:, 2], matches[:, 3])[:, free]
            prior = self._prior[free]
            curvature = np.einsum("ni,n,nj->ij", terms, weights, terms) + np.diag(prior)
            slope = np.einsum("ni,n->i", terms, weights * residuals) - prior * parameters[free]
            step = np.linalg.solve(curvature, slope)
            parameters[free] += step
            if np.max(np.abs(step) * np.sqrt(prior)) < _SETTLED:
                break
        return parameters

    def residuals(self, parameters: np.ndarray, matches: np.ndarray) -> np.ndarray:
        """By how many rows matches (N, 4) still differ, left minus corrected right."""
        return matches[:, 1] - matches[:, 3] - self.shifts(parameters, matches)

    def shifts(self, parameters: np.ndarray, matches: np.ndarray) -> np.ndarray:
        """``u_y - y`` of the right points of matches."""
        return self.shift(parameters, matches[:, 2], matches[:, 3])

    def shift(self, parameters: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """``u_y - y`` of points of the right view."""
        df, dcy = (parameters[PARAMETERS.index(name)] for name in ("df", "dcy"))
        y = (rows - self._camera.cy) / self._camera.focal
        bent = self._bent(parameters, columns, rows)
        return (self._camera.focal + df) * bent + df * y + dcy

    def inverted(
        self, parameters: np.ndarray, columns: np.ndarray, wanted: np.ndarray
    ) -> np.ndarray:
        """The rows ``y`` with ``u_y = wanted``, by fixed-point steps."""
        rows = wanted - self.shift(parameters, columns, wanted)
        for _ in range(_INVERSIONS):
            before, rows = rows, wanted - self.shift(parameters, columns, rows)
            if np.abs(rows - before).max() < _INVERTED:
                break
        return rows

    def _bent(self, parameters: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        k1, p1, p2, _, roll, _ = parameters
        x = (columns - self._camera.cx) / self._camera.focal
        y = (rows - self._camera.cy) / self._camera.focal
        square = x**2 + y**2
        return k1 * y * square + p1 * (square + 2 * y**2) + 2 * p2 * x * y + roll * x

    def _terms(self, parameters: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(N, 6): derivatives of ``u_y`` by the parameters."""
        focal = self._camera.focal + parameters[PARAMETERS.index("df")]
        x = (columns - self._camera.cx) / self._camera.focal
        y = (rows - self._camera.cy) / self._camera.focal
        square = x**2 + y**2
        return np.stack(
            [
                focal * y * square,
                focal * (square + 2 * y**2),
                focal * 2 * x * y,
                y + self._bent(parameters, columns, rows),
                focal * x,
                np.ones_like(x),
            ],
            axis=1,
        )


def _spline(image: np.ndarray, margin: int) -> np.ndarray:
    """Coefficients of the cubic spline along the columns, with ``margin`` reflected rows added."""
    rows = np.pad(image, ((margin, margin), (0, 0), (0, 0)), mode="symmetric") * np.float32(6)
    for y in range(1, len(rows)):
        rows[y] += _POLE * rows[y - 1]
    rows[-1] *= _POLE / (_POLE * _POLE - 1)
    for y in range(len(rows) - 2, -1, -1):
        rows[y] = _POLE * (rows[y + 1] - rows[y])
    return rows
