"""Training runs: stages, the run folder, resuming, interruptions, bad data."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from crash_campaign import contents_of_model
from support.listening import Listener

from hybridstereo import kernels, memory
from hybridstereo.datasets import StereoPair, rectified
from hybridstereo.engines.ranks import Alone
from hybridstereo.errors import InputError, OutOfMemoryError
from hybridstereo.evaluation.compare import EvalOptions, evaluate_dataset
from hybridstereo.io.disparity import write_disparity
from hybridstereo.io.images import write_image
from hybridstereo.io.weights import read_weights
from hybridstereo.labels import LabelRange
from hybridstereo.model import with_config
from hybridstereo.models.census import census_model
from hybridstereo.models.zoo import load_model, save_model, stage_model
from hybridstereo.synthetic import SceneOptions, generate_scene
from hybridstereo.training import stages
from hybridstereo.training.imitation import imitate_contrast
from hybridstereo.training.options import TrainOptions, options_from_config
from hybridstereo.training.parallel import mean_step
from hybridstereo.training.run import train
from hybridstereo.training.runfolder import RunFolder
from hybridstereo.training.stages import Budget, TrainingDivergedError
from hybridstereo.training.steps import HingeOptions, Step, structured_step

pytestmark = pytest.mark.slow


def test_rectify_corrects_what_is_trained_and_validated_on(options, tmp_path, monkeypatch):
    corrected = []

    def spy(dataset):
        corrected.append(rectified(dataset))
        return corrected[-1]

    monkeypatch.setattr("hybridstereo.training.run.rectified", spy)
    monkeypatch.setattr("hybridstereo.training.run._run_stages", lambda context, *_: context)
    context = train(replace(options, rectify=True, stage="unary"), tmp_path / "run")
    assert context.dataset is corrected[0]
    assert set(context.training) | set(context.validation) == set(corrected[0].samples)
    pair = context.cache.load(context.validation[0])
    assert pair.rectification is not None
    assert options_from_config(RunFolder(tmp_path / "run").config()).rectify


def test_test_scenes_judge_once_and_as_eval_does(options, scenes, tmp_path, monkeypatch):
    listener = Listener()
    names = sorted(path.name for path in Path(scenes).iterdir() if path.is_dir())
    options = replace(options, stage="unary", steps=2, test_scenes=tuple(names[:2]))
    train(options, tmp_path / "run", reporter=listener)
    messages = listener.texts
    assert "2 test pairs" in " ".join(messages)
    assert any(re.match(r"test middlebury: bad1 \S+ % \(mean of 2;", text) for text in messages)
    stored = json.loads((tmp_path / "run/test.json").read_text())["middlebury"]
    assert stored["scenes"] == names[:2]
    asked = EvalOptions(models=(str(tmp_path / "run"),), scenes=tuple(names[:2]), device="cpu")
    printed = evaluate_dataset("middlebury", scenes, asked).evaluation
    assert stored["means"]["best"]["bad1"] == printed.means["run"]["bad1"]
    assert stored["spread"]["best"]["worst_scene"] in names[:2]
    measured = []
    monkeypatch.setattr("hybridstereo.training.run.measured_on", lambda *x: measured.append(x))
    train(None, tmp_path / "run")  # finished: nothing is measured again
    assert measured == []


def test_test_scenes_are_not_trained_on_nor_validated(options, tmp_path, monkeypatch):
    monkeypatch.setattr("hybridstereo.training.run._run_stages", lambda context, *_: context)
    judged = []
    monkeypatch.setattr("hybridstereo.training.run._judge_once", lambda *x: judged.append(x[2]))
    context = train(replace(options, stage="unary", test_scenes=("*0",)), tmp_path / "run")
    seen = {sample.scene for sample in (*context.training, *context.validation)}
    assert judged[0]
    assert seen.isdisjoint(sample.scene for sample in judged[0])


def test_all_stages_fill_the_run_folder(options, tmp_path):
    model = train(options, tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files >= {
        "config.json", "log.jsonl", "best.h5", "last.h5", "curves.png", "crf_grid.json",
        "unary.h5", "crf.h5", "joint.h5", "full.h5",
    }  # fmt: skip
    assert model.config.edge_model == "cnn"
    assert model.config.method == "crf"
    assert model.pairwise
    # The batch that was taken is kept: a run can go on with another number of ranks.
    stored = options_from_config(json.loads((tmp_path / "run/config.json").read_text()))
    assert stored == replace(options, batch=1)
    entries = RunFolder(tmp_path / "run").log.entries()
    steps = [e for e in entries if e["kind"] == "step"]
    assert [e["stage"] for e in steps] == 6 * ["unary"] + 6 * ["joint"] + 6 * ["full"]
    assert {"cross_entropy", "bad1", "gradient_norm_unary", "lr", "p1", "p2", "seconds"} <= set(
        steps[0]
    )
    assert {"hinge", "task_loss", "disagreement", "gradient_norm_pairwise"} <= set(steps[-1])
    validations = [e for e in entries if e["kind"] == "validation"]
    assert {e["stage"] for e in validations} == {"unary", "crf", "joint", "full"}
    assert {"bad1", "bad2", "bad3", "bad4", "d1"} <= set(validations[0])
    grid = json.loads((tmp_path / "run/crf_grid.json").read_text())
    assert len(grid) > 30
    best = min(row["bad1"] for row in grid)
    assert load_model(str(tmp_path / "run/crf.h5")).config.alpha in {
        row["alpha"] for row in grid if row["bad1"] == best
    }


def test_blank_images_are_refused(options, tmp_path):
    write_image(tmp_path / "grey.png", np.full((40, 56, 3), (90, 60, 30), np.uint8))
    write_disparity(tmp_path / "truth.pfm", np.full((40, 56), 4, np.float32))
    (tmp_path / "pairs.csv").write_text(5 * "grey.png,grey.png,truth.pfm\n")
    blank = replace(options, dataset="csv", roots=str(tmp_path / "pairs.csv"), stage="unary")
    with pytest.raises(InputError, match="training images are blank"):
        train(blank, tmp_path / "run")


def test_stages_change_what_they_should(options, tmp_path):
    train(options, tmp_path / "run")
    unary, crf, joint, full = (
        load_model(str(tmp_path / "run" / f"{name}.h5"))
        for name in ("unary", "crf", "joint", "full")
    )
    np.testing.assert_array_equal(unary.unary[0].weight, crf.unary[0].weight)
    assert not joint.pairwise
    assert joint.config.edge_model == "contrast"
    assert full.config.edge_model == "cnn"
    assert full.config.weight_scale == 1.0
    start = stages.new_model(2, 6, False, 0, 2)
    assert not np.array_equal(start.unary[0].weight, unary.unary[0].weight)


def test_a_step_that_cannot_fit_is_refused_before_it_starts(options, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000)
    monkeypatch.setattr(memory, "reusable_memory", lambda: 0)
    with pytest.raises(OutOfMemoryError, match=r"A training step on .* Use a smaller `crop`"):
        train(replace(options, stage="unary"), tmp_path / "run")


@pytest.mark.parametrize(("loss", "iterations"), [("hinge", {0}), ("minorant", {0, 2})])
def test_memory_of_a_step_depends_on_its_loss(options, tmp_path, monkeypatch, loss, iterations):
    """Stage unary needs no more with either."""
    asked = []
    monkeypatch.setattr(
        stages, "require_training_memory", lambda *arguments: asked.append(arguments[-1])
    )
    train(replace(options, loss=loss, iterations=2, steps=1), tmp_path / "run")
    assert set(asked) == iterations


def test_deep_networks_learn_more_slowly_unless_told_otherwise(options):
    rates = {layers: options.optimiser("unary", layers).lr for layers in (3, 4, 5, 7)}
    assert rates == {3: 0.1, 4: 0.1, 5: 0.015, 7: 0.015}
    assert options.optimiser("joint", 7).lr == 0.02
    assert replace(options, lr=0.2).optimiser("unary", 7).lr == 0.2


def test_muon_has_rates_of_its_own(options):
    muon = replace(options, optimizer="muon")
    rates = {stage: muon.optimiser(stage, 7).lr for stage in ("unary", "joint", "full")}
    assert rates == {"unary": 0.05, "joint": 0.005, "full": 0.005}
    assert muon.optimiser("unary", 3).lr == 0.05
    assert replace(muon, lr=0.2).optimiser("joint", 7).lr == 0.2


def test_penalties_take_the_steps_of_sgd_with_muon(options):
    for name in ("p1", "p2"):
        sgd, muon = (
            replace(options, optimizer=kind).optimiser("joint", 3).lr * stages._RATES[kind][name]
            for kind in ("sgd", "muon")
        )
        assert muon == pytest.approx(sgd)


def test_runs_without_an_optimizer_are_those_of_sgd(options, tmp_path):
    """The default, and what a run of a version before it continues with."""
    options = replace(options, stage="unary")
    train(options, tmp_path / "default")
    train(replace(options, optimizer="sgd"), tmp_path / "sgd")
    train(replace(options, optimizer="muon"), tmp_path / "muon")
    of_default, of_sgd, of_muon = (
        contents_of_model(tmp_path / name / "last.h5") for name in ("default", "sgd", "muon")
    )
    assert of_default == of_sgd != of_muon
    before = {k: v for k, v in asdict(options).items() if k != "optimizer"}
    assert options_from_config(before) == options


def test_same_seed_same_bits_other_seed_others(options, tmp_path):
    options = replace(options, stage="unary")
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(replace(options, seed=seed), tmp_path / name)
    assert contents_of_model(tmp_path / "a/best.h5") == contents_of_model(tmp_path / "b/best.h5")
    assert contents_of_model(tmp_path / "a/best.h5") != contents_of_model(tmp_path / "c/best.h5")


def test_a_trained_network_becomes_deeper_and_loses_its_description(options, tmp_path):
    options = replace(options, stage="unary", steps=2)
    small = with_config(train(options, tmp_path / "a"), description="d", validation="5 %")
    save_model(tmp_path / "small.h5", small)
    init = str(tmp_path / "small.h5")
    same = train(replace(options, init=init, layers=None), tmp_path / "b")
    deep = train(replace(options, init=init, layers=4), tmp_path / "c")
    assert (len(same.unary), len(deep.unary)) == (2, 4)
    assert (deep.config.description, deep.config.validation) == ("", "")


def test_a_trained_network_learns_to_use_coordinates(options, tmp_path, monkeypatch):
    """And a run knows that it has them, whether it was told or found them in the model."""
    options = replace(options, stage="unary", steps=2)
    train(options, tmp_path / "a")
    seen = []
    real = stages.unary_step
    monkeypatch.setattr(stages, "unary_step", lambda *x: seen.append(x[2].window) or real(*x))
    placed = train(replace(options, init=str(tmp_path / "a"), with_xy=True), tmp_path / "b")
    train(replace(options, init=str(tmp_path / "b")), tmp_path / "c")
    assert placed.unary[0].weight.shape[1] == 5
    assert np.any(placed.unary[0].weight[:, 3:] != 0)
    assert all(window.height > 24 and window.width > 32 for window in seen)
    assert len({(window.top, window.left) for window in seen}) > 1
    assert all(json.loads((tmp_path / x / "config.json").read_text())["with_xy"] for x in "bc")


def test_a_batch_side_by_side_is_a_batch_one_by_one(options, tmp_path):
    options = replace(options, stage="unary", batch=3)
    many, one = (train(options, tmp_path / str(x), threads=x) for x in (None, 1))
    for a, b in zip(many.unary, one.unary, strict=True):
        np.testing.assert_allclose(a.weight, b.weight, rtol=1e-4, atol=1e-6)


def test_divergence_keeps_the_last_good_checkpoint(options, tmp_path, monkeypatch):
    real = stages.unary_step
    calls = []

    def poisoned(*args):
        calls.append(1)
        step = real(*args)
        return replace(step, loss=float("nan")) if len(calls) == 5 else step

    monkeypatch.setattr(stages, "unary_step", poisoned)
    with pytest.raises(TrainingDivergedError, match=r"diverged at step 4.*smaller `lr`"):
        train(replace(options, stage="unary"), tmp_path / "run")
    stored = read_weights(tmp_path / "run/last.h5")
    assert stored.config["position_step"] == 4


def test_bad_truth_of_a_validation_pair_fails_before_the_first_step(options, tmp_path, scenes):
    copied = tmp_path / "scenes"
    shutil.copytree(scenes, copied)
    chosen = replace(options, roots=str(copied), val_scenes=("scene_0003",), stage="unary")
    truth = copied / "scene_0003" / "disp0GT.pfm"
    truth.write_bytes(truth.read_bytes()[:-100])  # its header is good
    with pytest.raises(InputError, match=r"scene_0003/disp0GT\.pfm"):
        train(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    write_disparity(truth, np.full((40, 56), np.inf))
    with pytest.raises(InputError, match="No validation pair has a pixel whose truth is known"):
        train(chosen, tmp_path / "run")
    (copied / "scene_0001" / "im1.png").write_bytes(b"not an image")
    for kept in (chosen, replace(chosen, val_scenes=(), test_scenes=("scene_0001",))):
        with pytest.raises(InputError, match=r"scene_0001/im1\.png does not begin like"):
            train(kept, tmp_path / "run")


def test_stage_joint_of_a_model_with_a_pairwise_cnn(options, tmp_path):
    """Its edge weights stay as they are: stage full is what trains them."""
    start = imitate_contrast(census_model(), kernels.select("cpu"), [_some_pair()], seed=0)[0]
    save_model(tmp_path / "cnn.h5", start)
    chosen = replace(options, stage="joint", init=str(tmp_path / "cnn.h5"), layers=None, steps=2)
    model = train(chosen, tmp_path / "run")
    assert model.config.edge_model == "cnn"
    for before, after in zip(start.pairwise, model.pairwise, strict=True):
        np.testing.assert_array_equal(before.weight, after.weight)


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_a_pyramid_goes_through_all_stages(options, tmp_path, optimizer):
    """Searched in stage crf, trained in joint and full, kept by the next run."""
    chosen = replace(options, pyramid=2, softmax="mutual", optimizer=optimizer)
    model = train(chosen, tmp_path / "run")
    assert model.config.softmax == "mutual"
    assert len(model.config.pyramid) == 2
    before = load_model(stage_model(tmp_path / "run", "unary")).config.pyramid
    assert before == (0.25, 0.5)
    assert model.config.pyramid != before
    entries = RunFolder(tmp_path / "run").log.entries()
    assert any("half_weight" in entry for entry in entries if entry["stage"] == "full")
    again = replace(chosen, stage="unary", init=str(tmp_path / "run"), layers=None, pyramid=None)
    again = replace(again, softmax=None)
    assert train(again, tmp_path / "again").config.pyramid == model.config.pyramid
    fewer = train(replace(again, pyramid=1, softmax="left"), tmp_path / "fewer")
    assert fewer.config.pyramid == model.config.pyramid[:1]
    assert fewer.config.softmax == "left"


def test_labels_of_training_become_those_of_the_model(options, tmp_path):
    model = train(replace(options, stage="unary", disparities=13), tmp_path / "run")
    assert model.config.label_range == LabelRange(0.0, 13)
    assert "disparities 0 to 12" in model.config.description
    assert load_model(tmp_path / "run").config.disparities == 13


def _some_pair(seed=5):
    scene = generate_scene(seed, SceneOptions(height=48, width=72, max_disparity=14, objects=4))
    return StereoPair(scene.left, scene.right, scene.disparity, ~scene.occlusion)


def test_later_stage_needs_a_start(options, tmp_path):
    with pytest.raises(InputError, match="`init`"):
        train(replace(options, stage="joint"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_later_stage_from_a_model(options, tmp_path):
    train(replace(options, stage="unary"), tmp_path / "a")
    init = str(tmp_path / "a/best.h5")
    model = train(replace(options, stage="joint", init=init, steps=2), tmp_path / "b")
    assert model.config.method == "crf"


def test_config_of_another_version():
    with pytest.raises(InputError, match="another version"):
        options_from_config({"dataset": "kitti", "colour": "blue"})


def test_missing_data_set(tmp_path):
    with pytest.raises(InputError, match=r"image_2"):
        train(TrainOptions("kitti", str(tmp_path)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_budget_ends_with_what_comes_first():
    position = stages.Position("unary", step=5, seconds=30.0)
    assert Budget(10, None).progress(position) == 0.5
    assert Budget(10, 40.0).progress(position) == 0.75
    assert Budget(None, 20.0).progress(position) == 1.0


def test_minutes_are_shared_between_stages():
    options = TrainOptions("synthetic", minutes=10.0)
    seconds = [options._seconds(stage) for stage in options.stages]
    assert sum(seconds) == pytest.approx(600)
    assert replace(options, stage="unary").budget("unary", 100).seconds == pytest.approx(600)


@pytest.mark.parametrize(("stage", "table"), [("crf", "crf_grid.json"), ("full", "full_grid.json")])
def test_minutes_bound_the_grid_searches(options, tmp_path, stage, table):
    """The time is over before the first point: it is still evaluated, and taken."""
    said = Listener()
    chosen = replace(options, stage=stage, init="census", layers=None, minutes=1e-6)
    model = train(chosen, tmp_path / "run", reporter=said)
    assert len(json.loads((tmp_path / "run" / table).read_text())) == 1
    assert any("time of `minutes` is over after 1 point" in text for text in said.texts)
    assert model.config.edge_model == ("cnn" if stage == "full" else "contrast")


def test_searches_without_minutes_have_no_limit(options):
    assert not replace(options, minutes=None).search_deadline("crf", Alone()).over()
    assert replace(options, minutes=1e-9).search_deadline("crf", Alone()).over()
    assert not replace(options, minutes=10.0).search_deadline("crf", Alone()).over()


def test_epochs_and_steps():
    assert TrainOptions("x", epochs=2.0, batch=4).budget("unary", 30) == Budget(15, None)
    assert TrainOptions("x", epochs=2.0, steps=7).budget("unary", 30) == Budget(7, None)


def test_batch_is_the_mean_of_its_pairs():
    backend, labels = kernels.select("cpu"), LabelRange(0.0, 15)
    model = imitate_contrast(census_model(), backend, [_some_pair()], seed=0)[0]

    def steps() -> list[Step]:
        pairs = [_some_pair(seed) for seed in (5, 6)]
        return [structured_step(model, backend, x, labels, HingeOptions(), True) for x in pairs]

    mean = mean_step(backend, Alone(), steps(), 2)
    first, second = steps()
    assert mean.loss_name == "hinge"
    assert mean.loss == pytest.approx((first.loss + second.loss) / 2)
    for means, ones, others in (
        (mean.gradients, first.gradients, second.gradients),
        (mean.figures, first.figures, second.figures),
    ):
        assert means.keys() == ones.keys()
        for name, value in means.items():
            expected = (ones[name] + others[name]) / 2
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-9, err_msg=name)
            assert not np.allclose(ones[name], others[name], rtol=1e-3), name


def test_batches_take_the_pairs_in_the_order_of_single_steps(options, tmp_path):
    """A rate of next to nothing: all steps see the same network."""
    options = replace(options, stage="unary", lr=1e-30)
    losses = []
    for batch, steps in ((1, 4), (2, 2)):
        folder = tmp_path / str(batch)
        train(replace(options, batch=batch, steps=steps), folder)
        log = RunFolder(folder).log.entries()
        losses.append([entry["cross_entropy"] for entry in log if entry["kind"] == "step"])
    single, pairs = losses
    assert pairs == pytest.approx([(single[0] + single[1]) / 2, (single[2] + single[3]) / 2])


@pytest.mark.parametrize("width", [1, 2])
def test_images_of_a_pixel_or_two(tmp_path, width):
    """Chains of one node, and validation pairs in which nothing is seen twice."""
    rng = np.random.default_rng(1)
    for side in ("left", "right"):
        write_image(tmp_path / f"{side}.png", rng.integers(0, 256, (24, width, 3), np.uint8))
    for value in (0.0, 1.0 * width):
        write_disparity(tmp_path / f"{value:g}.pfm", np.full((24, width), value, np.float32))
    listed = "left.png,right.png,{}.pfm\n"
    path = tmp_path / "pairs.csv"
    path.write_text(3 * listed.format(0))
    options = TrainOptions("csv", str(path), stage="joint", init="census", steps=2, disparities=4)
    train(options, tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / "best.h5").exists()
    path.write_text(3 * listed.format(width))
    with pytest.raises(InputError, match="No validation pair has a pixel"):
        train(options, tmp_path / "other", device="cpu")


@pytest.mark.parametrize(("init", "words"), [(None, "no edges to keep"), ("census", "census has")])
def test_edges_that_are_not_there_cannot_be_kept(options, tmp_path, init, words):
    with pytest.raises(InputError, match=words):
        train(replace(options, keep_edges=True, init=init, layers=None), tmp_path / "run")
