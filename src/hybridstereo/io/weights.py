"""Model files: a small, strict subset of HDF5.

A file holds named tensors and a flat configuration, and nothing else::

    /                       attributes: format, format_version, checksum and the configuration
    /unary/0/weight         one dataset per tensor; groups only give the names their structure
    /unary/0/bias

HDF5 by itself is not safe to read: a dataset can take its bytes from another file, a file of a
kilobyte can declare terabytes, and a flipped bit goes unnoticed. Hence the reader first checks
how everything is stored and only then reads it, and the writer uses the variant of the format
whose metadata carry checksums. What a reader accepts:

* hard links to groups and datasets only, one link to each;
* tensors of float32, float64, int64, uint64 or uint8, little endian, each uncompressed in one
  chunk with a Fletcher-32 checksum;
* together no larger than the file itself;
* attributes that are one UTF-8 text of fixed length, bool, 64-bit integer or 64-bit float;
* a SHA-256 checksum over configuration, names, types, shapes and values that matches.

Equal contents give equal bytes, as long as the version of the HDF5 library is the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5fd, h5g, h5l, h5o, h5p, h5s, h5t, h5z

from hybridstereo.errors import ModelError
from hybridstereo.io.atomic import atomic_write
from hybridstereo.io.files import read_file

FORMAT_NAME = "hybridstereo-model"
FORMAT_VERSION = 1

MAX_FILE_BYTES = 1 << 30
MAX_OBJECTS = 4096
MAX_TEXT_BYTES = 1 << 14

ConfigValue = str | int | float | bool

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_TENSOR_NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+){0,5}")
_CONFIG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_RESERVED = frozenset({"format", "format_version", "checksum"})
_FLETCHER32_BYTES = 4

_STORED_TYPES: dict[np.dtype, h5t.TypeID] = {
    np.dtype("<f4"): h5t.IEEE_F32LE,
    np.dtype("<f8"): h5t.IEEE_F64LE,
    np.dtype("<i8"): h5t.STD_I64LE,
    np.dtype("<u8"): h5t.STD_U64LE,
    np.dtype("u1"): h5t.STD_U8LE,
}
_STORED_BOOL = h5t.py_create(np.dtype(bool), logical=True)

_COPY_AGAIN = "Copy or download it again"


@dataclass(frozen=True)
class WeightFile:
    """What a model file holds.

    Attributes
    ----------
    config
        The configuration that the tensors were made for.
    tensors
        Arrays by slash-separated name, such as ``unary/0/weight``, sorted by name.

    """

    config: dict[str, ConfigValue]
    tensors: dict[str, np.ndarray]


class _RefusedError(Exception):
    """Why a file is not one that `write_weights` made; `read_weights` adds the file's name."""


def write_weights(
    path: str | os.PathLike[str],
    config: Mapping[str, ConfigValue],
    tensors: Mapping[str, np.ndarray],
) -> None:
    """Write a model file, completely or not at all.

    Parameters
    ----------
    path
        Where to write. An existing file is replaced.
    config
        Configuration values: text, bool, integers of 64 bits or finite floats.
    tensors
        Arrays by name; names are lower-case words joined by at most five slashes. A scalar is
        stored, and comes back, as an array of shape (1,).

    Raises
    ------
    ModelError
        If a tensor contains NaN or infinite values, as after a training that diverged.
    OutputError
        If the file cannot be written.
    ValueError, TypeError
        If a name, a value or an array has no place in the format.

    """
    checked_config = {name: _checked_value(name, config[name]) for name in sorted(config)}
    checked_tensors = {name: _checked_tensor(name, tensors[name]) for name in sorted(tensors)}
    for name, tensor in checked_tensors.items():
        if not _is_finite(tensor):
            raise ModelError(
                f"{path} was not written: {name} contains NaN or infinite values",
                hint="Train with a smaller learning rate",
            )
    groups = sorted({group for name in checked_tensors for group in _parents(name)})
    if both := checked_tensors.keys() & groups:
        raise ValueError(f"{min(both)} names both a tensor and a group of tensors")
    image = _encode(checked_config, groups, checked_tensors)
    if len(image) > MAX_FILE_BYTES or len(groups) + len(checked_tensors) > MAX_OBJECTS:
        raise ValueError(f"{len(checked_tensors)} tensors, {len(image)} bytes: too large a model")
    with atomic_write(path) as temporary:
        temporary.write_bytes(image)


def read_weights(path: str | os.PathLike[str]) -> WeightFile:
    """Read a model file written by `write_weights`.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    WeightFile
        Its configuration and tensors, verified against the checksums in the file.

    Raises
    ------
    ModelError
        If the file is missing or unreadable, is not a model file, is damaged, or was written by
        a newer version of hybridstereo.

    """
    image = read_file(path, MAX_FILE_BYTES, ModelError)
    if not image.startswith(_SIGNATURE):
        raise ModelError(
            f"{path} is not a model file", hint="Give a file that hstereo wrote, usually *.h5"
        )
    try:
        # From memory: the bytes that are read are those that were checked, and HDF5's file
        # locking, which fails on some network drives, never comes into play.
        with h5py.File(io.BytesIO(image), "r") as file:
            version = _read_version(file)
            if version == FORMAT_VERSION:
                return _decode(file, len(image))
    except _RefusedError as refusal:
        raise ModelError(f"{path} cannot be used as a model: {refusal}") from refusal
    except Exception as error:  # h5py raises nearly every built-in type on a damaged file
        raise ModelError(f"{path} is damaged or cut short", hint=_COPY_AGAIN) from error
    raise ModelError(
        f"{path} has version {version} of the model format, this program reads {FORMAT_VERSION}",
        hint="Upgrade hybridstereo" if version > FORMAT_VERSION else None,
    )


