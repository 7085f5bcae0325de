"""Crash campaign: kill, interrupt and starve `hstereo` at random moments, and see what is left.

    python tools/crash_campaign.py FOLDER [--kills 100] [--other-kills 50] [--seed 1] [--only PART]

Everything happens below FOLDER, on tiny generated scenes. A training that was killed is resumed,
killed again, and so on until it ends; then its models must equal those of an uninterrupted one, bit
for bit. What `infer` and `eval --report` had written before must be there whole, old or new. The
figures go to standard output as lines of the table in docs/reliability.md.

Needs POSIX. As root it mounts small file systems in memory for the disk that is full; otherwise
only the writes of our own code are made to fail, which `FullDisk` does.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRAINING = [
    "middlebury", "--layers", "2", "--filters", "6", "--steps", "8", "--crop", "24x32",
    "--validate-every", "4", "--checkpoint-every", "2", "--iterations", "2",
    "--val-fraction", "0.4", "--threads", "1",
]  # fmt: skip
# One stage without validation, for what has to run once per operation.
SHORT_TRAINING = [
    "middlebury", "--stage", "unary", "--layers", "1", "--filters", "2", "--steps", "2",
    "--crop", "16x24", "--val-fraction", "0", "--checkpoint-every", "1", "--threads", "1",
]  # fmt: skip
MODELS = ("best.h5", "last.h5", "unary.h5", "crf.h5", "joint.h5", "full.h5")
PATIENCE = 300  # seconds for anything; on a busy machine a run takes 20
TEMPORARY = ".*.hstereo*"


class FullDisk:
    """A disk on which every operation that writes fails, from a certain one on.

    Parameters
    ----------
    after
        How many operations succeed; None: all, to count them.
    """

    def __init__(self, after: int | None) -> None:
        self.after = after
        self.operations = 0

    def _is_full(self) -> bool:
        self.operations += 1
        return self.after is not None and self.operations > self.after

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._is_full():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments, **named)

        return call

    @contextmanager
    def mounted(self) -> Iterator[FullDisk]:
        """Put the disk under `os` and `pathlib` of this process."""
        real_open, real_write_bytes = os.open, pathlib.Path.write_bytes

        def open_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            creates = flags & os.O_CREAT
            return (self._guarded(real_open) if creates else real_open)(path, flags, *rest, **named)

        def write_bytes(path: Path, data: bytes) -> int:
            if self._is_full():  # half of it still fitted
                real_write_bytes(path, bytes(data)[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return real_write_bytes(path, data)

        def write_text(path: Path, text: str, encoding: str | None = None) -> int:
            return write_bytes(path, text.encode(encoding or "utf-8"))

        replaced = {
            (os, "open"): open_,
            (os, "write"): self._guarded(os.write),
            (os, "fsync"): self._guarded(os.fsync),
            (os, "replace"): self._guarded(os.replace),
            (pathlib.Path, "write_bytes"): write_bytes,
            (pathlib.Path, "write_text"): write_text,
        }
        saved = {place: getattr(*place) for place in replaced}
        for (owner, name), function in replaced.items():
            setattr(owner, name, function)
        try:
            yield self
        finally:
            for (owner, name), function in saved.items():
                setattr(owner, name, function)


def contents_of_model(path: Path) -> dict[str, bytes]:
    """Everything in a model file or checkpoint that must not depend on interruptions."""
    from hybridstereo.io.weights import read_weights

    stored = read_weights(path)
    config = {k: repr(v).encode() for k, v in stored.config.items() if k != "position_seconds"}
    return config | {name: array.tobytes() for name, array in stored.tensors.items()}


def log_without_times(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_bytes().splitlines()]
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in entries]


def differences(whole: Path, parts: Path, names: Sequence[str] = MODELS) -> list[str]:
    """What of two runs is not the same, bit for bit."""
    found = [x for x in names if contents_of_model(whole / x) != contents_of_model(parts / x)]
    if log_without_times(whole) != log_without_times(parts):
        found.append("log.jsonl")
    return found


class Command:
    """`hstereo ARGUMENTS`, begun in a process of its own that has everything imported already."""

    def __init__(self, arguments: Sequence[object], output: Path, disk: FullDisk | None = None):
        sys.stdout.flush()
        self.output = output
        self.begun = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run([str(x) for x in arguments], disk)

    def _run(self, arguments: list[str], disk: FullDisk | None) -> None:
        code = 70
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the campaign runs in nohup
            descriptor = os.open(self.output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            from hybridstereo.cli import main

            with (disk or FullDisk(None)).mounted():
                main(arguments)
        except SystemExit as done:
            code = int(done.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)

    def wait(self) -> int:
        """Wait for the end; returns as `poll`."""
        while (code := self.poll()) is None:
            if time.monotonic() - self.begun > PATIENCE:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
        return code

    def stop_when(self, number: int, ready: Callable[[], bool]) -> int | None:
        """Send a signal as soon as something holds; the exit code if it ended before."""
        while not ready():
            if (code := self.poll()) is not None:
                return code
            time.sleep(0.0005)
        os.kill(self.pid, number)
        return None

    @property
    def text(self) -> str:
        """What it printed."""
        return self.output.read_text(errors="replace")


@dataclass
class Tally:
    """What a part of the campaign found."""

    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, count: int = 1) -> None:
        """Count something."""
        self.counts[name] = self.counts.get(name, 0) + count

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(otherwise)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{counted}; {len(self.problems)} problems" + "".join(
            f"\n    {problem}" for problem in self.problems
        )


def leftovers(folder: Path) -> list[Path]:
    """Temporary files of writers, dead or alive."""
    return sorted(folder.rglob(TEMPORARY))


class Campaign:
    """All parts, on the same scenes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.scenes = folder / "scenes"
        self.whole = folder / "whole"
        folder.mkdir(parents=True)
        size = ["--height", "40", "--width", "56", "--max-disparity", "11", "--objects", "4"]
        self._succeed("synth", self.scenes, "--count", 5, "--seed", 3, *size)
        self.short = folder / "short"
        self._succeed(*self._continue(self.whole))
        self._succeed(*self._continue(self.short, SHORT_TRAINING))
        self.seconds = self._succeed(*self._continue(folder / "timed"))

    def _start(self, *arguments: object, disk: FullDisk | None = None) -> Command:
        return Command(arguments, self.folder / "output.txt", disk)

    def _succeed(self, *arguments: object) -> float:
        command = self._start(*arguments)
        code = command.wait()
        if code != 0:
            raise SystemExit(f"{arguments} ended with {code}: {command.text}")
        return time.monotonic() - command.begun

    def _continue(self, run: Path, training: Sequence[str] = TRAINING) -> list[object]:
        if (run / "config.json").exists():
            return ["train", "--resume", "-o", run]
        return ["train", *training, "--root", self.scenes, "-o", run]

    def _finish(self, run: Path, tally: Tally, what: str, short: bool = False) -> None:
        """Resume a run to its end and compare it with the uninterrupted one."""
        command = self._start(*self._continue(run, SHORT_TRAINING if short else TRAINING))
        code = command.wait()
        tally.expect(code == 0, f"{what}: resuming ended with {code}: {command.text[-300:]}")
        if code == 0:
            tally.add("runs ended")
            whole, models = (self.short, MODELS[:3]) if short else (self.whole, MODELS)
            changed = differences(whole, run, models)
            tally.expect(not changed, f"{what}: {changed} differ")
            tally.expect(not leftovers(run), f"{what}: {leftovers(run)} left")
        shutil.rmtree(run, ignore_errors=True)

    def kills_in_training(self, kills: int) -> Tally:
        """`kill -9` at random moments, half of them while something is being written."""
        tally = Tally()
        number = 0
        while tally.counts.get("kill -9", 0) < kills:
            number += 1
            run = self.folder / f"run{number}"
            for _ in range(12):  # at most so often, then it may end
                command = self._start(*self._continue(run))
                code = command.stop_when(signal.SIGKILL, self._moment(run, self.seconds))
                if code is not None:
                    tally.expect(code == 0, f"run {number}: {code}: {command.text[-300:]}")
                    break
                command.wait()
                tally.add("kill -9")
                tally.add("temporary files left", len(leftovers(run)))
                tally.add("before the first checkpoint", not (run / "last.h5").exists())
            self._finish(run, tally, f"run {number}")
        return tally

    def _moment(self, folder: Path, seconds: float) -> Callable[[], bool]:
        """A random moment: after some time, or from then on while a temporary file is there."""
        until = time.monotonic() + self.random.uniform(0.0, seconds)
        while_writing = self.random.random() < 0.5
        last = until + 2 * seconds

        def has_come() -> bool:
            now = time.monotonic()
            return now >= until and (not while_writing or now > last or bool(leftovers(folder)))

        return has_come

    def kills_elsewhere(self, kills: int) -> Tally:
        """`kill -9` in `infer` and in `eval --report`, over results that were there before."""
        tally = Tally()
        scene = self.scenes / "scene_0000"
        place = self.folder / "results"
        place.mkdir()
        pair = [scene / "im0.png", scene / "im1.png"]
        old = ["--model", "census", "--disparities", "12"]
        new = ["--model", "census", "--disparities", "9"]
        volume = place / "v.h5"
        infer = ["infer", *pair, "-o", place / "d.pfm", "--color", place / "c.png"]
        infer += ["--save-volume", volume]
        report = ["eval", scene / "disp0GT.pfm", scene / "disp0GT.pfm", "--report", place]
        commands = {"infer": ([*infer, *old], [*infer, *new]), "eval --report": (report, report)}
        for name, (before, after) in commands.items():
            states = []
            for arguments in (before, after):
                seconds = self._succeed(*arguments)
                states.append(_files(place))
            killed = 0
            while killed < kills // 2:
                command = self._start(*self.random.choice((before, after)))
                code = command.stop_when(signal.SIGKILL, self._moment(place, seconds))
                if code is not None:  # it was faster
                    tally.expect(code == 0, f"{name}: {code}: {command.text[-300:]}")
                    continue
                command.wait()
                killed += 1
                tally.add("kill -9")
                tally.add("temporary files left", len(leftovers(place)))
                for path, data in _files(place).items():
                    whole = any(data == state.get(path) for state in states)
                    tally.expect(whole, f"{name}: {path} is neither the old file nor the new one")
            self._succeed(*after)
            tally.expect(not leftovers(place), f"{name}: {leftovers(place)} left")
        return tally

    def signals(self, repeats: int) -> Tally:
        """SIGTERM, SIGHUP, SIGINT once and twice: saved, the right exit code, resumed."""
        tally = Tally()
        for number, times in [(signal.SIGTERM, 1), (signal.SIGHUP, 1), (signal.SIGINT, 1),
                              (signal.SIGINT, 2)] * repeats:  # fmt: skip
            run = self.folder / "signalled"
            command = self._start(*self._continue(run))
            steps = self.random.randrange(1, 20)
            code = command.stop_when(number, lambda run=run, n=steps: _lines(run) >= n)
            what = f"{times} x {signal.Signals(number).name} after {steps} lines"
            if code is None:
                if times == 2:
                    time.sleep(0.05)
                    if command.poll() is None:
                        os.kill(command.pid, number)
                code = command.wait()
                tally.add(f"{times} x {signal.Signals(number).name}")
                tally.expect(code == 128 + number, f"{what}: exit code {code}")
                tally.expect("Traceback" not in command.text, f"{what}: a traceback")
            self._finish(run, tally, what)
        return tally

    def failing_writes(self) -> Tally:
        """Every operation that writes fails once, and all after it, as on a full disk."""
        tally = Tally()
        run = self.folder / "starved"
        while True:
            operation = tally.counts.get("operations that failed", 0)
            command = self._start(*self._continue(run, SHORT_TRAINING), disk=FullDisk(operation))
            code = command.wait()
            lines = command.text.strip().splitlines()
            if code == 0 and "No space" not in command.text:
                shutil.rmtree(run)
                return tally
            tally.add("operations that failed")
            # Only the picture of the curves may fail without ending the run.
            sentence = bool(lines) and lines[-1].startswith("hstereo: ")
            tally.expect(
                (code == 1 and sentence) or (code == 0 and "curves.png" in command.text),
                f"operation {operation}: {code}, {lines[-1:]}",
            )
            self._finish(run, tally, f"operation {operation}", short=True)

    def full_disks(self) -> Tally:
        """A file system that becomes full; afterwards it gets larger and the run goes on."""
        tally = Tally()
        place = self.folder / "small"
        place.mkdir()
        needed = sum(path.stat().st_size for path in self.whole.iterdir())
        for kilobytes in range(8, 3 * needed // 1024, max(needed // 1024 // 12, 4)):
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", place], check=True
            )
            try:
                command = self._start(*self._continue(place / "run"))
                code = command.wait()
                lines = command.text.strip().splitlines()
                if code != 0:
                    tally.add("full disks")
                    tally.expect(
                        code == 1 and lines[-1].startswith("hstereo: "),
                        f"{kilobytes} kB: {code}, {lines[-1:]}",
                    )
                subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
                self._finish(place / "run", tally, f"{kilobytes} kB")
            finally:
                subprocess.run(["umount", place], check=True)
            if code == 0:
                break
        return tally


