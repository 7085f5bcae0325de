"""Left and right views by their names."""

from __future__ import annotations

import pytest

from hybridstereo.batch.views import is_image, right_view


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("image_2/000000_10.png", "image_3/000000_10.png"),
        ("training/colored_0/1.png", "training/colored_1/1.png"),
        ("image_02/data/0.png", "image_03/data/0.png"),
        ("mav0/cam0/data/1.png", "mav0/cam1/data/1.png"),
        ("Teddy/im0.png", "Teddy/im1.png"),
        ("Aloe/Illum1/Exp0/view1.png", "Aloe/Illum1/Exp0/view5.png"),
        ("left/0001_left.png", "right/0001_right.png"),
        ("0001_LEFT.tif", "0001_RIGHT.tif"),
        ("leftImage7.png", "rightImage7.png"),
        ("0001_L.png", "0001_R.png"),
        ("l-0001.png", "r-0001.png"),
        ("rig_left/a.png", "rig_right/a.png"),
        ("a/b.png", None),
        ("bottle_1.png", None),
        ("cleft.png", None),
        ("model.png", None),
    ],
)
def test_right_view(left, right):
    assert right_view(left) == right


@pytest.mark.parametrize(
    ("name", "image"), [("a.png", True), ("a.JPG", True), ("a.txt", False), (".a.png", False)]
)
def test_images_by_name(name, image):
    assert is_image(name) == image
