"""The hybrid CNN-CRF model: the parameters of its networks and its configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from .crf import Penalties
from .edges import EdgeModel
from .errors import InputError, ModelError, shortened
from .features import IMAGE_CHANNELS, ConvLayer
from .io.weights import WeightFile
from .kernels import Backend
from .labels import LabelRange
from .limits import (
    DISPARITY,
    FILTERS,
    ITERATIONS,
    KERNEL_SIDE,
    LABELS,
    LAYERS,
    STEP,
    WEIGHT,
)

METHODS = ("crf", "argmax")
EDGE_MODELS = ("contrast", "cnn")
SOFTMAXES = ("left", "mutual")
PROVENANCE = ("trained_on", "trained_date", "validation", "licence")
"""The attributes of `ModelConfig` that tell where a model comes from."""

PYRAMID = ("half_weight", "quarter_weight")
"""The attributes of `ModelConfig` that say how much coarser levels count."""

_LIMITS = {
    **dict.fromkeys(("weight_scale", "alpha", "beta", "p1", "p2", *PYRAMID), WEIGHT),
    "iterations": ITERATIONS,
    "disparities": LABELS,
    "min_disparity": DISPARITY,
    "step": STEP,
}
_OPTIONAL = (*PROVENANCE, *PYRAMID, "softmax")  # what files of models without it may lack


@dataclass(frozen=True)
class ModelConfig:
    """Everything about a model that is not an array.

    Attributes
    ----------
    edge_model
        Where edge weights come from: image ``contrast`` or the Pairwise-``cnn``.
    weight_scale, alpha, beta
        Factor of all edge weights and shape of the contrast function (docs/model.md 5a).
    softmax
        Which pixels compare their matches: those of the ``left`` view, as in the paper, or those of
        both, ``mutual`` (docs/model.md 4.1).
    half_weight, quarter_weight
        How much the costs of the images at half size count beside those of the images themselves,
        and those at quarter size beside these (`hybridstereo.pyramid`); 0: no such level.
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
        not trained on, and the terms that come with the data.  Empty if unknown.
    """

    edge_model: str = "contrast"
    weight_scale: float = 0.2
    alpha: float = 20.0
    beta: float = 0.9
    softmax: str = "left"
    half_weight: float = 0.0
    quarter_weight: float = 0.0
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
    def label_range(self) -> LabelRange:
        """The default labels."""
        return LabelRange(self.min_disparity, self.disparities, self.step)

    @property
    def pyramid(self) -> tuple[float, ...]:
        """The weights of the coarser levels that the model has, the finest first."""
        weights = (self.half_weight, self.quarter_weight)
        return weights[: sum(weight > 0 for weight in weights)]

    @property
    def edges_and_penalties(self) -> tuple[str, float, float, float, float, float]:
        """What the pairwise terms of the CRF are made of, beside the Pairwise-CNN."""
        return self.edge_model, self.weight_scale, self.alpha, self.beta, self.p1, self.p2

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
        _check_arrays("unary", self.unary)
        _check_arrays("pairwise", self.pairwise)
        dtypes = {layer.weight.dtype for layer in (*self.unary, *self.pairwise)}
        if len(dtypes) > 1:
            raise ModelError(f"The layers are of different types, {' and '.join(map(str, dtypes))}")
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

    def __repr__(self) -> str:
        edges = "Pairwise-CNN" if self.config.edge_model == "cnn" else "contrast weights"
        return f"<StereoModel: {len(self.unary)} layers, {edges}>"

    @property
    def dtype(self) -> np.dtype:
        """What the networks compute in: float32, or float64 where a test asks for precision."""
        return self.unary[0].weight.dtype

    @property
    def edges(self) -> EdgeModel:
        """How edge weights are made, for `hybridstereo.edges`."""
        config = self.config
        kind = cast(Literal["contrast", "cnn"], config.edge_model)
        return EdgeModel(
            kind, config.weight_scale, config.alpha, config.beta, self.pairwise, self.unary
        )

    @property
    def parameter_count(self) -> int:
        """Number of trainable scalars in both networks."""
        layers = self.unary + self.pairwise
        return sum(x.weight.size + (0 if x.bias is None else x.bias.size) for x in layers)

    def to_file(self) -> WeightFile:
        """The arrays and attributes that `io.weights` stores."""
        tensors = named_arrays("unary", self.unary) | named_arrays("pairwise", self.pairwise)
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


def named_arrays(network: str, layers: Sequence[ConvLayer]) -> dict[str, Any]:
    """The arrays of a network's layers by the names that files, gradients and momentum share."""
    named = {}
    for index, layer in enumerate(layers):
        named[f"{network}/{index}/weight"] = layer.weight
        if layer.bias is not None:
            named[f"{network}/{index}/bias"] = layer.bias
    return named


