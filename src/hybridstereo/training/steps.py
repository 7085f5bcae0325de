"""One training step of each stage: a pair in, the loss and the gradients of all parameters out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..correlation import correlation_backward, correlation_forward, softmax_backward
from ..crf import solve
from ..datasets import StereoPair
from ..disparity import cheapest_labels
from ..edges import edges_backward, edges_forward, edges_input
from ..features import (
    ConvLayer,
    Statistics,
    Window,
    features_backward,
    features_forward,
    network_input,
)
from ..kernels import Array, Backend
from ..kernels.backend import CrfGradients
from ..labels import LabelRange
from ..limits import TRAINING
from ..model import PYRAMID, StereoModel, named_arrays
from ..pyramid import half_labels, half_size, half_truth, pyramid_backward, pyramid_forward
from .losses import (
    Target,
    bad_labels,
    cross_entropy,
    make_target,
    minorant_error_rate,
    structured_hinge,
)

Gradients = dict[str, np.ndarray]
PENALTIES = ("p1", "p2")

LOSSES = ("hinge", "minorant")
"""What stages ``joint`` and ``full`` may minimise."""


@dataclass(frozen=True)
class Step:
    """The loss of one pair with its name, the gradients by parameter, and figures for the log."""

    loss_name: str
    loss: float
    gradients: Gradients
    figures: dict[str, float]


@dataclass(frozen=True)
class HingeOptions:
    """Settings of the structured hinge: weight and truncation of the task loss, iterations.

    A small ``gamma`` makes flat costs a cheap solution.  A network of 7 layers, 60 steps on
    Middlebury: the validation error went from 9.4 to 12.1 % with 0.05, to 9.0 % with 0.2 and to
    9.3 % with 0.5.
    """

    gamma: float = 0.2
    tau: float = 3.0
    iterations: int = 5
    infer_unknown: bool = False  # see `structured_hinge`

    def __post_init__(self) -> None:
        for name in ("gamma", "tau", "iterations"):
            TRAINING[name].check(getattr(self, name), f"`{name}` is")


@dataclass(frozen=True)
class MinorantOptions:
    """Settings of the soft share of wrong pixels, see `minorant_error_rate`."""

    sharpness: float = 100.0
    tolerance: float = 1.0
    exponent: float = 1.0
    iterations: int = 5

    def __post_init__(self) -> None:
        for name in ("sharpness", "tolerance", "exponent", "iterations"):
            TRAINING[name].check(getattr(self, name), f"`{name}` is")


def parameters_of(model: StereoModel) -> dict[str, np.ndarray]:
    """All trainable arrays by name; penalties and weights of levels as arrays of one element.

    The networks' arrays are the model's own, so updating them in place updates the model.
    """
    arrays = dict(model.to_file().tensors)
    scalars = (*PENALTIES, *PYRAMID[: len(model.config.pyramid)])
    arrays |= {name: np.array([getattr(model.config, name)]) for name in scalars}
    return arrays


class _LevelPass:
    """Images of one size -> matching costs, with everything that the backward pass needs."""

    def __init__(
        self,
        layers: Sequence[ConvLayer],
        backend: Backend,
        views: Sequence[tuple[np.ndarray, Statistics | None]],
        label_range: LabelRange,
        window: Window | None,
        softmax: str,
    ) -> None:
        self._layers, self._backend = layers, backend
        self.label_range = label_range
        self._kept: list[list[Array]] = [[], []]
        for (image, stats), kept in zip(views, self._kept, strict=True):
            network_in = backend.to_device(network_input(image, layers, stats, window))
            features_forward(backend, network_in, layers, kept)
        self._sums: list[Array] = []
        self.costs = correlation_forward(
            backend, *self._features, label_range, softmax=softmax, kept=self._sums
        )

    @property
    def _features(self) -> tuple[Array, Array]:
        return self._kept[0][-1], self._kept[1][-1]

    def softmax_backward(self, dcosts: Array) -> Array:
        """Gradient of the scores from that of the costs."""
        return softmax_backward(self._backend, self.costs, dcosts, self.label_range, self._sums)

    def backward(self, dscores: Array) -> Gradients:
        """Gradients of the Unary-CNN; both images share it, so theirs add."""
        dfeatures = correlation_backward(self._backend, dscores, *self._features, self.label_range)
        left, right = (
            named_arrays("unary", features_backward(self._backend, gradient, kept, self._layers))
            for gradient, kept in zip(dfeatures, self._kept, strict=True)
        )
        _add_gradients(self._backend, left, right)
        return left


class _UnaryPass:
    """Images -> matching costs of all levels of the model's pyramid, forward and backward."""

    def __init__(
        self,
        model: StereoModel,
        backend: Backend,
        pair: StereoPair,
        label_range: LabelRange,
        softmax: str,
    ) -> None:
        self._backend, self._weights = backend, model.config.pyramid
        images = [pair.left, pair.right]
        statistics = [pair.left_statistics, pair.right_statistics]
        self.levels: list[_LevelPass] = []
        for level in range(1 + len(self._weights)):
            if level > 0:
                images, label_range = [half_size(x) for x in images], half_labels(label_range)
            views = [
                (image, None if stats is None else stats[level])
                for image, stats in zip(images, statistics, strict=True)
            ]
            window = None if pair.window is None else pair.window.at_level(level)
            self.levels.append(
                _LevelPass(model.unary, backend, views, label_range, window, softmax)
            )
        costs = [level.costs for level in self.levels]
        self._sums = pyramid_forward(backend, costs, self._weights, in_place=False)

    @property
    def costs(self) -> Array:
        """The model's matching costs (H, W, K)."""
        return self._sums[0]

    def backward(self, dcosts: Array) -> Gradients:
        """Gradients of the Unary-CNN and of the levels' weights from that of the costs."""
        dlevels, dweights = pyramid_backward(self._backend, dcosts, self._sums, self._weights)
        dscores = [
            level.softmax_backward(gradient)
            for level, gradient in zip(self.levels, dlevels, strict=True)
        ]
        named = zip(PYRAMID, dweights, strict=False)  # a model may have fewer levels
        return self.scores_backward(dscores) | {name: np.array([x]) for name, x in named}

    def scores_backward(self, dscores: Sequence[Array]) -> Gradients:
        """Gradients of the Unary-CNN, which all levels share, from those of their scores."""
        gradients, *others = (
            level.backward(ds) for level, ds in zip(self.levels, dscores, strict=True)
        )
        for other in others:
            _add_gradients(self._backend, gradients, other)
        return gradients


