"""The exceptions: one family, and the standard library's where it has one."""

import inspect

import pytest

import simpler
from simpler import errors


def test_all_exceptions_are_of_one_family() -> None:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert {kind.__name__ for kind in found} == set(errors.__all__)
    for kind in found:
        assert issubclass(kind, simpler.SimplerError)
        assert getattr(simpler, kind.__name__) is kind


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (simpler.WorkerError, RuntimeError),
        (simpler.ChildLostError, simpler.WorkerError),
        (simpler.ClosedError, simpler.WorkerError),
        (simpler.BusyError, simpler.WorkerError),
        (simpler.InitError, simpler.WorkerError),
        (simpler.RunError, RuntimeError),
        (simpler.ArgumentError, ValueError),
        (simpler.UnsupportedError, NotImplementedError),
    ],
)
def test_callers_can_catch_what_they_know(kind: type[Exception], base: type[Exception]) -> None:
    assert issubclass(kind, base)
    with pytest.raises(base, match="the text"):
        raise kind("the text")


def test_exceptions_survive_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(simpler.RunError("text", -9, "chip 1", "run")))
    assert (str(error), error.code, error.child, error.what) == ("text", -9, "chip 1", "run")
