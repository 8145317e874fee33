"""The decoder ``avro``: bodies in Avro's binary encoding, by a schema of a file or of a directory of files.

===========================  ==========================================================================================
body                         schema
===========================  ==========================================================================================
``C3 01``, 8 bytes, data     the one with this fingerprint (CRC-64-AVRO, little endian): a single-object encoding
``00``, 4 bytes, data        ``ID.avsc`` of the directory; the bytes are the id, big endian, as registries have it
data alone                   that of the file, or the only one of the directory
===========================  ==========================================================================================

Source: the Avro specification, "Single-object encoding" and "Schema Fingerprints".
"""

from __future__ import annotations

import io
import os
from typing import Any

import fastavro
from fastavro.schema import fingerprint, load_schema, to_parsing_canonical_form

from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk

_SINGLE_OBJECT = b"\xc3\x01"
_REGISTRY = b"\x00"
_SUFFIX = ".avsc"


class AvroDecoder:
    """Schemas by their file's name without the suffix; a name that is a number is a registry's id."""

    def __init__(self, place: str, schemas: dict[str, Any], *, is_directory: bool) -> None:
        self._place = place
        self._schemas = schemas
        self._is_directory = is_directory
        self._by_fingerprint = {_fingerprint(schema): schema for schema in schemas.values()}

    def decode(self, body: bytes) -> object:
        schema, data = self._schema_of(body)
        stream = io.BytesIO(data)
        try:
            value: object = fastavro.schemaless_reader(stream, schema, None)
        except EOFError:
            raise ValueError("the body ends before what its schema wants: it has another one") from None
        if left := len(data) - stream.tell():
            raise ValueError(f"{left} bytes are left after what the schema describes: the body has another one")
        return value

    def _schema_of(self, body: bytes) -> tuple[Any, bytes]:
        if body[:2] == _SINGLE_OBJECT and body[2:10] in self._by_fingerprint:
            return self._by_fingerprint[body[2:10]], body[10:]
        if self._is_directory and body[:1] == _REGISTRY and len(body) >= 5:
            number = str(int.from_bytes(body[1:5], "big"))
            if number in self._schemas:
                return self._schemas[number], body[5:]
            if len(self._schemas) > 1:
                raise ValueError(f"the body names the schema {number}, and {self._place} has no {number}{_SUFFIX}")
        if len(self._schemas) == 1:
            return next(iter(self._schemas.values())), body
        raise ValueError(f"the body names no schema, and {self._place} has {len(self._schemas)}")


def _fingerprint(schema: Any) -> bytes:
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def make_decoder(argument: str) -> AvroDecoder:
    """Of a file with a schema, or of a directory with files ``*.avsc``. ``InvalidValue``."""
    if not argument:
        raise InvalidValue("The decoder avro wants a schema: avro:FILE.avsc, or avro:DIRECTORY.")
    path = disk.absolute_path(disk.with_home(argument))
    is_directory = disk.is_directory(path)
    if not is_directory and not disk.exists(path):
        raise InvalidValue(f"{path} does not exist: give a file with an Avro schema, or a directory of *{_SUFFIX}.")
    names = sorted(disk.list_names(path)) if is_directory else []
    files = [os.path.join(path, name) for name in names if name.endswith(_SUFFIX)] if is_directory else [path]
    if not files:
        raise InvalidValue(f"{path} has no file *{_SUFFIX}.")
    schemas = {os.path.basename(file).removesuffix(_SUFFIX): _load(file) for file in files}
    return AvroDecoder(path, schemas, is_directory=is_directory)


def _load(path: str) -> Any:
    """The schema of a file; names that it does not define are those of files beside it."""
    try:
        return load_schema(path)
    except Exception as error:  # a parser of JSON, and one of schemas, whose errors have no common base
        raise InvalidValue(f"{path} is no Avro schema: {type(error).__name__}: {error}") from error
