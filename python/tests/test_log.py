"""The logger ``simpler`` and the host log behind it."""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_python import LIMIT_S, only_log, own, parse, run

from simpler import _log
from simpler._log import (
    NUL,
    TIMING,
    _ladder_level,
    _normalize_threshold,
    _UnifiedLogHandler,
    attach_unified_log_handler,
    get_logger,
)
from simpler_setup.log_config import (
    DEFAULT_LOG_LEVEL,
    LOG_LEVEL_CHOICES,
    add_log_level_argument,
    configure_logging,
    parse_level,
)

#: What children begin with: a host log in the directory that is their first argument.
TO_DIRECTORY = """
import logging, os, sys
from simpler import _log
from simpler._extension import native
native._set_host_log_directory(sys.argv[1])
logger = _log.get_logger()
"""

Emitted = list[tuple[int, str, str]]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger at its default level and without our handler, and as it was afterwards."""
    logger = get_logger()
    handlers, level = list(logger.handlers), logger.level
    logger.handlers = [handler for handler in handlers if not isinstance(handler, _UnifiedLogHandler)]
    logger.setLevel(TIMING)
    yield logger
    logger.handlers = handlers
    logger.setLevel(level)


@pytest.fixture
def emitted(logger: logging.Logger) -> Emitted:
    """What the logger forwards to a host log with a directory."""
    records: Emitted = []
    assert attach_unified_log_handler(lambda *record: records.append(record), lambda: "/bound")
    return records


def attached(logger: logging.Logger) -> list[_UnifiedLogHandler]:
    return [handler for handler in logger.handlers if isinstance(handler, _UnifiedLogHandler)]


class TestLevels:
    def test_names_are_registered_and_the_default_is_timing(self) -> None:
        assert (TIMING, NUL) == (25, 60)
        printed = run("""
            import simpler, logging
            print(logging.getLevelName(25), logging.getLevelName(60), logging.getLogger("simpler").level)
        """).stdout
        assert printed.split() == ["TIMING", "NUL", "25"]

    def test_a_level_that_was_set_before_the_import_stays(self) -> None:
        printed = run("""
            import logging
            logging.getLogger("simpler").setLevel(10)
            import simpler
            print(logging.getLogger("simpler").level)
        """).stdout
        assert printed.split() == ["10"]

    @pytest.mark.parametrize(
        ("wish", "threshold"),
        [(10, 10), (11, 20), (20, 20), (21, 25), (25, 25), (26, 30), (30, 30), (31, 40), (40, 40), (41, 60), (60, 60)]
        + [(-5, 10), (0, 10), (50, 60), (61, 60), (10**30, 60)],
    )
    def test_a_threshold_is_rounded_up(self, wish: int, threshold: int) -> None:
        assert _normalize_threshold(wish) == threshold

    @pytest.mark.parametrize(
        ("number", "level"),
        [(5, 10), (10, 10), (19, 10), (20, 20), (24, 20), (25, 25), (29, 25), (30, 30), (35, 30), (39, 30)]
        + [(40, 40), (50, 40), (60, 40), (10**30, 40)],
    )
    def test_a_record_is_rounded_down(self, number: int, level: int, logger: logging.Logger, emitted: Emitted) -> None:
        assert _ladder_level(number) == level
        logger.setLevel(1)
        logger.log(number, "text")
        assert [record[0] for record in emitted] == [level]


class TestHandler:
    def test_a_record_is_forwarded_formatted_with_its_function(self, logger: logging.Logger, emitted: Emitted) -> None:
        logger.warning("wire-%s", "check")
        assert emitted == [(30, "test_a_record_is_forwarded_formatted_with_its_function", "wire-check")]

    def test_a_record_of_a_logger_below_is_forwarded(self, logger: logging.Logger, emitted: Emitted) -> None:
        logger.getChild("worker").error("lost")
        assert [(level, text) for level, _, text in emitted] == [(40, "lost")]

    def test_a_record_without_a_function_is_pythons(self, logger: logging.Logger, emitted: Emitted) -> None:
        logger.handle(logging.makeLogRecord({"msg": "made by hand", "levelno": 30, "name": logger.name}))
        assert emitted == [(30, "python", "made by hand")]

    def test_a_traceback_is_forwarded_line_by_line(self, logger: logging.Logger, emitted: Emitted) -> None:
        try:
            raise ValueError("the reason")
        except ValueError:
            logger.exception("it failed")
        lines = [text for _, _, text in emitted]
        assert lines[:2] == ["it failed", "Traceback (most recent call last):"]
        assert lines[-1] == "ValueError: the reason"
        assert not any("\n" in line for line in lines)

    def test_a_formatter_is_used(self, logger: logging.Logger, emitted: Emitted) -> None:
        attached(logger)[0].setFormatter(logging.Formatter("<%(message)s>"))
        logger.warning("text")
        assert [text for _, _, text in emitted] == ["<text>"]

    def test_filters_of_the_handler_hold(self, logger: logging.Logger, emitted: Emitted) -> None:
        attached(logger)[0].addFilter(lambda record: "keep" in record.getMessage())
        logger.warning("keep this")
        logger.warning("drop this")
        assert [text for _, _, text in emitted] == ["keep this"]

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="skipped: before 3.12 a filter replaces no record")
    def test_a_filter_may_replace_the_record(self, logger: logging.Logger, emitted: Emitted) -> None:
        other = logging.makeLogRecord({"msg": "instead", "levelno": 40, "funcName": "elsewhere"})
        attached(logger)[0].addFilter(lambda record: other)  # type: ignore[arg-type, return-value]
        logger.warning("secret")
        assert emitted == [(40, "elsewhere", "instead")]

    def test_whether_there_is_a_directory_is_asked_for_each_record(self, logger: logging.Logger) -> None:
        records: Emitted = []
        directory = [""]
        attach_unified_log_handler(lambda *record: records.append(record), lambda: directory[0])
        logger.warning("console only")
        assert records == []
        directory[0] = "/bound"
        logger.warning("both")
        assert [text for _, _, text in records] == ["both"]

    def test_it_is_installed_once(self, logger: logging.Logger) -> None:
        assert attach_unified_log_handler(lambda *_: None, lambda: "") is True
        assert attach_unified_log_handler(lambda *_: None, lambda: "") is False
        assert len(attached(logger)) == 1

    def test_eight_that_install_it_at_once_install_one(self, logger: logging.Logger) -> None:
        at_once = threading.Barrier(8)
        installed: list[bool] = []

        def install() -> None:
            at_once.wait(LIMIT_S)
            installed.append(attach_unified_log_handler(lambda *_: None, lambda: ""))

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(50):
                installed.clear()
                logger.handlers = []
                threads = [threading.Thread(target=install) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(LIMIT_S)
                assert sorted(installed) == [False] * 7 + [True]
                assert len(attached(logger)) == 1
        finally:
            sys.setswitchinterval(interval)

    def test_propagation_is_left_alone(
        self, logger: logging.Logger, emitted: Emitted, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, logger="simpler"):
            logger.warning("seen by both")
        assert "seen by both" in caplog.text
        assert [text for _, _, text in emitted] == ["seen by both"]
        assert logger.propagate is True

    def test_a_sink_that_fails_does_not_raise(
        self, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("the sink is down")

        attach_unified_log_handler(fail, lambda: "/bound")
        handled: list[tuple[str, str]] = []
        monkeypatch.setattr(
            attached(logger)[0], "handleError", lambda record: handled.append((record.msg, str(sys.exc_info()[1])))
        )
        logger.warning("still returns")
        assert handled == [("still returns", "the sink is down")]
        assert "still returns" in caplog.text

    def test_a_message_that_cannot_be_formatted_does_not_raise(
        self, logger: logging.Logger, emitted: Emitted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging, "raiseExceptions", False)
        # The root logger has handlers of pytest's, which would raise.
        monkeypatch.setattr(logger, "propagate", False)
        logger.warning("%d pages", "no number")
        logger.warning("next")
        assert [text for _, _, text in emitted] == ["next"]

    def test_importing_installs_none_and_seeding_does(self, tmp_path: Path) -> None:
        for seed in ("_log.seed()", "native._initialize_host_log(25)"):
            printed = run(f"""
                import simpler, logging
                from simpler import _log
                has = lambda: any(isinstance(h, _log._UnifiedLogHandler) for h in logging.getLogger("simpler").handlers)
                print(has())
                from simpler._extension import native
                print(has())
                {seed}
                {seed}
                print(has(), len(logging.getLogger("simpler").handlers))
            """).stdout
            assert printed.split() == ["False", "False", "True", "1"]


class TestHostLog:
    def test_a_forwarded_record_has_the_envelope_of_every_other(self, tmp_path: Path) -> None:
        printed = run(
            TO_DIRECTORY
            + """
