"""What programs that read these logs rely on: the functions of ``simpler_setup.tools.strace_timing`` and its command."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simpler.worker_level import WorkerLevel
from simpler_setup.tools import strace_timing
from simpler_setup.tools.strace_timing import (
    ClockAnchor,
    Invocation,
    NativeOverlapError,
    Span,
    assert_native_overlap,
    bucket_by_hid,
    count_record_heads,
    expand_log_source,
    external_producer,
    group_invocations,
    host_record_spans,
    invocation_spans,
    load_host_phase_records,
    main,
    node_span_leaf,
    parse_clock_anchors,
    parse_drop_summaries,
    parse_spans,
    print_rounds_table,
    print_tpot_table,
    print_tree,
    span_family,
    to_chrome_trace,
    to_host_swimlane,
)

#: Unix time of 2026-03-01T00:00:00Z, ns.
MARCH_NS = 1_772_323_200_000_000_000


def span_line(
    name: str,
    attrs: str = "",
    *,
    pid: int = 7,
    tid: int | None = None,
    inv: int = 1,
    hid: str = "b7e2",
    depth: int = 0,
    ts: int = 1_000,
    dur: int = 500,
    v: str = "1",
) -> str:
    """A span's record as the host log writes it, without its newline."""
    tid = pid if tid is None else tid
    return (
        f"[mono_ns={ts + dur + 90}][T0x7f{tid:04x}][TIMING] emit_host_span: [STRACE] v={v} pid={pid} tid={tid} "
        f"inv={inv} hid={hid} depth={depth} name={name} ts={ts} dur={dur} {attrs}"
    )


def anchor_line(pid: int, mono_ns: int, wall_ns: int) -> str:
    return (
        f"[mono_ns={mono_ns}][T0x7f0001][TIMING] clock_anchor: "
        f"[CLOCK_ANCHOR] v=1 pid={pid} mono_ns={mono_ns} wall_ns={wall_ns}"
    )


def drop_line(pid: int, total: int, **reasons: int) -> str:
    counts = dict.fromkeys(("queue_full", "claim_exhausted", "output_failed", "not_admitted"), 0) | reasons
    said = " ".join(f"{reason}={count}" for reason, count in counts.items())
    return (
        f"[mono_ns=9][T0x1][ERROR] host_log_drops: [HOSTLOG_DROPS] v=1 pid={pid} new=1 total={total} {said}"
    )


def spans_of(*lines: str) -> list[Span]:
    return list(parse_spans(lines))


def log_file(folder: Path, *lines: str, name: str = "run.log") -> str:
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


def drawn(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def named(trace: dict[str, Any], what: str) -> dict[tuple[int, int], str]:
    """By pid and tid, what its processes (``process_name``) or threads (``thread_name``) are called."""
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == what
    }


def arrows(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] in ("s", "f")]


# -- parsing --


def test_a_span_says_what_its_record_says() -> None:
    (span,) = spans_of(
        span_line(
            "simpler_run.bind", "ntensor=4 note=a%20b", pid=7, tid=9, inv=3, hid="B7E2", depth=1, ts=5, dur=2
        )
    )
    assert (span.v, span.pid, span.tid, span.inv, span.hid, span.depth) == (1, 7, 9, 3, "b7e2", 1)
    assert (span.name, span.ts, span.dur, span.attrs) == ("simpler_run.bind", 5, 2, "ntensor=4 note=a%20b")
    assert span.attributes == {"ntensor": 4, "note": "a b"}
    assert span.made_ns == 97
    assert not span.is_device


def test_records_that_stand_next_to_each_other_on_a_line_are_all_read() -> None:
    line = "rank 0: " + span_line("simpler_run", "rank=0") + span_line("simpler_run", "clk=dev rank=1", inv=2)
    first, second = spans_of(line)
    assert (first.inv, first.attrs, first.is_device) == (1, "rank=0", False)
    assert (second.inv, second.attrs, second.is_device) == (2, "clk=dev rank=1", True)


def test_an_element_of_several_lines_holds_all_its_records() -> None:
    blob = "\n".join(span_line("simpler_run", f"rank={inv}", inv=inv) for inv in (1, 2, 3))
    assert [(span.inv, span.attrs) for span in spans_of(blob)] == [(1, "rank=1"), (2, "rank=2"), (3, "rank=3")]


def test_a_log_split_in_front_of_each_marker_says_the_same() -> None:
    """Readers that knew one record a line do this."""
    text = span_line("simpler_run", "rank=0") + span_line("simpler_run.bind", "rank=1", inv=2)
    split = text.replace("[STRACE]", "\n[STRACE]").splitlines()
    assert [(span.inv, span.attrs) for span in parse_spans(split)] == [(1, "rank=0"), (2, "rank=1")]


def test_lines_come_in_any_form() -> None:
    lines = [span_line("simpler_run", f"n={inv}", inv=inv) for inv in range(1, 40)]
    text = "\n".join(lines)
    want = spans_of(*lines)
    assert len(want) == 39
    forms: list[Any] = [
        tuple(lines),
        iter(lines),
        (line + "\r\n" for line in lines),
        text,
        text + "\n",
        text.encode(),
        bytearray(text.encode()),
        memoryview(text.encode()),
        [line.encode() for line in lines],
        [memoryview(line.encode()) for line in lines],
        io.StringIO(text),
        io.BytesIO(text.encode()),
        [text[:900], "", text[901:]],
    ]
    for form in forms[:-1]:
        assert list(parse_spans(form)) == want
    # The end of an element is the end of a line, so that one record of this is cut.
    assert count_record_heads(forms[-1]) == 39
    assert len(list(parse_spans(forms[-1]))) == 38


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_an_open_file_is_read_from_where_it_is_and_in_pieces_of_any_length(tmp_path: Path, mode: str) -> None:
    lines = [span_line("simpler_run", f"n={inv}", inv=inv) for inv in range(1, 5_000)]
    # A line longer than any piece, and no newline at the end.
    lines[2_000] = "x" * 1_000_000 + lines[2_000]
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines))
    with path.open(mode) as log:
        next(log)
        found = list(parse_spans(log))
    assert [span.inv for span in found] == list(range(2, 5_000))
    assert found == spans_of(*lines[1:])


