"""Speed beside accuracy: models and other programs on a data set, by the rules of `eval`."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import __version__, kernels
from ..datasets import open_dataset
from ..datasets.registry import Roots
from ..device import checked_threads, open_backend
from ..errors import InputError
from ..evaluation.baselines import OpenCvMethod
from ..evaluation.methods import Method, ModelMethod
from ..evaluation.protocol import dataset_rules
from ..evaluation.results import Evaluation
from ..evaluation.runner import OnRun, run
from ..evaluation.scenes import dataset_scenes, select_scenes
from ..limits import COUNT
from ..stereo import Stereo
from ..system import cpu_name
from .elas import ElasMethod, ElasUnavailableError

MODELS = ("general", "general-fast")
"""Those that are measured where none are named."""

# What `bench.peers` calls them, and the evaluation.
_OPENCV = {"sgbm": "sgbm-hh", "sgbm-3way": "sgbm-3way"}


@dataclass(frozen=True)
class AccuracyOptions:
    """What to measure on a data set.

    Attributes
    ----------
    model
        Names or files of models; by default `MODELS`.
    compare
        Some of `peers.PEERS` that make maps: PyTorch has our network only.
    limit
        How many scenes at most.
    device, threads
        As for `Stereo`.
    """

    model: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    limit: int | None = None
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            COUNT.check(self.limit, "`limit` is")
        if "torch" in self.compare:
            raise InputError(
                "PyTorch runs our network and makes no maps of its own",
                "Leave it out of `compare`, or leave out `root`",
            )


@dataclass(frozen=True)
class MethodFigures:
    """Time and error of one method.

    Attributes
    ----------
    name, settings, kind
        As in `evaluation.results.MethodInfo`.
    seconds
        Mean computing time of a pair, without reading files.
    slowest
        That of the slowest pair.
    error
        The figure by which the data set ranks, in percent.
    """

    name: str
    settings: str
    kind: str
    seconds: float
    slowest: float
    error: float


@dataclass(frozen=True)
class SpeedAccuracy:
    """The report: every method's time and error on the same pairs.

    Attributes
    ----------
    dataset, figure, scenes
        What was measured on, which figure, and on how many pairs.
    methods
        Those that gave maps.
    device, threads
        Of the models.
    unavailable
        By name of a method that did not take part, why not.
    """

    dataset: str
    figure: str
    scenes: int
    methods: tuple[MethodFigures, ...]
    device: str
    threads: int
    unavailable: dict[str, str] = field(default_factory=dict)

    @property
    def front(self) -> list[MethodFigures]:
        """Methods that no other one beats in both, the fastest first."""
        best: list[MethodFigures] = []
        for method in sorted(self.methods, key=lambda x: (x.seconds, x.error)):
            if not best or method.error < best[-1].error:
                best.append(method)
        return best

    def as_dict(self) -> dict[str, object]:
        """The JSON object."""
        front = {x.name for x in self.front}
        return {
            "dataset": self.dataset,
            "figure": self.figure,
            "scenes": self.scenes,
            "methods": [
                {
                    "name": x.name,
                    "settings": x.settings,
                    "kind": x.kind,
                    "seconds": x.seconds,
                    "slowest": x.slowest,
                    "pairs_per_second": 1 / x.seconds,
                    "error": x.error,
                    "on_front": x.name in front,
                }
                for x in self.methods
            ],
            "unavailable": self.unavailable,
            "device": self.device,
            "threads": self.threads,
            "cpu": cpu_name(),
            "platform": platform.platform(),
            "hybridstereo": __version__,
        }


def speed_accuracy(
    dataset: str, roots: Roots, options: AccuracyOptions, on_run: OnRun | None = None
) -> SpeedAccuracy:
    """Run models and peers on a data set, scene by scene in turn.

    Parameters
    ----------
    dataset, roots
        As for `evaluation.compare.evaluate_dataset`.
    options
        What to measure.
    on_run
        Called before each run.

    Raises
    ------
    StereoError
        If the data set or a model cannot be used, or no method gave a map.
    """
    rules = dataset_rules(dataset)
    scenes = select_scenes(dataset_scenes(open_dataset(dataset, roots)), (), options.limit)
    threads = checked_threads(options.threads) or kernels.max_threads()
    backend = open_backend(options.device)
    methods: list[Method] = []
    for name in options.model or MODELS:
        methods.append(ModelMethod(name, Stereo(name, backend, options.threads)))
    unavailable = {}
    for name in options.compare:
        try:
            other = (
                ElasMethod()
                if name == "elas"
                else OpenCvMethod(_OPENCV[name], dataset, options.threads)
            )
            methods.append(other)
        except ElasUnavailableError as error:
            unavailable[name] = str(error)
    evaluation = run(dataset, rules, scenes, methods, on_run=on_run)
    figures = _figures(evaluation)
    for failure in evaluation.failures:
        unavailable.setdefault(
            failure.method, f"{failure.scene}, {failure.method}: {failure.error}"
        )
    if not figures:
        raise InputError("No method gave a map", next(iter(unavailable.values())).removesuffix("."))
    return SpeedAccuracy(
        dataset,
        evaluation.primary,
        len(scenes),
        tuple(figures),
        backend.name,
        threads,
        unavailable,
    )


def _figures(evaluation: Evaluation) -> list[MethodFigures]:
    """Of the methods that have results of all scenes: others cannot be compared."""
    found = []
    for info in evaluation.methods:
        seconds = [x.seconds for x in evaluation.results if x.method == info.name]
        taken = [x for x in seconds if x is not None]
        error = evaluation.means[info.name].get(evaluation.primary)
        if error is not None and len(taken) == len(evaluation.scenes):
            mean, slowest = statistics.fmean(taken), max(taken)
            found.append(
                MethodFigures(info.name, info.settings, info.kind, mean, slowest, float(error))
            )
    return found


def describe_scenes(report: SpeedAccuracy) -> str:
    """The first line of table and picture."""
    pairs = "pair" if report.scenes == 1 else "pairs"
    threads = "thread" if report.threads == 1 else "threads"
    return (
        f"{report.dataset}, {report.scenes} {pairs}; {cpu_name()}, {report.device},"
        f" {report.threads} {threads}"
    )


def table_rows(report: SpeedAccuracy) -> Sequence[list[str]]:
    """The cells of the table, with its header."""
    rows = [["", "seconds", "slowest", "pairs/s", f"{report.figure} %"]]
    front = {x.name for x in report.front}
    for x in sorted(report.methods, key=lambda x: x.error):
        name = x.name + (" *" if x.name in front else "")
        cells = [f"{x.seconds:.3f}", f"{x.slowest:.3f}", f"{1 / x.seconds:.3g}", f"{x.error:.2f}"]
        rows.append([name, *cells])
    return rows
