"""Workers of every level: what runs, where, and what the log then holds."""

import os
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import pytest
from kernels import failing, sleep, vector_add
from processes import in_own_process, log_of, spans, until

import simpler
from simpler import CallConfig, ChipWorker, DistributedWorker, In, InOut, Out, Worker, WorkerLevel

_STAGES = {"simpler_run", "simpler_run.bind", "simpler_run.runner_run", "simpler_run.validate"}


def _operands(count: int = 1000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.arange(count, dtype=np.float32),
        np.full(count, 0.5, np.float32),
        np.full(count, np.nan, np.float32),
    )


@pytest.mark.parametrize("runtime", ["tmr", "hbg", "tensormap_and_ringbuffer", "host_build_graph"])
@pytest.mark.parametrize("platform", ["a2a3sim", "a5sim"])
@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_a_run_gives_none_and_its_results_and_spans(
    level: int, platform: str, runtime: str, tmp_path: pathlib.Path
) -> None:
    add = vector_add()
    a, b, c = _operands()
    with Worker(level=level, platform=platform, runtime=runtime, log_dir=tmp_path) as worker:
        worker.register(add)
        assert worker.run(add, a, b, c, 4) is None  # type: ignore[func-returns-value]
        pids = worker.pids
    np.testing.assert_array_equal(c, a + b)
    chip = pids[0] if level == 3 else os.getpid()
    of_run = [span for span in spans(tmp_path) if span.hid == add.hid and span.pid == chip]
    assert {span.name for span in of_run} >= _STAGES
    assert len({span.inv for span in of_run}) == 1
    if level == 3:
        of_parent = {span.name for span in spans(tmp_path) if span.pid == os.getpid()}
        assert of_parent >= {"node.submit", "node.dispatch", "node.complete"}


@in_own_process
def test_callables_come_before_and_after_the_start_and_go(tmp_path: pathlib.Path) -> None:
    add, fail = vector_add(), failing()
    a, b, c = _operands()
    worker = DistributedWorker(chips=2, log_dir=tmp_path)
    assert worker.register(add) is add
    with worker:
        worker.register(fail)
        for chip in range(2):
            worker.run(add, a, b, c, 1, chip=chip)
            with pytest.raises(simpler.RunError, match="the orchestration returned 7") as caught:
                worker.run(fail, chip=chip)
            assert (caught.value.code, caught.value.child, caught.value.what) == (-9, f"chip {chip}", "run")
        worker.unregister(fail)
        with pytest.raises(simpler.WorkerError, match="is none of this worker's"):
            worker.run(fail)
        worker.run(add, a, b, c, 1)


@in_own_process
def test_runs_on_two_chips_are_in_flight_at_once_and_the_free_one_is_found() -> None:
    wait = sleep()
    counts = [np.zeros(1, np.int32) for _ in range(2)]
    with Worker(chips=2) as worker:
        worker.register(wait)
        tickets = [worker.submit(wait, count, 300) for count in counts]
        assert [ticket.child for ticket in tickets] == ["chip 0", "chip 1"]
        with pytest.raises(simpler.BusyError, match="chip 0 is busy with run"):
            worker.submit(wait, counts[0], 1)
        with pytest.raises(TimeoutError, match="on chip 0 has not ended within 0.01 s"):
            tickets[0].wait(0.01)
        assert not tickets[0].done()
        for ticket in tickets:
            ticket.wait()
            ticket.wait()
            assert ticket.done()
    assert [count[0] for count in counts] == [1, 1]


