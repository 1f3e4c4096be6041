"""Pictures: from files, from encoded bytes, from pixels of any array, and from Pillow."""

from __future__ import annotations

import ctypes
import math
import os
from typing import TYPE_CHECKING, Any, Literal

from . import _c
from ._callbacks import unsigned
from ._constants import Stage, Status
from ._errors import ArgumentError
from ._library import Handle, Owner, address, check, error_of, library, text_of
from ._run import SLICE_MS
from ._values import Progress

if TYPE_CHECKING:
    from ._runtime import Model, Runtime

_FORMATS = {
    (1, "rgb"): _c.DSA_PIXELS_GRAY8,
    (1, "bgr"): _c.DSA_PIXELS_GRAY8,
    (3, "rgb"): _c.DSA_PIXELS_RGB8,
    (3, "bgr"): _c.DSA_PIXELS_BGR8,
    (4, "rgb"): _c.DSA_PIXELS_RGBA8,
    (4, "bgr"): _c.DSA_PIXELS_BGRA8,
}
_PILLOW_MODES = ("L", "RGB", "RGBA")  # those whose bytes are what they show
_EXIF_ORIENTATION = 0x0112


class Image(Owner):
    """A picture, decoded and upright. It may be shown in many prompts; equal pictures have equal ids."""

    def __init__(self, pointer: int) -> None:
        self._handle = Handle(pointer, library().dsa_image_release)

    @classmethod
    def open(
        cls,
        runtime: Runtime,
        source: Any,
        *,
        order: Literal["rgb", "bgr"] = "rgb",
        max_side: int = 0,
        refuse_too_large: bool = False,
        max_encoded_bytes: int = 0,
        max_pixels: int = 0,
    ) -> Image:
        """Takes a path, the bytes of a picture file, an array of pixels, or a Pillow picture.

        An array has the shape [height, width] or [height, width, channels] with 1, 3 or 4 channels of 8 bits; `order` is
        the order of its channels. Its rows may have any stride.
        """
        options = _c.dsa_image_options(
            max_side=unsigned("max_side", max_side),
            refuse_too_large=int(refuse_too_large),
            max_encoded_bytes=unsigned("max_encoded_bytes", max_encoded_bytes, 64),
            max_pixels=unsigned("max_pixels", max_pixels, 64),
        )
        out, settings = ctypes.c_void_p(), address(options)
        if isinstance(source, (str, os.PathLike)):
            path = os.fsencode(source)
            check(library().dsa_image_from_file(runtime._live, path, settings, address(out)))
        elif _is_encoded(source):
            data = bytes(source)
            check(library().dsa_image_from_memory(runtime._live, data, len(data), settings, address(out)))
        else:
            pixels, kept = _pixels_of(source, order)
            check(library().dsa_image_from_pixels(runtime._live, address(pixels), settings, address(out)))
            del kept  # the library has copied them
        return cls(out.value or 0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, upright."""
        width, height = ctypes.c_uint32(), ctypes.c_uint32()
        check(library().dsa_image_get_size(self._live, address(width), address(height)))
        return width.value, height.value

    @property
    def id(self) -> str:
        """A hash of size and pixels."""
        out = _c.Str()
        check(library().dsa_image_get_id(self._live, address(out)))
        return text_of(out)

    def prepare(self, model: Model) -> Operation:
        """Encodes it for a model ahead of the question, while nothing else is to do."""
        out = ctypes.c_void_p()
        check(library().dsa_image_prepare(self._live, model._live, address(out)))
        return Operation(out.value or 0)

    def close(self) -> None:
        """Gives it back; prompts and sessions that show it keep it."""
        self._handle = None

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Operation(Owner):
    """Something long that goes on in the library; dropping it stops it."""

    def __init__(self, pointer: int) -> None:
        self._handle = Handle(pointer, library().dsa_op_release)
        self._progress = _c.dsa_progress()

    def wait(self, timeout: float | None = None) -> bool:
        """Answers False if `timeout` seconds passed first; raises what the operation failed with."""
        left = math.inf if timeout is None else max(0, round(timeout * 1000))
        while True:
            status = library().dsa_op_wait(self._live, int(min(left, SLICE_MS)), address(self._progress))
            if status < 0:
                details = _c.dsa_error()
                if library().dsa_op_get_error(self._live, address(details)) == _c.DSA_OK and details.code == status:
                    raise error_of(details)
            if check(status) != _c.DSA_PENDING:
                return True
            left -= SLICE_MS
            if left <= 0:
                return False

    @property
    def progress(self) -> Progress:
        """As of the last wait."""
        return Progress(self._progress.done, self._progress.total, Stage(self._progress.stage))

    def cancel(self) -> None:
        check(library().dsa_op_cancel(self._live))

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_encoded(source: Any) -> bool:
    """Bytes in a row are the content of a file."""
    if hasattr(source, "mode") or not _has_buffer(source):
        return False
    view = memoryview(source)
    return view.ndim == 1 and view.itemsize == 1


def _has_buffer(source: Any) -> bool:
    try:
        memoryview(source)
    except TypeError:
        return False
    return True


def _pixels_of(source: Any, order: str) -> tuple[_c.dsa_pixels, Any]:
    """The struct, and the object that owns the memory."""
    orientation = 0
    if hasattr(source, "mode") and hasattr(source, "convert"):  # Pillow
        orientation = int(source.getexif().get(_EXIF_ORIENTATION, 0)) if hasattr(source, "getexif") else 0
        if source.mode not in _PILLOW_MODES:
            source = source.convert("RGBA")
    shape, strides, kind, start, kept = _array_of(source)
    if kind not in ("B", "|u1"):
        raise _not_pixels(f"elements of the kind '{kind}'", "bytes")
    channels = shape[2] if len(shape) == 3 else 1
    if len(shape) not in (2, 3) or (channels, order) not in _FORMATS:
        raise _not_pixels(f"the shape {list(shape)} in the order '{order}'", "[height, width] or [..., 1, 3 or 4]")
    height, width = shape[:2]
    tight = width * channels
    steps = strides or (tight, channels, 1)
    inner = (steps[1] == channels or width == 1) and (len(shape) == 2 or steps[2] == 1 or channels == 1)
    if start is None or not inner or (steps[0] < tight and height > 1):
        kept = memoryview(kept).tobytes()  # in the order that the library reads
        start, steps = ctypes.cast(ctypes.c_char_p(kept), ctypes.c_void_p).value, (tight, channels, 1)
    pixels = _c.dsa_pixels(
        data=start,
        width=unsigned("width", width),
        height=unsigned("height", height),
        stride=steps[0] if height > 1 else tight,
        format=_FORMATS[channels, order],
        orientation=orientation if 1 <= orientation <= 8 else 0,
    )
    return pixels, kept


def _array_of(source: Any) -> tuple[Any, Any, str, int | None, Any]:
    """Shape, strides (None: tight), kind of an element, address (None: not to be had), and who owns the memory."""
    interface = getattr(source, "__array_interface__", None)
    if interface is None:
        if not _has_buffer(source):
            raise _not_pixels(f"a {type(source).__name__}", "a path, bytes, an array or a Pillow picture")
        view = memoryview(source)
        return view.shape, view.strides, view.format, None, view
    data = interface.get("data")
    if isinstance(data, tuple):
        return interface["shape"], interface.get("strides"), interface["typestr"], data[0], source
    kept = source if data is None else data
    return interface["shape"], None, interface["typestr"], None, kept


def _not_pixels(found: str, expected: str) -> ArgumentError:
    return ArgumentError(f"the picture is {found}, expected {expected}", Status.ARGUMENT)
