"""The stages in their order: images -> features -> correlation -> edges -> CRF -> disparity.

Then, if it is asked for, what the other view says of the map: validity and confidence.  Arrays that
are known to be good in, a result out; `hybridstereo.stereo` looks after the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

import numpy as np

from .clock import StageClock
from .confidence import ConfidenceFit, confidence_of, cues_of
from .correlation import correlation_forward
from .crf import HalfPrecisionCrf, WarmStart, energy, solve, total_cost
from .disparity import cheapest_labels, label_disparity, refined_disparity
from .edges import edges_forward, edges_input
from .faults import find_fault
from .features import (
    Statistics,
    Window,
    feature_bands,
    features_of_views,
    network_input,
    pad,
    padding_of,
    statistics,
)
from .filling import filled_disparity
from .kernels import Array, Backend, release_memory
from .labels import LabelRange
from .model import StereoModel, fingerprint, on_device
from .models.confidence_fits import confidence_fit
from .options import VIEWS, MatchOptions, View
from .pyramid import half_labels, half_size, pyramid_forward
from .result import StereoResult
from .tiles import CompleteViews, ImageTile, OnTile, looking_from
from .validity import GOOD, validity_of

Images = tuple[np.ndarray, np.ndarray]
"""The left and the right image, (H, W, 3) each."""

# Where the point that a pixel shows lies in the other view: towards the left, or the right.
_DIRECTION: Mapping[View, int] = {"left": -1, "right": 1}


class Pipeline:
    """The stages of a model on a device, where its parameters go once.

    Parameters
    ----------
    model
        On the host.
    backend
        Where to compute.
    """

    def __init__(self, model: StereoModel, backend: Backend) -> None:
        self._model = on_device(model, backend)
        self._backend = backend
        self._fingerprint = partial(fingerprint, model)

    @cached_property
    def _confidence_fit(self) -> ConfidenceFit:
        return confidence_fit(self._fingerprint())

    def match(
        self,
        images: Images,
        label_range: LabelRange,
        options: MatchOptions,
        tiles: Sequence[ImageTile],
        volumes: bool,
        clock: StageClock,
        on_tile: OnTile | None = None,
        warm: WarmStart | None = None,
    ) -> StereoResult:
        """The map of the view that ``options`` ask for, and what they want to know about it.

        Computed in ``tiles``, one after the other, if there are several; see `hybridstereo.tiles`.
        ``warm`` is about that view, and not used in tiles.
        """
        if len(tiles) > 1:
            found = self._in_tiles(images, label_range, options, tiles, clock, on_tile)
        else:
            found = self._views(images, label_range, options, volumes, clock, warm)
        if options.compares_views:
            found = {
                view: self._compared(found, view, options, clock)
                for view in (VIEWS if options.view == "both" else (options.view,))
            }
        if options.view == "both":
            return replace(found["left"], right=found["right"])
        return found[options.view]

    def matching_costs(self, images: Images, label_range: LabelRange, clock: StageClock) -> Array:
        """Images -> features -> correlation -> pyramid -> matching costs of the left view."""
        return self._costs(images, {"left": label_range}, clock)["left"]

    def level_costs(
        self,
        images: Images,
        labels: Mapping[View, LabelRange],
        clock: StageClock,
        whole: CompleteViews | None = None,
    ) -> dict[View, list[Array]]:
        """The costs (H, W, K) of the images themselves, then those of the coarser levels.

        Of every view that ``labels`` has; the features are computed once for both.  ``whole`` are
        the views that the images are parts of, if they are; of a tile, labels count from one part
        to the other.
        """
        found = self._unary_costs(images, labels, clock, whole)
        levels = {view: [costs] for view, costs in found.items()}
        for level in range(1, 1 + len(self._model.config.pyramid)):
            with clock.stage("pyramid"):
                images = half_size(images[0]), half_size(images[1])
                labels = {view: half_labels(of_view) for view, of_view in labels.items()}
                coarse = whole.at_level(level) if whole else None
                found = self._unary_costs(images, labels, StageClock(), coarse)
                for view, costs in found.items():
                    levels[view].append(costs)
        return levels

    def _costs(
        self,
        images: Images,
        labels: Mapping[View, LabelRange],
        clock: StageClock,
        whole: CompleteViews | None = None,
    ) -> dict[View, Array]:
        """The matching costs of each view, its levels added up."""
        levels = self.level_costs(images, labels, clock, whole)
        weights = self._model.config.pyramid
        if not weights:
            return {view: of_view[0] for view, of_view in levels.items()}
        with clock.stage("pyramid"):
            return {
                view: pyramid_forward(self._backend, levels.pop(view), weights)[0]
                for view in labels
            }

    def _unary_costs(
        self,
        images: Images,
        labels: Mapping[View, LabelRange],
        clock: StageClock,
        whole: CompleteViews | None,
    ) -> dict[View, Array]:
        """Images of one size -> features -> correlation, for each view."""
        backend, layers = self._backend, self._model.unary
        none = None, None
        stats, windows = (whole.statistics, whole.windows) if whole else (none, none)
        with clock.stage("input"):
            inputs = [
                backend.to_device(network_input(image, layers, of_view, window))
                for image, of_view, window in zip(images, stats, windows, strict=True)
            ]
        costs: dict[View, Array] = {}
        for view, of_view in labels.items():
            shape = *images[VIEWS.index(view)].shape[:2], of_view.count
            costs[view] = backend.empty(shape, inputs[0].dtype)
        # Row by row costs depend on features of that row only, so these never exist all at once.
        for rows in feature_bands(backend, images[0].shape[0], layers):
            self._costs_of_rows(inputs, labels, rows, costs, clock)
        return costs

    def _costs_of_rows(
        self,
        inputs: Sequence[Array],
        labels: Mapping[View, LabelRange],
        rows: tuple[int, int],
        costs: Mapping[View, Array],
        clock: StageClock,
    ) -> None:
        """Some rows of the ``costs`` (H, W, K) of each view from both views' network inputs."""
        backend = self._backend
        with clock.stage("unary_cnn"):
            left, right = features_of_views(backend, inputs, self._model.unary, rows)
        own_first = {"left": (left, right), "right": (right, left)}
        with clock.stage("correlation"):
            softmax = self._model.config.softmax
            for view, of_view in labels.items():
                part = costs[view][slice(*rows)]
                correlation_forward(backend, *own_first[view], of_view, part, softmax)

    def _views(
        self,
        images: Images,
        label_range: LabelRange,
        options: MatchOptions,
        volumes: bool,
        clock: StageClock,
        warm: WarmStart | None,
    ) -> dict[View, StereoResult]:
        """The maps of all views that ``options`` need, each by itself.

        ``volumes`` are kept of the view that is asked for, the left one of both; ``warm`` is about
        it, too.
        """
        labels = {view: _labels_of(label_range, view) for view in options.views}
        costs = self._costs(images, labels, clock)
        found = {}
        for view, of_view in labels.items():
            asked = view == options.views[-1]
            result = self.optimise(
                costs.pop(view),
                images,
                of_view,
                options,
                volumes and asked,
                clock,
                view=view,
                warm=warm if asked else None,
            )
            found[view] = result if view == "left" else _of_right_view(result, label_range)
        return found

    def optimise(
        self,
        costs: Array,
        images: tuple[np.ndarray, ...],
        label_range: LabelRange,
        options: MatchOptions,
        volumes: bool,
        clock: StageClock,
        stats: Statistics | None = None,
        view: View = "left",
        warm: WarmStart | None = None,
    ) -> StereoResult:
        """Costs on the device -> edge weights -> CRF -> disparity.

        ``images``: both, or the left one if the costs do not come from them; the edge weights are
        those of ``view``.  ``stats`` are those of the complete view, if it is a part of one.
        ``warm`` is what the frame before left, and then what this one leaves.
        """
        backend, config = self._backend, self._model.config
        lowest = bounds = minorant = edges = cues = half = None
        before = backend.to_host(costs) if volumes else None
        if options.method == "crf":
            model, image = self._model.edges, images[VIEWS.index(view)]
            with clock.stage("input"):
                edges_in = backend.to_device(edges_input(image, model, stats))
            with clock.stage("contrast" if model.kind == "contrast" else "pairwise_cnn"):
                edges = edges_forward(backend, edges_in, model)
            del edges_in
            iterations = cast(int, options.iterations)  # which `resolved` has filled in
            with clock.stage("crf"):
                if options.precision == "half":
                    # Their memory is the CRF's; a volume that somebody wants is a copy.
                    own = costs.copy() if volumes else costs
                    half = HalfPrecisionCrf(own, edges, config.penalties)
                    solution = half.solve(iterations, with_rows=options.confidence)
                    costs = half.lowest_costs
                    lowest = half.energy(solution.label_map)
                else:
                    working = warm.begin(backend, costs, label_range) if warm else None
                    solution = solve(
                        backend,
                        costs,
                        edges,
                        config.penalties,
                        iterations,
                        with_rows=options.confidence,
                        working=working,
                    )
                    if warm:
                        warm.keep(working, solution.minorant, label_range)
                    lowest = energy(backend, costs, edges, config.penalties, solution.label_map)
                label_map, bounds = solution.label_map, solution.bounds
                minorant = solution.minorant
                total = lowest + float(bounds[-1])
        else:
            with clock.stage("argmax"):
                label_map = cheapest_labels(backend, costs)
                total = total_cost(backend, costs, label_map)
        # NaN and infinity go through all stages, whatever made them, and end here.
        if not math.isfinite(total):
            raise find_fault(backend, self._model, images, costs, edges)
        unrefined = disparity = label_disparity(backend, label_map, label_range)
        if options.refine:
            with clock.stage("refinement"):
                if half is not None:
                    disparity = unrefined + half.refine(label_map, label_range.step)
                else:
                    chosen_by = costs if minorant is None else minorant
                    disparity = refined_disparity(
                        backend, chosen_by, label_map, unrefined, label_range.step
                    )
        if options.confidence:
            with clock.stage("confidence"):
                cues = cues_of(backend, solution, label_range.step)
        after = None
        if volumes and minorant is not None:
            after = np.asarray(backend.to_host(minorant))
        return StereoResult(
            disparity,
            unrefined,
            label_range,
            lowest,
            bounds,
            clock.seconds,
            costs=before,
            precision=options.precision,
            minorant=after,
            cues=cues,
        )

    def _compared(
        self,
        found: Mapping[View, StereoResult],
        view: View,
        options: MatchOptions,
        clock: StageClock,
    ) -> StereoResult:
        """The result of a view with what the other view says of it: validity and confidence."""
        result, other = found[view], found["right" if view == "left" else "left"]
        direction, maps = _DIRECTION[view], (result.disparity, other.disparity)
        with clock.stage("check"):
            validity = validity_of(*maps, direction, result.label_range)
        if result.cues is None:
            return replace(result, validity=validity)
        with clock.stage("confidence"):
            background = filled_disparity(maps[0], validity == GOOD, result.label_range)
            confidence = confidence_of(
                *maps, direction, background, validity, result.cues, self._confidence_fit
            )
        return replace(result, validity=validity, confidence=confidence)

    def _in_tiles(
        self,
        images: Images,
        label_range: LabelRange,
        options: MatchOptions,
        tiles: Sequence[ImageTile],
        clock: StageClock,
        on_tile: OnTile | None,
    ) -> dict[View, StereoResult]:
        """As `_views`, tile by tile, without volumes, and each view by itself.

        A tile needs more columns of the other view than of its own, so that tiles of the two views
        have no features in common.
        """
        with clock.stage("input"):
            levels = list(zip(*(self._statistics(view) for view in images), strict=True))
        total = len(options.views) * len(tiles)
        found: dict[View, StereoResult] = {}
        for number, view in enumerate(options.views):
            labels = _labels_of(label_range, view)
            of_view = looking_from(tiles, images[0].shape[1], labels, self._model)
            parts = []
            for done, tile in enumerate(of_view, start=number * len(tiles)):
                if on_tile is not None:
                    on_tile(done, total)
                part = self._tile(images, labels, options, tile, clock, levels, view)
                parts.append(part.cropped(tile.rows.kept_here, tile.columns.kept_here))
            places = [(tile.rows.kept, tile.columns.kept) for tile in of_view]
            joined = StereoResult.joined(parts, places, images[0].shape[:2])
            found[view] = joined if view == "left" else _of_right_view(joined, label_range)
        release_memory()  # memory is scarce, and the caller may want to use the map
        return found

    def _tile(
        self,
        images: Images,
        labels: LabelRange,
        options: MatchOptions,
        tile: ImageTile,
        clock: StageClock,
        levels: Sequence[tuple[Statistics, Statistics]],
        view: View,
    ) -> StereoResult:
        """The map of a tile of one view, whose ``labels`` those are."""
        height, width, _ = images[0].shape
        own, other = tile.columns.computed, slice(*tile.other)
        columns = (own, other) if view == "left" else (other, own)
        left, right = (x[tile.rows.computed, part] for x, part in zip(images, columns, strict=True))
        windows = tuple(Window(tile.rows.begin, part.start, height, width) for part in columns)
        whole = CompleteViews((windows[0], windows[1]), levels)
        between = replace(labels, minimum=labels.minimum - tile.shift)
        costs = self._costs((left, right), {view: between}, clock, whole)
        stats = levels[0][VIEWS.index(view)]
        return self.optimise(
            costs.pop(view), (left, right), labels, options, False, clock, stats, view
        )

    def _statistics(self, image: np.ndarray) -> list[Statistics]:
        """Those that each level of a complete view is normalised with."""
        found = []
        for level in range(1 + len(self._model.config.pyramid)):
            image = half_size(image) if level else image
            found.append(statistics(pad(image, padding_of(self._model.unary))))
        return found


def _labels_of(label_range: LabelRange, view: View) -> LabelRange:
    """The labels with which a view is matched to the other one."""
    return label_range if view == "left" else label_range.mirrored()


def _of_right_view(result: StereoResult, label_range: LabelRange) -> StereoResult:
    """What was matched with mirrored labels, in the disparities that were asked for."""

    def turned(volume: np.ndarray | None) -> np.ndarray | None:
        return None if volume is None else volume[..., ::-1]

    return replace(
        result,
        disparity=0 - result.disparity,  # not -0
        unrefined=0 - result.unrefined,
        label_range=label_range,
        view="right",
        costs=turned(result.costs),
        minorant=turned(result.minorant),
    )
