"""Arguments and options that several commands have, and the groups of commands in the help."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from commitlog_store.cli.completion import (
    complete_columns,
    complete_group,
    complete_queue,
    complete_topic,
    complete_zone,
)
from commitlog_store.cli.times import TIME_HELP
from commitlog_store.cli.values import parse_commit_log, size_option

# The groups of commands in the help.
LOOK = "Look (read only)"
DUMP = "Raw contents of files (read only)"
WRITE = "Write"
REPAIR = "Repair"
TRANSACTIONS = "Transactions"
GROUPS = "Consumer groups"
TOPICS = "Topics"
CLEAN = "Delete"
MIRROR = "Mirror a live broker"
SERVE = "Serve a store to other hosts"
ARCHIVE = "Archive in object storage"

CONTEXT = {"help_option_names": ["-h", "--help"]}


class OutputFormat(str, enum.Enum):
    """The format of what is printed: a table or lines for people, JSON or CSV for programs."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class LineFormat(str, enum.Enum):
    """The format of a line: the text of a body, or a JSON object."""

    LINES = "lines"
    NDJSON = "ndjson"


def examples(*commands: str) -> str:
    """The end of a command's help."""
    return "Examples:\n" + "\n".join(f"  $ {command}" for command in commands)


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:  # noqa: A002 - typer's word
    """An option without a default: the name of its value in the help, and what it does; ``more`` is typer's."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def topic_option(help: str, *other_names: str, **more: Any) -> Any:  # noqa: A002
    """The option for a topic, or for several; ``more`` is typer's."""
    return typer.Option(
        "--topic", "-t", *other_names, metavar="TOPIC", help=help, autocompletion=complete_topic, **more
    )


def count_option(help: str, *, least: int = 0) -> Any:  # noqa: A002
    """The option for a number of messages or rows."""
    return typer.Option("--count", "-n", min=least, metavar="COUNT", help=help)


StorePath = Annotated[str, typer.Argument(metavar="PATH", help="The store directory (it contains 'commitlog').")]
CommitLogDir = Annotated[
    str | None,
    option(
        "DIR",
        "The directory of the log, if it is not in PATH: the broker's storePathCommitLog.",
        "--commit-log",
        parser=parse_commit_log,
    ),
]
ArchiveOption = Annotated[
    str | None,
    option(
        "URL",
        "The archive of the store, such as s3://BUCKET/PREFIX: what retention has deleted is read from there.",
        "--archive",
    ),
]
Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Topics, or shell patterns such as 'order*'.", autocompletion=complete_topic),
]
OptionalTopics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Topics or patterns; default: all.",
        autocompletion=complete_topic,
        show_default=False,
    ),
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.", autocompletion=complete_group)]
OptionalGroup = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP", help="A consumer group; default: all.", autocompletion=complete_group, show_default=False
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Also those that RocketMQ or the store uses itself.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as -o json: one object per line.")]
Output = Annotated[
    OutputFormat | None,
    typer.Option(
        "--output", "-o", metavar="table|json|csv", help="A table or lines for people (default), JSON, or CSV."
    ),
]


@dataclass(frozen=True, kw_only=True)
class OutputChoice:
    """The options ``-o`` and ``--json``, which mean the same."""

    output: Output = None
    as_json: AsJson = False

    @property
    def is_given(self) -> bool:
        return self.output is not None or self.as_json

    def form(self) -> OutputFormat:
        """The format that they name, by default a table. ``BadParameter`` when they differ."""
        if self.as_json and self.output not in (None, OutputFormat.JSON):
            raise typer.BadParameter("--json is the same as -o json; give one of them.", param_hint="--output")
        return OutputFormat.JSON if self.as_json else self.output or OutputFormat.TABLE


AS_TABLE = OutputChoice()

QueueOption = Annotated[
    int | None,
    typer.Option(
        "--queue",
        "-q",
        min=0,
        metavar="QUEUE",
        help="Only this queue; default: all.",
        autocompletion=complete_queue,
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help=f"Stored at or after this time: {TIME_HELP}.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help=f"Stored before this time: {TIME_HELP}.")]
EndpointOption = Annotated[
    str | None, option("URL", "Address of another server of the cloud's protocol: http://minio:9000.", "--endpoint")
]
ZoneOption = Annotated[
    str,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="Time zone: UTC, local, +09:00, Europe/Berlin, ...",
        autocompletion=complete_zone,
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAMES",
        help="Only these columns, with commas between.",
        autocompletion=complete_columns,
    ),
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with this tag, or 'A || B'; repeatable.")
]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", metavar="KEY", help="Only with this key or unique key; repeatable.")
]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", metavar="SQL92", help="Only if this condition on properties holds, as a broker has it."),
]
GrepOption = Annotated[str | None, typer.Option("--grep", metavar="REGEX", help="Only if the body matches.")]
DecodeOption = Annotated[
    list[str] | None,
    option(
        "TOPIC=KIND:ARG",
        "Decode bodies: orders=msgpack, 'pay*=avro:FILE|DIR', orders=protobuf:FILE:MESSAGE; repeatable.",
        "--decode",
    ),
]
FullOption = Annotated[bool, typer.Option("--full", help="Do not cut lines to the terminal's width.")]
SizeOption = Annotated[
    int | None, option("SIZE", "Size of a file, such as 4M or 1GiB; for a new store only.", parser=size_option)
]
CountOption = Annotated[int | None, option("COUNT", "Of index files created from now on.", min=1)]
BrokerConf = Annotated[str | None, option("FILE", "Settings of the store: a broker's broker.conf.", "--config")]
CreateStore = Annotated[bool, typer.Option("--create/--no-create", help="Create a store that does not exist.")]
LockTimeout = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for another owner.")]


@dataclass(frozen=True, kw_only=True)
class FileSizes:
    """The sizes of a new store's files: settings of ``MessageStoreConfig``, by its names."""

    mapped_file_size_commit_log: SizeOption = None
    mapped_file_size_consume_queue: SizeOption = None
    max_hash_slot_num: CountOption = None
    max_index_num: CountOption = None

    def given(self) -> dict[str, int]:
        """Those that are given."""
        return {name: size for name, size in asdict(self).items() if size is not None}


USUAL_SIZES = FileSizes()
