"""Values of calibration files as checked matrices, and pairs of cameras."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.calibrated import BASELINE, camera_pair, turned

from hybridstereo.errors import InputError
from hybridstereo.io.cameras import MatrixReader, check_agreement

K = ["500", "0", "320", "0", "510", "240", "0", "0", "1"]


def stored(rows: int, columns: int, words: list[str]) -> dict:
    return {"rows": str(rows), "cols": str(columns), "dt": "d", "data": words}


@pytest.mark.parametrize("node", [K, stored(3, 3, K), [K[:3], K[3:6], K[6:]], " ".join(K)])
def test_a_matrix_may_be_written_in_several_ways(node):
    matrix = MatrixReader("file", {"K": node}).camera_matrix("K")
    assert matrix.tolist() == [[500, 0, 320], [0, 510, 240], [0, 0, 1]]


@pytest.mark.parametrize(
    "node",
    [
        ["1", "2", "3"],
        stored(3, 1, ["1", "2", "3"]),
        stored(1, 3, ["1", "2", "3"]),
        {"sizes": ["3"], "dt": "d", "data": ["1", "2", "3"]},  # OpenCV 5, from YAML
        {"sizes": "3", "dt": "d", "data": ["1", "2", "3"]},  # and from XML
    ],
)
def test_a_vector_may_stand_or_lie(node):
    assert MatrixReader("file", {"T": node}).vector("T", 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "node", "words"),
    [
        ("camera_matrix", K[:8], "has 8 numbers, not 3x3"),
        ("camera_matrix", stored(1, 9, K), "has 1x9 numbers, not 3x3"),
        ("camera_matrix", stored(3, 3, K[:8]), "has 8 numbers for 3x3 places"),
        ("camera_matrix", {"rows": "3", "cols": "3"}, "is no matrix with rows, cols and data"),
        ("camera_matrix", [*K[:8], "2"], "is no camera matrix"),
        ("camera_matrix", ["-500", *K[1:]], "is no camera matrix"),
        ("camera_matrix", ["500", "1", *K[2:]], "is no camera matrix"),
        ("camera_matrix", [".Nan", *K[1:]], "not a number"),
        ("camera_matrix", ["1e999", *K[1:]], "beyond all measure"),
        ("camera_matrix", [["1", ["2"]]], "not a number"),
        ("rotation", K, "is no rotation"),
        ("rotation", ["1", "0", "0", "0", "1", "0", "0", "0", "-1"], "is no rotation"),
        ("projection", ["0"] * 12, "is no projection"),
        ("distortion", ["0"] * 6, "has 6 numbers, not 0 or 4 or 5 or 8"),
        ("distortion", stored(2, 2, ["0"] * 4), "has 2x2 numbers"),
        ("size", ["640.5", "480"], "states 640.5 pixels"),
        ("size", ["0", "480"], "states 0 pixels"),
        ("size", "640", "has 1 numbers, not 2"),
    ],
)
def test_nonsense_is_refused(kind, node, words):
    with pytest.raises(InputError, match=r"^file: X ") as error:
        getattr(MatrixReader("file", {"X": node}), kind)("X")
    assert words in str(error.value)


def test_the_pair_of_a_rectification():
    pair = camera_pair()
    left, right = pair.rectified.rotations
    np.testing.assert_allclose(pair.rectified.offset, [-BASELINE, 0, 0], atol=1e-15)
    # A point of the left camera's system, seen from the rectified right one in both ways.
    point = np.array([0.3, -0.2, 2.0])
    np.testing.assert_allclose(
        right @ (pair.rotation @ point + pair.translation), left @ point + pair.rectified.offset
    )


def test_exchanging_twice_changes_nothing():
    pair = camera_pair()
    other = pair.exchanged()
    assert other.left is pair.right
    assert other.translation[0] > 0 > pair.translation[0]
    np.testing.assert_allclose(other.rectified.offset, -pair.rectified.offset)
    np.testing.assert_allclose(other.exchanged().translation, pair.translation, atol=1e-15)


def test_a_rectification_of_other_cameras_is_refused():
    pair = camera_pair()
    assert check_agreement(pair, "file") is pair
    with pytest.raises(InputError, match="does not belong to its cameras"):
        check_agreement(replace(pair, rotation=turned(0, 5, 0)), "file")
