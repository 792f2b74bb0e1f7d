"""Calls of Python functions in the children of a worker, and how their arguments get there.

A sub worker, or a worker below, has the function from the fork; what it gets is one packet and the arrays that the
packet names. Arrays (wrapped, or anything that is one) go by shared memory, as for a chip, and come out as numpy arrays
over it; every other argument is pickled into the packet. Arrays are good until the function returns.

Whatever the function raises is caught: the parent gets its class, its text and the last lines of its traceback, within
the room that a mailbox has for an error's text.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable as Function
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simpler.errors import ArgumentError, RunError
from simpler.tensor import Argument, DeviceMemory, In, InOut, RunArgs, array_over

if TYPE_CHECKING:
    from simpler import _task_interface as native
    from simpler.worker import Worker

__all__ = ["PythonFunction", "arguments"]

#: A mailbox has room for 1024 bytes; who passes the text on writes before it.
TEXT_BYTES_MAX = 900
#: Of those, what an exception says itself, so that there is room for where it was raised.
MESSAGE_BYTES_MAX = 600

_ARRAY = "array"
_OBJECT = "object"


def arguments(args: Sequence[Any]) -> RunArgs:
    """The arguments of a Python function: the packet first, then the arrays."""
    from simpler._extension import native

    entries: list[tuple[Any, ...]] = []
    tensors: list[native._Tensor] = []
    for position, arg in enumerate(args):
        argument = _array(arg)
        if argument is None:
            entries.append((_OBJECT, arg))
            continue
        try:
            array = _as_numpy(argument.array)
            tensors.append(native._Tensor(array, argument.use, raw=True))
        except (BufferError, TypeError, ValueError) as error:
            raise ArgumentError(f"argument {position}: {error}") from error
        entries.append((_ARRAY, len(tensors), array.dtype.str, array.shape))
    try:
        packet = pickle.dumps(entries, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # Whatever the arguments' own methods raise.
        raise ArgumentError(f"the arguments cannot be pickled: {error}") from error
    return RunArgs([native._Tensor(packet, "in", raw=True), *tensors], [])


def _array(arg: Any) -> Argument | None:
    """The array that an argument is, if it is one; bytes are an object like others."""
    if isinstance(arg, (DeviceMemory, RunArgs)):
        raise ArgumentError(f"{arg!r} means nothing to a Python function")
    if isinstance(arg, Argument):
        return arg
    if isinstance(arg, bytes):
        return None
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(arg, numpy.generic):
        return None
    if hasattr(arg, "__dlpack__") and not (numpy is not None and isinstance(arg, numpy.ndarray)):
        return InOut(arg)
    try:
        return In(arg) if memoryview(arg).readonly else InOut(arg)
    except TypeError:
        return None


def _as_numpy(array: Any) -> Any:
    import numpy

    if isinstance(array, numpy.ndarray):
        return array
    try:
        return numpy.asarray(memoryview(array))
    except TypeError:
        return numpy.from_dlpack(array)


class PythonFunction:
    """What a child's native loop calls: decodes the arguments, calls the function, says what became of it."""

    def __init__(self, name: str, function: Function[..., Any], workers: Sequence[Worker] = ()) -> None:
        self._name = name
        self._function = function
        self._workers = workers

    def __call__(
        self, lent: tuple[int, native._Worker] | None, memories: list[native._TaskMemory]
    ) -> tuple[int, str] | None:
        """None, or code and text of the failure."""
        try:
            args = _decode(memories)
            if lent is None:
                self._function(*args)
            else:
                place, borrowed = lent
                worker = self._workers[place]
                with worker._lent(borrowed):
                    self._function(worker, *args)
        except BaseException as error:  # SystemExit and KeyboardInterrupt end the call, not the child.
            code = error.code if isinstance(error, RunError) else -1
            return code, describe(self._name, error)
        finally:
            _flush_output()
        return None


def _decode(memories: Sequence[native._TaskMemory]) -> list[Any]:
    packet: Any = memories[0]
    args: list[Any] = []
    for kind, *entry in pickle.loads(packet):
        if kind == _OBJECT:
            args.append(entry[0])
        else:
            place, dtype, shape = entry
            args.append(array_over(memories[place], dtype, shape))
    return args


def _flush_output() -> None:
    """A child leaves by ``_exit``, which flushes nothing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            pass


def describe(name: str, error: BaseException) -> str:
    """An exception in so many bytes: what it says, then as many of its last lines as there is room for."""
    said = "".join(traceback.format_exception_only(error)).strip()
    text = _cut(f"{name}: {said}", MESSAGE_BYTES_MAX)
    # The first frame is this module's.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    lines: list[str] = []
    room = TEXT_BYTES_MAX - len(text.encode())
    for frame in reversed(frames):
        line = f"\n  {frame.filename}:{frame.lineno}, in {frame.name}"
        if frame.line:
            line += f": {frame.line}"
        room -= len(line.encode())
        if room < 0:
            break
        lines.append(line)
    return text + "".join(reversed(lines))


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode()
    return text if len(data) <= bytes_max else data[: bytes_max - 1].decode(errors="ignore") + "~"
