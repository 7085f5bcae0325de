"""`Stereo`: the model as a sequence of stages, what it takes and what it refuses."""

from __future__ import annotations

import naive
import numba
import numpy as np
import pytest
from support.misaligned import lowered
from support.networks import as_pairs, stereo_model

import hybridstereo as hs
from hybridstereo.crf import WarmStart
from hybridstereo.errors import DeviceError
from hybridstereo.io.images import read_image
from hybridstereo.kernels.cuda import cudalib
from hybridstereo.labels import LabelRange
from hybridstereo.models.census import census_model
from hybridstereo.options import MatchOptions
from hybridstereo.stereo import Stereo

LABELS = LabelRange(-1.0, 6)


def images(rng, height=9, width=14):
    left = rng.random((height, width, 3)).astype(np.float32)
    return left, np.roll(left, -2, axis=1)


@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
@pytest.mark.parametrize("labels", [LABELS, LabelRange(0, 9, 0.5)])
def test_prediction_equals_naive_model(backend, rng, edge_model, labels):
    model = stereo_model(rng, edge_model)
    config = model.config
    left, right = images(rng)
    prediction = Stereo(model, backend).match(left, right, labels=labels)

    pairs = as_pairs(model.unary)
    phi0, phi1 = (naive.unary_features(image, pairs, False) for image in (left, right))
    f = naive.unary_cost(naive.scores(phi0, phi1, labels.disparities))
    if edge_model == "cnn":
        padding = naive.unary_padding(pairs)
        wx, wy = naive.pairwise_cnn_weights(
            left, as_pairs(model.pairwise), config.weight_scale, padding
        )
    else:
        wx, wy = naive.contrast_weights(left, config.weight_scale, config.alpha, config.beta)
    minorant, bounds = naive.dual_mm(f, wx, wy, config.p1, config.p2, config.iterations)
    chosen = naive.read_out_ties(minorant)
    expected = naive.refine(minorant, chosen, labels.minimum, labels.step)
    np.testing.assert_allclose(prediction.disparity, expected, atol=2e-3)
    np.testing.assert_allclose(prediction.bounds, bounds, rtol=1e-5)
    energy = naive.energy(f, wx, wy, config.p1, config.p2, chosen)
    assert prediction.energy == pytest.approx(energy, rel=1e-5)


def test_argmax_is_the_network_alone(backend, rng):
    model = stereo_model(rng, "contrast")
    left, right = images(rng)
    prediction = Stereo(model, backend).match(left, right, labels=LABELS, method="argmax")
    phi0, phi1 = (naive.unary_features(x, as_pairs(model.unary), False) for x in (left, right))
    scores = naive.scores(phi0, phi1, LABELS.disparities)
    np.testing.assert_array_equal(prediction.disparity, scores.argmax(axis=2) - 1.0)
    assert prediction.energy is None
    assert prediction.bounds is None


def test_refinement_can_be_switched(backend, rng):
    model = stereo_model(rng, "contrast")
    left, right = images(rng)
    plain = Stereo(model, backend).match(left, right, labels=LABELS, refine=False).disparity
    refined = Stereo(model, backend).match(left, right, labels=LABELS).disparity
    np.testing.assert_array_equal(plain, np.round(plain))
    assert 0 < np.abs(refined - plain).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("size", [(1, 1), (1, 8), (8, 1), (2, 3)])
@pytest.mark.parametrize("count", [1, 2, 17])
@pytest.mark.parametrize("edge_model", ["contrast", "cnn"])
def test_any_size_and_any_number_of_labels(backend, rng, size, count, edge_model):
    left, right = images(rng, *size)
    labels = LabelRange(0, count)
    prediction = Stereo(stereo_model(rng, edge_model), backend).match(left, right, labels=labels)
    assert prediction.disparity.shape == size
    assert np.isfinite(prediction.disparity).all()
    assert prediction.disparity.min() >= 0
    assert prediction.disparity.max() <= count - 1


