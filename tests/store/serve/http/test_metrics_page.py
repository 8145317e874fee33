"""docs/metrics.md has every metric, as the table of the code has it."""

from __future__ import annotations

from commitlog_store.serve.http.metrics_table import METRICS
from tests.support.local_spark import PROJECT

PAGE = PROJECT / "docs" / "metrics.md"
_HEAD = ["| metric | kind | labels | of | meaning |", "|---|---|---|---|---|"]


def table() -> list[str]:
    """The lines of the page's table. After a change, put them there."""
    return _HEAD + [
        f"| `{one.name}` | {one.kind.value} | {', '.join(f'`{label}`' for label in one.labels)} "
        f"| {one.shown.value} | {one.text} |"
        for one in METRICS.values()
    ]


def test_the_page_has_the_table_of_the_code() -> None:
    lines = PAGE.read_text().splitlines()
    start = lines.index(_HEAD[0])
    assert lines[start : lines.index("", start)] == table()