import threading, time
_log.seed()
def step():
    print(time.monotonic_ns())
    logger.error("%d pages are left", 3)
    print(time.monotonic_ns(), threading.get_ident())
thread = threading.Thread(target=step)
thread.start(); thread.join()
""",
            tmp_path,
        ).stdout
        before, after, thread = map(int, printed.split())
        (record,) = only_log(tmp_path)
        assert (record.level, record.func, record.body) == ("ERROR", "step", "3 pages are left")
        assert before <= record.mono_ns <= after
        assert record.thread == thread

    def test_a_new_level_reaches_the_host_log_when_it_is_seeded_again(self, tmp_path: Path) -> None:
        run(
            TO_DIRECTORY
            + """
_log.seed()
native._emit_host_log(10, "native", "muted by the default")
logger.setLevel(logging.DEBUG)
logger.debug("muted: the level alone does not reach the host log")
native._emit_host_log(10, "native", "muted as well")
_log.seed()
logger.debug("let through")
logger.setLevel(35)
_log.seed()
native._emit_host_log(30, "native", "a warning is muted by 35")
native._emit_host_log(40, "native", "an error is not")
logger.setLevel(_log.NUL)
_log.seed()
native._emit_host_log(40, "native", "everything is muted by NUL")
""",
            tmp_path,
        )
        assert [record.body for record in only_log(tmp_path)] == ["let through", "an error is not"]

    def test_a_level_that_is_not_set_is_that_of_the_root_logger(self) -> None:
        printed = run("""
            import logging
            from simpler import _log
            logging.getLogger().setLevel(12)
            _log.get_logger().setLevel(logging.NOTSET)
            print(_log.current_threshold())
        """).stdout
        assert printed.split() == ["20"]

    def test_a_console_shows_a_record_once(self, tmp_path: Path) -> None:
        done = run(
            """
            import logging, sys
            from simpler import _log
            from simpler._extension import native
            logging.basicConfig(format="[%(levelname)s] %(message)s")
            logger = _log.get_logger()
            logger.warning("before the seed")
            _log.seed()
            logger.warning("without a directory")
            native._flush_host_log()
            native._set_host_log_directory(sys.argv[1])
            logger.warning("with a directory")
            """,
            tmp_path,
        )
        console = [line for line in done.stderr.splitlines() if line.startswith("[WARN")]
        assert console == [
            "[WARNING] before the seed",
            "[WARNING] without a directory",
            "[WARNING] with a directory",
        ]
        assert "without a directory" not in done.stderr.replace("[WARNING] without a directory", "")
        (record,) = only_log(tmp_path)
        assert record.body == "with a directory"

    def test_no_message_raises_and_each_is_one_whole_line(self, tmp_path: Path) -> None:
        run(
            TO_DIRECTORY
            + r"""
