from __future__ import annotations

import numpy as np

from hybridstereo.charts import Canvas
from hybridstereo.io.images import read_image
from hybridstereo.training.curves import plot_curves


def entries():
    result = []
    for stage, name in (("unary", "cross_entropy"), ("joint", "hinge")):
        for step in range(60):
            entry = {"kind": "step", "stage": stage, "step": step, "loss": name}
            entry[name] = 3.0 / (step + 1)
            result.append(entry | ({"bad1": 50.0 - step / 2} if stage == "unary" else {}))
            if step % 20 == 0:
                figures = {"kind": "validation", "stage": stage, "step": step, "bad1": 40.0 - step}
                result.append(figures)
    return result


def test_picture_has_curves_in_their_colours(tmp_path):
    plot_curves(entries(), tmp_path / "curves.png")
    picture = (255 * read_image(tmp_path / "curves.png")).round().astype(int)
    assert picture.shape == (620, 1200, 3)
    for colour in ((200, 60, 50), (120, 150, 220), (170, 170, 170)):
        assert (np.abs(picture - colour).max(axis=2) < 12).sum() > 100


def test_empty_log_gives_an_empty_plot(tmp_path):
    plot_curves([], tmp_path / "curves.png")
    assert read_image(tmp_path / "curves.png").mean() > 0.9


def test_stages_too_short_for_their_names_share_a_label(tmp_path, monkeypatch):
    """The search of stage crf takes no steps, so that the next stage begins at the same place."""
    drawn = []
    monkeypatch.setattr(
        Canvas, "text", lambda self, x, y, words, *rest, **more: drawn.append(words)
    )
    between = {"kind": "validation", "stage": "crf", "step": 0, "bad1": 30.0}
    log = entries()
    plot_curves([*log[:63], between, *log[63:]], tmp_path / "curves.png")
    assert "unary" in drawn
    assert "crf, joint" in drawn
    assert "joint" not in drawn


def test_figures_that_are_no_numbers_are_left_out(tmp_path):
    log = entries()
    gaps = [{**entry, "bad1": np.nan, "hinge": np.inf} for entry in log]
    plot_curves(gaps, tmp_path / "curves.png")
    plot_curves(
        [{k: v for k, v in x.items() if k not in ("bad1", "hinge")} for x in log],
        tmp_path / "without.png",
    )
    same = (tmp_path / "curves.png").read_bytes() == (tmp_path / "without.png").read_bytes()
    assert same
