"""The one place that loads the extension, ``simpler._task_interface``.

Whoever needs it imports ``native`` from here, when it needs it: ``import simpler`` must go on working where the
extension is missing or was built from another version of this package, or else nothing could say why.

What the two have to agree on is the stub, ``_task_interface.pyi``, so the extension knows the checksum of the one that
it was built beside. An installed package without stubs cannot have changed since, and is not asked.
"""

import zlib
from pathlib import Path

try:
    from simpler import _task_interface as native
except ImportError as error:
    raise ImportError(
        "simpler needs its compiled extension simpler._task_interface, which cannot be loaded "
        f"({error}); build it with `pip install ./python` in a checkout of simpler"
    ) from error

_STUB = Path(__file__).with_name("_task_interface.pyi")

if _STUB.is_file() and getattr(native, "INTERFACE", None) != zlib.crc32(_STUB.read_bytes()):
    raise ImportError(
        f"the compiled extension {native.__file__} is stale: it was built for another version of the package "
        "beside it; build it again with `pip install ./python` in the checkout"
    )

__all__ = ["native"]