def test_stages_are_timed_and_announced_in_order(backend, rng):
    left, right = images(rng)
    seen = []
    prediction = Stereo(stereo_model(rng, "cnn"), backend).match(
        left, right, labels=LABELS, on_stage=seen.append
    )
    assert list(dict.fromkeys(seen)) == list(prediction.seconds)
    expected = ["input", "unary_cnn", "correlation", "pairwise_cnn", "crf", "refinement"]
    assert list(prediction.seconds) == expected


@pytest.mark.parametrize("method", ["crf", "argmax"])
@pytest.mark.parametrize("refine", [False, True])
def test_optimise_is_the_second_half_of_match(backend, rng, method, refine):
    left = rng.random((16, 24, 3), np.float32)
    right = np.roll(left, -2, axis=1)
    stereo, labels = Stereo(census_model(), backend), LabelRange(0.0, 6)
    way = {"method": method, "refine": refine}
    expected = stereo.match(left, right, labels=labels, volumes=True, **way)
    costs = stereo.matching_costs(left, right, labels)
    before = costs.copy()
    found = stereo.optimise(costs, left, labels, volumes=True, **way)
    np.testing.assert_array_equal(found.disparity, expected.disparity)
    np.testing.assert_array_equal(costs, before)
    np.testing.assert_array_equal(expected.costs, before)
    assert found.energy == expected.energy
    assert (found.minorant is None) == (method == "argmax")
    if method == "crf":
        np.testing.assert_array_equal(found.minorant, expected.minorant)


def test_labels_say_what_the_volume_stands_for(backend):
    costs = np.ones((8, 8, 4), np.float32)
    costs[:, :, 3] = 0
    image = np.zeros((8, 8, 3), np.float32)
    labels = LabelRange(-1.0, 4, 0.5)
    found = Stereo(census_model(), backend).optimise(costs, image, labels, refine=False)
    np.testing.assert_array_equal(found.disparity, np.full((8, 8), 0.5))


# ---------------------------------------------------------------- what it takes


@pytest.fixture(scope="module")
def stereo():
    return hs.Stereo("census", device="cpu")


@pytest.fixture(scope="module")
def views():
    """A pair as a camera gives it, every point 3 pixels further left in the right view."""
    left = np.random.default_rng(3).integers(0, 256, (14, 22, 3), np.uint8)
    return left, np.roll(left, -3, axis=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(np.uint16) * 257,
        lambda x: x.astype(np.float32) / np.float32(255),
        lambda x: np.dstack([x, np.zeros(x.shape[:2], np.uint8)]),
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    ],
    ids=["uint16", "float32", "rgba", "fortran order", "a view"],
)
def test_all_kinds_of_arrays_give_the_same_map(stereo, views, change):
    expected = stereo.match(*views, disparities=8).disparity
    found = stereo.match(*map(change, views), disparities=8).disparity
    np.testing.assert_array_equal(found, expected)


def test_grey_images_are_three_equal_channels(stereo, views):
    grey = [np.ascontiguousarray(view[..., 0]) for view in views]
    expected = stereo.match(*(np.repeat(x[..., None], 3, axis=2) for x in grey), 8).disparity
    for form in (grey, [x[..., None] for x in grey], [x / 255.0 for x in grey]):
        np.testing.assert_array_equal(stereo.match(*form, disparities=8).disparity, expected)


def test_opencv_users_say_bgr(stereo, views):
    swapped = [view[..., ::-1] for view in views]
    expected = stereo.match(*views, disparities=8).disparity
    found = stereo.match(*swapped, disparities=8, channels="bgr").disparity
    np.testing.assert_array_equal(found, expected)
    assert (stereo.match(*swapped, disparities=8).disparity != expected).any()


