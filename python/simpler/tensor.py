"""What runs read and write.

An argument of a run is a tensor or a scalar. Tensors are anything with the buffer protocol (numpy arrays,
``bytearray``, ``memoryview``, ``array.array``) or DLPack (torch tensors on the CPU), C-contiguous, or memory of a chip
(:class:`DeviceMemory`). How the run uses one is said by what it is wrapped in::

    worker.run(add, In(a), In(b), Out(c), 4)

Without a wrapper the callable's signature says it, and without that an array is :class:`InOut` where it can be written
and :class:`In` where not.

**Where the memory lies.** A chip in this process (level 2) uses an array's own memory. A chip in a process of its own
sees only what was shared with it before it was forked: :func:`shared_array`, and ``Worker.shared``, make arrays over
such memory, which cost no copy. Any other array is copied through the worker's staging memory: before the run where
the run reads it, back when the run is waited for, and has succeeded, where the run writes it.

**How long.** A run keeps what it names until it has been waited for, so an array may go out of scope meanwhile. Who
touches an array while a run uses it reads or leaves what the run happens to be at; so with arrays that overlap.

**Elements.** A chip has float32, float16, int32 and uint8, and the blocks q4_1 and q8_0 as bytes. Anything else,
bfloat16 too, is refused with a sentence; ``dtype`` and ``shape`` of a wrapper say what the bytes are to be taken for.

**Scalars** are whole numbers from -2^63 to 2^64 - 1, or numbers whose width is known: numpy's and ctypes'. A float's
width must be said (``numpy.float32(x)``): the chip gets its bits.
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from simpler.errors import ArgumentError

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    from simpler import _task_interface as native

__all__ = ["Argument", "DeviceMemory", "In", "InOut", "NoDep", "Out", "RunArgs", "shared_array"]

_SCALAR_MIN = -(2**63)
_SCALAR_MAX = 2**64 - 1


@dataclass(frozen=True)
class Argument:
    """An array and how a run uses it; see :class:`In`, :class:`Out`, :class:`InOut`, :class:`NoDep`.

    ``dtype`` (``float32``, ``float16``, ``int32``, ``uint8``, ``q4_1``, ``q8_0``) and ``shape`` replace the array's
    own; with ``dtype`` alone the tensor has one dimension.
    """

    array: Any
    dtype: str | None = field(default=None, kw_only=True)
    shape: tuple[int, ...] | None = field(default=None, kw_only=True)
    use: ClassVar[str] = ""


class In(Argument):
    """The run reads it."""

    use = "in"


class Out(Argument):
    """The run writes all of it; what was there before is not carried over."""

    use = "out"


class InOut(Argument):
    """The run reads and writes it."""

    use = "inout"


class NoDep(Argument):
    """The run reads it, and no task of the run waits for another because of it: constants."""

    use = "nodep"


class DeviceMemory:
    """Memory of a chip, from ``Worker.malloc``: ``nbytes`` bytes at ``address`` on ``chip``. It can be an argument of a
    run.
    """

    __slots__ = ("__weakref__", "_is_freed", "_owner", "address", "chip", "nbytes")

    def __init__(self, owner: object, chip: int, address: int, nbytes: int) -> None:
        self._owner = weakref.ref(owner)
        self._is_freed = False
        self.chip = chip
        self.address = address
        self.nbytes = nbytes

    def __repr__(self) -> str:
        state = " (freed)" if self._is_freed else ""
        return f"<DeviceMemory {self.nbytes} bytes at {self.address:#x} on chip {self.chip}{state}>"

    def _require(self, owner: object) -> None:
        if self._owner() is not owner:
            raise ArgumentError(f"{self!r} is another worker's")
        if self._is_freed:
            raise ArgumentError(f"{self!r} cannot be used any more")


@dataclass
class RunArgs:
    """The arguments of a run as the extension takes them; :func:`arguments` makes them of Python objects.

    ``chip`` is where the device memory among them is, if there is any.
    """

    tensors: list[native._Tensor]
    scalars: list[int]
    chip: int | None = None


#: Every buffer of this process that still lives: what a worker that is started now shares with its children.
# FORK: a child's copy lists what it has inherited; a worker that it starts shares that on.
_shared: weakref.WeakSet[native._SharedBuffer] = weakref.WeakSet()


def shared_array(shape: int | Sequence[int], dtype: numpy.typing.DTypeLike = "float32") -> numpy.typing.NDArray[Any]:
    """A numpy array of zeros over memory that the children of every worker see that is started later.

    A run on such an array, or on a contiguous part of it, copies nothing between the processes. For a worker that was
    started before, it is an array like any other. The memory goes with the last array over it.

    Raises :class:`~simpler.WorkerError` if the system gives no memory.
    """
    import numpy

    from simpler._extension import native

    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    element = numpy.dtype(dtype)
    if element.hasobject or any(not isinstance(extent, int) or extent < 0 for extent in extents):
        raise ArgumentError(f"shared memory for {element} of shape {extents}: numbers, and as many as there can be")
    buffer = native._SharedBuffer(max(1, math.prod(extents) * element.itemsize))
    _shared.add(buffer)
    return array_over(buffer, element, extents)


def array_over(memory: Any, dtype: numpy.typing.DTypeLike, shape: Sequence[int]) -> numpy.typing.NDArray[Any]:
    """An array of this shape over the first bytes of memory that has the buffer protocol, and is kept by it."""
    import numpy

    count = math.prod(shape)
    if count == 0:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(memoryview(memory), dtype=dtype, count=count).reshape(shape)


def shared_buffers() -> list[native._SharedBuffer]:
    """The buffers of all arrays of :func:`shared_array` that live."""
    return list(_shared)


def arguments(args: Sequence[Any], signature: tuple[type[Argument], ...] | None, owner: object) -> RunArgs:
    """The arguments of a chip's run. ``owner`` is the worker whose device memory may be among them."""
    if len(args) == 1 and isinstance(args[0], RunArgs):
        return args[0]
    result = RunArgs([], [])
    for position, arg in enumerate(args):
        bits = _scalar(arg)
        if bits is not None:
            result.scalars.append(bits)
            continue
        use = None
        if signature is not None:
            place = len(result.tensors)
            if place >= len(signature):
                raise ArgumentError(f"argument {position}: the signature has {len(signature)} tensors")
            use = signature[place]
        try:
            result.tensors.append(_tensor(arg, use, owner, result))
        except (ArgumentError, BufferError, TypeError, ValueError) as error:
            raise ArgumentError(f"argument {position}: {error}") from error
    if signature is not None and len(result.tensors) != len(signature):
        raise ArgumentError(f"{len(result.tensors)} tensors, and the signature has {len(signature)}")
    return result