logging.raiseExceptions = True
logger.propagate = False
failed = []
_log.seed()
logger.handlers[0].handleError = failed.append
for text in ["", "ä€😀", "two\nlines\r\n", "a\0b", "lone \ud800 and \udcff", "\x1b[31mred\x7f", "x" * 10_000_000,
             "€" * 1_000_000, "\ud800" * 1_000_000, "%s %d"]:
    logger.warning("<%s>", text)
logger.warning("percent %d %")
logger.warning("\udcff" * 300)
assert not failed, failed
for awkward in ["", "f\n\0\ud800", "€" * 100_000]:
    native._emit_host_span(awkward, 1, 2, 3, 4, 5, awkward)
    native._emit_host_log(30, awkward[:100], awkward)
native._emit_host_log(30, "an endless one" * 100_000, "text")
""",
            tmp_path,
        )
        (path,) = tmp_path.glob("host.*.log")
        raw = path.read_bytes()
        *lines, endless = [line for line in raw.splitlines(keepends=True) if b"HOSTLOG_CLOCK" not in line]
        assert len(endless) == 512 and endless.endswith(b"~\n") and b"[WARN] an endless onean" in endless
        assert all(line.startswith(b"[mono_ns=") and line.endswith(b"\n") and len(line) <= 512 for line in lines)
        records = own(list(parse(b"".join(lines).decode("utf-8", "replace"))))
        bodies = [record.body for record in records if record.func == "<module>"]
        assert bodies[:2] == ["<>", "<ä€😀>"]
        assert bodies[2].startswith("<two\\nlines")
        assert bodies[4] == "<lone \\ud800 and \\udcff>"
        # Three endless messages, three hundred escapes, and an endless message of an awkward function.
        cut = [line for line in lines if line.endswith(b"~\n") and b"STRACE" not in line]
        assert len(cut) == 5 and all(len(line) == 512 for line in cut)
        # One without a name is not emitted.
        assert sum(b"[STRACE]" in line for line in lines) == 2

    def test_numbers_have_their_whole_range(self, tmp_path: Path) -> None:
        run(
            TO_DIRECTORY
            + """
