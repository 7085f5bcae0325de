"""The authors' published parameters: `params.npz` and the `key = value` file beside it.

Both formats are those of the program that accompanies the paper. Nothing here runs a model: the
readers check that a file is one of the published variants and return its numbers.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np

from hybridstereo.errors import ModelError, shortened
from hybridstereo.io.files import read_file

MAX_PARAMETER_BYTES = 1 << 26
MAX_CONFIG_BYTES = 1 << 16

UNARY_FEATURES = 100
"""Output channels of every unary layer; no pairwise layer has as many, which tells them apart."""

_LAYER_COUNTS = (3, 5, 7)
_INPUT_CHANNELS = (3, 5)  # RGB, and with the coordinates x, y
_LEGACY_PAIRWISE_SHAPE = (2, UNARY_FEATURES, 3, 3)
_MEMBER_NAME = re.compile(r"arr_(0|[1-9][0-9]{0,3})\.npy")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_COPY_AGAIN = "Copy or download it again"

Layer: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class PublishedParameters:
    """Parameters of one published model, kernels as stored: for true convolution.

    Attributes
    ----------
    unary
        Kernel (out, in, kh, kw) and bias (out,) of each layer of the Unary-CNN, float32. The
        first layer has 3 input channels, or 5 if the coordinates x, y are inputs as well.
    pairwise
        The same for the Pairwise-CNN, whose last layer has no bias; empty if there is none.
    penalties
        P1 and P2 as the training left them, if the file has them. The authors' program ignores
        these and takes L1 and L2 of the configuration.

    """

    unary: list[Layer]
    pairwise: list[tuple[np.ndarray, np.ndarray | None]]
    penalties: tuple[float, float] | None


@dataclass(frozen=True)
class PublishedConfig:
    """Settings of one published model; what the file leaves out has the program's default.

    The defaults of `matching`, `inference` and `refinement` are ours, since those of the program
    are not documented. `given` lists what the file actually sets.

    Attributes
    ----------
    matching
        COLORCNN for contrast-sensitive edge weights, COLORPAIR for the Pairwise-CNN.
    num_layers
        Layers of the Unary-CNN.
    inference
        CRF, ARGMAX (no CRF) or NONE.
    disp_min, disp_max, disp_step
        The labels as disparities.
    lambda_, alpha, beta
        Contrast-sensitive weights, w = λ exp(-α |difference|^β).
    L1, L2, delta
        Penalty of label steps by one and of larger ones; `delta` is always 2.
    crf_iterations
        Iterations of the CRF solver, each one row and one column sweep.
    with_xy
        Whether the coordinates are inputs of the Unary-CNN.
    refinement
        Method of the sub-label refinement.
    given
        Names of the fields above that the file sets.
    unknown
        Keys that we do not use, with their values.

    """

    matching: str = "COLORCNN"
    num_layers: int = 7
    inference: str = "CRF"
    disp_min: float = 1.0
    disp_max: float = 128.0
    disp_step: float = 1.0
    lambda_: float = 0.4
    L1: float = 1.0
    L2: float = 12.0
    delta: float = 2.0
    alpha: float = 20.0
    beta: float = 0.8
    crf_iterations: int = 4
    with_xy: bool = False
    refinement: str = "NONE"
    given: frozenset[str] = frozenset()
    unknown: dict[str, str] = field(default_factory=dict)


class _UnusableError(Exception):
    """Why parameters cannot be used; `read_published_parameters` adds the file's name."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


# --- parameters --------------------------------------------------------------------------------


def read_published_parameters(path: str | os.PathLike[str]) -> PublishedParameters:
    """Read a `params.npz` as the authors published it.

    Parameters
    ----------
    path
        An uncompressed .npz with the arrays arr_0, arr_1, ...; pickles are refused.

    Returns
    -------
    PublishedParameters
        The layers, with shapes that fit together and finite values.

    Raises
    ------
    ModelError
        If the file cannot be read, is damaged, or holds no model that we can run.

    """
    if PurePath(path).suffix.lower() in {".pkl", ".pickle"}:
        raise ModelError(
            f"{path} is a pickle, and opening a pickle can run any code hidden in it",
            hint="Use the .npz beside it; if there is none and you trust the source, load the list "
            "of arrays once in Python with pickle.load(file, encoding='latin1') and save it with "
            "numpy.savez('params.npz', *arrays)",
        )
    contents = read_file(path, MAX_PARAMETER_BYTES, ModelError)
    if not contents.startswith(b"PK"):
        raise ModelError(
            f"{path} is not an .npz file", hint="Give the params.npz of a published model"
        )
    try:
        return _split_arrays(_load_arrays(contents))
    except _UnusableError as error:
        raise ModelError(f"{path} cannot be used as a model: {error}", hint=error.hint) from error


