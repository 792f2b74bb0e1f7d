"""What reading a log costs from Python: ``parse_spans`` beside a loop over a regular expression, and ``read_log``.

    python reading.py LOG

Prints one JSON object. CPU seconds are those of this process, all its threads; medians of several runs in turns.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow
import simpler
from simpler_setup.tools.strace_timing import parse_spans

RUNS = 5

_RECORD = re.compile(
    r"\[STRACE\]\s+v=(\d+)\s+pid=(\d+)\s+tid=(\d+)\s+inv=(\d+)\s+hid=([0-9a-fA-F]+)\s+depth=(\d+)\s+name=(\S+)\s+"
    r"ts=(\d+)\s+dur=(\d+)(.*?)\s*(?=\[mono_ns=|\[STRACE\]|$)"
)


def with_a_regular_expression(lines: list[str]) -> int:
    """Parse as a script of twenty lines would."""
    spans = []
    for line in lines:
        for found in _RECORD.finditer(line):
            v, pid, tid, inv, hid, depth, name, ts, dur, attrs = found.groups()
            spans.append((int(v), int(pid), int(tid), int(inv), hid, int(depth), name, int(ts), int(dur), attrs))
    return len(spans)


def cost(work: Callable[[], int]) -> tuple[float, int]:
    """CPU seconds of one run, and what it found."""
    before = time.process_time()
    found = work()
    return time.process_time() - before, found


def main() -> None:
    """Measure and print."""
    path = Path(sys.argv[1])
    megabytes = path.stat().st_size / 1e6
    lines = path.read_text().splitlines(keepends=True)
    arms: dict[str, Callable[[], int]] = {
        "regular_expression": lambda: with_a_regular_expression(lines),
        "parse_spans": lambda: len(list(parse_spans(lines))),
        "read_log": lambda: int(pyarrow.table(simpler.read_log(path)).num_rows),
    }
    costs: dict[str, list[float]] = {name: [] for name in arms}
    found = set()
    for _ in range(RUNS):
        for name, work in arms.items():
            seconds, spans = cost(work)
            costs[name].append(seconds)
            found.add(spans)
    assert len(found) == 1, f"the arms have found different numbers of spans: {found}"
    median = {name: statistics.median(seconds) for name, seconds in costs.items()}
    print(
        json.dumps(
            {
                "megabytes": megabytes,
                "spans": found.pop(),
                "cpu_s": median,
                "parse_spans_vs_regular_expression": median["regular_expression"] / median["parse_spans"],
                "read_log_mb_per_cpu_s": megabytes / median["read_log"],
            }
        )
    )


if __name__ == "__main__":
    main()
