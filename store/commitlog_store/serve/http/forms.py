"""Forms that browsers send: small ones, each field once."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request

from commitlog_store.queries.texts import printable_text

_LARGEST = 4096
_SECONDS = 20.0


async def read_form(
    request: Request, *, largest: int = _LARGEST, most_fields: int = 10, seconds: float = _SECONDS
) -> dict[str, str]:
    """The fields of a form, which is whole within ``seconds``. ``HTTPException`` 400, 408, 413 and 415."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415, "A form is sent as application/x-www-form-urlencoded.")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    raise HTTPException(413, f"A form has at most {largest} bytes.")
    except TimeoutError:
        raise HTTPException(408, f"The form was not whole within {seconds:g} s.") from None
    try:
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=most_fields)
    except ValueError:
        raise HTTPException(400, f"A form has at most {most_fields} fields.") from None
    for name, values in fields.items():
        if len(values) > 1:
            raise HTTPException(400, f"A form has each field once, and this one has {printable_text(name)!r} twice.")
    return {name: values[0] for name, values in fields.items()}