def test_a_line_is_asked_for_when_its_spans_are() -> None:
    """A log that grows may be read as it does."""
    asked: list[int] = []

    def growing() -> Iterator[str]:
        for inv in range(1, 4):
            asked.append(inv)
            yield "nothing of interest\n"
            yield span_line("simpler_run", inv=inv) + "\n"

    spans = parse_spans(growing())
    assert asked == []
    assert next(spans).inv == 1
    assert asked == [1]
    assert next(spans).inv == 2
    assert asked == [1, 2]


def test_what_is_raised_while_lines_are_read_is_passed_on() -> None:
    def failing() -> Iterator[str]:
        yield span_line("simpler_run")
        raise OSError("the disk is gone")

    spans = parse_spans(failing())
    assert next(spans).inv == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(spans)
    for wrong in (7, None):
        with pytest.raises(TypeError):
            parse_spans(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lines of a log are str or bytes, not int"):
        list(parse_spans([7]))  # type: ignore[list-item]


def test_bytes_that_are_no_text_do_no_harm() -> None:
    line = span_line("simpler_run", "note=\u20ac", inv=1).encode()
    odd = b"\xff\xfe\x00 " + line + b"\n" + b"\xed\xa0\x80" + line.replace(b"inv=1", b"inv=2")
    for lines in (odd, odd.decode(errors="surrogateescape"), odd.decode(errors="replace"), [odd]):
        assert [(span.inv, span.attrs) for span in parse_spans(lines)] == [(1, "note=\u20ac"), (2, "note=\u20ac")]
    # A surrogate that stands for no byte.
    assert len(list(parse_spans(["\ud800 " + line.decode()]))) == 1


def test_an_invocation_has_64_bits() -> None:
    assert [span.inv for span in spans_of(span_line("simpler_run", inv=2**64 - 1))] == [2**64 - 1]
    assert spans_of(span_line("simpler_run", inv=2**64)) == []


def test_names_and_values_are_decoded_once_and_attributes_stay_as_they_are() -> None:
    attrs = "reason=submit%20failed%3A%20%5Bfatal%5D flag empty= n=-12 big=123456789012345678901234567890 pct=%2541"
    (span,) = spans_of(span_line("ext.app.odd%20name%2525", attrs))
    assert span.name == "ext.app.odd name%25"
    assert span.attrs == attrs
    assert span.attributes == {
        "reason": "submit failed: [fatal]",
        "empty": "",
        "n": -12,
        "big": 123456789012345678901234567890,
        "pct": "%41",
    }
    (event,) = drawn(to_host_swimlane([span]))
    assert event["args"]["reason"] == "submit failed: [fatal]"
    assert event["args"]["attrs"] == attrs


def test_a_cut_field_shows_it_and_a_cut_value_is_unknown() -> None:
    (span,) = spans_of(span_line("simpler_run", "run_id=7 slot_id=1~"))
    assert span.attrs == "run_id=7 slot_id=1~"
    assert span.attributes == {"run_id": 7}


def test_records_of_other_versions_are_given_and_tell_theirs() -> None:
    lines = [span_line("simpler_run", inv=1), span_line("simpler_run", inv=2, v="2"), span_line("x", v="x")]
    assert [(span.inv, span.v) for span in parse_spans(lines)] == [(1, 1), (2, 2)]
    assert count_record_heads(lines) == 2


def test_a_torn_record_is_a_head_and_no_span() -> None:
    whole = span_line("simpler_run", "rank=0")
    lines = [whole, whole[: whole.index(" ts=")], whole + "'[STRACE] v=1 a copy in quotes'"]
    assert count_record_heads(lines) == 3
    assert len(spans_of(*lines)) == 2


def test_of_the_drop_reports_of_a_process_the_largest_total_counts() -> None:
    lines = [
        drop_line(71, 2, queue_full=2),
        drop_line(72, 1, output_failed=1),
        "prefix: " + drop_line(71, 5, queue_full=4, not_admitted=1),
        drop_line(71, 3, queue_full=3),
    ]
    assert parse_drop_summaries(lines) == {
        71: {"total": 5, "queue_full": 4, "claim_exhausted": 0, "output_failed": 0, "not_admitted": 1},
        72: {"total": 1, "queue_full": 0, "claim_exhausted": 0, "output_failed": 1, "not_admitted": 0},
    }


def test_a_drop_report_of_another_version_is_none() -> None:
    assert parse_drop_summaries([drop_line(71, 2).replace("v=1", "v=2")]) == {}


def test_the_command_says_what_was_dropped_before_any_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_file(tmp_path, span_line("simpler_run"), drop_line(7, 4, queue_full=4))
    assert main([log]) == 0
    err = capsys.readouterr().err
    assert "pid 7 dropped 4 host-log record(s)" in err
    assert "queue_full=4" in err
    assert "incomplete log" in err


def test_spans_are_values() -> None:
    line = span_line("simpler_run.a%25b", "k=v")
    (one,), (same,) = spans_of(line), spans_of(line)
    (other,) = spans_of(span_line("simpler_run.a%25b", "k=w"))
    assert one == same and hash(one) == hash(same) and one != other and one != "span"
    assert len({one, same, other}) == 2
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one).startswith("Span(v=1, pid=7, tid=7, inv=1, hid='b7e2', depth=0, name='simpler_run.a%b'")
    with pytest.raises(AttributeError):
        one.dur = 7  # type: ignore[misc]


def test_a_span_is_made_of_its_fields() -> None:
    span = Span(
        pid=7, tid=7, inv=1, hid="B7E2", depth=0, name="simpler_run.a%b", ts=1, dur=2, attrs="clk=dev"
    )
    assert (span.hid, span.name, span.is_device, span.v, span.made_ns) == ("b7e2", "simpler_run.a%b", True, 1, None)
    assert group_invocations([span])[0].by_name() == {"simpler_run.a%b": span}
    with pytest.raises(ValueError, match="hexadecimal"):
        Span(pid=7, tid=7, inv=1, hid="decode", depth=0, name="x", ts=1, dur=2)
    with pytest.raises(ValueError, match="not negative"):
        Span(pid=7, tid=7, inv=1, hid="1", depth=0, name="x", ts=-1, dur=2)


