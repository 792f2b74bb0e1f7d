"""Tests in processes of their own, and what they look at.

A worker forks, and the first log directory of a process stays, so a test that starts one gets an interpreter for
itself: :func:`in_own_process` runs the decorated test in a fresh one, with a deadline.
"""

import functools
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

#: Seconds. Longer than anything in these tests takes on a loaded machine.
LIMIT = 120.0

_TESTS = pathlib.Path(__file__).parent
#: The checkout, whose kernels and examples the tests use, whichever package they look at.
ROOT = _TESTS.parents[1]


def environment(**variables: str) -> dict[str, str]:
    """The environment of a process that shall find the same package as this one."""
    paths = [str(_TESTS)]
    if os.environ.get("SIMPLER_TEST_INSTALLED") != "1":
        paths.insert(0, str(_TESTS.parent))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}


Test = TypeVar("Test", bound=Callable[..., None])


def in_own_process(test: Test) -> Test:
    """Runs a test in an interpreter of its own."""
    return in_process_with()(test)


def in_process_with(*options: str, **variables: str) -> Callable[[Test], Test]:
    """Runs a test in an interpreter of its own, with these options and environment variables."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**arguments: Any) -> None:
            call = (test.__code__.co_filename, test.__name__, json.dumps(arguments, default=str))
            program = f"import processes; processes._call(*{call!r})"
            result = python("-X", "faulthandler", *options, "-c", program, **variables)
            if result.returncode != 0:
                raise AssertionError(f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}")

        return cast("Test", run)

    return decorate


def _call(file: str, name: str, arguments: str) -> None:
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Functions of the test are pickled by the name of their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    values = json.loads(arguments)
    if "tmp_path" in values:
        values["tmp_path"] = pathlib.Path(values["tmp_path"])
    getattr(module, name).__wrapped__(**values)


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
    )


def until(what: str, is_so: Callable[[], object]) -> None:
    """Waits until something that has a name is so."""
    deadline = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen within {LIMIT} s"
        os.sched_yield()


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; a zombie has."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Span(NamedTuple):
    """A span of a log."""

    name: str
    pid: int
    inv: int
    hid: str


_SPAN = re.compile(r"\[STRACE\] v=1 pid=(\d+) tid=\d+ inv=(\d+) hid=([0-9a-f]+) depth=\d+ name=(\S+) ts=-?\d+ dur=\d+")


def spans(directory: pathlib.Path) -> list[Span]:
    """The spans of all logs in a directory, by a reader that knows nothing of simpler's."""

    def found() -> Iterator[Span]:
        for file in sorted(directory.glob("host.*.log")):
            for pid, inv, hid, name in _SPAN.findall(file.read_text()):
                yield Span(name, int(pid), int(inv), hid)

    return list(found())


def log_of(directory: pathlib.Path, pid: int) -> str:
    """The log of a process."""
    return (directory / f"host.{pid}.log").read_text()