def fingerprint(model: StereoModel) -> str:
    """16 hexadecimal digits that tell apart models whose costs or edges differ."""
    named = named_arrays("unary", model.unary) | named_arrays("pairwise", model.pairwise)
    config = model.config
    counting: tuple[object, ...] = (config.edges_and_penalties, config.pyramid)
    if config.softmax != "left":
        counting = (*counting, config.softmax)
    digest = hashlib.sha256(repr(counting).encode())
    for name, array in sorted(named.items()):
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _config(stored: Mapping[str, object]) -> ModelConfig:
    values: dict[str, Any] = {}
    for name, default in asdict(ModelConfig()).items():
        if name not in stored and name not in _OPTIONAL:
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


def _check_arrays(network: str, layers: tuple[ConvLayer, ...]) -> None:
    """Refuse arrays that are not the weights and biases of a layer, each by itself."""
    if layers:
        LAYERS.check(len(layers), f"The number of {network} layers is", ModelError)
    for index, layer in enumerate(layers):
        shape = layer.weight.shape
        name = f"{network} layer {index}"
        if len(shape) != 4 or min(shape) < 1:
            raise ModelError(f"{name} has weights of shape {shape} instead of (out, in, kh, kw)")
        FILTERS.check(shape[0], f"The number of filters of {name} is", ModelError)
        for side in shape[2:]:
            KERNEL_SIDE.check(side, f"The side of the kernels of {name} is", ModelError)
        if layer.bias is not None and layer.bias.shape != shape[:1]:
            raise ModelError(f"{name} has {shape[0]} outputs but biases of {layer.bias.shape}")
        for array in (layer.weight, layer.bias):
            if array is not None and array.dtype.kind != "f":
                raise ModelError(f"{name} holds {array.dtype} instead of floating-point numbers")
        if layer.bias is not None and layer.bias.dtype != layer.weight.dtype:
            raise ModelError(
                f"{name} has weights of {layer.weight.dtype} but biases of {layer.bias.dtype}"
            )


def _check_chain(network: str, layers: tuple[ConvLayer, ...], channels: int) -> None:
    """Refuse layers that do not fit together."""
    for index, layer in enumerate(layers):
        shape = layer.weight.shape
        name = f"{network} layer {index}"
        if shape[1] != channels:
            raise ModelError(f"{name} takes {shape[1]} channels but is given {channels}")
        channels = shape[0]


def _check_config(config: ModelConfig) -> None:
    for name, limits in _LIMITS.items():
        limits.check(getattr(config, name), f"'{name}' is", ModelError)
    try:
        config.label_range  # noqa: B018
    except InputError as error:
        raise ModelError(error.message, error.hint) from error
    if config.edge_model not in EDGE_MODELS:
        raise ModelError(f"unknown edge model '{shortened(config.edge_model)}'")
    if config.softmax not in SOFTMAXES:
        raise ModelError(f"unknown softmax '{shortened(config.softmax)}'")
    if config.method not in METHODS:
        raise ModelError(f"unknown method '{shortened(config.method)}'")
    if config.p1 > config.p2:
        raise ModelError(
            f"the penalties are P1 = {config.p1:g}, P2 = {config.p2:g}", "They need 0 <= P1 <= P2"
        )
    if config.quarter_weight > 0 and config.half_weight == 0:
        raise ModelError("'quarter_weight' needs a 'half_weight' above zero")


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


def scale_edges(model: StereoModel, wx_factor: float, wy_factor: float) -> StereoModel:
    """The model with other weights of edges to the right and downwards.

    The last layer of a Pairwise-CNN is linear and has a channel for each direction, so it takes
    the factors.
    """
    *hidden, last = model.pairwise
    factors = np.array([wx_factor, wy_factor], last.weight.dtype)
    bias = None if last.bias is None else last.bias * factors
    scaled = ConvLayer(last.weight * factors[:, np.newaxis, np.newaxis, np.newaxis], bias)
    return StereoModel(model.unary, (*hidden, scaled), model.config)
