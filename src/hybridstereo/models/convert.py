"""`hstereo convert`: the authors' published parameters -> a model file (docs/model.md 1)."""

from __future__ import annotations

import math
from pathlib import Path

from ..errors import ModelError
from ..features import IMAGE_CHANNELS, ConvLayer
from ..labels import LabelRange
from ..model import ModelConfig, StereoModel
from .published import (
    PublishedConfig,
    PublishedParameters,
    read_published_config,
    read_published_parameters,
)
from .zoo import save_model

_EDGE_MODEL_OF = {"COLORCNN": "contrast", "COLORPAIR": "cnn"}
_METHOD_OF = {"CRF": "crf", "ARGMAX": "argmax"}


def published_model(
    parameters: PublishedParameters, config: PublishedConfig | None, name: str
) -> StereoModel:
    """The model that the published program would run with these parameters and this cfg.

    Without a cfg the program's defaults hold, except that the penalties come from the parameter
    file if it has them and the Pairwise-CNN is used if there is one.
    """
    if config is None:
        edge_model = "cnn" if parameters.pairwise else "contrast"
        config = PublishedConfig(matching="COLORPAIR" if parameters.pairwise else "COLORCNN")
        p1, p2 = parameters.penalties or (config.L1, config.L2)
        scale = 1.0 if parameters.pairwise else config.lambda_
    else:
        _check_agreement(parameters, config, name)
        edge_model = _EDGE_MODEL_OF[config.matching]
        # The cfg's values, not those beside the weights, are what the published tables used.
        p1, p2, scale = config.L1, config.L2, config.lambda_

    count = math.floor((config.disp_max - config.disp_min) / config.disp_step) + 1
    label_range = LabelRange(config.disp_min, count, config.disp_step).paper_rounding()
    return StereoModel(
        tuple(ConvLayer(weight, bias) for weight, bias in parameters.unary),
        tuple(ConvLayer(weight, bias) for weight, bias in parameters.pairwise)
        if edge_model == "cnn"
        else (),
        ModelConfig(
            edge_model=edge_model,
            weight_scale=scale,
            alpha=config.alpha,
            beta=config.beta,
            p1=p1,
            p2=p2,
            iterations=config.crf_iterations,
            method=_METHOD_OF[config.inference],
            min_disparity=label_range.minimum,
            disparities=label_range.count,
            step=label_range.step,
            description=f"converted from {name}",
        ),
    )


def _check_agreement(parameters: PublishedParameters, config: PublishedConfig, name: str) -> None:
    if config.matching not in _EDGE_MODEL_OF:
        raise ModelError(
            f"The configuration has matching = {config.matching}",
            f"Known values: {', '.join(_EDGE_MODEL_OF)}",
        )
    if config.inference not in _METHOD_OF:
        raise ModelError(
            f"The configuration has inference = {config.inference}",
            f"Known values: {', '.join(_METHOD_OF)}",
        )
    layers = len(parameters.unary)
    if config.num_layers != layers:
        raise ModelError(
            f"The configuration says num-layers = {config.num_layers} but {name} has {layers}",
            "Use the .cfg file that lies beside the parameters",
        )
    has_xy = parameters.unary[0][0].shape[1] == IMAGE_CHANNELS + 2
    if config.with_xy != has_xy:
        raise ModelError(
            f"The configuration says with-xy = {int(config.with_xy)} but the first layer of {name}"
            f" takes {parameters.unary[0][0].shape[1]} channels",
            "Use the .cfg file that lies beside the parameters",
        )
    if config.matching == "COLORPAIR" and not parameters.pairwise:
        raise ModelError(
            f"The configuration asks for a Pairwise-CNN (COLORPAIR) but {name} has none",
            "Use the .cfg file that lies beside the parameters",
        )


def convert(parameters: str | Path, config: str | Path | None, output: str | Path) -> StereoModel:
    """Convert a published ``params.npz`` (and its ``.cfg``) to an HDF5 model file."""
    published_config = None if config is None else read_published_config(config)
    model = published_model(
        read_published_parameters(parameters), published_config, Path(parameters).name
    )
    save_model(output, model)
    return model
