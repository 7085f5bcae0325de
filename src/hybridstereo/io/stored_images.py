"""Image files with the pixels that they store, to be changed and written again in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError
from hybridstereo.io.files import is_standard_stream, read_bytes
from hybridstereo.io.images import byte_limit, decode_pixels, encode_pixels, white_level
from hybridstereo.io.pixels import Pixels, to_rgb, to_unit

# Types and numbers of channels that a format can hold; OpenCV would cut off what it cannot.  JPEG
# is not among them: compressing a second time would add errors where pixels are compared.
_HOLDS = {
    ".png": ("uint8 uint16", (1, 3, 4)),
    ".tif": ("uint8 uint16 float32", (1, 3, 4)),
    ".tiff": ("uint8 uint16 float32", (1, 3, 4)),
    ".bmp": ("uint8", (1, 3)),
    ".pgm": ("uint8 uint16", (1,)),
    ".ppm": ("uint8 uint16", (3,)),
}


@dataclass(frozen=True, eq=False)
class StoredImage:
    """An image file as it is.

    Parameters
    ----------
    path
        The file.
    data
        Its contents.
    pixels
        uint8, uint16 with the full range of the type, or float32 in [0, 1]; grey (H, W), or
        (H, W, C) in OpenCV's order.

    """

    path: Path
    data: bytes
    pixels: Pixels

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def rgb(self, pixels: Pixels | None = None) -> NDArray[np.float32]:
        """These pixels, or others of the same kind, as (H, W, 3) RGB in [0, 1]."""
        name = str(self.path)
        return to_unit(to_rgb(self.pixels if pixels is None else pixels, name), None, name)

    def unit(self) -> NDArray[np.float32]:
        """The pixels as (H, W, C) in [0, 1], in the file's own channels."""
        pixels = self.pixels if self.pixels.ndim == 3 else self.pixels[..., np.newaxis]
        return to_unit(pixels, None, str(self.path))

    def from_unit(self, values: NDArray[np.float32]) -> Pixels:
        """What `unit` made (H, W, C), back in the type of the file."""
        values = values.reshape(self.pixels.shape)
        if self.pixels.dtype.kind == "f":
            return values
        largest = _largest(self.pixels)
        return np.rint(values * np.float32(largest)).astype(self.pixels.dtype)

    @property
    def name_to_write(self) -> str:
        """The file's own name, with another suffix if its format cannot hold changed pixels."""
        suffix = self.path.suffix.lower()
        channels = 1 if self.pixels.ndim == 2 else self.pixels.shape[2]
        types, counts = _HOLDS.get(suffix, ("", ()))
        if str(self.pixels.dtype) in types.split() and channels in counts:
            return self.path.name
        return f"{self.path.stem}{'.tif' if self.pixels.dtype.kind == 'f' else '.png'}"

    def encoded(self, pixels: Pixels) -> bytes:
        """Other pixels of the same kind as the contents of a file called `name_to_write`."""
        name = self.name_to_write
        return encode_pixels(pixels, Path(name).suffix.lower(), name)


def read_stored_image(path: str | Path, max_pixels: int | None = None) -> StoredImage:
    """Read an image file of at most ``max_pixels`` pixels; see `StoredImage`.

    PGM and PPM files with another maximum than 255 or 65535, as of 12-bit cameras, are brought to
    the full range.

    Raises
    ------
    InputError
        If the file is not a usable image, or is standard input, which has no name to keep.

    """
    if is_standard_stream(path):
        raise InputError("the images cannot come from standard input", hint="Give two files")
    data, name = read_bytes(path, byte_limit(max_pixels)), str(path)
    pixels = decode_pixels(data, name, max_pixels)
    if pixels.ndim == 3 and pixels.shape[2] == 2:  # grey and alpha
        pixels = np.ascontiguousarray(pixels[..., 0])
    if pixels.dtype.kind == "f":
        pixels = pixels.astype(np.float32)
    elif pixels.dtype.kind == "u":
        white, largest = white_level(data, pixels.itemsize), _largest(pixels)
        if white != largest:
            stretched = np.rint(pixels.astype(np.float64) * (largest / white))
            pixels = np.minimum(stretched, largest).astype(pixels.dtype)
    stored = StoredImage(Path(path), data, pixels)
    stored.rgb()  # refuses what is no image
    return stored


def _largest(pixels: Pixels) -> int:
    """The largest value that an unsigned type can hold."""
    return int(256**pixels.itemsize) - 1
