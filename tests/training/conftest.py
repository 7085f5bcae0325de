"""Tiny runs, which several files of tests train."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from hybridstereo.synthetic import SceneOptions
from hybridstereo.synthetic.write import synthesize
from hybridstereo.training.options import TrainOptions


@pytest.fixture(scope="session")
def scenes(tmp_path_factory):
    """Five tiny scenes in the Middlebury layout."""
    folder = tmp_path_factory.mktemp("scenes")
    synthesize(folder, 5, 3, SceneOptions(height=40, width=56, max_disparity=11, objects=4))
    return str(folder)


@pytest.fixture
def options(scenes):
    return TrainOptions(
        "middlebury",
        scenes,
        layers=2,
        filters=6,
        steps=6,
        crop=(24, 32),
        validate_every=3,
        checkpoint_every=2,
        iterations=2,
        val_fraction=0.4,
    )


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, and a run obeys that; the tests send it."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
