"""BodyDecoder: what decodes a message's body, and where decoders come from.

A package offers one as an entry point of the group ``commitlog.decoders``. Its name is the decoder's kind, and it is a
function of the argument that stands after the colon of ``--decode TOPIC=KIND:ARGUMENT``::

    [project.entry-points."commitlog.decoders"]
    orders = "my_package.orders:make_decoder"
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Protocol, cast

from commitlog_store.errors import InvalidValue

GROUP = "commitlog.decoders"
# Kinds of this package: module, function, and the extra that it needs.
_OWN = {
    "msgpack": ("commitlog_store.decoders.message_pack", ""),
    "avro": ("commitlog_store.decoders.avro", "avro"),
    "protobuf": ("commitlog_store.decoders.protobuf", "protobuf"),
}


class BodyDecoder(Protocol):
    """Decodes bodies, one after the other."""

    def decode(self, body: bytes) -> object:
        """The body's value: of dictionaries, lists, texts, numbers, bytes, times. Any exception says why there is none.

        It runs in a process of its own, with 2 s of processor time, 10 s, and 1 GiB of memory for a body.
        """


DecoderMaker = Callable[[str], BodyDecoder]
"""Makes a decoder of the argument that the user gave, which may be empty. Any exception says what is wrong with it."""


def decoder_maker(kind: str) -> DecoderMaker:
    """``InvalidValue`` for a kind that no package offers, and one whose packages are not installed."""
    module, extra = _OWN.get(kind, ("", ""))
    try:
        if module:
            return cast("DecoderMaker", importlib.import_module(module).make_decoder)
        found = list(importlib.metadata.entry_points(group=GROUP, name=kind))
        if not found:
            others = (one.name for one in importlib.metadata.entry_points(group=GROUP))
            known = ", ".join(sorted({*_OWN, *others}))
            raise InvalidValue(f"No package offers a decoder {kind!r}. Decoders are {known}.")
        return cast("DecoderMaker", found[0].load())
    except ImportError as error:
        if extra and isinstance(error, ModuleNotFoundError):
            raise InvalidValue(
                f"The decoder {kind} needs the extra {extra}, of which {error.name} is missing: "
                f"pip install 'pyspark-commitlog[{extra}]'"
            ) from error
        raise InvalidValue(f"The decoder {kind} cannot be imported: {error}.") from error
