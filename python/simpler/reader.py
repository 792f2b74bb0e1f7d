"""Logs as tables: what pandas, polars, DuckDB and pyarrow take without a copy.

::

    log = simpler.read_log("out/demo/log")
    if not log.trusted:
        print(log.losses)                 # before any number
    frame = polars.DataFrame(log)         # or pandas.DataFrame.from_arrow(log), pyarrow.table(log)
    duckdb.sql("SELECT name, median(dur_ns) FROM log WHERE callable = 'decode' GROUP BY name")

One row is one span, in log order:

=============  ==============================================================================================
``host``       the host that its process ran on, null where the log does not say
``life``       its process from start to end, counted from 0: a pid may come again, on another host or later
``pid tid``    its process and thread
``inv``        the invocation number as logged; ``invocation`` tells those apart that share one within a life,
               and is null for spans outside of any (schedulers' and foreign ones)
``hid``        the callable's identity, hexadecimal as in the log; ``callable`` is what it is called: ``decode``,
               ``prefill``, ``prewarm``, else the first eight digits
``depth``      0 for a root
``name``       the whole dotted name
``is_device``  whether it is on the device's clock
``ts_ns``      its start, ns: CLOCK_MONOTONIC, or, of a device span, from its invocation's own origin
``dur_ns``     how long it took, ns; 0 was measured
``host_ts_ns`` its start, ns of CLOCK_MONOTONIC: ``ts_ns``, or, of a device span, where the log's clock anchors put it,
               right to ±``error_ns``; null where they do not say
``wall_time``  its start in UTC, null without a clock anchor from before it
``attrs``      its attributes as logged
=============  ==============================================================================================

Names, callables and hosts are dictionary-encoded (categorical).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from simpler._extension import native

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

__all__ = ["Log", "read_log"]

#: What a log can be read from: a file, a directory that holds ``host.*.log``, ``"-"`` for standard input, or a binary
#: stream; gz and zst are unpacked.
LogSource: TypeAlias = "str | os.PathLike[str] | IO[bytes]"


class Log:
    """What was read of a log: a table of its spans, and how far it can be trusted. Any thread may use it."""

    def __init__(self, read: native._Log) -> None:
        self._read: Final = read

    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType:
        """Give the table to whoever speaks the Arrow PyCapsule interface; each call begins anew."""
        return self._read.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> CapsuleType:
        """Give the table's columns."""
        return self._read.__arrow_c_schema__()

    def __len__(self) -> int:
        """Return the number of spans."""
        return len(self._read)

    @property
    def trusted(self) -> bool:
        """Whether no record is known to be missing, damaged or cut: what ``simpler check --strict`` asks."""
        return not self._read.losses

    @property
    def losses(self) -> dict[str, int]:
        """What is known to be missing, damaged or cut, by what it is; empty if the log can be trusted."""
        return self._read.losses

    @property
    def dropped(self) -> dict[str, int]:
        """How many records their writers lost, by reason: ``queue_full``, ``claim_exhausted``, ``output_failed``,
        ``not_admitted``.
        """
        return self._read.dropped

    @property
    def counts(self) -> dict[str, int]:
        """What was met in the bytes: ``heads`` of span records, complete ``spans``, ``torn`` ones and so on."""
        return self._read.counts

    @property
    def warnings(self) -> list[str]:
        """What ``simpler timing`` says before a number."""
        return self._read.warnings

    @property
    def complaints(self) -> list[tuple[str, int, str]]:
        """The first complaints about the bytes: source, byte offset, reason. :attr:`complaints_total` is how many there
        are in all.
        """
        return self._read.complaints

    @property
    def complaints_total(self) -> int:
        """How many complaints there are in all."""
        return self._read.complaints_total

    @property
    def nbytes(self) -> int:
        """How many bytes were read, unpacked."""
        return self._read.nbytes

    def __repr__(self) -> str:
        """Say how many spans there are, and whether they can be trusted."""
        verdict = "nothing is known to be lost" if self.trusted else f"lossy: {self.losses}"
        return f"<Log of {len(self)} spans, {verdict}>"


def read_log(sources: LogSource | Iterable[LogSource]) -> Log:
    """Read one log, or several as one.

    The GIL is released meanwhile, and all processors decode; Ctrl-C ends it. Damaged records are counted and left out,
    and never an exception: ask :attr:`Log.trusted`.

    Raises ``FileNotFoundError`` and other ``OSError`` for what cannot be opened, ``ValueError`` for a directory that holds
    no ``host.*.log`` and for an empty list of sources, ``TypeError`` for what is no source.
    """
    alone = isinstance(sources, (str, os.PathLike)) or hasattr(sources, "read")
    listed = [sources] if alone else list(sources)  # type: ignore[arg-type]
    if not listed:
        raise ValueError("no log to read was given")
    return native._read_log(Log, listed)