# --- checks of what is to be written -----------------------------------------------------------


def _checked_value(name: str, value: ConfigValue) -> ConfigValue:
    """Return a configuration value, or raise if the format cannot hold it exactly."""
    if not _CONFIG_NAME.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"{name!r} cannot name a configuration value")
    if isinstance(value, str):
        if "\0" in value or len(value.encode()) > MAX_TEXT_BYTES:
            raise ValueError(f"{name}: the text contains a null character or is too long")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} = {value} is not finite")
    elif isinstance(value, int):  # bool is an int, too
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} = {value} does not fit into 64 bits")
    else:
        raise TypeError(f"{name}: a {type(value).__name__} cannot be a configuration value")
    return value


def _checked_tensor(name: str, tensor: np.ndarray) -> np.ndarray:
    """Return a tensor in little endian, C order, or raise if the format cannot hold it."""
    if not _TENSOR_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a tensor")
    dtype = tensor.dtype.newbyteorder("<")
    if dtype not in _STORED_TYPES:
        raise TypeError(f"{name}: {tensor.dtype} tensors cannot be stored")
    if tensor.size == 0:
        raise ValueError(f"{name}: a tensor needs at least one element")
    return np.ascontiguousarray(np.atleast_1d(tensor), dtype=dtype)


def _is_finite(tensor: np.ndarray) -> bool:
    """Whether a tensor is free of NaN and infinity; integers always are."""
    return tensor.dtype.kind != "f" or bool(np.isfinite(tensor).all())


