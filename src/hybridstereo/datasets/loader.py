"""Training pairs, one after the other, prepared in the background.

What step i gets, sample, conditions and augmentation, depends only on the seed and on i. A run that
is resumed at step i therefore sees exactly what an uninterrupted one would have seen.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridstereo.datasets import Dataset, Sample, StereoPair
from hybridstereo.datasets import augment as augmentation
from hybridstereo.datasets.augment import AugmentOptions
from hybridstereo.datasets.pair import NO_IMAGE, FloatImage
from hybridstereo.errors import InputError
from hybridstereo.io.images import read_image

DEFAULT_CACHE_BYTES = 1 << 30
THREAD_NAME = "pair loader"

# Streams of random numbers that must not depend on each other.
_MIX, _ORDER, _AUGMENT, _CONDITIONS = range(4)
_LONGEST_BLOCK = 1000  # weights are rounded to multiples of its inverse
_LEVELS = ((np.uint8, 255), (np.uint16, 65535))


class PairLoader:
    """An endless stream of pairs in random order, read ahead by a thread.

    Within each source every sample appears once before any appears again; sources take turns in
    proportion to their weights. Use it in a ``with`` statement or call `close`; otherwise its
    thread lives until the program ends.

    Parameters
    ----------
    dataset
        Loads the samples and gives the weights of the sources.
    samples
        Those to draw from, for example one side of `hybridstereo.datasets.split`.
    seed
        Together with the step it decides everything; a non-negative integer.
    augment
        How to change the pairs; None: not at all.
    start_step, stop_step
        The first step, and the one to stop before; None: never stop.
    prefetch
        How many pairs to prepare ahead. 0: prepare each on demand, without a thread.
    cache_bytes
        How much memory decoded pairs may occupy; the least recently used are dropped first.
    cache
        One to share with other loaders or with validation; `cache_bytes` then has no effect.
    place
        Which step of the whole schedule each step of this loader is, for one of several loaders
        that share it out; None: the same.

    Raises
    ------
    InputError
        If there are no samples.

    Examples
    --------
    >>> with PairLoader(dataset, samples, seed=0) as loader:  # doctest: +SKIP
    ...     for step, pair in loader:
    ...         train(step, pair)

    """

    def __init__(
        self,
        dataset: Dataset,
        samples: Sequence[Sample],
        seed: int,
        augment: AugmentOptions | None = None,
        start_step: int = 0,
        *,
        stop_step: int | None = None,
        prefetch: int = 2,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache: PairCache | None = None,
        place: Callable[[int], int] | None = None,
    ) -> None:
        self._schedule = Schedule(samples, dataset.weights, seed)
        self._cache = PairCache(dataset, cache_bytes) if cache is None else cache
        self._seed = seed
        self._augment = augment
        self._step = start_step
        self._stop_step = stop_step
        self._prefetch = prefetch
        self._place = place
        self._closed = False
        self._lock = threading.Lock()  # for closing while another thread asks for a pair
        self._ahead: deque[Future[StereoPair]] = deque()  # from `_step` on, one for each step
        self._pool = ThreadPoolExecutor(1, THREAD_NAME) if prefetch > 0 else None
        self._read_ahead()

    def __enter__(self) -> PairLoader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[int, StereoPair]]:
        return self

    def __next__(self) -> tuple[int, StereoPair]:
        """The next step and its pair; raises what went wrong when the pair was prepared."""
        if self._is_over(self._step) or self._closed:
            raise StopIteration
        pair = self._prepare(self._step) if self._pool is None else self._take()
        self._step += 1
        self._read_ahead()
        return self._step - 1, pair

    def close(self) -> None:
        """Stop reading ahead and wait for the thread; the loader gives no more pairs."""
        with self._lock:
            self._closed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        with self._lock:
            self._ahead.clear()

    def _read_ahead(self) -> None:
        """Keep the thread busy with the next steps, in their order."""
        with self._lock:
            while self._pool is not None and not self._closed:
                step = self._step + len(self._ahead)
                if len(self._ahead) == self._prefetch or self._is_over(step):
                    break
                self._ahead.append(self._pool.submit(self._prepare, step))

    def _take(self) -> StereoPair:
        """Wait for the thread to prepare the next pair; one that failed stays the next."""
        with self._lock:
            if self._closed:
                raise StopIteration
            future = self._ahead[0]
        try:
            pair = future.result()
        except CancelledError:
            raise StopIteration from None
        with self._lock:
            if self._closed:  # by another thread in the meantime
                raise StopIteration
            self._ahead.popleft()
        return pair

    def _is_over(self, step: int) -> bool:
        return self._stop_step is not None and step >= self._stop_step

    def _prepare(self, step: int) -> StereoPair:
        if self._place is not None:
            step = self._place(step)
        sample = self._schedule.sample(step)
        views = None
        if sample.conditions is not None:
            views = sample.conditions.draw(self._rng(_CONDITIONS, step))
        pair = self._cache.load(sample, views)
        if self._augment is None:
            return pair
        return augmentation.augment(pair, self._augment, self._rng(_AUGMENT, step))

    def _rng(self, stream: int, step: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, stream, step])


class Schedule:
    """Which sample each step gets.

    Sources are drawn in blocks that hold each of them in proportion to its weight; with 1 to 2, in
    blocks of three. Each source's samples are shuffled anew whenever all have been used.

    Parameters
    ----------
    samples
        Of any of the sources.
    weights
        For each source; those without samples are skipped.
    seed
        A non-negative integer.

    Raises
    ------
    InputError
        If there are no samples or the seed is negative.

    """

    def __init__(self, samples: Sequence[Sample], weights: Mapping[str, float], seed: int) -> None:
        if not samples:
            raise InputError(
                "there are no samples to train on", hint="Use a smaller validation set"
            )
        if seed < 0:
            raise InputError(f"the seed is {seed}", hint="Give an integer of at least 0")
        self._seed = seed
        self._groups = [
            [sample for sample in samples if sample.source == source] for source in weights
        ]
        present = [i for i, group in enumerate(self._groups) if group]
        counts = _whole_ratio([list(weights.values())[i] for i in present])
        self._block = np.repeat(present, counts)
        self._per_block = Counter(self._block.tolist())
        # Steps are asked for in order, so it is enough to keep the latest shuffles.
        self._shuffled = lru_cache(maxsize=2 + len(present))(self._shuffle)

    def sample(self, step: int) -> Sample:
        """The sample of a step."""
        block, place = divmod(step, len(self._block))
        order = self._shuffled(_MIX, 0, block, len(self._block))
        sources = self._block[order]
        source = int(sources[place])
        used = block * self._per_block[source] + int(np.count_nonzero(sources[:place] == source))
        group = self._groups[source]
        epoch, place = divmod(used, len(group))
        return group[self._shuffled(_ORDER, source, epoch, len(group))[place]]

    def _shuffle(self, stream: int, source: int, index: int, count: int) -> NDArray[np.intp]:
        return np.random.default_rng([self._seed, stream, source, index]).permutation(count)


@dataclass(frozen=True)
class _PackedImage:
    """An image, as integers where that is lossless."""

    values: NDArray[Any]
    white: int | None  # what the integers are divided by; None for float32

    @property
    def bytes(self) -> int:
        return self.values.nbytes

    def unpacked(self) -> FloatImage:
        image = self.values.astype(np.float32)
        return image if self.white is None else image / np.float32(self.white)


@dataclass(frozen=True)
class _PackedPair:
    """A pair whose images are stored separately, or elsewhere."""

    images: tuple[_PackedImage, ...]  # left and right, or none
    rest: StereoPair  # without its images

    @property
    def bytes(self) -> int:
        stored = sum(array.nbytes for array in _arrays(self.rest).values())
        return stored + sum(image.bytes for image in self.images)

    def unpacked(self) -> StereoPair:
        pair = _copied(self.rest)
        if not self.images:
            return pair
        left, right = (image.unpacked() for image in self.images)
        return replace(pair, left=left, right=right)


class PairCache:
    """A least-recently-used cache of decoded pairs with a memory limit.

    Images that came from 8 or 16 bits are stored as such, everything else as it is. A cached pair
    equals a freshly read one bit for bit. Of a scene with several conditions every image and the
    truth are stored once, however many pairs they make. Several threads may share the cache.

    Parameters
    ----------
    dataset
        Loads what is not in the cache.
    max_bytes
        The limit; a single pair or image above it is not kept.

    """

    def __init__(self, dataset: Dataset, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._dataset = dataset
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, _PackedImage | _PackedPair] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        """How much memory the cached pairs occupy."""

    def load(self, sample: Sample, views: tuple[Path, Path] | None = None) -> StereoPair:
        """The pair of a sample, from the cache or from its files; the caller may change it.

        Parameters
        ----------
        sample
            Of the data set.
        views
            Left and right image to take instead of the sample's own, of its `Conditions`.

        Raises
        ------
        InputError
            If a file is unusable, or an image has another size than the truth.

        """
        if views is not None:
            left, right = self._image(views[0]), self._right_image(sample, views[1])
            return _with_views(self._without_images(sample), left, right, views)
        packed = self._found(sample)
        if isinstance(packed, _PackedPair):
            return packed.unpacked()
        pair = self._dataset.load(sample)
        self._keep(sample, _packed(pair))
        return pair

    def _without_images(self, sample: Sample) -> StereoPair:
        """The truth of a scene with several conditions, which all its samples share."""
        key = sample.conditions.left if sample.conditions else sample
        packed = self._found(key)
        if not isinstance(packed, _PackedPair):
            packed = replace(_packed(self._dataset.load(sample)), images=())
            self._keep(key, packed)
        return packed.unpacked()

    def _image(self, path: Path) -> FloatImage:
        packed = self._found(path)
        if isinstance(packed, _PackedImage):
            return packed.unpacked()
        image = read_image(path)
        self._keep(path, _packed_image(image))
        return image

    def _right_image(self, sample: Sample, path: Path) -> FloatImage:
        """A right view, corrected if the sample's are."""
        if sample.correct_right is None:
            return self._image(path)
        key = "corrected", path
        packed = self._found(key)
        if isinstance(packed, _PackedImage):
            return packed.unpacked()
        image = sample.correct_right(read_image(path))
        self._keep(key, _packed_image(image))
        return image

    def _found(self, key: Hashable) -> _PackedImage | _PackedPair | None:
        with self._lock:
            packed = self._kept.get(key)
            if packed is not None:
                self._kept.move_to_end(key)
        return packed

    def _keep(self, key: Hashable, packed: _PackedImage | _PackedPair) -> None:
        with self._lock:
            if key in self._kept or packed.bytes > self._max_bytes:
                return
            self._kept[key] = packed
            self.bytes += packed.bytes
            while self.bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self.bytes -= dropped.bytes


