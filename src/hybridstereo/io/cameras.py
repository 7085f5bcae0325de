"""A pair of cameras as it was calibrated: what rectifying its images needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridstereo.errors import InputError, shortened
from hybridstereo.io.calib import NUMBER
from hybridstereo.io.storage import Node
from hybridstereo.limits import SIDE

Floats = NDArray[np.float64]
Size = tuple[int, int]
"""Width and height in pixels."""

DISTORTIONS = (0, 4, 5, 8, 12, 14)
"""How many coefficients OpenCV's model of a lens may have."""
_FISHEYE_COEFFICIENTS = 4
# Programs round rotations to six digits and more.
_ORTHOGONAL = 1e-3
# Nothing of a camera comes near these; beyond them products would leave what floats can hold.
_LARGEST_NUMBER, _SHORTEST_FOCAL = 1e9, 1e-3
# R1, R2 and R may be rounded each.
_AGREEING = 1e-2


@dataclass(frozen=True, eq=False)
class LensCamera:
    """A camera with its lens, as it takes images.

    Parameters
    ----------
    matrix
        ``[fx 0 cx; 0 fy cy; 0 0 1]``, in pixels.
    distortion
        Coefficients in OpenCV's order: ``k1 k2 p1 p2 k3 ...``, for fish-eyes ``k1 k2 k3 k4``.
    fisheye
        Whether the lens follows OpenCV's fish-eye model, which ROS calls equidistant.

    """

    matrix: Floats
    distortion: Floats
    fisheye: bool = False


@dataclass(frozen=True, eq=False)
class RectifiedViews:
    """How to turn the cameras of a pair so that rows agree, as ``stereoRectify`` gives it.

    Parameters
    ----------
    rotations
        ``R1`` and ``R2``, from each camera to its rectified one.
    projections
        ``P1`` and ``P2``, (3, 4), from the rectified system of one camera to pixels of each.
    size
        Of the rectified images; None: that of the images taken.

    """

    rotations: tuple[Floats, Floats]
    projections: tuple[Floats, Floats]
    size: Size | None = None

    @property
    def offset(self) -> Floats:
        """The left camera in the right one's system, both rectified: ``(-baseline, 0, 0)``."""
        left, right = (np.linalg.solve(P[:, :3], P[:, 3]) for P in self.projections)
        return right - left


@dataclass(frozen=True, eq=False)
class CameraPair:
    """Two calibrated cameras.

    Parameters
    ----------
    left, right
        The cameras.
    rotation, translation
        A point x of the left camera's system is ``rotation @ x + translation`` in the right one's.
    size
        Of the images that were calibrated; None: the file does not say.
    rectified
        A rectification that the file states; None: it states none.
    millimetres
        In one unit of ``translation``; None: the file does not say.

    """

    left: LensCamera
    right: LensCamera
    rotation: Floats
    translation: Floats
    size: Size | None = None
    rectified: RectifiedViews | None = None
    millimetres: float | None = None

    @classmethod
    def of_rectified(
        cls,
        left: LensCamera,
        right: LensCamera,
        rectified: RectifiedViews,
        size: Size | None = None,
        millimetres: float | None = None,
    ) -> CameraPair:
        """The pair that a rectification belongs to."""
        from_left, from_right = rectified.rotations
        return cls(
            left,
            right,
            from_right.T @ from_left,
            from_right.T @ rectified.offset,
            size,
            rectified,
            millimetres,
        )

    def exchanged(self) -> CameraPair:
        """The same cameras with left and right exchanged."""
        rectified = self.rectified
        if rectified is not None:
            rectified = replace(
                rectified,
                rotations=rectified.rotations[::-1],
                projections=rectified.projections[::-1],
            )
        back = self.rotation.T
        return replace(
            self,
            left=self.right,
            right=self.left,
            rotation=back,
            translation=-back @ self.translation,
            rectified=rectified,
        )


