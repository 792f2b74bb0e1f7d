"""``python -m simpler`` and ``strace_timing.main``: one command line, on the process's streams and on any other."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from child_python import LIMIT_S, environment, popen, run

from simpler._extension import native
from simpler_setup.tools import strace_timing

#: Logs that went wrong in all the ways that are known, as the crates' tests have them.
CORPUS = Path(__file__).parents[2] / "crates"


def run_line(inv: int, name: str = "simpler_run", hid: str = "b7e2") -> str:
    ts = 1_000_000 * inv
    return (
        f"[mono_ns={ts + 600}][T0x7f01][TIMING] emit_host_span: [STRACE] v=1 pid=7 tid=7 inv={inv} hid={hid} depth=0 "
        f"name={name} ts={ts} dur=500 \n"
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "host.7.log"
    path.write_text("".join(run_line(inv) for inv in range(1, 4)))
    return path


def module(*arguments: object, name: str = "simpler", **options: Any) -> subprocess.Popen[bytes]:
    """``python -m``, its output in pipes unless that is said otherwise."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", name, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), **(pipes | options))


def ended(child: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Exit code, output and errors of a child that ends."""
    out, err = child.communicate(timeout=LIMIT_S)
    return child.returncode, (out or b"").decode(), (err or b"").decode()


def test_the_module_is_the_whole_command_line(log: Path) -> None:
    code, out, err = ended(module("--help"))
    assert (code, err) == (0, "")
    assert "Usage: simpler <COMMAND>" in out
    for command in ("demo", "timing", "check", "diff", "recover", "stacks"):
        assert f"  {command} " in out
    assert ended(module("--version"))[1].startswith("simpler ")
    code, out, err = ended(module("timing"))
    assert (code, out) == (2, "")
    assert "<LOG>..." in err
    code, out, _ = ended(module("check", "--json", log))
    assert (code, json.loads(out)["spans"]) == (0, 3)


@pytest.mark.parametrize(
    "arguments",
    [["LOG"], ["LOG", "--rounds-table"], ["LOG", "--json"], ["--help"], ["LOG", "--no-such"], ["ABSENT"], ["FOLDER"]],
)
def test_each_way_to_the_timing_says_the_same(
    log: Path, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    paths = {"LOG": str(log), "ABSENT": str(tmp_path / "absent.log"), "FOLDER": str(tmp_path / "empty")}
    arguments = [paths.get(argument, argument) for argument in arguments]
    whole = ended(module("timing", *arguments))
    assert ended(module(*arguments, name="simpler_setup.tools.strace_timing")) == whole
    try:
        code = strace_timing.main(arguments)
    except SystemExit as left:
        assert isinstance(left.code, int)
        code = left.code
    assert (code, *capsys.readouterr()) == whole
    assert whole[1] or whole[2]


def test_the_arguments_of_the_process_are_the_default(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["strace_timing.py", str(log), "--rounds-table"])
    assert strace_timing.main() == 0
    assert "(3 rounds)" in capsys.readouterr().out


def test_standard_input_is_a_log(log: Path) -> None:
    with log.open("rb") as lines:
        assert ended(module("timing", "-", stdin=lines)) == ended(module("timing", log))


def test_what_is_printed_goes_to_the_streams_that_are_there_now(log: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        print("before")
        assert strace_timing.main([log]) == 0
        print("after")
    assert out.getvalue().startswith("before\ncallable hid=b7e2 — 3 invocation(s)\n")
    assert out.getvalue().endswith("after\n")
    assert "no [CLOCK_ANCHOR] record for pid(s) 7" in err.getvalue()


def test_a_binary_stream_gets_bytes_and_no_stream_nothing(log: Path) -> None:
    out, err = io.BytesIO(), io.StringIO()
    assert native.command_line(["simpler", "timing", str(log)], out, err) == (0, None)
    assert out.getvalue().decode().startswith("callable hid=b7e2 — 3 invocation(s)\n")
    assert native.command_line(["simpler", "timing", log], None, None) == (0, None)
    code, refusal = native.command_line(["simpler", "timing", log / "no"], None, None)
    assert code == 2
    assert refusal is not None and "cannot read" in refusal


def test_a_text_stream_gets_whole_characters_however_long_the_text_is(tmp_path: Path) -> None:
    """A dash of three bytes stands in each line of a text that is written in pieces of some kilobytes."""
    path = tmp_path / "run.log"
    # Lines of lengths that differ, so that the pieces end anywhere.
    path.write_text("".join(run_line(n, hid=f"{n:x}") for n in range(1, 5_000)))
    text, binary = io.StringIO(), io.BytesIO()
    native.command_line(["simpler", "timing", path], text, None)
    native.command_line(["simpler", "timing", path], binary, None)
    assert text.getvalue().count("— 1 invocation(s)") == 4_999
    assert text.getvalue() == binary.getvalue().decode()


class Failing(io.StringIO):
    """Raises instead of taking text."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def test_what_a_stream_raises_is_an_exit_code_or_is_raised(log: Path) -> None:
    err = io.StringIO()
    arguments = ["simpler", "timing", log]
    # A reader that went away does not want the figures.
    assert native.command_line(arguments, Failing(BrokenPipeError()), err) == (0, None)
    assert "simpler:" not in err.getvalue()
    assert native.command_line(arguments, Failing(OSError(28, "No space left on device")), err) == (2, None)
    assert "No space left on device" in err.getvalue()
    with pytest.raises(ValueError, match="I/O operation on closed file"):
        native.command_line(arguments, Failing(ValueError("I/O operation on closed file")), None)
    closed = io.StringIO()
    closed.close()
    with pytest.raises(ValueError, match="closed file"):
        native.command_line(arguments, closed, None)


def test_a_reader_that_goes_away_ends_it_quietly(log: Path) -> None:
    for name, arguments in (
        ("simpler", ["timing", log]),
        ("simpler", ["timing", "--help"]),
        ("simpler_setup.tools.strace_timing", [log]),
    ):
        child = module(*arguments, name=name)
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        err = child.stderr.read().decode()
        assert child.wait(LIMIT_S) == 0
        assert "Broken pipe" not in err and "Exception ignored" not in err, err


def test_closed_streams_do_no_harm(log: Path) -> None:
    script = 'exec "$0" -m simpler timing "$1" >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, sys.executable, str(log)], env=environment(), timeout=LIMIT_S)
    assert done.returncode == 0


def test_a_full_device_is_said(log: Path) -> None:
    with open("/dev/full", "wb") as full:
        code, _, err = ended(module("timing", log, stdout=full))
    assert code == 2
    assert "No space left on device" in err


#: Runs the command on a log that never ends, in a process that wants to live on.
INTERRUPTED = """
import sys
from simpler_setup.tools.strace_timing import main
try:
    print("ready", flush=True)
    main(["/dev/zero"])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_long_reading_in_the_middle_of_a_program() -> None:
    child = popen(INTERRUPTED, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    assert ended(child)[:2] == (0, "interrupted\n")


def test_ctrl_c_ends_a_command_that_waits_for_a_pipe() -> None:
    for name, arguments in (("simpler", ["timing", "-"]), ("simpler_setup.tools.strace_timing", ["-"])):
        child = module(*arguments, name=name, stdin=subprocess.PIPE)
        assert child.stdin is not None
        # It has taken what is more than a pipe holds, so it reads.
        child.stdin.write(b"nothing\n" * 100_000)
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.wait(LIMIT_S) == -signal.SIGINT
        child.communicate()


#: Follows a log until SIGINT, which means again afterwards what it did before.
FOLLOWED = """
import os, signal, sys
from simpler_setup.tools.strace_timing import main
code = main([sys.argv[1], "--follow"])
print("followed", code, flush=True)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_following_ends_by_ctrl_c_and_gives_it_back(log: Path) -> None:
    child = popen(FOLLOWED, log, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    shown = b""
    while b"mean=" not in shown:
        line = child.stdout.readline()
        assert line, shown
        shown += line
    child.send_signal(signal.SIGINT)
    code, out, _ = ended(child)
    assert code == 0
    assert out.endswith("followed 0\ninterrupted\n")


def test_the_gil_is_free_while_a_log_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    run(
        """
        import sys, threading
        from simpler_setup.tools.strace_timing import main
        pipe, line = sys.argv[1:]

        def write():
            with open(pipe, "w") as end:
                end.write(line)

        writer = threading.Thread(target=write)
        writer.start()
        assert main([pipe]) == 0
        writer.join()
        """,
        pipe,
        run_line(1),
    )


def test_the_demo_runs_from_a_plain_interpreter(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    code, text, err = ended(module("demo", "--chips", 2, "--tokens", 3, "--out", out, "--json"))
    assert code == 0, err
    facts = json.loads(text.splitlines()[-1])
    assert (facts["chips"], facts["tokens"], facts["torn"]) == (2, 3, 0)
    assert (facts["prefill_invocations"], facts["decode_invocations"]) == (2, 4)
    assert len(list((out / "log").glob("host.*.log"))) == 3
    assert strace_timing.main([out / "log", "--trace-out", os.devnull]) == 0


def test_the_demo_refuses_to_fork_beside_other_threads(tmp_path: Path) -> None:
    done = run(
        """
        import sys, threading
        from simpler._extension import native
        forever = threading.Event()
        other = threading.Thread(target=forever.wait)
        other.start()
        code, _ = native.command_line(["simpler", "demo", "--tokens", "1", "--out", sys.argv[1]], None, sys.stderr)
        forever.set()
        other.join()
        sys.exit(code)
        """,
        tmp_path / "demo",
        expect=2,
    )
    assert "thread" in done.stderr


@pytest.mark.skipif(os.environ.get("SIMPLER_TEST_INSTALLED") != "1", reason="skipped: the package is not installed")
def test_the_installed_command_is_the_module(log: Path) -> None:
    command = Path(sys.executable).with_name("simpler")
    done = subprocess.run([command, "timing", log], capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == ended(module("timing", log))


def _inputs() -> list[Path]:
    data = [*CORPUS.glob("*/tests/data/**/*.log"), *CORPUS.glob("*/tests/data/**/*.log.gz")]
    return sorted(path for path in data if path.is_file())


@pytest.mark.skipif(not CORPUS.is_dir(), reason="skipped: the crates are not beside the tests")
def test_no_log_makes_any_function_raise() -> None:
    """Whatever went wrong in a log, in each form in which lines may come."""
    inputs = _inputs()
    assert len(inputs) > 20
    for path in inputs:
        data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        text = data.decode(errors="surrogateescape")
        spans = list(strace_timing.parse_spans(data))
        for lines in (text, text.splitlines(keepends=True), data.split(b"\n")):
            assert list(strace_timing.parse_spans(lines)) == spans, path
        heads = strace_timing.count_record_heads(data)
        invocations = strace_timing.group_invocations(spans)
        anchors = list(strace_timing.parse_clock_anchors(data))
        strace_timing.parse_drop_summaries(data)
        strace_timing.to_chrome_trace(invocations, strace_timing.bucket_by_hid(invocations), anchors)
        strace_timing.to_host_swimlane(spans, anchors)
        strace_timing.host_record_spans(spans, [])
        with contextlib.suppress(strace_timing.NativeOverlapError):
            strace_timing.assert_native_overlap(spans)
        for invocation in invocations:
            strace_timing._round_metrics(invocation)
            assert {span.name for span in invocation.spans} == set(invocation.by_name())
        for show in (strace_timing.print_rounds_table, strace_timing.print_tpot_table, strace_timing.print_tree):
            show(strace_timing.bucket_by_hid(invocations), stream=io.StringIO())

        facts = io.StringIO()
        code, _ = native.command_line(["simpler", "check", "--json", path], facts, None)
        said = json.loads(facts.getvalue())
        assert code == (0 if said["spans"] else 2), path
        runs = strace_timing.group_invocations(strace_timing.invocation_spans(spans))
        assert (said["heads"], said["invocations"]) == (heads, len(runs)), path
