"""Synthetic scenes as a data set: generated when they are loaded, without files."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from hybridstereo.datasets.pair import FloatImage, StereoPair, build_pair
from hybridstereo.datasets.samples import Sample
from hybridstereo.errors import InputError
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised


def generated_samples(count: int, options: SceneOptions) -> list[Sample]:
    """The scenes with the seeds 0 to ``count - 1``.

    Raises
    ------
    InputError
        If there are to be none.

    """
    if count < 1:
        raise InputError(f"the number of synthetic scenes is {count}", hint="Give at least 1")
    return [
        Sample(
            name=f"seed {seed}",
            scene=f"synthetic/{seed}",
            source="synthetic",
            files=(),
            read=partial(_generate, seed, options),
        )
        for seed in range(count)
    ]


def _generate(seed: int, options: SceneOptions) -> StereoPair:
    """A scene as if it had been written to 8-bit files and read again."""

    def stored(view: FloatImage) -> FloatImage:
        return quantised(view).astype(np.float32) / np.float32(255)

    scene = generate_scene(seed, options)
    return build_pair(
        f"synthetic scene {seed}",
        stored(scene.left),
        stored(scene.right),
        scene.disparity,
        visible=~scene.occlusion,
        right_disparity=scene.right_disparity,
        ndisp=max(math.floor(options.max_disparity) + 1, 1),
    )
