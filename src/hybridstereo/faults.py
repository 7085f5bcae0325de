"""Which stage computed numbers that are not finite; asked only when a result is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .edges import EdgeWeights
from .errors import NumericsError
from .features import features_forward, network_input
from .kernels import Array, Backend
from .model import StereoModel
from .pyramid import half_size

_MODEL = "The parameters of the model are too large or damaged; use another model"


def find_fault(
    backend: Backend,
    model: StereoModel,
    images: Sequence[np.ndarray],
    costs: Array,
    edges: EdgeWeights | None,
) -> NumericsError:
    """The error that names the first stage with a number that is not finite.

    Parameters
    ----------
    backend, model
        Where the result was computed, and with which parameters there.
    images
        Both views, whose features are computed once more, since they are not kept; or the left one,
        if the costs do not come from them.
    costs, edges
        What the CRF was given; no edges: it did not run.
    """

    def finite(array: Array) -> bool:
        return bool(np.isfinite(backend.to_host(array)).all())

    for level in range(1 + len(model.config.pyramid) if len(images) == 2 else 0):
        for side, image in zip(("left", "right"), images, strict=True):
            network_in = backend.to_device(network_input(image, model.unary))
            if not finite(features_forward(backend, network_in, model.unary)):
                where = f"at 1/{2**level} size " if level else ""
                return NumericsError(
                    f"The features of the {side} image {where}are not finite numbers", _MODEL
                )
        images = [half_size(image) for image in images]
    if not finite(costs):
        return NumericsError("The correlation gave costs that are not finite numbers", _MODEL)
    if edges is not None and not (finite(edges.wx) and finite(edges.wy)):
        return NumericsError("The edge weights are not finite numbers", _MODEL)
    return NumericsError(
        "The CRF gave an energy that is not a finite number",
        "The costs, the edge weights or the penalties are too large for single precision",
    )
