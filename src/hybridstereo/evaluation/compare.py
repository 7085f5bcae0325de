"""`hstereo eval`: methods side by side on a data set, with the figures of the benchmarks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..datasets import Dataset, open_dataset, rectified
from ..datasets.registry import Roots
from ..device import open_backend
from ..engines.tasks import Engine
from ..errors import InputError
from ..limits import COUNT, FACTOR
from ..models.zoo import DEFAULT_MODEL
from ..options import MatchOptions
from ..stereo import Stereo
from .baselines import SETTINGS, OpenCvMethod
from .components import ComponentTable, component_table
from .methods import FileMethod, MapsMethod, Method, ModelMethod, VolumesMethod
from .protocol import RULES, Rules, dataset_rules
from .results import Evaluation, Sink
from .runner import OnRun, run
from .scenes import Scene, dataset_scenes, folder_scenes, load_files, select_scenes
from .submission import Submission, write_submission

BASELINES = (*SETTINGS, "argmax")


@dataclass(frozen=True)
class EvalOptions:
    """What to compare on a data set.

    Attributes
    ----------
    models
        ``NAME``, ``FILE`` or ``LABEL=FILE`` each; a file may be a run folder.  None: the default
        model, unless only ``maps`` or ``volumes`` are given.
    baselines
        Of `BASELINES`; ``argmax`` stands for the networks of all models without their CRF.
    maps, volumes
        ``LABEL=DIR`` (or ``DIR``) with maps or cost volumes named like the scenes.
    volume_scale
        Factor of the costs in the volumes.
    scenes, limit
        Patterns of scene names, and how many at most.
    match
        How models are run.
    rectify
        Whether all methods get right views whose rows were corrected; maps and volumes that were
        computed elsewhere are what they are.
    compare_default
        Whether the default model stands beside baselines where no model is named.
    """

    models: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    volume_scale: float = 1.0
    scenes: tuple[str, ...] = ()
    limit: int | None = None
    device: str = "auto"
    threads: int | None = None
    match: MatchOptions = field(default_factory=MatchOptions)
    compare_default: bool = True
    rectify: bool = False

    def __post_init__(self) -> None:
        FACTOR.check(self.volume_scale, "`volume_scale` is")
        if self.limit is not None:
            COUNT.check(self.limit, "`limit` is")


@dataclass(frozen=True)
class Comparison:
    """A finished evaluation, the rules it followed, and what the data set warned about."""

    evaluation: Evaluation
    rules: Rules
    warnings: tuple[str, ...] = ()


def evaluate_dataset(
    dataset: str,
    roots: Roots,
    options: EvalOptions,
    sinks: Sequence[Sink] = (),
    on_run: OnRun | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Compare models, baselines and other programs' results on a data set.

    Parameters
    ----------
    dataset
        One of `hybridstereo.datasets.NAMES`.
    roots
        Where it is, as for `open_dataset`.
    options
        What to compare.
    sinks
        Receive maps and figures as they become available.
    on_run
        Called before each run.
    engine
        Whose workers run all methods on a scene each, and find the files under the same names as
        here; None: this process runs them.
    """
    rules = dataset_rules(dataset)
    methods = build_methods(options, dataset)
    opened = open_for(dataset, roots, options)
    scenes = select_scenes(dataset_scenes(opened), options.scenes, options.limit)
    if engine is None:
        evaluation = run(dataset, rules, scenes, methods, sinks, on_run)
    else:
        from .remote import SceneJob, run_on

        infos = tuple(method.info for method in methods)
        job = SceneJob(dataset, roots, options, infos, bool(sinks))
        evaluation = run_on(engine, job, rules, scenes, sinks, on_run)
    return Comparison(evaluation, rules, opened.warnings)


def evaluate_components(
    dataset: str,
    roots: Roots,
    options: EvalOptions,
    sinks: Sequence[Sink] = (),
    on_run: OnRun | None = None,
) -> tuple[Comparison, ComponentTable]:
    """What each part of the model adds, refined and not: the paper's table of components.

    ``options.models`` are run folders, or files with the stages as labels; see `component_table`.
    """
    rules = dataset_rules(dataset)
    models = [named(value) for value in options.models]
    device = open_backend(options.device)
    table = component_table(models, device, options.match, options.threads)
    others: list[Method] = []
    if options.baselines:
        others = build_methods(replace(options, models=(), compare_default=False), dataset)
    opened = open_for(dataset, roots, options)
    scenes = select_scenes(dataset_scenes(opened), options.scenes, options.limit)
    methods = unique_names([*table.methods, *others])
    evaluation = run(dataset, rules, scenes, methods, sinks, on_run)
    return Comparison(evaluation, rules, opened.warnings), table


def open_for(name: str, roots: Roots, options: EvalOptions) -> Dataset:
    """The data set, with corrected right views if they were asked for."""
    opened = open_dataset(name, roots)
    return rectified(opened) if options.rectify else opened


