"""Dense stereo with hybrid CNN-CRF models (Knöbelreiter et al., CVPR 2017).

>>> import hybridstereo as hs
>>> stereo = hs.Stereo("general")                               # doctest: +SKIP
>>> result = stereo.match("left.png", "right.png")              # doctest: +SKIP
>>> result.save("map.pfm")                                      # doctest: +SKIP

The public names are imported when they are first used, so that ``import hybridstereo`` and
``hstereo --help`` load neither NumPy nor Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import StereoError
    from .io.disparity import read_disparity, write_disparity
    from .io.images import read_pair
    from .labels import LabelRange
    from .models.zoo import load_model
    from .opencv_matcher import OpenCVMatcher
    from .result import StereoResult
    from .rig import StereoRig, read_rig
    from .sequence import StereoSequence
    from .stereo import Stereo

__version__ = "0.1.0"

__all__ = [
    "LabelRange",
    "OpenCVMatcher",
    "Stereo",
    "StereoError",
    "StereoResult",
    "StereoRig",
    "StereoSequence",
    "__version__",
    "load_model",
    "read_disparity",
    "read_pair",
    "read_rig",
    "write_disparity",
]

_HOME = {
    "LabelRange": "labels",
    "OpenCVMatcher": "opencv_matcher",
    "Stereo": "stereo",
    "StereoError": "errors",
    "StereoResult": "result",
    "StereoRig": "rig",
    "StereoSequence": "sequence",
    "load_model": "models.zoo",
    "read_disparity": "io.disparity",
    "read_pair": "io.images",
    "read_rig": "rig",
    "write_disparity": "io.disparity",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
