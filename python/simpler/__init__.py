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
    from simpler.worker_level import WorkerLevel

#: What is imported when it is first asked for: a name of this package and the module that holds or is it.
_LAZY = {
    "WorkerLevel": "simpler.worker_level",
    "trace": "simpler.trace",
}

__all__ = ["NUL", "TIMING", "WorkerLevel", "get_logger", "trace"]


def __getattr__(name: str) -> object:
    if (holder := _LAZY.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(holder)
    value: object = module if holder == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
