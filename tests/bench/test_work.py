"""Operation counts against literal ones and the specification; rates of the machine."""

from __future__ import annotations

import pytest

from hybridstereo.bench import work as bench_work
from hybridstereo.bench.run import SIZES, random_model
from hybridstereo.bench.work import MachinePeaks, count_work

KITTI = SIZES["kitti"]


def test_operations_of_the_networks():
    """A literal count of multiplications and additions, pixel by pixel of the output."""
    height, width = 3, 4
    work = count_work(random_model(2), height, width, label_count=8, iterations=1)
    first = 2 * 3 * 3 * 3 * 100 * (height + 1) * (width + 1)
    second = 2 * 2 * 2 * 100 * 100 * height * width
    assert work["unary_cnn"].flop == 2 * (first + second)
    # 3x3, 3x3 and 1x1 layers: 7x8 pixels of 3 channels -> 5x6 of 64 -> 3x4 of 64 -> 3x4 of 2
    sizes = [7 * 8 * 3, 5 * 6 * 64, 3 * 4 * 64, 3 * 4 * 2]
    pairwise = 2 * (9 * 3 * sizes[1] + 9 * 64 * sizes[2] + 64 * sizes[3])
    assert work["pairwise_cnn"].flop == pairwise
    assert work["pairwise_cnn"].bytes == 4 * (sum(sizes[:-1]) + sum(sizes[1:]))


@pytest.mark.parametrize(("layers", "kilo_macs"), [(3, 82.7), (7, 242.7)])
def test_operations_agree_with_the_specification(layers, kilo_macs):
    work = count_work(random_model(layers), 375, 1242, label_count=256, iterations=5)
    per_pixel = work["unary_cnn"].flop / 2 / 2 / KITTI.pixels
    assert per_pixel == pytest.approx(1e3 * kilo_macs, rel=0.02)  # borders of the layers
    assert work["correlation"].flop == 2 * 100 * 256 * KITTI.pixels
    assert work["correlation"].bytes == 4 * (200 + 256) * KITTI.pixels
    assert work["crf"].flop == pytest.approx(6e10, rel=0.05)  # docs/model.md 6.7
    assert work["crf"].bytes == pytest.approx(14e9, rel=0.03)
    assert work["input"].flop is None
    assert work["total"].flop == sum(x.flop or 0 for k, x in work.items() if k != "total")
    assert work["total"].bytes == sum(x.bytes for k, x in work.items() if k != "total")


def test_operations_of_the_coarser_levels():
    """A quarter, then a sixteenth of the network's; half of the labels, then a quarter."""
    plain, work = (count_work(random_model(7, x), 64, 128, 32, iterations=1) for x in (0, 2))
    assert "pyramid" not in plain
    assert {name: x for name, x in work.items() if name not in ("pyramid", "total")} == {
        name: x for name, x in plain.items() if name != "total"
    }
    coarser = [
        count_work(random_model(7), 32 >> i, 64 >> i, labels, 1) for i, labels in enumerate((17, 9))
    ]
    networks = sum(x["unary_cnn"].flop + x["correlation"].flop for x in coarser)
    brought_up = 8 * (64 * 128 * 32 + 32 * 64 * 17)
    assert work["pyramid"].flop == networks + brought_up
    assert work["total"].flop == plain["total"].flop + work["pyramid"].flop


def test_peaks_are_positive_rates(monkeypatch):
    monkeypatch.setattr(bench_work, "_SGEMM_SIDE", 64)
    monkeypatch.setattr(bench_work, "_COPY_BYTES", 1 << 16)
    monkeypatch.setattr(bench_work, "_COPY_BYTES_PER_THREAD", 1 << 12)
    machine = MachinePeaks(threads=1)
    sample = machine.sample()
    assert sample.keys() == {"sgemm", "copy"}
    assert min(sample.values()) > 0
    peaks = machine.best(sgemm_seconds=1e-3, copy_seconds=1e-3)
    assert peaks.flop_rate == pytest.approx(2 * 64**3 / 1e-3)
    assert peaks.byte_rate == pytest.approx(2 * (1 << 16) / 1e-3)
