"""An accelerator runtime whose every run explains itself in its own log.

Importing this package loads no extension, so that a broken or missing build can still say why: what needs
``simpler._task_interface`` loads it at its first use. It does register the level names TIMING and NUL with
``logging``, and sets the logger ``simpler`` to TIMING if it has no level.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from simpler._log import NUL, TIMING, get_logger

if TYPE_CHECKING:
    from simpler import trace
    from simpler.callable import Callable, PythonCallable, Source
    from simpler.errors import (
        ArgumentError,
        BusyError,
        ChildLostError,
        ClosedError,
        CompileError,
        InitError,
        ModelError,
        RunError,
        SimplerError,
        UnsupportedError,
        WorkerError,
    )
    from simpler.reader import Log, read_log
    from simpler.task_interface import CallConfig, ChipWorker, RuntimeEnv
    from simpler.tensor import DeviceMemory, In, InOut, NoDep, Out, RunArgs, shared_array
    from simpler.worker import DistributedWorker, Ticket, Worker
    from simpler.worker_level import WorkerLevel

#: What is imported when it is first asked for: a name of this package and the module that holds or is it.
_LAZY = {
    "ArgumentError": "simpler.errors",
    "BusyError": "simpler.errors",
    "CallConfig": "simpler.task_interface",
    "Callable": "simpler.callable",
    "ChildLostError": "simpler.errors",
    "ChipWorker": "simpler.task_interface",
    "ClosedError": "simpler.errors",
    "CompileError": "simpler.errors",
    "DeviceMemory": "simpler.tensor",
    "DistributedWorker": "simpler.worker",
    "In": "simpler.tensor",
    "InOut": "simpler.tensor",
    "InitError": "simpler.errors",
    "ModelError": "simpler.errors",
    "NoDep": "simpler.tensor",
    "Out": "simpler.tensor",
    "PythonCallable": "simpler.callable",
    "RunArgs": "simpler.tensor",
    "RunError": "simpler.errors",
    "RuntimeEnv": "simpler.task_interface",
    "SimplerError": "simpler.errors",
    "Source": "simpler.callable",
    "Ticket": "simpler.worker",
    "UnsupportedError": "simpler.errors",
    "Worker": "simpler.worker",
    "WorkerError": "simpler.errors",
    "WorkerLevel": "simpler.worker_level",
    "Log": "simpler.reader",
    "read_log": "simpler.reader",
    "shared_array": "simpler.tensor",
    "trace": "simpler.trace",
}

__all__ = [
    "ArgumentError",
    "BusyError",
    "CallConfig",
    "Callable",
    "ChildLostError",
    "ChipWorker",
    "ClosedError",
    "CompileError",
    "DeviceMemory",
    "DistributedWorker",
    "In",
    "InOut",
    "InitError",
    "ModelError",
    "NUL",
    "NoDep",
    "Out",
    "PythonCallable",
    "RunArgs",
    "RunError",
    "RuntimeEnv",
    "SimplerError",
    "Source",
    "TIMING",
    "Ticket",
    "UnsupportedError",
    "Worker",
    "WorkerError",
    "WorkerLevel",
    "Log",
    "get_logger",
    "read_log",
    "shared_array",
    "trace",
]


def __getattr__(name: str) -> object:
    if (holder := _LAZY.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(holder)
    value: object = module if holder == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
