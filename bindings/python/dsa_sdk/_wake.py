"""Calls from threads of the library: an event is there, a line for the log. And what must end before Python does."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import weakref
from typing import Protocol

from . import _c
from ._library import inside_callback

logger = logging.getLogger("dsa_sdk")
logger.addHandler(logging.NullHandler())  # silent unless the program asks for it

_keys = itertools.count(1)
_wakers: dict[int, Waker] = {}


class Waker:
    """Connects one run to the loop that it was started in. No thread waits for that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ready = asyncio.Event()
        self.key = next(_keys)
        _wakers[self.key] = self


def forget(key: int) -> None:
    _wakers.pop(key, None)


def _on_ready(key: int | None) -> None:
    with inside_callback():
        waker = _wakers.get(key or 0)
        if waker is not None:
            try:
                waker.loop.call_soon_threadsafe(waker.ready.set)
            except RuntimeError:
                pass  # the loop was closed; nobody waits any more


_TO_LOGGING = {
    _c.DSA_LOG_ERROR: logging.ERROR,
    _c.DSA_LOG_WARNING: logging.WARNING,
    _c.DSA_LOG_INFO: logging.INFO,
    _c.DSA_LOG_DEBUG: logging.DEBUG,
}


def log_level() -> int:
    """The most talkative level that the logger would pass on."""
    return max((ours for ours, level in _TO_LOGGING.items() if logger.isEnabledFor(level)), default=_c.DSA_LOG_OFF)


def _on_log(_: int | None, level: int, where: bytes, line: bytes) -> None:
    with inside_callback():
        logger.log(_TO_LOGGING.get(level, logging.DEBUG), "%s: %s", where.decode(), line.decode("utf-8", "replace"))


# One function each, for all runs and runtimes: they live as long as the interpreter, so nothing outlives them.
ON_READY = _c.dsa_wakeup_fn(_on_ready)
ON_LOG = _c.dsa_log_fn(_on_log)


# ---- exit -----------------------------------------------------------------------------------------------------------


class Leaving(Protocol):
    def _leave(self) -> None:
        """Makes sure that no thread of the library calls into Python for this object any more."""


callers: weakref.WeakSet[Leaving] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    for caller in list(callers):
        caller._leave()
