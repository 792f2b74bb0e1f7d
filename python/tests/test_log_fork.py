"""The host log over forks, and at a process's end."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from child_python import LIMIT_S, logs, only_log, own, popen, run

BEGIN = """
import atexit, logging, multiprocessing, os, signal, sys, threading, time
from simpler import _log
from simpler._extension import native
native._set_host_log_directory(sys.argv[1])
logger = _log.get_logger()
logger.propagate = False

def leave_well(pid, expect=0):
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            sys.exit("the child hangs")
        time.sleep(0.001)
    assert os.waitstatus_to_exitcode(status) == expect, status
"""


def bodies(directory: Path) -> dict[int, list[str]]:
    return {pid: [record.body for record in own(records)] for pid, records in logs(directory).items()}


class TestFork:
    def test_a_child_of_a_quiesced_process_writes_its_own_file_with_its_own_anchor(self, tmp_path: Path) -> None:
        parent = int(
            run(
                BEGIN
                + """
_log.seed()
logger.warning("parent, before")
native._prepare_host_log_to_fork()
logger.warning("parent, written at once")
if (pid := os.fork()) == 0:
    logger.warning("child, written at once")
    native._start_host_log_writer()
    logger.warning("child, queued")
    os._exit(0)
native._start_host_log_writer()
logger.warning("parent, after")
leave_well(pid)
print(os.getpid())
assert native._host_log_dropped_records() == 0
""",
                tmp_path,
            ).stdout
        )
        found = logs(tmp_path)
        assert len(found) == 2
        for pid, records in found.items():
            assert f"pid={pid} " in records[0].body and f"pid={pid} " in records[1].body
            assert sum(record.func == "clock_anchor" for record in records) == 1
        told = bodies(tmp_path)
        assert told.pop(parent) == ["parent, before", "parent, written at once", "parent, after"]
        assert list(told.values()) == [["child, written at once", "child, queued"]]

    def test_a_child_may_seed_again(self, tmp_path: Path) -> None:
        run(
            BEGIN
            + """
_log.seed(defer_writer=True)
if (pid := os.fork()) == 0:
    logger.setLevel(logging.DEBUG)
    _log.seed()
    logger.debug("child")
    assert len(logger.handlers) == 1
    sys.exit(0)
logger.debug("muted in the parent")
leave_well(pid)
""",
            tmp_path,
        )
        assert list(bodies(tmp_path).values()) == [["child"]]

    def test_a_child_of_an_unquiesced_process_counts_until_it_has_its_own_writer(self, tmp_path: Path) -> None:
        run(
            BEGIN
            + """
_log.seed()
logger.warning("parent")
native._flush_host_log()
if (pid := os.fork()) == 0:
    logger.warning("refused")
    reasons = native._host_log_dropped_records_by_reason()
    assert reasons["not_admitted"] == native._host_log_dropped_records() == 1, reasons
    native._start_host_log_writer()
    logger.warning("child")
    os._exit(0)
leave_well(pid)
assert native._host_log_dropped_records() == 0
""",
            tmp_path,
        )
        told = sorted(bodies(tmp_path).values(), key=len)
        assert told[0] == ["parent"]
        # The loss is told in the log itself.
        assert told[1][0] == "child" and "not_admitted=1" in told[1][1]

    def test_forks_in_the_middle_of_logging_and_installing_hang_no_child(self, tmp_path: Path) -> None:
        run(
            BEGIN
            + """
_log.seed(defer_writer=True)
sys.setswitchinterval(1e-5)
over = False
def log():
    while not over:
        logger.warning("parent")
def install():
    while not over:
        _log.attach_unified_log_handler(lambda *_: None, lambda: "")
        _log._drain_before_os_exit(lambda _: None)
threads = [threading.Thread(target=target) for target in (log, install, install)]
for thread in threads:
    thread.start()
