"""The model in use: images -> features -> correlation -> edges -> CRF -> disparity, in order.

`Stereo` holds a loaded model on a device and can be called again and again; every command of
`hstereo` goes through it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import kernels
from .correlation import correlation_forward
from .crf import energy, solve
from .disparity import cheapest_labels, label_disparity, refined_disparity
from .edges import edges_forward, edges_input
from .errors import DeviceError, InputError
from .features import features_forward, network_input
from .io.disparity import write_disparity
from .io.images import (
    ChannelOrder,
    as_image,
    check_same_size,
    read_image,
    read_pair,
)
from .io.volumes import fill_unknown
from .kernels import Array, Backend
from .labels import LabelRange, labels_for
from .memory import require_memory
from .model import METHODS, StereoModel, on_device
from .models.zoo import DEFAULT_MODEL, load_model

ImageLike = np.ndarray | str | os.PathLike[str]
"""An array, or the path of an image file (``-`` for standard input)."""

OnStage = Callable[[str], None]
"""Is told the name of each stage when it begins."""


@dataclass(frozen=True)
class MatchOptions:
    """How a model is run, as `Stereo.match` takes it; None means "as the model says".

    Attributes
    ----------
    disparities
        Number of labels, exactly.
    min_disparity
        Smallest disparity in pixels, may be negative.
    step
        Pixels between labels, may be a fraction.
    paper_labels
        Round the number of labels up to a power of two, at most 256, as the published program.
    iterations
        Of Dual_MM.
    method
        ``crf``, or ``argmax`` for the network alone.
    refine
        Sub-label refinement; by default with ``crf`` only, as in the paper.
    """

    disparities: int | None = None
    min_disparity: float | None = None
    step: float | None = None
    paper_labels: bool = False
    iterations: int | None = None
    method: str | None = None
    refine: bool | None = None


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
    energy
        Of the labelling; None without a CRF.
    bounds
        Lower bound on the energy after every sweep: no labelling has a lower energy than the last
        one; None without a CRF.
    seconds
        By stage, in order.
    costs, minorant
        float32 (H, W, K), the costs before and after the CRF, low is good, if ``volumes`` were
        asked for; there is no minorant without a CRF.
    """

    disparity: np.ndarray
    unrefined: np.ndarray
    label_range: LabelRange
    energy: float | None
    bounds: np.ndarray | None
    seconds: dict[str, float]
    costs: np.ndarray | None = None
    minorant: np.ndarray | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map as ``.pfm``, ``.png`` (KITTI's 16 bit), ``.npy`` or ``.tif``."""
        write_disparity(os.fspath(path), self.disparity)


class StageClock:
    """Wall-clock seconds of each stage, in order; tells ``on_stage`` which one begins.

    ``wait`` is called before the clock is read: a GPU works on while its caller does.
    """

    def __init__(
        self, on_stage: OnStage | None = None, wait: Callable[[], None] = lambda: None
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage
        self._wait = wait

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as a part of stage ``name``."""
        if self._on_stage is not None:
            self._on_stage(name)
        begin = time.perf_counter()
        try:
            yield
            self._wait()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


def open_backend(device: str, threads: int | None) -> Backend:
    """The operations of a device, with the number of CPU threads set.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    InputError
        If there is no such device, or there are more threads than Numba allows.
    """
    if not kernels.is_device(device):
        raise InputError(f"There is no device '{device}'", "Use auto, cpu, cuda or cuda:N")
    if threads is not None:
        kernels.set_threads(_checked_threads(threads))
    try:
        return kernels.select(device)
    except kernels.DeviceUnavailableError as error:
        raise DeviceError(f"CUDA cannot be used: {error.reason}", error.fix) from error


def _checked_threads(threads: int) -> int:
    most = kernels.max_threads()
    if not 1 <= threads <= most:
        raise InputError(
            f"`threads={threads}` is not between 1 and the {most} that Numba allows",
            "Set NUMBA_NUM_THREADS to allow more threads than cores",
        )
    return threads


class Stereo:
    """A model on a device: loaded once, uploaded once, called for any number of pairs.

    Parameters
    ----------
    model
        Name of a built-in model, path of a model file or of a run folder of `hstereo train`, or a
        `StereoModel`.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; or a backend that is open already.
    threads
        CPU threads of its calls; None: as many as Numba is set to use, normally all cores.

    Raises
    ------
    StereoError
        If the model or the device cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import hybridstereo as hs
    >>> left = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    >>> right = np.roll(left, -5, axis=1)  # every point 5 pixels further left
    >>> stereo = hs.Stereo("census", device="cpu")
    >>> result = stereo.match(left, right, disparities=16)
    >>> result.disparity.shape
    (40, 60)
    >>> float(np.median(result.disparity.round()))
    5.0
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | StereoModel = DEFAULT_MODEL,
        device: str | Backend = "auto",
        threads: int | None = None,
    ) -> None:
        self.model = model if isinstance(model, StereoModel) else load_model(model)
        self.backend = open_backend(device, None) if isinstance(device, str) else device
        self.threads = None if threads is None else _checked_threads(threads)
        self._loaded = on_device(self.model, self.backend)

    def __repr__(self) -> str:
        layers = len(self.model.unary)
        return f"<Stereo: {layers} layers, {self.model.config.edge_model} edges, {self.device}>"

    @property
    def device(self) -> str:
        """Name of the device that computes: ``cpu``, ``cuda`` or ``cuda:N``."""
        return self.backend.name

    def label_range(
        self, width: int, options: MatchOptions, search_range: int | None = None
    ) -> LabelRange:
        """The labels that `match` searches with these options; see `labels.labels_for`."""
        return labels_for(
            self.model.config.label_range,
            disparities=options.disparities,
            min_disparity=options.min_disparity,
            step=options.step,
            paper_labels=options.paper_labels,
            search_range=search_range,
            width=width,
        )

    def match(
        self,
        left: ImageLike,
        right: ImageLike,
        disparities: int | None = None,
        *,
        min_disparity: float | None = None,
        step: float | None = None,
        paper_labels: bool = False,
        iterations: int | None = None,
        method: str | None = None,
        refine: bool | None = None,
        labels: LabelRange | None = None,
        search_range: int | None = None,
        channels: ChannelOrder = "rgb",
        volumes: bool = False,
        on_stage: OnStage | None = None,
    ) -> StereoResult:
        """Disparity map of the left image of a rectified pair.

        Parameters
        ----------
        left, right
            Paths, or arrays of one size: uint8, uint16 or floats in [0, 1]; grey (H, W) or
            (H, W, 1), RGB or RGBA, whose alpha is dropped.
        disparities, min_disparity, step, paper_labels, iterations, method, refine
            See `MatchOptions`.
        labels
            The labels themselves, instead of the options about them.
        search_range
            How many disparities from 0 the data set says to search, if nothing above says more.
        channels
            ``bgr`` for arrays in OpenCV's order.
        volumes
            Also give the costs before and after the CRF, which take H * W * K * 4 bytes each.
        on_stage
            Called with the name of each stage when it begins.

        Raises
        ------
        StereoError
            If an image or an option cannot be used, or the memory does not suffice.
        """
        options = MatchOptions(
            disparities, min_disparity, step, paper_labels, iterations, method, refine
        )
        left_image, right_image = (
            image.astype(self.model.dtype, copy=False)
            for image in _read_pair(left, right, channels)
        )
        height, width, _ = left_image.shape
        if labels is None:
            label_range = self.label_range(width, options, search_range)
        elif (disparities, min_disparity, step, paper_labels) == (None, None, None, False):
            label_range = labels
        else:
            raise InputError(
                "The labels are given twice",
                "Give `labels`, or `disparities`, `min_disparity`, `step` and `paper_labels`",
            )
        self._check(options)
        require_memory(self.model, height, width, label_range.count, self.backend)
        clock = StageClock(on_stage, self.backend.synchronize)
        with kernels.limited_threads(self.threads):
            costs = self._matching_costs(left_image, right_image, label_range, clock)
            return self._optimise(costs, left_image, label_range, options, volumes, clock)

    __call__ = match

    def matching_costs(
        self, left: np.ndarray, right: np.ndarray, label_range: LabelRange
    ) -> np.ndarray:
        """The network's matching costs (H, W, K) in [-1, 0], low is good, before any CRF."""
        left_image, right_image = (
            as_image(image, name).astype(self.model.dtype, copy=False)
            for image, name in ((left, "left"), (right, "right"))
        )
        with kernels.limited_threads(self.threads):
            costs = self._matching_costs(left_image, right_image, label_range, StageClock())
            return self.backend.to_host(costs)

    def optimise(
        self,
        costs: np.ndarray,
        left: ImageLike,
        labels: LabelRange | None = None,
        *,
        iterations: int | None = None,
        method: str | None = None,
        refine: bool | None = None,
        channels: ChannelOrder = "rgb",
        volumes: bool = False,
        on_stage: OnStage | None = None,
    ) -> StereoResult:
        """Disparity map from the matching costs of any matcher: edge weights, CRF, read-out.

        The model gives edge weights, penalties and defaults; its Unary-CNN is not used.

        Parameters
        ----------
        costs
            (H, W, K), low is good; NaN where a label's cost is unknown, which then counts as the
            highest known one of its pixel.  The penalties suit costs that differ by up to about 1.
        left
            The left image, as for `match`.
        labels
            What the K labels stand for; by default the disparities 0 to K - 1.
        iterations, method, refine, channels, volumes, on_stage
            As for `match`.

        Examples
        --------
        >>> import numpy as np
        >>> import hybridstereo as hs
        >>> costs = np.ones((8, 8, 4), np.float32)
        >>> costs[:, :, 3] = 0
        >>> grey = np.zeros((8, 8), np.uint8)
        >>> stereo = hs.Stereo("census", device="cpu")
        >>> float(stereo.optimise(costs, grey, labels=hs.LabelRange(10, 4)).disparity.mean())
        13.0
        """
        options = MatchOptions(iterations=iterations, method=method, refine=refine)
        self._check(options)
        image = _read(left, "left", channels).astype(self.model.dtype, copy=False)
        checked = _checked_costs(costs, image)
        label_range = LabelRange(0.0, checked.shape[2]) if labels is None else labels
        if label_range.count != checked.shape[2]:
            raise InputError(
                f"The costs have {checked.shape[2]} labels but the label range has"
                f" {label_range.count}",
                "Both must be the same number",
            )
        clock = StageClock(on_stage, self.backend.synchronize)
        with kernels.limited_threads(self.threads):
            return self._optimise(
                self.backend.to_device(checked), image, label_range, options, volumes, clock
            )

    def _matching_costs(
        self, left: np.ndarray, right: np.ndarray, label_range: LabelRange, clock: StageClock
    ) -> Array:
        """Images -> features -> correlation -> matching costs (H, W, K), on the device."""
        backend, layers = self.backend, self._loaded.unary
        with clock.stage("input"):
            inputs = [backend.to_device(network_input(x, layers)) for x in (left, right)]
        with clock.stage("unary_cnn"):
            # Popped, so that an input is freed as soon as its features exist.
            features = [features_forward(backend, inputs.pop(0), layers) for _ in range(2)]
        with clock.stage("correlation"):
            return correlation_forward(backend, features[0], features[1], label_range)

    def _optimise(
        self,
        costs: Array,
        left: np.ndarray,
        label_range: LabelRange,
        options: MatchOptions,
        volumes: bool,
        clock: StageClock,
    ) -> StereoResult:
        """Costs on the device -> edge weights -> CRF -> disparity."""
        backend, config = self.backend, self.model.config
        method = options.method or config.method
        lowest = bounds = minorant = None
        if method == "crf":
            model = self._loaded.edges
            with clock.stage("input"):
                edges_in = backend.to_device(edges_input(left, model))
            with clock.stage("contrast" if model.kind == "contrast" else "pairwise_cnn"):
                edges = edges_forward(backend, edges_in, model)
            del edges_in
            iterations = options.iterations or config.iterations
            with clock.stage("crf"):
                solution = solve(backend, costs, edges, config.penalties, iterations)
                label_map, minorant, bounds = (
                    solution.label_map,
                    solution.minorant,
                    solution.bounds,
                )
                lowest = energy(backend, costs, edges, config.penalties, label_map)
        else:
            with clock.stage("argmax"):
                label_map = cheapest_labels(backend, costs)
        unrefined = disparity = label_disparity(backend, label_map, label_range)
        if method == "crf" if options.refine is None else options.refine:
            with clock.stage("refinement"):
                chosen_by = costs if minorant is None else minorant
                disparity = refined_disparity(backend, chosen_by, label_map, label_range)
        before = after = None
        if volumes:
            before = backend.to_host(costs)
            after = None if minorant is None else backend.to_host(minorant)
        return StereoResult(
            disparity, unrefined, label_range, lowest, bounds, clock.seconds, before, after
        )

    def _check(self, options: MatchOptions) -> None:
        """Refuse options that no stage could use."""
        if options.method is not None and options.method not in METHODS:
            raise InputError(
                f"There is no method '{options.method}'", f"Use {' or '.join(METHODS)}"
            )
        if options.iterations is not None and options.iterations < 1:
            raise InputError(f"`iterations={options.iterations}` is below 1", "Give at least 1")


def _read(image: ImageLike, name: str, channels: ChannelOrder) -> np.ndarray:
    if isinstance(image, str | os.PathLike):
        return read_image(os.fspath(image))
    return as_image(image, name, channels)


def _read_pair(
    left: ImageLike, right: ImageLike, channels: ChannelOrder
) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(left, str | os.PathLike) and isinstance(right, str | os.PathLike):
        return read_pair(os.fspath(left), os.fspath(right))
    images = _read(left, "left", channels), _read(right, "right", channels)
    check_same_size(*images)
    return images


def _checked_costs(costs: Any, left: np.ndarray) -> np.ndarray:
    """Costs (H, W, K) in the type of the image, with a cost for every label."""
    if not isinstance(costs, np.ndarray) or costs.dtype.kind not in "fiu":
        found = costs.dtype if isinstance(costs, np.ndarray) else type(costs).__name__
        raise InputError(f"The costs are {found}", "Give a NumPy array of numbers, (H, W, K)")
    height, width, _ = left.shape
    if costs.ndim != 3 or costs.shape[:2] != (height, width) or costs.shape[2] < 1:
        raise InputError(
            f"The costs have the shape {costs.shape} but the left image is {width}x{height}",
            f"({height}, {width}, K) is needed",
        )
    checked = np.ascontiguousarray(costs, left.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        # One number that is not finite makes the sum so: far cheaper than a volume of answers.
        if np.isfinite(checked.sum()):
            return checked
    if np.isneginf(checked).any():
        raise InputError("The costs hold minus infinity", "A low cost is a good match")
    return fill_unknown(np.where(np.isposinf(checked), np.nan, checked).astype(left.dtype))
