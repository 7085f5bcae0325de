"""The stages in their order: images -> features -> correlation -> edges -> CRF -> disparity.

Arrays that are known to be good in, a result out; `hybridstereo.stereo` looks after the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from .clock import StageClock
from .correlation import correlation_forward
from .crf import WarmStart, energy, solve, total_cost
from .disparity import cheapest_labels, label_disparity, refined_disparity
from .edges import edges_forward, edges_input
from .faults import find_fault
from .features import (
    Statistics,
    Window,
    features_forward,
    network_input,
    pad,
    padding_of,
    statistics,
)
from .kernels import Array, Backend, release_memory
from .labels import LabelRange
from .model import StereoModel, on_device
from .options import MatchOptions
from .pyramid import half_labels, half_size, pyramid_forward
from .result import StereoResult
from .tiles import CompleteViews, ImageTile, OnTile


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

    def matching_costs(
        self,
        left: np.ndarray,
        right: np.ndarray,
        label_range: LabelRange,
        clock: StageClock,
        views: CompleteViews | None = None,
        like: float = 0.0,
    ) -> Array:
        """Images -> features -> correlation -> pyramid -> matching costs, on the device.

        ``views`` are those that the images are parts of, if they are; of a tile, labels count from
        one part to the other.  ``like`` is that of `correlation_forward`.
        """
        levels = self.level_costs(left, right, label_range, clock, views, like)
        if len(levels) == 1:
            return levels[0]
        with clock.stage("pyramid"):
            return pyramid_forward(self._backend, levels, self._model.config.pyramid)[0]

    def level_costs(
        self,
        left: np.ndarray,
        right: np.ndarray,
        label_range: LabelRange,
        clock: StageClock,
        views: CompleteViews | None = None,
        like: float = 0.0,
    ) -> list[Array]:
        """The costs (H, W, K) of the images themselves, then those of the coarser levels."""
        levels = [self._unary_costs(left, right, label_range, clock, views, like)]
        for level in range(1, 1 + len(self._model.config.pyramid)):
            with clock.stage("pyramid"):
                left, right = half_size(left), half_size(right)
                label_range = half_labels(label_range)
                coarse = views.at_level(level) if views else None
                like /= 2
                levels.append(
                    self._unary_costs(left, right, label_range, StageClock(), coarse, like)
                )
        return levels

    def _unary_costs(
        self,
        left: np.ndarray,
        right: np.ndarray,
        label_range: LabelRange,
        clock: StageClock,
        views: CompleteViews | None,
        like: float,
    ) -> Array:
        """Images of one size -> features -> correlation."""
        backend, layers = self._backend, self._model.unary
        none = None, None
        stats, windows = (views.statistics, views.windows) if views else (none, none)
        with clock.stage("input"):
            inputs = [
                backend.to_device(network_input(image, layers, of_view, window))
                for image, of_view, window in zip((left, right), stats, windows, strict=True)
            ]
        with clock.stage("unary_cnn"):
            # Popped, so that an input is freed as soon as its features exist.
            features = [features_forward(backend, inputs.pop(0), layers) for _ in range(2)]
        with clock.stage("correlation"):
            return correlation_forward(backend, features[0], features[1], label_range, like)

    def optimise(
        self,
        costs: Array,
        images: tuple[np.ndarray, ...],
        label_range: LabelRange,
        options: MatchOptions,
        volumes: bool,
        clock: StageClock,
        stats: Statistics | None = None,
        warm: WarmStart | None = None,
    ) -> StereoResult:
        """Costs on the device -> edge weights -> CRF -> disparity.

        ``images``: both, or the left one if the costs do not come from them.  ``stats`` are those
        of the complete left view, if they are a part of it.  ``warm`` is what the frame before
        left, and then what this one leaves.
        """
        backend, config = self._backend, self._model.config
        lowest = bounds = minorant = edges = None
        if options.method == "crf":
            model = self._model.edges
            with clock.stage("input"):
                edges_in = backend.to_device(edges_input(images[0], model, stats))
            with clock.stage("contrast" if model.kind == "contrast" else "pairwise_cnn"):
                edges = edges_forward(backend, edges_in, model)
            del edges_in
            iterations = cast(int, options.iterations)  # which `resolved` has filled in
            with clock.stage("crf"):
                working = warm.begin(backend, costs, label_range) if warm else None
                solution = solve(
                    backend, costs, edges, config.penalties, iterations, working=working
                )
                if warm:
                    warm.keep(working, solution.minorant, label_range)
                label_map, bounds = solution.label_map, solution.bounds
                minorant = solution.minorant
                lowest = energy(backend, costs, edges, config.penalties, label_map)
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

    def in_tiles(
        self,
        images: tuple[np.ndarray, np.ndarray],
        label_range: LabelRange,
        options: MatchOptions,
        tiles: Sequence[ImageTile],
        clock: StageClock,
        on_tile: OnTile | None,
        like: float = 0.0,
    ) -> StereoResult:
        """The map of tiles, one after the other; see `hybridstereo.tiles`."""
        left, right = images
        height, width, _ = left.shape
        with clock.stage("input"):
            levels = list(zip(*(self._statistics(view) for view in images), strict=True))
        disparity, unrefined = (np.empty((height, width), np.float32) for _ in range(2))
        for done, tile in enumerate(tiles):
            if on_tile is not None:
                on_tile(done, len(tiles))
            windows = (
                Window(tile.rows.begin, tile.columns.begin, height, width),
                Window(tile.rows.begin, tile.right[0], height, width),
            )
            views = CompleteViews(windows, levels)
            parts = (
                left[tile.rows.computed, tile.columns.computed],
                right[tile.rows.computed, slice(*tile.right)],
            )
            between = replace(label_range, minimum=label_range.minimum - tile.shift)
            costs = self.matching_costs(*parts, between, clock, views, like)
            result = self.optimise(costs, parts, label_range, options, False, clock, levels[0][0])
            del costs
            here = np.s_[tile.rows.kept_here, tile.columns.kept_here]
            disparity[tile.rows.kept, tile.columns.kept] = result.disparity[here]
            unrefined[tile.rows.kept, tile.columns.kept] = result.unrefined[here]
        release_memory()  # memory is scarce, and the caller may want to use the map
        return StereoResult(
            disparity, unrefined, label_range, None, None, clock.seconds, tiles=len(tiles)
        )

    def _statistics(self, image: np.ndarray) -> list[Statistics]:
        """Those that each level of a complete view is normalised with."""
        found = []
        for level in range(1 + len(self._model.config.pyramid)):
            image = half_size(image) if level else image
            found.append(statistics(pad(image, padding_of(self._model.unary))))
        return found
