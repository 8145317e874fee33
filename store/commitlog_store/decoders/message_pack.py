"""The decoder ``msgpack``: bodies in MessagePack, without a schema."""

from __future__ import annotations

import msgspec

from commitlog_store.errors import InvalidValue


class MessagePackDecoder:
    """Extension types that MessagePack does not define are shown as their code and their bytes."""

    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(ext_hook=_extension)

    def decode(self, body: bytes) -> object:
        return self._decoder.decode(body)


def _extension(code: int, data: memoryview) -> object:
    return {"extension": code, "data": bytes(data)}


def make_decoder(argument: str) -> MessagePackDecoder:
    """``InvalidValue`` for an argument: MessagePack has no schema."""
    if argument:
        raise InvalidValue(f"The decoder msgpack takes no argument, not {argument!r}.")
    return MessagePackDecoder()
