"""The tables of options in docs/source.md and docs/sink.md say what the code says: names, defaults, units."""

from __future__ import annotations

from dataclasses import MISSING
from typing import NamedTuple

import pytest

from pyspark_commitlog.options.read import (
    OPTION_NAMES,
    SourceOptions,
    parse_batch_options,
    parse_options,
    parse_stream_options,
)
from pyspark_commitlog.options.remote import CLIENT_OPTIONS
from pyspark_commitlog.options.values import EARLIEST, LATEST
from pyspark_commitlog.options.write import WRITE_OPTIONS
from pyspark_commitlog.sink.columns import SINK_COLUMNS
from tests.support.local_spark import PROJECT


class Documented(NamedTuple):
    """One option as its row has it; without a default where the cell has none in the form of code."""

    default: str | None
    unit: str


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading of a page, without the table's own heading."""
    lines = (PROJECT / "docs" / page).read_text(encoding="utf-8").splitlines()
    rest = lines[lines.index(heading) + 1 :]
    begin = next(number for number, line in enumerate(rest) if line.startswith("|"))
    rest = rest[begin:]
    end = next(number for number, line in enumerate(rest) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rest[2:end]]


def code_of(cell: str) -> list[str]:
    return cell.split("`")[1::2]


def documented(page: str) -> dict[str, Documented]:
    """The options of a page, by name. A row may have several options, whose defaults and units then are as many."""
    found = {}
    for names, _, defaults, units, *_ in rows_of(page, "## Options"):
        options = code_of(names)
        for number, name in enumerate(options):
            codes, parts = code_of(defaults), units.split(", ")
            default = codes[number] if len(codes) == len(options) else None
            found[name] = Documented(default, parts[number] if len(parts) == len(options) else units)
    return found


def test_the_table_of_the_sink_is_its_list_of_options() -> None:
    found = documented("sink.md")
    assert found.pop("checkpointLocation") == Documented(None, ""), "Spark's own"
    assert [found.pop(name, None) for name in CLIENT_OPTIONS] == [Documented(None, "")] * len(CLIENT_OPTIONS)
    assert found == {option.name: Documented(option.default, option.unit) for option in WRITE_OPTIONS}


def test_the_table_of_the_source_is_its_list_of_options() -> None:
    found = documented("source.md")
    assert sorted(found) == sorted(OPTION_NAMES)
    required = {"path": "/store", "subscribe": "orders"}
    given = {name: one.default for name, one in found.items() if one.default is not None}
    ending = {"endingOffsets": given.pop("endingOffsets")}
    assert parse_options(required | given) == parse_options(required), "giving the defaults changes nothing"
    fields = SourceOptions.__dataclass_fields__.values()
    assert len(given) == len([field for field in fields if field.default not in (None, MISSING)]), "all are listed"
    assert parse_batch_options(required | ending).end_rule == parse_batch_options(required).end_rule


def test_the_tables_name_the_defaults_that_batches_and_streams_do_not_share() -> None:
    (row,) = [row for row in rows_of("source.md", "## Options") if row[0] == "`startingOffsets`"]
    assert row[2] == "batch `earliest`, stream `latest`"
    given = {"path": "/store", "subscribe": "orders"}
    assert parse_batch_options(given).start_rule.default == EARLIEST
    assert parse_stream_options(given).start_rule.default == LATEST


@pytest.mark.parametrize("page", ["source.md", "sink.md"])
def test_numbers_have_a_unit(page: str) -> None:
    for name, one in documented(page).items():
        if name.startswith("max") or name.endswith("Timestamp") or (one.default or "").isdigit():
            assert one.unit, name


def test_the_table_of_the_sinks_columns_has_all_of_them() -> None:
    assert [code_of(row[0])[0] for row in rows_of("sink.md", "## Columns")] == list(SINK_COLUMNS)
