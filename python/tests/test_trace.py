"""Spans of Python programs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from child_python import LIMIT_S, environment, logs, only_log, popen, run, spans

from simpler import trace

#: What children begin with: spans go to the directory that is their first argument.
BEGIN = """
import asyncio, contextvars, gc, os, sys, threading, time, weakref
from simpler import trace
from simpler._extension import native
native._set_host_log_directory(sys.argv[1])
native._initialize_host_log(25)
"""


def told(tmp_path: Path, script: str) -> list[dict[str, str]]:
    """Run ``script`` with a host log and return its spans, in the order in which they ended."""
    run(BEGIN + inspect.cleandoc(script), tmp_path)
    return spans(only_log(tmp_path))


def names_and_depths(found: list[dict[str, str]]) -> list[tuple[str, int]]:
    return [(span["name"].removeprefix("ext.app."), int(span["depth"])) for span in found]


class TestNames:
    def test_a_span_is_the_producers(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            with trace.span("phase"):
                pass
            with trace.producer("decoder").span("layer.attention", index=3):
                pass
            """,
        )
        assert [(span["name"], span["attrs"]) for span in found] == [
            ("ext.app.phase", ""),
            ("ext.decoder.layer.attention", "index=3"),
        ]

    def test_none_can_pose_as_one_of_the_runtimes(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            for name in ("simpler_run", "node.dispatch", "chip.run", "ext.other.span", "a b=c[%]", "ä", "\\n", "x" * 99):
                with trace.producer("p").span(name):
                    pass
            """,
        )
        assert [span["name"] for span in found] == [
            "ext.p.simpler_run",
            "ext.p.node.dispatch",
            "ext.p.chip.run",
            "ext.p.ext.other.span",
            "ext.p.a%20b%3Dc%5B%25%5D",
            "ext.p.%C3%A4",
            "ext.p.%0A",
            "ext.p." + "x" * 57 + "~",
        ]

    @pytest.mark.parametrize("name", ["", "a.b", "with space", "a=b", "ä", "x" * 29, "p\n", None, 7])
    def test_a_producer_is_one_word(self, name: str) -> None:
        with pytest.raises(ValueError, match="a producer is one word of up to 28 ASCII letters"):
            trace.producer(name)
        assert trace.producer("a-b_C9" + "x" * 22)

    @pytest.mark.parametrize("name", ["", ".leading"])
    def test_a_span_has_a_name(self, name: str) -> None:
        with pytest.raises(ValueError, match="a span needs a name"):
            trace.span(name)
        with pytest.raises(ValueError, match="a span needs a name"):
            trace.producer("p").span(name)

    def test_a_decorator_without_a_name_is_refused_with_a_hint(self) -> None:
        with pytest.raises(TypeError, match=r'as in @trace.span\("name"\), not <function'):

            @trace.span  # type: ignore[arg-type]
            def work() -> None: ...

    def test_there_is_no_instant(self) -> None:
        assert set(trace.__all__) == {"Producer", "Span", "enabled", "producer", "span"}
        assert not hasattr(trace, "instant")


class TestAttributes:
    def test_pairs_keep_their_grammar(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            class Value:
                def __str__(self):
                    return "its text"
            with trace.span("s", name="n", self=1, none=None, f=0.5, text="a b=c", value=Value(), clk="dev",
                            **{"a key": True, "k=v": "x\\ny", "": "ä\\udcff"}):
                pass
            """,
        )
        assert found[0]["attrs"] == (
            "name=n self=1 none=None f=0.5 text=a%2520b=c value=its%2520text _clk=dev "
            "a_key=True k_v=x%0Ay _=%C3%A4\\udcff"
        )

    def test_too_many_are_cut_and_marked(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            with trace.span("s", text="x" * 10_000_000, more=1):
                pass
            with trace.span("s", **{f"key{index}": index for index in range(1000)}):
                pass
            with trace.span("s", text="ä" * 500):
                pass
            """,
        )
        assert all(len(span["attrs"]) <= 192 and span["attrs"].endswith("~") for span in found)
        assert len(found[0]["attrs"]) == 192

    def test_they_are_neither_asked_nor_measured_when_they_need_not_be(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            class Value:
                def __str__(self):
                    asked.append(1)
                    time.sleep(0.2)
                    return "slow"
            asked = []
            native._initialize_host_log(30)
            with trace.span("muted", value=Value()):
                pass
            assert not asked and not trace.enabled() and not trace.producer("p").enabled()
            native._initialize_host_log(25)
            with trace.span("heard", value=Value()):
                assert asked == [1]
            assert asked == [1] and trace.enabled() and trace.producer("p").enabled()
            """,
        )
        assert [(span["name"], span["attrs"]) for span in found] == [("ext.app.heard", "value=slow")]
        assert int(found[0]["dur"]) < 200_000_000

    def test_a_value_that_fails_costs_its_text_and_an_interruption_goes_on(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            class Value:
                def __init__(self, error):
                    self.error = error
                def __str__(self):
                    raise self.error
            with trace.span("s", a=Value(ValueError("no")), b=2):
                pass
            try:
                with trace.span("interrupted", a=Value(KeyboardInterrupt())):
                    sys.exit("entered")
            except KeyboardInterrupt:
                pass
            with trace.span("outermost"):
                pass
            """,
        )
        assert [(span["name"], span["attrs"], span["depth"]) for span in found] == [
            ("ext.app.s", "a=~ b=2", "0"),
            ("ext.app.outermost", "", "0"),
        ]


class TestTime:
    def test_a_span_lies_where_the_logs_clock_says(self, tmp_path: Path) -> None:
        done = run(
            BEGIN
            + """
before = native._monotonic_now_ns()
with trace.span("s"):
    begun = native._monotonic_now_ns()
    time.sleep(0.01)
    ending = native._monotonic_now_ns()
print(before, begun, ending, native._monotonic_now_ns(), os.getpid(), threading.get_native_id())
""",
            tmp_path,
        )
        before, begun, ending, after, pid, tid = map(int, done.stdout.split())
        (span,) = spans(only_log(tmp_path))
        start, end = int(span["ts"]), int(span["ts"]) + int(span["dur"])
        assert before <= start <= begun and ending <= end <= after
        assert (int(span["pid"]), int(span["tid"])) == (pid, tid)

    def test_none_is_zero_long(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            for _ in range(1000):
                with trace.span("checkpoint", token=17):
                    pass
            """,
        )
        assert len(found) == 1000 and all(int(span["dur"]) > 0 for span in found)

    def test_a_span_that_ends_by_an_exception_is_told_and_the_exception_goes_on(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            @trace.span("function")
            def work():
                with trace.span("block"):
                    raise ValueError("boom")
            try:
                work()
            except ValueError as error:
                assert str(error) == "boom"
            else:
                sys.exit("the exception was lost")
            """,
        )
        assert names_and_depths(found) == [("block", 1), ("function", 0)]


class TestDecorator:
    def test_each_call_is_a_span_and_is_muted_by_itself(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            '''
            @trace.producer("p").span("work", role="test")
            def work(value, *, more=0):
                """Doc."""
                return value + more
            assert (work.__name__, work.__doc__) == ("work", "Doc.")
            assert work(1, more=2) == 3
            native._initialize_host_log(30)
            assert work(2) == 2
            native._initialize_host_log(25)
            assert work(3) == 3
            ''',
        )
        assert [(span["name"], span["attrs"]) for span in found] == [("ext.p.work", "role=test")] * 2

    def test_calls_nest_in_each_other(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            @trace.span("factorial")
            def factorial(n):
                return n * factorial(n - 1) if n else 1
            assert factorial(3) == 6
            """,
        )
        assert names_and_depths(found) == [("factorial", depth) for depth in (3, 2, 1, 0)]

    def test_a_coroutine_is_timed_to_its_end(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            import inspect
            @trace.span("work")
            async def work(value):
                await asyncio.sleep(0.02)
                if not value:
                    raise ValueError("boom")
                return value
            assert inspect.iscoroutinefunction(work)
            assert asyncio.run(work(7)) == 7
            try:
                asyncio.run(work(0))
            except ValueError:
                pass
            else:
                sys.exit("the exception was lost")
            native._initialize_host_log(30)
            assert asyncio.run(work(8)) == 8
            """,
        )
        assert [span["name"] for span in found] == ["ext.app.work"] * 2
        assert all(int(span["dur"]) >= 19_000_000 for span in found)

    def test_a_generator_is_refused(self) -> None:
        with pytest.raises(TypeError, match="it would hold the time of who consumes it; use `with` inside it"):

            @trace.span("s")
            def generate() -> object:
                yield 1

        with pytest.raises(TypeError, match=r"generate_later\(\) cannot be a span"):

            @trace.span("s")
            async def generate_later() -> object:
                yield 1

    @pytest.mark.parametrize("what", [int, 7, classmethod(lambda _: None)])
    def test_what_is_no_function_is_refused(self, what: object) -> None:
        with pytest.raises(TypeError, match="only a function can be made a span"):
            trace.span("s")(what)  # type: ignore[arg-type]


class TestNesting:
    def test_a_span_inside_another_is_one_deeper(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            with trace.span("a"):
                with trace.span("b"), trace.span("c"):
                    pass
                with trace.span("d"):
                    pass
            with trace.span("e"):
                pass
            """,
        )
        assert names_and_depths(found) == [("c", 2), ("b", 1), ("d", 1), ("a", 0), ("e", 0)]
        assert {(span["inv"], span["hid"]) for span in found} == {("0", "0")}

    def test_what_is_muted_is_not_around_anything(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            with trace.span("a"):
                native._initialize_host_log(30)
                with trace.span("muted"):
                    native._initialize_host_log(25)
                    with trace.span("b"):
                        pass
                with trace.span("c"):
                    native._initialize_host_log(30)
                native._initialize_host_log(25)
            """,
        )
        # The one that was muted at its end is not told either.
        assert names_and_depths(found) == [("b", 1), ("a", 0)]

    def test_threads_do_not_nest_in_each_other(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            def work():
                with trace.span("in a thread"):
                    barrier.wait(60)
            barrier = threading.Barrier(5)
            with trace.span("outside"):
                threads = [threading.Thread(target=work) for _ in range(4)]
                for thread in threads: thread.start()
                barrier.wait(60)
                for thread in threads: thread.join()
            """,
        )
        assert sorted(names_and_depths(found)) == [("in%20a%20thread", 0)] * 4 + [("outside", 0)]
        assert len({span["tid"] for span in found}) == 5

    def test_what_a_thread_does_for_a_context_is_inside_it(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            @trace.span("worker")
            def work():
                pass
            @trace.span("task")
            async def task():
                await asyncio.to_thread(work)
            asyncio.run(task())
            """,
        )
        assert names_and_depths(found) == [("worker", 1), ("task", 0)]
        assert found[0]["tid"] != found[1]["tid"]

    def test_tasks_that_take_turns_do_not_nest_in_each_other(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            async def task(name, until):
                with trace.span(name):
                    with trace.span(name + ".inner"):
                        await until.wait()
            async def main():
                first, second = asyncio.Event(), asyncio.Event()
                with trace.span("main"):
                    tasks = [asyncio.create_task(task("a", first)), asyncio.create_task(task("b", second))]
                    await asyncio.sleep(0)
                    first.set()
                    await tasks[0]
                    with trace.span("between"):
                        second.set()
                        await tasks[1]
            asyncio.run(main())
            with trace.span("after"):
                pass
            """,
        )
        assert names_and_depths(found) == [
            ("a.inner", 2),
            ("a", 1),
            ("b.inner", 2),
            ("b", 1),
            ("between", 1),
            ("main", 0),
            ("after", 0),
        ]

    def test_a_task_that_outlives_the_span_around_it_stands_in_the_next(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            async def task(go):
                await go.wait()
                with trace.span("late"):
                    pass
            async def main():
                go = asyncio.Event()
                with trace.span("outer"):
                    with trace.span("inner"):
                        late = asyncio.create_task(task(go))
                        await asyncio.sleep(0)
                    go.set()
                    await late
            asyncio.run(main())
            """,
        )
        assert names_and_depths(found) == [("inner", 1), ("late", 1), ("outer", 0)]

    def test_a_generator_may_end_its_span_inside_another(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            def generate():
                with trace.span("generator"):
                    yield 1
                    yield 2
            values = generate()
            next(values)
            with trace.span("consumer"):
                assert list(values) == [2]
                with trace.span("inside"):
                    pass
            with trace.span("after"):
                pass
            """,
        )
        # What was around the consumer when it began, a generator, is not there any more when the last begins.
        assert names_and_depths(found) == [("generator", 0), ("inside", 2), ("consumer", 1), ("after", 0)]

    def test_a_span_may_end_in_another_context_or_on_another_thread(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            def generate():
                with trace.span("generator"):
                    yield 1
            values = generate()
            contextvars.copy_context().run(next, values)
            contextvars.copy_context().run(values.close)
            values = generate()
            next(values)
            thread = threading.Thread(target=values.close)
            thread.start(); thread.join()
            with trace.span("after"):
                pass
            """,
        )
        assert names_and_depths(found) == [("generator", 0), ("generator", 0), ("after", 0)]
        assert found[0]["tid"] == found[2]["tid"] != found[1]["tid"]

    def test_a_generator_that_is_left_behind_ends_its_span(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            def generate():
                with trace.span("generator"):
                    yield 1
            next(generate())
            gc.collect()
            with trace.span("after"):
                pass
            """,
        )
        assert names_and_depths(found) == [("generator", 0), ("after", 0)]


