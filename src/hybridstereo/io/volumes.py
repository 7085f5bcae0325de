"""Cost volumes as files: what other matchers write, and ours.

========  ======================================================================================
``.npy``  float array (H, W, K), or (K, H, W), or (1, K, H, W)
``.h5``   the dataset ``costs``, or the only one there is, in one of these shapes; attributes
          ``min_disparity`` and ``step`` of the dataset, if they are there
``.bin``  MC-CNN's: nothing but little-endian float32, 1 x K x H x W
========  ======================================================================================

A low cost is a good match.  NaN and +inf mark labels for which the matcher has no cost.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError, OutputError
from hybridstereo.io.atomic import atomic_write, check_writable

VOLUME_SUFFIXES = (".npy", ".h5", ".bin")

_DATASET = "costs"
_MAX_LABELS = 4096
# Deflate reaches about 1:1030 at best: a file that claims more was not written by it.
_MAX_COMPRESSION = 1100
_SHAPES = "(H, W, K), (K, H, W) or (1, K, H, W)"


@dataclass(frozen=True, eq=False)
class CostVolume:
    """Costs of all labels.

    Attributes
    ----------
    costs
        (H, W, K) float32, contiguous; NaN where unknown.
    min_disparity, step
        What the labels stand for: the file's word, else disparities from 0 on.
    """

    costs: NDArray[np.float32]
    min_disparity: float = 0.0
    step: float = 1.0


def check_volume_output(path: str | Path) -> None:
    """Check that `write_volume` will be able to write to ``path``, before the work starts."""
    _suffix(path, OutputError)
    check_writable(path)


def write_volume(
    path: str | Path, costs: NDArray[np.float32], min_disparity: float, step: float
) -> None:
    """Write a volume; the suffix picks the format, and only ``.h5`` keeps the last two arguments.

    Parameters
    ----------
    path
        A name that ends in ``.npy``, ``.h5`` or ``.bin``.
    costs
        (H, W, K).
    min_disparity, step
        What the labels stand for.

    Raises
    ------
    OutputError
        If the suffix is unknown or the file cannot be written.
    """
    suffix = _suffix(path, OutputError)
    with atomic_write(path) as temporary:
        if suffix == ".npy":
            with temporary.open("wb") as stream:
                np.lib.format.write_array(stream, costs, allow_pickle=False)
        elif suffix == ".bin":
            with temporary.open("wb") as stream:
                for label in range(costs.shape[2]):  # one at a time, to avoid a copy of the volume
                    stream.write(costs[:, :, label].astype("<f4").tobytes())
        else:
            _write_h5(temporary, costs, min_disparity, step)


def _write_h5(path: Path, costs: NDArray[np.float32], min_disparity: float, step: float) -> None:
    # Not locked by HDF5: the temporary file is locked already, see `atomic_write`.
    with h5py.File(path, "w", libver="latest", locking=False) as file:
        dataset = file.create_dataset(_DATASET, data=costs)
        dataset.attrs["min_disparity"] = float(min_disparity)
        dataset.attrs["step"] = float(step)


def read_volume(path: str | Path, height: int, width: int, scale: float = 1.0) -> CostVolume:
    """Read the volume of an image of known size.

    Parameters
    ----------
    path
        See the module for the formats.
    height, width
        Size of the left image; the volume must fit it.
    scale
        Factor of the costs.

    Raises
    ------
    InputError
        If the file cannot be read, is not a volume of such an image, or holds -inf.
    """
    name = str(path)
    suffix = _suffix(path, InputError)
    try:
        size = os.stat(path).st_size
        if suffix == ".npy":
            volume = CostVolume(_arranged(_read_npy(name), height, width, name))
        elif suffix == ".bin":
            volume = CostVolume(
                _arranged(_read_bin(name, size, height, width), height, width, name)
            )
        else:
            volume = _read_h5(name, height, width)
    except OSError as error:
        reason = error.strerror or "it is damaged or of another format"
        raise InputError(f"{name} cannot be read: {reason}") from error
    if np.isneginf(volume.costs).any():
        raise InputError(
            f"{name} holds costs of minus infinity",
            "A low cost is a good match; use finite numbers",
        )
    costs = volume.costs  # in memory of our own
    costs[np.isposinf(costs)] = np.nan
    if scale != 1.0:
        costs *= np.float32(scale)
    return volume


def fill_unknown(costs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give unknown labels the highest known cost of their pixel; a pixel without any gets 0.

    Parameters
    ----------
    costs
        (H, W, K), changed in place and returned.
    """
    for row in costs:
        unknown = np.isnan(row)
        if unknown.any():
            worst = np.max(np.where(unknown, -np.inf, row), axis=1, keepdims=True)
            worst[np.isneginf(worst)] = 0.0
            np.copyto(row, worst.astype(np.float32), where=unknown)
    return costs


