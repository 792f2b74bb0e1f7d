"""The exceptions of simpler, each with the native text.

All of them are :class:`SimplerError`, and what the standard library has a class for is that as well, so that
``except ValueError`` and ``except RuntimeError`` go on working.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BusyError",
    "ChildLostError",
    "ClosedError",
    "CompileError",
    "InitError",
    "ModelError",
    "RunError",
    "SimplerError",
    "UnsupportedError",
    "WorkerError",
]


class SimplerError(Exception):
    """Anything that simpler reports."""


class WorkerError(SimplerError, RuntimeError):
    """A worker that cannot be made, or cannot be used this way, here, or any more."""


class InitError(WorkerError):
    """A child, or the chip in this process, did not come up; the text is the child's. Nobody is left behind."""


class BusyError(WorkerError):
    """The child has as many runs as it can take: wait for a ticket first."""


class ClosedError(WorkerError):
    """The worker was closed, or its loan to an orchestration is over."""


class ChildLostError(WorkerError):
    """A child's process has ended while something was expected from it.

    ``child`` names it (``chip 0``), ``pid`` is its process. The other children go on.
    """

    def __init__(self, text: str, child: str = "", pid: int = 0) -> None:
        super().__init__(text)
        self.child = child
        self.pid = pid


class RunError(SimplerError, RuntimeError):
    """What a child, or the chip in this process, says of a run or another request that failed.

    ``code`` is negative: -1 refused, or an exception of a Python function, else the runtime's code with its sign
    changed. ``child`` names the child (``chip 0``), ``what`` is what was asked of it (``run``, ``malloc``, …).
    """

    def __init__(self, text: str, code: int = -1, child: str = "", what: str = "run") -> None:
        super().__init__(text)
        self.code = code
        self.child = child
        self.what = what


class ArgumentError(SimplerError, ValueError):
    """An argument that cannot go to a child; nothing was handed over."""


class UnsupportedError(SimplerError, NotImplementedError):
    """Something that the specification names and this version does not do."""


class CompileError(SimplerError):
    """A source that the compiler refuses, with the compiler's words, or a cache that cannot be used."""


class ModelError(SimplerError):
    """A model, a text or a request that the decoder does not take."""
