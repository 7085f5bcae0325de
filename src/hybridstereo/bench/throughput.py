"""How many pairs and frames a second: `infer --pairs` and `stream`, files included."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..batch.outputs import DisparityFile
from ..batch.pairs import Pair
from ..batch.run import run_pairs
from ..batch.work import PairWork
from ..io.images import write_image
from ..options import MatchOptions
from ..sequence import StereoSequence
from ..stereo import Stereo
from ..streams.run import run_stream
from ..streams.sinks import MapFiles
from ..streams.sources import open_pair
from ..synthetic import quantised


@dataclass(frozen=True)
class Throughput:
    """What came out of files in and files out, one pair after the other.

    Attributes
    ----------
    pairs
        How many.
    pairs_seconds
        Of all of them as `infer --pairs` runs: read, checked, matched, written.
    frames_seconds
        Of the same as frames of `stream`.
    latencies
        Of each frame, from when it was read until its map was written.
    """

    pairs: int
    pairs_seconds: float
    frames_seconds: float
    latencies: tuple[float, ...]

    @property
    def pairs_per_second(self) -> float:
        """As `infer --pairs`."""
        return self.pairs / self.pairs_seconds

    @property
    def frames_per_second(self) -> float:
        """As `stream`."""
        return self.pairs / self.frames_seconds

    def latency(self, share: float) -> float:
        """The seconds that this share of the frames does not exceed."""
        return float(np.quantile(self.latencies, share))

    def as_dict(self) -> dict[str, object]:
        """The entry ``throughput`` of the JSON."""
        return {
            "pairs": self.pairs,
            "pairs_per_second": self.pairs_per_second,
            "frames_per_second": self.frames_per_second,
            "latency": {
                "p50": self.latency(0.5),
                "p99": self.latency(0.99),
                "max": self.latency(1.0),
            },
        }


def measure_throughput(
    stereo: Stereo,
    images: tuple[np.ndarray, np.ndarray],
    options: MatchOptions,
    count: int,
    on_step: Callable[[str], None],
) -> Throughput:
    """Run a pair so many times through `infer --pairs` and through `stream`.

    Parameters
    ----------
    stereo
        The model, compiled and warm.
    images
        Both views (H, W, 3), in [0, 1]; written as PNG files, which are read each time.
    options
        Labels and iterations.
    count
        How many times.
    on_step
        Called with what begins.

    Raises
    ------
    StereoError
        If a pair cannot be matched, or the folder for temporary files has no room.
    """
    with TemporaryDirectory(prefix="hstereo-bench-") as name:
        folder = Path(name)
        pairs = _written(images, folder, count)
        work = PairWork(str(folder / "maps"), (DisparityFile("{name}.pfm"),), options)
        on_step("warming up files")
        _run_all(stereo, pairs[:1], work)
        on_step(f"{count} pairs as infer runs many")
        begin = time.perf_counter()
        _run_all(stereo, pairs, work)
        pairs_seconds = time.perf_counter() - begin
        on_step(f"{count} frames as stream runs")
        sequence = StereoSequence(stereo, **vars(options))
        source = open_pair(str(folder / "left"), str(folder / "right"))
        try:
            sinks = [MapFiles(str(folder / "frames"))]
            summary = run_stream(source, sequence, sinks, at_once=None)
        finally:
            source.close()
    return Throughput(count, pairs_seconds, summary.seconds, tuple(summary.latencies))


def _written(images: tuple[np.ndarray, np.ndarray], folder: Path, count: int) -> list[Pair]:
    """The files of all pairs."""
    for side, image in zip(("left", "right"), images, strict=True):
        (folder / side).mkdir()
        write_image(str(folder / side / "000000.png"), quantised(image))
        for number in range(1, count):
            shutil.copy(folder / side / "000000.png", folder / side / f"{number:06d}.png")
    names = [f"{number:06d}" for number in range(count)]
    return [
        Pair(x, *(str(folder / side / f"{x}.png") for side in ("left", "right"))) for x in names
    ]


def _run_all(stereo: Stereo, pairs: list[Pair], work: PairWork) -> None:
    for outcome in run_pairs(stereo, pairs, work):
        if outcome.error is not None:
            raise outcome.error
