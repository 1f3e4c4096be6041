"""What goes into calls: numbers that fit, and callbacks.

An exception in a callback stops the blocking call, and is raised once, by the caller.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from . import _c
from ._constants import Stage, Status
from ._errors import ArgumentError
from ._library import check
from ._values import Progress


def unsigned(name: str, value: int, bits: int = 32) -> int:
    if not 0 <= value < 1 << bits:
        raise ArgumentError(f"{name} is {value}, expected 0 to {(1 << bits) - 1}", Status.ARGUMENT)
    return value


OnProgress = Callable[[Progress], bool | None]


class Blocking:
    """Around one blocking call with a progress callback.

    Python runs signal handlers at the entry of the trampoline, where nothing could catch what they raise. While the call
    lasts, what the handler of Ctrl-C raises is therefore kept, and stops the call as an exception of the callback does.
    """

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._failure: BaseException | None = None
        self._handler: Any = None
        self.callback = _c.dsa_progress_fn(self._call)

    def _call(self, _: int | None, pointer: Any) -> int:
        if self._failure is None and self._on_progress is not None:
            try:
                p = pointer.contents
                if self._on_progress(Progress(p.done, p.total, Stage(p.stage))) is False:
                    return _c.DSA_STOP_ROLLBACK
            except BaseException as failure:
                self._failure = failure
        return _c.DSA_CONTINUE if self._failure is None else -1

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handler(number, frame)
        except BaseException as failure:
            self._failure = failure

    def __enter__(self) -> Blocking:
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        del self.callback  # it refers to us
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def check(self, status: int) -> None:
        """After the block. A call that was done before the interrupt could stop it still raises."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        check(status)
