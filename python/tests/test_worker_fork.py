"""Forks and ends: threads, signals, exits, processes that die, and copies in other processes."""

import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from kernels import sleep, vector_add
from processes import LIMIT, environment, in_own_process, in_process_with, is_alive, log_of, python, spans, until

import simpler
from simpler import ChipWorker, Worker

#: Seconds within which a wait notices a signal on a machine that is busy with other things.
_NOTICED = 5.0


def _children() -> list[int]:
    text = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split()]


def _interrupt_after(seconds: float) -> list[float]:
    """Sends this process SIGINT; gives when, once it has."""
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(seconds, send).start()
    return sent


# Python's own thread count is what forbids; the libraries' threads are named.


@in_process_with(OPENBLAS_NUM_THREADS="4")
def test_threads_of_libraries_are_named_and_do_not_forbid_the_fork(tmp_path: pathlib.Path) -> None:
    big = np.ones((300, 300))
    assert (big @ big)[0, 0] == 300
    others = len(os.listdir("/proc/self/task")) - 1
    if others == 0:
        pytest.skip("skipped: this numpy keeps no threads")
    add = vector_add()
    a, b, c = (np.ones(100, np.float32) for _ in range(3))
    # OpenBLAS stops its threads around a fork, so the second worker may find none.
    with Worker(chips=2, subs=1, log_dir=tmp_path) as worker:
        worker.register(add)
        worker.run(add, a, b, c, 2)
    assert (c == 2).all()
    assert (big @ big)[0, 0] == 300, "the library still works"
    told = [line for line in log_of(tmp_path, os.getpid()).splitlines() if "forking beside" in line]
    assert len(told) == 1 and "[WARN]" in told[0]
    assert re.search(rf"beside {others} other threads \({others} \S+\)", told[0])


def _multiply(array: np.ndarray) -> None:
    array[:] = array @ array


@in_process_with(OPENBLAS_NUM_THREADS="4")
def test_a_sub_worker_can_use_the_library_whose_threads_it_has_not() -> None:
    square = np.eye(200) * 2
    square @ square
    worker = Worker(chips=0, subs=1)
    worker.register(_multiply)
    with worker:
        worker.run(_multiply, square)
    assert square[0, 0] == 4


@in_own_process
def test_python_threads_forbid_the_fork_and_no_chip_here() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="somebody else's")
    thread.start()
    worker = Worker()
    with pytest.raises(simpler.WorkerError, match=r"1 Python threads beside the caller's \(somebody else's\)"):
        worker.init()
    with Worker(level=2):
        pass
    stop.set()
    thread.join()
    with worker:
        assert len(worker.pids) == 1


@in_own_process
def test_forks_are_python_s_and_run_what_is_registered_for_one(tmp_path: pathlib.Path) -> None:
    def note(what: str) -> None:
        with (tmp_path / "forks").open("a") as file:
            print(what, os.getpid(), file=file)

    os.register_at_fork(
        before=lambda: note("before"),
        after_in_parent=lambda: note("parent"),
        after_in_child=lambda: note("child"),
    )
    pod = Worker(level=4)
    pod.add_worker(Worker(level=3, chips=2))
    with pod, warnings.catch_warnings(record=True) as caught:
        node = pod.pids[0]
        assert caught == []
    lines = [line.split() for line in (tmp_path / "forks").read_text().splitlines()]
    count = {what: sum(line[0] == what for line in lines) for what in ("before", "parent", "child")}
    assert count == {"before": 3, "parent": 3, "child": 3}
    assert sum(line == ["before", str(node)] for line in lines) == 2, "the node's own"


def test_a_child_runs_no_exit_handler_of_its_parent_s(tmp_path: pathlib.Path) -> None:
    program = (
        "import atexit, os, simpler\n"
        f"atexit.register(lambda: open({str(tmp_path / 'exits')!r}, 'a').write(f'{{os.getpid()}} '))\n"
        "worker = simpler.Worker(chips=2, subs=1)\n"
        "worker.init()\n"
        "print(os.getpid())\n"
    )
    result = python("-c", program)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "exits").read_text().split() == [result.stdout.strip()]


