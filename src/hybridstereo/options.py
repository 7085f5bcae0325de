"""How a model is run: what `infer`, `eval` and callers of the library may say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from .errors import InputError
from .limits import ITERATIONS
from .model import METHODS, ModelConfig

View = Literal["left", "right"]
"""One of the two images of a pair, and the map of its pixels."""

VIEWS: tuple[View, View] = ("left", "right")

PRECISIONS = ("single", "half")
"""Bits of the costs in the CRF: 32, floating point, or 16, fixed point."""


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
    view
        Whose map to compute: ``left``, ``right`` or ``both``.
    confidence
        Also tell how likely each pixel is right (`hybridstereo.confidence`).
    validity
        Also tell which pixels the other view confirms (`hybridstereo.validity`).
    lr_check
        Mark the pixels that it does not confirm as invalid in the map.
    fill
        Fill those from the background instead.
    precision
        Of the costs in the CRF: ``single``, or ``half`` for less memory and time (docs/model.md
        6.9).
    """

    disparities: int | Literal["auto"] | None = None
    min_disparity: float | None = None
    step: float | None = None
    paper_labels: bool = False
    iterations: int | None = None
    method: str | None = None
    refine: bool | None = None
    view: View | Literal["both"] = "left"
    confidence: bool = False
    validity: bool = False
    lr_check: bool = False
    fill: bool = False
    precision: str = "single"

    @property
    def compares_views(self) -> bool:
        """Whether the other view's map is needed, if only to check the map."""
        return self.confidence or self.validity or self.lr_check or self.fill

    @property
    def views(self) -> tuple[View, ...]:
        """The views whose maps have to be computed; the one that is asked for comes last.

        What is kept of it, such as its volumes, is then not in the way of the other one.
        """
        if self.view == "right":
            return VIEWS if self.compares_views else ("right",)
        return ("right", "left") if self.view == "both" or self.compares_views else ("left",)

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
        if self.view not in (*VIEWS, "both"):
            raise InputError(f"There is no view '{self.view}'", "Use left, right or both")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"There is no precision '{self.precision}'", f"Use {' or '.join(PRECISIONS)}"
            )
        if self.precision == "half" and method != "crf":
            raise InputError(
                f"`precision=half` is about the CRF, which does not run with `method={method}`",
                "Use `method=crf` or leave out `precision`",
            )
        if self.confidence and method != "crf":
            raise InputError(
                f"There is no confidence with `method={method}`: it is made from the CRF's costs",
                "Use `method=crf` or leave out `confidence`",
            )
        return replace(self, iterations=iterations, method=method, refine=refine)

    def check_precision(self, device: str, dtype: np.dtype[Any], warm: bool = False) -> None:
        """Refuse half precision where there is none.

        Parameters
        ----------
        device, dtype
            What the model computes on, and in.
        warm
            Whether the CRF starts with what it left for a frame before.

        Raises
        ------
        InputError
            If it is asked for all the same.
        """
        if self.precision != "half":
            return
        if device != "cpu" or dtype != np.float32:
            raise InputError(
                "`precision=half` is for the CPU and for models in single precision",
                "Use `device=cpu` or leave out `precision`",
            )
        if warm:
            raise InputError(
                "A warm start needs the costs in single precision",
                "Leave out `precision=half` or the warm start",
            )
