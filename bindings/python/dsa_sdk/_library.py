"""Finds and loads the shared library, compares its layout, and holds what every object needs of it."""

from __future__ import annotations

import collections
import ctypes
import json
import os
import pathlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from . import _c
from ._constants import Status
from ._errors import Closed, Error, StateError, class_of

_NAME = f"libdsa_sdk.so.{_c.DSA_VERSION_MAJOR}"
_MADE_FOR = f"{_c.DSA_VERSION_MAJOR}.{_c.DSA_VERSION_MINOR}.{_c.DSA_VERSION_PATCH}, level {_c.DSA_API_LEVEL}"

_lock = threading.Lock()
_loaded: _c.Library | None = None
_path = ""


def library() -> _c.Library:
    """The library; the first call loads it."""
    return _loaded or _load_once(None)


def load(path: str | os.PathLike[str]) -> None:
    """Chooses another library than the one in the wheel. Must come before anything else is done with this package."""
    _load_once(os.fspath(path))


def library_path() -> str:
    """Where the library was loaded from."""
    library()
    return _path


def version() -> str:
    """Of the library, such as "0.1.0 (cpu)"."""
    return library().dsa_version_string().decode()


def api_level() -> int:
    """Of the library; compare it with the level that you need."""
    return library().dsa_api_level()


def has_feature(name: str) -> bool:
    """Says whether this build of the library can do something: "cpu", "cuda", "images", ..."""
    return library().dsa_has_feature(name.encode()) == 1


def _default_path() -> str:
    chosen = os.environ.get("DSA_SDK_LIBRARY")
    if chosen:
        return chosen
    bundled = pathlib.Path(__file__).resolve().parent / "_lib" / _NAME
    return str(bundled) if bundled.exists() else _NAME


def _load_once(path: str | None) -> _c.Library:
    global _loaded, _path
    with _lock:
        if _loaded is None:
            _path = path or _default_path()
            _loaded = open_library(_path)
        elif path is not None and path != _path:
            raise StateError(f"'{path}' comes too late: '{_path}' is loaded already")
        return _loaded


def open_library(path: str) -> _c.Library:
    """Loads a library and refuses one whose layout is not the one that these bindings were made from."""
    try:
        opened = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"the DSA SDK library cannot be loaded: {error}", path=path) from None
    try:
        describe = opened.dsa_abi_json
        describe.restype = ctypes.c_char_p
        abi = json.loads(describe() or b"{}")
        found = f"{abi['version']}, level {abi['api_level']}"
        difference = _difference(abi)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ImportError(f"'{path}' is not a DSA SDK library", path=path) from None
    if difference:
        message = f"'{path}' is DSA SDK {found}, these bindings were made for {_MADE_FOR}: {difference}"
        raise ImportError(message, path=path)
    return _c.Library(opened)


def _difference(abi: dict[str, Any]) -> str:
    """What the library lacks or has otherwise, as one sentence; empty if it fits. It may know more than we do."""
    for name, struct in _c.STRUCTS.items():
        fields = abi["structs"].get(name, {}).get("fields", {})
        for field, *_ in struct._fields_:
            ours = getattr(struct, field)
            theirs = fields.get(field, {})
            if (theirs.get("offset"), theirs.get("size")) != (ours.offset, ours.size):
                return f"field '{field}' of {name} is {_place(theirs)}, expected {_place(_vars_of(ours))}"
    for name, value in _c.CONSTANTS.items():
        found = abi["constants"].get(name)
        # Version and level say how new a library is; newer ones work.
        if found != value and not (name.startswith("DSA_VERSION_") or name == "DSA_API_LEVEL"):
            return f"{name} is {found}, expected {value}"
    for name in _c.Library.__annotations__:
        if name not in abi["functions"]:
            return f"function {name} is missing"
    return ""


def _vars_of(field: Any) -> dict[str, int]:
    return {"offset": field.offset, "size": field.size}


def _place(field: dict[str, int]) -> str:
    return f"{field['size']} bytes at {field['offset']}" if field else "missing"


# ---- errors -------------------------------------------------------------------------------------------------------


def text_of(view: _c.Str) -> str:
    return ctypes.string_at(view.ptr, view.len).decode() if view.ptr else ""


def error_of(details: _c.dsa_error) -> Error:
    return class_of(details.code)(
        text_of(details.message),
        details.code,
        details.fix,
        details.native,
        details.needed,
        details.available,
        details.position,
    )


def check(status: int) -> int:
    """Raises what the last call of this thread failed with."""
    if status >= 0:
        return status
    details = _c.dsa_error()
    library().dsa_last_error(ctypes.byref(details))
    if details.code != status:
        raise class_of(status)(f"the library answered {Status(status).name}", status)
    raise error_of(details)


def encoded(text: str) -> bytes:
    """UTF-8; what Python can hold and UTF-8 cannot is left for the library to name with its position."""
    return text.encode("utf-8", "surrogatepass")


def view_of(data: bytes) -> _c.Str:
    """A view of bytes that the caller keeps for as long as the view is used."""
    return _c.Str(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data))


def address(value: Any) -> Any:
    return ctypes.byref(value)


# ---- handles ------------------------------------------------------------------------------------------------------

_callback_threads: set[int] = set()  # threads that are inside a callback of the library
_postponed: collections.deque[tuple[Callable[[int], None], int]] = collections.deque()


class inside_callback:
    """Around the body of a trampoline that runs on a thread of the library.

    The collector may run there too, and a release may not: it waits until this thread or another makes a handle.
    """

    def __enter__(self) -> None:
        _callback_threads.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        _callback_threads.discard(threading.get_ident())


def _release(release: Callable[[int], None], pointer: int) -> None:
    if _callback_threads and threading.get_ident() in _callback_threads:
        _postponed.append((release, pointer))
    else:
        release(pointer)


class Handle:
    """One reference to an object of the library.

    It is given back when the last Python reference to this object goes, so a call in progress keeps its handle: another
    thread may close the owner meanwhile. ctypes passes it by `_as_parameter_`.
    """

    __slots__ = ("_as_parameter_", "_finalizer", "__weakref__")

    def __init__(self, pointer: int, release: Callable[[int], None]) -> None:
        while _postponed:
            later, old = _postponed.popleft()
            later(old)
        self._as_parameter_: int | None = pointer
        self._finalizer = weakref.finalize(self, _release, release, pointer)
        self._finalizer.atexit = False  # a process may end with live handles; _wake knows the exceptions

    def release(self) -> None:
        """Gives it back now; nothing may be using it."""
        self._as_parameter_ = None
        alive = self._finalizer.detach()
        if alive is not None:
            _, action, arguments, _ = alive
            action(*arguments)


class Owner:
    """A Python object that owns one handle and can be closed."""

    _handle: Handle | None = None

    @property
    def _live(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise Closed(f"this {type(self).__name__} is closed", Status.CLOSED)
        return handle

    @property
    def closed(self) -> bool:
        return self._handle is None