class TestReuse:
    def test_a_span_may_be_entered_again_while_it_is_open(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            phase = trace.span("phase")
            with phase as entered:
                assert entered is phase
                with phase, phase:
                    pass
            with phase:
                pass
            """,
        )
        assert names_and_depths(found) == [("phase", 2), ("phase", 1), ("phase", 0), ("phase", 0)]

    def test_a_span_may_be_shared_by_threads(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            sys.setswitchinterval(1e-6)
            phase = trace.span("phase")
            def work():
                barrier.wait(60)
                for _ in range(100):
                    with phase:
                        with phase:
                            pass
            barrier = threading.Barrier(8)
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert native._host_log_dropped_records() == 0
            """,
        )
        assert sorted(names_and_depths(found)) == [("phase", 0)] * 800 + [("phase", 1)] * 800
        per_thread = {tid: [span["depth"] for span in found if span["tid"] == tid] for tid in {s["tid"] for s in found}}
        assert all(depths == ["1", "0"] * 100 for depths in per_thread.values()) and len(per_thread) == 8

    def test_a_muted_entry_does_not_end_the_one_around_it(self, tmp_path: Path) -> None:
        found = told(
            tmp_path,
            """
            phase = trace.span("phase")
            with phase:
                native._initialize_host_log(30)
                with phase:
                    native._initialize_host_log(25)
                with trace.span("inside"):
                    pass
            """,
        )
        assert names_and_depths(found) == [("inside", 1), ("phase", 0)]

    def test_nothing_is_kept_of_a_span_that_has_ended_or_is_left_open(self) -> None:
        run(
            BEGIN.replace("native._set_host_log_directory(sys.argv[1])\n", "")
            + """
class Value:
    pass
for end in (True, False):
    value = Value()
    watched = weakref.ref(value)
    def use():
        span = trace.span("s", value=value)
        contextvars.copy_context().run(span.__enter__)
        if end:
            span.__exit__(None, None, None)
    use()
    del value, use
    gc.collect()
    assert watched() is None, end
"""
        )