def test_paths_arrays_and_calls_give_the_same_map(stereo, sample_crop):
    expected = stereo.match(*sample_crop, disparities=16)
    left, right = (read_image(path) for path in sample_crop)
    for found in (
        stereo(left, right, 16),
        stereo.match(sample_crop[0], right, disparities=16),
        stereo.match(*hs.read_pair(*sample_crop), disparities=16),
    ):
        np.testing.assert_array_equal(found.disparity, expected.disparity)
        np.testing.assert_array_equal(found.bounds, expected.bounds)


def test_result_is_saved_and_read_again(stereo, views, tmp_path):
    result = stereo.match(*views, disparities=8)
    result.save(tmp_path / "map.pfm")
    np.testing.assert_array_equal(hs.read_disparity(tmp_path / "map.pfm"), result.disparity)
    assert result.costs is None
    assert result.minorant is None


def test_options_are_the_arguments_of_match(stereo, views):
    """What the commands pass on as `MatchOptions` is what a caller can say."""
    options = MatchOptions(disparities=6, min_disparity=-1.0, step=0.5, iterations=2, refine=False)
    result = stereo.match(*views, **vars(options))
    assert result.label_range == LabelRange(-1.0, 6, 0.5)
    assert len(result.bounds) == 4
    np.testing.assert_array_equal(result.disparity, result.unrefined)


def test_weights_go_to_the_device_once(views):
    """Also with a GPU, each pair moves nothing but itself."""
    moved = []
    backend = hs.Stereo("census", "cpu").backend

    class Counting:
        """The CPU with a `to_device` that is looked at."""

        def __getattr__(self, name):
            return getattr(backend, name)

        def to_device(self, array):
            moved.append(array.shape)
            return array

    stereo = Stereo(census_model(), Counting())
    parameters = len(moved)
    assert parameters == 2 * len(stereo.model.unary)
    for _ in range(2):
        stereo.match(*views, disparities=8)
    assert len(moved) == parameters + 2 * 3  # two views and the image of the edges


# ---------------------------------------------------------------- what it refuses


IMAGE = np.zeros((6, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (IMAGE, np.zeros((6, 9, 3), np.uint8), "differ in size: left is 8x6 but right is 9x6"),
        (IMAGE, np.zeros((5, 8, 3), np.uint8), "differ in size: left is 8x6 but right is 8x5"),
        (IMAGE.transpose(2, 0, 1), IMAGE.transpose(2, 0, 1), "channels first"),
        (np.zeros((6, 8, 5), np.uint8), IMAGE, "The left image has the shape"),
        (np.zeros((2, 6, 8, 3), np.uint8), IMAGE, "The left image has the shape"),
        (IMAGE, 128 * np.ones((6, 8, 3)), "values from 128 to 128, not 0 to 1"),
        (IMAGE, np.full((6, 8, 3), np.nan), "The right image contains NaN"),
        (IMAGE, IMAGE.astype(np.int64), "The right image has int64 pixels"),
        (IMAGE, IMAGE.astype(bool), "The right image has bool pixels"),
        (np.zeros((0, 8, 3), np.uint8), IMAGE, "The left image is empty"),
        (IMAGE.tolist(), IMAGE, "The left image is a list"),
        (None, IMAGE, "The left image is a NoneType"),
        ("missing.png", IMAGE, "missing.png"),
    ],
)
def test_what_is_wrong_with_an_image_is_said_by_name(stereo, left, right, words):
    with pytest.raises(hs.StereoError, match=words):
        stereo.match(left, right)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"disparities": 0}, "number of labels is 0"),
        ({"step": 0.0}, "step between labels is 0"),
        ({"min_disparity": float("nan")}, "smallest disparity is nan"),
        ({"method": "magic"}, "no method 'magic'"),
        ({"iterations": 0}, "iterations"),
        ({"channels": "rbg"}, "no channel order 'rbg'"),
        ({"disparities": 16.5}, "number of labels is 16.5"),
        ({"disparities": True}, "number of labels is True"),
        ({"disparities": "16"}, "number of labels is 16"),
        ({"min_disparity": "a"}, "smallest disparity is a"),
        ({"iterations": 2.5}, "`iterations` is 2.5"),
        ({"refine": "no"}, "neither True nor False"),
        ({"labels": 16}, "labels are a int"),
        ({"labels": LABELS, "search_range": 6}, "given twice"),
        ({"labels": LABELS, "disparities": 6}, "given twice"),
    ],
)
def test_options_that_mean_nothing_are_refused(stereo, options, words):
    with pytest.raises(hs.StereoError, match=words):
        stereo.match(IMAGE, IMAGE, **options)


