"""Session: one conversation, and the ways to make it answer."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from . import _c, _wake
from ._callbacks import Blocking, OnProgress, unsigned
from ._constants import SessionState, Status, Tier
from ._errors import ArgumentError
from ._library import Handle, Owner, address, check, encoded, library, view_of
from ._prompt import Prompt
from ._run import Run
from ._values import Event, Sampling, SessionInfo

if TYPE_CHECKING:
    from ._runtime import Model, Runtime

OVERFLOW = {
    "error": _c.DSA_OVERFLOW_ERROR,
    "finish": _c.DSA_OVERFLOW_FINISH,
    "drop_turns": _c.DSA_OVERFLOW_DROP_TURNS,
}
EFFORT = {
    "model": _c.DSA_EFFORT_MODEL,
    "none": _c.DSA_EFFORT_NONE,
    "low": _c.DSA_EFFORT_LOW,
    "medium": _c.DSA_EFFORT_MEDIUM,
    "high": _c.DSA_EFFORT_HIGH,
}
TOOLS = {"auto": _c.DSA_TOOLS_AUTO, "none": _c.DSA_TOOLS_NONE, "required": _c.DSA_TOOLS_REQUIRED}
PRIORITY = {
    "normal": _c.DSA_PRIORITY_NORMAL,
    "interactive": _c.DSA_PRIORITY_INTERACTIVE,
    "background": _c.DSA_PRIORITY_BACKGROUND,
}

Question = Prompt | str | Sequence[Mapping[str, Any]]


class RunOptions(TypedDict, total=False):
    """Keywords of Session.run() and Session.ask(); the header says what each of them means."""

    sampling: Sampling | Literal["model", "greedy"]
    stops: Sequence[str]
    seed: int
    max_tokens: int
    deadline: float
    effort: Literal["model", "none", "low", "medium", "high"]
    tools: Literal["auto", "none", "required"]
    priority: Literal["normal", "interactive", "background"]


def chosen(name: str, value: str, among: dict[str, int]) -> int:
    if value not in among:
        raise ArgumentError(f"{name} is '{value}', expected one of {', '.join(among)}", Status.ARGUMENT)
    return among[value]


def _sampling(sampling: Sampling | str) -> tuple[_c.dsa_sampling, list[Any]]:
    """The struct, and what it points to."""
    if not isinstance(sampling, Sampling):
        modes = {"model": _c.DSA_SAMPLE_MODEL, "greedy": _c.DSA_SAMPLE_GREEDY}
        return _c.dsa_sampling(mode=chosen("sampling", sampling, modes)), []
    n = len(sampling.bias)
    tokens, values = (ctypes.c_int32 * n)(*sampling.bias.keys()), (ctypes.c_float * n)(*sampling.bias.values())
    made = _c.dsa_sampling(
        mode=_c.DSA_SAMPLE_CUSTOM,
        top_k=unsigned("top_k", sampling.top_k),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        typical_p=1.0,
        repeat_penalty=sampling.repeat_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repeat_window=unsigned("repeat_window", sampling.repeat_window),
        num_bias=n,
        bias_tokens=tokens,
        bias_values=values,
    )
    return made, [tokens, values]


def _run_options(
    *,
    sampling: Sampling | str = "model",
    stops: Sequence[str] = (),
    seed: int = 0,
    max_tokens: int = 0,
    deadline: float = 0.0,
    effort: str = "model",
    tools: str = "auto",
    priority: str = "normal",
) -> tuple[_c.dsa_run_options, list[Any]]:
    """The struct, and what it points to."""
    if isinstance(stops, str):
        raise ArgumentError("stops is a text, expected a list of texts", Status.ARGUMENT)
    draw, kept = _sampling(sampling)
    texts = [encoded(stop) for stop in stops]
    views = (_c.Str * len(texts))(*map(view_of, texts))
    options = _c.dsa_run_options(
        sampling=ctypes.pointer(draw),
        stops=views,
        num_stops=len(texts),
        seed=unsigned("seed", seed, 64),
        max_tokens=unsigned("max_tokens", max_tokens),
        deadline_ms=unsigned("deadline", round(deadline * 1000)),
        effort=chosen("effort", effort, EFFORT),
        tools=chosen("tools", tools, TOOLS),
        priority=chosen("priority", priority, PRIORITY),
    )
    return options, [*kept, draw, texts, views]


class Session(Owner):
    """Made by Model.session(). One run at a time; it keeps what was said."""

    def __init__(
        self, model: Model, runtime: Runtime, context_tokens: int, overflow: str, keep_reasoning: bool
    ) -> None:
        options = _c.dsa_session_options(
            context_tokens=unsigned("context_tokens", context_tokens),
            overflow=chosen("overflow", overflow, OVERFLOW),
            keep_reasoning=0 if keep_reasoning else -1,
        )
        out = ctypes.c_void_p()
        check(library().dsa_session_create(model._live, address(options), address(out)))
        self._handle = Handle(out.value or 0, library().dsa_session_release)
        self._runtime = runtime

    def run(self, prompt: Question, **options: Unpack[RunOptions]) -> Run:
        """Starts an answer. A text is one message of the user, a list is a chat in the widespread form.

        Inside a running asyncio loop the run wakes that loop, so `async for` needs no thread.
        """
        settings, kept = _run_options(**options)
        waker = None
        try:
            waker = _wake.Waker(asyncio.get_running_loop())
            settings.on_ready = _wake.ON_READY
            settings.on_ready_ud = waker.key
        except RuntimeError:
            pass  # no loop
        out = ctypes.c_void_p()
        try:
            question = self._prompt_of(prompt)
            check(library().dsa_run_start(self._live, question._live, address(settings), address(out)))
        except BaseException:
            if waker is not None:
                _wake.forget(waker.key)
            raise
        del kept
        return Run(self, out.value or 0, waker)

    def ask(
        self, prompt: Question, *, on_event: Callable[[Event], object] | None = None, **options: Unpack[RunOptions]
    ) -> str:
        """Prompt and answer in one call. An exception in `on_event` takes both back and is raised."""
        with self.run(prompt, **options) as run:
            for event in run:
                if on_event is not None:
                    try:
                        on_event(event)
                    except BaseException:
                        run.cancel(rollback=True)
                        raise
            return run.answer

    def prefill(self, prompt: Question, *, on_progress: OnProgress | None = None) -> int:
        """Computes a prompt without answering; says how many tokens that were."""
        count, question = ctypes.c_uint32(), self._prompt_of(prompt)
        with Blocking(on_progress) as call:
            status = library().dsa_session_prefill(
                self._live, question._live, call.callback, None, address(count)
            )
        call.check(status)
        return count.value

    def cancel(self, *, rollback: bool = False) -> None:
        """Stops whatever runs on this session, from any thread."""
        how = _c.DSA_STOP_ROLLBACK if rollback else _c.DSA_STOP_KEEP
        check(library().dsa_session_cancel(self._live, how))

    @property
    def info(self) -> SessionInfo:
        out = _c.dsa_session_info()
        check(library().dsa_session_get_info(self._live, address(out)))
        return SessionInfo(
            SessionState(out.state),
            Tier(out.tier),
            out.num_tokens,
            out.max_tokens,
            out.turns,
            out.images,
            out.checkpoints,
            out.device_bytes,
            out.host_bytes,
            out.disk_bytes,
            out.shared_bytes,
        )

    def close(self) -> None:
        """Gives it back; a run in work is stopped."""
        self._handle = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prompt_of(self, prompt: Question) -> Prompt:
        if isinstance(prompt, Prompt):
            return prompt
        made = Prompt(self._runtime)
        return made.user(prompt) if isinstance(prompt, str) else made.messages(prompt)
