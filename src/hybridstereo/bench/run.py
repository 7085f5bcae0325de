"""`hstereo bench`: the paper's timing table for this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .. import kernels
from ..device import checked_threads, open_backend
from ..features import ConvLayer
from ..kernels import Backend
from ..limits import COUNT, ITERATIONS, LABELS, LAYERS, REPEATS, SIDE
from ..memory import inference_memory, require_memory
from ..model import IMAGE_CHANNELS, PYRAMID, ModelConfig, StereoModel, with_config
from ..options import MatchOptions
from ..stereo import Stereo
from ..synthetic import SceneOptions, generate_scene
from ..system import peak_memory
from .peers import PEERS, Peer, PeerUnavailableError, elas_peer, sgbm_peer, torch_peer
from .report import COMPONENTS, BenchReport, PeerComparison, Run, Scaling, Setting, Timing
from .throughput import Throughput, measure_throughput
from .work import MachinePeaks, count_work

SIZES = {
    "kitti": Setting(1242, 375, 128, layers=7, iterations=5),
    "middlebury-h": Setting(1500, 1000, 256, layers=7, iterations=5),
    "realtime": Setting(640, 480, 128, layers=3, iterations=4),
}
"""Sizes by name, with the settings of the paper."""

_UNARY_CHANNELS, _PAIRWISE_CHANNELS = 100, 64
_SEED = 2017
_LEVEL_WEIGHT = 0.5  # any number but 0, which would mean that there is no such level
# Larger images repeat a scene of this size: more of it would not change what is measured.
_LARGEST_SCENE = 2048
# Points of a scaling curve: the given size, its half, quarter and eighth.
_SCALING_STEPS = 4
_PEAKS = "the machine's peaks"

OnStep = Callable[[str], None]
Sampler = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class BenchOptions:
    """What to measure; None means "as the size says".

    ``size`` is one of `SIZES`; other values replace its own.  ``compare`` names some of
    `peers.PEERS`.  ``pairs``: how many to run through `infer --pairs` and `stream`, too.
    """

    size: str = "kitti"
    width: int | None = None
    height: int | None = None
    disparities: tuple[int, ...] | None = None
    layers: int | None = None
    pyramid: int | None = None
    iterations: int | None = None
    repeat: int = 5
    device: str = "auto"
    threads: int | None = None
    compare: tuple[str, ...] = ()
    scaling: bool = False
    pairs: int | None = None

    def __post_init__(self) -> None:
        given = {
            "width": SIDE,
            "height": SIDE,
            "layers": LAYERS,
            "iterations": ITERATIONS,
            "pairs": COUNT,
        }
        for name, limits in given.items():
            if getattr(self, name) is not None:
                limits.check(getattr(self, name), f"`{name}` is")
        REPEATS.check(self.repeat, "`repeat` is")
        for count in self.disparities or ():
            LABELS.check(count, "The number of `disparities` is")

    @property
    def settings(self) -> tuple[Setting, ...]:
        """One setting for each number of disparities."""
        names = ("width", "height", "layers", "pyramid", "iterations")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        base = replace(SIZES[self.size], **given)
        counts = self.disparities or (base.disparities,)
        return tuple(replace(base, disparities=n) for n in dict.fromkeys(counts))


def random_model(layers: int, pyramid: int = 0) -> StereoModel:
    """The paper's networks with ``layers`` Unary layers; weights N(0, 1/fan-in), fixed seed.

    ``pyramid`` is the number of coarser levels, which the paper does not have.
    """
    rng = np.random.default_rng(_SEED)

    def layer(outputs: int, inputs: int, size: int, biased: bool = True) -> ConvLayer:
        shape = (outputs, inputs, size, size)
        weight = rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(inputs * size**2))
        return ConvLayer(weight, np.zeros(outputs, np.float32) if biased else None)

    wide, narrow = _UNARY_CHANNELS, _PAIRWISE_CHANNELS
    model = StereoModel(
        unary=(layer(wide, IMAGE_CHANNELS, 3), *(layer(wide, wide, 2) for _ in range(layers - 1))),
        pairwise=(
            layer(narrow, IMAGE_CHANNELS, 3),
            layer(narrow, narrow, 3),
            layer(2, narrow, 1, biased=False),
        ),
        config=ModelConfig(edge_model="cnn", weight_scale=1.0),
    )
    return with_config(model, **dict.fromkeys(PYRAMID[:pyramid], _LEVEL_WEIGHT))


def synthetic_pair(width: int, height: int, disparities: int) -> tuple[np.ndarray, np.ndarray]:
    """A generated stereo pair, the same for the same arguments."""
    rows, columns = min(height, _LARGEST_SCENE), min(width, _LARGEST_SCENE)
    largest = max(1.0, min(disparities - 1.0, columns / 4))
    scene = generate_scene(_SEED, SceneOptions(rows, columns, largest, min_disparity=0.0))
    beyond = ((0, height - rows), (0, width - columns), (0, 0))
    return np.pad(scene.left, beyond, mode="wrap"), np.pad(scene.right, beyond, mode="wrap")


def pixel_steps(setting: Setting) -> tuple[Setting, ...]:
    """Settings with 1/8, 1/4, 1/2 and all of the pixels, in the same proportions."""
    steps = {}
    for step in reversed(range(_SCALING_STEPS)):
        width, height = (
            max(1, round(x * 2 ** (-step / 2))) for x in (setting.width, setting.height)
        )
        steps[width * height] = replace(setting, width=width, height=height)
    return tuple(steps.values())


def label_steps(setting: Setting) -> tuple[Setting, ...]:
    """Settings with 1/8, 1/4, 1/2 and all of the labels."""
    counts = [max(1, setting.disparities >> step) for step in reversed(range(_SCALING_STEPS))]
    return tuple(replace(setting, disparities=n) for n in dict.fromkeys(counts))


def interleave(
    samplers: Mapping[str, Sampler], repeat: int, on_step: OnStep
) -> dict[str, dict[str, Timing]]:
    """Take a sample of everything in turn, ``repeat`` times: A B C A B C ...

    Whatever else the machine does, or a processor that grows warm, then hits all of them alike.

    Parameters
    ----------
    samplers
        By name; each does its work once and returns the seconds of its parts.
    repeat, on_step
        How often; called with what begins.

    Returns
    -------
    dict
        ``[sampler][part]`` -> its timing.
    """
    samples: dict[str, list[Mapping[str, float]]] = {name: [] for name in samplers}
    for turn in range(repeat):
        for name, sampler in samplers.items():
            on_step(f"repeat {turn + 1} of {repeat}: {name}")
            samples[name].append(sampler())
    return {
        name: {part: Timing(tuple(sample[part] for sample in taken)) for part in taken[0]}
        for name, taken in samples.items()
    }


def bench(options: BenchOptions | None = None, on_step: OnStep = lambda _step: None) -> BenchReport:
    """Time the model, the machine's peaks and the peers, interleaved in one run.

    Parameters
    ----------
    options
        What to measure; None for the defaults: KITTI's size and the paper's settings.
    on_step
        Called with a short description of each step when it begins.
    """
    options = options or BenchOptions()
    settings = options.settings
    threads = checked_threads(options.threads) or kernels.max_threads()
    backend = open_backend(options.device)
    model = random_model(settings[0].layers, settings[0].pyramid)
    curves: dict[str, tuple[Setting, ...]] = {}
    if options.scaling:
        curves = {"pixels": pixel_steps(settings[0]), "disparities": label_steps(settings[0])}
    every_setting = dict.fromkeys([*settings, *(x for steps in curves.values() for x in steps)])
    for setting in every_setting:
        size = setting.height, setting.width, setting.disparities
        require_memory(model, *size, backend, threads=threads)

    on_step("generating a stereo pair")
    most = max(setting.disparities for setting in settings)
    pair = synthetic_pair(settings[0].width, settings[0].height, most)
    stereo = Stereo(model, backend, threads)
    predictions = {x: _match_sampler(stereo, pair, x) for x in every_setting}
    # Before anything else takes memory: the peers' and the peaks' arrays are not the model's.
    peak_bytes = _warm_up(predictions, on_step)

    on_step("preparing the comparison")
    peers, unavailable = _find_peers(options.compare, settings, model, backend, pair, threads)
    machine = MachinePeaks(threads) if backend.name == "cpu" else None
    samplers: dict[str, Sampler] = {}
    for setting, sampler in predictions.items():
        samplers[str(setting)] = sampler
        samplers |= {peer.label: partial(_sample_peer, peer) for peer in peers.get(setting, ())}
    if machine is not None:
        samplers[_PEAKS] = machine.sample
    timings = interleave(samplers, options.repeat, on_step)
    throughput = None
    if options.pairs is not None:
        throughput = _throughput(stereo, pair, settings[0], options.pairs, on_step)

    peaks = None
    if machine is not None:
        peaks = machine.best(*(x.spread[0] for x in timings[_PEAKS].values()))
    runs = {}
    for setting in every_setting:
        ours = timings[str(setting)]
        size = setting.height, setting.width, setting.disparities
        runs[setting] = Run(
            setting,
            ours,
            count_work(model, *size, setting.iterations),
            peak_bytes[setting],
            inference_memory(model, *size, threads=threads),
            tuple(
                PeerComparison(peer, component, ours[component], timings[peer.label]["total"])
                for peer in peers.get(setting, ())
                for component in peer.components
            ),
        )
    return BenchReport(
        tuple(runs[setting] for setting in settings),
        options.repeat,
        backend.name,
        threads,
        peaks,
        tuple(Scaling(name, tuple(runs[x] for x in steps)) for name, steps in curves.items()),
        unavailable,
        throughput,
    )


def _throughput(
    stereo: Stereo,
    pair: tuple[np.ndarray, np.ndarray],
    setting: Setting,
    count: int,
    on_step: OnStep,
) -> Throughput:
    """Files in and files out, with the first setting."""
    options = MatchOptions(disparities=setting.disparities, iterations=setting.iterations)
    return measure_throughput(stereo, pair, options, count, on_step)


def _match_sampler(
    stereo: Stereo, pair: tuple[np.ndarray, np.ndarray], setting: Setting
) -> Sampler:
    """Times `Stereo.match`, which is all that `hstereo infer` does between reading and writing."""
    left, right = (np.ascontiguousarray(image[: setting.height, : setting.width]) for image in pair)

    def sample() -> dict[str, float]:
        begin = time.perf_counter()
        result = stereo.match(left, right, setting.disparities, iterations=setting.iterations)
        total = time.perf_counter() - begin
        stages = {name: result.seconds[name] for name in COMPONENTS if name in result.seconds}
        return {**stages, "total": total}

    return sample


def _sample_peer(peer: Peer) -> dict[str, float]:
    return {"total": peer.run()}


def _warm_up(predictions: Mapping[Setting, Sampler], on_step: OnStep) -> dict[Setting, int | None]:
    """Compile and run everything once; returns the process's peak memory after each setting.

    That figure never falls, so the small settings go first.
    """
    peak_bytes = {}
    for setting in sorted(predictions, key=lambda x: x.pixels * x.disparities):
        on_step(f"warming up: {setting}")
        predictions[setting]()
        peak_bytes[setting] = peak_memory()
    return peak_bytes


def _find_peers(
    names: Collection[str],
    settings: Sequence[Setting],
    model: StereoModel,
    backend: Backend,
    pair: tuple[np.ndarray, np.ndarray],
    threads: int,
) -> tuple[dict[Setting, list[Peer]], dict[str, str]]:
    """The peers of each setting, warmed up, and why others cannot take part."""
    peers: dict[Setting, list[Peer]] = {setting: [] for setting in settings}
    unavailable = {}
    if "torch" in names:
        try:
            # The network does not depend on the number of disparities: once is enough.
            peers[settings[0]].append(torch_peer(model, backend, *pair, threads))
        except PeerUnavailableError as error:
            unavailable["torch"] = str(error)
    for name in (x for x in PEERS if x in names and x != "torch"):
        for setting, members in peers.items():
            size = *pair, setting.disparities
            try:
                members.append(
                    elas_peer(*size) if name == "elas" else sgbm_peer(*size, threads, name)
                )
            except PeerUnavailableError as error:
                unavailable[name] = str(error)
    for members in peers.values():
        for peer in members:
            peer.run()
    return peers, unavailable