# -- wall time --


def test_an_anchor_maps_monotonic_to_wall_time() -> None:
    (anchor,) = parse_clock_anchors(["worker 3 | " + anchor_line(41, 1_000, MARCH_NS)])
    assert (anchor.pid, anchor.mono_ns, anchor.wall_ns) == (41, 1_000, MARCH_NS)
    assert anchor.to_wall_ns(1_250) == MARCH_NS + 250
    assert anchor.to_wall_ns(999) is None
    assert anchor == ClockAnchor(pid=41, mono_ns=1_000, wall_ns=MARCH_NS)


def test_the_payload_of_an_anchor_outside_of_its_own_whole_record_is_none() -> None:
    record = anchor_line(41, 1_000, MARCH_NS)
    payload = record[record.index("[CLOCK_ANCHOR]") :]
    lines = [
        payload,
        f"[mono_ns=1005][T0x1][TIMING] message: copied {payload}",
        record.replace("TIMING", "INFO"),
        record.replace("clock_anchor:", "other:"),
        record + " trailing",
        record.replace("v=1", "v=2"),
    ]
    assert list(parse_clock_anchors(lines)) == []
    assert len(list(parse_clock_anchors([record + "   ", record]))) == 2


def test_wall_time_is_added_and_monotonic_times_stay() -> None:
    anchors = list(parse_clock_anchors([anchor_line(7, 1_000, MARCH_NS)]))
    spans = spans_of(
        span_line("simpler_run", ts=1_250),
        span_line("simpler_run.runner_run.device_wall", "clk=dev", depth=2, ts=300, dur=40),
    )
    invocations = group_invocations(spans)
    chrome = to_chrome_trace(invocations, bucket_by_hid(invocations), anchors=anchors)
    for trace in (chrome, to_host_swimlane(spans, anchors=anchors), to_host_swimlane(spans, {7: anchors[0]})):
        run = next(event for event in drawn(trace) if event["name"] == "simpler_run")
        assert run["ts"] == 1.25
        assert run["args"]["wall_ts_ns"] == str(MARCH_NS + 250)
        assert run["args"]["wall_time"] == "2026-03-01T00:00:00.000000250Z"
        assert trace["clockAnchors"] == [{"pid": 7, "mono_ns": "1000", "wall_ns": str(MARCH_NS)}]
    wall = next(event for event in drawn(chrome) if event["name"].endswith("device_wall"))
    assert not {"wall_ts_ns", "wall_time"} & set(wall["args"])
    assert "clockAnchors" not in to_host_swimlane(spans)


def test_wall_time_is_that_of_the_span_s_own_process_and_none_before_its_anchor() -> None:
    anchors = list(
        parse_clock_anchors(
            [anchor_line(1, 1_000, 5_000), anchor_line(2, 1_000, 9_000), anchor_line(4, 2_000, 7_000)]
        )
    )
    spans = spans_of(*(span_line("node.submit", pid=pid, ts=1_500) for pid in (1, 2, 3, 4)))
    walls = [event["args"].get("wall_ts_ns") for event in drawn(to_host_swimlane(spans, anchors))]
    assert walls == ["5500", "9500", None, None]


def test_of_several_anchors_of_a_process_the_last_counts() -> None:
    anchors = parse_clock_anchors([anchor_line(7, 1_000, 5_000), anchor_line(7, 1_000, 6_000)])
    (event,) = drawn(to_host_swimlane(spans_of(span_line("node.submit", ts=1_500)), anchors))
    assert event["args"]["wall_ts_ns"] == "6500"


def test_the_command_s_pictures_have_wall_time_and_come_in_one_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_file(tmp_path, anchor_line(7, 50, MARCH_NS), span_line("simpler_run", ts=100, dur=25))
    trace, swimlane = tmp_path / "trace.json", tmp_path / "swimlane.json"
    assert main([log, "--trace-out", trace, "--swimlane", str(swimlane)]) == 0
    for written in (trace, swimlane):
        (event,) = drawn(json.loads(written.read_text()))
        assert event["ts"] == 0.1
        assert event["args"]["wall_ts_ns"] == str(MARCH_NS + 50)
    out = capsys.readouterr().out
    assert f"Wrote Chrome trace: {trace} (1 spans)" in out
    assert f"Wrote host swimlane: {swimlane} (1 host spans, 0 unaligned device spans)" in out


def test_several_anchors_of_a_process_and_none_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = log_file(
        tmp_path,
        anchor_line(71, 50, MARCH_NS),
        anchor_line(71, 75, MARCH_NS + 25),
        span_line("simpler_run", pid=71),
    )
    assert main([twice]) == 0
    assert "warning: multiple [CLOCK_ANCHOR] records found for pid 71" in capsys.readouterr().err
    none = log_file(tmp_path, span_line("node.submit", pid=71), span_line("simpler_run", pid=72))
    assert main([none]) == 0
    err = capsys.readouterr().err
    assert "warning: no [CLOCK_ANCHOR] record for pid(s) 71, 72 that emitted spans;" in err
    assert "check that every input is complete" in err


# -- the command --


def test_several_files_are_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [
        log_file(tmp_path, anchor_line(pid, 5, MARCH_NS), span_line("simpler_run", pid=pid), name=f"host.{pid}.log")
        for pid in (71, 72)
    ]
    swimlane = tmp_path / "swimlane.json"
    assert main([*logs, "--swimlane", swimlane]) == 0
    trace = json.loads(swimlane.read_text())
    assert {event["pid"] for event in drawn(trace)} == {71, 72}
    assert {anchor["pid"] for anchor in trace["clockAnchors"]} == {71, 72}
    printed = capsys.readouterr()
    assert "2 invocation(s)" in printed.out
    assert "CLOCK_ANCHOR" not in printed.err