_log.seed()
native._emit_host_span("ext.t.most", 2**64 - 1, 2**64 - 1, 2**31 - 1, 2**63 - 1, 2**63 - 1)
native._emit_host_span("ext.t.least", 0, 0, 0, 0, 0, None)
native._emit_host_span("ext.t.named", invocation_id=2**32 + 7, callable_hash=0xABC, depth=1, timestamp_ns=5,
                       duration_ns=6, attributes="a=1 b=2")
for arguments in [(2**64, 0, 0, 0, 0), (-1, 0, 0, 0, 0), (0, 2**64, 0, 0, 0), (0, 0, 2**31, 0, 0), (0, 0, 0, 2**63, 0)]:
    try:
        native._emit_host_span("ext.t.beyond", *arguments)
    except OverflowError:
        continue
    sys.exit(f"no error for {arguments}")
for level in [-(10**12), 9, 26, 10**12]:
    native._emit_host_log(level, "f", str(level))
""",
            tmp_path,
        )
        records = only_log(tmp_path)
        most, least, named = [record.span for record in records if record.func == "emit_host_span"]
        assert (most["inv"], most["hid"], most["depth"]) == (str(2**64 - 1), "f" * 16, str(2**31 - 1))
        assert (most["ts"], most["dur"], most["attrs"]) == (str(2**63 - 1), str(2**63 - 1), "")
        assert (least["inv"], least["hid"], least["name"]) == ("0", "0", "ext.t.least")
        assert (named["inv"], named["hid"], named["attrs"]) == (str(2**32 + 7), "abc", "a=1 b=2")
        assert [(record.level, record.body) for record in records if record.func == "f"] == [
            ("TIMING", "26"),
            ("ERROR", str(10**12)),
        ]

    def test_a_threshold_off_the_ladder_is_refused(self) -> None:
        printed = run("""
            from simpler._extension import native
            for level in (0, -1, 11, 26, 50, 61, 2**40):
                try:
                    native._initialize_host_log(level)
                except ValueError as error:
                    print(error)
        """).stdout.splitlines()
        assert len(printed) == 7
        assert printed[3] == "a threshold of the host log is 10, 20, 25, 30, 40 or 60, not 26"

    def test_the_functions_have_the_names_and_parameters_of_the_specification(self) -> None:
        from simpler._extension import native

        signatures = {
            name: str(inspect.signature(getattr(native, name)))
            for name in dir(native)
            if "host_log" in name or name in ("_emit_host_span", "_monotonic_now_ns")
        }
        assert signatures == {
            "_initialize_host_log": "(level, defer_writer=False)",
            "_start_host_log_writer": "()",
            "_flush_host_log": "(ms=1000)",
            "_prepare_host_log_to_fork": "(ms=1000)",
            "_close_host_log": "(ms=1000)",
            "_host_log_dropped_records": "()",
            "_host_log_dropped_records_by_reason": "()",
            "_host_log_pending_records": "()",
            "_host_log_directory": "()",
            "_set_host_log_directory": "(directory)",
            "_emit_host_log": "(level, func, msg)",
            "_emit_host_span": "(name, invocation_id, callable_hash, depth, timestamp_ns, duration_ns, attributes='')",
            "_monotonic_now_ns": "()",
        }

    def test_a_record_of_a_deferred_writer_is_written_at_once(self, tmp_path: Path) -> None:
        printed = run(
            TO_DIRECTORY
            + """
from pathlib import Path
log = Path(sys.argv[1]) / f"host.{os.getpid()}.log"
_log.seed(defer_writer=True)
logger.warning("at once")
assert log.read_text().endswith(" at once\\n")
assert native._host_log_pending_records() == 0
native._start_host_log_writer()
native._start_host_log_writer()
logger.warning("queued")
assert native._flush_host_log()
assert log.read_text().endswith(" queued\\n")
print(native._host_log_dropped_records())
""",
            tmp_path,
        ).stdout
        assert printed.split() == ["0"]
        assert [record.body for record in only_log(tmp_path)] == ["at once", "queued"]

    def test_what_cannot_be_written_is_counted_by_reason(self, tmp_path: Path) -> None:
        run(
            TO_DIRECTORY
            + """
