"""Shares of the work: they ascend from 0 to 1, whatever the stages and tiles."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.labels import LabelRange
from hybridstereo.models.zoo import load_model
from hybridstereo.stereo import Stereo
from hybridstereo.tiles import plan_tiles, whole
from hybridstereo.work import WorkShares, stage_work


@pytest.fixture(scope="module")
def stereo():
    return Stereo("general-fast", device="cpu")


@pytest.mark.parametrize("method", ["crf", "argmax"])
def test_every_stage_of_a_map_has_a_share(stereo, rng, method):
    left, right = (rng.random((40, 60, 3), np.float32) for _ in range(2))
    told = []
    result = stereo.match(
        left, right, 8, method=method, on_progress=lambda *share: told.append(share)
    )
    begun, ended = np.array(told).T
    assert begun[0] == 0
    assert ended[-1] == pytest.approx(1)
    assert (np.diff(begun) >= 0).all()
    np.testing.assert_allclose(begun[1:], ended[:-1], atol=1e-12)
    work = stage_work(stereo.model, whole(40, 60)[0], 8, method)
    assert work.keys() == result.seconds.keys() - {"refinement"}


def test_each_view_has_its_share(stereo, rng):
    left, right = (rng.random((40, 60, 3), np.float32) for _ in range(2))
    told, stages = [], []
    stereo.match(
        *(left, right, 8),
        view="both",
        on_stage=stages.append,
        on_progress=lambda *share: told.append(share),
    )
    begun, ended = np.array(told).T
    solving = [place for place, name in enumerate(stages) if name == "crf"]
    first, second = (ended - begun)[solving]
    assert first == pytest.approx(second)
    assert first > 0
    assert ended[-1] == pytest.approx(1)
    assert ended[solving[0]] < 1 - first / 2


def test_each_band_of_rows_has_its_share(stereo, rng):
    """Tall views: features and costs are computed in turns (`features.feature_bands`)."""
    left, right = (rng.random((700, 20, 3), np.float32) for _ in range(2))
    told, stages = [], []
    stereo.with_threads(1).match(
        *(left, right, 8),
        on_stage=stages.append,
        on_progress=lambda *share: told.append(share),
    )
    shares = np.diff(told).ravel()
    for stage in ("unary_cnn", "correlation"):
        of_bands = shares[[place for place, name in enumerate(stages) if name == stage]]
        assert len(of_bands) > 2
        assert (of_bands > 0).all()
        np.testing.assert_allclose(of_bands, of_bands[0])
    assert told[-1][1] == pytest.approx(1)


def test_tiles_have_shares_of_their_own():
    model = load_model("general")
    tiles = plan_tiles(400, 300, (200, 300), LabelRange(0.0, 8), model)
    told = []
    shares = WorkShares(
        lambda *share: told.append(share),
        ({name: [x] for name, x in stage_work(model, tile, 8).items()} for tile in tiles),
    )
    seen = []
    tell = shares.telling_tiles(lambda *count: seen.append(count))
    for index in range(len(tiles)):
        tell(index, len(tiles))
        for stage in ("input", "unary_cnn", "pyramid", "pyramid", "crf"):  # some are left out
            shares.begin_stage(stage)
    assert seen == [(index, len(tiles)) for index in range(len(tiles))]
    begun, ended = np.array(told).T
    assert (ended >= begun).all()
    assert (np.diff(begun) >= 0).all()
    assert begun[-5] == pytest.approx(1 - 1 / len(tiles), rel=0.1)


def test_more_labels_are_more_work_for_correlation_and_crf_only():
    model = load_model("middlebury-fast")  # has no pyramid
    few, many = (stage_work(model, whole(40, 60)[0], count) for count in (8, 16))
    assert {name for name in few if many[name] > few[name]} == {"correlation", "crf"}