def test_a_directory_stands_for_its_process_logs_and_nothing_else_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pid in (71, 72):
        log_file(tmp_path, span_line("simpler_run", pid=pid), name=f"host.{pid}.log")
    log_file(tmp_path, span_line("simpler_run", pid=73), name="other.log")
    assert main([tmp_path]) == 0
    assert "2 invocation(s)" in capsys.readouterr().out
    assert expand_log_source(tmp_path) == [str(tmp_path / f"host.{pid}.log") for pid in (71, 72)]
    assert expand_log_source("run.log") == ["run.log"]


def test_a_directory_without_logs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for leave in (lambda: main([str(tmp_path)]), lambda: expand_log_source(tmp_path)):
        with pytest.raises(SystemExit) as left:
            leave()
        assert str(left.value) == f"{tmp_path} is a directory but holds no host.*.log files"
    assert str(tmp_path) in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main([str(tmp_path), "--json"])
    assert left.value.code == 2


def test_the_command_tells_what_it_cannot_do_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = log_file(tmp_path)
    for arguments, words in [
        ([str(tmp_path / "absent.log")], "absent.log"),
        ([empty], "is empty"),
        ([empty, "--no-such-option"], "--no-such-option"),
        ([], "required"),
    ]:
        assert main(arguments) == 2
        assert words in capsys.readouterr().err


# -- tables --


def run_lines(inv: int, host: int, device: int | None = None, **more: Any) -> list[str]:
    lines = [span_line("simpler_run", inv=inv, ts=1_000_000 * inv, dur=host, **more)]
    if device is not None:
        name = "simpler_run.runner_run.device_wall"
        lines.insert(0, span_line(name, "clk=dev", inv=inv, depth=2, ts=0, dur=device, **more))
    return lines


def rounds_of(*lines: str) -> str:
    printed = io.StringIO()
    print_rounds_table(bucket_by_hid(group_invocations(parse_spans(lines))), stream=printed)
    return printed.getvalue()


def test_the_rounds_table_leaves_out_columns_without_any_value() -> None:
    table = rounds_of(*run_lines(1, 100_000, 20_000), *run_lines(2, 120_000, 24_000))
    assert table.splitlines()[0] == "  Round      Host (us)   Device (us)"
    assert "Avg Host: 110.0 us" in table
    assert "Avg Device: 22.0 us [2/2]" in table
    assert "Effective" not in table and "Orch" not in table and "Sched" not in table


@pytest.mark.parametrize(("setup", "hid"), [("run", "0"), ("build", "0"), ("build", "b7e2")])
def test_setup_alone_is_no_round(setup: str, hid: str) -> None:
    table = rounds_of(
        span_line(f"chip.prewarm.{setup}", inv=0, hid=hid, ts=10, dur=800_000),
        span_line("chip.prewarm.bind", inv=0, hid=hid, depth=1, ts=20, dur=100_000),
        *run_lines(1, 100_000, 20_000),
    )
    assert "Avg Host: 100.0 us" in table
    assert "Avg Device: 20.0 us [1/1]" in table
    assert "(1 rounds)" in table


def test_of_several_spans_of_a_name_the_earliest_counts() -> None:
    (invocation,) = group_invocations(
        spans_of(
            span_line("simpler_run.bind", depth=1, ts=1_200, dur=20),
            span_line("simpler_run.bind", depth=1, ts=1_100, dur=30, tid=8),
        )
    )
    assert invocation.by_name()["simpler_run.bind"].dur == 30
    assert invocation.root() is None


def test_scheduler_and_foreign_spans_are_in_no_table_of_runs_and_unknown_ones_are_kept() -> None:
    names = ["simpler_run", "node.dispatch", "network2.submit", "ext.app.step", "something.else", "core.pipe"]
    spans = spans_of(*(span_line(name, inv=inv) for inv, name in enumerate(names)))
    kept = ["simpler_run", "something.else", "core.pipe"]
    assert [span.name for span in invocation_spans(spans)] == kept
    assert [span.name for span in strace_timing.legacy_spans(iter(spans))] == kept
    alone = group_invocations(invocation_spans(spans))
    mixed = group_invocations(spans)
    assert to_chrome_trace(alone, bucket_by_hid(alone)) == to_chrome_trace(mixed, bucket_by_hid(mixed))


def test_the_tables_are_those_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        *(line for inv in range(1, 31) for line in run_lines(inv, 100_000 + inv, 20_000 + inv)),
        *run_lines(99, 900_000, 500_000, hid="abcdef0123"),
        span_line("simpler_prewarm.build", inv=0, hid="0"),
    ]
    log = log_file(tmp_path, *lines)
    buckets = bucket_by_hid(group_invocations(parse_spans(lines)))
    for option, show in (
        ([], print_tpot_table),
        (["--rounds-table"], print_rounds_table),
        (["--tree"], print_tree),
    ):
        assert main([log, *option]) == 0
        want = capsys.readouterr().out
        show(buckets)
        assert capsys.readouterr().out == want != ""
        printed = io.StringIO()
        show(buckets, stream=printed)
        assert printed.getvalue() == want
        show({})
        assert capsys.readouterr().out == "No [STRACE] markers found.\n"
    print_tpot_table(buckets, {"abcdef0123": "warm-up"})
    assert "callable hid=abcdef0123 (warm-up) — 1 invocation(s)" in capsys.readouterr().out


def test_a_run_s_metrics_are_us_and_0_for_what_is_not_there() -> None:
    wall = "simpler_run.runner_run.device_wall"
    spans = spans_of(
        *run_lines(1, 100_000, 20_000),
        span_line(f"{wall}.orch", "clk=dev", depth=3, ts=100, dur=5_000),
        span_line(f"{wall}.sched", "clk=dev", depth=3, ts=600, dur=9_000),
        *run_lines(2, 50_500),
    )
    whole, bare = (strace_timing._round_metrics(run) for run in group_invocations(spans))
    assert whole == (100.0, 20.0, 9.5, 5.0, 9.0)
    assert bare == (50.5, 0.0, 0.0, 0.0, 0.0)
    assert len(whole) == len(strace_timing._ROUNDS_TABLE_COLUMNS)
    names = strace_timing._ROUNDS_TABLE_NAMES
    assert group_invocations(spans)[0].by_name()[names["device"]].dur == 20_000
    assert names["host"] == names["run"] == "simpler_run"


