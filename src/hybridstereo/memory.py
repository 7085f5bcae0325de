"""How much memory an inference or a training step needs, and whether there is enough of it.

What the machine has is in `system`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .errors import OutOfMemoryError
from .features import ConvLayer
from .kernels import Backend, chain_scratch, max_threads, network_scratch, reusable_memory
from .model import StereoModel
from .strips import FEWEST_ROWS, overlap_of
from .system import available_memory, format_bytes, resident_memory

_FLOAT = 4

# All measured as `tools/memory_check.py` does; docs/reliability.md has the figures.
_NORMALISING = 72  # bytes per pixel while an image is padded and normalised in double precision
_NETWORK_INPUT = 12  # bytes per pixel of what that gives
_MAPS = 24  # bytes per pixel of edge weights, labels and disparities
# Bytes per pixel in strips: the statistics of a complete view, in double precision, and the map.
_WHOLE_VIEWS = 40
# Bytes per pixel for the maps of two views, what is known of them, and comparing them.
_COMPARING = 120
# That a map may take: other programs want to live, too, and the estimate is right to a tenth.
_SHARE_OF_FREE = 0.8
_SMALL = 4 << 20  # everything that does not grow with the image
# What the C library keeps of small arrays that were freed, at most; large ones it gives back.
_KEPT_BY_LIBRARY = 64 << 20
# The kernels keep up to an eighth more than they need at most (`kernels/cpu/buffers.py`).
_KEPT_BY_KERNELS = 1.0625


def inference_memory(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    method: str = "crf",
    threads: int | None = None,
    views: int = 1,
) -> int:
    """Bytes that `Stereo.match` needs at its peak, on top of the interpreter and the images.

    The peak is the largest of three: while the networks run, the features of both views and what
    the threads work with; during the correlation, the features and the volumes of costs, one for
    every level of a pyramid; or, while the CRF runs, two volumes (costs and working costs) and the
    chains that the threads work on.  The costs of a second view are one volume more.

    Parameters
    ----------
    model, height, width, label_count, method
        What is to be computed.
    threads
        How many there are; None: as many as Numba may use.
    views
        2 if the maps of both are computed, be it only to compare them.
    """
    threads = max_threads() if threads is None else threads
    pixels = height * width
    features = _FLOAT * pixels * int(model.unary[-1].weight.shape[0])
    volumes = _volumes(model, height, width, label_count)
    network = 2 * features + _NETWORK_INPUT * pixels + threads * _scratch(model.unary, width)
    most = 2 * features + views * sum(volumes)
    needs = [network, most + _MAPS * pixels]
    if method == "crf":
        normalising = _NORMALISING * pixels if model.pairwise else 0
        working = threads * _scratch(model.pairwise, width)
        needs.append(most + _MAPS * pixels + max(normalising, working))
        solving = most
        # Else the working costs take the place of a view's features.
        if volumes[0] > features or len(volumes) > 1 or views > 1:
            solving = int(_KEPT_BY_KERNELS * max(most, (1 + views) * volumes[0]))
        kept = max(min(normalising, _KEPT_BY_LIBRARY), working)
        chains = threads * chain_scratch(max(height, width), label_count)
        needs.append(solving + _MAPS * pixels + kept + chains)
    return max(needs) + (_COMPARING * pixels if views > 1 else 0) + _SMALL


def _volumes(model: StereoModel, height: int, width: int, label_count: int) -> list[int]:
    """Bytes of the costs of every level of the model's pyramid, the images themselves first."""
    sizes = []
    for _ in range(1 + len(model.config.pyramid)):
        sizes.append(_FLOAT * height * width * label_count)
        height, width, label_count = -(-height // 2), -(-width // 2), label_count // 2 + 1
    return sizes


def _scratch(network: Sequence[ConvLayer], width: int) -> int:
    """Bytes that each thread needs for a network on images of this width."""
    return network_scratch(width, [layer.weight for layer in network]) if network else 0


def device_memory(
    model: StereoModel, height: int, width: int, label_count: int, views: int = 1
) -> int:
    """Bytes of GPU memory that `Stereo.match` needs at its peak.

    Three volumes while the CRF runs, which cannot work in place on a GPU; the features of both
    views and the volumes of all levels; or the features of one view and two layers of the other.
    The costs of a second view are one volume more.
    """
    pixels = height * width
    widest = max(layer.weight.shape[0] for layer in model.unary)
    features = _FLOAT * pixels * model.unary[-1].weight.shape[0]
    volumes = _volumes(model, height, width, label_count)
    return int(
        max(
            (2 + views) * volumes[0],
            2 * features + views * sum(volumes),
            features + 2 * _FLOAT * pixels * widest,
        )
    )


def require_memory(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    backend: Backend | None = None,
    method: str = "crf",
    threads: int | None = None,
    views: int = 1,
) -> None:
    """Refuse an inference that cannot fit, before it starts, and say what would fit.

    What is free is asked of ``backend`` if it has memory of its own, else of the machine; the other
    arguments are those of `inference_memory`.

    Raises
    ------
    OutOfMemoryError
        If more is needed than is free.
    """
    free, on_device = _free_memory(backend)
    needed = _need(model, width, on_device, method, threads, views)
    if free is not None and needed(height, label_count) > free:
        raise _refusal(needed, height, width, label_count, free, on_device)


def rows_at_once(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    backend: Backend | None = None,
    method: str = "crf",
    threads: int | None = None,
    max_memory: int | None = None,
    beside: int = 0,
    views: int = 1,
) -> int:
    """How many rows of an inference fit at once: all, or as many as a strip may have (`strips`).

    Parameters
    ----------
    model, height, width, label_count, backend, method, threads, views
        As for `require_memory`.
    max_memory
        Bytes that the process may use in all, or the GPU; None: most of what is free.
    beside
        Bytes that the caller is going to keep besides; a strip needs none of them.

    Raises
    ------
    OutOfMemoryError
        If not even a low strip fits.
    """
    limit, on_device = _free_memory(backend)
    if max_memory is not None:
        in_use = 0 if on_device else (resident_memory() or 0) - reusable_memory()
        limit = min(x for x in (limit, max(max_memory - in_use, 0)) if x is not None)
    if limit is not None:
        limit = int(_SHARE_OF_FREE * limit)
    needed = _need(model, width, on_device, method, threads, views)
    if limit is None or needed(height, label_count) + beside <= limit:
        return height
    whole = 0
    if not on_device:
        whole = (_WHOLE_VIEWS + (_COMPARING if views > 1 else 0)) * height * width
    overlap = overlap_of(model)

    def fits(rows: int) -> bool:
        return needed(rows, label_count) + whole <= limit

    rows = _largest(fits, 2 * overlap + FEWEST_ROWS, height)
    if rows is None:
        raise _refusal(needed, height, width, label_count, limit, on_device)
    return rows


def _need(
    model: StereoModel, width: int, on_device: bool, method: str, threads: int | None, views: int
) -> Callable[[int, int], int]:
    """Bytes for a number of rows and of labels."""

    def needed(rows: int, count: int) -> int:
        if on_device:
            return device_memory(model, rows, width, count, views)
        return inference_memory(model, rows, width, count, method, threads, views)

    return needed


def _refusal(
    needed: Callable[[int, int], int],
    height: int,
    width: int,
    label_count: int,
    free: int,
    on_device: bool,
) -> OutOfMemoryError:
    """What to say of an inference that does not fit, and what would."""
    fitting = _largest(lambda count: needed(height, count) <= free, 1, label_count)
    return OutOfMemoryError(
        f"{width}x{height} pixels with {label_count} disparities need"
        f" {format_bytes(needed(height, label_count))} of"
        f" {'GPU memory' if on_device else 'memory'} but only {format_bytes(free)} are free",
        "Use smaller images"
        if fitting is None
        else f"Use at most `disparities={fitting}` or smaller images",
    )


def _largest(fits: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest number from ``low`` to below ``high`` that fits; so must all below it."""
    if low >= high or not fits(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


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
