"""Metrics against hand-computed tiny cases and against naive loops over the pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybridstereo import metrics
from hybridstereo.errors import InputError
from hybridstereo.io.calib import read_calibration
from hybridstereo.io.disparity import read_disparity
from hybridstereo.io.images import decode_pixels

INF, NAN = math.inf, math.nan


def f32(rows: list) -> np.ndarray:
    return np.array(rows, np.float32)


# ---------------------------------------------------------------------------------- naive oracles


def naive_figures(predicted: np.ndarray, truth: np.ndarray, mask: np.ndarray | None) -> dict:
    """Every figure by plain loops."""
    errors, missing, outliers, pixels = [], 0, 0, 0
    for y in range(truth.shape[0]):
        for x in range(truth.shape[1]):
            if not math.isfinite(truth[y, x]) or (mask is not None and not mask[y, x]):
                continue
            pixels += 1
            if not math.isfinite(predicted[y, x]):
                missing += 1
                outliers += 1
                continue
            error = abs(float(predicted[y, x]) - float(truth[y, x]))
            errors.append(error)
            outliers += error > 3 and error / abs(float(truth[y, x])) > 0.05
    errors.sort()
    figures = {
        f"bad{t:g}": 100 * (missing + sum(e > t for e in errors)) / pixels
        for t in metrics.BAD_THRESHOLDS
    }
    figures["d1"] = 100 * outliers / pixels
    figures["avgerr"] = figures["epe"] = sum(errors) / len(errors)
    figures["rms"] = math.sqrt(sum(e * e for e in errors) / len(errors))
    for percent in (50, 90, 95, 99):
        figures[f"a{percent}"] = next(
            e for i, e in enumerate(errors, 1) if 100 * i >= percent * len(errors)
        )
    figures["invalid"] = 100 * missing / pixels
    return figures


def naive_fill(disparity: np.ndarray) -> np.ndarray:
    """Rows hole by hole, then columns upwards and downwards."""
    filled = np.where(np.isfinite(disparity), disparity, INF).astype(np.float64)
    height, width = filled.shape
    for row in filled:
        x = 0
        while x < width:
            if math.isfinite(row[x]):
                x += 1
                continue
            end = x
            while end < width and not math.isfinite(row[end]):
                end += 1
            left = row[x - 1] if x > 0 else INF
            right = row[end] if end < width else INF
            row[x:end] = min(left, right)
            x = end
    for x in range(width):
        known = [y for y in range(height) if math.isfinite(filled[y, x])]
        if known:
            for y in range(height):
                if y < known[0]:
                    filled[y, x] = filled[known[0], x]
                elif y > known[-1]:
                    filled[y, x] = filled[known[-1], x]
    return filled


def naive_middlebury(
    predicted: np.ndarray, truth: np.ndarray, ndisp: int, isint: bool
) -> np.ndarray:
    """What is compared with the truth, pixel by pixel."""
    factor = truth.shape[1] // predicted.shape[1]
    compared = np.empty(truth.shape)
    for y in range(truth.shape[0]):
        for x in range(truth.shape[1]):
            d = factor * float(predicted[y // factor, x // factor])
            if math.isfinite(d):
                d = max(0.0, min(factor * ndisp, d))
                if isint:
                    whole = math.floor(d)
                    d = whole + (d - whole >= 0.5)
            compared[y, x] = d
    return compared


def random_maps(
    rng: np.random.Generator, shape: tuple[int, int] = (13, 17)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    truth = rng.uniform(0.5, 120, shape).astype(np.float32)
    predicted = (truth + rng.normal(0, 4, shape)).astype(np.float32)
    predicted[rng.random(shape) < 0.15] = INF
    predicted[rng.random(shape) < 0.05] = NAN
    predicted[rng.random(shape) < 0.05] = -INF
    truth[rng.random(shape) < 0.1] = INF
    truth[rng.random(shape) < 0.05] = NAN
    return predicted, truth, rng.random(shape) < 0.7


def assert_same(figures: dict, expected: dict) -> None:
    assert figures.keys() == expected.keys()
    for name, value in expected.items():
        assert figures[name] == pytest.approx(value, rel=1e-12, nan_ok=True), name


# ------------------------------------------------------------------------------------------ score


def test_hand_computed() -> None:
    truth = f32([[10, 20, 100, 100], [10, 10, INF, NAN]])
    predicted = f32([[10.5, 23.5, 104, 106], [INF, NAN, 3, 3]])
    # errors 0.5, 3.5 (17.5 %), 4 (4 %), 6 (6 %); two pixels without prediction; two unknown
    scores = metrics.score(predicted, truth)
    assert (scores.pixels, scores.invalid_pixels, scores.measured_pixels) == (6, 2, 4)
    assert scores.bad(0.5) == pytest.approx(100 * 5 / 6)  # 0.5 itself is not above 0.5
    assert scores.bad(3.0) == pytest.approx(100 * 5 / 6)
    assert scores.bad(4.0) == pytest.approx(100 * 3 / 6)
    assert scores.d1 == pytest.approx(100 * 4 / 6)  # 4 px of 100 px are within 5 %
    assert scores.average == scores.epe == pytest.approx(3.5)
    assert scores.rms == pytest.approx(math.sqrt((0.25 + 12.25 + 16 + 36) / 4))
    assert [scores.quantile(p) for p in (50, 90, 95, 99)] == [3.5, 6, 6, 6]
    assert scores.invalid == pytest.approx(100 * 2 / 6)


def test_quantiles_hand_computed() -> None:
    errors = np.arange(1, 101, dtype=np.float32)
    scores = metrics.score(np.zeros((1, 100)), np.random.default_rng(0).permutation(errors)[None])
    assert [scores.quantile(p) for p in metrics.QUANTILES] == [50, 90, 95, 99]
    scores = metrics.score(np.zeros((1, 20)), errors[None, :20])
    assert [scores.quantile(p) for p in metrics.QUANTILES] == [10, 18, 19, 20]


@pytest.mark.parametrize("masked", [False, True])
def test_naive(rng: np.random.Generator, masked: bool) -> None:
    for _ in range(10):
        predicted, truth, mask = random_maps(rng)
        chosen = mask if masked else None
        figures = metrics.score(predicted, truth, chosen).as_dict()
        assert_same(figures, naive_figures(predicted, truth, chosen))


def test_against_itself_all_zero(rng: np.random.Generator) -> None:
    _, truth, mask = random_maps(rng)
    assert set(metrics.score(truth, truth, mask).as_dict().values()) == {0.0}


def test_shifted_map_known_percentages() -> None:
    truth = np.full((10, 10), 40.0, np.float32)
    predicted = truth.copy()
    predicted[:3] += 2.5
    scores = metrics.score(predicted, truth)
    assert [scores.bad(t) for t in metrics.BAD_THRESHOLDS] == [30, 30, 30, 0, 0]
    assert scores.d1 == 0
    assert scores.average == pytest.approx(0.75)


def test_middlebury_mask_counts_255_only() -> None:
    truth = f32([[1, 1, 1, 1]])
    predicted = f32([[1, 9, 9, 9]])
    mask = np.array([[255, 255, 128, 0]], np.uint8)
    assert metrics.score(predicted, truth, mask).bad(1.0) == 50
    with pytest.raises(ValueError, match="bool or uint8"):
        metrics.score(predicted, truth, mask.astype(np.int64))


def test_d1_needs_both_conditions() -> None:
    truth = f32([[40, 100, 100, 80]])
    predicted = f32([[42.5, 104, 105.5, 76]])  # 2.5 px and 6 %; 4 px and 4 %; both; exactly 5 %
    assert metrics.score(predicted, truth).d1 == 25


def test_d1_of_negative_truth_uses_its_size() -> None:
    assert metrics.score(f32([[-100, -90]]), f32([[-104, -100]])).d1 == 50


@pytest.mark.parametrize("function", [metrics.score, metrics.score_kitti])
def test_nothing_to_evaluate_is_nan(function: Callable[..., metrics.Scores]) -> None:
    truth = np.full((2, 3), INF)
    scores = function(np.zeros((2, 3)), truth)
    assert scores.pixels == 0
    assert all(math.isnan(value) for value in scores.as_dict().values())
    scores = function(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3), bool))
    assert all(math.isnan(value) for value in scores.as_dict().values())


def test_nothing_predicted_is_all_bad_without_average() -> None:
    scores = metrics.score(np.full((2, 3), NAN), np.ones((2, 3)))
    assert scores.bad(4.0) == scores.d1 == scores.invalid == 100
    assert math.isnan(scores.average)
    assert math.isnan(scores.rms)
    assert math.isnan(scores.quantile(50))


def test_different_sizes() -> None:
    with pytest.raises(InputError, match=r"prediction is 4x3 but the truth is 4x2"):
        metrics.score(np.zeros((3, 4)), np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"mask is 2x4 but the truth is 4x2"):
        metrics.score(np.zeros((2, 4)), np.zeros((2, 4)), np.ones((4, 2), bool))
    with pytest.raises(InputError, match=r"prediction is 4x3"):
        metrics.score_kitti(np.zeros((3, 4)), np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"prediction is 2x4x3"):
        metrics.score(np.zeros((4, 2, 3)), np.zeros((4, 2)))
    with pytest.raises(ValueError, match="shape"):
        metrics.score(np.zeros((4, 2, 3)), np.zeros((4, 2, 3)))


def test_own_thresholds_give_the_cumulative_curve() -> None:
    scores = metrics.score(f32([[1, 2, 3, 4]]), f32([[0, 0, 0, 0]]), thresholds=(1.5, 3.5))
    assert scores.bad(1.5) == 75
    assert scores.bad(3.5) == 25
    assert [name for name in scores.as_dict() if name.startswith("bad")] == ["bad1.5", "bad3.5"]


# ------------------------------------------------------------------------------------------ KITTI


def test_fill_background_hand_computed() -> None:
    holes = f32(
        [
            [INF, INF, INF, INF],
            [INF, 5, INF, 3],
            [INF, INF, INF, INF],
            [7, NAN, INF, 9],
            [INF, INF, INF, INF],
        ]
    )
    filled = metrics.fill_background(holes)
    assert filled.tolist() == [
        [5, 5, 3, 3],
        [5, 5, 3, 3],
        [INF, INF, INF, INF],  # an empty row between others stays empty
        [7, 7, 7, 9],
        [7, 7, 7, 9],
    ]
    assert np.isinf(holes[0]).all()  # not in place


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (9, 12)])
def test_fill_background_naive(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    for share in (0.0, 0.3, 0.8, 1.0):
        disparity = rng.uniform(0, 90, shape).astype(np.float32)
        disparity[rng.random(shape) < share] = INF
        disparity[rng.random(shape[0]) < share / 2] = NAN
        np.testing.assert_array_equal(metrics.fill_background(disparity), naive_fill(disparity))


def test_score_kitti_fills_and_still_counts_holes() -> None:
    truth = f32([[10, 10, 50, 50], [INF, 10, 10, 10]])
    predicted = f32([[10, INF, INF, 50], [INF, INF, INF, INF]])
    # row 0 becomes 10 10 10 50, row 1 its copy: errors 0 0 40 0, - 0 0 40
    scores = metrics.score_kitti(predicted, truth)
    assert scores.d1 == scores.bad(3.0) == pytest.approx(100 * 2 / 7)
    assert scores.invalid == pytest.approx(100 * 5 / 7)
    assert scores.average == pytest.approx(80 / 7)


def test_score_kitti_unfillable_pixels_are_outliers() -> None:
    truth = f32([[1], [1], [1]])  # the devkit's -1 would be within 3 px of it
    scores = metrics.score_kitti(f32([[1], [INF], [1]]), truth)
    assert scores.d1 == pytest.approx(100 / 3)
    assert scores.measured_pixels == 2


def test_score_kitti_naive(rng: np.random.Generator) -> None:
    for _ in range(5):
        predicted, truth, mask = random_maps(rng)
        expected = naive_figures(naive_fill(predicted), truth, mask)
        evaluated = mask & np.isfinite(truth)
        expected["invalid"] = 100 * (~np.isfinite(predicted))[evaluated].mean()
        assert_same(metrics.score_kitti(predicted, truth, mask).as_dict(), expected)


# ------------------------------------------------------------------------------------- Middlebury


def test_score_middlebury_clips() -> None:
    scores = metrics.score_middlebury(f32([[70, -3, INF, 5]]), f32([[64, 0, 5, 5]]), ndisp=64)
    assert scores.bad(0.5) == scores.invalid == 25


def test_score_middlebury_replicates_and_rounds() -> None:
    predicted = f32([[1.2, 2.125]])
    truth = np.repeat(f32([[5, 5, 5, 5, 8, 8, 8, 8]]), 4, axis=0)
    plain = metrics.score_middlebury(predicted, truth, ndisp=64)
    assert plain.average == pytest.approx(0.35)  # 4.8 against 5 and 8.5 against 8
    rounded = metrics.score_middlebury(predicted, truth, ndisp=64, isint=True)
    assert rounded.average == 0.5  # 5 against 5 and, halves upwards, 9 against 8
    assert metrics.score_middlebury(predicted, truth, ndisp=2).average == pytest.approx(0.1)


@pytest.mark.parametrize("factor", [1, 2, 4])
@pytest.mark.parametrize("isint", [False, True])
def test_score_middlebury_naive(rng: np.random.Generator, factor: int, isint: bool) -> None:
    predicted, _, _ = random_maps(rng, (5, 7))
    _, truth, mask = random_maps(rng, (5 * factor, 7 * factor))
    compared = naive_middlebury(predicted, truth, 50, isint)
    expected = naive_figures(compared, truth, mask)
    scores = metrics.score_middlebury(predicted, truth, mask, ndisp=50, isint=isint)
    assert_same(scores.as_dict(), expected)


@pytest.mark.parametrize("shape", [(4, 8), (5, 8), (12, 24), (2, 8), (0, 0), (4, 8, 1)])
def test_score_middlebury_wrong_sizes(shape: tuple[int, ...]) -> None:
    truth = np.zeros((12, 24)) if shape != (12, 24) else np.zeros((6, 12))
    with pytest.raises(InputError, match="1, 2 or 4 times"):
        metrics.score_middlebury(np.zeros(shape), truth, ndisp=9)


# ------------------------------------------------------------------------------------------ means


def test_pooled_counts_every_pixel_the_same() -> None:
    small = metrics.score(f32([[0]]), f32([[5]]))
    large = metrics.score(np.zeros((3, 3)), np.zeros((3, 3)))
    empty = metrics.score(f32([[0]]), f32([[INF]]))
    pooled = metrics.pooled([small, large, empty])
    assert pooled.bad(1.0) == 10
    assert pooled.average == 0.5
    assert pooled.rms == pytest.approx(math.sqrt(2.5))
    assert math.isnan(pooled.quantile(50))


def test_pooled_equals_one_image_of_all_pixels(rng: np.random.Generator) -> None:
    maps = [random_maps(rng) for _ in range(3)]
    together = metrics.score(*(np.concatenate(parts) for parts in zip(*maps, strict=True)))
    expected = together.as_dict() | {f"a{p}": NAN for p in metrics.QUANTILES}
    assert_same(metrics.pooled([metrics.score(*one) for one in maps]).as_dict(), expected)


def test_means_of_nothing() -> None:
    assert metrics.pooled([]).pixels == 0
    empty = metrics.score(f32([[0]]), f32([[INF]]))
    assert math.isnan(metrics.pooled([empty]).as_dict()["d1"])


def test_middlebury_mean() -> None:
    assert sum(metrics.MIDDLEBURY_V3_WEIGHTS.values()) == 12.5
    assert len(metrics.MIDDLEBURY_V3_WEIGHTS) == 15
    assert metrics.middlebury_mean({"Teddy": 3.0, "Vintage": 9.0}) == pytest.approx(5.0)
    assert math.isnan(metrics.middlebury_mean({}))
    assert math.isnan(metrics.middlebury_mean({"Teddy": NAN, "Vintage": 9.0}))
    with pytest.raises(InputError, match=r"teddy has no weight"):
        metrics.middlebury_mean({"teddy": 3.0})


def test_middlebury_mean_reproduces_the_published_table() -> None:
    # bad4 of the published 3-layer full model, scene by scene, and its weighted mean 9.46.
    figures = {
        "Adirondack": 3.82,
        "ArtL": 7.1,
        "Jadeplant": 12.44,
        "Motorcycle": 4.83,
        "MotorcycleE": 4.29,
        "Piano": 11.84,
        "PianoL": 20.64,
        "Pipes": 6.3,
        "Playroom": 12.57,
        "Playtable": 10.31,
        "PlaytableP": 7.47,
        "Recycle": 5.62,
        "Shelves": 30.6,
        "Teddy": 5.08,
        "Vintage": 24.73,
    }
    assert metrics.middlebury_mean(figures) == pytest.approx(9.46, abs=0.005)


def test_every_figure_is_documented() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "metrics.md").read_text("utf-8")
    for name in metrics.score(f32([[0]]), f32([[1]])).as_dict():
        assert f"`{name}`" in text, name
    for scene, weight in metrics.MIDDLEBURY_V3_WEIGHTS.items():
        assert (scene in text.split("weighted 0.5 (")[1].split(")")[0].split(", ")) == (weight < 1)


# ----------------------------------------------------------------------------------- sparsification


def naive_sparsification(confidence: np.ndarray, bad: np.ndarray) -> list[float]:
    """The definition for different confidences and a number of pixels that 100 divides."""
    order = sorted(range(bad.size), key=lambda i: -confidence[i])
    counts = [bad.size * share // 100 for share in range(1, 101)]
    return [100 * sum(bad[i] for i in order[:count]) / count for count in counts]


def test_sparsification_against_the_definition() -> None:
    generator = np.random.default_rng(6)
    confidence, bad = generator.permutation(400), generator.random(400) < 0.3
    found = metrics.sparsification(confidence, bad)
    expected = naive_sparsification(confidence, bad)
    np.testing.assert_allclose(found.curve, expected)
    assert found.area == pytest.approx(np.mean(expected))


def test_sparsification_of_the_best_and_of_no_order() -> None:
    bad = np.arange(1000) < 200
    best = metrics.sparsification(~bad, bad)
    assert best.density(0) == 80
    assert best.density(1) == 80
    assert best.density(20) == 100
    assert best.area < 3
    # Equal confidences: as if the order were random, whatever the order of the pixels.
    same = metrics.sparsification(np.ones(1000), bad)
    np.testing.assert_allclose(same.curve, 20)
    assert same.density(1) == 0
    worst = metrics.sparsification(bad, bad)
    assert worst.area > 40
    assert np.isnan(metrics.sparsification(np.empty(0), np.empty(0, bool)).area)


def test_figures_of_the_confidence_are_documented() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "metrics.md").read_text("utf-8")
    for name in ("ausc", "ausc_best", "density1", "_unfilled"):
        assert f"`{name}`" in text, name


# ------------------------------------------------------------------------------------- real truth


@pytest.mark.shared
def test_real_scene_shifted(shared: Path) -> None:
    scene = shared / "data" / "MiddEval3" / "trainingQ" / "Teddy"
    truth = read_disparity(scene / "disp0GT.pfm")
    mask_file = scene / "mask0nocc.png"
    mask = decode_pixels(mask_file.read_bytes(), mask_file.name)
    ndisp = read_calibration(scene / "calib.txt").ndisp
    assert ndisp == 64
    right = metrics.score_middlebury(truth, truth, mask, ndisp=ndisp)
    assert right.bad(0.5) == 0
    assert right.pixels == np.count_nonzero(mask == 255)
    shifted = metrics.score_middlebury(truth + 1.5, truth, mask, ndisp=ndisp)
    assert shifted.bad(1.0) == 100
    assert shifted.bad(2.0) == 0
    assert shifted.average == pytest.approx(1.5)
