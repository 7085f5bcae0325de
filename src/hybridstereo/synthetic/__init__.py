"""Synthetic stereo scenes with exact sub-pixel truth, deterministic by seed.

A scene is a random world of textured planes, boxes, spheres and thin structures. Both views are
ray cast, so that their disparities are exact at the pixel centres and occlusion is decided by
rays, not by warping. The modules, in the order of the work:

``layout``
    Draws a world: a room, backdrops or a plain street, furnished with the ``objects`` and lit
    (``light``).
``surfaces``, ``textures``, ``patterns``
    What the objects are made of.
``render``
    Casts the rays of both views.
``scene``
    Chooses the cameras, exposes the views: `generate_scene`, `generate_sequence`.
``write``
    Stores scenes as files.
"""

from hybridstereo.synthetic.scene import (
    Photometric,
    SceneOptions,
    StereoScene,
    generate_scene,
    generate_sequence,
    quantised,
)
from hybridstereo.synthetic.write import synthesize, write_scene

__all__ = [
    "Photometric",
    "SceneOptions",
    "StereoScene",
    "generate_scene",
    "generate_sequence",
    "quantised",
    "synthesize",
    "write_scene",
]
