"""A llama-architecture decoder as callables on the chip: the example that simpler comes with.

A :class:`Model` holds the figures, the weights and the tokenizer; :func:`callables` are prefill and decode; a
:class:`Session` says which buffers a sequence needs on a chip and gives the arguments of each run. The tokens lie in
one array of int32 words on the host: word *i* is the token at position *i*. A prefill of *n* tokens reads words 0 to
*n* - 1 and writes word *n*, a decode at position *p* reads word *p* and writes word *p* + 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simpler._extension import native
from simpler.callable import Callable, StrPath, cache_folder
from simpler.errors import ModelError
from simpler.tensor import DeviceMemory, RunArgs

if TYPE_CHECKING:
    import numpy
    import numpy.typing

__all__ = ["DeviceBuffers", "Model", "ModelConfig", "Session", "callables"]

#: The file that ``cargo xtask fetch-model`` fetches.
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
#: Names another place for it.
SMOLLM2_VARIABLE = "SIMPLER_SMOLLM2_GGUF"


@dataclass(frozen=True)
class ModelConfig:
    """The figures of a decoder; ``context`` is how many tokens it was made for."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    rms_eps: float
    rope_base: float


class Model:
    """A decoder, ready to be put on chips."""

    def __init__(self, model: native._Model) -> None:
        self._native = model

    @classmethod
    def tiny(cls) -> Model:
        """The built-in one: small, deterministic, untaught; with every kind of task that a real one has."""
        return cls(native._Model.tiny())

    @classmethod
    def from_gguf(cls, path: StrPath) -> Model:
        """One of a file: llama architecture, the SmolLM tokenizer, weights in Q4_1, Q8_0, F16 or F32.

        Raises :class:`~simpler.ModelError`.
        """
        return cls(native._Model.from_gguf(os.fspath(path)))

    @classmethod
    def load(cls, name: StrPath) -> Model:
        """``tiny``, ``smollm2`` (see ``cargo xtask fetch-model``), or a file."""
        if name == "tiny":
            return cls.tiny()
        if name == "smollm2":
            path = os.environ.get(SMOLLM2_VARIABLE) or os.fspath(cache_folder() / "models" / SMOLLM2)
            if not os.path.isfile(path):
                raise ModelError(f"{path} is not there; `cargo xtask fetch-model` fetches it")
            return cls.from_gguf(path)
        return cls.from_gguf(name)

    @property
    def config(self) -> ModelConfig:
        """Its figures."""
        figures: dict[str, Any] = dict(self._native.config)
        for name, value in figures.items():
            if name not in ("rms_eps", "rope_base"):
                figures[name] = int(value)
        return ModelConfig(**figures)

    @property
    def weights(self) -> memoryview:
        """Its weights as a chip holds them: read-only bytes, not copied."""
        buffer: Any = self._native
        return memoryview(buffer)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The token ids of a text; with ``special``, the special tokens in it are parsed."""
        return self._native.encode(text, special)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; bytes that are no character become U+FFFD."""
        return self._native.decode(list(ids)).decode("utf-8", errors="replace")

    def chat_prompt(self, message: str) -> str:
        """The prompt of one user message by the model's own template; encode it with ``special=True``.

        Raises :class:`~simpler.ModelError` if the model has none.
        """
        return self._native.chat_prompt(message)


@dataclass(frozen=True)
class DeviceBuffers:
    """A sequence's memory on one chip. Sequences there may share the weights."""

    weights: DeviceMemory
    cache: DeviceMemory
    rope: DeviceMemory
    logits: DeviceMemory


class Session:
    """A model and the room for one sequence of ``capacity`` tokens, prompt and generated ones.

    ``cpus`` is how many cores really run side by side (this machine's CPUs unless told otherwise): as many tasks share
    a matrix. ``task_slots`` times selected tasks.
    """

    def __init__(self, model: Model, capacity: int, *, cpus: int | None = None, task_slots: bool = False) -> None:
        count = cpus if cpus is not None else len(os.sched_getaffinity(0))
        self._native = native._Session(model._native, capacity, count, task_slots)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self._native.weight_bytes

    @property
    def cache_bytes(self) -> int:
        """Bytes of the key and value cache, of any content at first."""
        return self._native.cache_bytes

    @property
    def rope_bytes(self) -> int:
        """Bytes of the rope table."""
        return self._native.rope_bytes

    @property
    def logits_bytes(self) -> int:
        """Bytes of the logits, float32, that each run leaves of its last token."""
        return self._native.logits_bytes

    @property
    def token_words(self) -> int:
        """Words that the tokens need: one for each position, and one for the token after the last."""
        return self._native.token_words

    def rope_table(self) -> numpy.typing.NDArray[numpy.float32]:
        """The rope table: per position and pair of a head, cosine and sine of the angle."""
        import numpy

        return numpy.frombuffer(self._native.rope_table(), dtype=numpy.float32)

    def prefill_args(self, buffers: DeviceBuffers, words: Any, tokens: int) -> RunArgs:
        """Arguments of a prefill of ``tokens`` tokens into an empty cache."""
        return self._args(buffers, words, 0, tokens)

    def decode_args(self, buffers: DeviceBuffers, words: Any, position: int) -> RunArgs:
        """Arguments of a decode of the token at ``position``."""
        return self._args(buffers, words, position, 1)

    def _args(self, buffers: DeviceBuffers, words: Any, position: int, tokens: int) -> RunArgs:
        memories = (buffers.weights, buffers.cache, buffers.rope, buffers.logits)
        weights, cache, rope, logits = (memory.address for memory in memories)
        host = native._Tensor(words, "inout", raw=True)
        tensors, scalars = self._native.args((weights, cache, rope, logits), host, position, tokens)
        return RunArgs(tensors, scalars, buffers.cache.chip)


def callables(kernels: StrPath | None = None) -> tuple[Callable, Callable]:
    """Prefill and decode, compiled; sources in the folder ``kernels`` take the place of built-in ones of the same name.

    Raises :class:`~simpler.CompileError`, :class:`~simpler.ModelError`.
    """
    folder = None if kernels is None else os.fspath(kernels)
    if folder is not None and not os.path.isdir(folder):
        raise ModelError(f"{folder}: no such folder")
    prefill, decode = native._decoder_callables(os.fspath(cache_folder() / "objects"), folder)
    return Callable(prefill), Callable(decode)