def _with_views(
    truth: StereoPair, left: FloatImage, right: FloatImage, views: tuple[Path, Path]
) -> StereoPair:
    for image, path in zip((left, right), views, strict=True):
        if image.shape[:2] != (truth.height, truth.width):
            raise InputError(
                f"{path} is {image.shape[1]}x{image.shape[0]} but the truth of its scene is "
                f"{truth.width}x{truth.height}",
                hint="All conditions of a scene must have the same size",
            )
    return replace(truth, left=left, right=right)


def _packed(pair: StereoPair) -> _PackedPair:
    rest = replace(_copied(pair), left=NO_IMAGE, right=NO_IMAGE)
    return _PackedPair((_packed_image(pair.left), _packed_image(pair.right)), rest)


def _packed_image(image: FloatImage) -> _PackedImage:
    for kind, white in _LEVELS:
        packed = _PackedImage(np.rint(image * np.float32(white)).astype(kind), white)
        if np.array_equal(packed.unpacked(), image):
            return packed
    return _PackedImage(image.copy(), None)


def _copied(pair: StereoPair) -> StereoPair:
    """The pair with copies of its arrays."""
    return replace(pair, **{name: array.copy() for name, array in _arrays(pair).items()})


def _arrays(pair: StereoPair) -> dict[str, Any]:
    return {name: value for name, value in vars(pair).items() if isinstance(value, np.ndarray)}


def _whole_ratio(weights: Sequence[float]) -> list[int]:
    """Whole numbers, all positive, in the ratio of the weights; as small as possible."""
    shares = [weight / sum(weights) for weight in weights]
    for length in range(len(shares), _LONGEST_BLOCK + 1):
        counts = [max(round(share * length), 1) for share in shares]
        exact = (abs(n - share * length) < 1e-6 for n, share in zip(counts, shares, strict=True))
        if all(exact):
            break
    return counts
