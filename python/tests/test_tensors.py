"""Arguments of runs: which arrays and scalars are taken, as what, and without how many copies."""

import array
import ctypes
import math
from typing import Any

import numpy as np
import pytest
from kernels import matmul_tiles, scalars, shape, sleep, vector_add
from processes import in_own_process

import simpler
from simpler import In, InOut, NoDep, Out, Worker

#: Of `kernel.h`.
_F32, _F16, _I32, _U8, _Q4_1, _Q8_0 = range(6)


class _OnlyDlpack:
    """An array that is handed over by DLPack and nothing else."""

    def __init__(self, of: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.of = of
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.of.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def _seen(worker: Worker, look: simpler.Callable, arg: Any) -> list[int]:
    """What an orchestration sees of a tensor: dtype, dimensions, extents."""
    out = np.zeros(7, np.uint64)
    worker.run(look, arg, Out(out.view(np.uint8)))
    return [int(word) for word in out]


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_a_tensor_has_the_type_and_the_shape_of_its_array(level: int) -> None:
    look = shape()
    with Worker(level=level) as worker:
        worker.register(look)
        for arg, expected in [
            (np.zeros(3, np.float32), [_F32, 1, 3]),
            (np.zeros((2, 3, 4, 5, 6), np.float16), [_F16, 5, 2, 3, 4, 5, 6]),
            (np.zeros((4, 1), np.int32), [_I32, 2, 4, 1]),
            (np.zeros((), np.int32), [_I32, 1, 1]),
            (bytearray(7), [_U8, 1, 7]),
            (b"read-only", [_U8, 1, 9]),
            (memoryview(bytes(8)).cast("f"), [_F32, 1, 2]),
            (array.array("i", [1, 2, 3]), [_I32, 1, 3]),
            (_OnlyDlpack(np.zeros((2, 3), np.float32)), [_F32, 2, 2, 3]),
            (_OnlyDlpack(np.zeros(5, np.uint8)), [_U8, 1, 5]),
            (In(np.zeros(40, np.uint8), dtype="q4_1"), [_Q4_1, 1, 64]),
            (In(bytes(68), dtype="q8_0", shape=(2, 32)), [_Q8_0, 2, 2, 32]),
            (In(np.zeros(4, np.int64), dtype="uint8"), [_U8, 1, 32]),
            (NoDep(np.zeros((2, 6), np.float32), shape=(3, 4)), [_F32, 2, 3, 4]),
        ]:
            seen = _seen(worker, look, arg)
            assert seen[: len(expected)] == expected, arg
            assert not any(seen[len(expected) :]), arg


@in_own_process
def test_matrices_are_row_major() -> None:
    rng = np.random.default_rng(1)
    multiply = matmul_tiles()
    with Worker(level=3) as worker:
        worker.register(multiply)
        a, b = (rng.standard_normal((32, 32), dtype=np.float32) for _ in range(2))
        c = np.zeros((32, 32), np.float32)
        worker.run(multiply, a, b, c, 16)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        # A transposed array is the same memory in another order.
        with pytest.raises(
            simpler.ArgumentError, match=r"argument 1: the array is not C-contiguous \(shape \[32, 32\]"
        ):
            worker.run(multiply, a, b.T, c, 16)


@in_own_process
def test_what_cannot_be_a_tensor_is_refused_with_its_place_and_a_way_out() -> None:
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    odd_bytes = np.zeros(21, np.uint8)
    look = shape()
    with Worker(level=2) as worker:
        worker.register(look)
        out = np.zeros(56, np.uint8)
        for arg, sentence in [
            (np.zeros(2, np.float64), "elements of type float64: a chip has float32, float16, int32 and uint8"),
            (np.zeros(2, np.int64), "elements of type int64"),
            (np.zeros(2, np.uint32), "elements of type uint32"),
            (np.zeros(2, bool), "elements of type bool"),
            (np.zeros(2, np.complex64), "elements of type Zf"),
            (np.zeros(2, "S3"), "elements of type 3s"),
            (np.zeros(8, np.float32)[::2], r"not C-contiguous \(shape \[4\], strides \[8\] bytes\)"),
            (np.zeros((1,) * 6, np.float32), "6 dimensions: a tensor has 5 at most"),
            (Out(frozen), "the array is read-only, and the run would write it"),
            (InOut(b"bytes"), "the array is read-only"),
            (In(odd_bytes, dtype="q4_1"), "21 bytes are no whole number of q4_1 elements"),
            (In(odd_bytes, shape=(4, 5)), r"a shape of \[4, 5\] over 21 bytes, which are 21 elements of uint8"),
            (In(odd_bytes, dtype="int7"), "elements of type int7"),
            (_OnlyDlpack(np.zeros(2, np.float64)), "elements of type float64"),
            (_OnlyDlpack(np.zeros((4, 4), np.float32).T), "not C-contiguous"),
            (_OnlyDlpack(np.zeros(2, np.float32), (2, 0)), "in the memory of device type 2"),
            (_OnlyDlpack(frozen), "(?i:read.?only)"),
            (object(), "a bytes-like object is required|buffer"),
            ("text", "a bytes-like object is required|buffer"),
            (None, "a bytes-like object is required|buffer"),
        ]:
            with pytest.raises(simpler.ArgumentError, match=f"argument 0: .*{sentence}"):
                worker.run(look, arg, Out(out))
        with pytest.raises(ValueError, match="argument 1"):
            worker.run(look, frozen, np.zeros(2, np.float64))


class _Bfloat:
    """What an array of ml_dtypes' bfloat16 looks like from outside."""

    dtype = "bfloat16"


@in_own_process
def test_bfloat16_is_refused_by_its_name() -> None:
    look = shape()
    with Worker(level=2) as worker:
        worker.register(look)
        with pytest.raises(simpler.ArgumentError, match="elements of type bfloat16"):
            worker.run(look, _Bfloat(), bytearray(56))


@in_own_process
def test_scalars_arrive_with_their_bits() -> None:
    store = scalars()
    given: list[Any] = [
        0,
        True,
        -1,
        2**64 - 1,
        -(2**63),
        np.int32(-5),
        np.uint8(200),
        np.float32(1.5),
        np.float64(-2.25),
        np.float16(0.5),
        ctypes.c_uint32(7),
        ctypes.c_int8(-3),
        ctypes.c_float(1.5),
    ]
    bits = [0, 1, 2**64 - 1, 2**64 - 1, 2**63, 2**64 - 5, 200, 0x3FC00000, 0xC002000000000000, 0x3800, 7, 2**64 - 3]
    bits.append(0x3FC00000)
    with Worker(level=2) as worker:
        worker.register(store)
        out = np.zeros(len(given), np.uint64)
        worker.run(store, Out(out.view(np.uint8)), *given)
        assert [int(word) for word in out] == bits
        for wrong, sentence in [
            (1.5, r"the float 1.5 has no width yet: numpy.float32\(1.5\)"),
            (2**64, "the scalar 18446744073709551616 has more than 64 bits"),
            (-(2**63) - 1, "more than 64 bits"),
            (np.complex64(1), "a scalar of type complex64"),
        ]:
            with pytest.raises(simpler.ArgumentError, match=sentence):
                worker.run(store, Out(out.view(np.uint8)), wrong)
        with pytest.raises(simpler.SimplerError, match="at most 256 and 128|129"):
            worker.run(store, Out(out.view(np.uint8)), *range(129))


@in_own_process
def test_a_signature_says_how_arrays_are_used() -> None:
    add = vector_add()
    a, b = np.ones(4, np.float32), np.ones(4, np.float32)
    c = np.zeros(4, np.float32)
    with Worker(level=2) as worker:
        worker.register(add)
        worker.run(add, In(a), b, Out(c), 1)
        assert (c == 2).all()
        for wrong, sentence in [
            ((a, b), "2 tensors, and the signature has 3"),
            ((a, b, c, c), "argument 3: the signature has 3 tensors"),
            ((a, Out(b), c), "argument 1: it is Out, and In in the signature"),
        ]:
            with pytest.raises(simpler.ArgumentError, match=sentence):
                worker.run(add, *wrong, 1)


@in_own_process
def test_shared_arrays_are_of_no_copy_and_others_need_room() -> None:
    add = vector_add()
    count = 1 << 20
    early = simpler.shared_array((2, count))
    worker = Worker(level=3, staging_bytes=4096)
    result = worker.shared(count)
    early[0], early[1] = 3, 4
    worker.register(add)
    with worker:
        late = simpler.shared_array(count)
        worker.run(add, early[0], early[1], result, 4)
        assert (result == 7).all()
        # Parts of it, too.
        worker.run(add, early[0, 1:11], result[5:15], result[20:30], 1)
        assert (result[20:30] == 10).all()
        with pytest.raises(
            simpler.ArgumentError,
            match="an array of 4194304 bytes lies where no child sees it, and 4096 of 4096 bytes of staging memory are free",
        ):
            worker.run(add, early[0], early[1], late, 4)
        with pytest.raises(simpler.WorkerError, match="memory is shared before init"):
            worker.shared(4)
        small = np.zeros(8, np.float32)
        for _ in range(200):
            worker.run(add, small, early[0, :8], result[:8], 1)
        assert (result[:8] == 3).all()


@in_own_process
def test_staging_memory_comes_back_from_every_run() -> None:
    wait = sleep()
    sizes = [4, 400, 40, 4000, 1200, 8]
    with Worker(level=3, chips=4, staging_bytes=16384) as worker:
        worker.register(wait)
        for turn in range(50):
            counts = [np.zeros(sizes[(turn + chip) % len(sizes)], np.uint8) for chip in range(4)]
            tickets = [
                worker.submit(wait, InOut(count, dtype="int32"), 0, chip=chip) for chip, count in enumerate(counts)
            ]
            order = [(turn + chip) % 4 for chip in range(4)]
            for chip in order:
                tickets[chip].wait()
            assert [int(count[0]) for count in counts] == [1] * 4
        # All of it is free in one piece again.
        whole = np.zeros(16384, np.uint8)
        worker.run(wait, InOut(whole, dtype="int32"), 0)
        assert whole[0] == 1
        with pytest.raises(simpler.ArgumentError, match="lies where no child sees it"):
            worker.run(wait, InOut(np.zeros(16385, np.uint8), dtype="uint8"), 0)


@in_own_process
def test_a_failed_run_leaves_staged_outputs_alone_and_gives_their_room_back() -> None:
    from kernels import failing

    fail = failing()
    with Worker(level=3, staging_bytes=4096) as worker:
        worker.register(fail)
        for _ in range(3):
            kept = np.full(4096, 9, np.uint8)
            with pytest.raises(simpler.RunError):
                worker.run(fail, Out(kept))
            assert (kept == 9).all()


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_a_run_keeps_what_it_names(level: int) -> None:
    wait = sleep()
    count = bytearray(4)
    with Worker(level=level) as worker:
        worker.register(wait)
        if level == 3:
            ticket = worker.submit(wait, InOut(count, dtype="int32"), 200)
            with pytest.raises(BufferError):
                count.append(0)
            ticket.wait()
            # An array that nobody else refers to any more.
            ticket = worker.submit(wait, InOut(np.zeros(1, np.int32)), 50)
            ticket.wait()
        else:
            worker.run(wait, InOut(count, dtype="int32"), 0)
        count.append(0)
        assert count[0] == 1


@in_own_process
def test_a_dlpack_tensor_is_released_when_its_run_has_ended() -> None:
    import gc
    import weakref

    wait = sleep()
    for level in (2, 3):
        with Worker(level=level) as worker:
            worker.register(wait)
            count = np.zeros(1, np.int32)
            alive = weakref.ref(count)
            worker.run(wait, InOut(_OnlyDlpack(count)), 0)
            assert count[0] == 1
            del count
            gc.collect()
            assert alive() is None


@in_own_process
def _run_torch_tensors() -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]

    add = vector_add()
    with Worker(level=3) as worker:
        worker.register(add)
        a, b, c = torch.ones(8), torch.full((8,), 2.0), torch.zeros(8)
        worker.run(add, a, b, c, 1)
        assert bool((c == 3).all())
        with pytest.raises(simpler.ArgumentError, match="bfloat16"):
            worker.run(add, a.to(torch.bfloat16), b, c, 1)


