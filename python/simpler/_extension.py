"""The one place that loads the extension, ``simpler._task_interface``.

Whoever needs it imports ``native`` from here, when it needs it: ``import simpler`` must go on working where the
extension is missing or was built from another version of this package, or else nothing could say why.
"""

try:
    from simpler import _task_interface as native
except ImportError as error:
    raise ImportError(
        "simpler needs its compiled extension simpler._task_interface, which cannot be loaded "
        f"({error}); build it with `pip install ./python` in a checkout of simpler"
    ) from error

#: What this package and the extension have to say alike; ``INTERFACE`` in ``src/lib.rs`` is the extension's.
INTERFACE = 1

if (_found := getattr(native, "INTERFACE", None)) != INTERFACE:
    raise ImportError(
        f"the compiled extension {native.__file__} is stale: it has interface {_found}, and this version of simpler "
        f"expects {INTERFACE}; build it again with `pip install ./python` in the checkout"
    )

__all__ = ["INTERFACE", "native"]