def _tensor(arg: Any, use: type[Argument] | None, owner: object, into: RunArgs) -> native._Tensor:
    from simpler._extension import native

    if isinstance(arg, Argument):
        if use is not None and use is not type(arg):
            raise ArgumentError(f"it is {type(arg).__name__}, and {use.__name__} in the signature")
        argument = arg
    else:
        argument = (use or _usual_use(arg))(arg)
    array = argument.array
    shape = None if argument.shape is None else list(argument.shape)
    if isinstance(array, DeviceMemory):
        array._require(owner)
        if into.chip not in (None, array.chip):
            raise ArgumentError(f"{array!r}, and another argument is on chip {into.chip}")
        into.chip = array.chip
        dtype = argument.dtype or "uint8"
        return native._Tensor.device(array.address, array.nbytes, argument.use, dtype=dtype, shape=shape)
    _refuse_elements(array, argument)
    return native._Tensor(array, argument.use, dtype=argument.dtype, shape=shape)


def _refuse_elements(array: Any, argument: Argument) -> None:
    """Numpy has no buffer format for types of other packages, and says so in its own words."""
    name = str(getattr(array, "dtype", ""))
    if name.endswith("bfloat16") and argument.dtype is None:
        raise ArgumentError(
            "elements of type bfloat16: a chip has float32, float16, int32 and uint8; convert the array"
        )


def _usual_use(arg: Any) -> type[Argument]:
    if isinstance(arg, DeviceMemory):
        return InOut
    try:
        return In if memoryview(arg).readonly else InOut
    except TypeError:
        # A tensor that is handed over by DLPack can be written.
        return InOut


def _scalar(arg: Any) -> int | None:
    """The 64 bits of a scalar; none of what is no scalar."""
    if isinstance(arg, int):
        value = int(arg)
    elif isinstance(arg, ctypes._SimpleCData):
        inner = arg.value
        if not isinstance(inner, (int, float)):
            return None
        value = inner if isinstance(inner, int) else int.from_bytes(bytes(arg), sys.byteorder)
    elif _is_numpy_scalar(arg):
        if arg.dtype.kind in "iub":
            value = int(arg)
        elif arg.dtype.kind == "f" and arg.dtype.itemsize <= 8:
            value = int.from_bytes(arg.tobytes(), sys.byteorder)
        else:
            raise ArgumentError(
                f"a scalar of type {arg.dtype}: whole numbers and floats of up to 64 bits can be passed"
            )
    elif isinstance(arg, float):
        raise ArgumentError(
            f"the float {arg!r} has no width yet: numpy.float32({arg!r}) passes the bits of 32, numpy.float64 of 64"
        )
    else:
        return None
    if not _SCALAR_MIN <= value <= _SCALAR_MAX:
        raise ArgumentError(f"the scalar {value} has more than 64 bits")
    return value % 2**64


def _is_numpy_scalar(arg: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(arg, numpy.generic)
