"""Steps that several ranks make together."""

from __future__ import annotations

import numpy as np
import pytest

from hybridstereo.engines.ranks import Alone
from hybridstereo.errors import InputError, StereoError
from hybridstereo.training.parallel import BatchShare, SilentFolder, check_same_model, mean_step
from hybridstereo.training.runfolder import RunFolder
from hybridstereo.training.steps import Step


class Rank(Alone):
    """One of several ranks; ``others`` is what the rest would send."""

    def __init__(self, rank, size, others=()):
        self.rank, self.size, self.others = rank, size, list(others)

    def summed(self, arrays):
        return [sum((x[i] for x in self.others), array) for i, array in enumerate(arrays)]

    def gathered(self, value):
        return [value, *self.others]


@pytest.mark.parametrize(("batch", "size"), [(2, 2), (4, 3), (8, 3), (5, 1)])
def test_ranks_take_every_pair_once(batch, size):
    shares = [BatchShare.of(Rank(rank, size), batch) for rank in range(size)]
    assert all(share.count >= batch // size for share in shares)
    for step in range(3):
        taken = [
            share.place(step * share.count + index)
            for share in shares
            for index in range(share.count)
        ]
        assert taken == list(range(step * batch, (step + 1) * batch))


def test_a_rank_without_a_pair_is_refused():
    with pytest.raises(InputError, match="has 1 pair, too few for 2 processes"):
        BatchShare.of(Rank(0, 2), 1)


def test_mean_over_all_ranks(backend):
    def step(loss: float) -> Step:
        gradients = {"w": np.full(3, loss, np.float32), "p1": np.array([loss])}
        return Step("hinge", loss, gradients, {"bad1": 10 * loss})

    others = [[np.full(3, 8.0, np.float32), np.array([8.0]), np.array([8.0, 80.0])]]
    mean = mean_step(backend, Rank(0, 2, others), [step(1.0), step(3.0)], 4)
    assert (mean.loss, mean.figures) == (3.0, {"bad1": 30.0})
    np.testing.assert_array_equal(mean.gradients["w"], np.full(3, 3.0, np.float32))
    np.testing.assert_array_equal(mean.gradients["p1"], [3.0])


def test_models_that_differ_are_noticed(backend):
    parameters = {"w": np.ones(3, np.float32)}
    check_same_model(Alone(), backend, parameters)
    with pytest.raises(StereoError, match="rank 1 differs from that of rank 0"):
        check_same_model(Rank(0, 2, [0]), backend, parameters)


def test_other_ranks_write_nothing(tmp_path):
    folder = SilentFolder(RunFolder(tmp_path / "run"))
    with folder.locked():
        folder.begin({})
        folder.log.clear()
        folder.log.append({"kind": "step"})
        folder.write_json("x.json", 1)
        folder.save(None)
        folder.save_best(None)
        folder.save_stage("unary", None)
        assert folder.log.cut_back("unary", 3) == []
        assert folder.log.entries() == []
    assert not (tmp_path / "run").exists()
