"""Which numbers are accepted, whoever gives them: an option, a caller, a file.

The command line and the library read the same limits, so that what one refuses the other refuses
too.  Upper limits lie far beyond anything useful; they keep a slip of the finger, or a file made by
somebody else, from running for a year or asking for a terabyte.  NumPy is not imported here: the
help of the commands shows these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real

from .errors import InputError, StereoError, shortened


@dataclass(frozen=True)
class Limits:
    """A finite range of numbers, both ends included unless ``above`` or ``below`` says otherwise.

    Attributes
    ----------
    least, most
        The ends.
    whole
        Only integers, of Python or NumPy; a truth value is none.
    above, below
        The lower, or the upper, end itself is excluded.

    Examples
    --------
    >>> 3 in Limits(1, 5), float("nan") in Limits(1, 5), 2.5 in Limits(1, 5, whole=True)
    (True, False, False)
    >>> str(Limits(0, 1, above=True))
    'a number above 0 and up to 1'
    """

    least: float
    most: float
    whole: bool = False
    above: bool = False
    below: bool = False

    def __contains__(self, value: object) -> bool:
        kind = Integral if self.whole else Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        # The ends are finite, so that neither NaN nor infinity lies between them.
        if not self.least <= value <= self.most:  # type: ignore[operator]
            return False
        return not ((self.above and value == self.least) or (self.below and value == self.most))

    def __str__(self) -> str:
        low = f"above {_plain(self.least)} and" if self.above else f"from {_plain(self.least)}"
        high = "below" if self.below else "up to" if self.above else "to"
        joint = "and " if self.below and not self.above else ""
        kind = "whole number" if self.whole else "number"
        return f"a {kind} {low} {joint}{high} {_plain(self.most)}"

    def check(self, value: object, what: str, error: type[StereoError] = InputError) -> None:
        """Refuse a value outside; ``what`` begins the sentence, as in "The step is"."""
        if value not in self:
            raise error(f"{what} {shortened(value)}", f"Give {self}")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


MAX_PIXELS = 100_000_000
"""Pixels of an image, a map or a mask that are read unless the caller allows more."""

PIXELS = Limits(1, 2**31 - 1, whole=True)
"""What a caller may allow: OpenCV addresses no more."""

_allowed_pixels = MAX_PIXELS


def pixel_limit(asked: int | None = None) -> int:
    """How many pixels a reader takes: ``asked``, or what `allow_pixels` has set if that is None."""
    if asked is not None:
        PIXELS.check(asked, "`max_pixels` is")
    return _allowed_pixels if asked is None else asked


@contextmanager
def allow_pixels(most: int) -> Iterator[None]:
    """Set what all readers of images, maps and masks take by default, until the block ends.

    It holds for the whole process: data sets are read by threads of their own, long after they
    were opened.

    Examples
    --------
    >>> with allow_pixels(200_000_000):
    ...     pixel_limit()
    200000000
    >>> pixel_limit()
    100000000
    """
    global _allowed_pixels
    before, _allowed_pixels = _allowed_pixels, pixel_limit(most)
    try:
        yield
    finally:
        _allowed_pixels = before


SIDE = Limits(1, 65536, whole=True)
"""Rows or columns that are asked for."""

LABELS = Limits(1, 65536, whole=True)
DISPARITY = Limits(-1e6, 1e6)
"""Disparities; beyond, float32 resolves less than a sixteenth of a pixel."""
STEP = Limits(0.001, 1e6)
ITERATIONS = Limits(1, 1000, whole=True)
"""Of Dual_MM, of which 5 are usual."""
FACTOR = Limits(0, 1e6, above=True)
"""What costs are multiplied by."""

WEIGHT = Limits(0, 1e6)
"""Penalties, edge weights and the weights of levels."""
LAYERS = Limits(1, 64, whole=True)
FILTERS = Limits(1, 4096, whole=True)
KERNEL_SIDE = Limits(1, 31, whole=True)
"""Rows or columns of a convolution's kernels."""

FOCAL = Limits(0, 1e6, above=True)
"""Focal lengths, in pixels."""
BASELINE = Limits(0, 1e6, above=True)
"""Distances of two cameras, in metres."""
DEPTH = Limits(0, 1e9, above=True)
"""Distances of what they see, in metres."""

SHARE = Limits(0, 1)
CAMERA_NUMBER = Limits(0, 9, whole=True)
"""Of the cameras of one calibration."""

RATE = Limits(0, 1000, above=True)
"""Frames per second."""

COUNT = Limits(1, 10**9, whole=True)
"""Things that are done or kept one after the other: steps, scenes, pairs."""
WORKERS = Limits(1, 1024, whole=True)
"""Processes on one machine."""
REPEATS = Limits(1, 1000, whole=True)
THREADS = Limits(1, 10**6, whole=True)
SEED = Limits(0, 2**32 - 1, whole=True)

SCENES = Limits(1, 10**6, whole=True)
"""Generated scenes, of which each takes a second."""
SCENE_SIDE = Limits(1, 4096, whole=True)
"""Keeps the memory for the half-pixel samples of a generated scene within a few GB."""
SCENE_OBJECTS = Limits(0, 1000, whole=True)
SCENE_DISPARITY = Limits(-4096, 4096)

TRAINING: Mapping[str, Limits] = {
    "layers": LAYERS,
    "filters": FILTERS,
    "pyramid": Limits(0, 2, whole=True),
    "epochs": Limits(0, 1e6, above=True),
    "steps": COUNT,
    "minutes": Limits(0, 1e6, above=True),
    "batch": Limits(1, 1024, whole=True),
    "lr": Limits(0, 1e3, above=True),
    "momentum": Limits(0, 1, below=True),
    "weight_decay": Limits(0, 1e3),
    "clip_norm": Limits(0, 1e6),
    "sharpness": Limits(0, 1e3, above=True),
    "tolerance": Limits(0, 1e3),
    "exponent": Limits(0, 1, above=True),
    "gamma": Limits(0, 1e3),
    "tau": Limits(0, 1e6),
    "iterations": ITERATIONS,
    "disparities": LABELS,
    "seed": SEED,
    "val_fraction": Limits(0, 1, below=True),
    "validate_every": COUNT,
    "checkpoint_every": COUNT,
    "cache_gigabytes": Limits(0, 1e6),
}
"""The numbers among the options of a training, by name."""
