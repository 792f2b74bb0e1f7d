"""Workers: a parent, its children, and what they run.

A :class:`Worker` of level 3, a node, forks one process per chip, and one per sub worker, which runs Python functions.
One of level 4 or above forks whole workers of the level below, which run orchestrations: Python functions that get
their worker. One of level 2 is a chip in this very process::

    add = simpler.Callable.compile("add", orchestration="add.c", kernels={"add_kernel.c": "aiv"})
    with simpler.Worker(level=3, chips=2) as worker:
        worker.register(add)
        tickets = [worker.submit(add, In(a), In(b), Out(c), chip=chip) for chip in range(2)]
        for ticket in tickets:
            ticket.wait()

``run`` gives nothing: what a run took, and where, is in the log (``log_dir``), of every process one file.

**Forks.** ``init`` forks by ``os.fork``, so what Python and its libraries have registered for a fork runs. It is
refused where Python threads run beside the caller's, whose locks a child would inherit and whose work it would not.
Native threads of imported libraries, such as numpy's OpenBLAS keeps, do not forbid it: one WARN record names them. What
holds then: a child has the forking thread only, and a lock that one of the others held at that moment stays held in it.
libc's allocator is in order in any child, and OpenBLAS stops its threads around a fork by itself; a chip's child calls
nothing but native code of simpler, a sub worker's besides your function, so whether what that calls copes with a fork
is yours to know.

**Children** lead process groups of their own, so that Ctrl-C in a terminal reaches the parent alone. They leave by
``_exit``, after draining their logs, and run none of the parent's exit handlers; they leave as well when the parent is
gone, however it went. The interpreter's exit closes what is still open.

**Threads.** One thread uses a worker, that which has called ``init``. Any other one, a signal handler during a call,
and a process that was forked later get a :class:`~simpler.WorkerError`; ``close`` may be called by any thread. The GIL
is released in every wait. Ctrl-C ends a wait within about 50 ms: ``init`` takes down what it has set up, ``run``,
``wait`` and the copies leave what was asked to the child, which is waited for when it is wanted next, and ``close``
kills those that it still waits for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable as Function
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from simpler import _child, _log
from simpler.callable import Callable, PythonCallable, name_of
from simpler.errors import ArgumentError, ClosedError, SimplerError, WorkerError
from simpler.task_interface import (
    CallConfig,
    ChipWorker,
    _ChipPlan,
    _Plan,
    count,
    require_config,
    require_inside,
)
from simpler.tensor import DeviceMemory, RunArgs, arguments, shared_array, shared_buffers

if TYPE_CHECKING:
    import numpy.typing

    from simpler import _task_interface as native

__all__ = ["DistributedWorker", "Ticket", "Worker"]

#: Staging memory of a worker, in bytes: reserved at ``init``, used as far as arrays are staged.
STAGING_BYTES = 64 << 20
#: Seconds that each child may take to be ready: real devices load firmware.
INIT_LIMIT = 300.0

# FORK: a child's copies are closed by nobody: each knows whose it is.
_open_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


class Ticket:
    """A run that was handed over. Dropped without a wait, it is waited for when its child is wanted again."""

    __slots__ = ("__weakref__", "_error", "_is_over", "_worker", "child", "run_id")

    def __init__(self, worker: native._Worker | None, run_id: int, child: str) -> None:
        self._worker = worker
        self._is_over = worker is None
        self._error: BaseException | None = None
        #: Its number, ``inv`` of the parent's spans about it; 0 at level 2.
        self.run_id = run_id
        #: Who runs it: ``chip 0``.
        self.child = child

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the run, and brings back what it has written to arrays that were staged.

        Raises :class:`~simpler.RunError` with the run's code and text, :class:`~simpler.ChildLostError` if its process
        has ended, :class:`TimeoutError` if ``timeout`` seconds pass first: the run goes on. Waiting again gives the
        same.
        """
        if not self._is_over and self._worker is not None:
            try:
                self._is_over = self._worker.wait(self.run_id, timeout)
            except SimplerError as error:
                self._error, self._is_over = error, True
            if not self._is_over:
                raise TimeoutError(f"run {self.run_id} on {self.child} has not ended within {timeout} s")
            self._worker = None
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        """Whether :meth:`wait` would return, or raise, at once."""
        return self._is_over or self._worker is None or self._worker.done(self.run_id)

    def _abandon(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and not self._is_over:
            with contextlib.suppress(SimplerError):
                worker.abandon(self.run_id)

    def __del__(self) -> None:
        self._abandon()

    def __repr__(self) -> str:
        return f"<Ticket of run {self.run_id} on {self.child}>"


class Worker:
    """A worker of ``level`` 2 to 6; see the module.

    - ``chips``: how many; 1 unless told otherwise at levels 2 and 3, and none above. ``subs``: how many sub workers.
    - ``platform``: ``a2a3sim`` or ``a5sim``; ``runtime``: ``tmr`` (``tensormap_and_ringbuffer``: the graph is built on
      the device while it runs) or ``hbg`` (``host_build_graph``: on the host, before).
    - ``log_dir``: where ``host.<pid>.log`` of every process goes; stderr if there is none.
    - ``staging_bytes``: room for arrays of runs in flight that are not in shared memory.
    - ``init_limit``: seconds that each child may take to be ready.
    - ``pipeline_depth``: runs that a chip takes at a time, 1 or 2; ``enable_sdma``: whether kernels can leave copies to
      a copy engine; ``scheduler_timeout``: seconds that a run may make no progress (20); ``core_threads``: threads that
      advance a chip's simulated cores (one per CPU); ``prewarm_config``: whose rings are built at :meth:`init`.

    The log's threshold is the level that ``logging.getLogger("simpler")`` has at :meth:`init`.
    """

    def __init__(
        self,
        level: int = 3,
        *,
        chips: int | None = None,
        subs: int = 0,
        platform: str = "a2a3sim",
        runtime: str = "tmr",
        log_dir: str | os.PathLike[str] | None = None,
        staging_bytes: int = STAGING_BYTES,
        init_limit: float = INIT_LIMIT,
        pipeline_depth: int = 1,
        enable_sdma: bool = False,
        scheduler_timeout: float | None = None,
        core_threads: int | None = None,
        prewarm_config: CallConfig | None = None,
    ) -> None:
        self._native: native._Worker | None = None
        self._chip: ChipWorker | None = None
        self._state: Literal["new", "open", "closed"] = "new"
        self._pid = os.getpid()
        self._level_above: int | None = None
        self.level = count("level", level)
        self._chips = None if chips is None else count("chips", chips)
        self._subs = count("subs", subs)
        self._log_dir = None if log_dir is None else os.fspath(log_dir)
        self._staging_bytes = count("staging_bytes", staging_bytes)
        self._init_limit = init_limit
        self._chip_plan = _ChipPlan(
            platform, runtime, pipeline_depth, enable_sdma, scheduler_timeout, core_threads, prewarm_config
        )
        self._callables: list[Callable] = []
        self._python: dict[str, PythonCallable] = {}
        self._workers: list[Worker] = []
        self._arrays: list[Any] = []

    # What it is made of.

    def register(
        self,
        callable: Callable | Function[..., Any],
        *,
        on: Literal["subs", "workers"] | None = None,
    ) -> Callable | PythonCallable:
        """Makes a callable known to the children, and gives the handle that :meth:`run` takes.

        A :class:`~simpler.Callable` goes to every chip, those of workers below too; before :meth:`init` or after. A
        Python function is what children have from the fork, so it must come before: sub workers call it with the
        arguments of the run, workers below (``on="workers"``, the default where there are any) with their worker first.
        Registered again, a callable stays until it is unregistered as often.
        """
        if isinstance(callable, Callable):
            if self._state == "new":
                self._callables.append(callable)
            elif self._chip is not None:
                self._chip.register(callable)
            else:
                self._open.register(callable._image)
            return callable
        for known in self._python.values():
            if known.function is callable and on in (None, known.on):
                return known
        name = name_of(callable, self._python)
        if self._state != "new":
            self._require_open()
            raise WorkerError(
                f"worker: {name} comes after init(): a child has Python functions from the fork, or not at all"
            )
        if on is None:
            on = "workers" if self._workers or self.level > 3 and self._subs == 0 else "subs"
        self._python[name] = PythonCallable(name, callable, on)
        return self._python[name]

    def unregister(self, callable: Callable) -> None:
        """Takes one registration of a chip's callable back; runs that were submitted before end first."""
        if self._state == "new":
            if callable not in self._callables:
                raise WorkerError(f"worker: {callable!r} is not registered")
            self._callables.remove(callable)
        elif self._chip is not None:
            self._chip.unregister(callable)
        else:
            self._open.unregister(callable._digest)

    def add_worker(self, below: Worker) -> int:
        """Adds a worker of the level below, for levels above 3, before :meth:`init`; gives its index (``child``).

        It starts with this one and logs where this one does. Only orchestrations reach it, in its own process.
        """
        if self._state != "new" or below._state != "new" or below._level_above is not None or below is self:
            raise WorkerError("worker: workers are put together before any of them is initialized, each in one place")
        below._level_above = self.level
        self._workers.append(below)
        return len(self._workers) - 1

    def shared(
        self, shape: int | Sequence[int], dtype: numpy.typing.DTypeLike = "float32"
    ) -> numpy.typing.NDArray[Any]:
        """A numpy array of zeros that all children see, for as long as this worker lives; before :meth:`init`.

        Runs on it, or on contiguous parts of it, copy nothing between the processes (:func:`~simpler.shared_array`).
        """
        if self._state != "new":
            self._require_open()
            raise WorkerError("worker: memory is shared before init(): the children have it from the fork")
        array = shared_array(shape, dtype)
        self._arrays.append(array)
        return array

    # Its life.

    def init(self) -> None:
        """Starts it: seeds the log, forks the children, waits until all are ready, starts the log's writer.

        At level 2 it makes the chip, and forks nobody. Waits up to ``init_limit`` for each child with the GIL released.
        Raises :class:`~simpler.InitError` with a child's text, :class:`~simpler.WorkerError` for what cannot be, for
        other Python threads, or if SIGTERM has called it off. No child is left behind then, and it may be called again.
        """
        self._require_open()
        if self._level_above is not None:
            raise WorkerError(f"worker: it is started by the worker of level {self._level_above} that it was added to")
        if self._state == "open":
            raise WorkerError("worker: it is initialized already")
        if self.level == 2:
            self._init_chip()
        else:
            self._init_children()
        self._state = "open"
        self._pid = os.getpid()
        _open_workers.add(self)

    def _init_chip(self) -> None:
        if self._chips not in (None, 1) or self._subs or self._workers or self._python:
            raise WorkerError("worker: level 2: it is one chip, without sub workers, workers below or Python functions")
        chip = ChipWorker(log_dir=self._log_dir)
        chip._chip_plan = self._chip_plan
        chip._callables = self._callables
        chip.init()
        self._chip = chip

    def _init_children(self) -> None:
        from simpler._extension import native

        _refuse_python_threads()
        _log.seed(defer_writer=True)
        plan = self._plan(_log.current_threshold(), shared_buffers())
        # A child has a copy of what is in the buffers, and would print it once more.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        with warnings.catch_warnings():
            # Python threads were refused above, and one WARN record names the native ones.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            self._native = native._start_worker(plan)

    def _plan(self, threshold: int, shared: list[native._SharedBuffer]) -> _Plan:
        from simpler._extension import native

        python = self._python.values()
        return _Plan(
            level=self.level,
            chips=self._chips,
            subs=self._subs,
            chip=self._chip_plan,
            init_limit=self._init_limit,
            log_threshold=threshold,
            log_directory=self._log_dir,
            staging=native._SharedBuffer(max(1, self._staging_bytes)),
            callables=[callable._image for callable in self._callables],
            functions=[
                (known.name, _child.PythonFunction(known.name, known.function))
                for known in python
                if known.on == "subs"
            ],
            orchestrations=[
                (known.name, _child.PythonFunction(known.name, known.function, self._workers))
                for known in python
                if known.on == "workers"
            ],
            # What this one shares they see as well.
            workers=[below._plan(threshold, []) for below in self._workers],
            shared=shared,
        )

    def close(self, limit: float | None = None) -> None:
        """Shuts the children down, collects their processes and drains the log. Again, or after a failed :meth:`init`:
        nothing.

        Runs in progress end first; a child that does not leave within ``limit`` seconds (60 for each level of
        children) is killed. Raises :class:`~simpler.WorkerError` or :class:`~simpler.ChildLostError` for the first
        child that ended otherwise than told to, if no error has said so before; everything is closed all the same.
        """
        if self._pid != os.getpid() or self._level_above is not None:
            # The children are another process's; or whoever has started it closes it.
            return
        try:
            if self._chip is not None:
                self._chip.finalize()
            if self._native is not None:
                self._native.close(limit)
        finally:
            # Where another call of it is under way, it is still what it was.
            if (self._chip is None or self._chip._is_closed) and (self._native is None or self._native.is_closed):
                self._state, self._chip, self._native = "closed", None, None
                self._arrays.clear()
                _open_workers.discard(self)
                _resume_log()

    def __enter__(self) -> Worker:
        if self._state == "new":
            self.init()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> Literal[False]:
        try:
            self.close()
        except SimplerError as failure:
            if error is None:
                raise
            # What has gone wrong before is what the caller is to see.
            _log.get_logger().warning("%s", failure)
        return False

    def __del__(self) -> None:
        if getattr(self, "_state", None) != "open" or self._pid != os.getpid() or self._level_above is not None:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
        try:
            self.close()
        except SimplerError as failure:
            _log.get_logger().warning("%s", failure)

    # What it runs.

    def run(
        self,
        callable: Callable | PythonCallable | Function[..., Any],
        *args: Any,
        chip: int | None = None,
        sub: int | None = None,
        child: int | None = None,
        config: CallConfig | None = None,
    ) -> None:
        """Submits a run and waits for it; see :meth:`submit` and :meth:`Ticket.wait`."""
        if self._chip is not None:
            self._run_here(callable, args, chip, sub, child, config)
            return
        ticket = self.submit(callable, *args, chip=chip, sub=sub, child=child, config=config)
        try:
            ticket.wait()
        except BaseException:
            ticket._abandon()
            raise

    def submit(
        self,
        callable: Callable | PythonCallable | Function[..., Any],
        *args: Any,
        chip: int | None = None,
        sub: int | None = None,
        child: int | None = None,
        config: CallConfig | None = None,
    ) -> Ticket:
        """Hands a run to a child and returns: ``chip``, ``sub`` or ``child`` (a worker below), or the first that is
        free.

        ``args`` are the tensors and scalars of a chip's run (see :mod:`simpler.tensor`), or what a Python function
        gets: arrays go by shared memory, everything else is pickled. At level 2 the run is made in this call.

        Raises :class:`~simpler.ArgumentError` for an argument that cannot be passed, :class:`~simpler.BusyError` if no
        child can take another run, :class:`~simpler.ChildLostError` if it is gone. Nothing was handed over then.
        """
        if self._chip is not None:
            ticket = Ticket(None, 0, "chip 0")
            try:
                self._run_here(callable, args, chip, sub, child, config)
            except SimplerError as error:
                ticket._error = error
            return ticket
        worker = self._open
        require_config(config)
        known = self._known(callable)
        if isinstance(known, Callable):
            run_args = arguments(args, known.signature, self)
        else:
            run_args = _child.arguments(args)
        children = self._candidates(known, run_args, chip, sub, child)
        run_id, place = worker.submit(children, known._digest, run_args.tensors, run_args.scalars, config)
        kind, index = children[place]
        return Ticket(worker, run_id, f"{_KINDS[kind]} {index}")

    def _run_here(
        self,
        callable: Any,
        args: Sequence[Any],
        chip: int | None,
        sub: int | None,
        child: int | None,
        config: CallConfig | None,
    ) -> None:
        if chip not in (None, 0) or sub is not None or child is not None:
            raise WorkerError("worker: level 2: it is chip 0, and nothing else")
        require_config(config)
        assert self._chip is not None
        known = self._known(callable)
        if not isinstance(known, Callable):
            raise WorkerError(f"worker: level 2: a chip does not run {known.name}")
        run_args = arguments(args, known.signature, self)
        self._chip._open.run(known._digest, run_args.tensors, run_args.scalars, config)

    def _known(self, callable: Any) -> Callable | PythonCallable:
        if isinstance(callable, (Callable, PythonCallable)):
            return callable
        for known in self._python.values():
            if known.function is callable:
                return known
        raise WorkerError(f"worker: {callable!r} is not registered")

    def _candidates(
        self,
        known: Callable | PythonCallable,
        run_args: RunArgs,
        chip: int | None,
        sub: int | None,
        child: int | None,
    ) -> list[tuple[str, int]]:
        places = {"chip": chip, "sub": sub, "worker": child}
        named = [(kind, count(kind, index)) for kind, index in places.items() if index is not None]
        if len(named) > 1:
            raise ArgumentError("one of chip, sub and child says where a run goes")
        if isinstance(known, PythonCallable):
            if named:
                return named
            kind, children = ("sub", self._subs) if known.on == "subs" else ("worker", len(self._workers))
            return [(kind, index) for index in range(children)]
        if run_args.chip is not None:
            if named not in ([], [("chip", run_args.chip)]):
                raise ArgumentError(f"its device memory is on chip {run_args.chip}")
            return [("chip", run_args.chip)]
        return named or [("chip", index) for index in range(self._chip_count)]

    # Memory of the chips.

    def malloc(self, nbytes: int, *, chip: int = 0) -> DeviceMemory:
        """Allocates memory of a chip, in bytes; :meth:`free` gives it back."""
        count("nbytes", nbytes, 1)
        count("chip", chip)
        if self._chip is not None:
            self._require_chip_0(chip)
            address = self._chip._open.malloc(nbytes)
        else:
            address = self._open.malloc(("chip", chip), nbytes)
        return DeviceMemory(self, chip, address, nbytes)

    def free(self, memory: DeviceMemory) -> None:
        """Frees what :meth:`malloc` gave."""
        memory._require(self)
        if self._chip is not None:
            self._chip._open.free(memory.address)
        else:
            self._open.free(("chip", memory.chip), memory.address)
        memory._is_freed = True

    def copy_to(self, target: DeviceMemory, source: Any, *, offset: int = 0) -> None:
        """Copies an array to a chip's memory, from ``offset`` (bytes) on.

        An array in shared memory goes at once, any other one in parts by way of the staging memory.
        """
        from simpler._extension import native

        target._require(self)
        array = native._Tensor(source, "in", raw=True)
        require_inside(target, offset, array.nbytes)
        if self._chip is not None:
            self._chip._open.copy_to(target.address + offset, array)
        else:
            self._open.copy_to(("chip", target.chip), target.address + offset, array)

    def copy_from(self, target: Any, source: DeviceMemory, *, offset: int = 0) -> None:
        """Copies a chip's memory, from ``offset`` (bytes) on, to an array; as :meth:`copy_to`."""
        from simpler._extension import native

        source._require(self)
        array = native._Tensor(target, "out", raw=True)
        require_inside(source, offset, array.nbytes)
        if self._chip is not None:
            self._chip._open.copy_from(array, source.address + offset)
        else:
            self._open.copy_from(("chip", source.chip), array, source.address + offset)

    # What there is of it.

    @property
    def pids(self) -> list[int]:
        """The children's processes: the chips', the sub workers', the workers' below, each by index."""
        return [] if self._chip is not None else self._open.pids

    @property
    def _chip_count(self) -> int:
        if self._chips is not None:
            return self._chips
        return 1 if self.level <= 3 else 0

    @property
    def _open(self) -> native._Worker:
        self._require_open()
        if self._native is not None:
            return self._native
        if self._level_above is not None:
            raise WorkerError("worker: it runs in a child: only an orchestration reaches it, there")
        raise WorkerError("worker: it is not initialized: call init() first")

    def _require_open(self) -> None:
        if self._state == "closed":
            raise ClosedError("worker: closed")

    @staticmethod
    def _require_chip_0(chip: int) -> None:
        if chip != 0:
            raise WorkerError(f"worker: level 2: it is chip 0, there is no chip {chip}")

    @contextlib.contextmanager
    def _lent(self, worker: native._Worker) -> Iterator[None]:
        """In the child: what an orchestration uses, for as long as it runs."""
        self._native, self._state = worker, "open"
        try:
            yield
        finally:
            self._native = None

    def __repr__(self) -> str:
        return f"<Worker of level {self.level}, {self._state}>"


#: The serving side's name for a worker of level 3.
DistributedWorker = Worker

_KINDS = {"chip": "chip", "sub": "sub worker", "worker": "worker"}


def _resume_log() -> None:
    """Starts the log's writer again, which the end of one worker has stopped, if there are others."""
    if any(worker._pid == os.getpid() for worker in _open_workers):
        from simpler._extension import native

        native._start_host_log_writer()


def _refuse_python_threads() -> None:
    """A child would have the locks of other threads and not them."""
    own = threading.get_ident()
    others = [ident for ident in sys._current_frames() if ident != own]
    if not others:
        return
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    shown = ", ".join(names.get(ident, "not of threading") for ident in others[:4])
    raise WorkerError(
        f"worker: this process has {len(others)} Python threads beside the caller's ({shown}) and cannot fork its "
        "children: a child would inherit locks whose holders it does not have; start the worker before any other thread"
    )


@atexit.register
def _close_at_exit() -> None:
    """Closes what is open when the interpreter exits; in a process that has it from a fork, nothing."""
    for worker in list(_open_workers):
        if worker._pid != os.getpid():
            continue
        try:
            worker.close()
        except SimplerError as failure:
            _log.get_logger().warning("%s", failure)