# Ends.


@in_own_process
def test_closing_is_done_once_and_closed_is_closed() -> None:
    add = vector_add()
    for worker in (Worker(level=2), Worker(level=3), Worker(level=3)):
        worker.register(add)
        worker.init()
        pids = worker.pids
        worker.close()
        worker.close()
        assert not any(map(is_alive, pids))
        for use in (worker.init, lambda: worker.run(add), lambda: worker.malloc(4), lambda: worker.register(add)):
            with pytest.raises(simpler.ClosedError, match="worker: closed"):
                use()
    never = Worker()
    never.close()
    with pytest.raises(simpler.ClosedError):
        never.init()
    assert _children() == []


@in_own_process
def test_a_failed_start_converges_and_can_be_tried_again() -> None:
    for wrong, kind, sentence in [
        (Worker(level=7), simpler.WorkerError, "level 7: workers have a level from 2 to 6"),
        (Worker(chips=17), simpler.WorkerError, "17 chips are more than 16"),
        (Worker(platform="a9"), simpler.WorkerError, "platform a9: there are a2a3sim and a5sim"),
        (Worker(runtime="none"), simpler.WorkerError, "runtime none: there are"),
        (Worker(chips=0), simpler.WorkerError, "it has no children"),
        (Worker(level=4), simpler.WorkerError, "it has no children"),
        (Worker(init_limit=0), simpler.ArgumentError, "init_limit of 0 seconds"),
        (Worker(pipeline_depth=3), simpler.InitError, "chip 0 .*a pipeline of 3 runs"),
        (Worker(level=2, pipeline_depth=3), simpler.InitError, "chip 0: .*a pipeline of 3 runs"),
        (Worker(log_dir="/proc/no/such/folder"), simpler.WorkerError, "host log"),
    ]:
        with pytest.raises(kind, match=sentence):
            wrong.init()
        assert _children() == []
        with pytest.raises(kind, match=sentence):
            wrong.init()
        wrong.close()
        wrong.close()
    with Worker(chips=1) as worker:
        assert len(worker.pids) == 1


@in_process_with("-W", "error::ResourceWarning")
def test_a_worker_that_is_collected_unclosed_warns_and_closes() -> None:
    warned: list[str] = []
    warnings.showwarning = lambda message, kind, *rest: warned.append(f"{kind.__name__}: {message}")
    warnings.simplefilter("always")
    for level in (2, 3):
        worker = Worker(level=level)
        worker.init()
        pids = worker.pids
        ticket = None
        if level == 3:
            wait = sleep()
            worker.register(wait)
            ticket = worker.submit(wait, np.zeros(1, np.int32), 0)
        del worker
        gc.collect()
        until("the children's end", lambda: not any(map(is_alive, pids)))
        assert len(warned) == 1 and warned[0].startswith("ResourceWarning: <Worker of level"), warned
        warned.clear()
        if ticket is not None:
            with pytest.raises(simpler.ClosedError):
                ticket.wait()
    assert _children() == []


