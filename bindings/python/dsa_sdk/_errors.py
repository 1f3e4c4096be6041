"""Exceptions: one class per group of codes, finer ones where a program would act differently."""

from __future__ import annotations

from ._constants import Fix, Status


class Error(Exception):
    """A call of the library failed, or a run did.

    `needed` and `available` are bytes or tokens, with errors about room; `position` is a byte offset, with errors about
    text and files. The sentence is for logs: programs look at the class, `code` and `fix`.
    """

    def __init__(
        self,
        message: str,
        code: int = Status.STATE,
        fix: int = Fix.NONE,
        native: int = 0,
        needed: int = 0,
        available: int = 0,
        position: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = Status(code)
        self.fix = Fix(fix)
        self.native = native
        self.needed = needed
        self.available = available
        self.position = position

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        values = (self.message, self.code, self.fix, self.native, self.needed, self.available, self.position)
        return type(self), values


class ArgumentError(Error, ValueError):
    """-1xx: the caller asked for something that cannot be."""


class AbiError(ArgumentError):
    """The bindings and the library do not fit."""


class StateError(ArgumentError):
    """Not now: calls came in the wrong order."""


class Busy(StateError):
    """The session is in use by another call."""


class Reentrant(StateError):
    """Not from inside this callback."""


class Closed(StateError):
    """This object, or the model behind it, was closed."""


class Forked(StateError):
    """We are in a child process made by fork()."""


class Unsupported(ArgumentError):
    """This model, build or device cannot do that."""


class RoomError(Error):
    """-2xx: something does not fit; `needed` and `available` say by how much."""


class MemoryShort(RoomError, MemoryError):
    """Memory of the host or of a device ran out, or a budget would be broken."""


class ContextFull(RoomError):
    """Prompt and answer do not fit in the context of the session."""


class LimitExceeded(RoomError):
    """An input is larger than allowed."""


class QueueFull(RoomError):
    """Too many runs wait."""


class FileFault(Error, OSError):
    """-3xx: a file cannot be used. `errno` is that of the system, if there was one."""

    def __init__(self, message: str, *details: int) -> None:
        super().__init__(message, *details)
        self.errno = self.native or None


class NotFound(FileFault, FileNotFoundError):
    """There is no such file or key."""


class AccessDenied(FileFault, PermissionError):
    """The file may not be read."""


class DeviceFault(Error):
    """-4xx: a device cannot be used, or failed."""


class ContentError(Error, ValueError):
    """-5xx: text, a picture or JSON is not what it should be; `position` says where."""


class FlowError(Error):
    """-6xx: somebody stopped it."""


class Cancelled(FlowError):
    """Stopped by a cancel that took everything back."""


class DeadlineExceeded(FlowError, TimeoutError):
    """The time was over."""


class CallbackFailed(FlowError):
    """A callback reported a failure."""


class InternalError(Error):
    """-9xx: a defect of the library; please report it."""


_GROUPS: dict[int, type[Error]] = {
    1: ArgumentError,
    2: RoomError,
    3: FileFault,
    4: DeviceFault,
    5: ContentError,
    6: FlowError,
    9: InternalError,
}
_CLASSES: dict[int, type[Error]] = {
    Status.ABI: AbiError,
    Status.STATE: StateError,
    Status.BUSY: Busy,
    Status.REENTRANT: Reentrant,
    Status.CLOSED: Closed,
    Status.FORKED: Forked,
    Status.UNSUPPORTED: Unsupported,
    Status.OUT_OF_MEMORY: MemoryShort,
    Status.OUT_OF_DEVICE_MEMORY: MemoryShort,
    Status.OVER_BUDGET: MemoryShort,
    Status.CONTEXT_FULL: ContextFull,
    Status.LIMIT: LimitExceeded,
    Status.QUEUE_FULL: QueueFull,
    Status.NOT_FOUND: NotFound,
    Status.ACCESS: AccessDenied,
    Status.CANCELLED: Cancelled,
    Status.DEADLINE: DeadlineExceeded,
    Status.CALLBACK: CallbackFailed,
}


def class_of(code: int) -> type[Error]:
    """The class of a code; a code that is not known yet has the class of its group."""
    return _CLASSES.get(code) or _GROUPS.get(-code // 100, Error)
