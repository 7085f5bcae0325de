"""A reporter for tests."""

from __future__ import annotations

from hybridstereo.training.stages import Reporter


class Listener(Reporter):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)
