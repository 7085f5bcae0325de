"""How a model is run: what `infer`, `eval` and callers of the library may say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .errors import InputError
from .limits import ITERATIONS
from .model import METHODS, ModelConfig


@dataclass(frozen=True)
class MatchOptions:
    """How a model is run, as `Stereo.match` takes it; None means "as the model says".

    Attributes
    ----------
    disparities
        Number of labels, exactly; ``auto``: those that the pair itself shows.
    min_disparity
        Smallest disparity in pixels, may be negative.
    step
        Pixels between labels, may be a fraction.
    paper_labels
        Round the number of labels up to a power of two, at most 256, as the published program.
    iterations
        Of Dual_MM.
    method
        ``crf``, or ``argmax`` for the network alone.
    refine
        Sub-label refinement; by default with ``crf`` only, as in the paper.
    """

    disparities: int | Literal["auto"] | None = None
    min_disparity: float | None = None
    step: float | None = None
    paper_labels: bool = False
    iterations: int | None = None
    method: str | None = None
    refine: bool | None = None

    def resolved(self, config: ModelConfig) -> MatchOptions:
        """The same with iterations, method and refinement as the model says, if nobody did.

        Raises
        ------
        InputError
            If one of these cannot be used.
        """
        method = config.method if self.method is None else self.method
        iterations = config.iterations if self.iterations is None else self.iterations
        if method not in METHODS:
            raise InputError(f"There is no method '{method}'", f"Use {' or '.join(METHODS)}")
        ITERATIONS.check(iterations, "The number of `iterations` is")
        refine = method == "crf" if self.refine is None else self.refine
        if not isinstance(refine, bool | np.bool_):
            raise InputError(f"`refine={refine}` is neither True nor False")
        return replace(self, iterations=iterations, method=method, refine=refine)
