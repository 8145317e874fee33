"""Decoded bodies in lines of JSON: ``decoded``, or ``notDecoded`` with the reason, after the other members."""

from __future__ import annotations

import json

import pyarrow as pa

from commitlog_store.decoders.topic_decoders import TopicDecoders


def with_decoded(lines: bytes, table: pa.Table, decoders: TopicDecoders, *, seconds: float = float("inf")) -> bytes:
    """The lines of a table with ``topic`` and ``body``, each with what its body decodes to, where it has a decoder.

    What is not decoded within so many seconds has a reason.
    """
    if not decoders:
        return lines
    messages = zip(table.column("topic").to_pylist(), table.column("body").to_pylist(), strict=True)
    found = decoders.decode_each(((topic, body or b"") for topic, body in messages), seconds=seconds)
    made = []
    for line, one in zip(lines.splitlines(), found, strict=True):
        if one is None:
            made.append(line + b"\n")
            continue
        name, value = ("notDecoded", json.dumps(one.problem)) if one.json is None else ("decoded", one.json)
        made.append(b'%s,"%s":%s}\n' % (line[:-1], name.encode(), value.encode()))
    return b"".join(made)