# -- invocations --


def test_invocations_are_those_of_a_pid_and_a_number_and_have_their_root() -> None:
    spans = spans_of(
        span_line("simpler_run.bind", pid=8, inv=2, depth=1),
        span_line("simpler_run", pid=8, inv=2),
        span_line("simpler_run", pid=7, inv=3, hid="c1"),
        span_line("simpler_run", pid=7, inv=1, dur=20),
    )
    invocations = group_invocations(spans)
    assert [(run.pid, run.inv, run.hid) for run in invocations] == [(7, 1, "b7e2"), (7, 3, "c1"), (8, 2, "b7e2")]
    assert invocations[2].spans == spans[:2]
    assert invocations[2].spans[0] is spans[0]
    root = invocations[2].root()
    assert root is not None and root is spans[1]
    assert {hid: [run.inv for run in runs] for hid, runs in bucket_by_hid(invocations).items()} == {
        "b7e2": [1, 2],
        "c1": [3],
    }
    assert "inv=1" in repr(invocations[0])


def test_a_number_used_again_by_its_process_is_another_invocation() -> None:
    first = [span_line("simpler_run.bind", depth=1, ts=1_100, dur=10), span_line("simpler_run", ts=1_000)]
    again = [span_line("simpler_run.bind", depth=1, ts=9_100, dur=70), span_line("simpler_run", ts=9_000)]
    runs = group_invocations(spans_of(*first, *again))
    assert [[span.ts for span in run.spans] for run in runs] == [[1_100, 1_000], [9_100, 9_000]]


def test_a_repeated_record_is_one_span_of_its_invocation() -> None:
    lines = [span_line("simpler_run"), span_line("simpler_run")]
    assert len(spans_of(*lines)) == 2
    (run,) = group_invocations(parse_spans(lines))
    assert len(run.spans) == 1


def test_scheduler_spans_of_a_run_s_number_are_a_group_beside_it() -> None:
    spans = spans_of(span_line("node.submit"), span_line("simpler_run"), span_line("ext.app.x"))
    run, beside = group_invocations(spans)
    assert [span.name for span in run.spans] == ["simpler_run"]
    assert [span.name for span in beside.spans] == ["node.submit", "ext.app.x"]
    assert run.root() == spans[1]


