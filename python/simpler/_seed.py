"""The native log's threshold, taken from the Python logger where a worker is initialized."""

from __future__ import annotations

import logging

__all__ = ["seed_log"]

_LADDER = (10, 20, 25, 30, 40)
_NUL = 60


def seed_log(*, defer_writer: bool) -> int:
    """Seeds the log and gives the threshold that it got."""
    level = logging.getLogger("simpler").level or 25
    return next((step for step in _LADDER if level <= step), _NUL)