import shutil
_log.seed(defer_writer=True)
shutil.rmtree(sys.argv[1])
logger.warning("lost")
reasons = native._host_log_dropped_records_by_reason()
assert list(reasons) == ["queue_full", "claim_exhausted", "output_failed", "not_admitted"], reasons
# The anchor and the host were tried as well.
assert reasons["output_failed"] == native._host_log_dropped_records() == sum(reasons.values()) > 0, reasons
os.mkdir(sys.argv[1])
native._prepare_host_log_to_fork()
""",
            tmp_path / "log",
        )
        (path,) = (tmp_path / "log").glob("host.*.log")
        (drops,) = [record for record in parse(path.read_text()) if record.func == "host_log_drops"]
        assert drops.level == "ERROR" and "output_failed=" in drops.body


class TestDirectory:
    def test_the_first_one_wins_and_is_made(self, tmp_path: Path) -> None:
        run(
            """
            import os, sys
            from pathlib import Path
            from simpler._extension import native
            first = Path(sys.argv[1]) / "a" / "ä \\udcff"
            assert native._host_log_directory() == ""
            assert native._set_host_log_directory("") is False
            assert native._set_host_log_directory(None) is False
            assert native._host_log_directory() == ""
            assert native._set_host_log_directory(first) is True
            assert native._host_log_directory() == str(first), native._host_log_directory()
            assert native._set_host_log_directory(sys.argv[1]) is False
            assert native._host_log_directory() == str(first)
            assert first.is_dir()
            """,
            tmp_path,
        )

    def test_one_that_cannot_be_used_is_an_exception_with_the_native_text(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        printed = run(
            """
            import errno, sys
            from simpler._extension import native
            try:
                native._set_host_log_directory(sys.argv[1] + "/file/below")
            except NotADirectoryError as error:
                print(error)
            for directory in ("/" + "x" * 2000, "/a\\0b"):
                try:
                    native._set_host_log_directory(directory)
                except ValueError as error:
                    print(error)
            assert native._host_log_directory() == ""
            assert native._set_host_log_directory(sys.argv[1]) is True
            """,
            tmp_path,
        ).stdout.splitlines()
        assert len(printed) == 3
        assert "the log directory cannot be used" in printed[0]
        assert "1023 bytes" in printed[1]

    def test_a_relative_one_is_absolute(self, tmp_path: Path) -> None:
        run(
            """
            import os, sys
            from simpler._extension import native
            os.chdir(sys.argv[1])
            native._set_host_log_directory("below")
            assert native._host_log_directory() == os.path.join(os.getcwd(), "below")
            """,
            tmp_path,
        )


#: A child whose stderr is a pipe that nobody empties, with so many records that the writer hangs in it.
STALLED = """
import fcntl, os, signal, sys, threading, time
from simpler._extension import native
reader, writer = os.pipe()
fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
os.dup2(writer, 2)
native._initialize_host_log(25)
while native._host_log_pending_records() < 200:
    native._emit_host_log(30, "child", "x" * 200)
def empty():
    while os.read(reader, 65536):
        pass