def test_an_invocation_may_be_made_and_changed() -> None:
    made = Invocation(7, 1, "b7e2")
    made.spans.extend(spans_of(span_line("other", ts=900), span_line("simpler_run", ts=1_000)))
    root = made.root()
    assert root is not None and root.name == "simpler_run"
    made.hid = "c1"
    assert list(bucket_by_hid([made])) == ["c1"]
    with pytest.raises(TypeError, match="spans are those of parse_spans, not int"):
        group_invocations([7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="invocations are those of group_invocations"):
        to_chrome_trace([7])  # type: ignore[list-item]


def test_a_chrome_trace_has_a_process_for_each_invocation() -> None:
    wall = "simpler_run.runner_run.device_wall"
    spans = spans_of(
        *run_lines(1, 400_000, 20_000, hid="a1"),
        *run_lines(2, 100_000, 10_000),
        *run_lines(3, 100_000, 10_000),
    )
    invocations = group_invocations(spans)
    trace = to_chrome_trace(invocations, bucket_by_hid(invocations))
    assert list(named(trace, "process_name").values()) == [
        "prefill inv=1 (pid=7)",
        "decode inv=2 (pid=7)",
        "decode inv=3 (pid=7)",
    ]
    assert set(named(trace, "thread_name").values()) == {"host", "device (clk=dev)"}
    assert [(event["pid"], event["tid"], event["name"]) for event in drawn(trace)][:2] == [
        (1, 1, wall),
        (1, 0, "simpler_run"),
    ]
    assert drawn(trace)[1]["dur"] == 400.0
    assert drawn(trace)[1]["args"]["hid"] == "a1"
    assert trace["displayTimeUnit"] == "ms"
    # A part of them is called what it is called in the whole.
    part = to_chrome_trace(invocations[1:2], bucket_by_hid(invocations))
    assert list(named(part, "process_name").values()) == ["decode inv=2 (pid=7)"]
    alone = to_chrome_trace(iter(invocations[1:2]))
    assert list(named(alone, "process_name").values()) == ["prefill inv=2 (pid=7)"]


# -- words --


def test_the_first_word_tells_the_family() -> None:
    for level in WorkerLevel:
        family = "node" if level >= WorkerLevel.node else level.name
        assert span_family(f"{level.name}.something") == family
        assert external_producer(f"{level.name}.something") is None
    for name, family in {
        "simpler_run.bind": "chip",
        "run_prepared": "chip",
        "ext.app.step": "external",
        "something.else": "unknown",
        "": "unknown",
    }.items():
        assert span_family(name) == family


def test_the_words_are_those_of_the_worker_levels() -> None:
    words = {*strace_timing._NODE_WORDS, strace_timing._CHIP_WORD, strace_timing._CORE_WORD}
    assert words == {level.name for level in WorkerLevel}


def test_the_leaf_is_a_scheduler_span_s_last_word() -> None:
    assert node_span_leaf("node.dispatch") == "dispatch"
    assert node_span_leaf("network1.submit") == "submit"
    assert node_span_leaf("chip.run") is None
    assert node_span_leaf("ext.node.dispatch") is None


# -- swimlane --


def submit(ts: int, **more: Any) -> str:
    attrs = "run_id=7 task_slot=12 group_index=0 worker_id=3 role=facade"
    return span_line("node.submit", attrs, **{"pid": 41, "tid": 410, "ts": ts, "dur": 20, **more})


def dispatch(ts: int, number: int, role: str = "scheduler") -> str:
    attrs = f"run_id=7 task_slot=12 group_index=0 worker_id=3 dispatch_id={number} role={role}"
    return span_line("node.dispatch", attrs, pid=41, tid=411, ts=ts, dur=10)


def test_lanes_are_the_real_threads_and_an_arrow_leads_from_a_submit_to_its_dispatch() -> None:
    trace = to_host_swimlane(
        spans_of(
            span_line("node.graph_build", "run_id=7 role=facade", pid=41, tid=410, ts=90, dur=900),
            submit(100),
            dispatch(400, 99),
        )
    )
    assert named(trace, "thread_name") == {(41, 410): "orchestrator / facade", (41, 411): "scheduler"}
    assert named(trace, "process_name") == {(41, 0): "simpler node (pid=41)"}
    assert {(event["pid"], event["tid"]) for event in drawn(trace)} == {(41, 410), (41, 411)}
    start, finish = arrows(trace)
    assert (start["ph"], start["tid"], finish["ph"], finish["tid"]) == ("s", 410, "f", 411)
    assert start["id"] == finish["id"] == 1
    assert drawn(trace)[-1]["args"]["dispatch_id"] == 99


def test_a_scheduler_s_lane_is_called_so_whatever_else_it_emits() -> None:
    said = "run_id=7 task_slot=12 worker_id=3 role=worker"
    trace = to_host_swimlane(
        spans_of(
            span_line("node.frame_submit", said, pid=41, tid=411, ts=410, dur=4),
            dispatch(400, 1),
            span_line("node.complete", said, pid=41, tid=411, ts=2_000, dur=30),
        )
    )
    assert named(trace, "thread_name") == {(41, 411): "scheduler"}


def test_the_scheduler_s_loop_lies_on_its_lane_and_in_no_invocation() -> None:
    spans = spans_of(
        span_line("node.scheduler_loop", "role=scheduler drained=2 dispatched=1 spins=917", pid=41, inv=0, hid="0")
    )
    assert invocation_spans(spans) == []
    trace = to_host_swimlane(spans)
    assert list(named(trace, "thread_name").values()) == ["scheduler"]
    (event,) = drawn(trace)
    assert (event["args"]["spins"], event["args"]["drained"]) == (917, 2)


def test_a_dispatch_belongs_to_the_latest_submit_before_it() -> None:
    trace = to_host_swimlane(spans_of(submit(100), dispatch(200, 1), submit(300), dispatch(400, 2)))
    found = arrows(trace)
    assert [event["id"] for event in found] == [1, 1, 2, 2]
    assert [event["ts"] for event in found if event["ph"] == "s"] == [0.12, 0.32]
    assert [event["args"]["dispatch_key"] for event in found[::2]] == [
        "dispatch:41:7:12:0:3:1",
        "dispatch:41:7:12:0:3:2",
    ]


def test_device_spans_are_listed_and_not_drawn() -> None:
    trace = to_host_swimlane(
        spans_of(
            span_line("node.graph_build", "run_id=7", pid=41, ts=1_000_000_000, dur=900),
            span_line("chip.run.runner_run.device_wall", "clk=dev rank=1", pid=52, inv=8, ts=300, dur=40),
        )
    )
    assert [(event["ts"], event["dur"]) for event in drawn(trace)] == [(1_000_000.0, 0.9)]
    assert trace["unalignedDeviceSpans"] == [
        {
            "name": "chip.run.runner_run.device_wall",
            "ts_ns": 300,
            "dur_ns": 40,
            "pid": 52,
            "tid": 52,
            "inv": 8,
            "hid": "b7e2",
            "depth": 0,
            "attrs": {"raw": "clk=dev rank=1", "clk": "dev", "rank": 1},
        }
    ]


def native_run(
    epoch: int,
    bind: tuple[int, int],
    runner: tuple[int, int],
    release: int,
    *,
    dispatch_id: int = 0,
    slot: int = 0,
) -> list[str]:
    """A run that was taken in phases; ``bind`` and ``runner`` are its start and length, ``release`` its claim's."""
    identity = (
        f"run_id={epoch} dispatch_id={dispatch_id} slot_id={slot} generation=1 run_epoch={epoch}"
    )
    return [
        span_line("simpler_run.bind", inv=epoch, depth=1, ts=bind[0], dur=bind[1]),
        span_line("simpler_run.runner_run", inv=epoch, depth=1, ts=runner[0], dur=runner[1]),
        span_line("simpler_run.claim_release", inv=epoch, depth=1, ts=release, dur=5),
        span_line("simpler_run", identity, inv=epoch, ts=bind[0], dur=release + 10 - bind[0]),
    ]


def pipeline() -> list[str]:
    return [
        *native_run(1, (50, 20), (100, 100), 200, slot=0),
        *native_run(2, (150, 30), (240, 100), 340, slot=1),
        *native_run(3, (300, 30), (380, 100), 480, slot=0),
    ]


def test_a_thread_that_interleaves_runs_has_a_lane_for_each_slot() -> None:
    trace = to_host_swimlane(spans_of(*pipeline()))
    assert sorted(named(trace, "thread_name").values()) == ["pipeline slot 0 (tid 7)", "pipeline slot 1 (tid 7)"]
    roots: dict[int, list[tuple[float, float]]] = {}
    for event in drawn(trace):
        assert event["args"]["os_tid"] == 7
        if event["args"]["depth"] == 0:
            roots.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sorted(map(len, roots.values())) == [1, 2]
    for windows in roots.values():
        windows.sort()
        assert all(first[1] <= second[0] for first, second in zip(windows, windows[1:]))


def test_a_thread_that_runs_them_in_turn_keeps_its_own() -> None:
    lines = [*native_run(1, (50, 20), (100, 100), 200), *native_run(2, (300, 20), (350, 100), 460, slot=1)]
    assert set(named(to_host_swimlane(spans_of(*lines)), "thread_name")) == {(7, 7)}


def bind_span() -> list[Span]:
    return spans_of(span_line("simpler_run.bind", depth=1, ts=900, dur=500, inv=5))


def one_pass(*records: dict[str, Any], inv: int = 5) -> list[dict[str, Any]]:
    return [{"pid": 7, "inv": inv, "records": list(records)}]


def test_host_phase_records_are_read_line_by_line_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "host_phase_records.jsonl"
    whole = {"pid": 7, "inv": 1, "records": [{"phase": "args", "start_ns": 10, "end_ns": 20}], "more": [1]}
    path.write_text(
        "\n".join(
            [
                json.dumps(whole),
                "null",
                "[1, 2]",
                "42",
                '"text"',
                '{"pid": 7, "inv": 2, "records": "none"}',
                "",
                '{"pid": 7, "inv": 4, "records": []}',
                '{"pid": 7, "inv": 3, "records": [',
            ]
        )
    )
    assert load_host_phase_records([path]) == [whole, {"pid": 7, "inv": 4, "records": []}]
    with pytest.raises(FileNotFoundError):
        load_host_phase_records([str(tmp_path / "absent")])


def test_host_phase_records_nest_below_their_bind_span() -> None:
    bind = bind_span()
    passes = one_pass(
        {"phase": "args", "start_ns": 900, "end_ns": 1_000, "detail": 4096, "tid": 7},
        {"phase": "record_in_graph_task", "start_ns": 1_050, "end_ns": 1_130, "detail": 4, "tid": 42},
        {"phase": "graph_submit", "start_ns": 1_100, "end_ns": 1_150, "detail": 77, "tid": 7},
    )
    phases, orphaned, covered = host_record_spans(bind, passes)
    assert orphaned == 0
    assert covered == frozenset({(7, 5)})
    found = {phase.name: (phase.depth, phase.tid, phase.ts, phase.dur) for phase in phases}
    assert found == {
        "simpler_run.bind.args": (2, 7, 900, 100),
        "simpler_run.bind.host_orch.record_in_graph_task": (3, 42, 1_050, 80),
        "simpler_run.bind.host_orch.graph_submit": (3, 7, 1_100, 50),
    }
    assert phases[0].attributes["detail"] == 4096
    assert phases[0].attributes["src"] == "host_phase_records"
    lanes = named(to_host_swimlane(bind + phases), "thread_name")
    assert lanes == {(7, 7): "graph submit main", (7, 42): "graph record worker"}


def test_an_older_word_for_recording_has_the_recorder_s_lane() -> None:
    bind = bind_span()
    phases, _, covered = host_record_spans(
        bind, one_pass({"phase": "record_node", "start_ns": 1_000, "end_ns": 1_080, "tid": 42})
    )
    assert covered == frozenset()
    assert named(to_host_swimlane(bind + phases), "thread_name")[7, 42] == "graph record worker"


def test_records_without_a_thread_stay_on_the_one_that_binds() -> None:
    bind = bind_span()
    words = ("record_in_graph_task", "build_definition", "graph_submit")
    records = [
        {"phase": phase, "start_ns": 1_000 + 100 * at, "end_ns": 1_080 + 100 * at} for at, phase in enumerate(words)
    ]
    phases, orphaned, _ = host_record_spans(bind, one_pass(*records))
    assert (orphaned, {phase.tid for phase in phases}) == (0, {7})
    assert named(to_host_swimlane(bind + phases), "thread_name") == {(7, 7): "graph submit main"}


def test_a_pass_without_a_bind_span_is_left_out_and_counted() -> None:
    records = {"phase": "args", "start_ns": 900, "end_ns": 1_000}
    assert host_record_spans(bind_span(), one_pass(records, inv=999)) == ([], 1, frozenset())


# -- overlap --


def test_a_run_s_identity_is_what_its_root_says() -> None:
    first, second = assert_native_overlap(parse_spans(pipeline()))
    assert [run.sequence for run in (*first, *second)] == [1, 2, 2, 3]
    run = first.predecessor
    assert (run.pid, run.inv, run.run_id, run.dispatch_id) == (7, 1, 1, 0)
    assert (run.run_epoch, run.slot_id, run.generation) == (1, 0, 1)
    assert first.successor == second.predecessor != run


def test_a_binding_that_outlasts_the_run_before_overlaps_but_is_not_hidden() -> None:
    lines = [*native_run(1, (50, 20), (100, 100), 200), *native_run(2, (190, 40), (240, 100), 340)]
    assert len(assert_native_overlap(parse_spans(lines))) == 1
    with pytest.raises(NativeOverlapError, match="not fully hidden"):
        assert_native_overlap(parse_spans(lines), require_hidden=True)


@pytest.mark.parametrize(
    ("bind", "release", "why"),
    [
        ((210, 20), 200, "did not overlap"),
        ((200, 20), 200, "did not overlap"),
        ((150, 30), 250, "reordered before the claim release"),
    ],
)
def test_what_is_no_pipeline_is_refused(bind: tuple[int, int], release: int, why: str) -> None:
    lines = [*native_run(1, (50, 20), (100, 100), release), *native_run(2, bind, (240, 100), 400)]
    with pytest.raises(NativeOverlapError, match=why):
        assert_native_overlap(parse_spans(lines))


def test_runs_are_ordered_by_dispatch_where_there_is_one() -> None:
    lines = [
        *native_run(1, (50, 20), (100, 100), 200, dispatch_id=10),
        *native_run(2, (150, 30), (240, 100), 340, dispatch_id=11),
    ]
    (pair,) = assert_native_overlap(parse_spans(lines))
    assert (pair.predecessor.sequence, pair.successor.sequence) == (10, 11)
    backwards = [line.replace("dispatch_id=10", "dispatch_id=12") for line in lines]
    with pytest.raises(NativeOverlapError, match="launch order is not monotonic"):
        assert_native_overlap(parse_spans(backwards))


def test_a_run_that_was_not_taken_in_phases_takes_no_part() -> None:
    lines = [*pipeline(), span_line("simpler_run", inv=99, ts=10, dur=5)]
    assert len(assert_native_overlap(parse_spans(lines))) == 2


def test_one_run_proves_nothing() -> None:
    with pytest.raises(NativeOverlapError, match="at least two complete native runs"):
        assert_native_overlap(parse_spans(pipeline()[:4]))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (" slot_id=0", "", "missing identity field"),
        ("run_id=1", "run_id=one", "non-integer identity"),
        ("simpler_run.claim_release", "simpler_run.other", "is missing span"),
    ],
)
def test_runs_that_cannot_be_told_apart_are_refused(old: str, new: str, why: str) -> None:
    lines = pipeline()
    lines[:4] = [line.replace(old, new) for line in lines[:4]]
    with pytest.raises(NativeOverlapError, match=why):
        assert_native_overlap(parse_spans(lines))


