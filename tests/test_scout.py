"""The first look at a pair is taken once, whoever asks."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.scout import Scout
from hybridstereo.stereo import Stereo
from hybridstereo.synthetic import SceneOptions, generate_scene


@pytest.fixture
def looks(monkeypatch):
    """How often the small model really ran."""
    taken = []
    match = Scout._match

    def counted(self, views):
        taken.append(views.factor)
        return match(self, views)

    monkeypatch.setattr(Scout, "_match", counted)
    return taken


@pytest.fixture(scope="module")
def unrelated():
    size = SceneOptions(width=256, height=192, max_disparity=30)
    return generate_scene(3, size).left, generate_scene(4, size).right


def test_check_and_range_share_a_look(looks, unrelated):
    stereo = Stereo("census", device="cpu")
    (finding,) = stereo.check(*unrelated)
    assert finding.code == "unrelated"
    assert looks == [4, 8]  # the other way round, a coarser one is enough
    again = [view.astype(np.float64) for view in unrelated]  # the same images, read once more
    result = stereo.match(*again, "auto")
    assert result.range_from == "model"
    assert looks == [4, 8]


def test_another_pair_is_looked_at_again(looks, unrelated):
    stereo = Stereo("census", device="cpu")
    for view in (unrelated[1], unrelated[0], unrelated[0][::-1]):
        stereo.find_range(unrelated[0], view)
    assert len(looks) == 3
    stereo.find_range(unrelated[0], unrelated[0])  # one of the last two
    assert len(looks) == 3
