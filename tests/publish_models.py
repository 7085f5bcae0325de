"""Puts trained models into the package: python tests/publish_models.py RUNS DATA

RUNS is the folder that docs/train_models.sh filled, DATA the data that it was given. Of each model
the last finished stage is taken, measured on the scenes that were kept back, and written to
src/hybridstereo/models with its figures and where it comes from. The table goes to standard output.
"""

from __future__ import annotations

import argparse
import datetime
import re
from pathlib import Path

from hybridstereo.evaluate import EvalOptions, evaluate_dataset
from hybridstereo.evaluation.results import Evaluation
from hybridstereo.model import with_config
from hybridstereo.training.stages import STAGES
from hybridstereo.zoo import SHIPPED, load_model, save_model

ROOT = Path(__file__).parents[1]

ABOUT = {
    "general": "indoor and street scenes",
    "middlebury": "indoor scenes, close objects",
    "kitti": "street scenes from a car",
}
TRAINED_ON = {
    "general": "generated scenes, Middlebury 2001-2006 and v3 (41 pairs), KITTI 2015 (21 pairs)",
    "middlebury": "as general, then generated scenes and Middlebury 2001-2006 and v3 (41 pairs)",
    "kitti": "as general, then generated scenes and KITTI 2015 (21 pairs)",
}
LICENCE = (
    "terms of the training data: Middlebury for research, KITTI 2015 CC BY-NC-SA 3.0 (attribution,"
    " non-commercial, share alike)"
)
SUFFIX = {3: "-fast", 7: ""}
DISPARITIES = {"general": 128, "middlebury": 128, "kitti": 256}


def kept_scenes() -> dict[str, tuple[str, ...]]:
    """The scenes that the training script keeps back, by data set."""
    script = (ROOT / "docs/train_models.sh").read_text()
    found = re.findall(r"^(\w+)_kept=(\S+)$", script, re.M)
    return {name: tuple(scenes.split(",")) for name, scenes in found}


def trained(runs: Path) -> dict[str, tuple[str, int, Path]]:
    """Name of the model -> data, layers and file of its last finished stage."""
    models = {}
    for data in ABOUT:
        for layers, suffix in SUFFIX.items():
            files = [runs / f"{data}-{layers}-{stage}" / f"{stage}.h5" for stage in STAGES]
            # A network alone is no model to ship.
            finished = [file for file in files[1:] if file.exists()]
            if finished:
                models[data + suffix] = data, layers, finished[-1]
    return models


def measure(data: Path, models: dict[str, Path]) -> dict[str, Evaluation]:
    """Every model and SGBM on the scenes kept back of both benchmarks."""
    roots = {"middlebury": data / "MiddEval3", "kitti": data / "kitti2015"}
    labelled = tuple(f"{name}={path}" for name, path in models.items())
    return {
        name: evaluate_dataset(
            name,
            str(roots[name]),
            EvalOptions(models=labelled, baselines=("sgbm-hh",), scenes=scenes),
        ).evaluation
        for name, scenes in kept_scenes().items()
    }


def main() -> None:
    """Measure, describe and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("data", type=Path)
    arguments = parser.parse_args()
    models = trained(arguments.runs)
    evaluations = measure(arguments.data, {name: file for name, (_, _, file) in models.items()})
    indoor, street = evaluations["middlebury"].means, evaluations["kitti"].means
    frames = len(evaluations["kitti"].scenes)
    SHIPPED.mkdir(exist_ok=True)
    print("| model | layers | bad1, Middlebury v3 | D1, KITTI 2015 |\n|---|---|---|---|")
    for name, (data, layers, file) in models.items():
        figures = (
            f"bad1 {indoor[name]['bad1']:.2f} % on Middlebury v3"
            f" ({', '.join(evaluations['middlebury'].scenes)}), D1 {street[name]['d1_noc']:.2f} %"
            f" on KITTI 2015 ({frames} frames)"
        )
        model = with_config(
            load_model(str(file)),
            description=ABOUT[data],
            trained_on=TRAINED_ON[data],
            trained_date=datetime.datetime.fromtimestamp(file.stat().st_mtime).date().isoformat(),
            validation=figures,
            licence=LICENCE,
            disparities=DISPARITIES[data],
        )
        save_model(SHIPPED / f"{name}.h5", model)
        print(
            f"| `{name}` | {layers} | {indoor[name]['bad1']:.2f} | {street[name]['d1_noc']:.2f} |"
        )
    print(
        f"| SGBM (`sgbm-hh`) | - | {indoor['sgbm-hh']['bad1']:.2f}"
        f" | {street['sgbm-hh']['d1_noc']:.2f} |"
    )


if __name__ == "__main__":
    main()
