"""Where an accelerator run's time goes, from nothing but its log.

``python -m simpler_setup.tools.strace_timing LOG...`` is ``simpler timing LOG...``; see its ``--help``. The functions
below are for programs that compute something of their own::

    with open("run.log", errors="replace") as log:
        invocations = group_invocations(invocation_spans(parse_spans(log)))
    for hid, runs in bucket_by_hid(invocations).items():
        print(hid, [run.root().dur for run in runs if run.root()])

All of them give what the command line gives, since both are the same code. Times are ns of ``CLOCK_MONOTONIC``; those of
device spans count from an origin of their invocation's own.

Lines may be any iterable of ``str`` or bytes, an open file, or one ``str`` or bytes object that holds them all. An
element may hold several lines; its end is the end of a line. Records are found wherever they stand in a line. What is no
complete record is no span: a record that is cut or glued to another, a copy in quotes, a number that does not fit 64 bits.
:func:`count_record_heads` less the number of spans says how many were lost that way.

Where other readers of these logs differ, this is what holds here:

- ``parse_spans`` gives the same record as often as it stands there; whatever groups spans or draws them takes one that
  is repeated exactly for one.
- ``parse_spans`` gives records of any version, which ``Span.v`` tells; the command line leaves out all but version 1.
- ``hid`` is a number in the log, and here its shortest text in hexadecimal.
- A number of an invocation that a process has used again stands for several invocations, told apart by roots that do not
  overlap in time. The root of an invocation is its run's own, if it has one, whatever else has depth 0.
- Spans of schedulers and of foreign producers that have the pid and the inv of a run are no part of it:
  :func:`group_invocations` makes an invocation of their own of them. In tables of runs and in :func:`to_chrome_trace` they
  are not shown.
- What a log does not hold is ``None``, or ``–`` in a table, and in no mean; only :func:`_round_metrics` says 0.0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from simpler._extension import native
from simpler._task_interface import ClockAnchor, Invocation, NativeRun, Span

__all__ = [
    "ClockAnchor",
    "Invocation",
    "NativeOverlap",
    "NativeOverlapError",
    "NativeRun",
    "Span",
    "assert_native_overlap",
    "bucket_by_hid",
    "count_record_heads",
    "expand_log_source",
    "external_producer",
    "group_invocations",
    "host_record_spans",
    "invocation_spans",
    "load_host_phase_records",
    "main",
    "node_span_leaf",
    "parse_clock_anchors",
    "parse_drop_summaries",
    "parse_spans",
    "print_rounds_table",
    "print_tpot_table",
    "print_tree",
    "span_family",
    "to_chrome_trace",
    "to_host_swimlane",
]

#: The words that a scheduler's span names begin with, a chip's and a core's: those of ``simpler.WorkerLevel``.
_NODE_WORDS = ("node", "network1", "network2", "network3")
_CHIP_WORD = "chip"
_CORE_WORD = "core"

#: The spans that the columns of the rounds table are made of, as this runtime calls them. ``run`` and ``host`` are one.
_ROUNDS_TABLE_NAMES = {
    "run": "simpler_run",
    "host": "simpler_run",
    "device": "simpler_run.runner_run.device_wall",
    "orch": "simpler_run.runner_run.device_wall.orch",
    "sched": "simpler_run.runner_run.device_wall.sched",
}

#: What :func:`_round_metrics` gives, in this order.
_ROUNDS_TABLE_COLUMNS = ("Host", "Device", "Effective", "Orch", "Sched")

#: Lines of a log in any of their forms.
Lines = Iterable[str] | Iterable[bytes] | bytes | bytearray | memoryview


class NativeOverlapError(AssertionError):
    """Runs were not pipelined, or cannot be said to have been."""


class NativeOverlap(NamedTuple):
    """Two neighbouring runs, the second of which was bound while the first was on the device."""

    predecessor: NativeRun
    successor: NativeRun


def parse_spans(lines: Lines) -> Iterator[Span]:
    """Give the complete [STRACE] records of ``lines``, in their order.

    Names are decoded, attributes are left as they stand. A line is asked for when its spans are, so a generator that
    waits for a log to grow may be given; only a regular file that Python has opened is read ahead, in large pieces.

    Raises ``TypeError`` for what is no text, and what ``lines`` raises.
    """
    return native.parse_spans(lines)


def parse_clock_anchors(lines: Lines) -> Iterator[ClockAnchor]:
    """Give the clock anchors of ``lines``: whole records of their own, with nothing but blanks behind them."""
    return iter(native.parse_clock_anchors(lines))


def parse_drop_summaries(lines: Lines) -> dict[int, dict[str, int]]:
    """Return by pid what a process lost before it reached the log: ``total``, and the four reasons of it.

    Processes report totals again and again; the largest counts.
    """
    return native.parse_drop_summaries(lines)


def count_record_heads(lines: Lines) -> int:
    """Return how many [STRACE] records begin in ``lines``, complete or not, of whatever version."""
    return native.count_record_heads(lines)


def span_family(name: str) -> str:
    """Return whose span is called so: ``chip``, ``core``, ``node``, ``external`` (``ext.``), or ``unknown``."""
    return native.span_family(name)


def node_span_leaf(name: str) -> str | None:
    """Return the last word of a scheduler span's name, ``None`` for any other span."""
    return native.node_span_leaf(name)