class MatrixReader:
    """Named values of one file as checked matrices.

    Parameters
    ----------
    name
        What to call the file in an error message.
    values
        What it states.

    """

    def __init__(self, name: str, values: dict[str, Node]) -> None:
        self.name = name
        self.values = values

    def matrix(self, key: str, *shapes: tuple[int, int]) -> Floats:
        """The value of a key, of one of these shapes."""
        numbers, stated = self._numbers(key)
        for shape in shapes:
            transposed_vector = stated is not None and 1 in shape and stated == shape[::-1]
            if len(numbers) == math.prod(shape) and (
                stated is None or stated == shape or transposed_vector
            ):
                return np.array(numbers).reshape(shape)
        wanted = " or ".join(f"{rows}x{columns}" for rows, columns in shapes)
        raise self.error(key, f"has {self._size_text(numbers, stated)}, not {wanted}")

    def vector(self, key: str, *lengths: int) -> Floats:
        """The value of a key, of one of these numbers of elements."""
        numbers, stated = self._numbers(key)
        if len(numbers) not in lengths or (stated is not None and 1 not in stated and numbers):
            wanted = " or ".join(map(str, lengths))
            raise self.error(key, f"has {self._size_text(numbers, stated)}, not {wanted}")
        return np.array(numbers)

    def size(self, key: str) -> Size:
        """Width and height."""
        width, height = self.vector(key, 2)
        return self.pixels(key, width), self.pixels(key, height)

    def pixels(self, key: str, value: float) -> int:
        """A number of rows or columns."""
        if value != int(value) or int(value) not in SIDE:
            raise self.error(key, f"states {value:g} pixels")
        return int(value)

    def camera_matrix(self, key: str) -> Floats:
        """A 3x3 camera matrix."""
        matrix = self.matrix(key, (3, 3))
        if not _is_camera_matrix(matrix):
            raise self.error(key, "is no camera matrix [fx 0 cx; 0 fy cy; 0 0 1]")
        return matrix

    def distortion(self, key: str, fisheye: bool = False) -> Floats:
        """The coefficients of a lens."""
        return self.vector(key, *((_FISHEYE_COEFFICIENTS,) if fisheye else DISTORTIONS))

    def rotation(self, key: str) -> Floats:
        """A 3x3 rotation."""
        matrix = self.matrix(key, (3, 3))
        product = matrix @ matrix.T
        if np.abs(product - np.eye(3)).max() > _ORTHOGONAL or np.linalg.det(matrix) < 0:
            raise self.error(key, "is no rotation")
        return matrix

    def projection(self, key: str) -> Floats:
        """A 3x4 projection of a rectified camera."""
        matrix = self.matrix(key, (3, 4))
        if not _is_camera_matrix(matrix[:, :3]):
            raise self.error(key, "is no projection [fx 0 cx tx; 0 fy cy ty; 0 0 1 tz]")
        return matrix

    def error(self, key: str, problem: str) -> InputError:
        """An error about the value of a key."""
        return InputError(
            f"{self.name}: {shortened(key)} {problem}",
            "Export the calibration again, or correct the file",
        )

    def _numbers(self, key: str) -> tuple[list[float], tuple[int, int] | None]:
        """The numbers of a value, row by row, and how many rows and columns it says they are."""
        node = self.values[key]
        stated = None
        if isinstance(node, dict):
            stated = self._stated_shape(key, node)
            node = node["data"]
        nested = isinstance(node, list) and any(isinstance(row, list) for row in node)
        if isinstance(node, list) and nested:
            rows_of_node = [row if isinstance(row, list) else [row] for row in node]
            if stated is None and len({len(row) for row in rows_of_node}) == 1:
                stated = len(rows_of_node), len(rows_of_node[0])
            node = [x for row in rows_of_node for x in row]
        if isinstance(node, str):
            node = list(node.split())
        numbers = self._flat(key, node)
        if stated is not None and len(numbers) != math.prod(stated):
            raise self.error(key, f"has {len(numbers)} numbers for {stated[0]}x{stated[1]} places")
        return numbers, stated

    def _stated_shape(self, key: str, node: dict[str, Node]) -> tuple[int, int]:
        """Rows and columns; OpenCV 5 writes an array of one dimension with ``sizes`` instead."""
        sizes = node.get("sizes", [node.get("rows", ""), node.get("cols", "")])
        shape = [*self._flat(key, [sizes] if isinstance(sizes, str) else sizes), 1.0]
        if "data" not in node or len(shape) > 3 or any(side != int(side) for side in shape):
            raise self.error(key, "is no matrix with rows, cols and data")
        return int(shape[0]), int(shape[1])

    def _flat(self, key: str, words: Sequence[Node] | dict[str, Node]) -> list[float]:
        if not all(isinstance(word, str) and NUMBER.fullmatch(word) for word in words):
            raise self.error(key, "contains something that is not a number")
        numbers = [float(str(word)) for word in words]
        if not all(abs(number) < _LARGEST_NUMBER for number in numbers):
            raise self.error(key, "contains a number beyond all measure")
        return numbers

    @staticmethod
    def _size_text(numbers: list[float], stated: tuple[int, int] | None) -> str:
        return f"{len(numbers)} numbers" if stated is None else f"{stated[0]}x{stated[1]} numbers"


def _is_camera_matrix(matrix: Floats) -> bool:
    """Whether it is ``[fx 0 cx; 0 fy cy; 0 0 1]``; OpenCV's model of a camera has no skew."""
    zeros = matrix[[0, 1, 2, 2], [1, 0, 0, 1]]
    return (
        min(matrix[0, 0], matrix[1, 1]) > _SHORTEST_FOCAL and not zeros.any() and matrix[2, 2] == 1
    )


def check_agreement(pair: CameraPair, name: str) -> CameraPair:
    """The pair itself, unless the rectification that a file states is that of other cameras."""
    if pair.rectified is not None:
        left, right = pair.rectified.rotations
        if np.abs(right @ pair.rotation @ left.T - np.eye(3)).max() > _AGREEING:
            raise InputError(
                f"{name} states a rectification that does not belong to its cameras",
                "Compute it again, or take it out of the file",
            )
    return pair
