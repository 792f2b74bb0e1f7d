"""The types of the package, checked by mypy where that is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from child_python import environment

EXTENSION = "simpler._task_interface"

pytestmark = pytest.mark.skipif(find_spec("mypy") is None, reason="skipped: mypy is not installed")


def mypy(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=environment(), cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_says_what_the_extension_has(tmp_path: Path) -> None:
    # Before Python 3.12 the buffer protocol shows in no method, and a stub says it by one all the same (PEP 688).
    allowed = tmp_path / "allowed"
    allowed.write_text(r".*\.__buffer__" "\n" if sys.version_info < (3, 12) else "")
    mypy("mypy.stubtest", "--ignore-unused-allowlist", "--allowlist", str(allowed), EXTENSION, cwd=tmp_path)


def test_the_package_is_typed_strictly(tmp_path: Path) -> None:
    # By the names of the packages: files of an installed one would be taken for a program's own.
    packages = [argument for package in ("simpler", "simpler_setup") for argument in ("-p", package)]
    mypy("mypy", "--strict", "--cache-dir", str(tmp_path), *packages, cwd=tmp_path)
