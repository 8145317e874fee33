"""Templates: HTML from what was found, in which every text of a store is text.

Autoescaping is always on, and what could hide or turn round other text (control characters, marks of direction) is
shown as its escape, as on a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from commitlog_store.queries.texts import duration_text, printable_text
from commitlog_store.sizes import size_text


def number(value: int | float | None) -> str:
    """With commas between thousands; a dash where it is not known."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size(value: int | None) -> str:
    return "–" if value is None else size_text(value)


def duration(milliseconds: int | None) -> str:
    return "–" if milliseconds is None else duration_text(milliseconds)


def moment(milliseconds: int | None) -> str | Markup:
    """A time in UTC to the second, with milliseconds for programs; a number that no calendar has as it is."""
    if milliseconds is None:
        return "–"
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    exact = when.isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, when.strftime("%Y-%m-%d %H:%M:%S"))


def ago(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{duration_text(max(int(time.time() * 1000) - milliseconds, 0))} ago"


def path_part(text: str) -> str:
    return quote(str(text), safe="")


def with_query(path: str, given: Mapping[str, object], **changed: object) -> str:
    """A path with the parameters that are given, some changed; None and empty ones are left out."""
    merged = {**given, **changed}
    text = urlencode({name: value for name, value in merged.items() if value not in (None, "")})
    return f"{path}?{text}" if text else path


def _shown(value: Any) -> Any:
    """What an expression in a template gives: texts without what could hide others."""
    return printable_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _multiline(text: str) -> Markup:
    """A text of several lines, for ``<pre>``: each line as ``_shown``."""
    return Markup("\n").join(printable_text(line.replace("\t", "    ")) for line in text.split("\n"))


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("commitlog_store.serve.http.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": number, "size": size, "duration": duration, "moment": moment, "ago": ago, "path_part": path_part,
        "multiline": _multiline, "as_is": escape,
    }  # fmt: skip
    made.globals |= {"with_query": with_query}
    return made


_ENVIRONMENT = _environment()


# What the first visitors see. To compile one takes 2 to 16 ms of the processor.
FIRST = (
    *("layout.html", "macros.html", "overview.html", "parts/overview.html", "topics.html", "parts/topics.html"),
    *("groups.html", "parts/groups.html", "topic.html", "parts/topic.html", "messages.html", "message.html"),
)


def compile_template(template: str) -> None:
    """So that the first ``render`` of it need not."""
    _ENVIRONMENT.get_template(template)


def render(template: str, values: Mapping[str, Any]) -> str:
    return _ENVIRONMENT.get_template(template).render(values)
