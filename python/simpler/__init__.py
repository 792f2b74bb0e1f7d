"""An accelerator runtime whose every run explains itself in its own log.

Importing this package loads no extension, so that a broken or missing build can still say why: what needs
``simpler._task_interface`` loads it at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callable import Callable, PythonCallable, Source
    from .errors import (
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
    from .task_interface import CallConfig, ChipWorker, RuntimeEnv
    from .tensor import DeviceMemory, In, InOut, NoDep, Out, RunArgs, shared_array
    from .worker import DistributedWorker, Ticket, Worker
    from .worker_level import WorkerLevel

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
    "shared_array": "simpler.tensor",
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
    "NoDep",
    "Out",
    "PythonCallable",
    "RunArgs",
    "RunError",
    "RuntimeEnv",
    "SimplerError",
    "Source",
    "Ticket",
    "UnsupportedError",
    "Worker",
    "WorkerError",
    "WorkerLevel",
    "shared_array",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
