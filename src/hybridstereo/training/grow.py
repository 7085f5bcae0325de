"""A larger Unary-CNN that starts as a smaller, trained one.

Every step of a 7-layer network costs three of a 3-layer one, and its first thousand steps learn
what the small one knows already.  So the new layers, of 2x2 filters as in the paper, start as
``tanh(g x)`` of one pixel each: the deep network begins with about the features of the shallow
one and learns from there what its larger window is good for.  Coordinates, which some networks are
given beside the colours, start with kernels of zeros.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import InputError
from ..features import ConvLayer, sees_coordinates
from ..model import StereoModel

# Measured on a trained network of 3 layers that becomes one of 7: with this gain the cross-entropy
# is close to that of the shallow one (2.5 instead of 2.6 in the mean of three scenes).  With 1 the
# features shrink with every layer (2.9); with 1.7 they grow: the softmax is overconfident (4.6).
_GAIN = 1.2


def deepen(model: StereoModel, layers: int) -> StereoModel:
    """The model with as many layers in its Unary-CNN, new ones at the end.

    Parameters
    ----------
    model
        Its other parts stay as they are.
    layers
        At least as many as the model has.  The number of new ones must be even: each moves its
        output by half a pixel, and the directions take turns.

    Raises
    ------
    InputError
        If the number cannot be reached.
    """
    new = layers - len(model.unary)
    if new < 0 or new % 2:
        raise InputError(
            f"A Unary-CNN of {len(model.unary)} layers cannot become one of {layers}",
            "Give `layers` as many or 2, 4, 6... more, or start from random weights",
        )
    filters = model.unary[-1].weight.shape[0]
    return replace(model, unary=(*model.unary, *(_passing(filters, i % 2) for i in range(new))))


def add_coordinates(model: StereoModel) -> StereoModel:
    """The model with a Unary-CNN that is given coordinates, too, and ignores them at first.

    A model that sees them already is returned as it is.
    """
    first, *others = model.unary
    if sees_coordinates(model.unary):
        return model
    filters, _, *window = first.weight.shape
    new = np.zeros((filters, 2, *window), first.weight.dtype)
    wider = replace(first, weight=np.concatenate([first.weight, new], axis=1))
    return replace(model, unary=(wider, *others))


def _passing(filters: int, corner: int) -> ConvLayer:
    """A layer that passes one pixel of its 2x2 window on: the upper left or the lower right one."""
    weight = np.zeros((filters, filters, 2, 2), np.float32)
    channels = np.arange(filters)
    # A true convolution: the last tap of the kernel lies over the first pixel of the window.
    weight[channels, channels, 1 - corner, 1 - corner] = _GAIN
    return ConvLayer(weight, np.zeros(filters, np.float32))