_LEAVES = """
import os, sys, numpy, simpler
from kernels import vector_add
add = vector_add()
worker = simpler.Worker(chips=2, subs=1, log_dir=sys.argv[1])
worker.register(add)
worker.init()
a = numpy.ones(64, numpy.float32)
for chip in range(2):
    worker.run(add, a, a, numpy.zeros(64, numpy.float32), 1, chip=chip)
print(os.getpid(), *worker.pids, flush=True)
"""


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "raise RuntimeError('x')",
        "os._exit(4)",
        "",
        "os.kill(os.getpid(), 9)",
        "import signal; signal.pause()",
    ],
)
def test_whoever_ends_without_closing_leaves_nobody_and_a_whole_log(end: str, tmp_path: pathlib.Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _LEAVES + end, str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    parent, *children = map(int, process.stdout.readline().split())
    if end.endswith("pause()"):
        process.terminate()
    _, said = process.communicate(timeout=LIMIT)
    expected = {"sys.exit(3)": 3, "": 0, "os._exit(4)": 4}.get(end)
    assert expected is None or process.returncode == expected, said
    assert len(children) == 3
    until("the children's end", lambda: not any(map(is_alive, children)))
    found = spans(tmp_path)
    for chip in children[:2]:
        assert [span.name for span in found if span.pid == chip].count("simpler_run") == 1
        # Those that were told to leave say nothing; those whose parent is gone do.
        is_gone = "the parent process is gone" in log_of(tmp_path, chip)
        assert is_gone == (end.startswith(("os.", "import"))), end
    if not end.startswith(("os.kill", "import")):
        assert [span.name for span in found if span.pid == parent].count("node.complete") == 2


@in_own_process
def test_a_killed_chip_is_an_exception_and_the_other_goes_on() -> None:
    wait = sleep()
    count = np.zeros(1, np.int32)
    worker = Worker(chips=2)
    worker.register(wait)
    worker.init()
    pid = worker.pids[1]
    ticket = worker.submit(wait, count, 60_000, chip=1)
    threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(simpler.ChildLostError, match=rf"chip 1 \(pid {pid}\) was killed by signal 9") as caught:
        ticket.wait()
    assert time.monotonic() - began < 30
    assert (caught.value.child, caught.value.pid) == ("chip 1", pid)
    for use in (lambda: worker.run(wait, count, 0, chip=1), lambda: worker.malloc(4, chip=1)):
        with pytest.raises(simpler.ChildLostError):
            use()
    worker.run(wait, count, 0, chip=0)
    assert count[0] == 1
    worker.close()
    assert _children() == []


@in_own_process
def test_a_sub_worker_that_leaves_is_an_exception() -> None:
    worker = Worker(chips=0, subs=1)
    leave = worker.register(lambda: os._exit(5))
    with worker:
        with pytest.raises(simpler.ChildLostError, match="exited with status 5 while it ran run"):
            worker.run(leave)


# Signals.


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_ctrl_c_ends_a_wait_and_the_worker_goes_on(level: int) -> None:
    wait, add = sleep(), vector_add()
    count = np.zeros(1, np.int32)
    a, b, c = (np.ones(64, np.float32) for _ in range(3))
    worker = Worker(level=level)
    worker.register(wait)
    worker.register(add)
    worker.init()
    sent = _interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        worker.run(wait, count, 3_000)
    noticed = time.monotonic()
    assert noticed - sent[0] < 2, "it did not wait for the run"
    # It waits for what is still there.
    worker.run(add, a, b, c, 1)
    assert time.monotonic() - sent[0] > 2
    assert (c == 2).all()
    worker.close()
    assert _children() == []


@in_own_process
def test_ctrl_c_ends_requests_and_their_effects_are_undone() -> None:
    wait = sleep()
    worker = Worker()
    worker.register(wait)
    worker.init()
    ticket = worker.submit(wait, np.zeros(1, np.int32), 1_000)
    for request in (lambda: worker.malloc(64), lambda: worker.register(vector_add())):
        sent = _interrupt_after(0.05)
        with pytest.raises(KeyboardInterrupt):
            request()
        assert time.monotonic() - sent[0] < _NOTICED
    ticket.wait()
    a = np.ones(4, np.float32)
    with pytest.raises(simpler.WorkerError, match="is none of this worker's"):
        worker.run(vector_add(), a, a, a.copy(), 1)
    worker.free(worker.malloc(64))
    worker.close()


@in_own_process
def test_ctrl_c_in_a_close_kills_who_is_late() -> None:
    wait = sleep()
    worker = Worker()
    worker.register(wait)
    worker.init()
    pid = worker.pids[0]
    worker.submit(wait, np.zeros(1, np.int32), 60_000)
    sent = _interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        worker.close()
    assert time.monotonic() - sent[0] < _NOTICED
    assert not is_alive(pid)
    worker.close()
    assert _children() == []


@in_own_process
def test_ctrl_c_in_a_start_takes_down_what_there_is() -> None:
    main = os.getpid()

    def hang() -> None:
        if os.getppid() == main:
            time.sleep(LIMIT)

    os.register_at_fork(after_in_child=hang)
    worker = Worker(chips=2)
    sent: list[float] = []
    # A timer is a Python thread, which would forbid the start; the system's has none.
    signal.setitimer(signal.ITIMER_REAL, 0.3)

    def alarm(*_: object) -> None:
        sent.append(time.monotonic())
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, alarm)
    with pytest.raises(KeyboardInterrupt):
        worker.init()
    assert time.monotonic() - sent[0] < 4 + _NOTICED, "2 s to leave, then they are killed"
    assert _children() == []
    worker.close()