def checked_costs(costs: Any, left: NDArray[Any]) -> NDArray[Any]:
    """Bring costs that a caller holds to what the CRF takes.

    Parameters
    ----------
    costs
        (H, W, K) numbers, low is good; NaN or +inf where unknown.  Left as they are.
    left
        The left image (H, W, 3), whose size and type the costs are to have.

    Raises
    ------
    InputError
        If they are not the costs of such an image.
    """
    if not isinstance(costs, np.ndarray) or costs.dtype.kind not in "fiu":
        found = costs.dtype if isinstance(costs, np.ndarray) else type(costs).__name__
        raise InputError(f"The costs are {found}", "Give a NumPy array of numbers, (H, W, K)")
    height, width, _ = left.shape
    if costs.ndim != 3 or costs.shape[:2] != (height, width) or costs.shape[2] < 1:
        raise InputError(
            f"The costs have the shape {costs.shape} but the left image is {width}x{height}",
            f"({height}, {width}, K) is needed",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        checked = np.ascontiguousarray(costs, left.dtype)
        # One cost that is not finite makes the sum so, and a sum is much cheaper than a mask.
        if np.isfinite(checked.sum()):
            return checked
    if np.isneginf(checked).any():
        raise InputError("The costs hold minus infinity", "A low cost is a good match")
    if not np.isfinite(checked).any():
        raise InputError("The costs hold no number at all", "Some labels must have a known cost")
    return fill_unknown(np.where(np.isposinf(checked), np.nan, checked).astype(left.dtype))


def _suffix(path: str | Path, error: type[InputError] | type[OutputError]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in VOLUME_SUFFIXES:
        raise error(
            f"{path} is not the name of a cost volume", f"Use one of {', '.join(VOLUME_SUFFIXES)}"
        )
    return suffix


def _read_npy(name: str) -> NDArray[np.floating]:
    try:
        # Mapped, not read: a header that declares more than the file holds is refused by NumPy.
        return np.load(name, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{name} is not a valid NPY file", "Write it again") from error


def _read_bin(name: str, size: int, height: int, width: int) -> NDArray[np.floating]:
    plane = 4 * height * width
    if size == 0 or size % plane:
        raise InputError(
            f"{name} has {size} bytes, which is not a whole number of {width}x{height} planes of"
            " float32",
            "It must hold 1 x K x H x W values for this image",
        )
    return np.memmap(name, "<f4", "r", shape=(size // plane, height, width))


def _read_h5(name: str, height: int, width: int) -> CostVolume:
    with h5py.File(name, "r") as file:
        dataset = _only_dataset(file, name)
        if dataset.is_virtual or dataset.external:
            raise InputError(
                f"{name} takes its data from other files", "Store the costs in the file itself"
            )
        stored = dataset.id.get_storage_size()
        if math.prod(dataset.shape) * dataset.dtype.itemsize > _MAX_COMPRESSION * stored:
            raise InputError(f"{name} declares more data than it holds", "Write it again")
        _check_shape(dataset.shape, dataset.dtype, height, width, name)
        costs = _arranged(dataset[...], height, width, name)
        return CostVolume(
            costs,
            _attribute(dataset, "min_disparity", 0.0, name),
            _attribute(dataset, "step", 1.0, name),
        )


def _only_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    links = {key: file.get(key, getlink=True) for key in file}
    if any(not isinstance(link, h5py.HardLink) for link in links.values()):
        raise InputError(
            f"{name} contains links", "Store the costs as a dataset of the file itself"
        )
    found = [key for key in links if isinstance(file[key], h5py.Dataset)]
    if _DATASET in found:
        return file[_DATASET]
    if len(found) != 1:
        raise InputError(
            f"{name} holds {len(found)} datasets, none called '{_DATASET}'",
            f"Call the volume '{_DATASET}'",
        )
    return file[found[0]]


def _attribute(dataset: h5py.Dataset, key: str, default: float, name: str) -> float:
    try:
        value = float(dataset.attrs.get(key, default))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or (key == "step" and value <= 0):
        raise InputError(f"{name}: the attribute '{key}' is not a usable number")
    return value


def _check_shape(
    shape: tuple[int, ...], dtype: np.dtype, height: int, width: int, name: str
) -> tuple[int, bool]:
    """The number of labels and whether they are the last axis; raises if nothing fits."""
    trimmed = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    if dtype.kind != "f":
        raise InputError(f"{name} holds {dtype}, not floating-point costs")
    last = len(trimmed) == 3 and trimmed[:2] == (height, width)
    first = len(trimmed) == 3 and trimmed[1:] == (height, width)
    if not last and not first:
        raise InputError(
            f"{name} has the shape {shape}, which does not fit an image of {width}x{height} pixels",
            f"The shape must be {_SHAPES} with H = {height}, W = {width}",
        )
    label_count = trimmed[2] if last else trimmed[0]
    if not 1 <= label_count <= _MAX_LABELS:
        raise InputError(f"{name} has {label_count} labels", f"Up to {_MAX_LABELS} are possible")
    return label_count, last


def _arranged(
    stored: NDArray[np.floating], height: int, width: int, name: str
) -> NDArray[np.float32]:
    """Copy a stored array to memory as (H, W, K) float32."""
    label_count, last = _check_shape(stored.shape, stored.dtype, height, width, name)
    if last:
        return np.array(stored.reshape(height, width, label_count), np.float32, order="C")
    planes = stored.reshape(label_count, height, width)
    costs = np.empty((height, width, label_count), np.float32)
    for label in range(label_count):
        costs[:, :, label] = planes[label]
    return costs
