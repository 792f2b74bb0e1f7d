"""What all tests share: they look at the package that is installed, where ``cargo xtask test`` says so."""

import os
import pathlib
import signal
import sys

import pytest

_SOURCE = pathlib.Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Refuses to test the source tree in place of the installed package."""
    # A shell starts what runs in its background deaf to Ctrl-C, and so would be every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What several tests use lies beside them.
    sys.path.append(str(pathlib.Path(__file__).parent))
    if os.environ.get("SIMPLER_TEST_INSTALLED") != "1":
        sys.path.insert(0, str(_SOURCE))
        return
    import simpler

    found = pathlib.Path(simpler.__file__).resolve()
    if _SOURCE in found.parents and "site-packages" not in found.parts:
        raise pytest.UsageError(f"the tests would import {found}, which is not installed")
