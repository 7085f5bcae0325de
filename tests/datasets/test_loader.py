"""The loader: order, weights, cache, resuming, failures and shutdown."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.pairfiles import lit_scene, picture

from hybridstereo.datasets import Dataset, Sample, StereoPair, open_dataset, split
from hybridstereo.datasets.augment import AugmentOptions
from hybridstereo.datasets.loader import THREAD_NAME, PairCache, PairLoader, Schedule
from hybridstereo.datasets.pair import build_pair
from hybridstereo.errors import InputError
from hybridstereo.features import Statistics

PATIENCE = 10.0  # seconds; more than enough for what takes milliseconds
OPTIONS = AugmentOptions(crop=(8, 9), vertical_flip=0.5, gain=0.1, noise=0.02)


def tiny_pair(number: int) -> StereoPair:
    """8-bit images; a pixel of the left one tells which sample it is."""
    rng = np.random.default_rng(number)
    left, right = (
        rng.integers(0, 256, (10, 12, 3)).astype(np.float32) / np.float32(255) for _ in range(2)
    )
    left[0, 0, 0] = np.float32(number) / np.float32(255)
    disparity = rng.uniform(0, 3, (10, 12)).astype(np.float32)
    disparity[0] = np.inf
    return build_pair(f"pair {number}", left, right, disparity)


def number_of(pair: StereoPair) -> int:
    return round(float(pair.left[0, 0, 0]) * 255)


class Made(Dataset):
    """A data set that counts what is read; ``{"a": 3}`` makes three samples of source a."""

    reads: Counter[int]

    def __init__(
        self,
        counts: dict[str, int],
        weights: dict[str, float] | None = None,
        read: Callable[[int], StereoPair] = tiny_pair,
    ) -> None:
        reads: Counter[int] = Counter()

        def counted(number: int) -> StereoPair:
            reads[number] += 1
            return read(number)

        sources = [source for source, count in counts.items() for _ in range(count)]
        samples = tuple(
            Sample(str(number), str(number), source, (), partial(counted, number))
            for number, source in enumerate(sources)
        )
        super().__init__(samples, weights or dict.fromkeys(counts, 1.0))
        object.__setattr__(self, "reads", reads)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith(THREAD_NAME)]


def taken(loader: PairLoader, count: int) -> list[tuple[int, StereoPair]]:
    return list(islice(loader, count))


def assert_same(first: StereoPair | Statistics, second: StereoPair | Statistics) -> None:
    for name, value in vars(first).items():
        other = getattr(second, name)
        if isinstance(value, np.ndarray):
            assert value.dtype == other.dtype
            np.testing.assert_array_equal(value, other, err_msg=name)
        elif isinstance(value, tuple):
            for one, another in zip(value, other, strict=True):
                assert_same(one, another)
        else:
            assert value == other, name


# -------------------------------------------------------------------------------------------- order


def test_every_sample_once_per_epoch_in_another_order() -> None:
    dataset = Made({"a": 7})
    schedule = Schedule(dataset.samples, dataset.weights, seed=3)
    epochs = [[schedule.sample(7 * e + i).name for i in range(7)] for e in range(4)]
    assert all(sorted(epoch) == sorted(s.name for s in dataset.samples) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    other = Schedule(dataset.samples, dataset.weights, seed=4)
    assert [other.sample(i).name for i in range(7)] != epochs[0]


def test_sample_of_a_step_does_not_depend_on_what_was_asked_before() -> None:
    dataset = Made({"a": 5, "b": 3}, {"a": 1, "b": 2})
    forward = Schedule(dataset.samples, dataset.weights, 0)
    names = [forward.sample(step).name for step in range(60)]
    backward = Schedule(dataset.samples, dataset.weights, 0)
    assert [backward.sample(step).name for step in range(59, -1, -1)] == names[::-1]


@pytest.mark.parametrize(
    ("weights", "block"),
    [
        ({"a": 1.0, "b": 2.0}, {"a": 1, "b": 2}),
        ({"a": 0.5, "b": 0.25}, {"a": 2, "b": 1}),
        ({"a": 3.0, "b": 3.0}, {"a": 1, "b": 1}),
        ({"a": 0.1, "b": 0.3}, {"a": 1, "b": 3}),
        ({"a": 1e-9, "b": 1.0}, {"a": 1, "b": 1000}),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1, "b": 2, "c": 3}),
    ],
)
def test_weights(weights: dict[str, float], block: dict[str, int]) -> None:
    dataset = Made(dict.fromkeys(weights, 4), weights)
    schedule = Schedule(dataset.samples, weights, 0)
    steps = sum(block.values())
    for start in (0, steps, 5 * steps):
        drawn = Counter(schedule.sample(start + i).source for i in range(steps))
        assert drawn == block


def test_small_sources_repeat_evenly_in_a_mixture() -> None:
    dataset = Made({"a": 10, "b": 2})
    schedule = Schedule(dataset.samples, dataset.weights, 1)
    uses = Counter(schedule.sample(step).name for step in range(40))
    assert uses == {**{str(i): 2 for i in range(10)}, "10": 10, "11": 10}


def test_sources_without_samples_are_passed_over() -> None:
    dataset = Made({"a": 2, "b": 2}, {"a": 1, "b": 5})
    chosen = [s for s in dataset.samples if s.source == "a"]
    schedule = Schedule(chosen, dataset.weights, 0)
    assert {schedule.sample(step).source for step in range(10)} == {"a"}


def test_nothing_to_draw_from() -> None:
    dataset = Made({"a": 1})
    with pytest.raises(InputError, match="no samples"):
        PairLoader(dataset, [], seed=0)
    with pytest.raises(InputError, match="seed is -1"):
        PairLoader(dataset, dataset.samples, seed=-1)


# ----------------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_resumed_equals_uninterrupted(prefetch: int) -> None:
    dataset = Made({"a": 5, "b": 3}, {"a": 1, "b": 2})
    with PairLoader(dataset, dataset.samples, 9, OPTIONS, prefetch=0, cache_bytes=0) as loader:
        whole = taken(loader, 30)
    assert [step for step, _ in whole] == list(range(30))
    for start in (0, 1, 13):
        with PairLoader(dataset, dataset.samples, 9, OPTIONS, start, prefetch=prefetch) as loader:
            part = taken(loader, 12)
        assert [step for step, _ in part] == list(range(start, start + 12))
        for (_, pair), (_, expected) in zip(part, whole[start:], strict=False):
            assert_same(pair, expected)


def test_augmentation_differs_between_steps_and_seeds() -> None:
    dataset = Made({"a": 1})
    results = []
    for seed in (0, 1):
        with PairLoader(dataset, dataset.samples, seed, OPTIONS) as loader:
            results += [pair.left.tobytes() for _, pair in taken(loader, 5)]
    assert len(set(results)) == 10


def test_without_augmentation_the_pair_itself() -> None:
    dataset = Made({"a": 1})
    with PairLoader(dataset, dataset.samples, 0) as loader:
        for _, pair in taken(loader, 3):
            assert_same(pair, tiny_pair(0))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_stop_step(prefetch: int) -> None:
    dataset = Made({"a": 3})
    with PairLoader(dataset, dataset.samples, 0, None, 2, stop_step=6, prefetch=prefetch) as loader:
        assert [step for step, _ in loader] == [2, 3, 4, 5]
        assert list(loader) == []
    with PairLoader(dataset, dataset.samples, 0, None, 7, stop_step=6, prefetch=prefetch) as loader:
        assert list(loader) == []


# -------------------------------------------------------------------------------------------- cache


def test_decoded_once() -> None:
    dataset = Made({"a": 4})
    with PairLoader(dataset, dataset.samples, 0, stop_step=20) as loader:
        assert len(list(loader)) == 20
    assert set(dataset.reads.values()) == {1}


def test_no_cache_reads_each_time() -> None:
    dataset = Made({"a": 4})
    with PairLoader(dataset, dataset.samples, 0, stop_step=20, cache_bytes=0) as loader:
        assert len(list(loader)) == 20
    assert set(dataset.reads.values()) == {5}


def test_shared_cache() -> None:
    dataset = Made({"a": 4})
    cache = PairCache(dataset)
    for _ in range(2):
        with PairLoader(dataset, dataset.samples, 0, stop_step=4, cache=cache) as loader:
            assert len(list(loader)) == 4
    assert set(dataset.reads.values()) == {1}


def test_cache_keeps_its_limit_and_drops_the_longest_unused() -> None:
    dataset = Made({"a": 4})
    first, second, third, fourth = dataset.samples
    measure = PairCache(dataset)
    measure.load(first)
    one = measure.bytes
    assert one == 10 * 12 * (2 * 3 + 4 + 1)  # 8-bit views, float32 truth, mask
    dataset.reads.clear()
    cache = PairCache(dataset, 3 * one + one // 2)
    for sample in (first, second, third, first, fourth):  # fourth drops second
        cache.load(sample)
        assert cache.bytes <= 3 * one + one // 2
    assert cache.bytes == 3 * one
    for sample in (first, third, fourth):
        cache.load(sample)
    assert dataset.reads == {0: 1, 1: 1, 2: 1, 3: 1}
    cache.load(second)
    assert dataset.reads[1] == 2


def test_pair_larger_than_the_limit_is_not_kept() -> None:
    dataset = Made({"a": 1})
    cache = PairCache(dataset, 100)
    cache.load(dataset.samples[0])
    assert cache.bytes == 0


def sixteen_bit(number: int) -> StereoPair:
    levels = np.random.default_rng(number).integers(0, 65536, (10, 12, 3))
    return replace(tiny_pair(number), left=levels.astype(np.float32) / np.float32(65535))


def floating(number: int) -> StereoPair:
    return replace(tiny_pair(number), left=np.random.default_rng(1).random((10, 12, 3), np.float32))


@pytest.mark.parametrize(
    ("read", "bytes_per_value"), [(tiny_pair, 1), (sixteen_bit, 2), (floating, 4)]
)
def test_cached_pair_is_the_same_bit_for_bit(
    read: Callable[[int], StereoPair], bytes_per_value: int
) -> None:
    dataset = Made({"a": 1}, read=read)
    (sample,) = dataset.samples
    cache = PairCache(dataset)
    fresh, cached, again = (cache.load(sample) for _ in range(3))
    assert_same(cached, read(0))
    assert cache.bytes == 10 * 12 * (3 * bytes_per_value + 3 + 5)  # left, right, truth
    for pair in (fresh, cached):  # whoever gets a pair may change it
        pair.left[:] = 0
        pair.disparity[:] = 0
        pair.valid[:] = False
    assert_same(again, read(0))
    assert_same(cache.load(sample), read(0))
    assert dataset.reads == {0: 1}


def test_conditions_are_drawn_by_seed_and_step_only(tmp_path: Path) -> None:
    lit_scene(tmp_path / "Art", [f"Illum1/Exp{e}" for e in range(4)], (370, 40))
    dataset = open_dataset("middlebury", tmp_path)
    options = AugmentOptions(crop=(40, 30), noise=0.01)

    def steps(seed: int, start: int = 0, **kwargs: int) -> list[StereoPair]:
        with PairLoader(dataset, dataset.samples, seed, options, start, **kwargs) as loader:
            return [pair for _, pair in taken(loader, 24 - start)]

    whole = steps(3)
    for step, pair in zip(range(9, 24), steps(3, 9, prefetch=0, cache_bytes=0), strict=True):
        assert_same(pair, whole[step])
    seen = [
        (round(25.5 * float(p.left.mean())), round(25.5 * float(p.right.mean()))) for p in whole
    ]
    assert sum(left == right for left, right in seen) == 12  # one of the two samples each
    assert len(set(seen)) > 8
    other = steps(4)
    assert [p.left.mean() for p in other] != [p.left.mean() for p in whole]


def test_conditions_do_not_multiply_the_cache(tmp_path: Path) -> None:
    count, pixels = 5, 370 * 24
    lit_scene(tmp_path / "Art", [f"Illum1/Exp{e}" for e in range(count)])
    dataset = open_dataset("middlebury", tmp_path)
    cache = PairCache(dataset)
    with PairLoader(dataset, dataset.samples, 0, stop_step=200, cache=cache) as loader:
        assert len({(p.left[0, 0, 0], p.right[0, 0, 0]) for _, p in loader}) == count * count
    # All images, and the truth of both views with its masks, once.
    assert cache.bytes == pixels * (2 * count * 3 + 2 * (4 + 1))
    first = cache.load(dataset.samples[0])
    assert_same(first, dataset.load(dataset.samples[0]))


def test_conditions_of_another_size(tmp_path: Path) -> None:
    lit_scene(tmp_path / "Art", [f"Illum1/Exp{e}" for e in range(3)])
    picture(tmp_path / "Art" / "Illum1" / "Exp0" / "view1.png", 9, (185, 12, 3))
    dataset = open_dataset("middlebury", tmp_path)
    with (
        PairLoader(dataset, dataset.samples, 0, prefetch=0) as loader,
        pytest.raises(InputError, match=r"Exp0.view1\.png is 12x185 but the truth .* 24x370"),
    ):
        taken(loader, 30)


def test_every_8_bit_and_16_bit_level_survives() -> None:
    for white in (255, 65535):
        levels = np.arange(white + 1, dtype=np.float32)[None, :, None] / np.float32(white)
        image = np.repeat(levels, 3, axis=2)
        pair = build_pair("levels", image, image, np.zeros((1, white + 1), np.float32))
        sample = Sample("levels", "levels", "a", (), lambda pair=pair: pair)  # type: ignore[misc]
        cache = PairCache(Dataset((sample,), {"a": 1.0}))
        cache.load(sample)
        assert cache.bytes == (white + 1) * (6 * (1 if white == 255 else 2) + 5)
        np.testing.assert_array_equal(cache.load(sample).left, image)


# ------------------------------------------------------------------------------------------- thread


def test_reads_ahead_but_not_further_than_asked() -> None:
    dataset = Made({"a": 50})
    with PairLoader(dataset, dataset.samples, 0, prefetch=3) as loader:
        deadline = time.monotonic() + PATIENCE
        while sum(dataset.reads.values()) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)
        assert sum(dataset.reads.values()) == 3  # without anybody having asked for one
        taken(loader, 2)
        while sum(dataset.reads.values()) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)
        assert sum(dataset.reads.values()) == 5


def test_reading_overlaps_with_computing() -> None:
    """While step 0 is being computed, the pair of step 1 is read."""
    reading = threading.Semaphore(0)

    def read(number: int) -> StereoPair:
        reading.release()
        return tiny_pair(number)

    dataset = Made({"a": 2}, read=read)
    with PairLoader(dataset, dataset.samples, 0, prefetch=1) as loader:
        next(loader)
        assert reading.acquire(timeout=PATIENCE)
        assert reading.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("error", [InputError("pair.png is damaged"), ZeroDivisionError("oops")])
def test_failures_reach_the_consumer(prefetch: int, error: Exception) -> None:
    def read(number: int) -> StereoPair:
        if number == 3:
            raise error
        return tiny_pair(number)

    dataset = Made({"a": 5}, read=read)
    order = Schedule(dataset.samples, dataset.weights, 0)
    bad_step = next(step for step in range(5) if order.sample(step).name == "3")
    with PairLoader(dataset, dataset.samples, 0, prefetch=prefetch) as loader:
        assert [step for step, _ in taken(loader, bad_step)] == list(range(bad_step))
        for _ in range(2):  # and it stays failed
            with pytest.raises(type(error)) as caught:
                next(loader)
            assert caught.value is error


def test_close_while_the_thread_waits_or_works() -> None:
    started, release = threading.Event(), threading.Event()

    def read(number: int) -> StereoPair:
        started.set()
        assert release.wait(PATIENCE)
        return tiny_pair(number)

    dataset = Made({"a": 3}, read=read)
    loader = PairLoader(dataset, dataset.samples, 0)
    assert started.wait(PATIENCE)
    threading.Timer(0.02, release.set).start()
    loader.close()  # returns only when the thread is through
    assert list(loader) == []
    loader.close()  # twice does no harm


def test_close_drops_what_has_not_begun() -> None:
    started, release = threading.Event(), threading.Event()

    def read(number: int) -> StereoPair:
        started.set()
        assert release.wait(PATIENCE)
        return tiny_pair(number)

    dataset = Made({"a": 9}, read=read)
    with PairLoader(dataset, dataset.samples, 0, prefetch=4):
        assert started.wait(PATIENCE)
        threading.Timer(0.02, release.set).start()
    assert sum(dataset.reads.values()) == 1


def test_close_by_leaving_the_with_statement_on_an_error() -> None:
    dataset = Made({"a": 3})

    def interrupted() -> None:
        with PairLoader(dataset, dataset.samples, 0) as loader:
            next(loader)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_consumer_waiting_is_woken_by_close() -> None:
    release = threading.Event()

    def read(number: int) -> StereoPair:
        assert release.wait(PATIENCE)
        return tiny_pair(number)

    dataset = Made({"a": 1}, read=read)
    loader = PairLoader(dataset, dataset.samples, 0)
    results: list[list[tuple[int, StereoPair]]] = []
    consumer = threading.Thread(target=lambda: results.append(list(islice(loader, 1))))
    consumer.start()
    time.sleep(0.02)
    threading.Timer(0.02, release.set).start()
    loader.close()
    consumer.join(PATIENCE)
    assert results == [[]]


# ---------------------------------------------------------------------------------------- real data


@pytest.mark.shared
def test_real_mixture(shared: Path) -> None:
    roots = {"middlebury": shared / "data" / "middlebury-2005", "kitti": shared / "data"}
    dataset = open_dataset("middlebury:2,kitti:1", roots)
    training, validation = split(dataset, 0.2, 0)
    assert {s.source for s in validation} == {"middlebury", "kitti"}
    options = AugmentOptions(crop=(192, 320), horizontal_flip=0.5, vertical_flip=0.5, noise=0.01)
    with PairLoader(dataset, training, 5, options, cache_bytes=20_000_000) as loader:
        pairs = taken(loader, 9)
    for _, pair in pairs:
        assert pair.left.shape == (192, 320, 3)
        assert pair.valid.mean() > 0.1
        assert (pair.disparity[pair.valid] >= 0).all()
    with PairLoader(dataset, training, 5, options, 6, prefetch=0, cache_bytes=0) as loader:
        for (_, pair), (_, expected) in zip(taken(loader, 3), pairs[6:], strict=True):
            assert_same(pair, expected)
