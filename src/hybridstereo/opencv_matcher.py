"""A matcher with the interface of OpenCV's: ``compute`` in place of ``StereoSGBM.compute``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import InputError
from .labels import LabelRange
from .stereo import Stereo

_SCALE = 16  # OpenCV's fixed point
_ARRAY = np.iinfo(np.int16)


class OpenCVMatcher:
    """`Stereo` for programs that call ``cv2.StereoSGBM.compute``: BGR or grey in, int16 out.

    Parameters
    ----------
    stereo
        The model.
    num_disparities, min_disparity
        What to search, as ``numDisparities`` and ``minDisparity``; any number will do.
    options
        What else `Stereo.match` takes.

    Examples
    --------
    >>> import numpy as np
    >>> import hybridstereo as hs
    >>> left = np.random.default_rng(0).integers(0, 256, (40, 60), np.uint8)
    >>> matcher = hs.OpenCVMatcher(hs.Stereo("census", device="cpu"), num_disparities=16)
    >>> fixed = matcher.compute(left, np.roll(left, -5, axis=1))
    >>> fixed.dtype, int(np.median(np.rint(fixed / 16)))
    (dtype('int16'), 5)
    """

    def __init__(
        self, stereo: Stereo, num_disparities: int, min_disparity: int = 0, **options: Any
    ) -> None:
        self.stereo = stereo
        self.labels = LabelRange(float(min_disparity), num_disparities)
        self.options = options
        if max(abs(self.labels.minimum), abs(self.labels.maximum)) * _SCALE > _ARRAY.max:
            raise InputError(
                f"16 times {self.labels.maximum:g} is more than int16 holds",
                "Use `compute_float`, or a smaller range",
            )

    def compute(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """16 times the disparity, int16 (H, W), as ``StereoSGBM.compute`` gives it.

        Every pixel has a disparity; OpenCV marks unmatched ones with ``(minDisparity - 1) * 16``.
        """
        return np.rint(_SCALE * self.compute_float(left, right)).astype(np.int16)

    def compute_float(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The disparity itself, float32 (H, W)."""
        result = self.stereo.match(left, right, labels=self.labels, channels="bgr", **self.options)
        return result.disparity
