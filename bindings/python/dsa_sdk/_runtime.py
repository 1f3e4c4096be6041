"""Runtime, Package and Model: from a folder to loaded weights."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable
from typing import Any, Literal

from . import _c, _wake
from ._callbacks import Blocking, OnProgress, unsigned
from ._constants import Bound, KvFormat, ModelState, Status
from ._library import Handle, Owner, address, check, encoded, library, text_of, view_of
from ._prompt import token_array
from ._run import SLICE_MS
from ._session import Session
from ._values import DeviceInfo, ModelStats, PackageInfo, PlanSummary




class Runtime(Owner):
    """Threads and log of one user of the library. Cheap; several may exist.

    The log goes to logging.getLogger("dsa_sdk"), from the level on that this logger has when the runtime is made.
    """

    def __init__(self, *, max_threads: int = 0) -> None:
        options = _c.dsa_runtime_options(max_threads=unsigned("max_threads", max_threads))
        level = _wake.log_level()
        if level != _c.DSA_LOG_OFF:
            options.log_level = level
            options.log = _wake.ON_LOG
        out = ctypes.c_void_p()
        check(library().dsa_runtime_create(address(options), address(out)))
        if level == _c.DSA_LOG_OFF:
            self._handle = Handle(out.value or 0, library().dsa_runtime_release)
        else:
            self._handle = Handle(out.value or 0, _silence_and_release)
            _wake.callers.add(self)

    def open(self, path: str | os.PathLike[str]) -> Package:
        """Opens a model folder: reads headers, config, tokenizer and chat format, no weights."""
        return Package(self, path)

    def load(self, path: str | os.PathLike[str], *, on_progress: OnProgress | None = None) -> Model:
        """Opens a model folder and loads it."""
        return self.open(path).load(on_progress=on_progress)

    @property
    def devices(self) -> list[DeviceInfo]:
        """All devices, also those that cannot be used, each with its reason."""
        count = ctypes.c_size_t()
        check(library().dsa_runtime_count_devices(self._live, address(count)))
        return [self._device(index) for index in range(count.value)]

    def _device(self, index: int) -> DeviceInfo:
        out = _c.dsa_device_info()
        check(library().dsa_runtime_get_device(self._live, index, address(out)))
        return DeviceInfo(
            text_of(out.id),
            text_of(out.name),
            text_of(out.driver),
            bool(out.usable),
            text_of(out.why_not),
            Status(out.why_not_code),
            bool(out.integrated),
            bool(out.drives_display),
            out.total_bytes,
            out.free_bytes,
        )

    def close(self) -> None:
        """Gives it back; packages, models and prompts made with it go on, without a log."""
        self._handle = None

    def _leave(self) -> None:
        handle = self._handle
        if handle is not None:
            library().dsa_runtime_set_log(handle, _c.DSA_LOG_OFF, _c.dsa_log_fn(), None)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _silence_and_release(pointer: int) -> None:
    library().dsa_runtime_set_log(pointer, _c.DSA_LOG_OFF, _c.dsa_log_fn(), None)
    library().dsa_runtime_release(pointer)


class Package(Owner):
    """A model on disk."""

    def __init__(self, runtime: Runtime, path: str | os.PathLike[str]) -> None:
        name = os.fsencode(path)
        source = _c.dsa_source(path=view_of(name))
        out = ctypes.c_void_p()
        check(library().dsa_package_open(runtime._live, address(source), address(out)))
        self._handle = Handle(out.value or 0, library().dsa_package_release)
        self._runtime = runtime

    @property
    def info(self) -> PackageInfo:
        out = _c.dsa_package_info()
        check(library().dsa_package_get_info(self._live, address(out)))
        return PackageInfo(
            text_of(out.name),
            text_of(out.family),
            text_of(out.license),
            text_of(out.content_id),
            out.parameters,
            out.active_parameters,
            out.weight_bytes,
            out.expert_bytes,
            out.layers,
            out.experts,
            out.experts_per_token,
            out.max_context,
            bool(out.has_images),
            bool(out.has_tools),
            bool(out.has_reasoning),
            bool(out.has_draft),
            out.kv_bytes_per_token,
            out.checkpoint_bytes,
        )

    def meta(self, key: str) -> str:
        """One value of config.json as text; nested keys are written with a dot."""
        out = _c.Str()
        check(library().dsa_package_get_meta(self._live, encoded(key), address(out)))
        return text_of(out)

    def plan(
        self,
        *,
        device: str | None = None,
        context_tokens: int = 0,
        sessions: int = 0,
        device_bytes: int = 0,
        leave_device_bytes: int = 0,
        host_bytes: int = 0,
        leave_host_bytes: int = 0,
        kv_format: KvFormat = KvFormat.MODEL,
    ) -> Plan:
        """What loading would cost on this machine as it is now. Zero: the longest context, one session, what is free.

        `device` is an id of `Runtime.devices`, "cuda" or "cpu"; None: the first GPU where it fits, else the CPU.
        """
        return Plan(
            self,
            device,
            _c.dsa_plan_request(
                context_tokens=unsigned("context_tokens", context_tokens),
                sessions=unsigned("sessions", sessions),
                kv_format=kv_format,
            ),
            _c.dsa_budget(
                device_bytes=unsigned("device_bytes", device_bytes, 64),
                leave_device_bytes=unsigned("leave_device_bytes", leave_device_bytes, 64),
                host_bytes=unsigned("host_bytes", host_bytes, 64),
                leave_host_bytes=unsigned("leave_host_bytes", leave_host_bytes, 64),
            ),
        )

    def load(
        self, plan: Plan | None = None, *, queue_limit: int = 0, on_progress: OnProgress | None = None
    ) -> Model:
        """Loads the weights on this thread. `on_progress` may answer False to stop; then this raises Cancelled."""
        return Model(self, plan, queue_limit, on_progress)

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Plan(Owner):
    """Where a package would go on this machine. One that is not feasible says in `explain()` what would help."""

    def __init__(
        self, package: Package, device: str | None, request: _c.dsa_plan_request, budget: _c.dsa_budget
    ) -> None:
        request.budget = ctypes.pointer(budget)
        if device is not None:
            name = encoded(device)
            request.device_ids = ctypes.pointer(view_of(name))
            request.num_device_ids = 1
        out = ctypes.c_void_p()
        check(library().dsa_plan_create(package._live, address(request), address(out)))
        self._handle = Handle(out.value or 0, library().dsa_plan_release)
        summary = _c.dsa_plan_summary()
        check(library().dsa_plan_get(self._live, address(summary)))
        self.summary = PlanSummary(
            bool(summary.feasible),
            Bound(summary.bound),
            summary.context_tokens,
            summary.sessions,
            summary.device_bytes,
            summary.host_bytes,
            summary.disk_bytes_per_token,
            summary.experts_on_device,
            summary.experts_on_host,
        )

    def explain(self) -> dict[str, Any]:
        """Kernels, tensors, parameters, bytes, state, precision and placement, as dsa_plan_explain() gives them."""
        out = _c.Str()
        check(library().dsa_plan_explain(self._live, address(out)))
        described: dict[str, Any] = json.loads(text_of(out))
        return described

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Model(Owner):
    """Loaded weights with their scheduler, shared by all sessions."""

    def __init__(
        self, package: Package, plan: Plan | None, queue_limit: int, on_progress: OnProgress | None
    ) -> None:
        options = _c.dsa_load_options(queue_limit=unsigned("queue_limit", queue_limit))
        out = ctypes.c_void_p()
        with Blocking(on_progress) as call:
            status = library().dsa_model_load(
                package._live,
                None if plan is None else plan._live,
                address(options),
                call.callback, None, address(out)
            )
            if status >= 0:
                self._handle = Handle(out.value or 0, library().dsa_model_release)
        call.check(status)
        self._runtime = package._runtime

    def session(
        self,
        *,
        context_tokens: int = 0,
        overflow: Literal["error", "finish", "drop_turns"] = "error",
        keep_reasoning: bool = True,
    ) -> Session:
        """An empty conversation."""
        return Session(self, self._runtime, context_tokens, overflow, keep_reasoning)

    @property
    def stats(self) -> ModelStats:
        out = _c.dsa_model_stats()
        check(library().dsa_model_get_stats(self._live, address(out)))
        return ModelStats(
            ModelState(out.state),
            out.device_bytes,
            out.host_bytes,
            out.disk_cache_bytes,
            out.kv_bytes,
            out.checkpoint_bytes,
            out.expert_bytes,
            out.prompt_tokens,
            out.output_tokens,
            out.runs,
            out.cancelled,
            out.failed,
            out.running,
            out.queued,
            out.sessions,
            out.expert_hit_rate,
            out.draft_accept_rate,
            out.images_encoded,
            out.image_hits,
            out.expert_rows,
            out.expert_rows_fp8,
            out.fp8_workspace_bytes,
        )

    def tokenize(self, text: str, *, control: bool = False) -> list[int]:
        """Text as tokens. With `control`, control tokens in the text act."""
        data, flags = encoded(text), _c.DSA_TEXT_CONTROL if control else 0
        count, room = ctypes.c_size_t(), len(data) + 8
        while True:
            out = (ctypes.c_int32 * room)()
            status = library().dsa_model_tokenize(self._live, data, len(data), flags, out, room, address(count))
            if check(status) != _c.DSA_PARTIAL:
                return out[: count.value]
            room = count.value

    def detokenize(self, tokens: Iterable[int], *, control: bool = False) -> bytes:
        """Tokens as bytes: a cut character stays cut. With `control`, control tokens are shown by name."""
        values, flags = token_array(tokens), _c.DSA_TEXT_CONTROL if control else 0
        size, room = ctypes.c_size_t(), 16 * len(values) + 16
        while True:
            out = ctypes.create_string_buffer(room)
            status = library().dsa_model_detokenize(
                self._live, values, len(values), flags, out, room, address(size)
            )
            if check(status) != _c.DSA_PARTIAL:
                return out.raw[: size.value]
            room = size.value

    def close(self, timeout: float | None = None) -> bool:
        """Cancels all runs, waits, and frees the memory now, whoever else still holds a session.

        Answers False if `timeout` seconds passed first; the closing goes on.
        """
        if self._handle is None:
            return True
        left = SLICE_MS if timeout is None else max(0, round(timeout * 1000))
        while check(library().dsa_model_close(self._live, min(left, SLICE_MS))) == _c.DSA_PENDING:
            if timeout is not None:
                left -= SLICE_MS
                if left <= 0:
                    return False
        self._handle = None
        return True

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