for _ in range(100):
    if (pid := os.fork()) == 0:
        signal.alarm(50)
        _log.attach_unified_log_handler(lambda *_: None, lambda: "")
        logger.warning("child")
        os._exit(0)
    leave_well(pid)
over = True
for thread in threads:
    thread.join()
""",
            tmp_path,
        )
        found = logs(tmp_path)
        assert len(found) == 101
        assert sum(any(record.body == "child" for record in records) for records in found.values()) == 100

    def test_children_of_multiprocessing_drain(self, tmp_path: Path) -> None:
        run(
            BEGIN
            + """
_log.seed(defer_writer=True)
def work():
    native._start_host_log_writer()
    for index in range(1000):
        logger.warning("record %d", index)
children = [multiprocessing.get_context("fork").Process(target=work) for _ in range(4)]
for child in children:
    child.start()
for child in children:
    child.join(60)
    assert child.exitcode == 0
""",
            tmp_path,
        )
        told = bodies(tmp_path)
        assert len(told) == 4
        assert all(records == [f"record {index}" for index in range(1000)] for records in told.values())


class TestEnd:
    MANY = """
_log.seed()
for index in range(1000):
    logger.warning("record %d", index)
"""

    @pytest.mark.parametrize(
        ("end", "code"),
        [
            ("pass", 0),
            ("sys.exit(3)", 3),
            ("raise RuntimeError", 1),
            ("os._exit(5)", 5),
            ("os._exit(status=6)", 6),
            ("from os import _exit; _exit(7)", 7),
            ("atexit.register(os._exit, 8)", 8),
            ("threading.Thread(target=os._exit, args=(9,)).start()", 9),
        ],
    )
    def test_a_process_drains(self, tmp_path: Path, end: str, code: int) -> None:
        run(BEGIN + self.MANY + end, tmp_path, expect=code)
        assert [record.body for record in only_log(tmp_path)] == [f"record {index}" for index in range(1000)]

    def test_what_is_logged_while_the_interpreter_ends_is_there(self, tmp_path: Path) -> None:
        run(BEGIN + '_log.seed()\natexit.register(logger.warning, "at exit")\nlogger.warning("before")', tmp_path)
        assert [record.body for record in only_log(tmp_path)] == ["before", "at exit"]

    def test_only_who_has_seeded_leaves_another_way_and_wraps_it_once(self, tmp_path: Path) -> None:
        run(
            BEGIN
            + """
leave = os._exit
assert not hasattr(leave, "__wrapped__")
_log.seed(defer_writer=True)
wrapped = os._exit
assert wrapped is not leave and wrapped.__wrapped__ is leave and wrapped.__name__ == "_exit"
_log.seed()
assert os._exit is wrapped
try:
    os._exit("no status")
except TypeError:
    logger.warning("the process goes on")
""",
            tmp_path,
        )
        # What follows a close is written, and the log says that a crash would lose it.
        assert only_log(tmp_path)[-1].body == "the process goes on"

    @pytest.mark.parametrize("end", ["pass", "os._exit(0)"])
    def test_a_destination_that_does_not_move_holds_the_end_up_for_a_second(self, end: str, tmp_path: Path) -> None:
        script = """
import os, sys
from simpler._extension import native
native._initialize_host_log(25)
while native._host_log_pending_records() < 1000:
    native._emit_host_log(30, "child", "x" * 200)
"""
        with popen(script + end, stderr=subprocess.PIPE) as child:
            # Nobody reads its stderr until it has ended.
            assert child.wait(LIMIT_S) == 0

    def test_a_killed_process_leaves_what_it_had_written_whole(self, tmp_path: Path) -> None:
        with popen(
            BEGIN + '_log.seed()\nlogger.warning("text")\nnative._flush_host_log()\nos.kill(os.getpid(), 9)', tmp_path
        ) as child:
            assert child.wait(LIMIT_S) == -signal.SIGKILL
        assert [record.body for record in only_log(tmp_path)] == ["text"]
