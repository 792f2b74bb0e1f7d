"""``simpler.read_log``: a log as a table that data frames take."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simpler
from child_python import LIMIT_S, environment

HID = "e5f281fa91e2a5d3"


def record(inv: int, depth: int, name: str, ts: int, dur: int, attrs: str = "", pid: int = 41) -> str:
    """One record as the host log writes it; made when the span ended."""
    made = ts + dur if "clk=dev" not in attrs else 10_000 * inv + 9_000
    span = f"v=1 pid={pid} tid={pid} inv={inv} hid={HID} depth={depth} name={name} ts={ts} dur={dur} {attrs}"
    return f"[mono_ns={made}][T0x7f00][TIMING] emit_host_span: [STRACE] {span}\n"


def run(inv: int, pid: int = 41) -> str:
    """A run whose device spans the log's anchors place."""
    start = 10_000 * inv
    return (
        f"[mono_ns={start + 100}][T0x7f00][TIMING] clock.anchor: [DEV_CLOCK_ANCHOR] v=1 pid={pid} inv={inv} "
        f"host_ns={start + 100} dev_cyc=1000 dev_freq=1000000000 half_ns=7\n"
        + record(inv, 1, "simpler_run.runner_run", start + 50, 8_000, pid=pid)
        + record(inv, 2, "simpler_run.runner_run.device_wall", 0, 7_000, "clk=dev org_cyc=1200", pid)
        + record(inv, 3, "simpler_run.runner_run.device_wall.orch", 20, 600, "clk=dev", pid)
        + record(inv, 0, "simpler_run", start, 9_000, "run_id=3 text=a%20b", pid)
    )


def anchor(pid: int = 41) -> str:
    """The clock anchor of a process."""
    return (
        f"[mono_ns=1][T0x7f00][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid} mono_ns=1 "
        "wall_ns=1790000000000000001\n"
    )


def log(runs: int = 3) -> str:
    """A log of so many runs in each of two processes, the second without a clock anchor."""
    text = anchor()
    for inv in range(1, runs + 1):
        text += run(inv) + run(inv, pid=42)
    return text + record(0, 0, "ext.app.load", 5, 70, "clk=none", pid=41)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """That log in a file."""
    path = tmp_path / "host.41.log"
    path.write_text(log())
    return path


def rows(read: simpler.Log) -> list[dict[str, Any]]:
    """All rows as pyarrow has them."""
    pyarrow = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    table: list[dict[str, Any]] = pyarrow.table(read).to_pylist()
    return table


def test_each_span_is_a_row_with_all_that_the_log_says_of_it(path: Path) -> None:
    import datetime

    read = simpler.read_log(path)
    table = rows(read)
    assert len(table) == len(read) == 25
    root = table[3]
    assert root == {
        "host": None,
        "life": 0,
        "pid": 41,
        "tid": 41,
        "inv": 1,
        "invocation": 0,
        "hid": HID,
        "callable": "decode",
        "depth": 0,
        "name": "simpler_run",
        "is_device": False,
        "ts_ns": 10_000,
        "dur_ns": 9_000,
        "host_ts_ns": 10_000,
        "error_ns": 0,
        "wall_time": root["wall_time"],
        "attrs": "run_id=3 text=a%20b",
    }
    whole, nanoseconds = divmod(1_790_000_000_000_010_000, 1_000_000_000)
    assert root["wall_time"].nanosecond + 1000 * root["wall_time"].microsecond == nanoseconds
    assert int(root["wall_time"].replace(microsecond=0, nanosecond=0).timestamp()) == whole
    assert root["wall_time"].tzinfo in (datetime.UTC, root["wall_time"].tzinfo)


def test_device_spans_are_on_the_host_s_axis_where_anchors_allow(path: Path) -> None:
    table = rows(simpler.read_log(path))
    wall, orch = table[1], table[2]
    # Cycle 1200 is 200 ns behind the anchor at 10,100.
    assert (wall["ts_ns"], wall["host_ts_ns"]) == (0, 10_300)
    assert (orch["is_device"], orch["ts_ns"], orch["host_ts_ns"]) == (True, 20, 10_320)
    assert orch["error_ns"] >= 7
    without = path.with_name("host.2.log")
    without.write_text("".join(line for line in log().splitlines(True) if "DEV_CLOCK" not in line))
    alone = rows(simpler.read_log(without))[1]
    assert (alone["is_device"], alone["host_ts_ns"], alone["error_ns"], alone["wall_time"]) == (True, None, None, None)


def test_what_is_not_known_is_null(path: Path) -> None:
    table = rows(simpler.read_log(path))
    assert all(row["wall_time"] is None for row in table if row["pid"] == 42)
    foreign = table[-1]
    assert foreign["name"] == "ext.app.load"
    assert (foreign["invocation"], foreign["callable"]) == (None, None)


def test_a_reused_inv_is_another_invocation(tmp_path: Path) -> None:
    path = tmp_path / "host.1.log"
    path.write_text(anchor() + run(1) + run(1).replace("ts=10", "ts=90").replace("mono_ns=1", "mono_ns=9"))
    invocations = {(row["inv"], row["invocation"]) for row in rows(simpler.read_log(path)) if row["depth"] == 0}
    assert invocations == {(1, 0), (1, 1)}


