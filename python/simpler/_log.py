"""The logger ``simpler`` of Python's ``logging`` as a client of the host log.

One threshold holds for Python and for everything native. The native side samples it when a worker is initialized
(:func:`seed`), so ``setLevel`` alone does not reach it; the next worker's initialization does.

Seeding also makes the logger a client of the host log: a handler forwards each record, so that one envelope, one clock
and one file hold all records of the process. It forwards only while the host log has a directory. Until then the host
log writes to stderr, where the root logger's handler has put the record already. Propagation is left alone: the console
and ``caplog`` see every record as before.

Importing this module needs no extension, and installs no handler.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NoReturn

#: Spans and the clock anchor: the default threshold lets these through.
TIMING: Final = 25
#: A threshold that lets nothing through. No record has this level.
NUL: Final = 60

_LEVELS: Final = frozenset((logging.DEBUG, logging.INFO, TIMING, logging.WARNING, logging.ERROR))
_THRESHOLDS: Final = (*sorted(_LEVELS), NUL)

logging.addLevelName(TIMING, "TIMING")
logging.addLevelName(NUL, "NUL")

#: How long a process that ends by ``os._exit`` waits for what it has logged, in ms.
_EXIT_DRAIN_MS: Final = 1000


def get_logger() -> logging.Logger:
    """Return the logger of this package; its level is the threshold that the next worker seeds."""
    return _LOGGER


_LOGGER: Final = logging.getLogger("simpler")
if _LOGGER.level == logging.NOTSET:
    _LOGGER.setLevel(TIMING)


def _normalize_threshold(level: int) -> int:
    """Return the threshold that the wish ``level`` gets: the smallest of the ladder not below it, NUL above ERROR.

    Up, because who asks for 35 must not be given warnings.
    """
    return _THRESHOLDS[min(bisect_left(_THRESHOLDS, level), len(_THRESHOLDS) - 1)]


def _ladder_level(level: int) -> int:
    """Return the level of a record with the number ``level``: the largest of the ladder not above it, else DEBUG.

    Down, because a record at 35 is a warning that somebody gave a number of their own.
    """
    if level >= logging.ERROR:
        return logging.ERROR
    if level >= logging.WARNING:
        return logging.WARNING
    if level >= TIMING:
        return TIMING
    return logging.INFO if level >= logging.INFO else logging.DEBUG


def current_threshold() -> int:
    """Return the threshold of the ladder that the logger's level stands for just now."""
    return _normalize_threshold(_LOGGER.getEffectiveLevel())


def seed(*, defer_writer: bool = False) -> None:
    """Hand the logger's threshold to the host log of this process, and make the logger its client.

    Every worker's initialization calls this. It may be called again, in a forked child as well. With ``defer_writer``
    the writer is left to a later ``_start_host_log_writer``, for a process that will fork first.

    Raises ``ImportError`` where the extension is missing or stale, and ``RuntimeError`` with the native text where
    the log cannot be set up.
    """
    from simpler._extension import native

    native._initialize_host_log(current_threshold(), defer_writer)


class _UnifiedLogHandler(logging.Handler):
    """Forwards records to the host log while that has a directory."""

    def __init__(self, emit: Callable[[int, str, str], None], directory: Callable[[], str]) -> None:
        super().__init__()
        self._emit = emit
        self._directory = directory

    def createLock(self) -> None:
        # The host log takes none, and what is not there is not held by another thread at a fork.
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Filter and forward ``record``, without the lock that ``logging`` would take."""
        if self.filters:
            kept = self.filter(record)
            if not kept:
                return False
            if isinstance(kept, logging.LogRecord):
                record = kept
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Forward ``record`` as one record, or, if it has a traceback, as one for each line: a record is a line of at
        most 512 bytes, and the end of a traceback says most.
        """
        try:
            if not self._directory():
                return
            level = record.levelno
            if level not in _LEVELS:
                level = _ladder_level(level)
            func = record.funcName or "python"
            if record.exc_info or record.exc_text or record.stack_info or self.formatter:
                for line in self.format(record).splitlines() or [""]:
                    self._emit(level, func, line)
            else:
                self._emit(level, func, record.getMessage())
        except Exception:
            self.handleError(record)


# FORK: held over a fork, so that no child inherits it from another thread.
_MUTEX: Final = threading.Lock()
os.register_at_fork(before=_MUTEX.acquire, after_in_parent=_MUTEX.release, after_in_child=_MUTEX.release)


def attach_unified_log_handler(emit: Callable[[int, str, str], None], directory: Callable[[], str]) -> bool:
    """Install the forwarding handler on the logger, unless it has one. Return whether it was installed now.

    ``emit`` takes a record's level, function and text; ``directory`` gives the host log's directory, empty while it
    has none. Any thread.
    """
    with _MUTEX:
        if any(isinstance(handler, _UnifiedLogHandler) for handler in _LOGGER.handlers):
            return False
        _LOGGER.addHandler(_UnifiedLogHandler(emit, directory))
        return True


def _drain_before_os_exit(close: Callable[[int], None]) -> None:
    """Make ``os._exit`` drain the host log first, for up to one second, once for the process and its children.

    The C function runs no exit handlers, and the children of ``multiprocessing`` and of workers leave by it. What ends
    the process without Python's ``os._exit`` cannot drain: a signal, ``os.abort``, ``os.exec*``, C's ``_exit``, and a
    name that was imported from ``os`` before the log was seeded. What is queued then is still in shared memory, and
    ``simpler recover`` puts it into the log.
    """
    with _MUTEX:
        if hasattr(os._exit, "__wrapped__"):
            return
        leave = os._exit

        @functools.wraps(leave)
        def _exit(status: int) -> NoReturn:
            try:
                close(_EXIT_DRAIN_MS)
            finally:
                leave(status)

        os._exit = _exit


def _become_a_client() -> None:
    """Make the logger a client of the host log; the extension calls this where it seeds the threshold."""
    from simpler._extension import native

    attach_unified_log_handler(native._emit_host_log, native._host_log_directory)
    _drain_before_os_exit(native._close_host_log)
