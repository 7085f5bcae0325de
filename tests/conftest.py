"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hybridstereo import kernels

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


@pytest.fixture(scope="session", params=["cpu"])
def backend(request: pytest.FixtureRequest) -> kernels.Backend:
    return kernels.select(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170721)
