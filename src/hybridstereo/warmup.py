"""Kernels compiled before they are needed: all of them, or beside a command that needs some now.

Numba compiles one function at a time in a process, whatever the number of threads.  A second
process can compile others meanwhile: the first run of a command then takes little more than half
as long.  Which process compiles what is settled by `hybridstereo.kernels.claims`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from .device import open_backend
from .kernels import Backend, select
from .kernels.cuda.cudalib import driver_installed
from .kernels.diskcache import cache_folder, heard_when_compiling, nothing_kept

# Small arrays of the shapes that the model has: more would not compile more.
_HEIGHT, _WIDTH, _LABELS, _CHANNELS = 6, 9, 16, 16
_P1, _P2 = 0.1, 0.3
_PAIR_HEIGHT, _PAIR_WIDTH = 24, 40  # of a whole pair


def _volume(labels: int = _LABELS, height: int = _HEIGHT, width: int = _WIDTH) -> np.ndarray:
    return np.linspace(-1, 0, height * width * labels, dtype=np.float32).reshape(height, width, -1)


def _features() -> np.ndarray:
    return _volume(_CHANNELS)


def _map(kind: type = np.float32) -> np.ndarray:
    return np.ones((_HEIGHT, _WIDTH), kind)


def _layer(inputs: int, size: int) -> np.ndarray:
    return np.full((_CHANNELS, inputs, size, size), 0.01, np.float32)


def _first_layer(on: Backend) -> None:
    on.conv_forward(on.to_device(_volume(3)), on.to_device(_layer(3, 3)), None, True)


def _inner_layers(on: Backend) -> None:
    on.conv_forward(on.to_device(_features()), on.to_device(_layer(_CHANNELS, 2)), None, True)


def _correlation(on: Backend) -> None:
    features = on.to_device(_features())
    on.correlation_forward(features, features, np.arange(_LABELS))


def _mutual(on: Backend) -> None:
    sums = on.to_device(_map())
    on.mutual_forward(on.to_device(_volume()), sums, _WIDTH, np.arange(_LABELS))


def _pyramid(on: Backend) -> None:
    coarse = _volume(_LABELS // 2 + 1, _HEIGHT // 2, -(-_WIDTH // 2))
    on.upsample_forward(on.to_device(_volume()), on.to_device(coarse), 0.5)


def _dual_mm(on: Backend) -> None:
    weights = on.to_device(_map())
    on.dual_mm(on.to_device(_volume()), weights, weights, _P1, _P2, 1)


def _labels(on: Backend) -> None:
    volume, weights = on.to_device(_volume()), on.to_device(_map())
    label_map = on.read_out(volume)
    on.energy(volume, weights, weights, _P1, _P2, label_map)
    on.refine(volume, label_map, 1.0)


def _other_edges_and_labels(on: Backend) -> None:
    """What only some models and options need."""
    on.contrast_weights(on.to_device(_volume(3)), 1.0, 1.0, 1.0)
    on.magnitude_forward(on.to_device(_volume(2)), 1.0)
    volume = on.to_device(_volume())
    on.argmin(volume)
    on.mutual_forward(volume, on.to_device(_map()), _WIDTH, np.arange(_LABELS) / 2)
    on.carry_into(on.to_device(_volume()), volume, volume, 0.5)


def _backward(on: Backend) -> None:
    """The gradients of training."""
    volume, features, weights = (on.to_device(x) for x in (_volume(), _features(), _map()))
    for x, weight in ((_volume(3), _layer(3, 3)), (_features(), _layer(_CHANNELS, 2))):
        image, kernels = on.to_device(x), on.to_device(weight)
        y = on.conv_forward(image, kernels, None, True)
        on.conv_backward(y, image, kernels, y, True)
    disparities = np.arange(_LABELS)
    on.mutual_backward(volume, volume, weights, weights, disparities)
    on.scores_backward(on.softmax_backward(volume, volume), features, features, disparities)
    coarse = on.to_device(_volume(_LABELS // 2 + 1, _HEIGHT // 2, -(-_WIDTH // 2)))
    on.upsample_backward(volume, coarse, 0.5)
    on.magnitude_backward(weights, weights, on.to_device(_volume(2)), 1.0)
    truth, valid = on.to_device(_map(np.int32)), on.to_device(_map(bool))
    count = _HEIGHT * _WIDTH
    on.cross_entropy(volume, weights, truth, valid, count, True)
    on.augment_costs(volume, truth, valid, 1.0, 1.0)
    on.hinge_gradients(volume, weights, weights, _P1, _P2, truth, truth, valid, count)
    on.error_rate(on.negated_softmax(volume, -1.0), weights, valid, count, 1.0, 1.0)
    on.dual_mm_backward(volume, weights, weights, _P1, _P2, 1, volume)


STEPS: dict[str, Callable[[Backend], None]] = {
    "first layer": _first_layer,
    "inner layers": _inner_layers,
    "correlation": _correlation,
    "mutual softmax": _mutual,
    "pyramid": _pyramid,
    "CRF": _dual_mm,
    "labels": _labels,
    "other edges and labels": _other_edges_and_labels,
    "training": _backward,
}
"""What is compiled together, in the order in which a command comes to need it."""

# What other processes compile beside a command, each in its order: what the command comes to last,
# first.  The last steps are those in which they meet, and wait for each other.
_BESIDE = (
    ("CRF", "labels", "pyramid", "correlation"),
    ("inner layers", "correlation", "pyramid"),
    ("correlation", "mutual softmax", "labels", "pyramid"),
)


def compile_steps(
    steps: Sequence[str], device: str = "cpu", on_step: Callable[[str], None] | None = None
) -> None:
    """Compile the kernels of some of `STEPS`, and keep them for other processes."""
    backend = select(device)
    for name in steps:
        if on_step is not None:
            on_step(name)
        STEPS[name](backend)


@contextmanager
def compiling_beside(device: str = "auto", threads: int | None = None) -> Iterator[None]:
    """Inside the block, other processes compile what this one comes to need, if anything.

    They begin at once if no kernels of this version are kept, else with the first one that is
    missing, and end with the block.  Nothing is started for a GPU, for one thread, on one core, or
    where kernels cannot be kept.

    Parameters
    ----------
    device, threads
        As for `Stereo`.
    """
    helpers: list[subprocess.Popen[bytes]] = []
    most = min(_cores() - 1, len(_BESIDE)) if threads is None or threads > 1 else 0
    if most < 1 or device.startswith("cuda") or (device == "auto" and driver_installed()):
        yield
        return

    def start() -> None:
        if not helpers:
            with suppress(OSError):  # no more processes are allowed here: it takes longer
                for steps in _BESIDE[:most]:
                    helpers.append(_started(steps))

    def on_compiling() -> None:
        if cache_folder().folder is not None:
            start()

    try:
        if nothing_kept():
            start()
        with heard_when_compiling(on_compiling):
            yield
    finally:
        for helper in helpers:
            helper.kill()  # what it has compiled is kept
            helper.wait()


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Modules are looked for where this process does, and never in the working folder.  Garbage is left
# to the end, which comes soon.
_CODE = (
    "import gc, os, sys; gc.disable(); sys.path[:] = sys.argv[1].split('\\n');"
    " from hybridstereo.warmup import compile_steps; compile_steps(sys.argv[2:]); os._exit(0)"
)


def _started(steps: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that compiles the kernels of some steps."""
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, "\n".join(sys.path), *steps],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # The arrays are tiny: threads would only be started and stopped.
        env={**os.environ, "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def warm_up(
    models: Sequence[str] = ("general",),
    device: str = "auto",
    training: bool = True,
    on_step: Callable[[str], None] | None = None,
) -> None:
    """Compile every kernel that hybridstereo has, and keep them for other processes.

    Parameters
    ----------
    models
        Names or files of models to run once on a small pair.  The CPU's kernels are the same for
        all models; those of a GPU depend on the numbers of channels.
    device
        As for `Stereo`.
    training
        Whether those of training, too.
    on_step
        Called with what begins.

    Raises
    ------
    StereoError
        If a model or the device cannot be used.
    """
    from .stereo import Stereo  # which helpers do not need

    chosen = open_backend(device).name
    compile_steps([x for x in STEPS if training or x != "training"], chosen, on_step)
    left = np.random.default_rng(0).random((_PAIR_HEIGHT, _PAIR_WIDTH, 3), np.float32)
    for model in models:
        if on_step is not None:
            on_step(f"model {model}")
        stereo = Stereo(model, chosen)
        pair = left, np.roll(left, -2, axis=1)
        stereo.match(*pair, disparities=_LABELS, fill=True, confidence=True)
        stereo.find_range(*pair)