@in_own_process
def test_a_run_whose_ticket_is_gone_is_waited_for_when_its_chip_is_wanted() -> None:
    wait, fail = sleep(), failing()
    count = np.zeros(1, np.int32)
    with Worker() as worker:
        worker.register(wait)
        worker.register(fail)
        del_me = worker.submit(wait, count, 100)
        del del_me
        worker.submit(fail)
        worker.run(wait, count, 0)
    assert count[0] == 1, "what nobody waited for was not brought back"


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_memory_of_a_chip_is_filled_used_and_read_back(level: int) -> None:
    add = vector_add()
    a, b, c = _operands(1 << 16)
    # Less than the arrays: they go in parts.
    with Worker(level=level, staging_bytes=64 << 10) as worker:
        worker.register(add)
        on_chip = [worker.malloc(array.nbytes) for array in (a, b, c)]
        for memory, array in zip(on_chip, (a, b, c), strict=True):
            worker.copy_to(memory, array)
        wrap = (In, In, Out)
        worker.run(add, *(use(memory, dtype="float32") for use, memory in zip(wrap, on_chip, strict=True)), 4)
        worker.copy_from(c, on_chip[2])
        np.testing.assert_array_equal(c, a + b)
        tail = np.zeros(2, np.float32)
        worker.copy_from(tail, on_chip[2], offset=on_chip[2].nbytes - tail.nbytes)
        np.testing.assert_array_equal(tail, c[-2:])
        with pytest.raises(simpler.ArgumentError, match="are not inside"):
            worker.copy_from(tail, on_chip[2], offset=on_chip[2].nbytes - 4)
        for memory in on_chip:
            worker.free(memory)
        with pytest.raises(simpler.ArgumentError, match="cannot be used any more"):
            worker.copy_from(c, on_chip[2])
        with pytest.raises(simpler.ArgumentError, match=r"\(freed\)"):
            worker.run(add, *(use(memory, dtype="float32") for use, memory in zip(wrap, on_chip, strict=True)), 4)


@in_own_process
def test_device_memory_says_which_chip_a_run_goes_to() -> None:
    wait = sleep()
    with Worker(chips=2) as worker, Worker(level=2) as other:
        worker.register(wait)
        memory = worker.malloc(4, chip=1)
        worker.copy_to(memory, np.zeros(1, np.int32))
        ticket = worker.submit(wait, InOut(memory, dtype="int32"), 0)
        ticket.wait()
        assert ticket.child == "chip 1"
        with pytest.raises(simpler.ArgumentError, match="its device memory is on chip 1"):
            worker.submit(wait, memory, 0, chip=0)
        with pytest.raises(simpler.ArgumentError, match="is another worker's"):
            other.run(wait, memory, 0)


def _scale(array: np.ndarray, factor: float, *, note: str = "") -> None:
    array *= factor


def _raise(kind: str) -> None:
    if kind == "value":
        raise ValueError("nothing good")
    if kind == "exit":
        sys.exit(3)
    raise RuntimeError("long " * 1000)


def _say(text: str) -> None:
    print(text)
    print(os.getpid(), file=sys.stderr)


@in_own_process
def test_sub_workers_run_python_functions_on_shared_and_staged_arrays(tmp_path: pathlib.Path) -> None:
    worker = Worker(chips=0, subs=2, log_dir=tmp_path)
    shared = worker.shared((2, 3), np.float64)
    shared[:] = 1.0
    own, kept = np.ones(3, np.int64), np.ones(3, np.int64)
    scale = worker.register(_scale)
    assert worker.register(_scale) is scale, "the same function is the same callable"
    pids: list[int] = []
    record = worker.register(lambda array, word: array.__setitem__(0, os.getpid() if word == "pid" else -1))
    with worker:
        for sub in range(2):
            worker.run(_scale, shared, 2.0, sub=sub)
        worker.run(scale, own, 3)
        worker.run(scale, Out(kept), 3)
        pid = np.zeros(1, np.int64)
        for sub in range(2):
            worker.run(record, pid, "pid", sub=sub)
            pids.append(int(pid[0]))
        assert pids == worker.pids
        with pytest.raises(simpler.WorkerError, match="is none that chip 0 runs|there is no chip 0"):
            worker.run(scale, own, 1, chip=0)
        with pytest.raises(simpler.WorkerError, match="from the fork, or not at all"):
            worker.register(_raise)
        with pytest.raises(simpler.WorkerError, match="is not registered"):
            worker.run(_raise, "value")
    assert (shared == 4.0).all()
    assert (own == 3).all()
    hids = {span.hid for span in spans(tmp_path) if span.name == "node.submit"}
    assert hids == {scale.hid, record.hid}


