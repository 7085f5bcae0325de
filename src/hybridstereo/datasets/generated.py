"""Synthetic scenes as a data set: generated when they are loaded, without files."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from hybridstereo.datasets.pair import FloatImage, StereoPair, build_pair
from hybridstereo.datasets.samples import Sample
from hybridstereo.errors import InputError
from hybridstereo.synthetic import SceneOptions, generate_scene, quantised

_ORDINARY_PER_PLAIN = 4


def generated_samples(count: int, options: SceneOptions) -> list[Sample]:
    """The scenes with the seeds 0 to ``count - 1``, and for every four of them a plain one.

    Plain ones (`SceneOptions.plain`) are a family of their own with seeds from 0 on, so that the
    others are what they would be without them.

    Raises
    ------
    InputError
        If there are to be none.

    """
    if count < 1:
        raise InputError(f"the number of synthetic scenes is {count}", hint="Give at least 1")
    samples = [_sample(f"seed {seed}", str(seed), seed, options) for seed in range(count)]
    if not options.plain:
        plain = replace(options, plain=True)
        samples += [
            _sample(f"plain seed {seed}", f"plain-{seed}", seed, plain)
            for seed in range(count // _ORDINARY_PER_PLAIN)
        ]
    return samples


def _sample(name: str, scene: str, seed: int, options: SceneOptions) -> Sample:
    return Sample(
        name=name,
        scene=f"synthetic/{scene}",
        source="synthetic",
        files=(),
        read=partial(_generate, seed, options),
    )


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
