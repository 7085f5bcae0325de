"""How much memory an inference or a training step needs, and whether there is enough of it.

What the machine has is in `system`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .errors import OutOfMemoryError
from .features import ConvLayer
from .kernels import (
    Backend,
    chain_scratch,
    gradient_scratch,
    max_threads,
    network_passes,
    network_scratch,
    reusable_memory,
)
from .labels import LabelRange
from .model import StereoModel
from .system import available_memory, format_bytes, resident_memory
from .tiles import (
    ImageTile,
    fewest_columns,
    fewest_rows,
    plan_tiles,
    whole,
    widest_other,
    widths_to_try,
)
from .work import stage_work

_FLOAT = 4

# All measured as `tools/memory_check.py` does; docs/reliability.md has the figures.
_NORMALISING = 40  # bytes per pixel while an image is padded and normalised
_NETWORK_INPUT = 12  # bytes per pixel of what that gives
_MAPS = 24  # bytes per pixel of edge weights, labels and disparities
# Bytes per pixel of the whole image, if there are tiles: the statistics of a view, in double
# precision, and later the map.
_WHOLE_VIEWS, _WHOLE_MAP = 40, 8
_OTHER_MAPS = 20  # bytes per pixel of what is kept of the other view
# Bytes per pixel for the maps of both views, what is known of them, and comparing them, up to the
# confidence: its terms exist one after the other, single precision, for all rows at once.
_COMPARING = 88
# That a map may take: other programs want to live, too, and the estimate is right to a tenth.
_SHARE_OF_FREE = 0.8
_SMALL = 4 << 20  # everything that does not grow with the image
# What the C library keeps of small arrays that were freed, at most; large ones it gives back.
_KEPT_BY_LIBRARY = 64 << 20
# The kernels keep up to a sixteenth more than they need at most (`kernels/cpu/buffers.py`).
_KEPT_BY_KERNELS = 1.03


def inference_memory(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    method: str = "crf",
    threads: int | None = None,
    right_width: int | None = None,
    views: int = 1,
    precision: str = "single",
) -> int:
    """Bytes that `Stereo.match` needs at its peak, on top of the interpreter and the images.

    The peak is the larger of two: while the networks run and their features are correlated, the
    features of some rows of both views, what the threads work with and the volumes of costs, one
    for every level of a pyramid; or, while the CRF runs, two volumes (costs and working costs) and
    the chains that the threads work on.  The costs of a second view are one volume more; when both
    are compared, what the kernels keep is still there.  In half precision the working costs lie in
    the memory of the costs.

    Parameters
    ----------
    model, height, width, label_count, method
        What is to be computed.
    threads
        How many there are; None: as many as Numba may use.
    right_width
        Columns of the other view, which are more in a tile; None: as many as of its own.
    views
        2 if the maps of both are computed, be it only to compare them.
    precision
        Of the CRF.
    """
    threads = max_threads() if threads is None else threads
    pixels = height * width
    right_width = width if right_width is None else right_width
    band = -(-height // network_passes(height, threads))
    channels = int(model.unary[-1].weight.shape[0])
    features = _FLOAT * band * (width + right_width) * channels
    volumes = _volumes(model, height, width, label_count)
    inputs = _NETWORK_INPUT * height * (width + right_width)
    network = inputs + threads * _scratch(model.unary, max(width, right_width))
    most = features + views * sum(volumes)
    needs = [most + max(network, _MAPS * pixels)]
    # What the kernels have worked with for the first view waits for the second one.
    pool, maps = most, _MAPS * pixels
    if views > 1:
        pool, maps = int(_KEPT_BY_KERNELS * most), maps + _OTHER_MAPS * pixels
    if method == "crf":
        normalising = _NORMALISING * pixels if model.pairwise else 0
        working = threads * _scratch(model.pairwise, width)
        needs.append(pool + maps + max(normalising, working))
        # Else the working costs take the place of the features.
        in_place = precision == "half"
        if not in_place and (volumes[0] > features or len(volumes) > 1 or views > 1):
            pool = int(_KEPT_BY_KERNELS * max(most, (1 + views) * volumes[0]))
        kept = max(min(normalising, _KEPT_BY_LIBRARY), working)
        chains = threads * chain_scratch(max(height, width), label_count, in_place)
        needs.append(pool + maps + kept + chains)
    if views > 1:
        needs.append(pool + _COMPARING * pixels)
    return max(needs) + _SMALL


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
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    right_width: int | None = None,
    views: int = 1,
) -> int:
    """Bytes of GPU memory that `Stereo.match` needs at its peak.

    Three volumes while the CRF runs, which cannot work in place on a GPU; the features of both
    views and the volumes of all levels; or the features of one view and two layers of the other.
    The costs of a second view are one volume more.
    """
    right = height * (width if right_width is None else right_width)
    widest = max(layer.weight.shape[0] for layer in model.unary)
    last = model.unary[-1].weight.shape[0]
    features = _FLOAT * (height * width + right) * last
    volumes = _volumes(model, height, width, label_count)
    layers = _FLOAT * (height * width * last + 2 * right * widest)
    return int(max((2 + views) * volumes[0], features + views * sum(volumes), layers))


def require_memory(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    backend: Backend | None = None,
    method: str = "crf",
    threads: int | None = None,
    views: int = 1,
    precision: str = "single",
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
    needed = memory_need(model, on_device, method, threads, views, precision)
    if free is not None and needed(height, width, label_count) > free:
        fitting = _largest(lambda count: needed(height, width, count) <= free, 1, label_count)
        raise OutOfMemoryError(
            f"{width}x{height} pixels with {label_count} disparities need"
            f" {format_bytes(needed(height, width, label_count))} of {_kind(on_device)}"
            f" but only {format_bytes(free)} are free",
            _advice(fitting),
        )


def tiles_that_fit(
    model: StereoModel,
    height: int,
    width: int,
    label_range: LabelRange,
    backend: Backend | None = None,
    method: str = "crf",
    threads: int | None = None,
    max_memory: int | None = None,
    beside: int = 0,
    views: int = 1,
    precision: str = "single",
) -> list[ImageTile]:
    """The tiles in which an inference fits: one, or those that take the least time (`tiles`).

    Parameters
    ----------
    model, height, width, backend, method, threads, views, precision
        As for `require_memory`.
    label_range
        What is searched.
    max_memory
        Bytes that the process may use in all, or the GPU; None: most of what is free.
    beside
        Bytes that the caller is going to keep besides; a tile needs none of them.

    Raises
    ------
    OutOfMemoryError
        If not even small tiles fit.
    """
    limit, on_device = usable_memory(backend, max_memory)
    needed = memory_need(model, on_device, method, threads, views, precision)
    if limit is None or needed(height, width, label_range.count) + beside <= limit:
        return whole(height, width)
    # Before the tiles the statistics, beside them the maps; a tile is of one view.
    maps = _WHOLE_MAP + (_COMPARING if views > 1 else 0)
    room = limit if on_device else limit - maps * height * width
    if not on_device and _WHOLE_VIEWS * height * width > limit:
        room = 0
    needed = memory_need(model, on_device, method, threads, precision=precision)

    def work(tiles: list[ImageTile]) -> float:
        one_by_one = (stage_work(model, tile, label_range.count, method) for tile in tiles)
        return sum(sum(stages.values()) for stages in one_by_one)

    plans = []
    for columns in widths_to_try(width, model):
        right = widest_other(width, columns, label_range, model)

        def fits(rows: int, columns: int = columns, right: int = right) -> bool:
            return needed(rows, columns, label_range.count, right) <= room

        rows = height if fits(height) else _largest(fits, fewest_rows(model), height)
        if rows is not None:
            plans.append(plan_tiles(height, width, (rows, columns), label_range, model))
    if plans:
        return min(plans, key=work)
    least = min(height, fewest_rows(model)), min(width, fewest_columns(model))

    def least_need(count: int) -> int:
        # The right part has the columns of all labels.
        return needed(*least, count, min(width, least[1] + int(count * label_range.step)))

    fitting = _largest(lambda count: least_need(count) <= room, 1, label_range.count)
    bounded, held = max_memory is not None and limit < (usable_memory(backend)[0] or 0), ""
    if bounded and not on_device:
        held = f" beside the {format_bytes(_memory_in_use())} that the program holds"
    raise OutOfMemoryError(
        f"{width}x{height} pixels with {label_range.count} disparities need"
        f" {format_bytes(needed(height, width, label_range.count))} of {_kind(on_device)}, but"
        f" {format_bytes(limit)} may be used{held}, which is too little even for small tiles",
        f"Give more `max_memory`, or {_advice(fitting, 'use')}" if bounded else _advice(fitting),
    )


def usable_memory(
    backend: Backend | None = None, max_memory: int | None = None
) -> tuple[int | None, bool]:
    """Bytes that new arrays may take, None if unknown, and whether they are in GPU memory.

    Arguments as for `tiles_that_fit`.
    """
    limit, on_device = _free_memory(backend)
    if max_memory is not None:
        in_use = 0 if on_device else _memory_in_use()
        limit = min(x for x in (limit, max(max_memory - in_use, 0)) if x is not None)
    return None if limit is None else int(_SHARE_OF_FREE * limit), on_device


def _memory_in_use() -> int:
    """Bytes that the process holds and that new arrays cannot take over."""
    return (resident_memory() or 0) - reusable_memory()


def memory_need(
    model: StereoModel,
    on_device: bool,
    method: str,
    threads: int | None,
    views: int = 1,
    precision: str = "single",
) -> Callable[..., int]:
    """Bytes, of main memory or of a GPU's, that a map takes at its peak.

    A function of its rows, columns and labels and, if they are more, the columns of the other view.
    """

    def needed(rows: int, columns: int, count: int, right: int | None = None) -> int:
        if on_device:
            return device_memory(model, rows, columns, count, right, views)
        return inference_memory(
            model, rows, columns, count, method, threads, right, views, precision
        )

    return needed


def _kind(on_device: bool) -> str:
    return "GPU memory" if on_device else "memory"


def _advice(fitting: int | None, use: str = "Use") -> str:
    """What helps, where at most so many labels fit."""
    if fitting is None:
        return f"{use} smaller images"
    return f"{use} at most `disparities={fitting}` or smaller images"


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


def training_memory(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    minorant_iterations: int = 0,
    on_device: bool = False,
) -> int:
    """Bytes that a training step of all parts needs at its peak, on the CPU or a GPU.

    All activations of both images are kept for the backward pass.  Three volumes come on top: the
    costs, the augmented costs and the solver's, or later the costs, their gradient and that of the
    scores, together with the gradients of the features.

    Parameters
    ----------
    minorant_iterations
        Of Dual_MM, if the gradient goes through it, else 0: then the costs at the beginning of
        every sweep are kept, two in an iteration, beside the gradients of what a sweep begins and
        ends with and the one that is added up.
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
    most = _FLOAT * (volumes * volume + 2 * features)
    if minorant_iterations:
        scratch = gradient_scratch(height, width, label_count, on_device)
        swept = _FLOAT * (volumes + 2 * minorant_iterations) * volume
        most = max(most, swept + scratch)
    return int(_FLOAT * (2 * sizes * unary + pairwise) + most)


def require_training_memory(
    model: StereoModel,
    height: int,
    width: int,
    label_count: int,
    backend: Backend,
    pairs: int = 1,
    minorant_iterations: int = 0,
) -> None:
    """Refuse a training step on ``pairs`` pairs at once that cannot fit, before it starts.

    ``minorant_iterations`` as for `training_memory`.
    """
    free, on_device = _free_memory(backend)
    size = height, width, label_count
    needed = pairs * training_memory(model, *size, minorant_iterations, on_device)
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