def test_a_log_of_many_batches_comes_whole_and_more_than_once(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    path = tmp_path / "host.1.log"
    runs = 20_000
    path.write_text(anchor() + "".join(run(inv) for inv in range(1, runs + 1)))
    read = simpler.read_log(path)
    for _ in range(2):
        table = pyarrow.table(read)
        assert table.num_rows == 4 * runs
        assert table["inv"].to_pylist() == [inv for inv in range(1, runs + 1) for _ in range(4)]
        assert len(table.to_batches()) > 1


def test_pandas_polars_and_duckdb_take_it(path: Path) -> None:
    read = simpler.read_log(path)
    pandas = pytest.importorskip("pandas", reason="skipped: pandas is not installed")
    if hasattr(pandas.DataFrame, "from_arrow"):
        frame = pandas.DataFrame.from_arrow(read)
        assert frame.loc[frame["name"] == "simpler_run", "dur_ns"].tolist() == [9_000] * 6
    polars = pytest.importorskip("polars", reason="skipped: polars is not installed")
    polared = polars.DataFrame(read)
    assert polared.filter(polars.col("depth") == 0)["dur_ns"].sum() == 6 * 9_000 + 70
    duckdb = pytest.importorskip("duckdb", reason="skipped: duckdb is not installed")
    answer = duckdb.sql("SELECT callable, count(*), sum(dur_ns) FROM read WHERE name = 'simpler_run' GROUP BY callable")
    assert answer.fetchall() == [("decode", 6, 54_000)]


def test_a_whole_log_is_trusted_and_a_torn_one_says_why(path: Path) -> None:
    read = simpler.read_log(path)
    assert read.trusted and read.losses == {} and read.complaints == []
    assert read.counts["heads"] == read.counts["spans"] == 25
    assert sum(read.dropped.values()) == 0
    text = log()
    at = text.index(" ts=", text.index("runner_run"))
    path.write_text(text[:at] + "\n" + text[at:].split("\n", 1)[1])
    torn = simpler.read_log(path)
    assert not torn.trusted
    assert torn.losses["torn"] == torn.counts["torn"] == torn.complaints_total == 1
    [(source, offset, reason)] = torn.complaints
    assert (source, text[offset : offset + 8]) == (str(path), "[STRACE]")
    assert reason and "lossy" in repr(torn)
    assert any("1 of 25 [STRACE] records are incomplete" in warning for warning in torn.warnings)


def test_drops_are_told_by_reason(path: Path) -> None:
    drops = "v=1 pid=41 new=3 total=5 queue_full=4 claim_exhausted=0 output_failed=1 not_admitted=0"
    path.write_text(log() + f"[mono_ns=9][T0x7f00][ERROR] prepare_to_fork: [HOSTLOG_DROPS] {drops}\n")
    read = simpler.read_log(path)
    assert read.losses == {"dropped": 5}
    assert read.dropped == {"queue_full": 4, "claim_exhausted": 0, "output_failed": 1, "not_admitted": 0}


def test_folders_packed_files_and_streams_are_logs_too(path: Path) -> None:
    packed = path.with_name("packed.gz")
    packed.write_bytes(gzip.compress(log().encode()))
    sources: list[Any] = [path.parent, str(path), packed, io.BytesIO(packed.read_bytes()), path.open("rb")]
    assert [len(simpler.read_log(source)) for source in sources] == [25] * 5
    twice = simpler.read_log([path, packed])
    assert (len(twice), twice.counts["duplicates"]) == (25, 25)


def test_what_cannot_be_read_is_an_exception_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing.log"):
        simpler.read_log(tmp_path / "missing.log")
    with pytest.raises(ValueError, match="holds no host"):
        simpler.read_log(tmp_path)
    with pytest.raises(ValueError, match="no log to read"):
        simpler.read_log([])
    with pytest.raises(TypeError, match="a path or a binary stream"):
        simpler.read_log([7])  # type: ignore[list-item]
    empty = tmp_path / "host.1.log"
    empty.write_text("nothing of ours\n")
    read = simpler.read_log(empty)
    assert len(read) == 0 and rows(read) == []


class Broken:
    """A stream that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, size: int) -> bytes:
        raise self.error


def test_a_stream_that_fails_is_unreadable_and_what_is_no_stream_is_an_exception(path: Path) -> None:
    read = simpler.read_log(Broken(OSError("the cable is out")))  # type: ignore[arg-type]
    assert len(read) == 0 and not read.trusted and read.losses == {"unreadable": 1}
    with pytest.raises(ZeroDivisionError, match="whatever"):
        simpler.read_log(Broken(ZeroDivisionError("whatever")))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="open it in binary mode"), path.open() as text:
        simpler.read_log(text)  # type: ignore[arg-type]


def test_ctrl_c_ends_a_reading() -> None:
    """A stream without end is read until a signal comes."""
    program = (
        "import os, signal, simpler\n"
        "class Slow:\n"
        "    def read(self, size):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        return b'x' * min(size, 65536)\n"
        "try:\n"
        "    simpler.read_log(Slow())\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=LIMIT_S)
    assert done.stdout == "interrupted\n", done.stderr
