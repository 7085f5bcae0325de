"""ELAS (Geiger, Roser and Urtasun, ACCV 2010) by way of the package pyelas, if it is installed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..datasets import StereoPair
from ..evaluation.methods import Outcome
from ..evaluation.results import MethodInfo
from ..evaluation.scenes import Scene
from ..metrics import fill_background
from ..opencv import cv2
from ..synthetic import quantised

_SMALLEST = 16  # rows and columns that libelas needs for its support points


class ElasUnavailableError(Exception):
    """ELAS cannot be used; the message says in a sentence why and what to do."""


def import_elas() -> Any:
    """The module of pyelas, or an explanation why there is none."""
    install = "docs/performance.md says how to install pyelas"
    try:
        module = importlib.import_module("elas")
    except ImportError as error:
        reason = "it is not installed" if error.name == "elas" else str(error)
        raise ElasUnavailableError(f"ELAS is left out: {reason}. {install}.") from error
    if not hasattr(module, "Elas"):
        raise ElasUnavailableError(
            f"ELAS is left out: the module 'elas' is another package's. {install}."
        )
    return module


def elas_matcher(left: np.ndarray, right: np.ndarray, disparities: int) -> Callable[[], np.ndarray]:
    """A function that matches two images (H, W, 3); it returns (H, W), negative where invalid.

    The settings are those of libelas (``ROBOTICS``), with as many disparities.
    """
    if min(left.shape[:2]) < _SMALLEST:
        raise ElasUnavailableError(
            f"ELAS is left out: images of {left.shape[1]}x{left.shape[0]} are too small for it."
        )
    matcher = import_elas().Elas()
    matcher.disp_min, matcher.disp_max = 0, disparities - 1
    grey = [_grey(image) for image in (left, right)]
    return lambda: matcher.process(*grey)[0]


def _grey(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(cv2.cvtColor(quantised(image), cv2.COLOR_RGB2GRAY))


class ElasMethod:
    """ELAS as a method of the evaluation: holes are filled as for OpenCV's matchers."""

    def __init__(self) -> None:
        import_elas()
        settings = "libelas, ROBOTICS settings, grey, one thread; holes filled from the background"
        self.info = MethodInfo("elas", settings, "baseline")

    def compute(self, scene: Scene, pair: StereoPair) -> Outcome:
        """The map, with holes filled, and the seconds that took."""
        left, right = pair.images()
        begin = time.perf_counter()
        found = elas_matcher(left, right, pair.search_range)()
        filled = fill_background(np.where(found < 0, np.inf, found)).astype(np.float32)
        return Outcome(filled, time.perf_counter() - begin)
