"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from hybridstereo import kernels

# Nobody's own defaults shall change what the tests see; programs that they start inherit this.
os.environ["HSTEREO_CONFIG"] = ""

# A busy machine takes its time, which says nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the benchmark data where they are not."""
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason="needs ../shared (benchmark data and published weights)")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared() -> Path:
    return SHARED


@pytest.fixture(scope="session")
def sample() -> Path:
    return Path(__file__).resolve().parents[1] / "data" / "sample"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of a backend on the CPU, or where ``-m emulator``, ``cudasim`` or ``gpu`` says."""
    if "backend" not in metafunc.fixturenames:
        return
    expression = metafunc.config.option.markexpr
    asked = re.findall(r"(?<!not )\b(emulator|cudasim|gpu)\b", expression)
    devices = [pytest.param(x, marks=getattr(pytest.mark, x)) for x in asked] or ["cpu"]
    metafunc.parametrize("backend", devices, indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Iterator[kernels.Backend]:
    """The operations of a device; those of a GPU take and give NumPy arrays."""
    if request.param == "cpu":
        yield kernels.select("cpu")
        return
    import cuda_emulator
    from support.hosted import hosted

    if request.param == "emulator":
        if reason := cuda_emulator.why_not():
            pytest.skip(reason)
        with cuda_emulator.emulated(timing=False):
            yield hosted(kernels.cuda_backend("emulated"))
        return
    simulated = cuda_emulator.in_simulator()
    if simulated != (request.param == "cudasim"):
        pytest.skip("set NUMBA_ENABLE_CUDASIM=1 for cudasim, and not for gpu")
    if simulated:
        from support import cuda_simulator

        cuda_simulator.extend_simulator()
        yield hosted(kernels.select("cuda"), cuda_simulator.MOST_ELEMENTS)
        return
    try:
        yield hosted(kernels.select("cuda"))
    except kernels.DeviceUnavailableError as error:
        pytest.skip(error.reason)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170721)


@pytest.fixture
def sample_crop(tmp_path, sample):
    """A small crop of the sample pair, so that a run takes a moment only."""
    from hybridstereo.io.images import decode_pixels, write_image

    paths = []
    for side in ("left", "right"):
        pixels = decode_pixels((sample / f"{side}.png").read_bytes(), side)
        paths.append(str(tmp_path / f"{side}.png"))
        write_image(paths[-1], np.ascontiguousarray(pixels[100:140, 100:160, ::-1]))
    return paths


@pytest.fixture(scope="session")
def taken_scene():
    """A generated scene whose points match well."""
    from hybridstereo.synthetic import SceneOptions, generate_scene

    return generate_scene(5, SceneOptions(160, 240, 24.0))


@pytest.fixture(scope="session")
def cameras(taken_scene):
    """Cameras whose rectified views are those of `taken_scene`."""
    from support.calibrated import camera_pair_of

    return camera_pair_of(taken_scene)


@pytest.fixture
def taken_pair(taken_scene, cameras, tmp_path):
    """Files of `taken_scene` as `cameras` took it, before any rectification."""
    from support.calibrated import as_taken

    from hybridstereo.io.images import write_image
    from hybridstereo.synthetic import quantised

    paths = tmp_path / "a.png", tmp_path / "b.png"
    for side, view in enumerate((taken_scene.left, taken_scene.right)):
        write_image(paths[side], quantised(as_taken(cameras, side, view)))
    return paths
