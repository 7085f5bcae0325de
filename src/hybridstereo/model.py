"""The hybrid CNN-CRF model: its parameters and its forward pass as a sequence of stages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from .crf import EdgeWeights, Penalties, solve
from .edges import pairwise_forward, pairwise_input
from .errors import ModelError
from .features import ConvLayer, features_forward, network_input
from .io.weights import WeightFile
from .kernels import Backend
from .labels import LabelRange

METHODS = ("crf", "argmax")
EDGE_MODELS = ("contrast", "cnn")
IMAGE_CHANNELS = 3
PROVENANCE = ("trained_on", "trained_date", "validation", "licence")
"""The attributes of `ModelConfig` that tell where a model comes from; a file may lack them."""


@dataclass(frozen=True)
class ModelConfig:
    """Everything about a model that is not an array.

    Attributes
    ----------
    edge_model
        Where edge weights come from: image ``contrast`` or the Pairwise-``cnn``.
    weight_scale, alpha, beta
        Factor of all edge weights and shape of the contrast function (SPEC 5).
    p1, p2
        Jump penalties of the CRF.
    iterations
        Default number of Dual_MM iterations.
    method
        Default read-out: ``crf``, or ``argmax`` of the network alone.
    min_disparity, disparities, step
        Default labels.
    description
        One line for `hstereo info`.
    trained_on, trained_date, validation, licence
        Where the parameters come from: data and stages, ISO date, error figures on scenes that were
        not trained on, and the terms that come with the data.  Empty if nobody said.
    """

    edge_model: str = "contrast"
    weight_scale: float = 0.2
    alpha: float = 20.0
    beta: float = 0.9
    p1: float = 1.0
    p2: float = 5.0
    iterations: int = 5
    method: str = "crf"
    min_disparity: float = 0.0
    disparities: int = 128
    step: float = 1.0
    description: str = ""
    trained_on: str = ""
    trained_date: str = ""
    validation: str = ""
    licence: str = ""

    @property
    def labels(self) -> LabelRange:
        """The default labels."""
        return LabelRange(self.min_disparity, self.disparities, self.step)

    @property
    def penalties(self) -> Penalties:
        """The jump penalties."""
        return Penalties(self.p1, self.p2)


@dataclass(frozen=True)
class StereoModel:
    """Parameters of the Unary-CNN, of the Pairwise-CNN (empty without one), configuration."""

    unary: tuple[ConvLayer, ...]
    pairwise: tuple[ConvLayer, ...] = ()
    config: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        _check_config(self.config)
        inputs = self.unary[0].weight.shape[1] if self.unary else 0
        if inputs not in (IMAGE_CHANNELS, IMAGE_CHANNELS + 2):
            raise ModelError(
                f"The first layer takes {inputs} channels",
                "A Unary-CNN takes 3 (RGB) or 5 (RGB and the x, y coordinates)",
            )
        _check_chain("unary", self.unary, inputs)
        _check_chain("pairwise", self.pairwise, IMAGE_CHANNELS)
        if self.config.edge_model == "cnn" and not self.pairwise:
            raise ModelError("The configuration asks for a Pairwise-CNN but there are no weights")
        if self.pairwise and self.pairwise[-1].weight.shape[0] != 2:
            raise ModelError("The last layer of the Pairwise-CNN must have 2 outputs, wx and wy")

    @property
    def parameter_count(self) -> int:
        """Number of trainable scalars in both networks."""
        layers = self.unary + self.pairwise
        return sum(x.weight.size + (0 if x.bias is None else x.bias.size) for x in layers)

    def to_file(self) -> WeightFile:
        """The arrays and attributes that `io.weights` stores."""
        tensors = {}
        for network in ("unary", "pairwise"):
            for index, layer in enumerate(getattr(self, network)):
                tensors[f"{network}/{index}/weight"] = layer.weight
                if layer.bias is not None:
                    tensors[f"{network}/{index}/bias"] = layer.bias
        return WeightFile(asdict(self.config), tensors)

    @staticmethod
    def from_file(stored: WeightFile, name: str) -> StereoModel:
        """Rebuild a model; ``name`` is for messages.  Tensors of other groups are left alone."""
        try:
            return StereoModel(
                _layers(stored.tensors, "unary"),
                _layers(stored.tensors, "pairwise"),
                _config(stored.config),
            )
        except ModelError as error:
            raise ModelError(
                f"{name} is not a usable model: {error.message}", error.hint
            ) from error


def _config(stored: Mapping[str, object]) -> ModelConfig:
    values: dict[str, Any] = {}
    for name, default in asdict(ModelConfig()).items():
        if name not in stored and name not in PROVENANCE:
            raise ModelError(f"its attribute '{name}' is missing")
        value = stored.get(name, default)
        kind = type(default)
        if isinstance(value, bool) or not isinstance(value, (int, kind) if kind is float else kind):
            raise ModelError(f"its attribute '{name}' is not a {kind.__name__}")
        values[name] = kind(value)
    return ModelConfig(**values)


def _layers(tensors: Mapping[str, np.ndarray], network: str) -> tuple[ConvLayer, ...]:
    layers: list[ConvLayer] = []
    while (weight := tensors.get(f"{network}/{len(layers)}/weight")) is not None:
        layers.append(ConvLayer(weight, tensors.get(f"{network}/{len(layers)}/bias")))
    known = {f"{network}/{i}/{part}" for i in range(len(layers)) for part in ("weight", "bias")}
    strangers = [x for x in tensors if x.startswith(f"{network}/") and x not in known]
    if strangers:
        raise ModelError(f"it holds '{strangers[0]}', which belongs to no layer")
    return tuple(layers)


def _check_chain(network: str, layers: tuple[ConvLayer, ...], channels: int) -> None:
    for index, layer in enumerate(layers):
        shape = layer.weight.shape
        name = f"{network} layer {index}"
        if len(shape) != 4 or min(shape) < 1:
            raise ModelError(f"{name} has weights of shape {shape} instead of (out, in, kh, kw)")
        if shape[1] != channels:
            raise ModelError(f"{name} takes {shape[1]} channels but is given {channels}")
        if layer.bias is not None and layer.bias.shape != shape[:1]:
            raise ModelError(f"{name} has {shape[0]} outputs but biases of {layer.bias.shape}")
        for array in (layer.weight, layer.bias):
            if array is not None and array.dtype.kind != "f":
                raise ModelError(f"{name} holds {array.dtype} instead of floating-point numbers")
        channels = shape[0]


def _check_config(config: ModelConfig) -> None:
    numbers = {k: v for k, v in asdict(config).items() if isinstance(v, float)}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ModelError(f"'{name}' is {value}")
    if config.edge_model not in EDGE_MODELS:
        raise ModelError(f"unknown edge model '{config.edge_model}'")
    if config.method not in METHODS:
        raise ModelError(f"unknown method '{config.method}'")
    if not 0 <= config.p1 <= config.p2:
        raise ModelError(
            f"the penalties are P1 = {config.p1:g}, P2 = {config.p2:g}", "They need 0 <= P1 <= P2"
        )
    if config.weight_scale < 0:
        raise ModelError(f"'weight_scale' is {config.weight_scale:g}, below zero")
    if config.iterations < 1 or config.disparities < 1 or config.step <= 0:
        raise ModelError("'iterations', 'disparities' and 'step' must be positive")


class StageClock:
    """Wall-clock seconds of each stage, in order; tells ``on_stage`` which one begins.

    ``wait`` is called before the clock is read: a GPU works on while its caller does.
    """

    def __init__(
        self,
        on_stage: Callable[[str], None] | None = None,
        wait: Callable[[], None] = lambda: None,
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


@dataclass(frozen=True)
class Prediction:
    """A disparity map (float32 (H, W), pixels) and how it came about.

    ``unrefined`` holds the disparities of the labels themselves.  ``bounds`` (one per sweep) and
    ``energy`` are None for the ``argmax`` method.
    """

    disparity: np.ndarray
    unrefined: np.ndarray
    labels: LabelRange
    energy: float | None
    bounds: np.ndarray | None
    seconds: dict[str, float]


def unary_volume(
    model: StereoModel,
    backend: Backend,
    left: np.ndarray,
    right: np.ndarray,
    labels: LabelRange,
    clock: StageClock,
) -> np.ndarray:
    """Images -> features -> correlation -> unary costs ``f`` (H, W, K)."""
    with clock.stage("input"):
        inputs = [backend.to_device(network_input(x, model.unary)) for x in (left, right)]
    with clock.stage("unary_cnn"):
        # Popped, so that an input is freed as soon as its features exist.
        features = [features_forward(backend, inputs.pop(0), model.unary) for _ in range(2)]
    with clock.stage("correlation"):
        return backend.correlation_forward(features[0], features[1], labels.disparities)


def edge_weights(
    model: StereoModel, backend: Backend, left: np.ndarray, clock: StageClock
) -> EdgeWeights:
    """Left image -> edge weights, by contrast or by the Pairwise-CNN."""
    config = model.config
    if config.edge_model == "contrast":
        with clock.stage("contrast"):
            return EdgeWeights(
                *backend.contrast_weights(left, config.weight_scale, config.alpha, config.beta)
            )
    with clock.stage("input"):
        network_in = backend.to_device(pairwise_input(left, model.unary, model.pairwise))
    with clock.stage("pairwise_cnn"):
        return EdgeWeights(
            *pairwise_forward(backend, network_in, model.pairwise, config.weight_scale)
        )


@dataclass(frozen=True, eq=False)
class VolumePrediction:
    """A prediction, and the costs that it was read out of.

    ``minorant`` (H, W, K) is the volume after the CRF, on the device of the backend; None for the
    ``argmax`` method.
    """

    prediction: Prediction
    minorant: Any


def predict_from_volume(
    model: StereoModel,
    backend: Backend,
    left: np.ndarray,
    costs: Any,
    labels: LabelRange,
    *,
    method: str | None = None,
    iterations: int | None = None,
    refine: bool | None = None,
    clock: StageClock | None = None,
) -> VolumePrediction:
    """Disparity map of an image, given its matching costs, whichever matcher they come from.

    Parameters
    ----------
    model
        Gives edge weights (by contrast or its Pairwise-CNN), penalties and defaults; its Unary-CNN
        is not used.
    backend
        Where to compute.
    left
        RGB image (H, W, 3), float32 in [0, 1].
    costs
        (H, W, K) float32, all finite, low is good: a NumPy array, or an array of the backend.
    labels
        What the K labels stand for.
    method, iterations, refine
        As for `model.predict`.
    clock
        Takes the time of the stages.
    """
    config = model.config
    method = method or config.method
    refine = method == "crf" if refine is None else refine
    clock = clock or StageClock(wait=backend.synchronize)
    if isinstance(costs, np.ndarray):
        costs = backend.to_device(costs)
    energy = bounds = minorant = None
    if method == "crf":
        edges = edge_weights(model, backend, left, clock)
        with clock.stage("crf"):
            solution = solve(
                backend, costs, edges, config.penalties, iterations or config.iterations
            )
        energy, bounds, chosen = solution.energy, solution.bounds, solution.labels
        minorant = solution.minorant
    else:
        with clock.stage("argmax"):
            chosen = backend.argmin(costs)
    unrefined = disparity = labels.to_disparity(backend.to_host(chosen))
    if refine:
        with clock.stage("refinement"):
            source = costs if minorant is None else minorant
            disparity = unrefined + backend.to_host(backend.refine(source, chosen, labels.step))
    prediction = Prediction(disparity, unrefined, labels, energy, bounds, clock.seconds)
    return VolumePrediction(prediction, minorant)


def predict(
    model: StereoModel,
    backend: Backend,
    left: np.ndarray,
    right: np.ndarray,
    *,
    labels: LabelRange | None = None,
    method: str | None = None,
    iterations: int | None = None,
    refine: bool | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Prediction:
    """Disparity map of the left image of a rectified pair.

    Parameters
    ----------
    model, backend
        What to compute and where (`hybridstereo.kernels.select`).
    left, right
        RGB images (H, W, 3), float32 in [0, 1].
    labels, method, iterations
        Default to the model's configuration.
    refine
        Sub-label refinement (SPEC 7); by default with ``crf`` only, as in the paper.
    on_stage
        Called with the name of each stage when it begins.
    """
    labels = labels or model.config.labels
    clock = StageClock(on_stage, backend.synchronize)
    volume = unary_volume(model, backend, left, right, labels, clock)
    found = predict_from_volume(
        model, backend, left, volume, labels,
        method=method, iterations=iterations, refine=refine, clock=clock,
    )  # fmt: skip
    return found.prediction


def _moved(model: StereoModel, move: Callable[[Any], Any]) -> StereoModel:
    def layers(network: tuple[ConvLayer, ...]) -> tuple[ConvLayer, ...]:
        return tuple(
            ConvLayer(move(x.weight), None if x.bias is None else move(x.bias)) for x in network
        )

    return replace(model, unary=layers(model.unary), pairwise=layers(model.pairwise))


def on_device(model: StereoModel, backend: Backend) -> StereoModel:
    """The model with its parameters on the device, so that they go there only once."""
    return _moved(model, backend.to_device)


def on_host(model: StereoModel, backend: Backend) -> StereoModel:
    """The model with its parameters as NumPy arrays."""
    return _moved(model, backend.to_host)


def with_config(model: StereoModel, **changes: object) -> StereoModel:
    """The same networks with some configuration values changed."""
    return replace(model, config=replace(model.config, **changes))  # type: ignore[arg-type]
