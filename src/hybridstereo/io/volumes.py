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
from typing import Any, Literal

import h5py
import numpy as np
from h5py import h5z
from numpy.typing import NDArray

from hybridstereo.errors import (
    InputError,
    OutOfMemoryError,
    OutputError,
    StereoError,
    shortened,
)
from hybridstereo.io.atomic import atomic_write, check_writable
from hybridstereo.io.files import checked_size, explained
from hybridstereo.io.npy import read_npy_header
from hybridstereo.limits import DISPARITY, FACTOR, LABELS, STEP, Limits

VOLUME_SUFFIXES = (".npy", ".h5", ".bin")

_DATASET = "costs"
_FLOAT = 4  # bytes
_LARGEST_VOLUME = 1 << 40
_LARGE_CHUNK = 1 << 20  # elements
_FILTERS = {
    h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32, h5z.FILTER_LZF,
    h5z.FILTER_SCALEOFFSET,
}  # fmt: skip
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


def read_volume(
    path: str | Path, height: int, width: int, scale: float = 1.0, max_bytes: int | None = None
) -> CostVolume:
    """Read the volume of an image of known size.

    Parameters
    ----------
    path
        See the module for the formats.
    height, width
        Size of the left image; the volume must fit it.
    scale
        Factor of the costs.
    max_bytes
        What the costs may take in memory, 4 bytes each; None: anything.

    Raises
    ------
    InputError
        If the file cannot be read, is not a volume of such an image, or holds -inf.
    OutOfMemoryError
        If it needs more than ``max_bytes``.
    """
    name = str(path)
    FACTOR.check(scale, "The factor of the costs is")
    read = {".npy": _read_npy, ".bin": _read_bin, ".h5": _read_h5}[_suffix(path, InputError)]
    # What is stored as float64, and the header.
    checked_size(path, 2 * _LARGEST_VOLUME)
    try:
        volume = read(name, _Fit(name, height, width, max_bytes))
    except OSError as error:
        if error.strerror:
            raise explained(path, error, InputError) from error
        raise InputError(f"{name} is damaged or of another format", "Write it again") from error
    costs = volume.costs  # in memory of our own
    with np.errstate(over="ignore"):
        if scale != 1.0:
            costs *= np.float32(scale)
    if np.isneginf(costs).any():
        raise InputError(
            f"{name} holds costs of minus infinity",
            "A low cost is a good match; use finite numbers",
        )
    costs[np.isposinf(costs)] = np.nan
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


@dataclass(frozen=True)
class _Fit:
    """What a volume must fit: the name of its file, the image, the memory."""

    name: str
    height: int
    width: int
    max_bytes: int | None

    def label_count(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, bool]:
        """The number of labels and whether they are the last axis; raises if nothing fits."""
        trimmed = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
        if dtype.kind != "f":
            raise InputError(f"{self.name} holds {shortened(dtype)}, not floating-point costs")
        size = self.height, self.width
        last = len(trimmed) == 3 and trimmed[:2] == size
        first = len(trimmed) == 3 and trimmed[1:] == size
        if not last and not first:
            raise InputError(
                f"{self.name} has the shape {shortened(shape)}, which does not fit an image of"
                f" {self.width}x{self.height} pixels",
                f"The shape must be {_SHAPES} with H = {self.height}, W = {self.width}",
            )
        count = trimmed[2] if last else trimmed[0]
        LABELS.check(count, f"The number of labels in {self.name} is")
        needed = math.prod(trimmed) * _FLOAT
        if self.max_bytes is not None and needed > self.max_bytes:
            raise OutOfMemoryError(
                f"{self.name} needs {needed} bytes of memory but only {self.max_bytes} are free",
                "Use fewer labels or smaller images",
            )
        return count, last

    def arranged(self, stored: NDArray[np.floating]) -> NDArray[np.float32]:
        """Copy a stored array to memory as (H, W, K) float32."""
        count, last = self.label_count(stored.shape, stored.dtype)
        with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite
            if last:
                shape = self.height, self.width, count
                return np.array(stored.reshape(shape), np.float32, order="C")
            planes = stored.reshape(count, self.height, self.width)
            costs = np.empty((self.height, self.width, count), np.float32)
            for label in range(count):
                costs[:, :, label] = planes[label]
        return costs


def _read_npy(name: str, fit: _Fit) -> CostVolume:
    with open(name, "rb") as stream:
        shape, columns_first, dtype = read_npy_header(stream, name)
        start = stream.tell()
    fit.label_count(shape, dtype)
    expected = start + math.prod(shape) * dtype.itemsize
    if os.stat(name).st_size != expected:
        raise InputError(
            f"{name} is cut short or has data after its end: {shape} of {dtype} make {expected}"
            f" bytes, but it has {os.stat(name).st_size}",
            "Write it again",
        )
    order: Literal["F", "C"] = "F" if columns_first else "C"
    return CostVolume(fit.arranged(np.memmap(name, dtype, "r", start, shape, order)))


def _read_bin(name: str, fit: _Fit) -> CostVolume:
    plane = _FLOAT * fit.height * fit.width
    size = os.stat(name).st_size
    if size % plane:
        raise InputError(
            f"{name} has {size} bytes, which is not a whole number of {fit.width}x{fit.height}"
            " planes of float32",
            "It must hold 1 x K x H x W values for this image",
        )
    shape = size // plane, fit.height, fit.width
    fit.label_count(shape, np.dtype("<f4"))
    return CostVolume(fit.arranged(np.memmap(name, "<f4", "r", shape=shape)))


def _read_h5(name: str, fit: _Fit) -> CostVolume:
    try:
        with h5py.File(name, "r") as file:
            dataset = _only_dataset(file, name)
            _check_storage(dataset, fit)
            return CostVolume(
                fit.arranged(dataset[...]),
                _attribute(dataset, "min_disparity", 0.0, DISPARITY, name),
                _attribute(dataset, "step", 1.0, STEP, name),
            )
    except (StereoError, MemoryError):
        raise
    except Exception as error:  # h5py raises nearly every built-in type on a damaged file
        raise InputError(f"{name} is damaged or of another format", "Write it again") from error


def _check_storage(dataset: h5py.Dataset, fit: _Fit) -> None:
    """Refuse what is not in the file, is of another shape, or would unpack to far too much."""
    # The layout comes first: merely asking a virtual dataset for its shape could open other files.
    if dataset.is_virtual or dataset.external:
        raise InputError(
            f"{fit.name} takes its data from other files", "Store the costs in the file itself"
        )
    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(index)[0] for index in range(properties.get_nfilters())}
    if not filters <= _FILTERS:
        raise InputError(
            f"{fit.name} is packed by a filter that h5py does not bring along", "Use gzip or none"
        )
    fit.label_count(dataset.shape, dataset.dtype)
    size = math.prod(dataset.shape)
    # A chunk is unpacked as a whole, even if most of it lies outside the volume.
    too_much = math.prod(dataset.chunks or ()) > max(size, _LARGE_CHUNK)
    stored = dataset.id.get_storage_size()
    if too_much or size * dataset.dtype.itemsize > _MAX_COMPRESSION * stored:
        raise InputError(f"{fit.name} declares more data than it holds", "Write it again")


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


def _attribute(dataset: h5py.Dataset, key: str, default: float, limits: Limits, name: str) -> float:
    stored = dataset.attrs.get(key, default)
    try:
        value = float(stored)
    except (TypeError, ValueError):
        value = math.nan
    limits.check(value, f"{name}: the attribute '{key}' is")
    return value
