"""The model in use: `Stereo` holds it on a device and can be called again and again.

It reads and checks what it is given, chooses the labels and what fits into the memory, and lets
`hybridstereo.pipeline` run the stages.  Every command of `hstereo` goes through it.
"""

from __future__ import annotations

import os
from copy import copy
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from . import kernels
from .clock import OnStage, StageClock
from .crf import WarmStart
from .device import checked_threads, open_backend
from .errors import InputError
from .inputs import ImageLike, check_scale, checked_labels, given_image, given_pair, reduced
from .io.pixels import ChannelOrder
from .io.volumes import checked_costs
from .kernels import Backend
from .labels import LabelRange, labels_for
from .memory import require_memory, tiles_that_fit
from .model import StereoModel
from .models.zoo import DEFAULT_MODEL, load_model
from .opencv import opencv_threads
from .options import MatchOptions, View
from .pair_check import Finding, check_pair
from .pipeline import Pipeline
from .rectification import rectify as rectify_right
from .result import RangeOrigin, StereoResult
from .scout import Scout
from .search_range import covering_range
from .tiles import ImageTile, OnTile, whole
from .work import OnProgress, shares_of_work

_NOT_GIVEN = (None, None, None, False, None)


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
        self._pipeline = Pipeline(self.model, self.backend)
        self._scout = Scout(self.backend, self.threads)

    def __repr__(self) -> str:
        return f"<Stereo: {self.model!r} on {self.device}>"

    @property
    def device(self) -> str:
        """Name of the device that computes: ``cpu``, ``cuda`` or ``cuda:N``."""
        return self.backend.name

    def with_threads(self, threads: int | None) -> Stereo:
        """The same, not loaded again, for calls with another number of threads."""
        other = copy(self)
        other.threads = checked_threads(threads)
        return other

    def beside(self, threads: int | None) -> Stereo:
        """The same, not loaded again, for another thread that calls it at the same time."""
        other = self.with_threads(threads)
        other._scout = self._scout.beside(other.threads)
        return other

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
        return covering_range(self._scout.match(*self._read_pair(left, right, channels)))

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
            findings = check_pair(*images, self._scout.match)
        return [x for x in findings if not (rectify and x.correctable)]

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
        scale: int = 1,
        max_memory: int | None = None,
        view: View | Literal["both"] = "left",
        confidence: bool = False,
        validity: bool = False,
        lr_check: bool = False,
        fill: bool = False,
        precision: str = "single",
        channels: ChannelOrder = "rgb",
        volumes: bool = False,
        max_pixels: int | None = None,
        warm: WarmStart | None = None,
        on_stage: OnStage | None = None,
        on_tile: OnTile | None = None,
        on_progress: OnProgress | None = None,
    ) -> StereoResult:
        """Disparity map of the left image of a rectified pair, or of the right one.

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
        scale
            2 or 4: match the views at half or quarter size, and enlarge the map.  Labels and map
            are in pixels of the views themselves.
        max_memory
            Bytes that the process (or the GPU) may use in all.  What needs more is computed in
            tiles (`tiles`).  By default 80 % of what is free, beyond what is in use.
        view
            ``right``: the map of the right image, whose pixel x matches left pixel ``x + d``;
            ``both``: that one as well, as ``result.right``.
        confidence
            Also tell how likely each pixel is right (`hybridstereo.confidence`).
        validity
            Also tell which pixels the other view confirms (`hybridstereo.validity`).
        lr_check
            Make the others invalid (+inf) in the map.
        fill
            Fill them from the background instead (`hybridstereo.filling`).  Each of these four
            needs the map of the other view, for which the CRF runs again; the features are
            computed once.
        precision
            ``half``: the CRF rounds its costs to 16 bits, on the CPU, and takes half the memory
            and less time (docs/model.md 6.9).
        channels
            ``bgr`` for arrays in OpenCV's order.
        volumes
            Also give the costs before and after the CRF, which take H * W * K * 4 bytes each; of
            the left view if both are asked for.
        max_pixels
            An image file whose header states more is refused, and not decoded; by default 100
            million (`hybridstereo.limits.allow_pixels`).
        warm
            What the CRF starts with, and then what it leaves for the next frame; see
            `hybridstereo.sequence`, which looks after it.  Not used in tiles.
        on_stage
            Called with the name of each stage when it begins.
        on_tile
            Called before each tile with how many are done and how many there are, if there are
            several.
        on_progress
            Called when a stage of the map begins, with the shares of its work that are done by
            now and when the stage ends (`work`).

        Raises
        ------
        StereoError
            If an image or an option cannot be used, or the memory does not suffice.
        """
        check_scale(scale, volumes)
        options = MatchOptions(
            disparities,
            min_disparity,
            step,
            paper_labels,
            iterations,
            method,
            refine,
            view,
            confidence,
            validity,
            lr_check,
            fill,
            precision,
        ).resolved(self.model.config)
        options.check_precision(self.device, self.model.dtype, warm is not None)
        left_image, right_image = self._read_pair(left, right, channels, max_pixels)
        clock = StageClock(on_stage, self.backend.synchronize)
        rectification = None
        if rectify:  # before the range is looked for, which needs rows that match
            with clock.stage("rectification"), opencv_threads(self.threads):
                right_image, rectification = rectify_right(left_image, right_image)
        if labels is None:
            label_range, range_from = self._labels_of(
                (left_image, right_image), options, search_range, clock
            )
        elif (disparities, min_disparity, step, paper_labels, search_range) == _NOT_GIVEN:
            label_range, range_from = checked_labels(labels), "caller"
        else:
            raise InputError(
                "The labels are given twice",
                "Give `labels`, or `disparities`, `min_disparity`, `step`, `paper_labels` and"
                " `search_range`",
            )
        height, width, _ = left_image.shape
        images, searched = (left_image, right_image), label_range
        if scale > 1:
            with clock.stage("input"):
                images = reduced(left_image, scale), reduced(right_image, scale)
            searched = label_range.reduced(scale)
        tiles = self._tiles(images[0], searched, options, max_memory, volumes, warm)
        with kernels.limited_threads(self.threads), opencv_threads(self.threads):
            if on_progress is not None:
                shares = shares_of_work(
                    self.model, tiles, searched.count, options, on_progress, self.backend
                )
                clock.listen(shares.begin_stage)
                on_tile = shares.telling_tiles(on_tile)
            result = self._pipeline.match(
                images, searched, options, tiles, volumes, clock, on_tile, warm
            )
        result = replace(result, range_from=range_from, rectification=rectification)
        if scale > 1:
            result = result.enlarged(scale, height, width, label_range)
        if fill:
            with clock.stage("filling"):
                return result.filled()
        return result.masked() if lr_check else result

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
        self._require_memory(images[0], checked_labels(labels), "argmax")
        with kernels.limited_threads(self.threads):
            return self.backend.to_host(self._pipeline.matching_costs(images, labels, StageClock()))

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
        self._require_memory(images[0], checked_labels(labels), "argmax")
        with kernels.limited_threads(self.threads):
            levels = self._pipeline.level_costs(images, {"left": labels}, StageClock())
            return [self.backend.to_host(costs) for costs in levels["left"]]

    def optimise(
        self,
        costs: np.ndarray,
        left: ImageLike,
        labels: LabelRange | None = None,
        *,
        iterations: int | None = None,
        method: str | None = None,
        refine: bool | None = None,
        precision: str = "single",
        channels: ChannelOrder = "rgb",
        volumes: bool = False,
        max_pixels: int | None = None,
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
        iterations, method, refine, precision, channels, volumes, max_pixels, on_stage
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
        asked = MatchOptions(
            iterations=iterations, method=method, refine=refine, precision=precision
        )
        options = asked.resolved(self.model.config)
        options.check_precision(self.device, self.model.dtype)
        image = given_image(left, "left", channels, max_pixels)
        image = image.astype(self.model.dtype, copy=False)
        checked = checked_costs(costs, image)
        label_range = LabelRange(0.0, checked.shape[2])
        if labels is not None:
            label_range = checked_labels(labels)
        if label_range.count != checked.shape[2]:
            raise InputError(
                f"The costs have {checked.shape[2]} labels but the label range has"
                f" {label_range.count}",
                "Both must be the same number",
            )
        if options.precision == "half" and not volumes and np.shares_memory(checked, costs):
            checked = checked.copy()  # they are the caller's
        clock = StageClock(on_stage, self.backend.synchronize)
        with kernels.limited_threads(self.threads):
            return self._pipeline.optimise(
                self.backend.to_device(checked), (image,), label_range, options, volumes, clock
            )

    def _read_pair(
        self,
        left: ImageLike,
        right: ImageLike,
        channels: ChannelOrder,
        max_pixels: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two images (H, W, 3) of one size, in the type that the model computes in."""
        return given_pair(left, right, channels, self.model.dtype, max_pixels)

    def _labels_of(
        self,
        images: tuple[np.ndarray, np.ndarray],
        options: MatchOptions,
        search_range: int | None,
        clock: StageClock,
    ) -> tuple[LabelRange, RangeOrigin]:
        """The labels of a pair, looked for in it unless somebody said how many, and who said it."""
        found = None
        said_by: RangeOrigin = "caller"
        if options.disparities == "auto" or (options.disparities is None and search_range is None):
            with clock.stage("range"):
                found = covering_range(self._scout.match(*images))
            said_by = "model" if found is None else "pair"
        elif options.disparities is None:
            said_by = "data set"
        return self.label_range(images[0].shape[1], options, search_range, found), said_by

    def _tiles(
        self,
        left: np.ndarray,
        label_range: LabelRange,
        options: MatchOptions,
        max_memory: int | None,
        volumes: bool,
        warm: WarmStart | None = None,
    ) -> list[ImageTile]:
        """The tiles that the memory suffices for; one if it suffices for everything."""
        height, width, _ = left.shape
        method = cast(str, options.method)
        views = len(options.views)
        # A warm start keeps two volumes from one frame to the next.
        beside = 0
        if warm is not None and method == "crf":
            volume = height * width * label_range.count * self.model.dtype.itemsize
            beside = max(2 * volume - warm.kept_bytes, 0)
        if volumes:  # which are complete, or of no use
            self._require_memory(left, label_range, method, views)
            return whole(height, width)
        return tiles_that_fit(
            self.model,
            height,
            width,
            label_range,
            self.backend,
            method,
            self.threads,
            max_memory,
            beside,
            views,
            options.precision,
        )

    def _require_memory(
        self, left: np.ndarray, label_range: LabelRange, method: str, views: int = 1
    ) -> None:
        """Refuse a pair that does not fit, before the work."""
        height, width, _ = left.shape
        require_memory(
            self.model, height, width, label_range.count, self.backend, method, self.threads, views
        )