def external_producer(name: str) -> str | None:
    """Return whose span ``ext.<producer>.<span>`` is; ``None`` if the name does not say."""
    return native.external_producer(name)


def invocation_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that belong to an invocation: not those of schedulers and of foreign producers.

    Spans of a family that nobody knows are kept.
    """
    return native.invocation_spans(spans)


#: An older name.
legacy_spans = invocation_spans


def group_invocations(spans: Iterable[Span]) -> list[Invocation]:
    """Return the invocations that ``spans`` belong to, by pid and inv."""
    return native.group_invocations(spans)


def bucket_by_hid(invocations: Iterable[Invocation]) -> dict[str, list[Invocation]]:
    """Return the invocations of each callable, ordered by inv."""
    buckets: dict[str, list[Invocation]] = {}
    for invocation in invocations:
        buckets.setdefault(invocation.hid, []).append(invocation)
    for bucket in buckets.values():
        bucket.sort(key=lambda invocation: invocation.inv)
    return buckets


def to_chrome_trace(
    invocations: Iterable[Invocation],
    buckets: Mapping[str, Sequence[Invocation]] | None = None,
    anchors: Iterable[ClockAnchor] | Mapping[int, ClockAnchor] | None = None,
) -> dict[str, Any]:
    """Return a Chrome trace with a process for each invocation, its host and its device spans on a thread each.

    ``buckets`` are those of the whole log if ``invocations`` are a part of it: which callable is called decode is read
    from them. With ``anchors``, host spans have their wall time; of several of one pid the last counts.
    """
    whole = None if buckets is None else [run for bucket in buckets.values() for run in bucket]
    document: dict[str, Any] = json.loads(native.chrome_trace(invocations, whole, _listed(anchors)))
    return document


def to_host_swimlane(
    spans: Iterable[Span], anchors: Iterable[ClockAnchor] | Mapping[int, ClockAnchor] | None = None
) -> dict[str, Any]:
    """Return a Chrome trace with the host spans on their real processes and threads.

    Arrows lead from a task's submit to its dispatches, and a thread that runs a pipeline has a lane for each slot. Device
    spans have another clock; they are in ``unalignedDeviceSpans``. With ``anchors``, spans have their wall time.
    """
    document: dict[str, Any] = json.loads(native.host_swimlane(spans, _listed(anchors)))
    return document


def _listed(anchors: Iterable[ClockAnchor] | Mapping[int, ClockAnchor] | None) -> list[ClockAnchor]:
    if anchors is None:
        return []
    return list(anchors.values() if isinstance(anchors, Mapping) else anchors)


def load_host_phase_records(paths: Iterable[str | PathLike[str]]) -> list[dict[str, Any]]:
    """Return the passes of ``host_phase_records.jsonl`` files, a JSON object each.

    A line that is no object, or whose ``records`` are no list, is left out: such a file grows while a run is in flight.
    Raises ``OSError`` if a file cannot be read.
    """
    passes = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    one = json.loads(line)
                except ValueError:
                    continue
                if isinstance(one, dict) and isinstance(one.get("records", []), list):
                    passes.append(one)
    return passes


def host_record_spans(
    spans: Iterable[Span], passes: Iterable[Mapping[str, Any]]
) -> tuple[list[Span], int, frozenset[tuple[int, int]]]:
    """Return the phases of ``passes`` as spans below the bind spans of ``spans``.

    Segments of a binding lie directly below it, steps of the orchestration below those. With them come how many passes
    have no bind span of their pid and inv, and of which (pid, inv) the passes tell the segments.
    """
    lines = "\n".join(json.dumps(one) for one in passes)
    return native.host_record_spans(spans, lines.encode())


def _round_metrics(invocation: Invocation) -> tuple[float, float, float, float, float]:
    """Return what a run took in us, as the columns of the rounds table; 0.0 for what the log does not hold."""
    host, device, effective, orch, sched = (value or 0.0 for value in native.round_metrics(invocation))
    return host, device, effective, orch, sched


#: What is printed where there is nothing to compute from.
_NOTHING = "No [STRACE] markers found."


def print_tpot_table(
    buckets: Mapping[str, Sequence[Invocation]],
    label_for_hid: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print each callable with the means of its stages, to standard output or ``stream``.

    ``label_for_hid`` are names for callables.
    """
    labels = list((label_for_hid or {}).items())
    text = native.callable_table(_all(buckets), labels)
    print(text or _NOTHING, end="" if text else "\n", file=stream)


