"""Run: one answer in progress, read as an iterator, plain or asynchronous."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

from . import _c, _wake
from ._constants import Advice, Bound, Channel, Finish, NoticeKind, Status
from ._errors import Error, StateError
from ._library import Handle, Owner, address, check, error_of, library, text_of
from ._values import TEXT_EVENTS, Done, Event, Notice, Prefill, Result, RunStats, Start, Text, Unknown

SLICE_MS = 100  # the longest wait in one call, so that Ctrl-C is answered


def _event_of(e: _c.dsa_event) -> Event:
    kind = e.type
    if kind == _c.DSA_EVENT_TEXT and e.channel in TEXT_EVENTS:
        text = e.text
        return TEXT_EVENTS[e.channel](ctypes.string_at(text.ptr or 0, text.len).decode(), e.num_tokens)
    if kind == _c.DSA_EVENT_PREFILL:
        return Prefill(e.done, e.total)
    if kind == _c.DSA_EVENT_START:
        return Start(e.run_id)
    if kind == _c.DSA_EVENT_NOTICE:
        return Notice(NoticeKind(e.notice))
    if kind == _c.DSA_EVENT_DONE:
        return Done(Finish(e.finish), e.index)
    return Unknown(kind, text_of(e.text))


class Run(Owner):
    """Made by Session.run(). Read it with `for`, `async for` or poll(); leaving early stops it and keeps the text.

    After the last event the iteration raises what the run failed with, if it failed. `with` makes sure that the session
    is free again behind the block; result, stats and texts can still be read then.
    """

    def __init__(self, session: Owner, pointer: int, waker: _wake.Waker | None) -> None:
        release = library().dsa_run_release
        if waker is None:
            self._handle = Handle(pointer, release)
        else:
            key = waker.key

            def release_and_forget(pointer: int) -> None:
                release(pointer)
                _wake.forget(key)

            self._handle = Handle(pointer, release_and_forget)
            _wake.callers.add(self)
        self._session: Owner | None = session  # releasing it would stop us
        self._waker = waker
        self._worker: asyncio.Future[Event | None] | None = None
        self._lock = threading.Lock()
        self._event = _c.dsa_event()
        self._out = address(self._event)
        self._next = library().dsa_run_next
        self._ended = False
        self._result: Result | None = None
        self._stats: RunStats | None = None
        self._failure: Error | None = None
        self._texts: dict[Channel, str] = {}

    # ---- reading ----

    def poll(self, timeout: float = 0.0) -> Event | None:
        """The next event, or None if none came within `timeout` seconds or if there will be none any more."""
        left = max(0, round(timeout * 1000))
        while not self._ended:
            event = self._take(min(left, SLICE_MS))
            left -= SLICE_MS
            if event is not None or left <= 0:
                return event
        return None

    def __iter__(self) -> Generator[Event, None, None]:
        try:
            while not self._ended:
                event = self._take(SLICE_MS)
                if event is not None:
                    yield event
        finally:
            self._stop()
        self._raise_failure()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        try:
            while not self._ended:
                event = await self._take_async()
                if event is not None:
                    yield event
        finally:
            await self._stop_async()
        self._raise_failure()

    def text(self, channel: Channel = Channel.ANSWER) -> Pieces:
        """The pieces of one channel as they come, for `for` or `async for`."""
        return Pieces(self, TEXT_EVENTS.get(channel, Text))

    def wait(self) -> Result:
        """Reads to the end."""
        for _ in self:
            pass
        return self.result

    def __await__(self) -> Generator[Any, None, Result]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> Result:
        async for _ in self:
            pass
        return self.result

    @property
    def finished(self) -> bool:
        """The last event was read."""
        return self._ended

    def cancel(self, *, rollback: bool = False) -> None:
        """Stops after the step in progress, from any thread. `rollback` makes the session as it was before the run."""
        handle = self._handle
        if handle is not None:
            how = _c.DSA_STOP_ROLLBACK if rollback else _c.DSA_STOP_KEEP
            check(library().dsa_run_cancel(handle, how))

    # ---- what came of it ----

    @property
    def result(self) -> Result:
        if self._result is None:
            out = _c.dsa_result()
            self._ended_or_raise(library().dsa_run_get_result(self._live, address(out)))
            self._result = Result(
                Status(out.status),
                Finish(out.finish),
                out.stop_index,
                out.prompt_tokens,
                out.reused_tokens,
                out.image_tokens,
                out.output_tokens,
                out.reasoning_tokens,
                out.seed,
                out.run_id,
            )
        return self._result

    @property
    def stats(self) -> RunStats:
        if self._stats is None:
            out = _c.dsa_run_stats()
            self._ended_or_raise(library().dsa_run_get_stats(self._live, address(out)))
            self._stats = RunStats(
                out.queue_ms,
                out.prefill_ms,
                out.first_token_ms,
                out.decode_ms,
                out.total_ms,
                out.compute_ms,
                out.copy_ms,
                out.disk_ms,
                out.sample_ms,
                out.consumer_ms,
                Bound(out.bound),
                Advice(out.advice),
            )
        return self._stats

    @property
    def error(self) -> Error | None:
        """What the run failed with; None if it did not."""
        if self._failure is None and self._handle is not None:
            out = _c.dsa_error()
            self._ended_or_raise(library().dsa_run_get_error(self._handle, address(out)))
            if out.code < 0:
                self._failure = error_of(out)
        return self._failure

    def whole_text(self, channel: Channel = Channel.ANSWER) -> str:
        """All text of a channel, after the end."""
        if channel not in self._texts:
            out = _c.Str()
            self._ended_or_raise(library().dsa_run_get_text(self._live, channel, address(out)))
            self._texts[channel] = text_of(out)
        return self._texts[channel]

    @property
    def answer(self) -> str:
        return self.whole_text()

    # ---- leaving ----

    def close(self) -> None:
        """Stops the run if it is still going, waits for that, and gives the handle back."""
        self._stop()
        self._let_go()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Run:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop_async()
        self._let_go()

    # ---- inside ----

    def _take(self, timeout_ms: int) -> Event | None:
        with self._lock:  # one reader at a time, and the text of an event lives only until the next call
            status = self._next(self._live, timeout_ms, self._out)
            if status == _c.DSA_OK:
                event = self._event
                if event.type == _c.DSA_EVENT_DONE:
                    self._ended = True
                return _event_of(event)
        if status == _c.DSA_END:
            self._ended = True
        check(status)
        return None

    async def _take_async(self) -> Event | None:
        loop = asyncio.get_running_loop()
        waker = self._waker
        try:
            if waker is not None and waker.loop is loop:
                waker.ready.clear()
                event = self._take(0)  # finding nothing arms the wake-up
                if event is None and not self._ended:
                    await waker.ready.wait()
                return event
            # Started outside of this loop: a worker thread waits. It is not interrupted; the next call reads its event.
            if self._worker is None:
                self._worker = loop.run_in_executor(None, self._take, SLICE_MS)
            event = await asyncio.shield(self._worker)
            self._worker = None
            return event
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _stop(self) -> None:
        if self._ended or self._handle is None:
            return
        self.cancel()
        while not self._ended:
            self._take(SLICE_MS)

    async def _stop_async(self) -> None:
        if self._ended or self._handle is None:
            return
        self.cancel()
        while not self._ended:
            await self._take_async()

    def _let_go(self) -> None:
        if self._handle is not None:
            self.result, self.stats, self.error
            for channel in TEXT_EVENTS:
                self.whole_text(Channel(channel))
            self._handle = self._session = None
            _wake.callers.discard(self)

    def _leave(self) -> None:
        with contextlib.suppress(Error):
            self.cancel()
        if self._lock.acquire(timeout=1):  # a daemon thread may be reading
            handle, self._handle = self._handle, None
            self._lock.release()
            if handle is not None:
                handle.release()

    def _ended_or_raise(self, status: int) -> None:
        if check(status) == _c.DSA_PENDING:
            raise StateError("the run has not ended", Status.STATE)

    def _raise_failure(self) -> None:
        failure = self.error
        if failure is not None:
            raise failure


class Pieces:
    """The text of one channel of a run."""

    def __init__(self, run: Run, kind: type[Any]) -> None:
        self._run = run
        self._kind = kind

    def __iter__(self) -> Iterator[str]:
        with contextlib.closing(iter(self._run)) as events:
            for event in events:
                if isinstance(event, self._kind):
                    yield event.text

    async def __aiter__(self) -> AsyncIterator[str]:
        async with contextlib.aclosing(aiter(self._run)) as events:
            async for event in events:
                if isinstance(event, self._kind):
                    yield event.text
