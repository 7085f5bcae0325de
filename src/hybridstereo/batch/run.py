"""Many pairs: files are read and written while the pairs between are matched, several at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from ..crew import Crew, map_memory
from ..errors import StereoError
from ..labels import LabelRange
from ..overlap import AHEAD, overlapped
from ..search_range import widest_range
from ..stereo import Stereo
from .pairs import Pair
from .work import (
    LoadedPair,
    MatchResult,
    PairOutcome,
    PairWork,
    labelled,
    load_pair,
    match_pair,
    write_pair,
)


def run_pairs(
    stereo: Stereo, pairs: Iterable[Pair], work: PairWork, ahead: int = AHEAD
) -> Iterator[PairOutcome]:
    """Match pairs and write their results.

    On a CPU several pairs are matched at a time, each on its share of the threads, as far as the
    memory allows (`hybridstereo.crew`).  The maps are the same bit for bit.

    Parameters
    ----------
    stereo
        The model, which is used for all of them.
    pairs
        Taken as they are needed.
    work
        What to do with each.
    ahead
        How many pairs to read before they are needed: each keeps two images in memory.

    Yields
    ------
    PairOutcome
        Of each pair, in the order of the pairs; a pair that fails does not stop the others.

    Raises
    ------
    StereoError
        If ``pairs`` does, when all pairs before are done.

    Examples
    --------
    >>> from hybridstereo.batch.folders import pairs_below
    >>> from hybridstereo.batch.outputs import DisparityFile
    >>> work = PairWork("maps", (DisparityFile("{name}.pfm"),))
    >>> for outcome in run_pairs(stereo, pairs_below("scenes"), work):  # doctest: +SKIP
    ...     print(outcome.pair.name, outcome.status, outcome.error)
    """
    with Crew(stereo, work.max_memory) as crew:
        yield from overlapped(
            pairs,
            partial(load_pair, work),
            partial(match_in, crew, work),
            partial(write_pair, work),
            ahead,
            crew.size,
            crew.stop,
        )


def match_in(
    crew: Crew, work: PairWork, loaded: LoadedPair | PairOutcome
) -> MatchResult | PairOutcome:
    """As `match_pair`, by a thread of a crew.

    Raises
    ------
    StoppedError
        After `Crew.stop`.
    """
    if isinstance(loaded, PairOutcome):
        return loaded
    # How many labels costs in a file have is not known before they are read.
    need = None if loaded.right is None else partial(_need, work, loaded)
    with crew.place(need) as stereo:
        return match_pair(stereo, work, loaded, crew.go_on)


def _need(
    work: PairWork, loaded: LoadedPair, stereo: Stereo, on_device: bool, threads: int | None
) -> int:
    """Bytes that matching a pair takes at its peak."""
    height, width, _ = loaded.left.shape
    try:
        options = work.options.resolved(stereo.model.config)
        labels = labelled(stereo, options, loaded.stated).get("labels")
        if labels is None:
            labels = stereo.label_range(width, options, found=_range(work, loaded, stereo))
    except StereoError:
        return 0  # which matching the pair will tell
    return map_memory(stereo, on_device, threads, options, (height, width), labels, work.scale)


def _range(work: PairWork, loaded: LoadedPair, stereo: Stereo) -> LabelRange | None:
    """The range that will be searched, or a longer one; None if the options say it."""
    if work.options.disparities not in (None, "auto"):
        return None
    if work.rectify:  # it is found in the corrected views, which do not exist yet
        return widest_range(loaded.left.shape[1])
    assert loaded.right is not None  # such pairs are matched alone
    return stereo.find_range(loaded.left, loaded.right)  # which is remembered