def evaluate_folders(
    truth: Path,
    options: EvalOptions,
    masks: Path | None = None,
    rules: str | None = None,
    sinks: Sequence[Sink] = (),
    on_run: OnRun | None = None,
) -> Comparison:
    """Compare folders of maps (``options.maps``) with a folder of truth maps.

    Parameters
    ----------
    truth, masks
        See `folder_scenes`.
    options
        Only ``maps``, ``scenes`` and ``limit`` apply.
    rules
        A key of `RULES`; None: KITTI's rules for PNG files, Middlebury's for its folders, no
        special rules otherwise.
    sinks, on_run
        As for `evaluate_dataset`.
    """
    if not options.maps:
        raise InputError("There are no maps to evaluate", "Name their folder as `maps`")
    chosen = RULES[rules or _guessed_rules(truth)]
    scenes = select_scenes(folder_scenes(truth, masks), options.scenes, options.limit)
    methods = unique_names([_maps_method(value) for value in options.maps])
    evaluation = run(str(truth), chosen, scenes, methods, sinks, on_run)
    return Comparison(evaluation, chosen)


def evaluate_file(
    prediction: Path,
    truth: Path,
    mask: Path | None = None,
    rules: str | None = None,
    sinks: Sequence[Sink] = (),
) -> Comparison:
    """Compare one map with the truth; what is wrong with the files is raised, not collected."""
    chosen = RULES[rules or _guessed_file_rules(truth)]
    pair = load_files(truth, mask)
    scene = Scene(truth.stem, (truth.stem,), lambda: pair)
    method = FileMethod(prediction)
    method.compute(scene, pair)  # refuses unreadable files at once
    evaluation = run(str(truth), chosen, [scene], [method], sinks)
    if evaluation.failures:
        raise InputError(str(evaluation.failures[0].error).removesuffix("."))
    return Comparison(evaluation, chosen)


def submit(
    benchmark: str,
    root: Path,
    folder: Path,
    options: EvalOptions,
    on_run: OnRun | None = None,
) -> Submission:
    """Write the files that a benchmark wants uploaded, for the one method in ``options``."""
    methods = build_methods(replace(options, compare_default=False), benchmark)
    if len(methods) != 1:
        raise InputError(
            f"A submission is of one method, not of {len(methods)}",
            "Give one of `models` or one of `baselines`",
        )
    return write_submission(benchmark, root, folder, methods[0], on_run)


def build_methods(options: EvalOptions, dataset: str) -> list[Method]:
    """All methods that were asked for, in the order models, baselines, maps, volumes."""
    for name in options.baselines:
        if name not in BASELINES:
            raise InputError(f"There is no baseline '{name}'", f"Use {', '.join(BASELINES)}")
    others = options.baselines or options.maps or options.volumes
    beside = options.compare_default and options.baselines
    models = options.models or ((DEFAULT_MODEL,) if beside or not others else ())
    loaded: list[tuple[str, Stereo]] = []
    if models or options.volumes or "argmax" in options.baselines:
        device = open_backend(options.device)
        names = map(named, models or (DEFAULT_MODEL,))
        loaded = [(label, Stereo(file, device, options.threads)) for label, file in names]
    methods: list[Method] = []
    if models:
        methods += [ModelMethod(name, stereo, options.match) for name, stereo in loaded]
    # What the CRF knows is not there without it.
    alone = replace(options.match, method="argmax", confidence=False, precision="single")
    for name in options.baselines:
        if name == "argmax":
            methods += [ModelMethod(f"{x} argmax", stereo, alone, True) for x, stereo in loaded]
        else:
            # OpenCV has no way to find a range: it gets that of the data set.
            wanted = options.match.disparities
            count = None if wanted == "auto" else wanted
            methods.append(OpenCvMethod(name, dataset, options.threads, count))
    methods += [_maps_method(value) for value in options.maps]
    if options.volumes:
        methods += _volume_methods(options, loaded[0][1])
    return unique_names(methods)


def _volume_methods(options: EvalOptions, stereo: Stereo) -> list[VolumesMethod]:
    """Each folder with the CRF and, beside the baseline ``argmax``, without."""
    ways = [("", replace(options.match, method="crf"))]
    if "argmax" in options.baselines:
        ways.append((" argmax", replace(options.match, method="argmax")))
    return [
        VolumesMethod(label + suffix, existing_folder(folder), stereo, way, options.volume_scale)
        for label, folder in map(named, options.volumes)
        for suffix, way in ways
    ]


def _maps_method(value: str) -> MapsMethod:
    label, folder = named(value)
    return MapsMethod(label, existing_folder(folder))


def existing_folder(name: str) -> Path:
    """The folder, if there is one."""
    if not os.path.isdir(name):
        raise InputError(f"{name} is not a folder", "Give the folder that holds the files")
    return Path(name)


def named(value: str) -> tuple[str, str]:
    """``LABEL=FILE`` -> label and file; without a label the name of the file.

    An existing file may have a ``=`` in its name.
    """
    label, equals, file = value.partition("=")
    if equals and label and file and "/" not in label and not os.path.exists(value):
        return label, file
    path = Path(value)
    return path.stem or str(path), value


def unique_names(methods: Sequence[Method]) -> list[Method]:
    """The methods, if their names are unique."""
    counts = Counter(method.info.name for method in methods)
    for name, count in counts.items():
        if count > 1:
            raise InputError(
                f"{count} methods are called '{name}'",
                f"Name them, for example 'first={name}'; the name goes before the file",
            )
    return list(methods)


def _guessed_rules(truth: Path) -> str:
    if os.path.isdir(truth):
        if any(truth.glob("*/disp0GT.pfm")):
            return "middlebury"
        if any(truth.glob("*.png")):
            return "kitti"
    return "plain"


def _guessed_file_rules(truth: Path) -> str:
    if truth.suffix.lower() == ".png":
        return "kitti"
    return "middlebury" if os.path.isfile(truth.parent / "calib.txt") else "plain"
