"""The figure that picks a model is the figure that `hstereo eval` prints."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.pairfiles import kitti_frame

from hybridstereo import kernels
from hybridstereo.datasets import Sample, StereoPair, open_dataset
from hybridstereo.datasets.loader import PairCache
from hybridstereo.evaluation.compare import EvalOptions, evaluate_dataset
from hybridstereo.io.disparity import read_disparity, write_disparity
from hybridstereo.io.mask import read_mask
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import save_model
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.synthetic.write import write_scene
from hybridstereo.training.validation import CRITERIA, figures_of, sample_scores, validate

V3_SCENES = ["trainingQ/Piano", "trainingQ/PianoL", "trainingQ/Shelves"]  # weights 1, 1/2, 1/2


def _pair(disparity: np.ndarray, valid: np.ndarray | None = None) -> StereoPair:
    image = np.zeros((*disparity.shape, 3), np.float32)
    seen = np.ones(disparity.shape, bool) if valid is None else valid
    return StereoPair(image, image, disparity, seen)


def _map(error: list[float]) -> tuple[StereoPair, np.ndarray]:
    """A prediction with these errors at disparity 10, where D1 counts those over 3 px."""
    truth = np.full((1, len(error)), 10.0, np.float32)
    # The last pixel tells the range, to which Middlebury's rules clip, and is not counted.
    pair = _pair(np.append(truth, [[40.0]], axis=1), np.arange(len(error) + 1)[None] < len(error))
    return pair, np.append(truth + np.float32(error), [[40.0]], axis=1).astype(np.float32)


def _samples(*sources: str) -> list[Sample]:
    read = partial(_pair, np.zeros((1, 1), np.float32))
    return [Sample(str(i), f"{x}/{i}", x, (), read) for i, x in enumerate(sources)]


def _figures(
    samples: list[Sample], maps: Iterable[tuple[StereoPair, np.ndarray]]
) -> dict[str, float]:
    mapped = zip(samples, maps, strict=True)
    return figures_of(samples, [sample_scores(sample, *found) for sample, found in mapped])


def test_each_data_set_is_judged_by_its_own_figure_and_counts_the_same():
    # 2 px: counted by bad1, not by D1.  4 px: counted by both.
    indoors, street = _map([0.0, 0.0, 0.0, 2.0]), _map([2.0, 2.0, 4.0, 0.0])
    samples = _samples("middlebury", "kitti", "kitti", "kitti")
    figures = _figures(samples, [indoors, street, street, street])
    assert tuple(figures) == CRITERIA
    assert figures["benchmark"] == pytest.approx((25.0 + 25.0) / 2)
    assert figures["bad1"] == pytest.approx((25.0 + 75.0) / 2)
    assert _figures(samples[1:], 3 * [street])["benchmark"] == pytest.approx(25.0)
    assert _figures(samples[:1], [street])["benchmark"] == pytest.approx(75.0)


def test_pairs_without_truth_do_not_hide_the_others():
    truth = np.full((1, 2), 10.0, np.float32)
    nothing = _pair(truth, np.zeros((1, 2), bool)), truth
    samples = _samples("middlebury", "kitti")
    figures = _figures(samples, [_map([0.0, 2.0]), nothing])
    assert figures["benchmark"] == pytest.approx(50.0)
    assert math.isnan(_figures(samples[1:], [nothing])["benchmark"])


def _generated(folder: Path, names: Iterable[str]) -> None:
    """Small scenes in the Middlebury layout, whose rules round maps where calib.txt asks for it."""
    options = SceneOptions(height=36, width=60, max_disparity=12.3, objects=4)
    for seed, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        *_, calib = write_scene(folder / name, generate_scene(seed, options))
        calib.write_text(calib.read_text().replace("isint=0", "isint=1"))


def _kitti(folder: Path) -> None:
    _generated(folder / "scenes", "012")
    for index, scene in enumerate(sorted((folder / "scenes").iterdir())):
        frame = f"{index:06d}_10.png"
        kitti_frame(folder / "training", frame)  # its plain grey files make room for the scene's
        for view, name in (("image_2", "im0.png"), ("image_3", "im1.png")):
            shutil.copy(scene / name, folder / "training" / view / frame)
        disparity = read_disparity(scene / "disp0GT.pfm")
        write_disparity(folder / "training/disp_occ_0" / frame, disparity)
        disparity[~read_mask(scene / "mask0nocc.png")] = np.inf
        write_disparity(folder / "training/disp_noc_0" / frame, disparity)


def _csv_list(folder: Path) -> None:
    _generated(folder, "012")
    names = ("im0.png", "im1.png", "disp0GT.pfm", "mask0nocc.png")
    lines = [",".join(f"{scene}/{name}" for name in names) for scene in "012"]
    (folder / "pairs.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("source", "write", "primary", "mean"),
    [
        ("middlebury", partial(_generated, names="012"), "bad1", "mean"),
        ("middlebury", partial(_generated, names=V3_SCENES), "bad1", "weighted mean"),
        ("kitti", _kitti, "d1_noc", "mean"),
        ("csv", _csv_list, "bad1", "mean"),
    ],
    ids=["Middlebury layout", "Middlebury v3", "KITTI", "CSV list"],
)
def test_validation_gives_what_eval_prints(tmp_path, source, write, primary, mean):
    """Range, rounding, rules and means are those of the evaluation, to the bit."""
    root, file = tmp_path / "data", tmp_path / "m.h5"
    write(root)
    model = census_model()
    save_model(file, model)
    options = EvalOptions(models=(f"m={file}",), baselines=("argmax",), device="cpu")
    printed = evaluate_dataset(source, str(root), options).evaluation
    assert (printed.primary, printed.mean_name) == (primary, mean)
    dataset = open_dataset(source, str(root))
    for method, name in (("crf", "m"), ("argmax", "m argmax")):
        means = printed.means[name]
        cache = PairCache(dataset)
        found = validate(model, kernels.select("cpu"), cache, dataset.samples, method)
        expected = {x: means[x] for x in ("bad1", "bad2", "bad3", "bad4")}
        assert found == {"benchmark": means[primary], **expected, "d1": means["d1_noc"]}
        # Or other pixels and another mean would do as well.
        values = [x.figures[primary] for x in printed.results if x.method == name]
        assert means["d1_noc"] != means["d1_all"]
        assert (means[primary] == pytest.approx(np.mean(values))) == (mean == "mean")
