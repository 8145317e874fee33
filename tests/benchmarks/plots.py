"""Draws ``docs/pictures`` from the tables of docs/benchmarks.md: ``make plots``. The page is the one place of a figure.

Each picture carries the figures that it shows as its description, so that a test can compare them with the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "benchmarks.md"
PICTURES = PROJECT / "docs" / "pictures"

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
# Of the plots: here, the other side, goals.
_COLORS = ("#1f6f8b", "#c9a227", "#7d8597")


@dataclass(frozen=True)
class Chart:
    """What a picture shows: for each series a number for each label. ``line`` is a value to compare with."""

    title: str
    unit: str
    labels: list[str]
    series: dict[str, list[float]]
    line: float | None = None


def table_of(page: str, heading: str, number: int = 0) -> list[list[str]]:
    """The cells of a table below a heading, its first row included. ``LookupError`` if the page has none."""
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", section[1], re.MULTILINE) if section else []
    if number >= len(tables):
        raise LookupError(f"docs/benchmarks.md has no table {number} below {heading!r}: name another one in plots.py")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables[number].splitlines()]
    return [rows[0], *rows[2:]]


def number_in(cell: str, place: int = 0) -> float:
    """The number at a place of a cell's numbers, as in ``1.311 M/s = 87 %``."""
    return float(_NUMBER.findall(cell)[place].replace(",", ""))


def row_of(table: list[list[str]], label: str) -> list[str]:
    """The row that begins with a label. ``LookupError`` unless exactly one does."""
    found = [row for row in table if row[0] == label]
    if len(found) != 1:
        raise LookupError(f"docs/benchmarks.md has {len(found)} rows {label!r}: change the chart in plots.py, too")
    return found[0]


def kafka(page: str) -> Chart:
    """Rows a second of the store and of Kafka, through Spark."""
    table = table_of(page, "Large batches beside Kafka")[1:]
    labels = [row[0] for row in table]
    series = {"store": [number_in(row[1]) for row in table], "Kafka": [number_in(row[2]) for row in table]}
    return Chart("Spark reads and writes: the store, and Kafka", "thousand rows a second", labels, series)


def source(page: str) -> Chart:
    """The source's share of the fastest Python source that Spark allows."""
    table = table_of(page, "Source")[1:5]
    series = {"the source": [number_in(row[1], -1) for row in table], "goal": [number_in(row[2]) for row in table]}
    labels = [row[0].replace("`", "").replace("default columns to noop", "default columns") for row in table]
    return Chart("The Spark source beside the ceiling of a Python source", "% of the ceiling", labels, series, 100)


def triggers(page: str) -> Chart:
    """Duration of a trigger by the number of queues."""
    head, *rows = table_of(page, "Micro-batches", 1)
    return Chart(
        "Duration of a trigger, store to noop",
        "ms",
        [f"{name} queues" if name != "1" else "1 queue" for name in head[1:]],
        {row[0]: [number_in(cell) for cell in row[1:]] for row in rows},
    )


def clients(page: str) -> Chart:
    """What the server for RocketMQ's clients does of what a broker does."""
    table = table_of(page, "RocketMQ's own clients")[1:]
    rows = [
        row_of(table, name) for name in ("sends, one thread", "sends, eight threads", "batches of 100", "push consumer")
    ]
    series = {"commitlog serve": [number_in(row[3]) for row in rows]}
    return Chart(
        "RocketMQ's Java client: commitlog serve beside a broker", "times a broker", [row[0] for row in rows], series, 1
    )


CHARTS: dict[str, Callable[[str], Chart]] = {"kafka": kafka, "source": source, "triggers": triggers, "clients": clients}


def shown_by(picture: Path) -> Any:
    """The figures that a picture carries."""
    (found,) = ET.parse(picture).iter(_DESCRIPTION)
    return json.loads(found.text or "")


def described(chart: Chart) -> Any:
    """A chart's figures as a picture carries them."""
    return json.loads(json.dumps(asdict(chart)))


def draw(chart: Chart, path: Path) -> None:
    """Draw horizontal bars, one group a label, as SVG that is the same for the same figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    bars = len(chart.series)
    with mpl.rc_context({"svg.hashsalt": "commitlog", "font.family": "DejaVu Sans", "font.size": 10}):
        figure = Figure(figsize=(8, 1.3 + 0.34 * bars * len(chart.labels)), layout="constrained")
        axes = figure.add_subplot()
        for place, (name, values) in enumerate(chart.series.items()):
            at = [label - 0.4 + (place + 0.5) * 0.8 / bars for label in range(len(values))]
            drawn = axes.barh(at, values, height=0.74 / bars, color=_COLORS[place], label=name)
            axes.bar_label(drawn, labels=[f"{value:,g}" for value in values], padding=3)
        if chart.line is not None:
            axes.axvline(chart.line, color=_COLORS[2], linestyle="--", linewidth=1)
        axes.set_yticks(range(len(chart.labels)), chart.labels)
        axes.invert_yaxis()
        axes.set_xlabel(chart.unit)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle(chart.title, x=0.01, ha="left")
        if bars > 1:
            figure.legend(frameon=False, loc="outside lower right", ncols=bars)
        figure.savefig(path, metadata={"Description": json.dumps(described(chart)), "Date": None})


def main() -> int:
    """Draw all charts from the page as it is, and return an exit code."""
    page = PAGE.read_text(encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, chart_of in CHARTS.items():
        draw(chart_of(page), PICTURES / f"{name}.svg")
        print(f"docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
