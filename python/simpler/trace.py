"""A program's own spans on the timeline of the host log.

::

    from simpler import trace

    with trace.span("load_batch", rows=4096):
        ...

    @trace.span("tokenize")
    def tokenize(text): ...

    layers = trace.producer("decoder")  # a library names itself
    with layers.span("layer", index=3):
        ...

A span is one record when it ends, also when it ends by an exception, and nothing while spans are muted; ``simpler
stacks`` shows those that are open. It is called ``ext.<producer>.<name>``, so none can pose as one of the runtime's,
and readers leave it out of the runtime's own figures. A name has 64 bytes with its prefix and the attributes 192;
what is longer is cut and ends in ``~``. What a record cannot hold as it stands is escaped.

A span inside another is nested in it, within one context of ``contextvars``: tasks of ``asyncio`` that take turns on a
thread do not nest in each other. A span inside a run of the runtime belongs to that run. There is no call for an
instant: a span is never 0 ns long, since that says that nothing was measured.

Importing this module needs the extension.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from simpler._extension import native

__all__ = ["Producer", "Span", "enabled", "producer", "span"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: What a producer may be called. Half of a span's 64 bytes is its own name's.
_PRODUCER: Final = re.compile(r"[A-Za-z0-9_-]{1,28}", re.ASCII)

def enabled() -> bool:
    """Return whether spans are emitted just now, for who wants to gather costly attributes only then."""
    return native._host_spans_active()


class Span(native._HostSpan):
    """A span to be entered by ``with``, or a decorator that makes each call of a function a span.

    Whether it is muted is asked when it is entered. It may be entered again, also while it is open and on other threads:
    each entry is a span of its own. Its thread is the one on which it ends.
    """

    __slots__ = ()

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Make each call of ``function`` a span; of a coroutine function, from its first step to its end.

        Raises ``TypeError`` for a generator function, whose span would hold its consumer's time as well, and for what
        is no function.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"the generator {function.__qualname__}() cannot be a span: it would hold the time of who consumes it; "
                "use `with` inside it, around the work"
            )
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"only a function can be made a span, not {function!r}")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast("Callable[_P, _R]", timed_coroutine)

        @functools.wraps(function)
        def timed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return timed


class Producer:
    """The spans of one program or library; :func:`producer` makes it."""

    __slots__ = ("_prefix",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not _PRODUCER.fullmatch(name):
            raise ValueError(
                f"a producer is one word of up to 28 ASCII letters, digits, '-' and '_', not {name!r}: "
                "the words of a span's name say whose it is"
            )
        self._prefix = f"ext.{name}."

    def span(self, name: str, /, **attributes: object) -> Span:
        """Return a span called ``ext.<producer>.<name>``, for ``with`` or as a decorator.

        The attributes are put down as ``key=value`` when the span is entered, unless it is muted then.

        Raises ``ValueError`` for a name that is empty or begins with a dot, and ``TypeError`` for one that is no text.
        """
        try:
            whole = self._prefix + name
        except TypeError:
            raise TypeError(f'a span needs a name, as in @trace.span("name"), not {name!r}') from None
        if not name or name[0] == ".":
            raise ValueError(f"a span needs a name that does not begin with a dot, not {name!r}")
        return Span(whole, attributes)

    def enabled(self) -> bool:
        """Return whether spans are emitted just now."""
        return native._host_spans_active()


def producer(name: str) -> Producer:
    """Return the spans of the program or library ``name``: one word of up to 28 ASCII letters, digits, - and _.

    Raises ``ValueError`` for another name.
    """
    return Producer(name)


#: The spans of a program that gives itself no name.
span: Final = Producer("app").span