def _load_arrays(contents: bytes) -> list[np.ndarray]:
    """Return arr_0, arr_1, ... in numerical order as float32, after a check of all sizes."""
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            # A flipped bit in a length can swallow entries, and zipfile does not count them. The
            # number is in the record of 22 bytes that ends an archive without a comment.
            if struct.unpack("<H", contents[-12:-10]) != (len(archive.infolist()),):
                raise _UnusableError("its list of contents is damaged", _COPY_AGAIN)
            members = _list_members(archive, len(contents))
            return [_load_array(member.filename, archive.read(member)) for member in members]
    except _UnusableError:
        raise
    except Exception as error:  # zipfile and numpy raise nearly every type on damaged files
        raise _UnusableError("it is damaged or cut short", _COPY_AGAIN) from error


def _list_members(archive: zipfile.ZipFile, archive_bytes: int) -> list[zipfile.ZipInfo]:
    """Return the entries of an archive that holds arr_0.npy, arr_1.npy, ... and nothing else."""
    members: dict[int, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        match = _MEMBER_NAME.fullmatch(member.filename)
        if match is None or int(match[1]) in members:
            raise _UnusableError(f"it contains {member.filename!r}, where arr_<n>.npy belongs")
        if member.compress_type != zipfile.ZIP_STORED:
            raise _UnusableError("it is compressed", hint="Save it with numpy.savez")
        members[int(match[1])] = member
    if sorted(members) != list(range(len(members))):
        raise _UnusableError(f"arrays are missing, it has only the numbers {sorted(members)}")
    # Nothing is compressed, so larger sums can only come from entries that share their bytes.
    if sum(member.file_size for member in members.values()) > archive_bytes:
        raise _UnusableError("it declares more data than it holds")
    # The archives list arr_10 before arr_2 or in no order at all.
    return [members[number] for number in sorted(members)]


def _load_array(name: str, contents: bytes) -> np.ndarray:
    """Decode one .npy file whose header tells the truth about its size."""
    stream = io.BytesIO(contents)
    with warnings.catch_warnings():
        # Files of 2017 may well have headers written by Python 2.
        warnings.simplefilter("ignore")
        if np.lib.format.read_magic(stream) != (1, 0):
            raise _UnusableError(f"{name} is not in version 1.0 of the .npy format")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind != "f":
        raise _UnusableError(f"{name} holds {dtype} values instead of floating-point numbers")
    if math.prod(shape) * dtype.itemsize != len(contents) - stream.tell():
        raise _UnusableError(f"{name} has the shape {shape}, which does not fit its size")
    values = np.frombuffer(contents, dtype, offset=stream.tell())
    values = values.reshape(shape, order="F" if fortran_order else "C")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite: caught below
        array = values.astype(np.float32, order="C")
    if array.size == 0 or not np.isfinite(array).all():
        raise _UnusableError(f"{name} is empty or contains NaN or infinite values")
    return array


def _split_arrays(arrays: list[np.ndarray]) -> PublishedParameters:
    """Tell the arrays apart by their shapes.

    The order is always unary layers, pairwise layers, P1, P2; all but the first are optional.
    """
    if any(array.shape == _LEGACY_PAIRWISE_SHAPE for array in arrays):
        raise _UnusableError(
            "it has a single pairwise layer on top of the first unary layer, an early variant "
            "that the authors' own program cannot run either",
            hint="Use the parameters of a model with a Pairwise-CNN (cnn+crf+full) instead",
        )
    rest = list(arrays)
    scalars: list[float] = []
    while rest and rest[-1].size == 1:
        scalars.insert(0, float(rest.pop().item()))
    if len(scalars) not in (0, 2):
        raise _UnusableError(f"it ends in {len(scalars)} single numbers instead of P1 and P2")

    unary: list[Layer] = []
    while rest and rest[0].ndim == 4 and rest[0].shape[0] == UNARY_FEATURES:
        if len(rest) < 2:
            raise _UnusableError("the last unary layer has no bias")
        unary.append((rest[0], rest[1]))
        del rest[:2]
    _check_unary(unary)
    pairwise = _pair_pairwise(rest) if rest else []
    return PublishedParameters(unary, pairwise, (scalars[0], scalars[1]) if scalars else None)


def _check_unary(layers: list[Layer]) -> None:
    """Raise unless these are 3, 5 or 7 layers of the published kind."""
    if len(layers) not in _LAYER_COUNTS:
        raise _UnusableError(f"it has {len(layers)} unary layers instead of 3, 5 or 7")
    inputs = layers[0][0].shape[1]
    if inputs not in _INPUT_CHANNELS:
        raise _UnusableError(f"its first layer has {inputs} input channels instead of 3 or 5")
    for number, layer in enumerate(layers, start=1):
        shape = (UNARY_FEATURES, UNARY_FEATURES, 2, 2)
        if number == 1:
            shape = (UNARY_FEATURES, inputs, 3, 3)
        _check_layer(f"unary layer {number}", *layer, shape)


def _pair_pairwise(arrays: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Return V1, b, V2, b, V3 as layers, or raise if the arrays are something else."""
    if len(arrays) != 5:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise _UnusableError(f"it has arrays of an unknown purpose, of shape {shortened(shapes)}")
    layers = [(arrays[0], arrays[1]), (arrays[2], arrays[3]), (arrays[4], None)]
    first, second = arrays[1].size, arrays[3].size
    _check_layer("pairwise layer 1", *layers[0], (first, 3, 3, 3))
    _check_layer("pairwise layer 2", *layers[1], (second, first, 3, 3))
    _check_layer("pairwise layer 3", *layers[2], (2, second, 1, 1))
    return layers


def _check_layer(
    name: str, weight: np.ndarray, bias: np.ndarray | None, shape: tuple[int, ...]
) -> None:
    """Raise unless a kernel has a given shape and its bias one number per output channel."""
    if weight.shape != shape:
        raise _UnusableError(f"{name} has the shape {weight.shape} instead of {shape}")
    if bias is not None and bias.shape != shape[:1]:
        raise _UnusableError(f"the bias of {name} has the shape {bias.shape}, not {shape[:1]}")


# --- configuration -----------------------------------------------------------------------------


def read_published_config(path: str | os.PathLike[str]) -> PublishedConfig:
    """Read a configuration of the authors' program.

    Parameters
    ----------
    path
        A text file of `key = value` lines; `#` starts a comment.

    Returns
    -------
    PublishedConfig
        The settings, with the program's defaults for what the file leaves out.

    Raises
    ------
    ModelError
        If the file cannot be read, a line is not understood, a value is out of range, or the
        values do not fit together.

    """
    try:
        text = read_file(path, MAX_CONFIG_BYTES, ModelError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not a text file") from error
    values: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise ModelError(
                f"{path}, line {number}: '{shortened(line)}' is not of the form key = value"
            )
        if key not in _KEYS:
            unknown[key] = value
            continue
        name, parse = _KEYS[key]
        if name in values:
            raise ModelError(f"{path}, line {number}: {key} is set a second time")
        try:
            values[name] = parse(value)
        except ValueError as error:
            raise ModelError(
                f"{path}, line {number}: {key} = {shortened(value)}, but {error}"
            ) from error
    config = PublishedConfig(**values, given=frozenset(values), unknown=unknown)
    if config.disp_max < config.disp_min:
        raise ModelError(
            f"{path}: disp-max = {config.disp_max:g} is below disp-min = {config.disp_min:g}"
        )
    if config.L2 < config.L1:
        raise ModelError(f"{path}: L2 = {config.L2:g} is below L1 = {config.L1:g}")
    return config


def _number(text: str) -> float:
    """Parse a finite decimal number, more strictly than `float`, which accepts 1_0 and nan."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError("it must be a number")
    return value


def _not_negative(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise ValueError("it must not be negative")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise ValueError("it must be positive")
    return value


def _one_of_numbers(*allowed: int) -> Callable[[str], int]:
    """Make a parser for a few integers, which may be written as 2.0."""

    def parse(text: str) -> int:
        value = _number(text)
        if value not in allowed:
            raise ValueError(f"only {', '.join(map(str, allowed))} can be used")
        return int(value)

    return parse


def _one_of_words(*allowed: str) -> Callable[[str], str]:
    """Make a parser for a few words in capitals."""

    def parse(text: str) -> str:
        if text.upper() not in allowed:
            raise ValueError(f"only {', '.join(allowed)} can be used")
        return text.upper()

    return parse


def _iterations(text: str) -> int:
    value = _number(text)
    if value < 1 or value != int(value):
        raise ValueError("it must be a whole number, at least 1")
    return int(value)


_KEYS: dict[str, tuple[str, Callable[[str], object]]] = {
    "matching": ("matching", _one_of_words("COLORCNN", "COLORPAIR")),
    "num-layers": ("num_layers", _one_of_numbers(*_LAYER_COUNTS)),
    "inference": ("inference", _one_of_words("CRF", "ARGMAX", "NONE")),
    "disp-min": ("disp_min", _number),
    "disp-max": ("disp_max", _number),
    "disp-step": ("disp_step", _positive),
    "lambda": ("lambda_", _not_negative),
    "L1": ("L1", _not_negative),
    "L2": ("L2", _not_negative),
    "delta": ("delta", lambda text: float(_one_of_numbers(2)(text))),
    "alpha": ("alpha", _not_negative),
    "beta": ("beta", _not_negative),
    "crf-iterations": ("crf_iterations", _iterations),
    "with-xy": ("with_xy", lambda text: bool(_one_of_numbers(0, 1)(text))),
    "refinement": ("refinement", str),
}
"""Keys of the program: the field of `PublishedConfig` and the parser of its value."""
