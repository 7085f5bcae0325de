"""The model in use: images -> features -> correlation -> edges -> CRF -> disparity, in order.

`Stereo` holds a loaded model on a device and can be called again and again; every command of
`hstereo` goes through it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from . import kernels
from .clock import OnStage, StageClock
from .correlation import correlation_forward
from .crf import energy, solve
from .device import checked_threads, open_backend
from .disparity import cheapest_labels, label_disparity, refined_disparity
from .edges import edges_forward, edges_input
from .errors import InputError
from .features import features_forward, network_input
from .io.disparity import write_disparity
from .io.images import read_image, read_pair
from .io.pixels import ChannelOrder, as_image, check_channels, check_same_size
from .io.volumes import checked_costs
from .kernels import Array, Backend
from .labels import LabelRange, labels_for
from .memory import require_memory
from .model import StereoModel, on_device
from .models.zoo import DEFAULT_MODEL, SCOUT_MODEL, load_model
from .opencv import opencv_threads
from .options import MatchOptions
from .pair_check import Finding, check_pair
from .pyramid import half_labels, half_size, pyramid_forward
from .rectification import Rectification
from .rectification import rectify as rectify_right
from .search_range import believed, coarse_views, covering_range

ImageLike = np.ndarray | str | os.PathLike[str]
"""An array, or the path of an image file (``-`` for standard input)."""

RangeOrigin = Literal["caller", "data set", "pair", "model"]
"""Who chose the labels of a result."""

_PATH = (str, os.PathLike)
_NOT_GIVEN = (None, None, None, False, None)


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
        Of the labelling; None without a CRF.
    bounds
        Lower bound on the energy after every sweep: no labelling has a lower energy than the last
        one; None without a CRF.
    seconds
        By stage, in order.
    costs, minorant
        float32 (H, W, K), the costs before and after the CRF, low is good, if ``volumes`` were
        asked for; there is no minorant without a CRF.
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

    def __repr__(self) -> str:
        height, width = self.disparity.shape
        labels = f"{self.label_range.minimum:g} to {self.label_range.maximum:g}"
        return f"<StereoResult: {width}x{height} pixels, disparities {labels}>"

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
        is_open = hasattr(device, "conv_forward")
        self.backend = cast(Backend, device) if is_open else open_backend(cast(str, device))
        self.threads = checked_threads(threads)
        self._loaded = on_device(self.model, self.backend)
        self._scout: Stereo | None = None  # the small model of `_coarse_match`, once it is needed

    def __repr__(self) -> str:
        return f"<Stereo: {self.model!r} on {self.device}>"

    @property
    def device(self) -> str:
        """Name of the device that computes: ``cpu``, ``cuda`` or ``cuda:N``."""
        return self.backend.name

    def label_range(
        self,
        width: int,
        options: MatchOptions,
        search_range: int | None = None,
        found: LabelRange | None = None,
    ) -> LabelRange:
        """The labels that `match` searches with these options; see `labels.labels_for`."""
        return labels_for(
            self.model.config.label_range,
            disparities=None if options.disparities == "auto" else options.disparities,
            min_disparity=options.min_disparity,
            step=options.step,
            paper_labels=options.paper_labels,
            search_range=None if options.disparities == "auto" else search_range,
            found=found,
            width=width,
        )

    def find_range(
        self, left: ImageLike, right: ImageLike, *, channels: ChannelOrder = "rgb"
    ) -> LabelRange | None:
        """The disparities that a pair shows, in whole pixels, possibly negative.

        A small model matches the pair at a fraction of its size (`hybridstereo.search_range`).

        Parameters
        ----------
        left, right, channels
            As for `match`.

        Returns
        -------
        LabelRange or None
            None if the views agree at too few points: plain images, or no pair at all.

        Raises
        ------
        StereoError
            If an image cannot be used.
        """
        return covering_range(*self._coarse_match(*self._read_pair(left, right, channels)))

    def check(
        self,
        left: ImageLike,
        right: ImageLike,
        *,
        rectify: bool = False,
        channels: ChannelOrder = "rgb",
    ) -> list[Finding]:
        """What is wrong with a pair: swapped or unrelated views, rows that differ, and others.

        Takes some hundredths of the time of `match`; docs/messages.md lists what can be found.

        Parameters
        ----------
        left, right, channels
            As for `match`.
        rectify
            Whether `match` will be told to: then what that corrects is left out.

        Raises
        ------
        StereoError
            If an image cannot be used.
        """
        images = self._read_pair(left, right, channels)
        with opencv_threads(self.threads):
            findings = check_pair(*images, lambda *views: self._coarse_match(*views)[:2])
        return [x for x in findings if not (rectify and x.correctable)]

    def _coarse_match(
        self, left: np.ndarray, right: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """A disparity map of fewer pixels, where it is believed, and pixels per pixel of it."""
        if self._scout is None:
            self._scout = Stereo(SCOUT_MODEL, self.backend, self.threads)
        views = coarse_views(left, right)
        result = self._scout.match(views.left, views.right, labels=views.label_range, volumes=True)
        labels = np.rint(result.unrefined - views.label_range.minimum).astype(np.intp)
        mask = believed(cast(np.ndarray, result.costs), labels, views.label_range)
        return result.disparity, mask, views.factor

    def match(
        self,
        left: ImageLike,
        right: ImageLike,
        disparities: int | Literal["auto"] | None = None,
        *,
        min_disparity: float | None = None,
        step: float | None = None,
        paper_labels: bool = False,
        iterations: int | None = None,
        method: str | None = None,
        refine: bool | None = None,
        labels: LabelRange | None = None,
        search_range: int | None = None,
        rectify: bool = False,
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
        disparities
            Number of labels, exactly; ``auto``: those that the pair itself shows (`find_range`),
            or the model's, at most the width of the image, if it does not.  By default ``auto``,
            unless there is a ``search_range``.
        min_disparity, step
            Smallest disparity, which may be negative, and pixels between labels, which may be a
            fraction; by default what was found in the pair, and the model's step.
        paper_labels
            Round the number of labels as the published program does.
        iterations
            Of Dual_MM; by default the model's.
        method
            ``crf``, or ``argmax`` for the network alone; by default the model's.
        refine
            Sub-label refinement; by default with ``crf`` only, as in the paper.
        labels
            The labels themselves, instead of the options about them.
        search_range
            How many disparities from 0 the data set says to search, if nothing above says more.
        rectify
            Correct rows of the right view that lie too high or too low (`rectification`).
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
        options = options.resolved(self.model.config)
        left_image, right_image = self._read_pair(left, right, channels)
        clock = StageClock(on_stage, self.backend.synchronize)
        rectification = None
        if rectify:  # before the range is looked for, which needs rows that match
            with clock.stage("rectification"), opencv_threads(self.threads):
                right_image, rectification = rectify_right(left_image, right_image)
        range_from: RangeOrigin = "caller"
        if labels is None:
            found = None
            if disparities == "auto" or (disparities is None and search_range is None):
                with clock.stage("range"):
                    found = covering_range(*self._coarse_match(left_image, right_image))
                range_from = "model" if found is None else "pair"
            elif disparities is None:
                range_from = "data set"
            label_range = self.label_range(left_image.shape[1], options, search_range, found)
        elif (disparities, min_disparity, step, paper_labels, search_range) == _NOT_GIVEN:
            label_range = _checked_labels(labels)
        else:
            raise InputError(
                "The labels are given twice",
                "Give `labels`, or `disparities`, `min_disparity`, `step`, `paper_labels` and"
                " `search_range`",
            )
        self._require_memory(left_image, label_range)
        with kernels.limited_threads(self.threads):
            costs = self._matching_costs(left_image, right_image, label_range, clock)
            result = self._optimise(costs, left_image, label_range, options, volumes, clock)
        return replace(result, range_from=range_from, rectification=rectification)

    __call__ = match

    def matching_costs(
        self,
        left: ImageLike,
        right: ImageLike,
        labels: LabelRange,
        *,
        channels: ChannelOrder = "rgb",
    ) -> np.ndarray:
        """The network's matching costs, before any CRF.

        Parameters
        ----------
        left, right, channels
            As for `match`.
        labels
            Whose costs to compute.

        Returns
        -------
        ndarray, (H, W, K)
            In [-1, 0], low is good.

        Raises
        ------
        StereoError
            As for `match`.
        """
        images = self._read_pair(left, right, channels)
        self._require_memory(images[0], _checked_labels(labels))
        with kernels.limited_threads(self.threads):
            return self.backend.to_host(self._matching_costs(*images, labels, StageClock()))

    def level_costs(
        self,
        left: ImageLike,
        right: ImageLike,
        labels: LabelRange,
        *,
        channels: ChannelOrder = "rgb",
    ) -> list[np.ndarray]:
        """The costs of each level of the model's pyramid, before they are added up.

        The first are those of the images themselves, which are all that a model without a pyramid
        has; arguments as for `matching_costs`.
        """
        images = self._read_pair(left, right, channels)
        self._require_memory(images[0], _checked_labels(labels))
        with kernels.limited_threads(self.threads):
            levels = self._level_costs(*images, labels, StageClock())
            return [self.backend.to_host(costs) for costs in levels]

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

        Raises
        ------
        StereoError
            If the costs, the image or an option cannot be used.

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
        asked = MatchOptions(iterations=iterations, method=method, refine=refine)
        options = asked.resolved(self.model.config)
        check_channels(channels)
        image = _read(left, "left", channels).astype(self.model.dtype, copy=False)
        checked = checked_costs(costs, image)
        label_range = LabelRange(0.0, checked.shape[2])
        if labels is not None:
            label_range = _checked_labels(labels)
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

    def _read_pair(
        self, left: ImageLike, right: ImageLike, channels: ChannelOrder
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two images (H, W, 3) of one size, in the type that the model computes in."""
        check_channels(channels)
        if isinstance(left, _PATH) and isinstance(right, _PATH):
            images = read_pair(os.fspath(left), os.fspath(right))
        else:
            images = _read(left, "left", channels), _read(right, "right", channels)
            check_same_size(*images)
        dtype = self.model.dtype
        return images[0].astype(dtype, copy=False), images[1].astype(dtype, copy=False)

    def _require_memory(self, left: np.ndarray, label_range: LabelRange) -> None:
        """Refuse a pair that does not fit, before the work."""
        height, width, _ = left.shape
        require_memory(self.model, height, width, label_range.count, self.backend)

    def _matching_costs(
        self, left: np.ndarray, right: np.ndarray, label_range: LabelRange, clock: StageClock
    ) -> Array:
        """Images -> features -> correlation -> pyramid -> matching costs, on the device."""
        levels = self._level_costs(left, right, label_range, clock)
        if len(levels) == 1:
            return levels[0]
        with clock.stage("pyramid"):
            return pyramid_forward(self.backend, levels, self.model.config.pyramid)[0]

    def _level_costs(
        self, left: np.ndarray, right: np.ndarray, label_range: LabelRange, clock: StageClock
    ) -> list[Array]:
        """The costs (H, W, K) of the images themselves, then those of the coarser levels."""
        levels = [self._unary_costs(left, right, label_range, clock)]
        for _ in self.model.config.pyramid:
            with clock.stage("pyramid"):
                left, right = half_size(left), half_size(right)
                label_range = half_labels(label_range)
                levels.append(self._unary_costs(left, right, label_range, StageClock()))
        return levels

    def _unary_costs(
        self, left: np.ndarray, right: np.ndarray, label_range: LabelRange, clock: StageClock
    ) -> Array:
        """Images of one size -> features -> correlation."""
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
        lowest = bounds = minorant = None
        if options.method == "crf":
            model = self._loaded.edges
            with clock.stage("input"):
                edges_in = backend.to_device(edges_input(left, model))
            with clock.stage("contrast" if model.kind == "contrast" else "pairwise_cnn"):
                edges = edges_forward(backend, edges_in, model)
            del edges_in
            iterations = cast(int, options.iterations)  # which `resolved` has filled in
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
        if options.refine:
            with clock.stage("refinement"):
                chosen_by = costs if minorant is None else minorant
                disparity = refined_disparity(
                    backend, chosen_by, label_map, unrefined, label_range.step
                )
        before = after = None
        if volumes:
            before = backend.to_host(costs)
            after = None if minorant is None else backend.to_host(minorant)
        return StereoResult(
            disparity,
            unrefined,
            label_range,
            lowest,
            bounds,
            clock.seconds,
            costs=before,
            minorant=after,
        )


def _read(image: ImageLike, name: str, channels: ChannelOrder) -> np.ndarray:
    if isinstance(image, _PATH):
        return read_image(os.fspath(image))
    return as_image(image, name, channels)


def _checked_labels(labels: Any) -> LabelRange:
    if not isinstance(labels, LabelRange):
        raise InputError(
            f"The labels are a {type(labels).__name__}",
            "Give a LabelRange, or their number as `disparities`",
        )
    return labels
