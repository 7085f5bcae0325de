"""Published parameters of every variant (docs/model.md 1) become models that run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.networks import published_arrays

from hybridstereo.errors import ModelError
from hybridstereo.models.convert import convert
from hybridstereo.models.zoo import load_model
from hybridstereo.stereo import Stereo


def files(tmp_path: Path, stored, config: str | None = None):
    np.savez(tmp_path / "params.npz", *stored)
    if config is None:
        return tmp_path / "params.npz", None
    (tmp_path / "crf.cfg").write_text(config)
    return tmp_path / "params.npz", tmp_path / "crf.cfg"


VARIANTS = {
    "3 cnn": ({"layers": 3}, "num-layers = 3\nmatching = COLORCNN\ninference = ARGMAX"),
    "3 joint": ({"layers": 3, "penalties": (1, 9)}, "num-layers = 3\nL1 = 1\nL2 = 9\nlambda = .2"),
    "3 full": (
        {"layers": 3, "pairwise": True},
        "num-layers = 3\nmatching = COLORPAIR\nlambda = 1\nL1 = 1\nL2 = 5",
    ),
    "7 full": (
        {"layers": 7, "pairwise": True, "penalties": (1, 5)},
        "num-layers = 7\nmatching = COLORPAIR\nlambda = 1.0\nL2 = 5.0",
    ),
    "7 full xy": (
        {"layers": 7, "inputs": 5, "pairwise": True, "penalties": (1, 5)},
        "num-layers = 7\nmatching = COLORPAIR\nwith-xy = 1\ndisp-min = 0\ndisp-max = 255",
    ),
    "7 pw, no cfg": ({"layers": 7, "pairwise": True}, None),
    "3 cnn, no cfg": ({"layers": 3}, None),
}


@pytest.mark.parametrize(("kind", "config"), VARIANTS.values(), ids=VARIANTS.keys())
def test_every_variant_runs(backend, rng, tmp_path, kind, config):
    model = convert(*files(tmp_path, published_arrays(rng, **kind), config), tmp_path / "m.h5")
    assert len(model.unary) == kind["layers"]
    assert bool(model.pairwise) == kind.get("pairwise", False)
    stored = load_model(str(tmp_path / "m.h5"))
    assert stored.config == model.config
    left, right = rng.random((2, 10, 12, 3)).astype(np.float32)
    prediction = Stereo(stored, backend).match(left, right)
    assert np.isfinite(prediction.disparity).all()


def test_values_of_the_cfg_beat_those_beside_the_weights(rng, tmp_path):
    config = """num-layers = 3
matching = COLORCNN
lambda = 0.15
L1 = 0.9
L2 = 17.5
alpha = 21
beta = 0.7
crf-iterations = 6
disp-min = 0
disp-max = 99
"""
    stored = published_arrays(rng, 3, penalties=(1.0, 9.0))
    config_read = convert(*files(tmp_path, stored, config), tmp_path / "m.h5").config
    assert (config_read.p1, config_read.p2) == (0.9, 17.5)
    assert (config_read.weight_scale, config_read.alpha, config_read.beta) == (0.15, 21, 0.7)
    assert config_read.iterations == 6
    assert (config_read.min_disparity, config_read.disparities) == (0, 128)


def test_program_defaults(rng, tmp_path):
    config = convert(
        *files(tmp_path, published_arrays(rng, 7), "# empty\n"), tmp_path / "m.h5"
    ).config
    assert (config.weight_scale, config.p1, config.p2, config.beta) == (0.4, 1.0, 12.0, 0.8)
    assert (config.iterations, config.min_disparity, config.disparities) == (4, 1.0, 128)


def test_penalties_beside_the_weights_are_used_without_a_cfg(rng, tmp_path):
    stored = published_arrays(rng, 3, penalties=(0.75, 8.5))
    config = convert(*files(tmp_path, stored), tmp_path / "m.h5").config
    assert (config.p1, config.p2) == (0.75, 8.5)


@pytest.mark.parametrize(
    ("kind", "config", "words"),
    [
        ({"layers": 3}, "num-layers = 7", "num-layers = 7"),
        ({"layers": 3}, "num-layers = 3\nmatching = COLORPAIR", "Pairwise-CNN"),
        ({"layers": 3}, "num-layers = 3\nwith-xy = 1", "with-xy = 1"),
        ({"layers": 3, "inputs": 5}, "num-layers = 3", "with-xy = 0"),
        ({"layers": 3}, "num-layers = 3\ninference = NONE", "inference = NONE"),
    ],
)
def test_cfg_of_another_model_is_refused(rng, tmp_path, kind, config, words):
    with pytest.raises(ModelError, match=words):
        convert(*files(tmp_path, published_arrays(rng, **kind), config), tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()
