"""What a forwarded record and a span cost, against doing nothing, side by side in one process.

    python benches/host_log.py [--rounds N]

Prints one JSON object. Times are ns of this thread's CPU for one call. In each round every arm runs one batch of calls,
in an order that changes; an extra cost is the median over the rounds of an arm's difference to the nothing of the same
round. ``forwarded_extra_ns`` has a bar, and the exit code is 1 above it.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from simpler import _log, trace
from simpler._extension import native

#: A record may cost at most this much more than on a handler that does nothing.
BAR_NS = 3000

#: Far fewer records than the queue has places, so that none is lost while the writer has no CPU.
BATCH = 500

LOGGER = _log.get_logger()


class Nothing(logging.Handler):
    """A handler that does nothing, behind the lock that every handler has."""

    def emit(self, record: logging.LogRecord) -> None:
        pass


class NoSpan:
    """A context manager that does nothing."""

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


def no_span(_name: str, /, **_attributes: object) -> NoSpan:
    return NoSpan()


def log_info() -> None:
    LOGGER.info("step %d of %s took %.3f ms", 17, "decode", 1.5)


def enter_no_span() -> None:
    with no_span("decode_layer", layer=3, batch=16):
        pass


def enter_span() -> None:
    with trace.span("decode_layer", layer=3, batch=16):
        pass


def enter_bare_span() -> None:
    with trace.span("decode_layer"):
        pass


def handled_by(handler: logging.Handler) -> Callable[[], None]:
    def prepare() -> None:
        LOGGER.handlers = [handler]

    return prepare


def threshold(level: int) -> Callable[[], None]:
    def prepare() -> None:
        native._initialize_host_log(level)

    return prepare


def cost_ns(prepare: Callable[[], None], call: Callable[[], None]) -> float:
    prepare()
    # What was logged before is written first, so that the writer's work falls on nobody.
    if not native._flush_host_log(10_000):
        sys.exit("the log does not drain")
    begin = time.thread_time_ns()
    for _ in range(BATCH):
        call()
    return (time.thread_time_ns() - begin) / BATCH


def main() -> int:
    parser = argparse.ArgumentParser(description="What a forwarded record and a span cost.")
    parser.add_argument("--rounds", type=int, default=400, help="batches of each arm (default: %(default)s)")
    parser.add_argument("log", nargs="?", help="ignored: the log that benches of reading are given")
    rounds = parser.parse_args().rounds

    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    _log.seed()
    (forwarding,) = LOGGER.handlers
    with tempfile.TemporaryDirectory() as directory:
        native._set_host_log_directory(directory)
        arms = {
            "forwarded": (handled_by(forwarding), log_info),
            "handler": (handled_by(Nothing()), log_info),
            "null_handler": (handled_by(logging.NullHandler()), log_info),
            "span": (threshold(_log.TIMING), enter_span),
            "bare_span": (threshold(_log.TIMING), enter_bare_span),
            "muted_span": (threshold(_log.NUL), enter_span),
            "no_span": (threshold(_log.NUL), enter_no_span),
        }
        # A record is only forwarded at a threshold that admits it.
        levels = {"forwarded": logging.INFO, "handler": logging.INFO, "null_handler": logging.INFO}
        costs: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(rounds):
            for name in random.sample(list(arms), len(arms)):
                if name in levels:
                    native._initialize_host_log(levels[name])
                costs[name].append(cost_ns(*arms[name]))
        dropped = native._host_log_dropped_records()
        native._close_host_log()

    def extra_ns(arm: str, nothing: str) -> float:
        differences = [some - none for some, none in zip(costs[arm], costs[nothing], strict=True)]
        return round(statistics.median(differences), 1)

    result = {
        "rounds": rounds,
        "batch": BATCH,
        "dropped": dropped,
        "forwarded_extra_ns": extra_ns("forwarded", "handler"),
        "forwarded_extra_over_null_handler_ns": extra_ns("forwarded", "null_handler"),
        "span_extra_ns": extra_ns("span", "no_span"),
        "bare_span_extra_ns": extra_ns("bare_span", "no_span"),
        "muted_span_extra_ns": extra_ns("muted_span", "no_span"),
        "ns_p50": {name: round(statistics.median(values), 1) for name, values in costs.items()},
    }
    print(json.dumps(result))
    return int(result["forwarded_extra_ns"] > BAR_NS or dropped > 0)


if __name__ == "__main__":
    sys.exit(main())