def test_matching_costs_refuse_what_match_refuses(stereo):
    for right in (IMAGE[:, :5], IMAGE[:4], np.full((6, 8, 3), 200.0)):
        with pytest.raises(hs.StereoError):
            stereo.matching_costs(IMAGE, right, LABELS)
    for costs_of in (stereo.matching_costs, stereo.level_costs):
        with pytest.raises(hs.StereoError, match="labels are a int"):
            costs_of(IMAGE, IMAGE, 4)


def test_either_byte_order(stereo, views):
    expected = stereo.match(*views, disparities=8).disparity
    swapped = [(view.astype(np.uint16) * 257).astype(">u2") for view in views]
    np.testing.assert_array_equal(stereo.match(*swapped, disparities=8).disparity, expected)


@pytest.mark.parametrize(
    ("costs", "labels", "words"),
    [
        (np.zeros((6, 8)), None, "shape"),
        (np.zeros((8, 6, 4)), None, "left image is 8x6"),
        (np.zeros((6, 8, 4)), LabelRange(0, 5), "4 labels but the label range has 5"),
        (np.full((6, 8, 4), -np.inf), None, "minus infinity"),
        (np.zeros((6, 8, 4), complex), None, "costs are complex128"),
        ([[1.0]], None, "costs are list"),
        (np.full((6, 8, 4), np.nan), None, "no number at all"),
    ],
)
def test_what_is_wrong_with_costs_is_said(stereo, costs, labels, words):
    with pytest.raises(hs.StereoError, match=words):
        stereo.optimise(costs, IMAGE, labels)


def test_unknown_costs_count_as_the_worst_of_their_pixel(stereo):
    costs = np.ones((6, 8, 4), np.float32)
    costs[:, :, 2] = 0
    known = stereo.optimise(costs, IMAGE).disparity
    costs[:, :, 3] = np.nan
    costs[0, 0, 3] = np.inf
    np.testing.assert_array_equal(stereo.optimise(costs, IMAGE).disparity, known)
    assert np.isnan(costs[1, 1, 3])  # the caller's array is left alone


def test_a_gpu_that_is_not_there():
    if cudalib.probe().usable:
        pytest.skip("there is one")
    with pytest.raises(DeviceError, match="device=cpu"):
        Stereo("census", device="cuda")


def test_devices_and_threads_that_are_not_there():
    with pytest.raises(hs.StereoError, match="no device 'gpu'"):
        Stereo("census", device="gpu")
    for device in (None, 5, "cuda:x"):
        with pytest.raises(hs.StereoError, match="no device"):
            Stereo("census", device=device)
    for model in (5, None, "no such model"):
        with pytest.raises(hs.StereoError, match="model"):
            Stereo(model, device="cpu")
    for threads in (0, 1.5, 10_000):
        with pytest.raises(hs.StereoError, match="NUMBA_NUM_THREADS"):
            Stereo("census", device="cpu", threads=threads)


