"""Other programs to time beside ours: semi-global matching, ELAS, the network in PyTorch."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..features import features_forward, network_input
from ..kernels import Backend
from ..model import StereoModel
from ..opencv import cv2, opencv_threads, sgbm_matcher, supported_disparities
from ..synthetic import quantised
from .elas import ElasUnavailableError, elas_matcher

PEERS = ("sgbm", "sgbm-3way", "elas", "torch")

# OpenCV's names of the modes, and how it calls them.
_SGBM_MODES = {
    "sgbm": ("MODE_HH", cv2.STEREO_SGBM_MODE_HH),
    "sgbm-3way": ("MODE_SGBM_3WAY", cv2.STEREO_SGBM_MODE_SGBM_3WAY),
}

_SGBM_BLOCK = 5


@dataclass(frozen=True)
class Peer:
    """A program that does part of what ours does.

    Attributes
    ----------
    name, label
        One of `PEERS`, and what to call it in a table.
    components
        Those of our components to compare its time with.
    run
        Runs it once and returns the seconds that took.
    difference
        Largest difference between its result and ours, where both compute the same.
    """

    name: str
    label: str
    components: tuple[str, ...]
    run: Callable[[], float]
    difference: float | None = None


class PeerUnavailableError(Exception):
    """The peer cannot take part; the message says in a sentence why and what to do."""


def sgbm_peer(
    left: np.ndarray, right: np.ndarray, disparities: int, threads: int, name: str = "sgbm"
) -> Peer:
    """OpenCV's StereoSGBM on the grey 8-bit images, with 8 paths, or with 3 (``sgbm-3way``).

    Grey is what it is usually given, and faster than colour.  ``P1`` and ``P2`` are those of
    OpenCV's documentation; the number of disparities is rounded up to a multiple of 16.
    """
    rounded = supported_disparities(disparities)
    if left.shape[1] <= rounded + _SGBM_BLOCK:
        raise PeerUnavailableError(
            f"{name.upper()} is left out: images of {left.shape[1]} columns are too narrow for its"
            f" {rounded} disparities."
        )
    mode_name, mode = _SGBM_MODES[name]
    matcher = sgbm_matcher(mode, rounded, _SGBM_BLOCK, channels=1)
    grey = [cv2.cvtColor(quantised(image), cv2.COLOR_RGB2GRAY) for image in (left, right)]

    def run() -> float:
        with opencv_threads(threads):
            begin = time.perf_counter()
            matcher.compute(grey[0], grey[1])
            return time.perf_counter() - begin

    label = f"OpenCV {cv2.__version__} SGBM, {mode_name}, {rounded} disparities"
    return Peer(name, label, ("crf", "total"), run)


def elas_peer(left: np.ndarray, right: np.ndarray, disparities: int) -> Peer:
    """libelas on the grey 8-bit images, on the one thread that it has."""
    try:
        match = elas_matcher(left, right, disparities)
    except ElasUnavailableError as error:
        raise PeerUnavailableError(str(error)) from error

    def run() -> float:
        begin = time.perf_counter()
        match()
        return time.perf_counter() - begin

    return Peer("elas", f"libelas, {disparities} disparities, 1 thread", ("total",), run)


def import_torch() -> Any:
    """Import PyTorch, or explain why that is not possible."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        if error.name == "torch":
            reason, fix = "it is not installed", "Install it with 'pip install torch'"
        else:
            reason, fix = str(error), "Reinstall it with 'pip install torch'"
        raise PeerUnavailableError(f"PyTorch is left out: {reason}. {fix}.") from error


def torch_peer(
    model: StereoModel, backend: Backend, left: np.ndarray, right: np.ndarray, threads: int
) -> Peer:
    """The same Unary-CNN in PyTorch, one image after the other as in `Stereo.match`.

    As its documentation advises: channels last, ``inference_mode``, tanh in place.  Handing both
    images over as a batch of two makes no difference to its time.
    """
    torch = import_torch()
    parameters = []
    for layer in model.unary:
        # PyTorch correlates: true convolution means turning the kernels by 180 degrees.
        rotated = torch.from_numpy(np.ascontiguousarray(layer.weight[:, :, ::-1, ::-1]))
        bias = None if layer.bias is None else torch.from_numpy(layer.bias)
        parameters.append((rotated.to(memory_format=torch.channels_last), bias))
    inputs = [network_input(image, model.unary) for image in (left, right)]
    # A view of (H, W, C) as (1, C, H, W): this is what PyTorch calls channels last.
    tensors = [torch.from_numpy(x).permute(2, 0, 1).unsqueeze(0) for x in inputs]

    def features(activation: Any) -> Any:
        for weight, bias in parameters:
            activation = torch.nn.functional.conv2d(activation, weight, bias).tanh_()
        return activation

    def run() -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.inference_mode():
                begin = time.perf_counter()
                results = [features(x) for x in tensors]
                seconds = time.perf_counter() - begin
        finally:
            torch.set_num_threads(before)
        del results  # freeing is not part of the network's time; ours keeps its results too
        return seconds

    with torch.inference_mode():
        theirs = features(tensors[0])[0].permute(1, 2, 0).numpy()
    ours = backend.to_host(features_forward(backend, inputs[0], model.unary))
    difference = float(np.abs(theirs - ours).max())
    return Peer("torch", f"PyTorch {torch.__version__}", ("unary_cnn",), run, difference)
