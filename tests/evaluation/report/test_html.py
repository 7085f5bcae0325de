from __future__ import annotations

import base64
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest
from support import reportcase as case

import hybridstereo.evaluation.report.html as report_module
from hybridstereo.datasets import StereoPair
from hybridstereo.datasets.pair import truth_pair
from hybridstereo.errors import OutputError
from hybridstereo.evaluation.report.charts import (
    ChartPoint,
    curve_chart,
    scatter_chart,
    sparsification_chart,
)
from hybridstereo.evaluation.report.html import HtmlReport
from hybridstereo.evaluation.report.pictures import (
    ERROR_STYLES,
    KITTI_ERROR_COLORS,
    NO_ESTIMATE_COLOR,
    color_range,
    error_codes,
    error_palette,
    scene_pictures,
)
from hybridstereo.evaluation.report.text import group, is_percentage, label, meaning
from hybridstereo.evaluation.results import CURVE_ERRORS, Evaluation
from hybridstereo.io.color import colorize, palette
from hybridstereo.metrics import BAD_THRESHOLDS, score

VOID = {"meta", "img", "br", "input", "link", "hr"}


class Page(HTMLParser):
    """Checks that tags are balanced; collects elements, and the text of table rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} appears twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.text += data
        if "tr" in self.open and self.rows[-1]:
            self.rows[-1][-1] += data

    def all(self, tag: str, css_class: str = "") -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag
            and (not css_class or css_class in (attributes.get("class") or "").split())
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation") / "new" / "report"
    case.write_report(folder)
    return folder


@pytest.fixture(scope="module")
def source(folder) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source) -> Page:
    return Page(source)


def decode(source: str) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(source.partition(",")[2]), np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1]


# ---- the files ----


def test_two_files_and_nothing_else(folder):
    assert sorted(os.listdir(folder)) == ["report.html", "report.json"]


def test_the_page_loads_nothing_from_anywhere(source, page):
    assert not re.search(r"https?:|//[a-z0-9-]+\.[a-z]|@import|url\((?!#)", source)
    for _, attributes in page.elements:
        for name in ("src", "href", "data", "poster", "srcset"):
            assert (attributes.get(name) or "#").startswith(("data:image/", "#"))
    policies = [m for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in (policies[0]["content"] or "")


def test_names_are_escaped(source, page):
    assert "<script>alert" not in source
    assert "<img src=x" not in source
    assert "<i>in</i>" not in source
    assert "<broken>" not in source
    for name in (
        case.EVIL,
        case.EVIL_SCENE,
        case.FAILURE,
        "settings <i>in</i> markup",
        "tiny <set>",
    ):
        assert name in page.text
    assert len(page.all("script")) == 2
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)


def test_names_that_are_not_unicode(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    report = HtmlReport(tmp_path)
    report.scene(name, case.example_pair(), {}, {})
    report.finish(Evaluation("d", [], [name], [], {}, "bad1"))
    assert "caf?" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "report.json").read_text())["scenes"] == [name]


def test_json_has_all_figures_and_null_for_what_is_not_known(folder):
    data = json.loads((folder / "report.json").read_text())
    assert data["dataset"] == "tiny <set>"
    assert data["primary"] == "bad1"
    assert [method["name"] for method in data["methods"]] == [m.name for m in case.METHODS]
    assert data["means"]["sgbm"]["bad1"] == 21.0
    assert data["means"][case.EVIL]["avgerr"] is None
    assert len(data["results"]) == 12
    failed = [r for r in data["results"] if r["error"]]
    assert (failed[0]["scene"], failed[0]["method"]) == ("scene9", "sgbm")
    assert data["seconds"]["ours"] == 1.5
    assert len(data["curve_errors"]) == len(data["curves"]["ours"]) == len(CURVE_ERRORS)
    at = dict(zip(data["curve_errors"], data["curves"]["ours"], strict=True))
    assert (at[0.2], at[0.3]) == (0, 100)


def test_a_folder_that_cannot_be_made_is_noticed_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        HtmlReport(tmp_path / "file" / "report")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        HtmlReport(tmp_path)


def test_an_empty_evaluation_still_gives_a_page(tmp_path):
    HtmlReport(tmp_path).finish(Evaluation("nothing", [], [], [], {}, "bad1"))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "0 scenes, 0 methods" in page.text


def test_when_there_is_very_much_to_show_later_pictures_are_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "_AMPLE", 1)
    monkeypatch.setattr(report_module, "_WIDEST_WHEN_MANY", 32)
    report = HtmlReport(tmp_path)
    for scene in case.SCENES[:2]:
        report.scene(scene, case.example_pair(), {}, {})
    report.finish(Evaluation("d", [], case.SCENES[:2], [], {}, "bad1"))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    sizes = [(i["width"], i["height"]) for i in page.all("img") if "width" in i]
    assert sizes == [("64", "40")] * 2 + [("32", "20")] * 2


# ---- what the page shows ----


def test_every_scene_and_method_is_there(page):
    assert [a["id"] for a in page.all("article")] == [f"scene-{i}" for i in range(4)]
    for name in (*case.SCENES, *(method.name for method in case.METHODS)):
        assert name in page.text
    tiles = page.all("figure", "method")
    assert len(tiles) == 12
    assert (
        len(page.all("button", "picture")) == 2 * 8
    )  # all but one failure and one unreadable scene


def test_spread_of_the_scenes(page):
    assert ["ours", "3.50", "0.58", "4.50", case.EVIL_SCENE] in page.rows
    assert "sgbm is better than ours on 0 of 2 scenes" in page.text


def test_summary_is_sorted_by_the_primary_figure_and_its_numbers_are_right(page):
    header, *rows = page.rows[:4]
    columns = [re.sub(r" [%pxs]+$", "", text) for text in header]
    assert columns == ["Method", "bad 1", "time", "D1", "avg. error", "invalid", "bad 1", "bad 1",
                       "failed"]  # fmt: skip
    assert rows[0][1:] == ["3.50", "1.50", "1.75", "0.25", "0.00", "4.50", "3.75", "1"]
    assert rows[1][1:] == ["21.00", "0.125", "10.50", "5.00", "4.00", "22.00", "21.50", "2"]
    assert rows[2][0].startswith(case.EVIL)
    assert rows[2][1:5] == ["100.00", "–", "50.00", "–"]


def test_sort_keys_keep_full_precision_and_are_empty_for_missing_values(page):
    keys = [a["data-value"] for a in page.all("td") if "data-value" in a]
    assert "21.0" in keys
    assert "" in keys
    assert not any(key in ("nan", "inf", "None") for key in keys)


def test_failures_are_listed_and_shown_in_place(page):
    assert "4 results missing" in page.text
    assert page.text.count(f"Failed. {case.FAILURE}") == 4
    assert page.text.count(f"failed: {case.FAILURE}") == 4


def test_pictures_have_texts_and_sizes(page):
    for image in page.all("img"):
        assert image["alt"] or image["id"] == "viewer-image"
    assert {(i["width"], i["height"]) for i in page.all("img") if "width" in i} == {("64", "40")}


def test_headings_sort_by_keyboard_too(page):
    headings = [a for a in page.all("th") if a.get("scope") == "col"]
    assert [a["aria-sort"] for a in headings].count("ascending") == 1
    assert len(page.all("button")) > len(headings)


def test_pictures_show_the_maps_in_the_colours_of_colorize(page):
    images = {image["alt"]: image["src"] for image in page.all("img") if "src" in image}
    truth = case.example_pair()
    lo, hi = color_range(truth)
    np.testing.assert_array_equal(
        decode(images["Truth of scene10"]), colorize(truth.disparity, lo, hi)
    )
    np.testing.assert_array_equal(
        decode(images["Disparity map of sgbm on scene10"]),
        colorize(case.map_of("sgbm", truth), lo, hi),
    )
    difference = decode(images["Left image of scene10"]) - 255 * truth.left
    assert np.abs(difference).mean() < 3  # JPEG


# ---- error maps ----


def pixels(truth: list[float], mask: list[bool] | None = None) -> StereoPair:
    known = np.array([truth], np.float64)
    return truth_pair(known, None if mask is None else np.array([mask]))


@pytest.mark.parametrize(
    ("truth", "guess", "color"),
    [(10, 10, 0), (10, 10.1875, 0), (10, 10.2, 1), (10, 12.9, 4), (10, 13, 4), (10, 13.1, 5),
     (10, 7, 4), (10, 70, 9), (100, 104, 4), (100, 105.5, 5), (-100, -104, 4), (0, 3.5, 5)],
)  # fmt: skip
def test_kitti_colours(truth, guess, color):
    codes = error_codes(np.array([[guess]]), pixels([truth]))
    np.testing.assert_array_equal(error_palette("kitti")[codes][0, 0], KITTI_ERROR_COLORS[color])


def test_holes_unknown_and_occluded_pixels():
    truth = pixels([10, 10, np.inf, 10, 10], [True, False, False, False, True])
    codes = error_codes(np.array([[np.inf, 10, 10, np.nan, 11.5]]), truth)
    kitti, black = error_palette("kitti")[codes][0], error_palette("bad1")[codes][0, :, 0]
    assert tuple(kitti[0]) == NO_ESTIMATE_COLOR
    np.testing.assert_array_equal(kitti[1], np.array(KITTI_ERROR_COLORS[0]) // 2)
    assert tuple(kitti[2]) == (0, 0, 0)
    assert black.tolist() == [0, 140, 140, 140, 0]
    assert error_palette("bad2")[codes][0, 4, 0] == 255


def test_black_pixels_are_those_that_the_metrics_count():
    rng = np.random.default_rng(3)
    disparity = np.where(rng.random((50, 60)) < 0.1, np.inf, rng.uniform(0, 120, (50, 60)))
    mask = (rng.random((50, 60)) < 0.8) & np.isfinite(disparity)
    guess = disparity + rng.normal(0, 3, (50, 60))
    guess[rng.random((50, 60)) < 0.1] = np.inf
    truth = truth_pair(disparity, mask)
    codes, scores = error_codes(guess, truth), score(guess, disparity, mask)

    def black(style: str) -> float:
        return 100 * float(np.mean(error_palette(style)[codes][mask][:, 0] == 0))

    assert black("d1") == pytest.approx(scores.d1)
    for limit in BAD_THRESHOLDS:
        assert black(f"bad{limit:g}") == pytest.approx(scores.bad(limit))


def test_every_style_has_a_palette_of_256_colours():
    for style in ERROR_STYLES:
        assert error_palette(style).shape == (256, 3)


def test_large_pictures_are_reduced_and_sparse_ones_stay_visible():
    disparity = np.full((200, 1000), np.inf, np.float32)
    disparity[::5, ::5] = 20
    truth = truth_pair(disparity)
    pictures = scene_pictures(truth, {"m": np.full_like(disparity, 20)}, widest=250)
    assert (pictures.width, pictures.height) == (250, 50)
    for source in (pictures.left, pictures.truth, pictures.maps["m"], pictures.errors["m"]):
        assert decode(source).shape == (50, 250, 3)
    assert decode(pictures.truth).any(axis=2).mean() > 0.2  # one in 25 without thickening


def test_grey_where_there_is_no_left_image():
    left = decode(scene_pictures(pixels([1, 2, 3, 4]), {}, widest=250).left)
    assert left.shape == (1, 4, 3)
    assert np.unique(left).tolist() == [128]


def test_range_of_an_unknown_or_flat_truth():
    assert color_range(pixels([np.inf, np.inf])) == (0, 1)
    assert color_range(pixels([7, 7])) == (7, 8)


# ---- charts and words ----


def test_sparsification_chart_has_the_colours_of_the_table():
    shares = [0.25, 0.5, 1.0]
    svg = sparsification_chart(shares, {"a<b": (3, np.array([0.0, 2.0, 8.0]))})
    line = re.search(r'class="line series-3" points="([^"]*)"><title>a&lt;b', svg)
    assert line is not None
    places = [tuple(map(float, point.split(","))) for point in line[1].split()]
    across, down = zip(*places, strict=True)
    assert across[2] - across[1] == pytest.approx(2 * (across[1] - across[0]), abs=0.2)
    assert down[0] > down[1] > down[2] > 0
    # Nothing bad at all is a line on the axis.
    assert "<polyline" in sparsification_chart(shares, {"perfect": (0, np.zeros(3))})


def test_curves_end_at_100_percent_on_top():
    curve = 100.0 * (CURVE_ERRORS >= 1.95)
    svg = curve_chart(CURVE_ERRORS.tolist(), {"a<b": curve, "none": curve * math.nan})
    assert "a&lt;b" in svg
    points = [tuple(map(float, p.split(","))) for p in re.findall(r"[\d.]+,[\d.]+", svg)]
    assert points[0] == (52.0, 294.0)
    assert points[-1] == (544.0, 14.0)
    assert svg.count("<polyline") == 1
    assert "No method" in curve_chart(CURVE_ERRORS.tolist(), {"none": curve * math.nan})


def test_scatter_places_fast_left_and_accurate_low():
    points = [ChartPoint("slow & good", 0, 10.0, 2.0), ChartPoint("fast", 1, 0.01, 20.0),
              ChartPoint("from files", 2, math.nan, 1.0)]  # fmt: skip
    svg = scatter_chart(points, "bad 1 (%)")
    circles = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)
    (fast_x, fast_y), (slow_x, slow_y) = (tuple(map(float, circle)) for circle in circles)
    assert fast_x < slow_x
    assert fast_y < slow_y
    assert "slow &amp; good: 2.00, 10 s" in svg
    assert "from files" not in svg
    assert "No method was timed" in scatter_chart(points[2:], "bad 1 (%)")


@pytest.mark.parametrize("seconds", [1e-6, 0.3, 1.0, 5e4])
def test_scatter_of_one_method_without_errors(seconds):
    svg = scatter_chart([ChartPoint("one", 0, seconds, 0.0)], "bad 1 (%)")
    x, y = map(float, re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)[0])
    assert 52 < x < 544
    assert y == 294


@pytest.mark.parametrize(
    ("name", "words", "percentage", "where"),
    [("bad0.5", "bad 0.5", True, "main"), ("d1_noc", "D1 non-occ.", True, "main"),
     ("avgerr_all", "avg. error all", False, "all"), ("a95_pooled", "A95 pooled", False, "pooled"),
     ("bad2_all_pooled", "bad 2 all pooled", True, "all-pooled"), ("new", "new", False, "main")],
)  # fmt: skip
def test_names_of_figures(name, words, percentage, where):
    assert label(name) == words
    assert is_percentage(name) is percentage
    assert group(name) == where
    assert meaning(name).endswith("(%)" if percentage else "(px)")


def test_the_scripts_palettes_are_those_of_the_pictures(source):
    data = json.loads(re.search(r'id="palettes">(.*?)</script>', source)[1])
    assert base64.b64decode(data["disparity"]["jet"]) == palette("jet").tobytes()
    assert base64.b64decode(data["error"]["d1"]) == error_palette("d1").tobytes()