def test_the_claim_release_is_a_child_of_the_run_and_takes_nothing_from_it() -> None:
    (run,) = group_invocations(invocation_spans(parse_spans(pipeline()[:4])))
    root = run.root()
    assert root is not None and (root.name, root.dur) == ("simpler_run", 160)
    assert run.by_name()["simpler_run.claim_release"].depth == 1


def test_a_failed_proof_exits_with_2_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "trace.json"
    log = log_file(tmp_path, *pipeline()[:4])
    assert main([log, "--assert-native-overlap", "--trace-out", picture]) == 2
    assert "native overlap assertion failed: need at least two complete native runs" in capsys.readouterr().err
    assert not picture.exists()
    assert main([log_file(tmp_path, *pipeline()), "--assert-native-overlap"]) == 0
    assert "Native overlap verified for 2 adjacent dispatch pair(s)." in capsys.readouterr().out


# -- foreign spans --


def test_the_second_word_of_a_foreign_name_is_its_producer() -> None:
    assert external_producer("ext.app.decode") == external_producer("ext.app.attention.qk") == "app"
    for malformed in ("ext.app", "ext.", "ext..decode", "ext.app.", "ext.app..detail"):
        assert span_family(malformed) == "external"
        assert external_producer(malformed) is None


def test_a_foreign_name_cannot_pose_as_a_level_of_ours() -> None:
    for word in (*(level.name for level in WorkerLevel), "host"):
        assert span_family(f"ext.{word}.x") == "external"
        assert external_producer(f"ext.{word}.x") == word
        assert node_span_leaf(f"ext.{word}.x") is None