def _checksum(config: Mapping[str, ConfigValue], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over everything that `read_weights` returns, as hexadecimal text."""
    outline = {
        "config": dict(config),
        "tensors": {name: [array.dtype.str, array.shape] for name, array in tensors.items()},
    }
    digest = hashlib.sha256(json.dumps(outline, sort_keys=True, allow_nan=False).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


# --- writing -----------------------------------------------------------------------------------


def _encode(
    config: Mapping[str, ConfigValue], groups: list[str], tensors: Mapping[str, np.ndarray]
) -> bytes:
    """Build the file in memory, so that HDF5 cannot fail half-way on a full disk."""
    # Times of creation would make equal models differ, and not every version of h5py that we
    # support lets its high-level calls switch them off for groups.
    file_properties = h5p.create(h5p.FILE_CREATE)
    file_properties.set_obj_track_times(False)
    group_properties = h5p.create(h5p.GROUP_CREATE)
    group_properties.set_obj_track_times(False)
    # The oldest variant of the format in which all metadata carry checksums.
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    buffer = io.BytesIO()
    access.set_fileobj_driver(h5fd.fileobj_driver, buffer)

    file_id = h5f.create(b"model", h5f.ACC_TRUNC, fcpl=file_properties, fapl=access)
    with h5py.File(file_id) as file:
        root = file["/"].id
        _write_attribute(root, "format", FORMAT_NAME)
        _write_attribute(root, "format_version", FORMAT_VERSION)
        _write_attribute(root, "checksum", _checksum(config, tensors))
        for name, value in config.items():
            _write_attribute(root, name, value)
        for group in groups:  # parents first, thanks to the order
            h5g.create(root, group.encode(), gcpl=group_properties)
        for name, tensor in tensors.items():
            file.create_dataset(
                name, data=tensor, chunks=tensor.shape, fletcher32=True, track_times=False
            )
    return buffer.getvalue()


def _parents(name: str) -> list[str]:
    """Names of the groups around a tensor: a, a/b for a/b/c."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _write_attribute(root: h5g.GroupID, name: str, value: ConfigValue) -> None:
    """Attach one value directly; h5py's own way goes through a randomly named attribute."""
    raw: np.ndarray
    if isinstance(value, str):
        # Fixed length: HDF5 keeps texts of variable length in a heap that has no checksum.
        text = value.encode()
        stored = h5t.py_create(h5py.string_dtype("utf-8", max(1, len(text))), logical=True)
        raw = np.array(text, dtype=f"S{max(1, len(text))}")
    elif isinstance(value, bool):
        stored, raw = _STORED_BOOL, np.array(value)
    elif isinstance(value, int):
        stored, raw = h5t.STD_I64LE, np.array(value, dtype="<i8")
    else:
        stored, raw = h5t.IEEE_F64LE, np.array(value, dtype="<f8")
    h5a.create(root, name.encode(), stored, h5s.create(h5s.SCALAR)).write(raw, mtype=stored)


# --- reading: first how everything is stored, then the values ----------------------------------


def _read_version(file: h5py.File) -> int:
    """Return the version of the format, which determines how the rest is read."""
    names = {"format", "format_version"}
    if not names <= set(file.attrs) or _read_attribute(file, "format") != FORMAT_NAME:
        raise _RefusedError("it is an HDF5 file, but not one that hybridstereo wrote")
    version = _read_attribute(file, "format_version")
    if type(version) is not int:
        raise _RefusedError("its format version is not a number")
    return version


def _decode(file: h5py.File, file_bytes: int) -> WeightFile:
    """Check the structure of a file of version 1, then read and verify it."""
    if len(file.attrs) > MAX_OBJECTS:
        raise _RefusedError(f"it has more than {MAX_OBJECTS} attributes")
    datasets = _find_datasets(file["/"].id)
    outline = {name: _check_storage(name, datasets[name]) for name in sorted(datasets)}
    if sum(math.prod(shape) * dtype.itemsize for shape, dtype in outline.values()) > file_bytes:
        raise _RefusedError("it declares more data than it holds")

    attributes = {name: _read_attribute(file, name) for name in sorted(file.attrs)}
    config = {name: value for name, value in attributes.items() if name not in _RESERVED}
    tensors = {}
    for name, (shape, dtype) in outline.items():
        tensors[name] = np.empty(shape, dtype)
        datasets[name].read(h5s.ALL, h5s.ALL, tensors[name])
        if not _is_finite(tensors[name]):
            raise _RefusedError(f"{name} contains NaN or infinite values")
    if attributes.get("checksum") != _checksum(config, tensors):
        raise _RefusedError("it is damaged, its contents do not match their checksum")
    return WeightFile(config, tensors)


def _find_datasets(root: h5g.GroupID) -> dict[str, h5d.DatasetID]:
    """Walk through all groups and collect the datasets, following nothing but hard links."""
    datasets: dict[str, h5d.DatasetID] = {}
    pending = [("", root)]
    objects = 0
    while pending:
        prefix, group = pending.pop()
        objects += group.get_num_objs()
        if objects > MAX_OBJECTS:
            raise _RefusedError(f"it has more than {MAX_OBJECTS} entries")
        for link in list(group):
            name = prefix + link.decode("utf-8")
            if not _TENSOR_NAME.fullmatch(name):  # limits the depth as well
                raise _RefusedError(f"{name!r} cannot name a tensor")
            if group.links.get_info(link).type != h5l.TYPE_HARD:
                raise _RefusedError(f"{name} is a link to another place or file")
            info = h5o.get_info(group, link)
            if info.rc != 1:  # several names for one object: cycles, or data counted twice
                raise _RefusedError(f"{name} is stored under more than one name")
            if info.type == h5o.TYPE_GROUP:
                pending.append((f"{name}/", h5o.open(group, link)))
            elif info.type == h5o.TYPE_DATASET:
                datasets[name] = h5o.open(group, link)
            else:
                raise _RefusedError(f"{name} is neither a tensor nor a group")
    return datasets


def _check_storage(name: str, dataset: h5d.DatasetID) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and type of a dataset that is stored exactly as `_encode` would store it."""
    # The layout comes first: merely asking a virtual dataset, which is a view of other files, for
    # its shape could open those.
    properties = dataset.get_create_plist()
    if properties.get_layout() != h5d.CHUNKED or properties.get_external_count() > 0:
        raise _RefusedError(f"{name} is not stored as a chunk inside the file")
    filters = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
    if filters != [h5z.FILTER_FLETCHER32]:
        raise _RefusedError(f"{name} is compressed or has no checksum")
    space = dataset.get_space()
    shape = tuple(int(size) for size in space.get_simple_extent_dims())
    if not properties.get_chunk() == space.get_simple_extent_dims(True) == shape:
        raise _RefusedError(f"{name} is not stored in one piece")
    stored = dataset.get_type()
    dtype = next((known for known, ours in _STORED_TYPES.items() if ours.equal(stored)), None)
    if dtype is None:
        raise _RefusedError(f"{name} has a data type that models do not use")
    if dataset.get_storage_size() != math.prod(shape) * dtype.itemsize + _FLETCHER32_BYTES:
        raise _RefusedError(f"{name} declares more data than the file holds")
    return shape, dtype


def _read_attribute(file: h5py.File, name: str) -> ConfigValue:
    """Read one attribute, provided that it is a single value of a type that we write."""
    attribute = file.attrs.get_id(name)
    stored = attribute.get_type()
    is_text = isinstance(stored, h5t.TypeStringID) and not stored.is_variable_str()
    known = (_STORED_BOOL, h5t.STD_I64LE, h5t.IEEE_F64LE)
    if (
        attribute.get_space().get_simple_extent_type() != h5s.SCALAR
        or stored.get_size() > MAX_TEXT_BYTES
        or not (is_text or any(stored.equal(other) for other in known))
        or not _CONFIG_NAME.fullmatch(name)
    ):
        raise _RefusedError(f"its attribute {name!r} has a name or type that models do not use")
    value = file.attrs[name]
    return value.decode("utf-8") if is_text else value.item()
