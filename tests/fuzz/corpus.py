"""Valid files of every kind that is read, made here: where the mutations start."""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import h5py
import numpy as np

from hybridstereo.features import ConvLayer
from hybridstereo.io.disparity import MAP_SUFFIXES, write_disparity
from hybridstereo.io.volumes import write_volume
from hybridstereo.model import ModelConfig, StereoModel
from hybridstereo.models.zoo import save_model
from hybridstereo.training.options import TrainOptions
from hybridstereo.training.runfolder import Checkpoint, Position, RunFolder

H, W, K = 3, 5, 4
"""Size of all images and maps, and labels of all volumes."""


def pixels(dtype: type = np.uint8, channels: int = 3) -> np.ndarray:
    """A small picture in which no two pixels are alike."""
    values = np.arange(H * W * channels) * 4
    shaped = values.reshape((H, W, channels) if channels > 1 else (H, W))
    return (shaped / 255).astype(dtype) if dtype == np.float32 else shaped.astype(dtype)


def encoded(suffix: str, picture: np.ndarray, *parameters: int) -> bytes:
    """An image file."""
    done, data = cv2.imencode(suffix, picture, parameters)
    assert done
    return bytes(data)


def images() -> list[bytes]:
    """Every format that is decoded, in all its kinds of pixels."""
    return [
        encoded(".png", pixels()),
        encoded(".png", pixels(channels=1)),
        encoded(".png", pixels(np.uint16, 4)),
        encoded(".jpg", pixels()),
        encoded(".jpg", pixels(channels=1), cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        encoded(".tif", pixels()),
        encoded(".tif", pixels(np.float32, 1)),
        encoded(".tif", pixels(np.uint16)),
        encoded(".tif", pixels(), cv2.IMWRITE_TIFF_COMPRESSION, 1),
        encoded(".webp", pixels()),
        encoded(".webp", pixels(channels=4), cv2.IMWRITE_WEBP_QUALITY, 101),
        encoded(".bmp", pixels()),
        encoded(".bmp", pixels(channels=1)),
        encoded(".ppm", pixels()),
        encoded(".pgm", pixels(channels=1)),
        encoded(".pgm", pixels(np.uint16, 1)),
        b"P2 # text\n5 3\n1023\n" + b"17 " * 15,
        b"P3 5 3 255 " + b"17 " * 45,
        b"P1 5 3\n" + b"1 0 " * 8,
        b"P4 5 3\n" + bytes(3),
    ]


def disparity_map() -> np.ndarray:
    """A map with invalid pixels."""
    values = np.linspace(0.5, 60, H * W).astype(np.float32).reshape(H, W)
    values[1, 2] = np.inf
    return values


def maps(suffix: str) -> list[bytes]:
    """Maps of one format."""
    assert suffix in MAP_SUFFIXES
    with TemporaryDirectory() as folder:
        path = Path(folder, f"map{suffix}")
        write_disparity(path, disparity_map())
        seeds = [path.read_bytes()]
    if suffix == ".pfm":
        seeds.append(b"Pf\r\n5 3\r\n1.0\r\n" + disparity_map().astype(">f4").tobytes())
    if suffix == ".npy":
        for array in (np.asfortranarray(disparity_map()), np.arange(6, dtype=">i2").reshape(2, 3)):
            stream = io.BytesIO()
            np.save(stream, array)
            seeds.append(stream.getvalue())
    return seeds


def calibrations() -> list[bytes]:
    """Middlebury's calib.txt."""
    return [
        b"cam0=[1000.5 0 320; 0 1000.5 240; 0 0 1]\ncam1=[1000.5 0 330; 0 1000.5 240; 0 0 1]\n"
        b"doffs=10.25\nbaseline=100\nwidth=640\nheight=480\nndisp=64\nisint=0\nvmin=3\nvmax=60\n",
        b"ndisp = 64 \n\n dyavg=0 \n",
    ]


_K, _R, _D = "5.5 0. 2. 0. 5. 1. 0. 0. 1.", "1. 0. 0. 0. 1. 0. 0. 0. 1.", "-0.1 0.01 0. 1e-3 0."
_P1, _P2 = "5. 0. 2. 0. 0. 5. 1. 0. 0. 0. 1. 0.", "5. 0. 2. -0.5 0. 5. 1. 0. 0. 0. 1. 0."
_CAMERAS = {
    "K1": (3, 3, _K), "D1": (1, 5, _D), "K2": (3, 3, _K), "D2": (5, 1, _D),
    "R": (3, 3, _R), "T": (3, 1, "-0.1 0. 0."),
    "R1": (3, 3, _R), "R2": (3, 3, _R), "P1": (3, 4, _P1), "P2": (3, 4, _P2),
}  # fmt: skip


def opencv_cameras() -> list[bytes]:
    """What OpenCV's FileStorage writes, of stereoRectify and of stereoCalibrate alone."""
    yaml, xml = "%YAML:1.0\n---\n", '<?xml version="1.0"?>\n<opencv_storage>\n'
    for key, (rows, columns, words) in _CAMERAS.items():
        data = ", ".join(words.split()).replace(", ", ",\n       ", 1)
        yaml += f"{key}: !!opencv-matrix\n   rows: {rows}\n   cols: {columns}\n   dt: d\n"
        yaml += f"   data: [ {data} ]\n"
        xml += f'<{key} type_id="opencv-matrix">\n<rows>{rows}</rows>\n<cols>{columns}</cols>\n'
        xml += f"<dt>d</dt>\n<data>\n    {words}</data></{key}>\n"
    calibrated = yaml[: yaml.index("R1:")] + "names:\n   - 'a'\n   - b: 1\n"
    whole = f"{yaml}imageSize: [ {W}, {H} ]\n"
    xml += f"<imageSize>\n  {W} {H}</imageSize>\n</opencv_storage>\n"
    return [whole.encode(), calibrated.encode(), xml.encode()]


def kitti_cameras() -> list[bytes]:
    """calib_cam_to_cam.txt of two cameras."""
    lines = ["calib_time: 09-Jan-2012 13:57:47", "corner_dist: 9.950000e-02"]
    for side, T, P in (("02", "0. 0. 0.", _P1), ("03", "-0.1 0. 0.", _P2)):
        values = {"S": f"{W} {H}", "K": _K, "D": _D, "R": _R, "T": T}
        values |= {"S_rect": f"{W} {H}", "R_rect": _R, "P_rect": P}
        lines += [f"{key}_{side}: {words}" for key, words in values.items()]
    return ["\n".join(lines).encode()]


def ros_camera(right: bool = True) -> list[bytes]:
    """ROS's camera_info of a right or a left camera."""
    text = f"image_width: {W}\nimage_height: {H}\ndistortion_model: plumb_bob\n"
    for key, rows, columns, words in (
        ("camera_matrix", 3, 3, _K),
        ("distortion_coefficients", 1, 5, _D),
        ("rectification_matrix", 3, 3, _R),
        ("projection_matrix", 3, 4, _P2 if right else _P1),
    ):
        data = ", ".join(words.split())
        text += f"{key}:\n  rows: {rows}\n  cols: {columns}\n  data: [{data}]\n"
    return [text.encode()]


def published_configs() -> list[bytes]:
    """The cfg beside published parameters."""
    return [
        b"# comment\nmatching = COLORCNN\nnum-layers = 3\ninference = CRF\ndisp-min = 0\n"
        b"disp-max = 63\ndisp-step = 1\nlambda = 0.4\nL1 = 1\nL2 = 12\ndelta = 2\nalpha = 20\n"
        b"beta = 0.8\ncrf-iterations = 4\nwith-xy = 0\nrefinement = quad\nother = 1\n",
    ]


def published_parameters() -> list[bytes]:
    """A params.npz of three layers; zeros, which lets mutations hit the headers more often."""
    arrays = [np.zeros((100, 3, 3, 3), np.float16), np.zeros(100, np.float16)]
    for _ in range(2):
        arrays += [np.zeros((100, 100, 2, 2), np.float16), np.zeros(100, np.float16)]
    arrays += [np.array([0.5], np.float32), np.array([8.0], np.float32)]
    stream = io.BytesIO()
    np.savez(stream, *arrays)
    return [stream.getvalue()]


def lists() -> list[bytes]:
    """CSV files about the pair that `targets` lays beside them."""
    return [
        b"left.png,right.png,truth.pfm\n",
        b"\xef\xbb\xbf# a list\nleft, right, disparity, mask, scene\n"
        b'"left.png", "right.png", truth.pfm, left.png, one\nleft.png,right.png,truth.pfm,,two\n',
    ]


def pair_lists() -> list[bytes]:
    """Lists of pairs without truth."""
    return [
        b"left.png,right.png\n# more\na/left.png, b/right.png, name\n",
        b"name\tleft\tright\nx/y\tl.png\tr.png\n",
        b"memory://l/../left.png,file:///r/1.png\nmemory://l/2.png,r/2.png,name\n",
    ]


def model(pairwise: bool = True) -> StereoModel:
    """A model with all kinds of layers."""
    rng = np.random.default_rng(1)

    def layer(outputs: int, inputs: int, side: int, biased: bool = True) -> ConvLayer:
        weight = rng.standard_normal((outputs, inputs, side, side)).astype(np.float32)
        return ConvLayer(weight, np.zeros(outputs, np.float32) if biased else None)

    return StereoModel(
        (layer(4, 3, 3), layer(4, 4, 2)),
        (layer(3, 3, 3), layer(2, 3, 1, biased=False)) if pairwise else (),
        ModelConfig(edge_model="cnn" if pairwise else "contrast", disparities=4, half_weight=0.2),
    )


def models() -> list[bytes]:
    """Model files."""
    seeds = []
    with TemporaryDirectory() as folder:
        for pairwise in (False, True):
            path = Path(folder, "model.h5")
            save_model(path, model(pairwise))
            seeds.append(path.read_bytes())
    return seeds


def checkpoint() -> Checkpoint:
    """Where a run was."""
    momentum = {name: array * 0 for name, array in model().to_file().tensors.items()}
    return Checkpoint(model(), Position("joint", 7, 12.5, 3.25), momentum)


def checkpoints() -> list[bytes]:
    """Files last.h5 of run folders."""
    with TemporaryDirectory() as folder:
        run = RunFolder(folder)
        run.log.clear()
        run.save(checkpoint())
        return [run.last.read_bytes()]


def run_configs() -> list[bytes]:
    """Files config.json of run folders."""
    options = TrainOptions("csv", roots={"csv": ("pairs.csv",)}, crop=(8, 8), val_scenes=("a",))
    return [json.dumps(vars(options), indent=2).encode(), b'{"dataset": "synthetic"}']


def logs() -> list[bytes]:
    """Files log.jsonl of run folders."""
    step = {"stage": "joint", "step": 1, "hinge": 0.5, "lr": 0.1, "seconds": 1.5}
    validation = {"stage": "joint", "step": 1, "validation": {"bad1": 12.5}, "best": True}
    return [b"".join(json.dumps(entry).encode() + b"\n" for entry in (step, validation))]


def volumes(suffix: str) -> list[bytes]:
    """Cost volumes of one format; those of HDF5 also without checksums of metadata."""
    costs = np.linspace(-1, 0, H * W * K).astype(np.float32).reshape(H, W, K)
    seeds = []
    with TemporaryDirectory() as folder:
        path = Path(folder, f"costs{suffix}")
        write_volume(path, costs, -1.0, 0.5)
        seeds.append(path.read_bytes())
        if suffix == ".npy":
            np.save(path, costs.transpose(2, 0, 1)[np.newaxis].astype(np.float64))
            seeds.append(path.read_bytes())
        if suffix == ".h5":
            with h5py.File(path, "w", libver="earliest") as file:
                file.create_dataset("costs", data=costs, chunks=(1, W, K), compression="gzip")
                file["costs"].attrs["step"] = 0.5
            seeds.append(path.read_bytes())
            with h5py.File(path, "w", libver="earliest") as file:
                file["other"] = costs.astype(np.float64)
            seeds.append(path.read_bytes())
    return seeds
