"""A body decoded, as indented JSON, as text or in hexadecimal: for people, and only a part of a large one."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from commitlog_store.decoders.decoder_process import Decoded

SHOWN_BYTES = 64 << 10
DECODED = "decoded"
_LINE = 16
# Deep JSON grows by what indents it: what grows to more than so many characters is shown as text.
_MOST_INDENTED = 16 * SHOWN_BYTES


class ShownBody(NamedTuple):
    """``form`` is how it is shown, ``forms`` are those that it has, ``left`` the bytes that are not shown.

    ``problem`` says why it is not shown as its decoder gives it.
    """

    form: str
    forms: list[str]
    text: str
    left: int
    problem: str = ""


def shown_body(body: bytes, wanted: str = "", decoded: Decoded | None = None) -> ShownBody:
    """The body in the wanted form; without one, or if it has none such, in the first of decoded, JSON, text, hex."""
    if decoded is None:
        return _plain_body(body, wanted)
    if decoded.json is None:
        return _plain_body(body, wanted)._replace(problem=decoded.problem)
    if wanted not in ("", DECODED):
        plain = _plain_body(body, wanted)
        return plain._replace(forms=[DECODED, *plain.forms])
    forms = [DECODED, *_plain_body(body, "hex").forms]
    return ShownBody(DECODED, forms, _indented(decoded.json) or decoded.json, 0)


def _plain_body(body: bytes, wanted: str) -> ShownBody:
    part = body[:SHOWN_BYTES]
    text = _text_of(body)
    indented = _json_of(text) if text is not None and len(body) <= SHOWN_BYTES else None
    forms = [name for name, known in (("json", indented), ("text", text)) if known is not None] + ["hex"]
    form = wanted if wanted in forms or wanted == "text" else forms[0]
    if form == "json":
        return ShownBody(form, forms, indented or "", 0)
    if form == "text":
        return ShownBody(form, forms, part.decode(errors="backslashreplace"), len(body) - len(part))
    part = part[: SHOWN_BYTES // 4]
    return ShownBody("hex", forms, hex_lines(part), len(body) - len(part))


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _json_of(text: str) -> str | None:
    """Of an object or a list only: any number is JSON, too. Numbers and names given twice stay as they are."""
    return _indented(text) if text.lstrip().startswith(("{", "[")) else None


def _indented(text: str) -> str | None:
    try:
        indented = msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return indented if len(indented) <= _MOST_INDENTED else None


def hex_lines(part: bytes) -> str:
    """Lines of the place, sixteen bytes, and those that are plain ASCII."""
    lines = []
    for at in range(0, len(part), _LINE):
        piece = part[at : at + _LINE]
        plain = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<{3 * _LINE - 1}}  {plain}")
    return "\n".join(lines)
