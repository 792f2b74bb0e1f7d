"""The types of the package, checked by mypy where that is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from child_python import environment

import simpler
import simpler_setup

pytestmark = pytest.mark.skipif(find_spec("mypy") is None, reason="skipped: mypy is not installed")


def mypy(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=environment(), cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_says_what_the_extension_has(tmp_path: Path) -> None:
    mypy("mypy.stubtest", "simpler._task_interface", cwd=tmp_path)


def test_the_package_is_typed_strictly(tmp_path: Path) -> None:
    folders = [str(Path(str(module.__file__)).parent) for module in (simpler, simpler_setup)]
    # Files, not modules, so that they are checked wherever they are installed.
    mypy("mypy", "--strict", "--cache-dir", str(tmp_path), *folders, cwd=tmp_path)
