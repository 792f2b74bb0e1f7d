"""A chip in this process, and what a run may choose for itself.

:class:`ChipWorker` is level 2: one simulated chip and its runtime. :class:`CallConfig` are the choices of one run, of
any level.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from simpler import _log
from simpler.callable import Callable
from simpler.errors import ArgumentError, ClosedError, UnsupportedError, WorkerError
from simpler.tensor import DeviceMemory, arguments

if TYPE_CHECKING:
    from simpler import _task_interface as native

__all__ = ["CallConfig", "Callable", "ChipWorker", "DeviceMemory", "RuntimeEnv"]

#: Rings of a runtime: tasks are in the ring of their scope's depth.
RINGS = 4

_Sizes = int | Iterable[int]


@dataclass
class RuntimeEnv:
    """Sizes of the runtime's four rings; 0 is what the environment (``PTO2_RING_*``), or else the runtime, has.

    Each is one number for all rings or four, one a ring: ``task_window`` tasks (a power of two), ``heap`` bytes,
    ``dep_pool`` dependencies.
    """

    task_window: _Sizes = 0
    heap: _Sizes = 0
    dep_pool: _Sizes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, _per_ring(name, value))


def _per_ring(name: str, value: Any) -> list[int]:
    sizes = [value] * RINGS if isinstance(value, int) else list(value)
    if len(sizes) != RINGS or not all(isinstance(size, int) and 0 <= size < 2**64 for size in sizes):
        raise ArgumentError(f"runtime_env.{name} = {value!r}: one number from 0, or {RINGS}")
    return sizes


@dataclass
class CallConfig:
    """What one run chooses for itself (RUNTIME §1.5). Zeros and None are the defaults.

    - ``aicpu_thread_num``: AICPU threads, from 2 to the platform's (0: all of them).
    - ``enable_chip_swimlane``: what is recorded of the chip's tasks, 0 (nothing) to 4; ``enable_l2_swimlane`` is its
      older name.
    - ``runtime_env``: sizes of the runtime's rings.
    - ``output_prefix``: the folder of what is recorded, which that needs. It becomes the folder of the process's log as
      well, before the run, where the log has none yet.

    ``enable_dump_args``, ``enable_pmu``, ``enable_dep_gen`` and ``enable_scope_stats`` are the specification's; this
    version has none of them, and setting one raises :class:`~simpler.UnsupportedError`.
    """

    aicpu_thread_num: int = 0
    enable_chip_swimlane: int = 0
    enable_dump_args: int = 0
    enable_pmu: int = 0
    enable_dep_gen: int = 0
    enable_scope_stats: int = 0
    runtime_env: RuntimeEnv = field(default_factory=RuntimeEnv)
    output_prefix: str | os.PathLike[str] | None = None

    def __init__(
        self,
        aicpu_thread_num: int = 0,
        enable_chip_swimlane: int = 0,
        enable_dump_args: int = 0,
        enable_pmu: int = 0,
        enable_dep_gen: int = 0,
        enable_scope_stats: int = 0,
        runtime_env: RuntimeEnv | None = None,
        output_prefix: str | os.PathLike[str] | None = None,
        *,
        enable_l2_swimlane: int | None = None,
    ) -> None:
        self.aicpu_thread_num = aicpu_thread_num
        self.enable_chip_swimlane = enable_chip_swimlane if enable_l2_swimlane is None else enable_l2_swimlane
        self.enable_dump_args = enable_dump_args
        self.enable_pmu = enable_pmu
        self.enable_dep_gen = enable_dep_gen
        self.enable_scope_stats = enable_scope_stats
        self.runtime_env = RuntimeEnv() if runtime_env is None else runtime_env
        self.output_prefix = output_prefix

    @property
    def enable_l2_swimlane(self) -> int:
        """The older name of ``enable_chip_swimlane``."""
        return self.enable_chip_swimlane

    @enable_l2_swimlane.setter
    def enable_l2_swimlane(self, level: int) -> None:
        self.enable_chip_swimlane = level

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _UNSUPPORTED and value:
            raise UnsupportedError(f"CallConfig.{name} = {value!r}: this version has no such diagnostics")
        if name in _NUMBERS:
            value = count(f"CallConfig.{name}", value)
            if value >= 2**31:
                raise ArgumentError(f"CallConfig.{name} = {value}: it has 31 bits")
        elif name == "output_prefix" and value is not None:
            value = os.fspath(value)
        elif name == "runtime_env" and not isinstance(value, RuntimeEnv):
            raise ArgumentError(f"CallConfig.runtime_env = {value!r}: a RuntimeEnv")
        elif name not in _NAMES:
            raise AttributeError(f"CallConfig has no {name}")
        object.__setattr__(self, name, value)


def count(name: str, value: object, least: int = 0) -> int:
    """A whole number of something, at least so many; anything else raises :class:`~simpler.ArgumentError`."""
    if not isinstance(value, int) or not least <= value < 2**63:
        raise ArgumentError(f"{name} = {value!r}: a whole number from {least}")
    return int(value)


def require_config(config: object) -> None:
    """Refuses what is no configuration of a run."""
    if config is not None and not isinstance(config, CallConfig):
        raise ArgumentError(f"config = {config!r}: a CallConfig")


_UNSUPPORTED = frozenset(("enable_dump_args", "enable_pmu", "enable_dep_gen", "enable_scope_stats"))
_NUMBERS = _UNSUPPORTED | {"aicpu_thread_num", "enable_chip_swimlane"}
_NAMES = _NUMBERS | {"runtime_env", "output_prefix", "enable_l2_swimlane"}

_RUNTIMES = {
    "tmr": "tensormap_and_ringbuffer",
    "hbg": "host_build_graph",
}


@dataclass
class _ChipPlan:
    """How a chip is made; the extension reads these attributes."""

    platform: str
    runtime: str
    pipeline_depth: int
    enable_sdma: bool
    scheduler_timeout: float | None
    core_threads: int | None
    prewarm_config: CallConfig | None

    def __post_init__(self) -> None:
        self.platform, self.runtime = str(self.platform), _RUNTIMES.get(self.runtime, str(self.runtime))
        count("pipeline_depth", self.pipeline_depth, 1)
        if self.core_threads is not None:
            count("core_threads", self.core_threads, 1)
        require_config(self.prewarm_config)


@dataclass
class _Plan:
    """How a worker is made; the extension reads these attributes."""

    level: int
    chips: int | None
    subs: int
    chip: _ChipPlan
    init_limit: float
    log_threshold: int
    log_directory: str | None
    staging: native._SharedBuffer
    callables: list[native._CallableImage] = field(default_factory=list)
    functions: list[tuple[str, Any]] = field(default_factory=list)
    orchestrations: list[tuple[str, Any]] = field(default_factory=list)
    workers: list[_Plan] = field(default_factory=list)
    shared: list[native._SharedBuffer] = field(default_factory=list)


class ChipWorker:
    """One simulated chip in this process (level 2).

    ``platform`` is ``a2a3sim`` or ``a5sim``; ``runtime`` says where graphs are built: ``tmr``
    (``tensormap_and_ringbuffer``) on the device while it runs, ``hbg`` (``host_build_graph``) on the host before.
    ``log_dir`` is where ``host.<pid>.log`` goes, stderr if there is none. ``scheduler_timeout`` is how many seconds a
    run may make no progress (20), ``core_threads`` how many threads advance the simulated cores (one per CPU),
    ``prewarm_config`` whose rings are built at :meth:`init`.

    One thread uses it, that which has called :meth:`init`; any other one, and a process that was forked later, gets a
    :class:`~simpler.WorkerError`. A run uses the memory of the caller's arrays as it is, with the GIL released.
    """

    def __init__(
        self,
        platform: str = "a2a3sim",
        runtime: str = "tmr",
        *,
        log_dir: str | os.PathLike[str] | None = None,
        enable_sdma: bool = False,
        scheduler_timeout: float | None = None,
        core_threads: int | None = None,
        prewarm_config: CallConfig | None = None,
    ) -> None:
        self._native: native._ChipWorker | None = None
        self._is_closed = False
        self._callables: list[Callable] = []
        self._log_dir = log_dir
        self._chip_plan = _ChipPlan(platform, runtime, 1, enable_sdma, scheduler_timeout, core_threads, prewarm_config)

    def init(self) -> None:
        """Seeds the log with the level that the logger ``simpler`` has now, makes the chip, registers what there is.

        Raises :class:`~simpler.InitError` with the runtime's text; nothing is left then, and it may be called again.
        """
        from simpler._extension import native

        if self._is_closed:
            raise ClosedError("worker: closed")
        if self._native is not None:
            raise WorkerError("worker: it is initialized already")
        _log.seed()
        plan = _Plan(
            level=2,
            chips=1,
            subs=0,
            chip=self._chip_plan,
            init_limit=1.0,
            log_threshold=_log.current_threshold(),
            log_directory=None if self._log_dir is None else os.fspath(self._log_dir),
            staging=native._SharedBuffer(1),
            callables=[callable._image for callable in self._callables],
        )
        self._native = native._ChipWorker(plan)

    def register(self, callable: Callable) -> Callable:
        """Makes a callable known to the chip, now or at :meth:`init`; as often as :meth:`unregister` takes it back."""
        if not isinstance(callable, Callable):
            raise ArgumentError(f"{callable!r} is no Callable: a chip runs no Python")
        if self._native is None:
            self._require_open()
            self._callables.append(callable)
        else:
            self._native.register(callable._image)
        return callable

    def unregister(self, callable: Callable) -> None:
        """Takes one registration back."""
        if self._native is None:
            self._require_open()
            if callable not in self._callables:
                raise WorkerError(f"worker: {callable!r} is not registered")
            self._callables.remove(callable)
        else:
            self._native.unregister(callable._digest)

    def run(self, callable: Callable, *args: Any, config: CallConfig | None = None) -> None:
        """Runs a callable to its end. What it took is in the log.

        Raises :class:`~simpler.RunError` with the run's code and text, :class:`~simpler.ArgumentError` for an argument
        that cannot be passed. Ctrl-C ends the wait with :class:`KeyboardInterrupt`; the run goes on, and what is asked
        of the chip next waits for it.
        """
        require_config(config)
        run_args = arguments(args, callable.signature, self)
        self._open.run(callable._digest, run_args.tensors, run_args.scalars, config)

    def malloc(self, nbytes: int) -> DeviceMemory:
        """Allocates memory of the chip, in bytes."""
        return DeviceMemory(self, 0, self._open.malloc(count("nbytes", nbytes, 1)), nbytes)

    def free(self, memory: DeviceMemory) -> None:
        """Frees it."""
        memory._require(self)
        self._open.free(memory.address)
        memory._is_freed = True

    def copy_to(self, target: DeviceMemory, source: Any, *, offset: int = 0) -> None:
        """Copies an array to the chip's memory, from ``offset`` (bytes) on."""
        from simpler._extension import native

        target._require(self)
        array = native._Tensor(source, "in", raw=True)
        require_inside(target, offset, array.nbytes)
        self._open.copy_to(target.address + offset, array)

    def copy_from(self, target: Any, source: DeviceMemory, *, offset: int = 0) -> None:
        """Copies the chip's memory, from ``offset`` (bytes) on, to an array."""
        from simpler._extension import native

        source._require(self)
        array = native._Tensor(target, "out", raw=True)
        require_inside(source, offset, array.nbytes)
        self._open.copy_from(array, source.address + offset)

    def finalize(self) -> None:
        """Ends the chip and drains the log, up to one second. Again: nothing."""
        if self._native is not None:
            self._native.finalize()
        self._is_closed, self._native = True, None

    @property
    def _open(self) -> native._ChipWorker:
        self._require_open()
        if self._native is None:
            raise WorkerError("worker: it is not initialized: call init() first")
        return self._native

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("worker: closed")

    def __enter__(self) -> ChipWorker:
        if self._native is None:
            self.init()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> Literal[False]:
        self.finalize()
        return False


def require_inside(memory: DeviceMemory, offset: int, nbytes: int) -> None:
    """Refuses a copy of which a part lies outside the memory."""
    if offset < 0 or offset + nbytes > memory.nbytes:
        raise ArgumentError(f"{nbytes} bytes at offset {offset} are not inside {memory!r}")
