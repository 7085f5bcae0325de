"""Seeds and some mutations of every target; campaigns are ``python -m tests.fuzz``."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from random import Random

import pytest

from fuzz.decisions import Decisions
from fuzz.engine import Campaign
from fuzz.mutate import mutated, sealed_png, sealed_zip
from fuzz.options import arguments
from fuzz.targets import TARGETS, Target, attempt
from hybridstereo.cli import cli
from hybridstereo.errors import InputError
from hybridstereo.models.published import read_published_parameters

# Most take a millisecond; these run models, write files or import whole commands.
HEAVY = {"model-contents": 40, "checkpoint-contents": 20, "cli": 60, "npz": 60, "weights": 60}
ACCEPTED = {"cli", "model-contents", "checkpoint-contents", "volume-contents"}
"""Targets whose seeds are decisions, of which some are meant to be refused."""


@pytest.mark.parametrize("name", list(TARGETS))
def test_no_input_ends_in_a_traceback(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tally = Campaign(name, Random(16)).run(executions=HEAVY.get(name, 200))
    assert tally.findings == {}
    assert tally.executions >= HEAVY.get(name, 200)


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - ACCEPTED))
def test_seeds_are_valid(name):
    """Mutations of what is refused anyway would test nothing."""
    for seed in TARGETS[name].seeds():
        refusal = attempt(TARGETS[name].run, seed)
        # Of the images only those of whole numbers can be masks.
        assert refusal is None or (name == "mask" and "not a mask" in refusal), refusal


def test_a_finding_is_found(tmp_path, monkeypatch):
    """The fuzzer itself: bytes that end in a traceback are kept, once for each place."""

    def fragile(data: bytes) -> None:
        if not data:
            raise InputError("empty")
        if b"7" in data:
            raise ZeroDivisionError

    monkeypatch.setitem(TARGETS, "fragile", Target(lambda: [b"width=5"], fragile))
    tally = Campaign("fragile", Random(1), tmp_path).run(executions=500)
    assert list(tally.findings) == ["ZeroDivisionError at outside"]
    (kept,) = tally.findings.values()
    assert b"7" in (tmp_path / kept).read_bytes()
    assert "ZeroDivisionError" in (tmp_path / f"{kept}.txt").read_text()


def test_slow_inputs_are_found(monkeypatch):
    ticks = iter(range(0, 10**6, 9))  # seconds of computing, as the clock shows them
    monkeypatch.setattr("fuzz.engine.time.process_time", lambda: next(ticks))
    monkeypatch.setitem(TARGETS, "slow", Target(lambda: [b"x"], lambda data: None))
    tally = Campaign("slow", Random(1)).run(executions=1)
    assert list(tally.findings) == ["TimeoutError at outside"]


@pytest.mark.parametrize("said", ["two\nlines", "x" * 5000])
def test_messages_must_be_one_sentence(said):
    def talkative(data: bytes) -> None:
        raise InputError(said)

    with pytest.raises(AssertionError):
        attempt(talkative, b"")


def test_mutations_differ_and_stay_small():
    seed = bytes(range(200))
    changed = {mutated(seed, Random(i), [seed]) for i in range(500)}
    assert len(changed) > 450
    assert max(map(len, changed)) < 20_000


def test_sealed_files_are_accepted(tmp_path):
    """With the checksums put right, a change of the contents gets past them."""
    png = bytearray(TARGETS["map-png"].seeds()[0])
    width = png.index(b"IHDR") + 4
    png[width : width + 4] = b"\0\0\0\x04"
    assert sealed_png(bytes(png)) != bytes(png)
    assert sealed_png(sealed_png(bytes(png))) == sealed_png(bytes(png))
    archive = bytearray(TARGETS["npz"].seeds()[0])
    place = archive.index(b"NUMPY") + 1000
    archive[place] ^= 1
    path = tmp_path / "params.npz"
    path.write_bytes(sealed_zip(bytes(archive)))
    assert len(read_published_parameters(path).unary) == 3


def test_every_option_of_every_command_is_attacked():
    given = {name: set() for name in cli.commands}
    random = Random(5)
    for _ in range(3000):
        name, *rest = arguments(Decisions(random.randbytes(300)))
        given[name] |= {word for word in rest if re.fullmatch(r"--?[a-z][a-z-]*", word)}
    for name, command in cli.commands.items():
        for option in command.params:
            names = {*option.opts, *option.secondary_opts}
            assert option.param_type_name == "argument" or names & given[name], (name, option.name)


def test_seeds_need_no_shared_data():
    sources = Path(__file__).parent.glob("*.py")
    assert not any(f"shared{'/'}" in path.read_text(encoding="utf-8") for path in sources)