def _add_gradients(backend: Backend, gradients: Gradients, others: Gradients) -> None:
    for name, gradient in gradients.items():
        backend.add_to(gradient, others[name])


def unary_step(
    model: StereoModel, backend: Backend, pair: StereoPair, label_range: LabelRange, soft: bool
) -> Step:
    """Cross-entropy of the network alone (stage ``unary``): the mean over all levels.

    It is about the softmax of the left view, whichever the model has.
    """
    forward = _UnaryPass(model, backend, pair, label_range, "left")
    truth, share = (pair.disparity, pair.valid), 1.0 / len(forward.levels)
    targets, losses, dscores = [], [], []
    for index, level in enumerate(forward.levels):
        truth = half_truth(*truth) if index else truth
        targets.append(make_target(*truth, level.label_range).on_device(backend))
        loss, ds = cross_entropy(backend, level.costs, targets[-1], soft)
        if len(forward.levels) > 1:
            backend.scale_by(ds, share)
        losses.append(share * loss)
        dscores.append(ds)
    label_map = cheapest_labels(backend, forward.costs)
    figures = _training_error(backend, label_map, targets[0], label_range)
    return Step("cross_entropy", sum(losses), forward.scores_backward(dscores), figures)


class _CrfPass:
    """Images -> matching costs and edge weights, forward and backward."""

    def __init__(
        self,
        model: StereoModel,
        backend: Backend,
        pair: StereoPair,
        label_range: LabelRange,
        train_edges: bool,
    ) -> None:
        self._backend, self._model = backend, model
        self._unary = _UnaryPass(model, backend, pair, label_range, model.config.softmax)
        self._kept: list[Array] = []
        stats = None if pair.left_statistics is None else pair.left_statistics[0]
        edges_in = backend.to_device(edges_input(pair.left, model.edges, stats))
        self.edges = edges_forward(
            backend, edges_in, model.edges, self._kept if train_edges else None
        )

    @property
    def costs(self) -> Array:
        """The model's matching costs (H, W, K)."""
        return self._unary.costs

    def backward(self, gradients: CrfGradients) -> Gradients:
        """Gradients of all parameters that are trained from those of costs, weights, penalties."""
        result = self._unary.backward(gradients.df)
        if self._kept:
            dlayers = edges_backward(
                self._backend, gradients.dwx, gradients.dwy, self._kept, self._model.edges
            )
            result |= named_arrays("pairwise", dlayers)
        return result | {"p1": np.array([gradients.dp1]), "p2": np.array([gradients.dp2])}