class TestRuns:
    def test_a_span_of_a_child_of_fork_is_the_childs(self, tmp_path: Path) -> None:
        run(
            BEGIN
            + """
native._prepare_host_log_to_fork()
with trace.span("over the fork"):
    if (pid := os.fork()) == 0:
        native._start_host_log_writer()
        with trace.span("in the child"):
            pass
    else:
        os.waitpid(pid, 0)
if pid == 0:
    os._exit(0)
""",
            tmp_path,
        )
        by_process = sorted((names_and_depths(spans(records)) for records in logs(tmp_path).values()), key=len)
        # One that parent and child both end is one record of each.
        assert by_process == [
            [("over%20the%20fork", 0)],
            [("in%20the%20child", 1), ("over%20the%20fork", 0)],
        ]

    def test_open_spans_are_seen_from_outside(self, tmp_path: Path) -> None:
        stacks = [sys.executable, "-m", "simpler", "stacks"]
        asked = subprocess.run([*stacks, "--help"], env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
        if asked.returncode != 0:
            pytest.skip(f"skipped: `python -m simpler stacks` is not there: {asked.stderr.strip()[-200:]}")
        script = BEGIN + """
with trace.span("outer"), trace.span("hangs"):
    print("open", flush=True)
    sys.stdin.read()
"""
        with popen(script, tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout and child.stdin
            assert child.stdout.readline() == b"open\n"
            done = subprocess.run(
                [*stacks, str(child.pid)], env=environment(), capture_output=True, text=True, timeout=LIMIT_S
            )
            child.stdin.close()
        assert done.returncode == 0, done.stderr
        assert "ext.app.outer" in done.stdout and "ext.app.hangs" in done.stdout