def print_rounds_table(buckets: Mapping[str, Sequence[Invocation]], stream: TextIO | None = None) -> None:
    """Print the busiest callable's runs one by one, to standard output or ``stream``."""
    text = native.rounds_table(_all(buckets))
    print(text or _NOTHING, end="" if text else "\n", file=stream)


def print_tree(buckets: Mapping[str, Sequence[Invocation]], stream: TextIO | None = None) -> None:
    """Print each callable's call tree with the medians over its invocations, to standard output or ``stream``."""
    text = native.call_trees(_all(buckets))
    print(text or _NOTHING, end="" if text else "\n", file=stream)


def _all(buckets: Mapping[str, Sequence[Invocation]]) -> list[Invocation]:
    return [invocation for bucket in buckets.values() for invocation in bucket]


def assert_native_overlap(spans: Iterable[Span], *, require_hidden: bool = False) -> list[NativeOverlap]:
    """Prove that of each two neighbouring runs the second was bound while the first was on the device.

    With ``require_hidden``, and that the whole binding was hidden behind it. A run takes part if its root says who it is.
    Raises :class:`NativeOverlapError` for the first pair that was not pipelined, and if there is no pair.
    """
    pairs, why = native.native_overlap(spans, require_hidden)
    if why is not None:
        raise NativeOverlapError(why)
    return [NativeOverlap(*pair) for pair in pairs]


def expand_log_source(source: str | PathLike[str]) -> list[str]:
    """Return the files that a log argument stands for: a directory for its ``host.*.log``, sorted, anything else for itself.

    Raises ``SystemExit`` if a directory holds none.
    """
    path = fspath(source)
    if not Path(path).is_dir():
        return [path]
    logs = sorted(str(log) for log in Path(path).glob("host.*.log") if log.is_file())
    if not logs:
        raise SystemExit(f"{path} {_NO_LOGS}")
    return logs


_expand_log_source = expand_log_source

#: How the sentence about a directory without logs ends.
_NO_LOGS = "is a directory but holds no host.*.log files"


def main(argv: Sequence[str | PathLike[str]] | None = None) -> int:
    """Run ``simpler timing`` with these arguments, those of the process by default, and return its exit code.

    Prints to ``sys.stdout`` and ``sys.stderr``. Raises ``SystemExit``, with the same code and the sentence as its text, for
    a directory without logs.
    """
    arguments = sys.argv[1:] if argv is None else argv
    code, refusal = native.command_line(["simpler", "timing", *arguments], sys.stdout, sys.stderr)
    if refusal is not None and refusal.endswith(_NO_LOGS):
        leave = SystemExit(refusal)
        leave.code = code
        raise leave
    return code


if __name__ == "__main__":
    from simpler.__main__ import program

    raise SystemExit(program(["simpler", "timing", *sys.argv[1:]]))
