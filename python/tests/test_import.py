"""What importing the package loads, and what it says where the extension is missing or stale."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from child_python import LIMIT_S, environment, run

import simpler
import simpler_setup

#: What needs no extension.
WITHOUT = "import simpler, simpler._log, simpler.worker_level, simpler_setup.log_config\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without its extension, in a folder for ``PYTHONPATH``."""
    for module in (simpler, simpler_setup):
        assert module.__file__
        source = Path(module.__file__).parent
        shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def run_with(package: Path, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment(), "PYTHONPATH": str(package)},
        # The source tree in this directory is not to be found first.
        cwd=package,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_neither_extension_nor_numpy() -> None:
    run(
        WITHOUT
        + """
import sys
simpler.get_logger().warning("logging works")
loaded = {"simpler._task_interface", "simpler._extension", "numpy"} & set(sys.modules)
assert not loaded, loaded
"""
    )


def test_without_an_extension_the_package_imports_logs_and_says_why_when_it_is_needed(package: Path) -> None:
    printed = run_with(
        package,
        WITHOUT
        + """
import logging, os
logging.basicConfig()
simpler_setup.log_config.configure_logging("info")
assert simpler.__file__.startswith(os.getcwd())
assert simpler.WorkerLevel.node == 3
try:
    simpler.trace
except ImportError as error:
    print(error)
try:
    simpler._log.seed()
except ImportError as error:
    print(error)
""",
    ).splitlines()
    assert len(printed) == 2 and printed[0] == printed[1]
    assert printed[0].startswith("simpler needs its compiled extension simpler._task_interface")
    assert "pip install ./python" in printed[0]


def test_an_extension_that_cannot_be_loaded_is_the_reason_that_is_given(package: Path) -> None:
    # A file that is no shared object, by the name that every version finds.
    (package / "simpler" / "_task_interface.abi3.so").write_bytes(b"\x7fELF and no more")
    printed = run_with(package, WITHOUT + "try: simpler.trace\nexcept ImportError as error: print(error)")
    assert "which cannot be loaded" in printed and "_task_interface.abi3.so" in printed


@pytest.mark.parametrize("interface", ["1", "'1'", "None"])
def test_a_stale_extension_is_found_when_it_is_needed(package: Path, interface: str) -> None:
    (package / "simpler" / "_task_interface.py").write_text(f"INTERFACE = {interface}\n")
    printed = run_with(package, WITHOUT + "try: simpler.trace\nexcept ImportError as error: print(error)")
    assert "is stale" in printed and "pip install ./python" in printed and "_task_interface.py" in printed


def test_a_stub_that_has_changed_makes_an_extension_stale(package: Path) -> None:
    from simpler._extension import native

    shutil.copy(str(native.__file__), package / "simpler")
    ask = WITHOUT + "try: simpler.trace; print('fine')\nexcept ImportError as error: print(error)"
    assert run_with(package, ask) == "fine\n"
    stub = package / "simpler" / "_task_interface.pyi"
    text = stub.read_text()
    stub.write_text(text + "\ndef _a_function_of_tomorrow() -> None: ...\n")
    assert "is stale" in run_with(package, ask)
    # Without stubs nothing is known to have changed.
    stub.unlink()
    assert run_with(package, ask) == "fine\n"


def test_names_are_there_when_they_are_asked_for() -> None:
    run(
        """
        import sys, simpler
        assert set(simpler.__all__) <= set(dir(simpler))
        assert "simpler.trace" not in sys.modules
        for name in simpler.__all__:
            assert getattr(simpler, name) is getattr(simpler, name)
        from simpler import trace
        assert simpler.trace is trace is sys.modules["simpler.trace"]
        assert simpler.WorkerLevel is sys.modules["simpler.worker_level"].WorkerLevel
        try:
            simpler.no_such_name
        except AttributeError as error:
            assert str(error) == "module 'simpler' has no attribute 'no_such_name'"
        else:
            sys.exit("no error")
        """
    )


def test_levels_have_their_words() -> None:
    from simpler.worker_level import WorkerLevel, span_prefix

    words = {level.name: int(level) for level in WorkerLevel}
    assert words == {"core": 0, "chip": 2, "node": 3, "network1": 4, "network2": 5, "network3": 6}
    assert [span_prefix(level) for level in (2, 3, 6)] == ["chip", "node", "network3"]
    for level in (1, 7, -1):
        with pytest.raises(ValueError, match=f"no worker has level {level}; the levels are 0 core, 2 chip"):
            span_prefix(level)
