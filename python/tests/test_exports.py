"""What the extension gives the process that loads it."""

import shutil
import subprocess

import pytest


def test_the_extension_exports_nothing_but_its_init_function() -> None:
    """Every C name that a linked crate has would be exported, and could take the place of another object's."""
    if shutil.which("nm") is None:
        pytest.skip("skipped: nm is not to be had")
    from simpler._extension import native

    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", native.__file__],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert {line.split()[0] for line in listed.splitlines()} == {"PyInit__task_interface"}


def test_the_extension_is_never_unmapped() -> None:
    """It owns the process's log, whose writer is a thread that runs its code."""
    if shutil.which("readelf") is None:
        pytest.skip("skipped: readelf is not to be had")
    from simpler._extension import native

    dynamic = subprocess.run(
        ["readelf", "-dW", native.__file__], check=True, capture_output=True, text=True
    ).stdout
    assert "NODELETE" in dynamic