def test_torch_tensors_are_taken() -> None:
    pytest.importorskip("torch", reason="skipped: torch is not installed")
    _run_torch_tensors()


@in_own_process
def test_shared_arrays_have_any_shape_and_type_and_end_with_their_last_view() -> None:
    import gc

    from simpler.tensor import shared_buffers

    shapes: list[tuple[Any, Any]] = [(3, np.float32), ((2, 0), np.float64), ((), np.int8), ([4, 5, 6], "complex128")]
    for shape_, dtype in shapes:
        shared = simpler.shared_array(shape_, dtype)
        expected = np.zeros(shape_, dtype)
        assert (shared.shape, shared.dtype, shared.flags.writeable) == (expected.shape, expected.dtype, True)
        assert shared.size == 0 or shared.ctypes.data % 64 == 0
        np.testing.assert_array_equal(shared, expected)
    before = len(shared_buffers())
    view = simpler.shared_array(1000)[10:20]
    assert len(shared_buffers()) == before + 1
    del view
    gc.collect()
    assert len(shared_buffers()) == before


@in_own_process
def test_two_workers_share_one_array() -> None:
    add = vector_add()
    shared = simpler.shared_array((3, 64))
    shared[0], shared[1] = 1, 2
    with Worker(staging_bytes=1) as first, Worker(staging_bytes=1) as second:
        for worker in (first, second):
            worker.register(add)
            worker.run(add, shared[0], shared[1], shared[2], 2)
            shared[0] = shared[2]
    assert math.isclose(shared[2, 0], 5)
