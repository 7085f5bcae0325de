"""What a thousand nodes would do: a model on paper beside a simulation, for docs/scaling.md.

    python tools/scaling_simulation.py            # both tables, with the measured figures below

Two systems are simulated event by event.  **Batch**: a client with the scheduler, which handles one
task at a time; workers with two tasks in flight each, of which one computes; storage that all
share; workers that die and come back, whose tasks begin anew elsewhere.  **Training**: ranks that
compute for different times, wait for the slowest, exchange gradients, and begin again from the last
checkpoint when one of them dies.  The paper model has one formula for each; where the two differ,
the formula has missed something.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, replace
from statistics import NormalDist

NODES = (1, 2, 10, 100, 300, 1000, 3000)


@dataclass(frozen=True)
class Batch:
    """Many pairs on Dask's workers; seconds and bytes.

    Attributes
    ----------
    service, spread
        Mean of the seconds that a pair computes, and their standard deviation over the mean.
    task
        What client and scheduler spend on a task.
    bytes, storage
        Read and written for a pair, and what the storage gives per second in all.
    lifetime, restart
        Mean seconds until a worker dies, and until another one has taken its place.
    """

    service: float = 3.0
    spread: float = 0.25
    task: float = 0.0035
    bytes: float = 2.3e6
    storage: float = 10e9
    lifetime: float = 86400.0
    restart: float = 30.0

    def on_paper(self, workers: int) -> float:
        """Pairs per second: what the slowest of three servers does.

        A worker that dies loses half a pair on average, and the time until it is replaced.
        """
        lost = (0.5 * self.service + self.restart) / self.lifetime
        computed = workers / (self.service * (1 + lost))
        return min(computed, 1 / self.task, self.storage / self.bytes)

    def simulated(self, workers: int, pairs: int, seed: int = 0) -> tuple[float, int]:
        """Pairs per second, and how many were begun again because their worker died."""
        return _BatchRun(self, workers, pairs, random.Random(seed)).run()


class _BatchRun:
    """One run: events are (time, number, what, worker, life)."""

    def __init__(self, system: Batch, workers: int, pairs: int, rng: random.Random) -> None:
        self.system, self.rng = system, rng
        self.waiting, self.done, self.again = pairs, 0, 0
        self.free_at = self.storage_at = 0.0  # of the scheduler, of the storage
        self.queues: list[deque[int]] = [deque() for _ in range(workers)]
        self.life = [0] * workers
        self.alive = [True] * workers
        self.events: list[tuple[float, int, str, int, int]] = []
        self.count = 0

    def at(self, when: float, what: str, worker: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, what, worker, self.life[worker]))

    def send(self, now: float, worker: int) -> None:
        """Hand a pair to a worker, as soon as the scheduler has time for it."""
        if self.waiting == 0:
            return
        self.waiting -= 1
        self.free_at = max(self.free_at, now) + self.system.task
        self.queues[worker].append(0)
        self.at(self.free_at, "arrive", worker)

    def compute(self, now: float, worker: int) -> None:
        system = self.system
        # Both files are read before the work and written after it, beside that of other pairs.
        self.storage_at = max(self.storage_at, now) + system.bytes / system.storage
        deviation = math.sqrt(math.log(1 + system.spread**2))
        drawn = self.rng.lognormvariate(-0.5 * deviation**2, deviation) * system.service
        self.at(max(now + drawn, self.storage_at), "end", worker)

    def run(self) -> tuple[float, int]:
        pairs, workers = self.waiting, range(len(self.queues))
        arrived = [0] * len(self.queues)
        for worker in workers:
            self.at(self.rng.expovariate(1 / self.system.lifetime), "die", worker)
        for _ in range(2):
            for worker in workers:
                self.send(0.0, worker)
        now, first = 0.0, 0.0
        warm = pairs // 5  # the start, when all ask at once, is not the throughput
        while self.done < pairs:
            now, _, what, worker, life = heapq.heappop(self.events)
            if life != self.life[worker]:
                continue
            if what == "arrive":
                arrived[worker] += 1
                if arrived[worker] == 1:
                    self.compute(now, worker)
            elif what == "end":
                self.queues[worker].popleft()
                arrived[worker] -= 1
                self.done += 1
                if self.done == warm:
                    first = now
                if arrived[worker]:
                    self.compute(now, worker)
                self.send(now, worker)
            elif what == "die":
                lost = len(self.queues[worker])
                self.again += lost
                self.waiting += lost
                self.queues[worker].clear()
                arrived[worker] = 0
                self.life[worker] += 1
                self.at(now + self.system.restart, "join", worker)
            else:  # join
                self.at(now + self.rng.expovariate(1 / self.system.lifetime), "die", worker)
                for _ in range(2):
                    self.send(now, worker)
        return (pairs - warm) / (now - first), self.again


@dataclass(frozen=True)
class Training:
    """Training on MPI's ranks; seconds and bytes.

    Attributes
    ----------
    step, spread
        Mean of the seconds that a rank computes for its pair, and their deviation over the mean.
    bytes, bandwidth, latency
        Of the gradient, of a rank's network, and of a message.
    lifetime, restart
        Mean seconds until a rank dies, and until the job runs again.
    checkpoint, write
        Steps between checkpoints, and the seconds that one takes.
    """

    step: float = 2.1
    spread: float = 0.05
    bytes: float = 1.1e6
    bandwidth: float = 1.25e9
    latency: float = 2e-6
    lifetime: float = 30 * 86400.0
    restart: float = 60.0
    checkpoint: int = 50
    write: float = 0.1

    def exchange(self, ranks: int) -> float:
        """Two halves, each with n-1 messages and (n-1)/n of the bytes."""
        if ranks == 1:
            return 0.0
        share = (ranks - 1) / ranks * self.bytes / self.bandwidth
        return 2 * (share + (ranks - 1) * self.latency)

    def on_paper(self, ranks: int) -> float:
        """Efficiency: pairs per second for each rank, of those of one rank that never dies.

        The slowest of n normal times lies at the quantile (n - 3/8) / (n + 1/4) (Blom).  A death
        costs half the steps between two checkpoints and the restart.
        """
        beyond = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
        slowest = self.step * (1 + self.spread * beyond)
        one = slowest + self.exchange(ranks) + self.write / self.checkpoint
        deaths = ranks / self.lifetime  # per second
        lost = deaths * (self.restart + 0.5 * self.checkpoint * one)
        return self.step / (one * (1 + lost))

    def simulated(self, ranks: int, steps: int, seed: int = 0) -> tuple[float, int]:
        """Efficiency, and how often the job was started again."""
        rng = random.Random(seed)
        now, done, saved, restarts = 0.0, 0, 0, 0
        death = rng.expovariate(ranks / self.lifetime)
        while done < steps:
            slowest = max(rng.gauss(self.step, self.spread * self.step) for _ in range(ranks))
            end = now + max(slowest, 0.0) + self.exchange(ranks)
            if (done + 1) % self.checkpoint == 0:
                end += self.write
            if end > death:
                now, done, restarts = death + self.restart, saved, restarts + 1
                death = now + rng.expovariate(ranks / self.lifetime)
                continue
            now, done = end, done + 1
            if done % self.checkpoint == 0:
                saved = done
        return steps * self.step / now, restarts


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, system in (("batch", Batch()), ("training", Training())):
        for key, value in vars(system).items():
            parser.add_argument(f"--{name}-{key}", type=type(value), default=value)
    given = vars(parser.parse_args())
    batch = replace(Batch(), **_named(given, "batch_"))
    training = replace(Training(), **_named(given, "training_"))
    print(batch, "\n| workers | pairs/s on paper | simulated | efficiency | begun again |")
    print("|---|---|---|---|---|")
    for workers in NODES:
        pairs = 200 * workers + 200 if workers <= 100 else 60 * workers
        found, again = batch.simulated(workers, pairs)
        efficiency = found * batch.service / workers
        print(f"| {workers} | {batch.on_paper(workers):.2f} | {found:.2f} | {efficiency:.3f}"
              f" | {again} |")  # fmt: skip
    print(training, "\n| ranks | exchange, ms | efficiency on paper | simulated | restarts |")
    print("|---|---|---|---|---|")
    for ranks in NODES:
        found, restarts = training.simulated(ranks, 4000 if ranks <= 1000 else 2000)
        print(f"| {ranks} | {1000 * training.exchange(ranks):.2f} | {training.on_paper(ranks):.3f}"
              f" | {found:.3f} | {restarts} |")  # fmt: skip


def _named(given: dict, prefix: str) -> dict:
    return {name.removeprefix(prefix): x for name, x in given.items() if name.startswith(prefix)}


if __name__ == "__main__":
    main()
