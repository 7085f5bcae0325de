"""The results of a benchmark, as data and as a JSON object for scripts."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from .. import __version__
from ..system import cpu_name
from .peers import Peer
from .throughput import Throughput
from .work import Peaks, Work

COMPONENTS = {
    "input": "input processing",
    "pairwise_cnn": "Pairwise-CNN",
    "unary_cnn": "Unary-CNN",
    "correlation": "correlation",
    "pyramid": "pyramid",
    "crf": "CRF",
    "total": "total",
}
"""The rows of the table: the stages of `Stereo.match` and the whole of it.

``pyramid`` is everything about the coarser levels: images, networks, correlation, bringing up.  A
model without a pyramid has no such row.
"""


@dataclass(frozen=True)
class Setting:
    """Size of the images and of the model: all that determines the amount of work."""

    width: int
    height: int
    disparities: int
    layers: int
    iterations: int
    pyramid: int = 0

    @property
    def pixels(self) -> int:
        """Pixels of one image."""
        return self.width * self.height

    def __str__(self) -> str:
        return f"{self.width}x{self.height}, {self.disparities} disparities"


# Milliseconds, from the paper's timing table and its section on the real-time model.
_TITAN_X: dict[Setting, dict[str, float]] = {
    Setting(1242, 375, 128, layers=7, iterations=5): {
        "input": 7.6, "pairwise_cnn": 21, "unary_cnn": 262, "correlation": 155, "crf": 309,
    },
    Setting(1242, 375, 256, layers=7, iterations=5): {
        "input": 7.6, "pairwise_cnn": 21, "unary_cnn": 262, "correlation": 287, "crf": 605,
    },
    Setting(640, 480, 128, layers=3, iterations=4): {"total": 285},
}  # fmt: skip


def paper_seconds(setting: Setting) -> dict[str, float]:
    """The paper's times on a GTX Titan X; empty for settings that it does not report.

    It gives no total for KITTI: that is the sum of the components.
    """
    reported = {name: ms / 1e3 for name, ms in _TITAN_X.get(setting, {}).items()}
    return {**reported, "total": sum(reported.values())} if reported else {}


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Slope of the least-squares line through (log size, log seconds); None for a single size."""
    if len(set(sizes)) < 2:
        return None
    x, y = np.log(sizes), np.log(seconds)
    x -= x.mean()
    return float((x * y).sum() / (x * x).sum())


