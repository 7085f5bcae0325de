"""Pairs as two calibrated cameras would take them, and the files that describe the cameras."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from hybridstereo.io.cameras import CameraPair, LensCamera, RectifiedViews
from hybridstereo.synthetic import StereoScene

BASELINE = 0.12  # metres


def turned(*degrees: float) -> np.ndarray:
    """A rotation about x, y and z."""
    return cv2.Rodrigues(np.deg2rad(np.array(degrees, float)))[0]


def camera_pair(
    height: int = 360,
    width: int = 480,
    focal: float = 500.0,
    doffs: float = 0.0,
    fisheye: bool = False,
    **changes,
) -> CameraPair:
    """Cameras with distorting lenses, turned by some degrees, and their rectification.

    The lenses see a little more than the rectified views show.
    """
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    lenses = [
        LensCamera(
            np.array(
                [[0.85 * focal, 0, centre[0] + dx], [0, 0.86 * focal, centre[1] - dx], [0, 0, 1]]
            ),
            np.array(coefficients),
            fisheye,
        )
        for dx, coefficients in (
            (3.5, [-0.12, 0.03, 0.001, -0.0008] + [0.004] * (not fisheye)),
            (-6.25, [-0.10, 0.02, -0.0012, 0.0005] + [0.002] * (not fisheye)),
        )
    ]
    projections = [
        np.array([[focal, 0, centre[0] + x, -focal * b], [0, focal, centre[1], 0], [0, 0, 1, 0]])
        for x, b in ((0, 0), (doffs, BASELINE))
    ]
    rectified = RectifiedViews(
        (turned(0.8, -1.0, 1.5), turned(-0.9, 1.2, -1.0)), tuple(projections)
    )
    pair = CameraPair.of_rectified(*lenses, rectified, (width, height), 1000.0)
    return replace(pair, **changes)


def camera_pair_of(scene: StereoScene) -> CameraPair:
    """Cameras whose rectified views are those of a generated scene."""
    geometry = scene.geometry
    pair = camera_pair(geometry.height, geometry.width, geometry.focal, geometry.doffs)
    (x, y), projections = geometry.centre, pair.rectified.projections
    for projection, column in zip(projections, (x, x + geometry.doffs), strict=True):
        projection[:2, 2] = column, y
    return pair


def as_taken(pair: CameraPair, side: int, rectified: np.ndarray) -> np.ndarray:
    """The image that a camera took, from the one that rectification should make of it."""
    camera = (pair.left, pair.right)[side]
    width, height = pair.size
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).reshape(-1, 1, 2)
    undistort = cv2.fisheye.undistortPoints if camera.fisheye else cv2.undistortPoints
    places = undistort(
        grid.astype(np.float64),
        camera.matrix,
        camera.distortion,
        R=pair.rectified.rotations[side],
        P=pair.rectified.projections[side][:, :3],
    )
    x, y = places.reshape(height, width, 2).astype(np.float32).transpose(2, 0, 1)
    image = cv2.remap(rectified, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    return np.clip(image, 0, 1)


def named_matrices(pair: CameraPair) -> dict[str, np.ndarray]:
    """Under the names of OpenCV's documentation."""
    (R1, R2), (P1, P2) = pair.rectified.rotations, pair.rectified.projections
    return {
        "K1": pair.left.matrix, "D1": pair.left.distortion[None],
        "K2": pair.right.matrix, "D2": pair.right.distortion[None],
        "R": pair.rotation, "T": pair.translation[:, None],
        "R1": R1, "R2": R2, "P1": P1, "P2": P2,
    }  # fmt: skip


def write_opencv(path: Path, matrices: dict[str, np.ndarray], size: tuple | None = None) -> Path:
    """By OpenCV itself; the suffix picks YAML or XML."""
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    for key, matrix in matrices.items():
        storage.write(key, matrix)
    if size is not None:
        storage.startWriteStruct("imageSize", cv2.FileNode_SEQ | cv2.FileNode_FLOW)
        for side in size:
            storage.write("", side)
        storage.endWriteStruct()
    storage.release()
    return path


def _words(matrix: np.ndarray, between: str) -> str:
    return between.join(f"{x:.12e}" for x in np.ravel(matrix))


def write_kitti(
    path: Path, pair: CameraPair, sides: tuple[int, int] = (2, 3), without: tuple[str, ...] = ()
) -> Path:
    """Camera 0 is turned and moved against the left one of the pair, as KITTI's is."""
    R_left, T_left = turned(0.3, 0.2, -0.1), np.array([0.06, -0.001, 0.002])
    of_right = pair.rotation @ R_left, pair.rotation @ T_left + pair.translation
    lines = ["calib_time: 09-Jan-2012 13:57:47", "corner_dist: 9.950000e-02"]
    views = pair.rectified
    for side, camera, (R, T), index in (
        (sides[0], pair.left, (R_left, T_left), 0), (sides[1], pair.right, of_right, 1),
    ):  # fmt: skip
        values = {
            "S": np.array(pair.size), "K": camera.matrix, "D": camera.distortion, "R": R, "T": T,
            "S_rect": np.array(views.size or pair.size), "R_rect": views.rotations[index],
            "P_rect": views.projections[index],
        }  # fmt: skip
        for key, matrix in values.items():
            if key not in without:
                lines.append(f"{key}_{side:02d}: {_words(matrix, ' ')}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_ros(folder: Path, pair: CameraPair) -> tuple[Path, Path]:
    """``left.yaml`` and ``right.yaml``, as camera_calibration writes them."""
    paths = folder / "left.yaml", folder / "right.yaml"
    for index, (path, camera) in enumerate(zip(paths, (pair.left, pair.right), strict=True)):
        model = "equidistant" if camera.fisheye else "plumb_bob"
        matrices = {
            "camera_matrix": camera.matrix,
            "distortion_coefficients": camera.distortion[None],
            "rectification_matrix": pair.rectified.rotations[index],
            "projection_matrix": pair.rectified.projections[index],
        }
        lines = [f"image_width: {pair.size[0]}", f"image_height: {pair.size[1]}"]
        lines += [f"camera_name: stereo/{path.stem}", f"distortion_model: {model}"]
        for key, matrix in matrices.items():
            rows, columns = matrix.shape
            lines += [f"{key}:", f"  rows: {rows}", f"  cols: {columns}"]
            lines += [f"  data: [{_words(matrix, ', ')}]"]
        path.write_text("\n".join(lines) + "\n")
    return paths