def test_foreign_spans_make_no_invocation_and_are_in_no_trace_of_them() -> None:
    spans = spans_of(
        span_line("simpler_run", "run_id=7 slot_id=0", inv=7),
        span_line("ext.app.decode", inv=0, ts=1_020, dur=80),
        span_line("ext.app.attention", inv=0, ts=1_040, dur=20),
    )
    invocations = group_invocations(invocation_spans(spans))
    assert [(run.pid, run.inv) for run in invocations] == [(7, 7)]
    trace = to_chrome_trace(invocations, bucket_by_hid(invocations))
    assert {event["name"] for event in drawn(trace)} == {"simpler_run"}


def test_a_foreign_process_is_on_the_swimlane_under_its_producer_s_name() -> None:
    # Whatever they say of themselves, no lane is called as one of ours.
    trace = to_host_swimlane(
        spans_of(
            span_line("ext.app.decode", "role=facade", pid=90, inv=0),
            span_line("ext.app.step", "role=scheduler worker_id=3", pid=90, tid=91, inv=0),
        )
    )
    assert {event["name"] for event in drawn(trace)} == {"ext.app.decode", "ext.app.step"}
    assert named(trace, "process_name") == {(90, 0): "external producer app (pid=90)"}
    assert named(trace, "thread_name") == {(90, 90): "ext app", (90, 91): "ext app"}


def test_a_process_that_holds_both_is_ours_and_a_device_span_proves_that_too() -> None:
    foreign = span_line("ext.app.decode", pid=41, tid=411, inv=0)
    shared = to_host_swimlane(spans_of(span_line("node.graph_build", "role=facade", pid=41), foreign))
    assert named(shared, "process_name") == {(41, 0): "simpler node (pid=41)"}
    assert named(shared, "thread_name") == {(41, 41): "orchestrator / facade", (41, 411): "ext app"}
    wall = span_line("simpler_run.runner_run.device_wall", "clk=dev", pid=41, depth=2)
    proved = to_host_swimlane(spans_of(foreign, wall))
    assert named(proved, "process_name") == {(41, 0): "simpler chip child (pid=41)"}
    assert [event["name"] for event in drawn(proved)] == ["ext.app.decode"]


def test_foreign_attributes_reshape_no_lane_and_no_arrow_of_ours() -> None:
    lines = [*pipeline(), submit(100), dispatch(400, 1)]
    ours = to_host_swimlane(spans_of(*lines))
    claim = "run_id=7 task_slot=12 slot_id=99 role=facade"
    theirs = span_line("ext.app.decode", claim, pid=7, tid=7, inv=0, ts=60, dur=400)
    mixed = to_host_swimlane(spans_of(*lines, theirs))
    assert arrows(mixed) == arrows(ours)
    lanes = named(mixed, "thread_name")
    assert lanes.pop((7, 7)) == "ext app"
    assert sorted(lanes.values()) == sorted(named(ours, "thread_name").values())
    (event,) = (event for event in drawn(mixed) if event["name"] == "ext.app.decode")
    assert event["tid"] == 7


def test_the_command_shows_foreign_spans_on_the_swimlane_and_in_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_file(tmp_path, span_line("simpler_run", inv=7), span_line("ext.app.decode", tid=8, inv=0))
    swimlane, trace = tmp_path / "swimlane.json", tmp_path / "trace.json"
    lanes = ["--trace-lanes", "invocation"]
    assert main([log, "--swimlane", swimlane, "--trace-out", trace, *lanes]) == 0
    assert "ext.app" not in capsys.readouterr().out
    assert {event["name"] for event in drawn(json.loads(swimlane.read_text()))} == {"simpler_run", "ext.app.decode"}
    assert {event["name"] for event in drawn(json.loads(trace.read_text()))} == {"simpler_run"}