@in_own_process
def test_a_signal_handler_cannot_use_a_worker_in_a_call_and_a_harmless_one_changes_nothing() -> None:
    wait = sleep()
    count = np.zeros(1, np.int32)
    said: list[str] = []
    with Worker() as worker:
        worker.register(wait)

        def handler(*_: object) -> None:
            try:
                worker.malloc(4)
            except simpler.WorkerError as error:
                said.append(str(error))

        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        worker.run(wait, count, 500)
    assert count[0] == 1
    assert said == ["worker: a call of it is under way; a signal handler, say, cannot begin another one"]


@in_own_process
def test_the_gil_is_free_while_a_run_is_waited_for() -> None:
    wait = sleep()
    for level in (2, 3):
        with Worker(level=level) as worker:
            worker.register(wait)
            turns = [0]
            stop = threading.Event()

            def count(turns: list[int] = turns, stop: threading.Event = stop) -> None:
                while not stop.wait(0.001):
                    turns[0] += 1

            thread = threading.Thread(target=count)
            thread.start()
            worker.run(wait, np.zeros(1, np.int32), 300)
            seen = turns[0]
            stop.set()
            thread.join()
            assert seen > 20, "the other thread did not run meanwhile"


# Other threads and processes.


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_another_thread_is_refused_and_may_close(level: int) -> None:
    worker = Worker(level=level)
    add = vector_add()
    worker.register(add)
    worker.init()
    pids = worker.pids
    said: list[str] = []

    def use() -> None:
        for call in (lambda: worker.malloc(4), lambda: worker.run(add), lambda: worker.register(add)):
            try:
                call()
            except simpler.SimplerError as error:
                said.append(str(error))
        worker.close()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert len(said) == 3 and all("and this is another one" in text for text in said[::2]), said
    assert not any(map(is_alive, pids))
    with pytest.raises(simpler.ClosedError):
        worker.malloc(4)


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_a_copy_in_a_forked_process_is_refused_and_closes_nothing(level: int) -> None:
    add = vector_add()
    a, b, c = (np.ones(64, np.float32) for _ in range(3))
    worker = Worker(level=level)
    worker.register(add)
    worker.init()
    read, write = os.pipe()
    # Another program's fork, of a process that by now has native threads.
    pid = os.fork()
    if pid == 0:
        said = []
        for call in (lambda: worker.run(add, a, b, c, 1), lambda: worker.malloc(4)):
            try:
                call()
            except simpler.WorkerError as error:
                said.append(str(error))
        worker.close()
        del worker
        gc.collect()
        os.write(write, "\n".join(said).encode())
        # The interpreter's own end, with its handlers.
        sys.exit(0)
    os.close(write)
    assert os.waitpid(pid, 0)[1] == 0
    said = os.read(read, 10_000).decode().splitlines()
    assert len(said) == 2 and all(f"it belongs to process {os.getpid()}" in text for text in said), said
    worker.run(add, a, b, c, 1)
    assert (c == 2).all()
    worker.close()


@in_own_process
def test_a_chip_worker_that_is_dropped_ends() -> None:
    threads = len(os.listdir("/proc/self/task"))
    chip = ChipWorker()
    chip.init()
    assert len(os.listdir("/proc/self/task")) > threads + 1
    del chip
    # The log's writer stays.
    until("the chip's threads' end", lambda: len(os.listdir("/proc/self/task")) <= threads + 1)
