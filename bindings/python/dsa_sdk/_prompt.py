"""Prompt: messages being put together."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _c
from ._constants import Role
from ._errors import ArgumentError
from ._image import Image
from ._library import Handle, Owner, address, check, encoded, library
from ._values import PromptCost

if TYPE_CHECKING:
    from ._runtime import Model, Runtime
    from ._session import Session


def token_array(tokens: Iterable[int]) -> ctypes.Array[ctypes.c_int32]:
    values = list(tokens)
    for token in values:
        if not 0 <= token < 1 << 31:
            raise ArgumentError(f"token {token} does not exist", _c.DSA_ERROR_ARGUMENT)
    return (ctypes.c_int32 * len(values))(*values)


class Prompt(Owner):
    """A builder: each call adds and returns the prompt. The same prompt may be used for several runs and models."""

    def __init__(self, runtime: Runtime) -> None:
        out = ctypes.c_void_p()
        check(library().dsa_prompt_create(runtime._live, address(out)))
        self._handle = Handle(out.value or 0, library().dsa_prompt_release)
        self._runtime = runtime

    def system(self, *parts: str | Image) -> Prompt:
        return self.message(Role.SYSTEM, *parts)

    def user(self, *parts: str | Image) -> Prompt:
        return self.message(Role.USER, *parts)

    def assistant(self, *parts: str | Image) -> Prompt:
        return self.message(Role.ASSISTANT, *parts)

    def message(self, role: Role, *parts: str | Image) -> Prompt:
        """Begins a message of texts and pictures; control tokens in the texts stay plain text."""
        check(library().dsa_prompt_message(self._live, role))
        for part in parts:
            self.image(part) if isinstance(part, Image) else self.text(part)
        return self

    def text(self, text: str) -> Prompt:
        """Adds plain text to the last message."""
        data = encoded(text)
        check(library().dsa_prompt_text(self._live, data, len(data)))
        return self

    def markup(self, text: str) -> Prompt:
        """Adds text that you wrote yourself: control tokens in it act. Never pass user input."""
        data = encoded(text)
        check(library().dsa_prompt_markup(self._live, data, len(data)))
        return self

    def image(self, image: Image) -> Prompt:
        """Shows a picture at this place of the last message."""
        check(library().dsa_prompt_image(self._live, image._live))
        return self

    def bind_image(self, name: str, image: Image) -> Prompt:
        """Gives a picture to the parts of chat messages that name it as their url. Nothing is ever fetched."""
        check(library().dsa_prompt_bind_image(self._live, encoded(name), image._live))
        return self

    def tokens(self, tokens: Iterable[int]) -> Prompt:
        values = token_array(tokens)
        check(library().dsa_prompt_tokens(self._live, values, len(values)))
        return self

    def messages(self, messages: Sequence[Mapping[str, Any]] | str) -> Prompt:
        """Adds a list in the widespread chat form, [{"role": "user", "content": "Hello"}], or the same as JSON."""
        data = encoded(messages if isinstance(messages, str) else json.dumps(list(messages)))
        check(library().dsa_prompt_add_json(self._live, data, len(data)))
        return self

    def clear(self) -> Prompt:
        check(library().dsa_prompt_clear(self._live))
        return self

    def measure(self, model: Model, session: Session | None = None) -> PromptCost:
        """What it would cost, appended to a session or alone."""
        out = _c.dsa_prompt_cost()
        other = session._live if session is not None else None
        check(library().dsa_prompt_measure(self._live, model._live, other, _c.DSA_FEED_APPEND, address(out)))
        return PromptCost(
            out.text_tokens,
            out.image_tokens,
            out.num_tokens,
            out.reusable_tokens,
            bool(out.fits),
            out.prefill_seconds,
        )

    def render(self, model: Model) -> str:
        """The text that the model would see, control tokens by name."""
        size, data = ctypes.c_size_t(), ctypes.create_string_buffer(0)
        while True:
            room = len(data)
            status = check(library().dsa_prompt_render(self._live, model._live, data, room, address(size)))
            if status != _c.DSA_PARTIAL:
                return data.raw[: size.value].decode()
            data = ctypes.create_string_buffer(size.value)

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> Prompt:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
