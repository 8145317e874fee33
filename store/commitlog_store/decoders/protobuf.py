"""The decoder ``protobuf``: bodies in Protobuf, by a message of a descriptor set.

``protoc --include_imports --descriptor_set_out=FILE *.proto`` makes the file; the argument is ``FILE:MESSAGE``. Values
are as Protobuf's JSON has them (64-bit numbers are texts, bytes are Base64), under the names of the fields.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, unknown_fields
from google.protobuf.message import DecodeError

from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk

_LARGEST_FILE = 64 << 20
# No field can have this name.
UNKNOWN = "(unknown fields)"


class ProtobufDecoder:
    """Numbers of fields that the message does not have are shown: many of them tell that it is another message."""

    def __init__(self, pool: Any, kind: Any) -> None:
        self._pool = pool
        self._kind = kind

    def decode(self, body: bytes) -> object:
        message = self._kind.FromString(body)
        value: dict[str, object] = json_format.MessageToDict(
            message, preserving_proto_field_name=True, descriptor_pool=self._pool
        )
        if unknown := sorted({field.field_number for field in unknown_fields.UnknownFieldSet(message)}):
            value[UNKNOWN] = unknown
        return value


def make_decoder(argument: str) -> ProtobufDecoder:
    """Of ``FILE:MESSAGE``. ``InvalidValue``."""
    path, separator, name = argument.rpartition(":")
    if not separator or not name:
        raise InvalidValue(
            "The decoder protobuf wants a descriptor set and a message: protobuf:FILE:MESSAGE, such as "
            f"protobuf:orders.desc:shop.Order, not {argument!r}."
        )
    path = disk.absolute_path(disk.with_home(path))
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(disk.read_file(path, _LARGEST_FILE)).file
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}.") from error
    except KeyError as error:
        raise InvalidValue(f"{path} has no message {name}, or lacks what it imports ({error.args[0]}).") from error
    except (DecodeError, TypeError) as error:
        raise InvalidValue(f"{path} is no descriptor set of protoc --descriptor_set_out: {error}.") from error
    return ProtobufDecoder(pool, kind)
