"""How the work on a map divides among its stages, so that a caller can show how far it is.

The shares are those of a CPU; they only need to be right enough for a bar and the time left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from .features import ConvLayer, feature_bands
from .kernels import Backend
from .model import StereoModel
from .options import MatchOptions
from .tiles import ImageTile, OnTile

OnProgress = Callable[[float, float], None]
"""Called when a stage begins: shares of all work, in [0, 1], done by now and when it ends."""

# Nanoseconds of two cores, by the ratios that `infer` showed on KITTI: per pixel and multiplication
# of a network; per pixel and label of the correlation, of an iteration of the CRF, of the rest of
# it, and of a pyramid's sum; and per pixel of normalising a view.
_PRODUCT, _SCORE, _ITERATION, _READ_OUT, _SUM, _INPUT = 0.014, 6.0, 2.6, 2.2, 0.6, 60.0
_FOR_EACH_VIEW = ("contrast", "pairwise_cnn", "crf", "argmax")  # the others are for both at once
_FOR_EACH_BAND = ("unary_cnn", "correlation")  # of rows, in turns


def stage_work(
    model: StereoModel,
    tile: ImageTile,
    count: int,
    method: str = "crf",
    iterations: int = 5,
    views: int = 1,
) -> dict[str, float]:
    """Estimated nanoseconds of each stage of a tile, in their order.

    Parameters
    ----------
    model, method, iterations
        What computes it.
    tile
        Of how many pixels.
    count
        The number of labels.
    views
        2 if the maps of both are computed.
    """
    height, left = tile.rows.length, tile.columns.length
    right = tile.other[1] - tile.other[0]
    pixels, both = height * left, height * (left + right)
    products = _products(model.unary)
    work = {
        "input": _INPUT * both,
        "unary_cnn": _PRODUCT * products * both,
        "correlation": views * _SCORE * pixels * count,
    }
    levels = len(model.config.pyramid)
    if levels:
        network = sum(0.25**level for level in range(1, 1 + levels))
        volume = sum(0.125**level for level in range(1, 1 + levels))
        work["pyramid"] = (
            network * (work["input"] + work["unary_cnn"])
            + volume * work["correlation"]
            + views * _SUM * pixels * count
        )
    if method == "crf":
        edges = model.edges
        kind = "contrast" if edges.kind == "contrast" else "pairwise_cnn"
        work[kind] = views * (_INPUT + _PRODUCT * _products(edges.layers)) * pixels
        work["crf"] = views * (_ITERATION * iterations + _READ_OUT) * pixels * count
    else:
        work["argmax"] = views * _READ_OUT * pixels * count
    return work


def _products(layers: Sequence[ConvLayer]) -> int:
    return sum(math.prod(layer.weight.shape) for layer in layers)


class WorkShares:
    """Turns the names of stages that begin into shares of the work.

    Parameters
    ----------
    on_progress
        Called when a stage begins.
    tiles
        For each tile the work of each stage, once for every time that it comes.
    """

    def __init__(self, on_progress: OnProgress, tiles: Iterable[dict[str, list[float]]]) -> None:
        self._on_progress = on_progress
        self._tiles = [{name: list(pieces) for name, pieces in tile.items()} for tile in tiles]
        self._all = sum(map(_left, self._tiles))
        self._done = 0.0
        self._working = 0.0

    def telling_tiles(self, on_tile: OnTile | None) -> OnTile:
        """What to call before each tile, so that the shares are those of this one."""

        def tell(done: int, count: int) -> None:
            if done:  # whatever is left of the one before was not needed
                self._done += self._working + _left(self._tiles.pop(0))
                self._working = 0.0
            if on_tile is not None:
                on_tile(done, count)

        return tell

    def begin_stage(self, name: str) -> None:
        """A stage begins; of one that comes more often than expected the first times count."""
        self._done += self._working
        pieces = self._tiles[0].get(name)
        self._working = pieces.pop() if pieces else 0.0
        self._on_progress(self._done / self._all, (self._done + self._working) / self._all)


def shares_of_work(
    model: StereoModel,
    tiles: Sequence[ImageTile],
    label_count: int,
    options: MatchOptions,
    on_progress: OnProgress,
    backend: Backend,
) -> WorkShares:
    """The shares of a map, or of both views' maps, that is computed in these tiles.

    Parameters
    ----------
    model, options
        What computes it, and how; the options are resolved.
    tiles, label_count
        Of what.
    on_progress
        Called when a stage begins.
    backend
        Where, with the threads of the moment.
    """
    method, iterations = cast(str, options.method), cast(int, options.iterations)
    views = len(options.views)
    # Tiles are of one view; without them the features of both views are computed once.
    at_once, passes = (1, views) if len(tiles) > 1 else (views, 1)
    pieces = []
    for tile in tiles:
        bands = len(feature_bands(backend, tile.rows.length, model.unary))
        times = {**dict.fromkeys(_FOR_EACH_VIEW, at_once), **dict.fromkeys(_FOR_EACH_BAND, bands)}
        work = stage_work(model, tile, label_count, method, iterations, at_once)
        pieces.append(
            {name: times.get(name, 1) * [x / times.get(name, 1)] for name, x in work.items()}
        )
    return WorkShares(on_progress, passes * pieces)


def _left(pieces: dict[str, list[float]]) -> float:
    """The work of all stages that are still to come."""
    return sum(map(sum, pieces.values()))
