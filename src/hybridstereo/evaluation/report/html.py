"""The report of an evaluation: a page for people, and a JSON file for scripts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hybridstereo import __version__
from hybridstereo.datasets import StereoPair
from hybridstereo.errors import OutputError
from hybridstereo.io.atomic import atomic_write, check_writable

from .. import tables
from ..results import CURVE_ERRORS, Evaluation
from .page import render
from .pictures import ScenePictures, scene_pictures
from .tables import Summary

PAGE, DATA = "report.html", "report.json"

_WIDEST = 1280  # pictures are reduced to this width
# Once the pictures take this many characters, those of further scenes are smaller: browsers open
# a page of some 100 MB, but not one of a gigabyte.
_AMPLE = 60_000_000
_WIDEST_WHEN_MANY = 480


class HtmlReport:
    """Collects pictures scene by scene and writes ``report.html`` and ``report.json``.

    A `hybridstereo.evaluation.results.Sink`. The page contains its pictures, style and script and
    loads no other files.

    Parameters
    ----------
    folder
        Where to; created if it does not exist.

    Raises
    ------
    OutputError
        If the folder or the files in it cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            reason = getattr(error, "strerror", None) or str(error)
            raise OutputError(
                f"the folder {folder} cannot be created: {reason}",
                hint="Choose a folder that you may write to",
            ) from error
        for name in (PAGE, DATA):  # now, not after hours of computing
            check_writable(self.folder / name)
        self._pictures: dict[str, ScenePictures] = {}
        self._curves: dict[str, list[np.ndarray]] = {}
        self._size = 0

    def scene(
        self,
        name: str,
        pair: StereoPair,
        maps: Mapping[str, np.ndarray],
        curves: Mapping[str, np.ndarray],
    ) -> None:
        """Draw the pictures of a scene; see `Sink.scene`."""
        widest = _WIDEST if self._size < _AMPLE else _WIDEST_WHEN_MANY
        pictures = scene_pictures(pair, maps, widest)
        self._size += pictures.size
        self._pictures[name] = pictures
        for method, curve in curves.items():
            self._curves.setdefault(method, []).append(np.asarray(curve, np.float64))

    def finish(self, evaluation: Evaluation) -> None:
        """Write both files; see `Sink.finish`.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        summaries = {
            method.name: self._summary(method.name, evaluation) for method in evaluation.methods
        }
        data = json.dumps(_as_dict(evaluation, summaries), indent=2, allow_nan=False) + "\n"
        page = render(evaluation, summaries, self._pictures)
        # A name on disk need not be valid Unicode; the page then shows a question mark.
        _write(self.folder / DATA, data.encode("ascii"))
        _write(self.folder / PAGE, page.encode("utf-8", "replace"))

    def _summary(self, method: str, evaluation: Evaluation) -> Summary:
        results = [one for one in evaluation.results if one.method == method]
        seconds = tables.mean_seconds(evaluation, method)
        curves = [one for one in self._curves.get(method, ()) if np.isfinite(one).all()]
        return Summary(
            seconds=math.nan if seconds is None else seconds,
            failures=sum(one.error is not None for one in results),
            curve=np.mean(curves, axis=0) if curves else np.full(len(CURVE_ERRORS), np.nan),
        )


def _as_dict(evaluation: Evaluation, summaries: Mapping[str, Summary]) -> dict[str, Any]:
    """Everything in the tables and charts of the page; null where there is no value."""
    curves = {name: one.curve for name, one in summaries.items() if np.isfinite(one.curve).all()}
    return {
        "hybridstereo": __version__,
        **tables.as_dict(evaluation),
        "curve_errors": [round(error, 6) for error in CURVE_ERRORS.tolist()],
        "curves": {name: curve.tolist() for name, curve in curves.items()},
    }


def _write(path: Path, data: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
