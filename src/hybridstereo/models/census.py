"""The hand-set model ``census``: a soft census transform written as a Unary-CNN.

The paper (sec. 3) names the census transform as a special case of its network: centre-minus-
neighbour differences followed by a steep tanh.  Here 24 such differences of the 5x5 window, each
on luma, red, green and blue, fill 96 channels of the usual 3-layer network; four more
channels compare the smoothed colours themselves, which helps where texture repeats.  The CRF uses
contrast weights.  Nothing is trained: this is the baseline that a trained model has to beat.
"""

from __future__ import annotations

import numpy as np

from ..features import ConvLayer
from ..model import ModelConfig, StereoModel

# Rows: how a channel weighs normalised R, G, B.  Luma first: it has the least noise.
_CHANNEL_MIXES = np.array(
    [[0.2989, 0.5870, 0.1140], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], np.float32
)

# Slope of the comparison in units of the image's standard deviation: beyond about 1/gain a
# difference counts as "brighter" or "darker" whatever its size.
_COMPARISON_GAIN = 20.0
# The second layer moves channels and sharpens the comparison once more.
_TRANSPORT_GAIN = 2.0
# Size of the final features: scores are at most 96 times its square, and the softmax has no
# temperature, so this sets how confident the network is.
_FEATURE_GAIN = 0.36
_COLOUR_GAIN = 0.5


def census_model() -> StereoModel:
    """Build the model; costs about a millisecond."""
    offsets = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if (dy, dx) != (0, 0)]
    mixes = len(_CHANNEL_MIXES)
    channels = (len(offsets) + 1) * mixes
    compare = np.zeros((channels, 3, 3, 3), np.float32)
    moves = [np.zeros((channels, channels, 2, 2), np.float32) for _ in range(2)]

    for index, (dy, dx) in enumerate([*offsets, (0, 0)]):
        # The 5x5 window has its centre at (2, 2).  A 3x3 window inside it that holds both the
        # centre and the neighbour starts at `corner`; the two 2x2 layers carry its result there.
        corner = (min(max(2 + min(dy, 0), 0), 2), min(max(2 + min(dx, 0), 0), 2))
        if (dy, dx) == (0, 0):
            corner = (1, 1)
        centre = (2 - corner[0], 2 - corner[1])
        neighbour = (centre[0] + dy, centre[1] + dx)
        for mix, colours in enumerate(_CHANNEL_MIXES):
            channel = index * mixes + mix
            if (dy, dx) == (0, 0):
                compare[channel, :, :, :] = _COLOUR_GAIN * colours[:, None, None] / 9
            else:
                compare[channel, :, centre[0], centre[1]] += _COMPARISON_GAIN * colours
                compare[channel, :, neighbour[0], neighbour[1]] -= _COMPARISON_GAIN * colours
            for layer, gain in enumerate((_TRANSPORT_GAIN, _FEATURE_GAIN)):
                # Offsets of 0, 1 or 2 are shared out over two layers that move by 0 or 1.
                shift = tuple(min(max(corner[axis] - layer, 0), 1) for axis in (0, 1))
                moves[layer][channel, channel, shift[0], shift[1]] = gain

    # The kernels above are written as windows (cross-correlation); layers are true convolutions.
    layers = [
        ConvLayer(np.ascontiguousarray(kernel[:, :, ::-1, ::-1]), np.zeros(channels, np.float32))
        for kernel in (compare, *moves)
    ]
    config = ModelConfig(
        weight_scale=0.1,
        p1=1.5,
        p2=8.0,
        description="hand-set soft census transform with contrast weights; nothing is trained",
    )
    return StereoModel(tuple(layers), config=config)
