"""`hstereo eval` as a shell user meets it, and the figures that published weights reach."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.commands import assert_one_sentence, run
from support.misaligned import lowered
from support.pairfiles import H, W, kitti_frame, picture, tidy_scene

from hybridstereo.errors import InputError
from hybridstereo.evaluation import compare as module
from hybridstereo.evaluation.compare import EvalOptions, build_methods, evaluate_dataset, named
from hybridstereo.io.disparity import read_disparity, write_disparity
from hybridstereo.io.images import read_image, write_image
from hybridstereo.io.volumes import read_volume
from hybridstereo.models.convert import convert
from hybridstereo.models.zoo import DEFAULT_MODEL, load_model, save_model, stage_model
from hybridstereo.synthetic import quantised


@pytest.fixture
def middlebury(tmp_path, rng):
    """Two scenes with texture, a constant disparity of 4 and ndisp 16."""
    root = tmp_path / "data"
    for name in ("Pipes", "Teddy"):
        tidy_scene(root / name)
        left = cv2.GaussianBlur(rng.integers(0, 256, (H, W, 3), np.uint8), (0, 0), 1)
        cv2.imwrite(str(root / name / "im0.png"), left)
        cv2.imwrite(str(root / name / "im1.png"), np.roll(left, -4, axis=1))
    return root


def as_json(capsys, *arguments):
    code, out, _ = run(capsys, "eval", *arguments, "--json")
    return code, json.loads(out)


# --- data sets -------------------------------------------------------------------------------


def test_confidence_and_filling(capsys, middlebury, tmp_path):
    arguments = ["middlebury", "--root", middlebury, "--model", "census", "--baseline", "argmax"]
    report = tmp_path / "report"
    code, data = as_json(capsys, *arguments, "--confidence", "--fill", "--report", report)
    assert code == 0
    figures = {x["method"]: x["figures"] for x in data["results"] if x["scene"] == "Pipes"}
    of_model = figures["census"]
    assert of_model["bad1_all"] < of_model["bad1_all_unfilled"]
    assert 0 <= of_model["ausc_best"] <= of_model["ausc"] < of_model["bad1_all_unfilled"]
    assert 50 < of_model["density1"] <= 100
    assert "ausc" not in figures["census argmax"]
    assert "bad1_all_unfilled" in figures["census argmax"]
    curve = data["sparsification"]["curves"]["census"]
    assert len(curve) == len(data["sparsification"]["kept"]) == 100
    assert np.mean(curve) == pytest.approx(
        np.mean([x["figures"]["ausc"] for x in data["results"] if x["method"] == "census"])
    )
    page = (report / "report.html").read_text("utf-8")
    assert "Sparsification curves of census" in page
    assert "left-right check, filled" in page
    code, out, _ = run(capsys, "eval", *arguments, "--lr-check")
    assert code == 0
    assert "bad1 all unfilled" in out
    assert "ausc" not in out
    for others in (["--components"], ["a.pfm", "b.pfm"]):
        target = arguments[:5] + others if others[0] == "--components" else others
        code, _, err = run(capsys, "eval", *target, "--fill")
        assert code == 2
        assert "need a DATASET" in err


def test_models_and_baselines_in_one_table(capsys, middlebury):
    code, out, err = run(
        capsys, "eval", "middlebury", "--root", middlebury, "--baseline", "sgbm,sgbm-hh,bm,argmax",
        "--model", "census", "--model", "again=census", "--no-refine",
    )  # fmt: skip
    assert code == 0
    methods = ["census", "again", "sgbm", "sgbm-hh", "bm", "census argmax", "again argmax"]
    for method in methods:
        assert len(re.findall(rf"^(Pipes|Teddy|weighted mean) +{method}  ", out, re.M)) == 3
    assert "0/14 Pipes" in err
    assert "StereoSGBM, 8 paths" in out


def test_every_method_gets_the_corrected_view(capsys, tmp_path, sample):
    root = tmp_path / "data" / "Room"
    shutil.copytree(sample, root)
    for old, new in (("left.png", "im0.png"), ("right.png", "im1.png")):
        (root / old).rename(root / new)
    view = read_image(root / "im1.png")
    write_image(str(root / "im1.png"), quantised(lowered(view, 1.5)))
    write_disparity(root / "disp0GT.pfm", np.full(view.shape[:2], 4, np.float32))
    arguments = ["middlebury", "--root", tmp_path / "data", "--disparities", 8]
    arguments += ["--model", "census", "--baseline", "sgbm"]
    code, corrected = as_json(capsys, *arguments, "--rectify")
    assert code == 0
    assert corrected["rectifications"]["Room"]["corrected"]
    assert corrected["rectifications"]["Room"]["after"] < 0.25
    _, plain = as_json(capsys, *arguments)
    assert plain["rectifications"] == {}
    for one, other in zip(plain["results"], corrected["results"], strict=True):
        assert one["figures"] != other["figures"]
    report = tmp_path / "report"
    code, out, _ = run(capsys, "eval", *arguments[:-2], "--rectify", "--report", report)
    assert "; right views corrected;" in out.splitlines()[0]
    assert re.search(r"^  Room: rows of the views were 1.\d\d px apart, 0.\d\d px after", out, re.M)
    page = (report / "report.html").read_text()
    assert ", right views corrected" in page
    assert "Right view of Room" in page


def test_rectify_needs_views(capsys, middlebury, tmp_path):
    for others in (["--pred", "x", "--gt", "y"], ["--submission", "kitti", tmp_path]):
        code, _, err = run(capsys, "eval", *others, "--root", middlebury, "--rectify")
        assert code == 2
        assert "--rectify" in err


@pytest.mark.parametrize(
    ("first", "hint"), [("kitti", "as --root truth"), ("maps", "as --pred maps --gt truth")]
)
def test_folders_where_files_belong(capsys, tmp_path, monkeypatch, first, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "maps").mkdir()
    (tmp_path / "truth").mkdir()
    code, _, err = run(capsys, "eval", first, "truth")
    assert code == 2
    assert hint in err


def test_json_and_csv_agree(capsys, middlebury):
    arguments = ["middlebury", "--root", middlebury, "--scenes", "Teddy", "--iterations", 2]
    code, shown = as_json(capsys, *arguments)
    assert code == 0
    assert shown["scenes"] == ["Teddy"]
    assert [method["name"] for method in shown["methods"]] == [DEFAULT_MODEL]
    figures = shown["results"][0]["figures"]
    assert figures["bad4"] < 60  # the shift is found where it is visible
    _, out, _ = run(capsys, "eval", *arguments, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert float(rows[0]["bad1"]) == figures["bad1"]
    assert [row["row"] for row in rows] == ["image", "weighted mean", "pooled"]


def test_kitti_has_both_means(capsys, tmp_path):
    for frame in ("000000_10.png", "000001_10.png"):
        kitti_frame(tmp_path / "training", frame)
    maps = tmp_path / "maps"
    maps.mkdir()
    write_disparity(maps / "000000_10.png", np.full((H, W), 4, np.float32))
    write_disparity(maps / "000001_10.png", np.full((H, W), 8, np.float32))
    code, shown = as_json(capsys, "kitti", "--root", tmp_path, "--maps", f"theirs={maps}")
    assert code == 0
    assert shown["primary"] == "d1_noc"
    means = shown["means"]["theirs"]
    assert (means["d1_noc"], means["d1_noc_pooled"], means["d1_all"]) == (50, 50, 50)
    assert shown["methods"][0]["kind"] == "folder"


def test_generated_scenes_need_no_files():
    compared = evaluate_dataset("synthetic", None, EvalOptions(baselines=("bm",), limit=1))
    assert compared.evaluation.scenes == ["seed 0"]
    assert 0 < compared.evaluation.means["bm"]["bad1"] < 60


def test_one_damaged_scene_exits_with_3(capsys, middlebury):
    (middlebury / "Pipes" / "im1.png").write_bytes(b"not an image")
    code, out, err = run(capsys, "eval", "middlebury", "--root", middlebury, "--baseline", "bm")
    assert code == 3
    assert re.search(r"^Teddy +bm +\d", out, re.M)
    assert re.search(r"^Pipes +bm +failed", out, re.M)
    assert "im1.png" in out
    # The default model stands beside the baseline.
    assert re.search(r"^Teddy +general +\d", out, re.M)
    assert re.search(r"^Pipes +general +failed", out, re.M)
    assert err.splitlines()[-1] == "hstereo: 2 of 4 failed."


def test_volumes_of_a_folder(capsys, middlebury, tmp_path):
    volumes = tmp_path / "volumes"
    volumes.mkdir()
    scene = middlebury / "Teddy"
    code, _, _ = run(
        capsys, "infer", scene / "im0.png", scene / "im1.png", "--disparities", 16,
        "--model", "census", "-o", tmp_path / "d.pfm", "--save-volume", volumes / "Teddy.bin",
    )  # fmt: skip
    assert code == 0
    code, shown = as_json(
        capsys, "middlebury", "--root", middlebury, "--scenes", "Teddy",
        "--volumes", f"mine={volumes}", "--model", "census",
    )  # fmt: skip
    census, mine = (result["figures"] for result in shown["results"])
    assert (code, mine) == (0, census)


def test_report(capsys, middlebury, tmp_path):
    pytest.importorskip("hybridstereo.evaluation.report.html")
    report = tmp_path / "report"
    code, _, err = run(
        capsys, "eval", "middlebury", "--root", middlebury, "--baseline", "bm", "--report", report
    )
    assert code == 0
    assert (report / "report.html").stat().st_size > 1000
    assert "report.html" in err


def test_components_of_a_run(capsys, middlebury, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for stage in ("unary", "crf"):
        save_model(stage_model(folder, stage), load_model("census"))
    arguments = [
        "eval", "middlebury", "--root", middlebury, "--components", "--model", folder,
        "--baseline", "bm", "--limit", 1,
    ]  # fmt: skip
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    table = out.splitlines()[-6:]
    assert table[0].split()[-4:] == ["CNN", "+CRF", "+Joint", "+PW"]
    assert table[2].startswith("CNN3 ")
    assert table[3].startswith("CNN3, refined")
    assert table[-1].startswith("bm: ")
    _, out, _ = run(capsys, *arguments, "--json")
    row = json.loads(out)["components"][0]
    assert list(row["columns"]) == ["CNN", "+CRF"]
    assert row["columns"]["CNN"]["bad1"] >= row["columns"]["+CRF"]["bad1"]


def test_submission(capsys, tmp_path):
    for view in ("image_2", "image_3"):
        picture(tmp_path / "testing" / view / "000000_10.png")
    arguments = ["eval", "--submission", "kitti", tmp_path / "out", "--root", tmp_path]
    code, out, err = run(capsys, *arguments, "--baseline", "bm")
    assert code == 0
    assert [Path(line).name for line in out.split()] == ["000000_10.png", "runtime.txt"]
    assert "wants 200" in err
    (tmp_path / "testing" / "image_3" / "000000_10.png").unlink()
    code, _, err = run(capsys, *arguments, "--baseline", "bm")
    assert code == 3
    assert "000000_10 failed" in err
    assert_one_sentence(*run(capsys, *arguments, "--baseline", "bm,sgbm"), "one method")


# --- maps and files --------------------------------------------------------------------------


@pytest.fixture
def truth(tmp_path):
    disparity = np.full((10, 10), 5.0, np.float32)
    disparity[0] = np.inf
    write_disparity(tmp_path / "truth.pfm", disparity)
    return tmp_path / "truth.pfm"


def stored(path, disparity):
    write_disparity(path, disparity)
    return path


def test_a_map_against_itself(capsys, truth):
    code, shown = as_json(capsys, truth, truth)
    assert code == 0
    assert set(shown["results"][0]["figures"].values()) == {0.0}


def test_a_shifted_map(capsys, truth, tmp_path):
    shifted = read_disparity(truth)
    shifted[1:4] += 1.5  # 30 of 90 known pixels
    code, shown = as_json(capsys, stored(tmp_path / "s.pfm", shifted), truth)
    figures = shown["results"][0]["figures"]
    assert code == 0
    assert figures["bad1"] == pytest.approx(100 / 3)
    assert figures["bad2"] == 0
    assert figures["avgerr"] == pytest.approx(0.5)


def test_mask(capsys, truth, tmp_path):
    shifted = read_disparity(truth)
    shifted[1:4] += 1.5
    mask = np.zeros((10, 10), np.uint8)
    mask[3:5] = 255
    cv2.imwrite(str(tmp_path / "m.png"), mask)
    arguments = [stored(tmp_path / "s.pfm", shifted), truth, "--mask", tmp_path / "m.png"]
    _, shown = as_json(capsys, *arguments)
    figures = shown["results"][0]["figures"]
    assert figures["bad1"] == 50
    assert figures["bad1_all"] == pytest.approx(100 / 3)


def test_empty_mask_gives_null(capsys, truth, tmp_path):
    cv2.imwrite(str(tmp_path / "m.png"), np.zeros((10, 10), np.uint8))
    code, shown = as_json(capsys, truth, truth, "--mask", tmp_path / "m.png")
    assert code == 0
    assert shown["results"][0]["figures"]["bad1"] is None
    assert shown["results"][0]["figures"]["bad1_all"] == 0


def test_nan_and_inf_in_the_map(capsys, truth, tmp_path):
    holed = read_disparity(truth)
    holed[1, :] = np.nan
    holed[2, :8] = np.inf
    np.save(tmp_path / "h.npy", holed)
    _, shown = as_json(capsys, tmp_path / "h.npy", truth)
    figures = shown["results"][0]["figures"]
    assert figures["invalid"] == figures["bad4"] == pytest.approx(20)
    assert figures["avgerr"] == 0
    _, shown = as_json(capsys, tmp_path / "h.npy", truth, "--rules", "kitti")
    figures = shown["results"][0]["figures"]
    assert figures["invalid"] == pytest.approx(20)
    assert figures["d1"] == 0


def test_sizes_differ(capsys, truth, tmp_path):
    small = stored(tmp_path / "s.pfm", np.zeros((4, 5), np.float32))
    assert_one_sentence(*run(capsys, "eval", small, truth), "5x4", "10x10")


def test_missing_files(capsys, truth, tmp_path):
    assert_one_sentence(*run(capsys, "eval", tmp_path / "no.pfm", truth), "no.pfm")
    assert_one_sentence(*run(capsys, "eval", truth, tmp_path / "no.pfm"), "no.pfm")
    assert_one_sentence(*run(capsys, "eval", truth, truth, "--mask", tmp_path / "no.png"), "no.png")


def test_folders(capsys, tmp_path):
    gt, pred = tmp_path / "gt", tmp_path / "pred"
    for folder, value in ((gt, 5), (pred, 9)):
        folder.mkdir()
        for name in ("a", "b"):
            write_disparity(folder / f"{name}.pfm", np.full((4, 4), value, np.float32))
    write_disparity(pred / "b.pfm", np.full((4, 4), 5, np.float32))
    code, shown = as_json(capsys, "--pred", pred, "--gt", gt)
    assert code == 0
    assert shown["means"]["pred"]["bad1"] == 50
    code, shown = as_json(capsys, "--pred", f"x={pred}", "--pred", f"truth={gt}", "--gt", gt)
    assert [method["name"] for method in shown["methods"]] == ["x", "truth"]
    (pred / "a.pfm").unlink()
    code, shown = as_json(capsys, "--pred", pred, "--gt", gt)
    assert (code, shown["failed"], shown["means"]["pred"]["bad1"]) == (3, 1, 0)


@pytest.mark.parametrize(
    ("name", "rules"), [("a.png", "KITTI"), ("T/disp0GT.pfm", "Middlebury"), ("a.pfm", "no fill")]
)
def test_rules_follow_the_truth(capsys, tmp_path, name, rules):
    path = tmp_path / "gt" / name
    path.parent.mkdir(parents=True)
    write_disparity(path, np.full((4, 4), 5, np.float32))
    (tmp_path / "pred").mkdir()
    scene = path.parent.name if "/" in name else path.stem
    write_disparity(tmp_path / "pred" / f"{scene}.npy", np.full((4, 4), 5, np.float32))
    code, out, _ = run(capsys, "eval", "--pred", tmp_path / "pred", "--gt", tmp_path / "gt")
    assert code == 0
    assert rules in out.splitlines()[0]


# --- what users get wrong --------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b", "c"],
        ["kitti", "--gt", "x"],
        ["kitti", "--mask", "x"],
        ["kitti", "--json", "--csv"],
        ["kitti", "--baseline", "magic"],
        ["a.pfm", "b.pfm", "--components"],
        ["--submission", "kitti", "out"],
        ["middlebury", "--submission", "kitti", "out", "--root", "x"],
    ],
)
def test_usage_errors(capsys, arguments):
    code, out, err = run(capsys, "eval", *arguments)
    assert (code, out) == (2, "")
    assert "Usage: hstereo eval" in err


def test_mistakes(capsys, middlebury, tmp_path):
    root = ["--root", middlebury]
    assert_one_sentence(*run(capsys, "eval", "nonsense"), "nonsense", "kitti")
    assert_one_sentence(*run(capsys, "eval", "kitti"), "--root")
    assert_one_sentence(*run(capsys, "eval", "middlebury", *root, "--scenes", "X"), "'X'", "Teddy")
    assert_one_sentence(*run(capsys, "eval", "middlebury", *root, "--model", "best"), "census")
    twice = ["--model", "census", "--model", "census"]
    assert_one_sentence(*run(capsys, "eval", "middlebury", *root, *twice), "2 methods")
    assert_one_sentence(*run(capsys, "eval", "middlebury", *root, "--maps", "x=no"), "no")
    assert_one_sentence(*run(capsys, "eval", "--gt", middlebury), "--maps")


def test_baseline_names_of_the_library():
    with pytest.raises(InputError, match="magic"):
        build_methods(EvalOptions(baselines=("magic",)), "kitti")
    assert set(module.BASELINES) == {"sgbm", "sgbm-3way", "sgbm-hh", "bm", "argmax"}


def test_labels_of_models_and_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named("census") == ("census", "census")
    assert named("runs/a.h5") == ("a", "runs/a.h5")
    assert named("ours=runs/a.h5") == ("ours", "runs/a.h5")
    (tmp_path / "p=1.h5").touch()
    assert named("p=1.h5") == ("p=1", "p=1.h5")


def test_a_run_folder_is_its_best_model(tmp_path):
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    save_model(run_folder / "best.h5", load_model("census"))
    methods = build_methods(EvalOptions(models=(str(run_folder),)), "kitti")
    assert [method.info.name for method in methods] == ["run"]


# --- infer with volumes ----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".bin"])
def test_saved_volume_gives_the_same_map(capsys, middlebury, tmp_path, suffix):
    scene = middlebury / "Teddy"
    first, second = tmp_path / "a.npy", tmp_path / "b.npy"
    before, after = tmp_path / f"v{suffix}", tmp_path / f"c{suffix}"
    options = ["--min-disparity", 2] if suffix == ".h5" else []
    code, out, err = run(
        capsys, "infer", scene / "im0.png", scene / "im1.png", "--disparities", 8, "-o", first,
        "--save-volume", before, "--save-volume-crf", after, *options,
    )  # fmt: skip
    assert code == 0, err
    assert out.split() == [str(first), str(before), str(after)]
    code, _, err = run(capsys, "infer", scene / "im0.png", "--volume", before, "-o", second)
    assert code == 0, err
    np.testing.assert_array_equal(np.load(first), np.load(second))
    minorant = read_volume(after, H, W).costs
    chosen = np.argmin(minorant, axis=2)
    assert np.abs(np.load(first) - chosen - (2 if options else 0)).max() <= 0.5


def test_scaled_volume(capsys, middlebury, tmp_path, rng):
    costs = rng.permuted(np.tile(np.arange(4, dtype=np.float32), (H, W, 1)), axis=2)
    np.save(tmp_path / "v.npy", costs)
    arguments = ["infer", middlebury / "Teddy" / "im0.png", "--volume", tmp_path / "v.npy"]
    maps = []
    for scale in (1e-3, 1e3):
        out = tmp_path / "d.npy"
        code, _, _ = run(capsys, *arguments, "-o", out, "--volume-scale", scale, "--no-refine")
        assert code == 0
        maps.append(np.load(out))
    assert np.unique(maps[0]).size == 1  # nothing but smoothness
    np.testing.assert_array_equal(maps[1], np.argmin(costs, axis=2))  # nothing but costs


def test_wrong_requests_with_volumes(capsys, middlebury, tmp_path):
    left = middlebury / "Teddy" / "im0.png"
    np.save(tmp_path / "v.npy", np.zeros((H, W, 4), np.float32))
    code, _, err = run(capsys, "infer", left)
    assert code == 2
    assert "RIGHT" in err
    volume = ["infer", left, "--volume", tmp_path / "v.npy", "-o", tmp_path / "d.pfm"]
    assert_one_sentence(*run(capsys, *volume, "--disparities", 3), "--disparities")
    crf = ["--save-volume-crf", tmp_path / "c.npy"]
    assert_one_sentence(*run(capsys, *volume, "--method", "argmax", *crf), "--method crf")
    np.save(tmp_path / "v.npy", np.zeros((H, W + 1, 4), np.float32))
    assert_one_sentence(*run(capsys, *volume), "v.npy", "30x20")
    assert not (tmp_path / "d.pfm").exists()


# --- published figures -----------------------------------------------------------------------

POINTS = 0.05
EXPECTED = {  # ../shared/official/EXPECTED.md
    "Teddy": {"CNN3 CNN": 13.82, "CNN3 +CRF": 6.67, "CNN3 +CRF, refined": 6.83,
              "CNN3 +PW": 5.08, "CNN3 +PW, refined": 5.15},
    "ArtL": {"CNN3 CNN": 13.62, "CNN3 +CRF": 8.28, "CNN3 +CRF, refined": 8.42,
             "CNN3 +PW": 7.10, "CNN3 +PW, refined": 7.29},
}  # fmt: skip
EXPECTED_KITTI = {"000001_10": 3.53, "000009_10": 2.10}


def converted(shared: Path, folder: Path, name: str, config: str) -> str:
    output = folder / f"{name}-{config}.h5"
    source = shared / "official" / name
    convert(source / "params.npz", source / f"{config}.cfg", output)
    return str(output)


@pytest.mark.shared
@pytest.mark.slow
def test_components_of_published_weights(capsys, shared, tmp_path):
    models = {
        "unary": converted(shared, tmp_path, "middlebury-3-cnn", "argmax"),
        "crf": converted(shared, tmp_path, "middlebury-3-cnn", "crf"),
        "full": converted(shared, tmp_path, "middlebury-3-full", "crf"),
    }
    arguments = [x for stage, file in models.items() for x in ("--model", f"{stage}={file}")]
    code, shown = as_json(
        capsys, "middlebury", "--root", shared / "data" / "MiddEval3", "--scenes", "Teddy,ArtL",
        "--components", "--paper-labels", "--baseline", "sgbm,sgbm-hh", *arguments,
    )  # fmt: skip
    assert code == 0
    found = {(r["scene"], r["method"]): r["figures"]["bad1"] for r in shown["results"]}
    for scene, methods in EXPECTED.items():
        for method, bad1 in methods.items():
            assert found[scene, method] == pytest.approx(bad1, abs=POINTS), (scene, method)
        assert found[scene, "sgbm"] > methods["CNN3 +CRF"]


@pytest.mark.shared
@pytest.mark.slow
def test_kitti_with_published_weights(capsys, shared, tmp_path):
    model = converted(shared, tmp_path, "kitti-3-joint", "crf")
    code, shown = as_json(
        capsys, "kitti", "--root", shared / "data" / "kitti2015", "--no-refine",
        "--scenes", ",".join(EXPECTED_KITTI), "--model", model, "--baseline", "sgbm",
    )  # fmt: skip
    assert code == 0
    found = {(r["scene"], r["method"]): r["figures"]["d1_noc"] for r in shown["results"]}
    ours = Path(model).stem
    for scene, d1 in EXPECTED_KITTI.items():
        assert found[scene, ours] == pytest.approx(d1, abs=POINTS)
        assert found[scene, "sgbm"] > d1


@pytest.mark.shared
@pytest.mark.slow
def test_semi_global_matching_on_all_given_scenes(capsys, shared):
    """About 16 % bad1 on Middlebury-Q and 11 % D1 on KITTI: a fair opponent."""
    data = shared / "data"
    _, shown = as_json(
        capsys, "middlebury", "--root", data / "MiddEval3", "--baseline", "sgbm,sgbm-hh"
    )
    assert shown["mean"] == "weighted mean"
    assert shown["means"]["sgbm"]["bad1"] == pytest.approx(16.3, abs=1)
    assert shown["means"]["sgbm-hh"]["bad1"] == pytest.approx(13.7, abs=1)
    _, shown = as_json(capsys, "kitti", "--root", data / "kitti2015", "--baseline", "sgbm")
    assert shown["means"]["sgbm"]["d1_noc"] == pytest.approx(11.2, abs=1)