def test_threads_are_those_of_the_object(views):
    """Each call has its own number, and leaves the caller's as it was."""
    before, seen = numba.get_num_threads(), []
    for threads in (1, None):
        stereo = Stereo("census", device="cpu", threads=threads)
        stereo.match(*views, disparities=4, on_stage=lambda _: seen.append(numba.get_num_threads()))
        assert numba.get_num_threads() == before
    assert set(seen[: len(seen) // 2]) == {1}
    assert set(seen[len(seen) // 2 :]) == {before}


def test_what_a_session_shows(stereo, views):
    """Short texts, not the arrays."""
    assert repr(stereo) == "<Stereo: <StereoModel: 3 layers, contrast weights> on cpu>"
    shown = repr(stereo.match(*views, disparities=8))
    assert shown == "<StereoResult: 22x14 pixels, disparities 0 to 7>"


def test_public_names():
    assert set(hs.__all__) == set(dir(hs))
    assert all(getattr(hs, name) is not None for name in hs.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Stereos'"):
        hs.Stereos  # noqa: B018


# --- check ------------------------------------------------------------------------------------


def test_check_takes_the_order_of_colours_and_leaves_out_what_rectify_corrects(sample):
    left, right = (read_image(sample / f"{side}.png") for side in ("left", "right"))
    stereo = Stereo("census", device="cpu", threads=1)
    low = lowered(right, 3)
    (found,) = stereo.check(left, low)
    assert found.code == "vertical-offset"
    assert stereo.check(left, low, rectify=True) == []
    assert stereo.check(left, right[..., ::-1], channels="bgr") == []
    assert stereo.check(sample / "left.png", sample / "right.png") == []


def test_check_finds_views_of_two_scenes(sample, rng):
    """Points do not tell, so the small model does: here that noise has nothing in common."""
    left = read_image(sample / "left.png")
    noise = rng.random(left.shape, np.float32)
    assert [x.code for x in Stereo("census", device="cpu").check(left, noise)] == ["unrelated"]


# --- half precision ---------------------------------------------------------------------------


def test_half_precision_gives_nearly_the_same_map(sample_crop):
    stereo = Stereo("census", device="cpu")
    given = {"labels": LabelRange(0, 20), "confidence": True, "volumes": True}
    single = stereo.match(*sample_crop, **given)
    half = stereo.match(*sample_crop, **given, precision="half")
    assert (single.precision, half.precision) == ("single", "half")
    assert (np.abs(half.disparity - single.disparity) < 0.05).mean() > 0.98
    assert np.abs(half.confidence - single.confidence).mean() < 0.02
    assert half.energy == pytest.approx(single.energy, rel=1e-3)
    assert half.bounds[-1] == pytest.approx(single.bounds[-1], rel=1e-3)
    assert half.bounds[-1] <= half.energy
    np.testing.assert_array_equal(half.costs, single.costs)
    above = single.minorant - single.minorant.min(axis=2, keepdims=True)
    assert np.median(np.abs(half.minorant - above)) < 1e-3


def test_half_precision_leaves_the_costs_of_the_caller_alone(rng):
    costs = rng.random((8, 9, 5)).astype(np.float32)
    before = costs.copy()
    stereo = Stereo("census", device="cpu")
    half = stereo.optimise(costs, np.zeros((8, 9), np.uint8), precision="half")
    np.testing.assert_array_equal(costs, before)
    single = stereo.optimise(costs, np.zeros((8, 9), np.uint8))
    assert half.energy == pytest.approx(single.energy, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "double"}, "There is no precision 'double'"),
        ({"precision": "half", "method": "argmax"}, "is about the CRF"),
        ({"precision": "half", "warm": WarmStart()}, "A warm start needs"),
    ],
)
def test_half_precision_is_refused_where_there_is_none(rng, options, message):
    with pytest.raises(hs.StereoError, match=message):
        Stereo("census", device="cpu").match(*images(rng), labels=LABELS, **options)


def test_costs_that_are_not_finite_are_told_in_half_precision(rng, monkeypatch):
    stereo = Stereo("census", device="cpu")
    costs_of = stereo.backend.correlation_forward

    def spoilt(*arguments, **named):
        costs = costs_of(*arguments, **named)
        costs[3, 4] = np.nan
        return costs

    monkeypatch.setattr(stereo.backend, "correlation_forward", spoilt)
    with pytest.raises(hs.StereoError, match="The correlation gave costs"):
        stereo.match(*images(rng), labels=LABELS, precision="half")
