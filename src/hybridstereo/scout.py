"""A first look at a pair: a small model matches it at a fraction of its size.

The check of a pair and the search for its range ask the same; what was found is kept for the pair
that is at work.
"""

from __future__ import annotations

import hashlib
import threading
from copy import copy

import numpy as np

from . import kernels
from .clock import StageClock
from .kernels import Backend
from .model import StereoModel, scale_edges, with_config
from .models.zoo import SCOUT_MODEL, load_model
from .options import MatchOptions
from .pipeline import Pipeline
from .search_range import CoarseMatch, CoarseViews, believed, coarse_views

_KEPT = 2  # a pair, and the same with its views exchanged


# What says that a pair is bad, and how far a range reaches, was fitted to the left softmax and to
# edges that count the same in both directions: what the model has instead, taken back.
_WX_FACTOR, _WY_FACTOR, _PENALTY_FACTOR = 1 / 2, 1 / 0.7, 1.25


def _plain(model: StereoModel) -> StereoModel:
    """The model for small views, of which coarser levels would say nothing more."""
    config = model.config
    return with_config(
        scale_edges(model, _WX_FACTOR, _WY_FACTOR),
        softmax="left",
        half_weight=0.0,
        quarter_weight=0.0,
        p1=_PENALTY_FACTOR * config.p1,
        p2=_PENALTY_FACTOR * config.p2,
    )


class _SmallModel:
    """The model, once for all threads: loaded when one of them first needs it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._loading = threading.Lock()
        self._loaded: tuple[StereoModel, Pipeline] | None = None

    def load(self) -> tuple[StereoModel, Pipeline]:
        """The model and its stages on the device."""
        with self._loading:
            if self._loaded is None:
                model = _plain(load_model(SCOUT_MODEL))
                self._loaded = model, Pipeline(model, self._backend)
            return self._loaded


class Scout:
    """The small model, which is loaded when it is first asked.

    Parameters
    ----------
    backend
        Where to compute.
    threads
        CPU threads; None: as many as Numba is set to use.
    """

    def __init__(self, backend: Backend, threads: int | None) -> None:
        self._threads = threads
        self._small = _SmallModel(backend)
        self._kept: dict[bytes, CoarseMatch] = {}

    def beside(self, threads: int | None) -> Scout:
        """The same model, not loaded again, for the pairs of another thread."""
        other = copy(self)
        other._threads, other._kept = threads, {}
        return other

    def match(self, left: np.ndarray, right: np.ndarray, halvings: int = 0) -> CoarseMatch:
        """Match two views (H, W, 3) of one size; again at no cost if they are the last ones.

        Parameters
        ----------
        left, right
            RGB in [0, 1].
        halvings
            How often the coarse views are halved once more: a look that costs an eighth each time.
        """
        views = coarse_views(left, right, halvings)
        # By their contents: callers may read or convert the same images again.
        digest = hashlib.blake2b(views.left.tobytes())
        digest.update(views.right.tobytes())
        key = digest.digest()
        if key not in self._kept:
            found = self._match(views)
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = found
        return self._kept[key]

    def _match(self, views: CoarseViews) -> CoarseMatch:
        model, pipeline = self._small.load()
        left, right = (x.astype(model.dtype, copy=False) for x in (views.left, views.right))
        images = left, right
        labels, clock = views.label_range, StageClock()
        options = MatchOptions().resolved(model.config)
        with kernels.limited_threads(self._threads):
            costs = pipeline.matching_costs(images, labels, clock)
            result = pipeline.optimise(costs, images, labels, options, True, clock)
        assert result.costs is not None  # they were asked for
        chosen = np.rint(result.unrefined - labels.minimum).astype(np.intp)
        mask = believed(result.costs, chosen, labels)
        return CoarseMatch(result.disparity, mask, views.factor)
