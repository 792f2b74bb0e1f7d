"""Callables: what chips, sub workers and workers below run.

A :class:`Callable` is for chips: one orchestration and its kernels, as shared objects. It is compiled from C, C++ or
Rust sources, or read from objects that were compiled before. A :class:`PythonCallable` is a Python function that was
registered with a worker.

Two identities, not to be mixed (RUNTIME §1.6): ``hid`` is what ``hid=`` is in the log, 64 bits of the orchestration
object's build-id, which covers the kernels as well; ``hashid`` is the registry's, a SHA-256 of everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable as Function
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from simpler.errors import ArgumentError

if TYPE_CHECKING:
    from simpler import _task_interface as native
    from simpler.tensor import Argument

__all__ = ["Callable", "Core", "PythonCallable", "Source", "cache_folder"]

#: Kinds of cores: ``aic`` multiplies matrices, ``aiv`` works on vectors.
Core = Literal["aic", "aiv"]

StrPath = str | os.PathLike[str]
# A mapping's keys are of one type each time.
_File = TypeVar("_File", bound="str | os.PathLike[str]")
_AnySource = TypeVar("_AnySource", bound="str | os.PathLike[str] | Source")


@dataclass(frozen=True)
class Source:
    """A source or a header as text.

    ``name`` is a file name without folders: it says the language (``.c``, ``.cpp``, ``.rs``), what ``#include`` calls
    it, and what a kernel is called.
    """

    name: str
    text: str

    @classmethod
    def read(cls, file: StrPath | Source) -> Source:
        """The text of a file; a source is what it is."""
        if isinstance(file, Source):
            return file
        path = Path(file)
        return cls(path.name, path.read_text(encoding="utf-8"))


def cache_folder() -> Path:
    """Where compiled objects and models are kept: ``$XDG_CACHE_HOME/simpler``, or ``~/.cache/simpler``."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "simpler"


class Callable:
    """An orchestration and its kernels, ready to be registered with any number of workers.

    ``signature`` says how a run uses its tensors, in order; without it each argument says so itself
    (:class:`~simpler.In`, :class:`~simpler.Out`, …).
    """

    __slots__ = ("_image", "signature")

    def __init__(self, image: native._CallableImage, signature: Iterable[type[Argument]] | None = None) -> None:
        self._image = image
        self.signature = None if signature is None else tuple(signature)

    @classmethod
    def compile(
        cls,
        name: str,
        *,
        orchestration: StrPath | Source,
        kernels: Mapping[_AnySource, Core],
        headers: Iterable[StrPath | Source] = (),
        signature: Iterable[type[Argument]] | None = None,
        cache: StrPath | None = None,
    ) -> Callable:
        """Compiles sources: files, or texts as :class:`Source`.

        ``kernels`` maps each kernel to the kind of core that it runs on; the orchestration numbers them in this
        order. ``headers`` are what any of them may include by name. Objects are kept in ``cache``
        (:func:`cache_folder`\\ ``/objects`` unless told otherwise) and found there again by their content.

        Raises :class:`~simpler.CompileError` with the compiler's words; :class:`OSError` for a file that cannot be
        read. Waits for the compiler with the GIL released.
        """
        from simpler._extension import native

        main = Source.read(orchestration)
        sources = [(Source.read(kernel), core) for kernel, core in kernels.items()]
        texts = [Source.read(header) for header in headers]
        image = native._compile(
            name,
            (main.name, main.text),
            [(source.name, source.text, core) for source, core in sources],
            [(header.name, header.text) for header in texts],
            os.fspath(cache if cache is not None else cache_folder() / "objects"),
        )
        return cls(image, signature)

    @classmethod
    def from_objects(
        cls,
        name: str,
        *,
        orchestration: StrPath | bytes,
        kernels: Mapping[_File, Core | tuple[Core, bytes]] | Mapping[_File, Core] | Mapping[_File, tuple[Core, bytes]],
        signature: Iterable[type[Argument]] | None = None,
    ) -> Callable:
        """Reads objects that were compiled before: ``kernels`` maps a file to its core, or a name to core and bytes.

        They must be those that the orchestration was built for; a worker refuses others when it is given them.
        """
        from simpler._extension import native

        main = orchestration if isinstance(orchestration, bytes) else Path(orchestration).read_bytes()
        objects: list[tuple[str, str, bytes]] = []
        for key, value in kernels.items():
            kernel: StrPath = key
            if isinstance(value, tuple):
                core, data = value
                objects.append((os.fspath(kernel), core, data))
            else:
                path = Path(kernel)
                objects.append((path.stem, value, path.read_bytes()))
        return cls(native._CallableImage(name, main, objects), signature)

    @property
    def name(self) -> str:
        """The name, for people."""
        return self._image.name

    @property
    def hid(self) -> str:
        """The trace identity, as ``hid=`` has it: lower-case hexadecimal without padding."""
        return f"{self._image.hid:x}"

    @property
    def hashid(self) -> str:
        """The registry identity: ``sha256:`` and 64 hexadecimal digits of the content. The name is not part of it."""
        return f"sha256:{self._digest.hex()}"

    @property
    def orchestration(self) -> bytes:
        """The orchestration's object."""
        return self._image.orchestration

    @property
    def kernels(self) -> dict[str, tuple[Core, bytes]]:
        """Each kernel's core and object by its name, in the order of their indices."""
        return {name: (core, data) for name, core, data in self._image.kernels}

    @property
    def _digest(self) -> bytes:
        return self._image.digest

    def __repr__(self) -> str:
        return f"<Callable {self.name} hid={self.hid}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Callable) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@dataclass(frozen=True, eq=False)
class PythonCallable:
    """A Python function that was registered with a worker.

    ``on`` says what runs it: ``subs``, each in its process, or ``workers``, those below, which it gets as its first
    argument. It is known by its name, to the worker and its children.
    """

    name: str
    function: Function[..., Any]
    on: Literal["subs", "workers"]

    @property
    def _digest(self) -> bytes:
        from simpler._extension import native

        return native._closure_digest(self.name, self.on == "workers")

    @property
    def hid(self) -> str:
        """The trace identity, as ``hid=`` has it."""
        return f"{int.from_bytes(self._digest[:8], 'little'):x}"

    @property
    def hashid(self) -> str:
        """The registry identity: ``sha256:`` and 64 hexadecimal digits of kind and name."""
        return f"sha256:{self._digest.hex()}"


def name_of(function: Function[..., Any], taken: Iterable[str]) -> str:
    """A name for a function that is none of those that are taken."""
    if not callable(function):
        raise ArgumentError(f"{function!r} is neither a Callable nor a function")
    module = getattr(function, "__module__", None) or "?"
    plain = f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    names, name, number = set(taken), plain, 1
    while name in names:
        number += 1
        name = f"{plain}#{number}"
    return name