@in_own_process
def test_an_exception_in_a_sub_worker_arrives_with_its_last_lines_and_the_sub_goes_on() -> None:
    worker = Worker(chips=0, subs=1)
    worker.register(_raise)
    worker.register(_scale)
    array = np.ones(1)
    with worker:
        pid = worker.pids[0]
        with pytest.raises(simpler.RunError) as caught:
            worker.run(_raise, "value")
        text = str(caught.value)
        assert f"sub worker 0 (pid {pid}): run failed with code -1: " in text
        assert "._raise: ValueError: nothing good" in text
        assert text.splitlines()[-1].endswith('in _raise: raise ValueError("nothing good")')
        assert "test_worker.py:" in text
        assert "_child.py" not in text
        with pytest.raises(simpler.RunError, match="_raise: SystemExit: 3"):
            worker.run(_raise, "exit")
        with pytest.raises(simpler.RunError, match=r"long ~\n.*in _raise"):
            worker.run(_raise, "long")
        with pytest.raises(simpler.RunError, match="TypeError: .*missing 1 required positional argument"):
            worker.run(_scale, array)
        with pytest.raises(simpler.ArgumentError, match="the arguments cannot be pickled"):
            worker.run(_scale, array, lambda: None)
        worker.run(_scale, array, 2)
        assert worker.pids == [pid]
    assert array[0] == 2