def report(failure):
    print(failure, flush=True)
    os.close(reader)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class TestDraining:
    def test_a_flush_that_is_not_done_in_time_says_so_and_goes_on_later(self) -> None:
        run(
            STALLED
            + """
before = time.monotonic()
if native._flush_host_log(100):
    report("a stalled pipe was drained")
if not 0.05 < time.monotonic() - before < 30:
    report("the limit was not kept")
if native._flush_host_log(-5) or native._flush_host_log(ms=0):
    report("no time was enough")
threading.Thread(target=empty, daemon=True).start()
if not native._flush_host_log(30_000) or native._host_log_pending_records():
    report("not drained")
if native._host_log_dropped_records():
    report("lost")
"""
        )

    @pytest.mark.parametrize(
        "drain",
        [
            "native._flush_host_log(60_000)",
            "native._prepare_host_log_to_fork(60_000)",
            "native._close_host_log(60_000)",
        ],
    )
    def test_other_threads_run_while_one_drains(self, drain: str) -> None:
        # The thread that empties the pipe is Python's, so a drain that kept the GIL would wait in vain.
        run(
            STALLED
            + f"""
steps = 0
def work():
    global steps
    deadline = time.monotonic() + 30
    while steps < 1000 and time.monotonic() < deadline:
        steps += 1
        time.sleep(0)
    empty()
threading.Thread(target=work, daemon=True).start()
{drain}
if native._host_log_pending_records():
    report("not drained")
if steps < 1000:
    report("drained before the other thread had begun to read")
"""
        )

    def test_other_threads_run_while_a_record_is_written_at_once(self) -> None:
        run(
            """
            import os, sys, threading
            from simpler import trace
            from simpler._extension import native
            reader, writer = os.pipe()
            os.dup2(writer, 2)
            os.close(writer)
            native._initialize_host_log(25, True)
            read = []
            def empty():
                while piece := os.read(reader, 65536):
                    read.append(piece)
            threading.Thread(target=empty, daemon=True).start()
            # Far more than the pipe holds.
            for _ in range(1000):
                native._emit_host_log(30, "child", "x" * 200)
                native._emit_host_span("ext.t.s", 0, 0, 0, 1, 1)
                with trace.span("block"):
                    pass
            assert native._host_log_dropped_records() == 0
            """
        )

    def test_a_flush_can_be_interrupted(self) -> None:
        run(
            STALLED
            + """
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.1)
before = time.monotonic()
try:
    native._flush_host_log(50_000)
    report("not interrupted")
except KeyboardInterrupt:
    pass
if time.monotonic() - before > 30:
    report("interrupted late")
threading.Thread(target=empty, daemon=True).start()
"""
        )

    def test_a_quiesce_that_is_not_done_in_time_raises_and_the_log_goes_on(self) -> None:
        run(
            STALLED
            + """
try:
    native._prepare_host_log_to_fork(50)
    report("a stalled pipe was drained")
except RuntimeError as error:
    if not str(error).startswith("host log not drained in time: ") or " pending, 0 dropped" not in str(error):
        report(error)
threading.Thread(target=empty, daemon=True).start()
native._emit_host_log(30, "child", "afterwards")
if not native._flush_host_log(30_000) or native._host_log_dropped_records():
    report("the log did not go on")
"""
        )


class TestLogConfig:
    def test_the_choices_are_one_axis_and_the_default_is_timing(self) -> None:
        assert LOG_LEVEL_CHOICES == ["debug", "info", "timing", "warn", "error", "null"]
        assert DEFAULT_LOG_LEVEL == "timing"
        assert [parse_level(name) for name in LOG_LEVEL_CHOICES] == [10, 20, 25, 30, 40, 60]
        assert parse_level("TIMING") == 25

    def test_an_unknown_name_is_refused_with_those_that_there_are(self) -> None:
        with pytest.raises(ValueError, match="'v5'; there are debug, info, timing, warn, error, null"):
            parse_level("v5")

    def test_null_mutes_and_timing_hides_info(self, logger: logging.Logger) -> None:
        configure_logging("null")
        assert logger.getEffectiveLevel() >= 60
        assert not logger.isEnabledFor(logging.CRITICAL)
        configure_logging("timing")
        assert logger.isEnabledFor(TIMING) and not logger.isEnabledFor(logging.INFO)
        configure_logging("info")
        configure_logging()
        assert logger.level == TIMING
        assert _log.current_threshold() == TIMING

    def test_an_unknown_name_changes_nothing(self, logger: logging.Logger) -> None:
        with pytest.raises(ValueError, match="loud"):
            configure_logging("loud")
        assert logger.level == TIMING

    def test_command_lines_take_the_names(self, capsys: pytest.CaptureFixture[str]) -> None:
        parser = argparse.ArgumentParser()
        add_log_level_argument(parser)
        assert parser.parse_args([]).log_level == "timing"
        assert parser.parse_args(["--log-level", "Debug"]).log_level == "debug"
        with pytest.raises(SystemExit) as left:
            parser.parse_args(["--log-level", "v3"])
        assert left.value.code == 2
        assert "'v3'" in capsys.readouterr().err

    def test_a_console_is_given_to_who_has_none(self) -> None:
        done = run("""
            from simpler_setup.log_config import configure_logging
            from simpler import get_logger
            configure_logging("info")
            configure_logging("info")
            get_logger().info("shown once")
            get_logger().debug("hidden")
        """)
        assert done.stderr == "[INFO] shown once\n"