def minorant_step(
    model: StereoModel,
    backend: Backend,
    pair: StereoPair,
    label_range: LabelRange,
    options: MinorantOptions,
    train_edges: bool = True,
) -> Step:
    """Soft share of wrong pixels of the CRF's minorant (stages ``joint`` and ``full``).

    The Pairwise-CNN gets gradients if the model has one and ``train_edges`` asks for them.
    """
    penalties = model.config.penalties
    target = make_target(pair.disparity, pair.valid, label_range).on_device(backend)
    forward = _CrfPass(model, backend, pair, label_range, train_edges)
    solution = solve(
        backend, forward.costs, forward.edges, penalties, options.iterations, with_rows=True
    )
    disagreeing = backend.count_different(solution.row_label_map, solution.label_map)
    figures = {"disagreement": disagreeing / pair.valid.size}
    figures |= _training_error(backend, solution.label_map, target, label_range)
    loss, dminorant = minorant_error_rate(
        backend,
        solution.minorant,
        target,
        options.sharpness,
        options.tolerance,
        options.exponent,
    )
    del solution  # a volume less beside the many of the backward pass
    gradients = backend.dual_mm_backward(
        forward.costs,
        wx=forward.edges.wx,
        wy=forward.edges.wy,
        p1=penalties.p1,
        p2=penalties.p2,
        iterations=options.iterations,
        dminorant=dminorant,
    )
    del dminorant
    return Step("error_rate", loss, forward.backward(gradients), figures)


def structured_step(
    model: StereoModel,
    backend: Backend,
    pair: StereoPair,
    label_range: LabelRange,
    options: HingeOptions,
    score: bool = False,
    train_edges: bool = True,
) -> Step:
    """Structured hinge of the whole model (stages ``joint`` and ``full``).

    The Pairwise-CNN gets gradients if the model has one and ``train_edges`` asks for them.  The
    minimiser that the hinge needs is that of the augmented problem, so the training error costs a
    solution of its own: ``score`` asks for it.
    """
    penalties = model.config.penalties
    target = make_target(pair.disparity, pair.valid, label_range).on_device(backend)
    forward = _CrfPass(model, backend, pair, label_range, train_edges)
    hinge = structured_hinge(
        backend,
        forward.costs,
        forward.edges,
        penalties,
        target,
        options.gamma,
        options.tau,
        options.iterations,
        options.infer_unknown,
    )
    figures = {"task_loss": hinge.task_loss, "disagreement": hinge.disagreement}
    if score:
        solution = solve(backend, forward.costs, forward.edges, penalties, options.iterations)
        figures |= _training_error(backend, solution.label_map, target, label_range)
    return Step("hinge", hinge.loss, forward.backward(hinge.gradients), figures)


def _training_error(
    backend: Backend, label_map: Array, target: Target, label_range: LabelRange
) -> dict[str, float]:
    """bad1..bad4 of a labelling of the training crop, in percent, without refinement."""
    pixels = (1, 2, 3, 4)
    shares = bad_labels(backend, label_map, target, [x / label_range.step for x in pixels])
    return {f"bad{x}": share for x, share in zip(pixels, shares, strict=True)}