def test_what_a_sub_worker_prints_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    del capfd
    from processes import python

    program = (
        "import test_worker, simpler\n"
        "print('before')\n"
        "worker = simpler.Worker(chips=0, subs=1)\n"
        "worker.register(test_worker._say)\n"
        "with worker: worker.run(test_worker._say, 'from the child')\n"
        "print('after')\n"
    )
    result = python("-c", program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["before", "from the child", "after"]


def _step(node: Worker, add: simpler.Callable, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    half = len(a) // 2
    tickets = [
        node.submit(add, a[part], b[part], c[part], 2, chip=chip)
        for chip, part in enumerate((slice(half), slice(half, None)))
    ]
    for ticket in tickets:
        ticket.wait()


@in_own_process
def test_a_pod_runs_orchestrations_over_the_chips_of_its_nodes(tmp_path: pathlib.Path) -> None:
    add = vector_add()
    digest = add  # The function has it from the fork.
    pod = Worker(level=WorkerLevel.network1, log_dir=tmp_path)
    nodes = [Worker(level=3, chips=2) for _ in range(2)]
    assert [pod.add_worker(node) for node in nodes] == [0, 1]
    pod.register(add)

    def step(node: Worker, a: np.ndarray, b: np.ndarray, c: np.ndarray, place: int) -> None:
        assert node is nodes[place], "the worker that was added"
        _step(node, digest, a, b, c)

    step_handle = pod.register(step)
    shared = pod.shared((3, 1000))
    shared[0], shared[1] = np.arange(1000), 2.0
    with pod:
        assert len(pod.pids) == 2
        a, b, c = _operands(1000)
        # One on shared memory, which the chips of the node see as well, one on the pod's staging.
        tickets = [pod.submit(step_handle, *shared, 0, child=0), pod.submit(step, a, b, c, 1, child=1)]
        for ticket in tickets:
            ticket.wait()
        with pytest.raises(simpler.WorkerError, match="only an orchestration reaches it"):
            nodes[0].run(add, a, b, c, 1)
        with pytest.raises(simpler.RunError, match="AssertionError: the worker that was added"):
            pod.run(step, a, b, c, 0, child=1)
    np.testing.assert_array_equal(shared[2], shared[0] + 2.0)
    np.testing.assert_array_equal(c, a + b)
    found = spans(tmp_path)
    assert {span.name.split(".")[0] for span in found} >= {"network1", "node", "simpler_run"}
    assert len({span.pid for span in found if span.name == "simpler_run"}) == 4


def _node_fails(node: Worker, fail: simpler.Callable) -> None:
    node.run(fail)


def _keeps(node: Worker, kept: list[object] = []) -> None:
    if kept:
        kept[0].pids  # type: ignore[attr-defined]
    kept.append(node._native)


@in_own_process
def test_an_orchestration_passes_on_what_its_chip_says_and_its_loan_ends() -> None:
    fail = failing()
    pod = Worker(level=4)
    pod.add_worker(Worker(level=3))
    pod.register(fail)
    fails = pod.register(lambda node: _node_fails(node, fail))
    keeps = pod.register(_keeps)
    with pod:
        with pytest.raises(simpler.RunError, match="the orchestration returned 7") as caught:
            pod.run(fails)
        assert (caught.value.code, caught.value.child) == (-9, "worker 0")
        pod.run(keeps)
        with pytest.raises(simpler.RunError, match="ClosedError: worker: it was lent to an orchestration"):
            pod.run(keeps)


@in_own_process
def test_levels_nest() -> None:
    top, pod, node = Worker(level=5), Worker(level=4), Worker(level=3, chips=0, subs=1)
    top.add_worker(pod)
    pod.add_worker(node)
    scale = node.register(_scale)
    inner = pod.register(lambda node, array: node.run(scale, array, 5))
    outer = top.register(lambda pod, array: pod.run(inner, array))
    array = top.shared(4)
    array[:] = 1
    with top:
        top.run(outer, array)
    assert (array == 5).all()


@in_own_process
def test_a_config_binds_the_log_records_and_is_checked(tmp_path: pathlib.Path) -> None:
    add = vector_add()
    a, b, c = _operands()
    with Worker() as worker:
        worker.register(add)
        config = CallConfig(enable_l2_swimlane=4, output_prefix=tmp_path / "records")
        worker.run(add, a, b, c, 4, config=config)
        pids = worker.pids
        with pytest.raises(simpler.RunError, match="9 AICPU threads: a run on this platform has 2 to 4"):
            worker.run(add, a, b, c, 4, config=CallConfig(aicpu_thread_num=9))
        with pytest.raises(simpler.RunError, match="ring 0: a task window of 12"):
            sizes = simpler.RuntimeEnv(task_window=(12, 0, 0, 0))
            worker.run(add, a, b, c, 4, config=CallConfig(runtime_env=sizes))
        with pytest.raises(simpler.ArgumentError, match="names no output prefix"):
            worker.run(add, a, b, c, 4, config=CallConfig(enable_chip_swimlane=1))
        with pytest.raises(simpler.ArgumentError, match="an output prefix of 2000 bytes"):
            worker.run(add, a, b, c, 4, config=CallConfig(output_prefix="x" * 2000))
    assert list((tmp_path / "records" / str(pids[0])).glob("*/chip_swimlane_records.json"))
    assert f"pid={os.getpid()}" in log_of(tmp_path / "records", os.getpid())
    assert any(span.name == "simpler_run" for span in spans(tmp_path / "records"))


def test_what_a_config_has_not_is_refused_where_it_is_set() -> None:
    for name in ("enable_dump_args", "enable_pmu", "enable_dep_gen", "enable_scope_stats"):
        CallConfig(**{name: 0})  # type: ignore[arg-type]
        with pytest.raises(simpler.UnsupportedError, match=name):
            CallConfig(**{name: 1})  # type: ignore[arg-type]
        config = CallConfig()
        with pytest.raises(NotImplementedError, match="this version has no such diagnostics"):
            setattr(config, name, 2)
    with pytest.raises(AttributeError, match="no block_dim"):
        CallConfig().block_dim = 3
    with pytest.raises(simpler.ArgumentError, match="aicpu_thread_num = -1"):
        CallConfig(aicpu_thread_num=-1)
    with pytest.raises(simpler.ArgumentError, match=r"runtime_env.heap = \[1, 2\]"):
        simpler.RuntimeEnv(heap=[1, 2])
    config = CallConfig(enable_chip_swimlane=2)
    assert config.enable_l2_swimlane == 2
    config.enable_l2_swimlane = 3
    assert config == CallConfig(enable_chip_swimlane=3)


def test_what_is_no_number_is_refused_by_its_name() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: Worker(level="3"), "level = '3': a whole number from 0"),  # type: ignore[arg-type]
        (lambda: Worker(chips="two"), "chips = 'two'"),  # type: ignore[arg-type]
        (lambda: Worker(subs=-1), "subs = -1: a whole number from 0"),
        (lambda: Worker(staging_bytes=-5), "staging_bytes = -5"),
        (lambda: Worker(core_threads=0), "core_threads = 0: a whole number from 1"),
        (lambda: Worker(prewarm_config=3), "config = 3: a CallConfig"),  # type: ignore[arg-type]
        (lambda: Worker().register(3), "3 is neither a Callable nor a function"),  # type: ignore[arg-type]
        (lambda: ChipWorker().register(print), "a chip runs no Python"),  # type: ignore[arg-type]
        (lambda: simpler.shared_array(-3), r"shared memory for float32 of shape \(-3,\)"),
        (lambda: simpler.shared_array(3, object), "shared memory for object"),
    ]
    for wrong, sentence in cases:
        with pytest.raises(simpler.ArgumentError, match=sentence):
            wrong()


