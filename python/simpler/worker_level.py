"""The levels of workers, by the words that span names begin with."""

from enum import IntEnum


class WorkerLevel(IntEnum):
    """A level of the topology, named by its place in it. The digit in ``networkN`` counts network hops above a node.

    Level 1, the die, has no worker of its own, and so no word.
    """

    #: One AIC or AIV core.
    core = 0
    #: One NPU; the boundary between the device's scheduling, below, and the host's.
    chip = 2
    #: One host: a parent process, a child for each chip and for each sub worker.
    node = 3
    #: A pod.
    network1 = 4
    #: A supernode.
    network2 = 5
    #: A cluster.
    network3 = 6


def span_prefix(level: int) -> str:
    """Return the word of ``level`` in span names.

    Raises ``ValueError`` for a level that has none: there is no default that would be true.
    """
    try:
        return WorkerLevel(level).name
    except ValueError:
        known = ", ".join(f"{level.value} {level.name}" for level in WorkerLevel)
        raise ValueError(f"no worker has level {level}; the levels are {known}") from None