def _files(folder: Path) -> dict[str, bytes]:
    """The finished files; HDF5 and reports hold nothing that depends on the moment."""
    found = [x for x in folder.iterdir() if x.is_file() and not x.name.startswith(".")]
    return {path.name: path.read_bytes() for path in found}


def _lines(run: Path) -> int:
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def main() -> None:
    """Run all parts and print their figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="must not exist yet")
    parser.add_argument("--kills", type=int, default=100, help="in training")
    parser.add_argument("--other-kills", type=int, default=50, help="in infer and eval --report")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="the part whose name begins so")
    arguments = parser.parse_args()
    # Imported here, so that a process that is killed after a second has done something by then.
    import hybridstereo.evaluation.compare
    import hybridstereo.evaluation.report.html
    import hybridstereo.training.run  # noqa: F401

    campaign = Campaign(arguments.folder.resolve(), arguments.seed)
    parts: dict[str, Callable[[], Tally]] = {
        "kill -9 in train": lambda: campaign.kills_in_training(arguments.kills),
        "kill -9 in infer, eval --report": lambda: campaign.kills_elsewhere(arguments.other_kills),
        "signals": lambda: campaign.signals(3),
        "failing writes": campaign.failing_writes,
    }
    if os.geteuid() == 0:
        parts["full disks"] = campaign.full_disks
    failed = False
    for name, part in parts.items():
        if not name.startswith(arguments.only or ""):
            continue
        begun = time.monotonic()
        tally = part()
        failed |= bool(tally.problems)
        print(f"{name}: {tally} ({time.monotonic() - begun:.0f} s)", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
