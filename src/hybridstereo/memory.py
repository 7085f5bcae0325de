"""How much memory an inference or a training step needs, and whether there is enough of it.

What the machine has is in `system`.
"""

from __future__ import annotations

from .errors import OutOfMemoryError
from .kernels import Backend, reusable_memory
from .model import StereoModel
from .system import available_memory, format_bytes

_FLOAT = 4


def inference_memory(model: StereoModel, height: int, width: int, label_count: int) -> int:
    """Bytes that `Stereo.match` needs at its peak, on top of the interpreter itself.

    The peak is the largest of three: two cost volumes while the CRF runs (unaries and working
    costs); two feature maps and the first volume during the correlation; or, while the second
    image goes through the network, the features of the first and two layers of the second.
    """
    pixels = height * width
    widest = max(layer.weight.shape[0] for layer in model.unary)
    features = pixels * model.unary[-1].weight.shape[0]
    volume = pixels * label_count
    return _FLOAT * max(2 * volume, 2 * features + volume, features + 2 * pixels * widest)


def device_memory(model: StereoModel, height: int, width: int, label_count: int) -> int:
    """Bytes of GPU memory that `Stereo.match` needs at its peak.

    As `inference_memory`, with a third volume for the CRF, which cannot work in place on a GPU.
    """
    volume = height * width * label_count
    return max(_FLOAT * 3 * volume, inference_memory(model, height, width, label_count))


def require_memory(
    model: StereoModel, height: int, width: int, label_count: int, backend: Backend | None = None
) -> None:
    """Refuse an inference that cannot fit, before it starts, and say what would fit.

    What is free is asked of ``backend`` if it has memory of its own, else of the machine.

    Raises
    ------
    OutOfMemoryError
        If more is needed than is free.
    """
    free, on_device = _free_memory(backend)
    estimate, where = (device_memory, "GPU memory") if on_device else (inference_memory, "memory")
    needed = estimate(model, height, width, label_count)
    if free is None or needed <= free:
        return
    fitting = label_count
    while fitting > 0 and estimate(model, height, width, fitting) > free:
        fitting = fitting * 3 // 4
    raise OutOfMemoryError(
        f"{width}x{height} pixels with {label_count} disparities need {format_bytes(needed)}"
        f" of {where} but only {format_bytes(free)} are free",
        f"Use at most `disparities={fitting}` or smaller images"
        if fitting
        else "Use smaller images",
    )


def volume_memory() -> int | None:
    """Bytes that costs from elsewhere may take on the CPU; None if unknown.

    Half of what is free: the CRF works on a copy.
    """
    free, _ = _free_memory(None)
    return None if free is None else free // 2


def training_memory(model: StereoModel, height: int, width: int, label_count: int) -> int:
    """Bytes that a training step of all parts needs at its peak, on the CPU or a GPU.

    All activations of both images are kept for the backward pass.  Three volumes come on top: the
    costs, the augmented costs and the solver's, or later the costs, their gradient and that of the
    scores, together with the gradients of the features.
    """
    pixels = height * width
    features = pixels * model.unary[-1].weight.shape[0]
    volume = pixels * label_count
    unary, pairwise = (
        pixels * sum(layer.weight.shape[0] for layer in network)
        for network in (model.unary, model.pairwise)
    )
    # Each level of a pyramid is a quarter of the one before; its costs are added out of place.
    levels = len(model.config.pyramid)
    sizes = sum(0.25**level for level in range(levels + 1))
    volumes = 4 if levels else 3
    return int(_FLOAT * (2 * sizes * unary + pairwise + volumes * volume + 2 * features))


def require_training_memory(
    model: StereoModel, height: int, width: int, label_count: int, backend: Backend, pairs: int = 1
) -> None:
    """Refuse a training step on ``pairs`` pairs at once that cannot fit, before it starts."""
    free, on_device = _free_memory(backend)
    needed = pairs * training_memory(model, height, width, label_count)
    if free is not None and needed > free:
        times = f"{pairs} times " if pairs > 1 else ""
        raise OutOfMemoryError(
            f"A training step on {times}{width}x{height} pixels with {label_count} disparities"
            f" needs {format_bytes(needed)} of {'GPU memory' if on_device else 'memory'}"
            f" but only {format_bytes(free)} are free",
            "Use a smaller `crop` or fewer `disparities`",
        )


def _free_memory(backend: Backend | None) -> tuple[int | None, bool]:
    """Bytes free for new arrays, None if unknown, and whether they are in GPU memory."""
    free = None if backend is None else backend.free_memory()
    if free is not None:
        return free, True
    available = available_memory()
    return None if available is None else available + reusable_memory(), False
