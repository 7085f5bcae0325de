"""The engine where `atheris` is installed: libFuzzer, guided by the edges of our bytecode.

It also sees what our code compares numbers and texts with, and tries those.  Half of the inputs
come from `mutate.py`, which knows text formats, and checksums are put right: no search finds them.
"""

from __future__ import annotations

import pkgutil
import tempfile
from pathlib import Path
from random import Random

import atheris

_MOST_GROWTH = 1 << 14
"""Bytes that an input may be longer than the longest seed."""
_INPUT_SECONDS = 60
"""After which an input ends the process."""


def _instrument() -> None:
    """Count the edges of what is imported from here on; not of kernels, which Numba compiles."""
    from hybridstereo import kernels

    inside = pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}.")
    excluded = [kernels.__name__, *(module.name for module in inside)]
    # Never left: commands import most of what they need when they run.
    atheris.instrument_imports(include=["hybridstereo"], exclude=excluded).__enter__()


def run_alone(name: str, seconds: float, seed: int, folder: Path) -> None:
    """A campaign in this process, which does not come back from it."""
    _instrument()
    from .engine import Trials, limit_process, sealed
    from .mutate import mutated

    trials = Trials(name, folder)
    seeds = trials.target.seeds()
    known = list(seeds)

    def test_one_input(data: bytes) -> None:
        if trials.is_new(data):
            known.append(data)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            data = atheris.Mutate(data, max_size)
        else:
            data = mutated(random.choice((data, random.choice(known))), random, known)
        return sealed(trials.target, data, random)[:max_size]

    corpus = Path(tempfile.mkdtemp())  # in a folder that is removed by who started the process
    for number, data in enumerate(seeds):
        (corpus / f"{number}").write_bytes(data)
    longest = max(map(len, seeds)) + _MOST_GROWTH
    arguments = [
        name,
        str(corpus),
        f"-seed={seed % 2**32}",
        f"-max_total_time={max(1, round(seconds))}",  # 0 would be without end
        f"-max_len={longest}",
        f"-timeout={_INPUT_SECONDS}",
        f"-artifact_prefix={folder}/{name}-",
        "-rss_limit_mb=0",  # `limit_process` says how much there is
    ]
    limit_process(seconds)
    atheris.Setup(arguments, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()
