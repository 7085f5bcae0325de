"""Bytes as a source of decisions: how mutations of bytes reach contents behind checksums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Decisions:
    """Reads decisions off bytes; when they end, every decision is the first choice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def byte(self) -> int:
        """The next byte, or 0."""
        self._position += 1
        return self._data[self._position - 1] if self._position <= len(self._data) else 0

    def below(self, end: int) -> int:
        """A whole number in [0, end)."""
        return self.byte() % end

    def chosen(self, items: Sequence[Item]) -> Item:
        """One of the items; the first is the usual one."""
        return items[self.below(len(items))]

    def rarely(self) -> bool:
        """True for one byte in eight."""
        return self.byte() % 8 == 7