@in_own_process
def test_what_is_asked_of_a_chip_that_is_none_is_refused() -> None:
    add = vector_add()
    a, b, c = _operands()
    with Worker() as worker:
        worker.register(add)
        cases: list[tuple[Callable[[], object], type[Exception], str]] = [
            (lambda: worker.malloc(-1), simpler.ArgumentError, "nbytes = -1: a whole number from 1"),
            (lambda: worker.malloc(4, chip=-1), simpler.ArgumentError, "chip = -1"),
            (lambda: worker.malloc(4, chip=5), simpler.WorkerError, "there is no chip 5 among 1 chips"),
            (lambda: worker.malloc(1 << 60), simpler.RunError, "malloc failed with code -1"),
            (lambda: worker.run(add, a, b, c, 1, chip=1), simpler.WorkerError, "there is no chip 1"),
            (lambda: worker.run(add, a, b, c, 1, chip=0, sub=0), simpler.ArgumentError, "one of chip, sub and child"),
            (lambda: worker.run(add, a, b, c, 1, config=3), simpler.ArgumentError, "config = 3: a CallConfig"),  # type: ignore[arg-type]
            (lambda: worker.run(None), simpler.WorkerError, "None is not registered"),  # type: ignore[arg-type]
            (lambda: worker.submit(add, a, b, c, 1).wait(-1), simpler.ArgumentError, "a timeout of -1 seconds"),
        ]
        for wrong, kind, sentence in cases:
            with pytest.raises(kind, match=sentence):
                wrong()


@in_own_process
def test_a_chip_worker_lives_from_init_to_finalize(tmp_path: pathlib.Path) -> None:
    add = vector_add()
    a, b, c = _operands()
    chip = ChipWorker("a5sim", "hbg", log_dir=tmp_path, prewarm_config=CallConfig())
    with pytest.raises(simpler.WorkerError, match="call init"):
        chip.run(add, a, b, c, 1)
    chip.init()
    with pytest.raises(simpler.WorkerError, match="initialized already"):
        chip.init()
    with pytest.raises(simpler.RunError, match="is not registered on this chip"):
        chip.run(add, a, b, c, 1)
    chip.register(add)
    assert chip.run(add, a, b, c, 1) is None  # type: ignore[func-returns-value]
    memory = chip.malloc(a.nbytes)
    chip.copy_to(memory, a)
    chip.copy_from(c, memory)
    np.testing.assert_array_equal(a, c)
    chip.free(memory)
    with pytest.raises(simpler.RunError, match="free failed with code -1") as caught:
        chip._open.free(memory.address)
    assert caught.value.what == "free"
    chip.unregister(add)
    chip.finalize()
    chip.finalize()
    with pytest.raises(simpler.ClosedError):
        chip.init()
    assert {span.name for span in spans(tmp_path)} >= _STAGES | {"prewarm.build"} - {"prewarm.build"}
    assert any("prewarm" in span.name for span in spans(tmp_path))


@in_own_process
def test_level_2_is_one_chip_and_says_so() -> None:
    add = vector_add()
    a, b, c = _operands()
    for wrong in (Worker(level=2, chips=2), Worker(level=2, subs=1)):
        with pytest.raises(simpler.WorkerError, match="level 2: it is one chip"):
            wrong.init()
    with Worker(level=2) as worker:
        worker.register(add)
        ticket = worker.submit(add, a, b, c, 1)
        assert ticket.done() and (ticket.run_id, ticket.child) == (0, "chip 0")
        ticket.wait()
        ticket = worker.submit(add, a, b, c)
        with pytest.raises(simpler.RunError, match="0 scalars were given, at least 3 and 1 are expected"):
            ticket.wait()
        with pytest.raises(simpler.WorkerError, match="level 2: it is chip 0"):
            worker.run(add, a, b, c, 1, chip=1)
        assert worker.pids == []


