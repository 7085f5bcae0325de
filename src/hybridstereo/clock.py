"""Wall-clock seconds of the stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnStage = Callable[[str], None]
"""Called with the name of each stage when it begins."""


class StageClock:
    """Wall-clock seconds of each stage, in order; tells ``on_stage`` which one begins.

    ``wait`` is called before the clock is read: a GPU works on while its caller does.
    """

    def __init__(
        self, on_stage: OnStage | None = None, wait: Callable[[], None] = lambda: None
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._listeners = [] if on_stage is None else [on_stage]
        self._wait = wait

    def listen(self, on_stage: OnStage) -> None:
        """Tell this one, too, from now on."""
        self._listeners.append(on_stage)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as a part of stage ``name``."""
        for on_stage in self._listeners:
            on_stage(name)
        begin = time.perf_counter()
        try:
            yield
            self._wait()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
