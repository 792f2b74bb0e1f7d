"""Processes of their own for tests of what is global to a process: the host log, its directory, fork."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import simpler

#: For everything that a test waits for: far longer than it takes, so that only what hangs comes to it.
LIMIT_S = 60.0

_RECORD = re.compile(r"\[mono_ns=(\d+)\]\[T0x([0-9a-f]+)\]\[(\w+)\] ([^:]*): (.*)")


def environment() -> dict[str, str]:
    """Return this process's environment, in which a child finds the same package."""
    package = Path(simpler.__file__).parent.parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}


def popen(script: str, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """Start a Python process that runs ``script``; its ``sys.argv[1:]`` are the arguments."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), **options)  # type: ignore[call-overload, no-any-return]


def run(script: str, *arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``script`` to its end; it ends with the exit code ``expect``."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, errors="replace", timeout=LIMIT_S
    )
    assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Record:
    """A record as it stands in a log."""

    mono_ns: int
    thread: int
    level: str
    func: str
    body: str

    @property
    def span(self) -> dict[str, str]:
        """The fields of a span, its attributes as ``attrs``."""
        head = r"\[STRACE\] v=1 pid=(?P<pid>\d+) tid=(?P<tid>\d+) inv=(?P<inv>\d+) hid=(?P<hid>[0-9a-f]+) "
        found = re.fullmatch(
            head + r"depth=(?P<depth>\d+) name=(?P<name>\S+) ts=(?P<ts>\d+) dur=(?P<dur>\d+) (?P<attrs>.*)", self.body
        )
        assert found, self.body
        return found.groupdict()


def parse(text: str) -> Iterator[Record]:
    """Parse a log all of whose lines are records."""
    *lines, rest = text.split("\n")
    assert not rest, f"no whole line: {rest!r}"
    for line in lines:
        found = _RECORD.fullmatch(line)
        assert found, f"no record: {line!r}"
        mono_ns, thread, level, func, body = found.groups()
        yield Record(int(mono_ns), int(thread, 16), level, func, body)


def logs(directory: Path) -> dict[int, list[Record]]:
    """Return the records of each process that has logged to ``directory``, by its id."""
    return {
        int(path.name.split(".")[1]): list(parse(path.read_text(encoding="utf-8", errors="replace")))
        for path in directory.glob("host.*.log")
    }


def only_log(directory: Path) -> list[Record]:
    """Return what the one process that has logged to ``directory`` has logged of its own accord."""
    (records,) = logs(directory).values()
    return own(records)


def own(records: list[Record]) -> list[Record]:
    """Return the records of a process without what the log says by itself: the anchor and the host in front, and, at a
    quiesce, how exact the clock is.
    """
    assert [record.func for record in records[:2]] == ["clock_anchor", "host.identity"], records[:3]
    return [record for record in records[2:] if record.func != "host_log_clock"]


def spans(records: list[Record]) -> list[dict[str, str]]:
    """Return the spans among ``records``."""
    return [record.span for record in records if record.func == "emit_host_span"]
