"""The levels of the machine and their words, which begin the names of host spans."""

from __future__ import annotations

import enum

__all__ = ["WorkerLevel"]


class WorkerLevel(enum.IntEnum):
    """A level by its word. The digits of ``networkN`` count network hops above a node."""

    CORE = 0
    CHIP = 2
    NODE = 3
    NETWORK1 = 4
    NETWORK2 = 5
    NETWORK3 = 6

    @property
    def word(self) -> str:
        """The word, as the log has it."""
        return self.name.lower()
