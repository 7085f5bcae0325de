"""`hstereo infer`: two image files in, a disparity map out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import kernels
from .errors import DeviceError, InputError
from .io.color import colorize
from .io.disparity import check_output, write_disparity
from .io.images import check_image_output, is_standard_stream, read_image, read_pair, write_image
from .io.volumes import check_volume_output, fill_unknown, read_volume, write_volume
from .labels import LabelRange
from .memory import inference_memory, peak_memory, require_memory
from .model import Prediction, StageClock, StereoModel, predict, predict_from_volume, unary_volume
from .models.zoo import DEFAULT_MODEL, load_model


@dataclass(frozen=True)
class InferOptions:
    """What the user asked for; None means "as the model says".

    ``disparities`` is the exact number of labels unless ``paper_labels`` rounds it.  ``volume`` is
    a file of matching costs to use instead of the network's, multiplied by ``volume_scale``;
    ``save_volume`` and ``save_volume_crf`` name files for the costs before and after the CRF.
    """

    model: str = DEFAULT_MODEL
    disparities: int | None = None
    min_disparity: float | None = None
    step: float | None = None
    paper_labels: bool = False
    iterations: int | None = None
    method: str | None = None
    refine: bool | None = None
    device: str = "auto"
    threads: int | None = None
    volume: str | None = None
    volume_scale: float = 1.0
    save_volume: str | None = None
    save_volume_crf: str | None = None


@dataclass(frozen=True)
class InferReport:
    """A finished inference: the prediction, the files written and what it took."""

    prediction: Prediction
    outputs: dict[str, str]
    model: str
    method: str
    device: str
    threads: int
    volume_bytes: int
    estimated_bytes: int

    def as_dict(self) -> dict[str, object]:
        """The object that ``--json`` prints."""
        prediction = self.prediction
        height, width = prediction.disparity.shape
        labels = prediction.labels
        bounds = None if prediction.bounds is None else [float(x) for x in prediction.bounds]
        return {
            "outputs": self.outputs,
            "model": self.model,
            "method": self.method,
            "device": self.device,
            "threads": self.threads,
            "width": width,
            "height": height,
            "labels": {
                "count": labels.count,
                "min_disparity": labels.minimum,
                "max_disparity": labels.maximum,
                "step": labels.step,
            },
            "energy": prediction.energy,
            "lower_bounds": None if bounds is None else bounds[1::2],
            "lower_bounds_per_sweep": bounds,
            "seconds": {**prediction.seconds, "total": sum(prediction.seconds.values())},
            "memory": {
                "peak_bytes": peak_memory(),
                "volume_bytes": self.volume_bytes,
                "estimated_bytes": self.estimated_bytes,
            },
        }


def choose_labels(options: InferOptions, model: StereoModel, width: int) -> LabelRange:
    """The labels asked for, or the model's.

    A default range is not allowed to exceed the image's width: no pixel could have such a
    disparity, and the labels would only cost time.
    """
    default = model.config.labels
    minimum = default.minimum if options.min_disparity is None else options.min_disparity
    step = default.step if options.step is None else options.step
    count = options.disparities
    if count is None:
        span = (default.count - 1) * default.step
        count = int(min(span, max(width - 1, 0)) / step) + 1
    labels = LabelRange(float(minimum), count, float(step))
    return labels.paper_rounding() if options.paper_labels else labels


def choose_backend(device: str, threads: int | None) -> kernels.Backend:
    """The operations of a device, with the number of CPU threads set."""
    if threads is not None:
        if threads > kernels.max_threads():
            raise InputError(
                f"--threads {threads} is more than the {kernels.max_threads()} that numba allows",
                "Set NUMBA_NUM_THREADS to allow more threads than cores",
            )
        kernels.set_threads(threads)
    try:
        backend = kernels.select(device)
    except kernels.DeviceUnavailableError as error:
        raise DeviceError(f"CUDA cannot be used: {error.reason}", error.fix) from error
    if device == "auto" and (note := kernels.explain_choice(backend)):
        print(note, file=sys.stderr)
    return backend


def infer(
    left: str,
    right: str | None,
    output: str,
    color: str | None,
    options: InferOptions | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> InferReport:
    """Compute the disparity map of a pair of image files and write it.

    Parameters
    ----------
    left, right
        Image files; ``-`` for one of them reads standard input.  With ``options.volume`` the right
        one is not needed.
    output
        ``.pfm``, ``.png`` (KITTI), ``.npy`` or ``.tif`` file; ``-`` writes PFM to standard output.
    color
        Colour picture to write as well, or None.
    options
        Model, labels, method, device; None for the defaults.
    on_stage
        Called with the name of each stage when it begins.
    """
    options = options or InferOptions()
    model = load_model(options.model)
    method = options.method or model.config.method
    _check_request(right, output, color, options, method)
    backend = choose_backend(options.device, options.threads)
    if right is None or options.volume is not None:
        left_image = right_image = read_image(left)  # a given volume makes the right one idle
    else:
        left_image, right_image = read_pair(left, right)
    height, width, _ = left_image.shape
    clock = StageClock(on_stage, backend.synchronize)
    costs: Any = None
    if options.volume is not None:
        costs, labels = _read_costs(options, height, width, clock)
    else:
        labels = choose_labels(options, model, width)
        require_memory(model, height, width, labels.count, backend)
        if options.save_volume or options.save_volume_crf:
            costs = unary_volume(model, backend, left_image, right_image, labels, clock)

    if costs is None:
        prediction = predict(
            model,
            backend,
            left_image,
            right_image,
            labels=labels,
            method=method,
            iterations=options.iterations,
            refine=options.refine,
            on_stage=on_stage,
        )
        volumes = {}
    else:
        found = predict_from_volume(
            model,
            backend,
            left_image,
            costs,
            labels,
            method=method,
            iterations=options.iterations,
            refine=options.refine,
            clock=clock,
        )
        prediction = found.prediction
        volumes = _write_volumes(options, labels, backend, costs, found.minorant)
    return InferReport(
        prediction,
        write_results(prediction.disparity, output, color) | volumes,
        options.model,
        method,
        backend.name,
        kernels.max_threads() if options.threads is None else options.threads,
        height * width * labels.count * np.dtype(np.float32).itemsize,
        inference_memory(model, height, width, labels.count),
    )


def _check_request(
    right: str | None, output: str, color: str | None, options: InferOptions, method: str
) -> None:
    """Refuse what can be refused before the work, not after it."""
    check_output(output)
    if color is not None:
        check_image_output(color)
    for path in (options.save_volume, options.save_volume_crf):
        if path is not None:
            check_volume_output(path)
    if options.save_volume_crf is not None and method != "crf":
        raise InputError(
            "There are no costs after the CRF with --method argmax",
            "Use --method crf or leave out --save-volume-crf",
        )
    if options.volume is None:
        if right is None:
            raise InputError("The right image is missing", "Only --volume works without it")
    elif options.disparities is not None or options.paper_labels:
        raise InputError(
            "A cost volume has a fixed number of labels",
            "Leave out --disparities and --paper-labels",
        )


def _read_costs(
    options: InferOptions, height: int, width: int, clock: StageClock
) -> tuple[np.ndarray, LabelRange]:
    """The costs of another matcher, with a cost for every label, and what the labels stand for."""
    with clock.stage("reading"):
        volume = read_volume(str(options.volume), height, width)
        costs = fill_unknown(volume.costs)
        if options.volume_scale != 1.0:
            costs *= np.float32(options.volume_scale)
    minimum = options.min_disparity
    if minimum is None:
        minimum = 0.0 if volume.min_disparity is None else volume.min_disparity
    step = options.step
    if step is None:
        step = 1.0 if volume.step is None else volume.step
    return costs, LabelRange(float(minimum), costs.shape[2], float(step))


def _write_volumes(
    options: InferOptions,
    labels: LabelRange,
    backend: kernels.Backend,
    costs: Any,
    minorant: Any,
) -> dict[str, str]:
    """Write the volumes that were asked for; returns what was written where."""
    outputs = {}
    wanted = {
        "volume": (options.save_volume, costs),
        "volume_crf": (options.save_volume_crf, minorant),
    }
    for name, (path, values) in wanted.items():
        if path is not None and values is not None:
            write_volume(path, backend.to_host(values), labels.minimum, labels.step)
            outputs[name] = path
    return outputs


def write_results(disparity: np.ndarray, output: str, color: str | None) -> dict[str, str]:
    """Write the map and the picture; returns what was written where."""
    outputs = {}
    write_disparity(output, disparity)
    if not is_standard_stream(output):
        outputs["disparity"] = output
    if color is not None:
        write_image(color, colorize(disparity))
        outputs["color"] = color
    return outputs


def default_outputs(left: str) -> tuple[str, str]:
    """Map and picture in the working directory, named after the left image."""
    stem = "stdin" if is_standard_stream(left) else Path(left).stem
    return f"{stem}_disparity.pfm", f"{stem}_disparity.png"
