"""The command line: ``python -m simpler`` is ``simpler``."""

import signal
import sys
from collections.abc import Sequence
from typing import Any, TextIO


def program(arguments: Sequence[str]) -> int:
    """Run a command as a program of its own does, and return its exit code. The first argument is the program's name.

    It prints to the process's own standard output and error, unbuffered and in UTF-8, and SIGINT ends it at once.
    """
    # Reading a pipe nobody writes to, Python's own handler would have to wait for what never comes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from simpler._extension import native

    code, _ = native.command_line(arguments, _unbuffered(sys.stdout), _unbuffered(sys.stderr))
    return code


def _unbuffered(stream: TextIO | None) -> Any:
    """The file below a text stream: what a buffer holds of a pipe that is closed would be complained of at exit."""
    if stream is None:
        return None
    stream.flush()
    buffer = getattr(stream, "buffer", stream)
    return getattr(buffer, "raw", buffer)


def main() -> int:
    """Run the command that the process was started with."""
    return program(["simpler", *sys.argv[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