@dataclass(frozen=True)
class Timing:
    """Seconds of one component in every repeat."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to report."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """Fastest and slowest repeat."""
        return min(self.samples), max(self.samples)

    def as_dict(self) -> dict[str, object]:
        """``seconds`` is the median."""
        low, high = self.spread
        return {"seconds": self.median, "min": low, "max": high, "samples": list(self.samples)}


@dataclass(frozen=True)
class PeerComparison:
    """The time of one of our components beside that of a peer."""

    peer: Peer
    component: str
    ours: Timing
    theirs: Timing

    @property
    def speedup(self) -> float:
        """How many times faster we are; below 1 if we are slower."""
        return self.theirs.median / self.ours.median

    def as_dict(self) -> dict[str, object]:
        """The entry of ``comparisons`` in the JSON."""
        return {
            "peer": self.peer.name,
            "label": self.peer.label,
            "component": self.component,
            "seconds": self.ours.median,
            "peer_seconds": self.theirs.median,
            "peer_samples": list(self.theirs.samples),
            "ratio": self.ours.median / self.theirs.median,
            "speedup": self.speedup,
            "difference": self.peer.difference,
        }


@dataclass(frozen=True)
class Run:
    """The measured table of one setting.

    Attributes
    ----------
    setting
        What was run.
    timings, work
        Of every component.
    peak_bytes
        The process's largest resident size after the first prediction; None if unknown.
    estimated_bytes
        The estimate that inference checks before it starts.
    comparisons
        With the peers.
    """

    setting: Setting
    timings: dict[str, Timing]
    work: dict[str, Work]
    peak_bytes: int | None
    estimated_bytes: int
    comparisons: tuple[PeerComparison, ...] = ()

    @property
    def volume_bytes(self) -> int:
        """Size of one float32 cost volume."""
        return 4 * self.setting.pixels * self.setting.disparities

    def flop_rate(self, component: str) -> float | None:
        """Operations per second; None if they are not counted."""
        flop = self.work[component].flop
        return None if flop is None else flop / self.timings[component].median

    def byte_rate(self, component: str) -> float:
        """Bytes per second."""
        return self.work[component].bytes / self.timings[component].median

    def as_dict(self, peaks: Peaks | None) -> dict[str, object]:
        """The entry of ``runs`` in the JSON."""
        return {
            **asdict(self.setting),
            "components": [self._component(name, peaks) for name in self.timings],
            "memory": {
                "peak_bytes": self.peak_bytes,
                "volume_bytes": self.volume_bytes,
                "estimated_bytes": self.estimated_bytes,
            },
            "comparisons": [comparison.as_dict() for comparison in self.comparisons],
        }

    def _component(self, name: str, peaks: Peaks | None) -> dict[str, object]:
        flop_rate, byte_rate = self.flop_rate(name), self.byte_rate(name)
        shares: dict[str, float | None] = {"share_of_sgemm": None, "share_of_copy": None}
        if peaks is not None:
            shares["share_of_copy"] = byte_rate / peaks.byte_rate
            if flop_rate is not None:
                shares["share_of_sgemm"] = flop_rate / peaks.flop_rate
        return {
            "name": name,
            **self.timings[name].as_dict(),
            "gflop_per_second": None if flop_rate is None else flop_rate / 1e9,
            "gbyte_per_second": byte_rate / 1e9,
            **shares,
            "titan_x_seconds": paper_seconds(self.setting).get(name),
        }


@dataclass(frozen=True)
class Scaling:
    """How the times grow with one quantity, ``pixels`` or ``disparities`` of the settings."""

    quantity: str
    runs: tuple[Run, ...]

    @property
    def sizes(self) -> list[int]:
        """The quantity of each run."""
        return [getattr(run.setting, self.quantity) for run in self.runs]

    @property
    def exponents(self) -> dict[str, float | None]:
        """Growth exponent of every component; None if there is only one size."""
        return {
            name: growth_exponent(self.sizes, [run.timings[name].median for run in self.runs])
            for name in self.runs[0].timings
        }

    def as_dict(self) -> dict[str, object]:
        """The entry of ``scaling`` in the JSON."""
        steps = [
            {
                **asdict(run.setting),
                "seconds": {name: timing.median for name, timing in run.timings.items()},
            }
            for run in self.runs
        ]
        return {"exponents": self.exponents, "steps": steps}


@dataclass(frozen=True)
class BenchReport:
    """All results of a benchmark.

    ``peaks`` is None unless the CPU did the work, whose peaks are measured; ``unavailable`` gives
    the reason for each peer that was skipped.  ``throughput`` is None unless it was asked for.
    """

    runs: tuple[Run, ...]
    repeat: int
    device: str
    threads: int
    peaks: Peaks | None
    scalings: tuple[Scaling, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)
    throughput: Throughput | None = None

    def as_dict(self) -> dict[str, object]:
        """The JSON object; the first run is also at its top level."""
        runs = [run.as_dict(self.peaks) for run in self.runs]
        peaks = None
        if self.peaks is not None:
            peaks = {
                "gflop_per_second": self.peaks.flop_rate / 1e9,
                "gbyte_per_second": self.peaks.byte_rate / 1e9,
            }
        return {
            **runs[0],
            "runs": runs,
            "peaks": peaks,
            "scaling": {scaling.quantity: scaling.as_dict() for scaling in self.scalings},
            "unavailable": self.unavailable,
            "throughput": None if self.throughput is None else self.throughput.as_dict(),
            "repeat": self.repeat,
            "device": self.device,
            "threads": self.threads,
            "cpu": cpu_name(),
            "platform": platform.platform(),
            "hybridstereo": __version__,
        }
