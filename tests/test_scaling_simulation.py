"""The simulation behind docs/scaling.md, where its answer is known."""

from __future__ import annotations

import pytest
from scaling_simulation import Batch, Training


def test_batch_without_trouble_is_limited_by_its_workers_or_its_scheduler():
    system = Batch(service=1.0, spread=0.0, task=0.001, bytes=1.0, lifetime=1e12)
    assert system.simulated(10, 1000)[0] == pytest.approx(10.0, rel=0.02)
    busy = Batch(service=1.0, spread=0.0, task=0.2, bytes=1.0, lifetime=1e12)
    assert busy.simulated(10, 1000)[0] == pytest.approx(busy.on_paper(10), rel=0.02)
    assert busy.on_paper(10) == pytest.approx(5.0)
    slow_disk = Batch(service=1.0, spread=0.0, task=0.001, bytes=1e6, storage=3e6, lifetime=1e12)
    assert slow_disk.simulated(10, 1000)[0] == pytest.approx(3.0, rel=0.02)


def test_pairs_of_dead_workers_begin_again():
    system = Batch(service=1.0, spread=0.2, task=0.001, lifetime=100.0, restart=20.0)
    found, again = system.simulated(20, 6000)
    assert again > 10
    assert found == pytest.approx(system.on_paper(20), rel=0.1)


def test_training_waits_for_the_slowest_and_for_restarts():
    calm = Training(spread=0.0, lifetime=1e12)
    assert calm.simulated(4, 200)[0] == pytest.approx(calm.on_paper(4), rel=0.01)
    uneven = Training(spread=0.2, lifetime=1e12)
    assert uneven.simulated(16, 400)[0] == pytest.approx(uneven.on_paper(16), rel=0.02)
    deadly = Training(spread=0.0, lifetime=4000.0, restart=10.0)
    found, restarts = deadly.simulated(4, 4000)
    assert restarts > 2
    assert found == pytest.approx(deadly.on_paper(4), rel=0.1)
