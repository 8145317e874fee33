"""Forms that browsers send: small ones, each field once."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request

_LARGEST = 4096


async def read_form(request: Request, *, largest: int = _LARGEST, most_fields: int = 10) -> dict[str, str]:
    """The fields of a form. ``HTTPException`` 400, 413 and 415."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415, "A form is sent as application/x-www-form-urlencoded.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > largest:
            raise HTTPException(413, f"A form has at most {largest} bytes.")
    try:
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=most_fields)
    except ValueError:
        raise HTTPException(400, f"A form has at most {most_fields} fields.") from None
    return {name: values[0] for name, values in fields.items()}