@in_own_process
def test_the_logger_s_level_at_init_is_the_log_s_threshold(tmp_path: pathlib.Path) -> None:
    import logging

    add = vector_add()
    a, b, c = _operands()
    logging.getLogger("simpler").setLevel(logging.WARNING)
    with Worker(log_dir=tmp_path) as worker:
        logging.getLogger("simpler").setLevel(logging.DEBUG)
        worker.register(add)
        worker.run(add, a, b, c, 1)
        logging.getLogger("simpler").warning("from Python")
    assert spans(tmp_path) == [], "spans are TIMING"
    assert "from Python" in log_of(tmp_path, os.getpid())
    with Worker() as worker:
        worker.register(add)
        worker.run(add, a, b, c, 1)
    assert {span.name for span in spans(tmp_path)} >= _STAGES


@in_own_process
def test_workers_follow_each_other_and_live_beside_each_other(tmp_path: pathlib.Path) -> None:
    add = vector_add()
    a, b, c = _operands()
    for _ in range(3):
        with Worker(log_dir=tmp_path) as first, Worker(chips=2) as second:
            for worker in (first, second):
                worker.register(add)
                worker.run(add, a, b, c, 1)
    assert "private memory" not in log_of(tmp_path, os.getpid())
    assert sum(span.name == "simpler_run" for span in spans(tmp_path)) == 6


@in_own_process
def test_runs_are_pipelined_where_the_worker_says_so() -> None:
    wait = sleep()
    counts = [np.zeros(1, np.int32) for _ in range(2)]
    with Worker(pipeline_depth=2) as worker:
        worker.register(wait)
        tickets = [worker.submit(wait, count, 50) for count in counts]
        for ticket in tickets:
            ticket.wait()
    assert [count[0] for count in counts] == [1, 1]


def test_importing_the_package_loads_neither_the_extension_nor_numpy() -> None:
    from processes import python

    program = (
        "import simpler, sys; print([name for name in ('numpy', 'simpler._task_interface') if name in sys.modules])"
    )
    assert python("-c", program).stdout.strip() == "[]"
    names = "import simpler; print([getattr(simpler, name) is not None for name in simpler.__all__ if name != 'trace'])"
    assert "False" not in python("-c", names).stdout


def test_identities_are_of_the_content() -> None:
    add = vector_add()
    assert add.hashid.startswith("sha256:") and len(add.hashid) == 7 + 64
    assert add == vector_add() and hash(add) == hash(vector_add())
    assert int(add.hid, 16) != 0 and add.hid != failing().hid
    again = simpler.Callable.from_objects("another name", orchestration=add.orchestration, kernels=dict(add.kernels))
    assert (again.hid, again.hashid, again == add) == (add.hid, add.hashid, True)
    with pytest.raises(simpler.CompileError, match="the compiler says:"):
        simpler.Callable.compile("bad", orchestration=simpler.Source("bad.c", "int"), kernels={})
    with pytest.raises(FileNotFoundError):
        simpler.Callable.compile("none", orchestration="no/such.c", kernels={})
    with pytest.raises(simpler.ArgumentError, match="aix is no kind of core"):
        simpler.Callable.compile(
            "odd",
            orchestration=simpler.Source("a.c", ""),
            kernels={simpler.Source("b.c", ""): "aix"},  # type: ignore[dict-item]
        )


@in_own_process
def test_objects_that_do_not_belong_together_are_refused() -> None:
    add, wait = vector_add(), sleep()
    kernels = {"add": wait.kernels["sleep"]}
    mixed = simpler.Callable.from_objects("mixed", orchestration=add.orchestration, kernels=kernels)
    with Worker(level=2) as worker:
        with pytest.raises(simpler.RunError, match="is not the object that the orchestration was built for"):
            worker.register(mixed)
    refused = Worker()
    refused.register(mixed)
    with pytest.raises(simpler.InitError, match="chip 0 .*is not the object"):
        refused.init()
    until("the children's end", lambda: not _children())


def _children() -> list[str]:
    return pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
