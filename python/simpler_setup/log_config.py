"""The log level on command lines: one axis, the same names for every program."""

from __future__ import annotations

import argparse
import logging
from typing import Final

from simpler._log import NUL, TIMING, get_logger

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "timing": TIMING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "null": NUL,
}

#: The names that programs take, the most talkative first.
LOG_LEVEL_CHOICES: Final = list(_LEVELS)

#: Lets the spans through, and not INFO.
DEFAULT_LOG_LEVEL: Final = "timing"


def parse_level(name: str) -> int:
    """Return the threshold of the level that is called ``name``, in any case of letters.

    Raises ``ValueError`` for another name.
    """
    try:
        return _LEVELS[name.lower()]
    except KeyError:
        raise ValueError(f"no log level is called {name!r}; there are {', '.join(LOG_LEVEL_CHOICES)}") from None


def add_log_level_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-level`` to ``parser``, by default :data:`DEFAULT_LOG_LEVEL`; its value is for
    :func:`configure_logging`.
    """
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVEL_CHOICES,
        default=DEFAULT_LOG_LEVEL,
        type=str.lower,
        help="the mildest level that is logged, here and by workers (default: %(default)s)",
    )


def configure_logging(level: str = DEFAULT_LOG_LEVEL) -> None:
    """Set the logger ``simpler`` to the level that is called ``level``, and give the root logger a console if it has
    none.

    Workers take the level over when they are initialized; those that are already do not see the change.

    Raises ``ValueError`` for a name that is none.
    """
    threshold = parse_level(level)
    logging.basicConfig(format="[%(levelname)s] %(message)s")
    get_logger().setLevel(threshold)
