"""The report in a real browser: what a reader clicks, presses and sees."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support import reportcase as case
from support.devtools import CHROMIUM, Browser

from hybridstereo.evaluation.report.pictures import color_range, error_codes, error_palette
from hybridstereo.io.color import colorize

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

MAP = '#scene-0 [data-method="sgbm"] [data-kind="disparity"]'
ERRORS = '#scene-0 [data-method="sgbm"] [data-kind="error"]'
ROW, COLUMN = 30, 40  # a pixel at which sgbm is 5 px off


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    case.write_report(folder)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(browser, folder):
    """The page, freshly loaded; nothing that a test does may make it complain."""
    browser.resize(1300, 900)
    browser.prefer("light")
    browser.open(folder / "report.html")
    yield browser
    assert browser.complaints() == []
    assert {url.partition(":")[0] for url in browser.requests()} <= {"file", "data", "blob"}


def pixel(page: Browser, image: str, row: int = ROW, column: int = COLUMN) -> tuple[int, ...]:
    """What an image file shows at a pixel, once it is decoded."""
    return tuple(
        page.evaluate(
            f"""(async image => {{
                await image.decode();
                const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
                const context = canvas.getContext("2d");
                context.drawImage(image, 0, 0);
                return [...context.getImageData({column}, {row}, 1, 1).data.slice(0, 3)];
            }})(document.querySelector('{image}'))"""
        )
    )


def expected(what: str, colormap: str = "turbo") -> tuple[int, ...]:
    truth = case.example_pair()
    disparity = truth.disparity if what == "truth" else case.map_of(what, truth)
    return tuple(map(int, colorize(disparity, *color_range(truth), colormap)[ROW, COLUMN]))


def attribute(page: Browser, selector: str, name: str) -> str:
    return page.evaluate(f"document.querySelector('{selector}').getAttribute('{name}')")


def text(page: Browser, selector: str) -> str:
    return page.evaluate(f"document.querySelector('{selector}').textContent")


def choose(page: Browser, select: str, value: str) -> None:
    """What a reader does with a list: the value changes and the page hears of it."""
    page.evaluate(
        f"(list => {{ list.value = '{value}'; list.dispatchEvent(new Event('change')); }})"
        f"(document.querySelector('{select}'))"
    )
    # Two frames: pictures in view are recoloured when the browser says that they are in view.
    page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
    page.evaluate("new Promise(r => setTimeout(r, 50))")


def column(page: Browser, table: int, index: int) -> list[str]:
    return page.evaluate(
        f"[...document.querySelectorAll('.sortable')[{table}].tBodies[0].rows]"
        f".map(row => row.cells[{index}].dataset.value)"
    )


def test_all_pictures_load(page):
    broken = page.evaluate(
        "Promise.allSettled([...document.querySelectorAll('img[src]')].map(i => i.decode()))"
        ".then(all => all.filter(one => one.status === 'rejected').length)"
    )
    assert broken == 0
    assert page.evaluate("document.querySelectorAll('img[src]').length") == 25
    assert page.evaluate("document.title") == "Stereo evaluation: tiny <set>"


def test_headings_sort_by_click(page):
    heading = ".sortable thead th:nth-child(3)"  # time
    assert column(page, 0, 2) == ["1.5", "0.125", ""]
    page.click(f"{heading} button")
    assert column(page, 0, 2) == ["0.125", "1.5", ""]
    assert attribute(page, heading, "aria-sort") == "ascending"
    page.click(f"{heading} button")
    assert column(page, 0, 2) == ["1.5", "0.125", ""]  # what has no value stays last
    assert attribute(page, heading, "aria-sort") == "descending"
    assert attribute(page, ".sortable thead th:nth-child(2)", "aria-sort") == "none"


def test_headings_sort_by_keyboard_and_names_as_people_count(page):
    page.click("details.all > summary")
    page.evaluate("document.querySelector('details.all thead button').focus()")
    page.press("Enter")
    names = list(dict.fromkeys(column(page, 2, 0)))
    assert names == [case.EVIL_SCENE, "scene9", "scene10", "unreadable"]


def test_a_click_flips_between_map_and_truth(page):
    assert pixel(page, f"{MAP} img") == expected("sgbm")
    page.click(MAP)
    assert pixel(page, f"{MAP} img") == expected("truth")
    assert attribute(page, MAP, "aria-pressed") == "true"
    assert text(page, f"{MAP} .badge") == "Truth"
    assert attribute(page, f"{MAP} img", "alt") == "Truth of scene10"
    page.click(MAP)
    assert pixel(page, f"{MAP} img") == expected("sgbm")
    assert text(page, f"{MAP} .badge") == "Disparity map"


@pytest.mark.parametrize("key", ["ArrowLeft", "ArrowRight", "Enter"])
def test_keys_flip_the_picture_with_the_focus(page, key):
    page.evaluate(f"document.querySelector('{MAP}').focus()")
    page.press(key)
    assert pixel(page, f"{MAP} img") == expected("truth")
    page.press(key)
    assert pixel(page, f"{MAP} img") == expected("sgbm")


def test_error_map_flips_to_the_left_image(page):
    page.click(ERRORS)
    assert attribute(page, f"{ERRORS} img", "alt") == "Left image of scene10"
    assert text(page, f"{ERRORS} .badge") == "Left image"


@pytest.mark.parametrize("colormap", ["kitti", "jet", "grey", "turbo"])
def test_colour_maps(page, colormap):
    page.evaluate("document.querySelector('#scene-0').scrollIntoView()")
    choose(page, "#disparity-colors", colormap)
    assert pixel(page, f"{MAP} img") == expected("sgbm", colormap)
    page.click(MAP)
    assert pixel(page, f"{MAP} img") == expected("truth", colormap)
    choose(page, "#disparity-colors", "grey")  # the truth that is shown there now changes as well
    assert pixel(page, f"{MAP} img") == expected("truth", "grey")


@pytest.mark.parametrize(("style", "legend"), [("bad4", "binary"), ("d1", "binary")])
def test_black_and_white_error_maps(page, style, legend):
    truth = case.example_pair()
    codes = error_codes(case.map_of("sgbm", truth), truth)
    kitti, binary = (
        tuple(map(int, error_palette(s)[codes[ROW, COLUMN]])) for s in ("kitti", style)
    )
    assert pixel(page, f"{ERRORS} img") == kitti
    page.evaluate("document.querySelector('#scene-0').scrollIntoView()")
    choose(page, "#error-colors", style)
    assert pixel(page, f"{ERRORS} img") == binary == (0, 0, 0)
    assert pixel(page, f"{ERRORS} img", row=0) == (140, 140, 140)
    shown = "getComputedStyle(document.querySelector('.for-{}')).display"
    assert page.evaluate(shown.format(legend)) == "flex"
    assert page.evaluate(shown.format("kitti")) == "none"


def test_groups_of_figures(page):
    visible = (
        "[...document.querySelectorAll('.sortable')].map(t => [...t.tHead.rows[0].cells]"
        ".filter(c => c.dataset.group && c.checkVisibility()).map(c => c.dataset.group))"
    )
    page.click("details.all > summary")
    assert page.evaluate(visible) == [["main"] * 4, [], ["main"] * 4]  # the spread has no groups
    choose(page, "#group", "all")
    assert page.evaluate(visible) == [["all"], [], ["all"]]
    choose(page, "#group", "pooled")
    assert page.evaluate(visible) == [["pooled"], [], ["main"] * 4]


def test_large_view(page):
    page.click('#scene-0 [data-method="ours"] .enlarge')
    assert page.evaluate("document.querySelector('#viewer').open")
    assert text(page, "#viewer-title") == "scene10 – ours"
    page.press("ArrowDown")
    assert text(page, "#viewer-title") == "scene10 – sgbm"
    assert pixel(page, "#viewer-image") == expected("sgbm")
    page.press("ArrowRight")
    assert pixel(page, "#viewer-image") == expected("truth")
    page.click("#viewer-image")
    assert pixel(page, "#viewer-image") == expected("sgbm")
    page.click('#viewer [data-act="kind"]')
    assert text(page, "#viewer-badge") == "Error map"
    page.press("ArrowUp")
    page.press("ArrowUp")
    assert text(page, "#viewer-title") == f"scene10 – {case.EVIL}"
    page.press("Escape")
    assert not page.evaluate("document.querySelector('#viewer').open")


def brightness(page: Browser) -> float:
    picture = cv2.imdecode(np.frombuffer(page.screenshot(), np.uint8), cv2.IMREAD_GRAYSCALE)
    assert picture.std() > 5  # there is something to see
    return float(np.median(picture))


def test_dark_and_light(page):
    assert brightness(page) > 230
    page.click("#theme")
    assert brightness(page) < 50
    page.prefer("dark")
    assert brightness(page) < 50
    page.click("#theme")
    assert brightness(page) > 230


def test_the_system_decides_at_first(page, folder):
    page.prefer("dark")
    page.open(folder / "report.html")
    assert brightness(page) < 50
    assert "Light" in text(page, "#theme")


CONTRAST = """
(selectors => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgb = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const paper = element => {
    while (element && rgb(getComputedStyle(element).backgroundColor)[3] < 255) {
      element = element.parentElement;
    }
    return rgb(getComputedStyle(element).backgroundColor);
  };
  return Object.fromEntries(selectors.map(selector => {
    const element = document.querySelector(selector);
    const [a, b] = [rgb(getComputedStyle(element).color), paper(element)].map(light);
    return [selector, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
  }));
})(["h1", ".title p", ".note", "tbody th small", "td.best", ".failures", "td .failed", ".figure",
    ".figure.best", ".bar", ".legend p", "footer", "thead button", "#theme"])
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_paper(page, scheme):
    page.prefer(scheme)
    ratios = page.evaluate(CONTRAST)
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def test_focus_is_visible(page):
    page.press("Tab")
    page.press("Tab")
    style = "(s => [s.outlineStyle, s.outlineWidth])(getComputedStyle(document.activeElement))"
    assert page.evaluate(style) == ["solid", "3px"]


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_sticks_out_on_a_phone(page, folder, width):
    page.resize(width, 800)
    page.open(folder / "report.html")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(f"document.querySelector('{MAP}').getBoundingClientRect().width") > 200
    assert brightness(page) > 230
