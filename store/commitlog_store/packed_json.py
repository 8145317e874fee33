"""Packed JSON: a JSON value as one short string. The offsets of streams over many queues are (docs/source.md).

It is base64 of the JSON text, compressed with zlib. To read one by hand::

    python -c 'import base64, sys, zlib; print(zlib.decompress(base64.b64decode(sys.stdin.read())).decode())'
"""

from __future__ import annotations

import base64
import json
import zlib

import msgspec

# A higher level takes three times as long, for a tenth of the bytes.
_LEVEL = 1


def pack_json(value: object) -> str:
    """The string for a value that JSON can express."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(value), _LEVEL)).decode("ascii")


def unpack_json(packed: object) -> object:
    """The value of a string. ``ValueError`` for anything that ``pack_json`` did not make."""
    if not isinstance(packed, str):
        raise ValueError(f"expected a string, found {type(packed).__name__}")
    try:
        return json.loads(zlib.decompress(base64.b64decode(packed, validate=True)))
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from error
