"""Options of the source: names, defaults, and valid combinations. docs/source.md explains each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from commitlog_store import MessageFilter, OnDamage, StoreReader
from commitlog_store.errors import StoreNotFound
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options import values
from pyspark_commitlog.options.kafka_options import READ_HINTS
from pyspark_commitlog.options.remote import (
    REMOTE_OPTIONS,
    RemoteOptions,
    is_address,
    is_archive,
    parse_remote,
    refuse_at_address,
)
from pyspark_commitlog.options.stores import (
    parse_archives,
    parse_by_store,
    parse_commit_logs,
    parse_skips,
    parse_store,
    parse_stores,
)
from pyspark_commitlog.options.subscription import Subscription
from pyspark_commitlog.options.values import EARLIEST, LATEST, OffsetRule

_logger = logging.getLogger(__name__)


_SEVERAL = " Several stores have a name each, as in broker-a=/data/a,broker-b=/data/b."


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one query. Sizes are bytes; ``starting`` and ``ending`` are None if the user did not set them.

    ``stores`` has the directories of named stores; then ``path`` is the text that names them. Without names it is
    empty. ``commit_logs`` has the directories of logs that are not in their stores, by name; the key None is that of
    a store without one. ``store`` is the name in the options ``of_store``.
    """

    path: str
    subscription: Subscription
    stores: Mapping[str, str] = field(default_factory=dict)
    commit_logs: Mapping[str | None, str] = field(default_factory=dict)
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    store: str | None = None
    skips_missing_stores: bool = False
    starting: OffsetRule | None = None
    ending: OffsetRule | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    max_bytes_per_partition: int = 256 << 20
    max_records_per_partition: int | None = None
    min_partitions: int | None = None
    fails_without_match: bool = False
    start_without_position: int = EARLIEST
    commit_group: str | None = None
    fail_on_data_loss: bool = True
    # None: as ``fails_on_missing_topic`` has it.
    fail_on_missing_topic: bool | None = None
    kafka_rows: bool = False
    include_headers: bool = False
    include_properties: bool = False
    include_metadata: bool = False
    verify_crc: bool = True
    skips_corrupt: bool = False
    from_log: bool = False
    tags: MessageFilter = field(default_factory=MessageFilter)
    filter: MessageFilter = field(default_factory=MessageFilter)
    keys: MessageFilter = field(default_factory=MessageFilter)

    def of_store(self, name: str) -> SourceOptions:
        """The options for one of the named stores, as if it were the only one; these for the one without a name."""
        if not name:
            return self
        return replace(
            self,
            path=self.stores[name],
            stores={},
            commit_logs={None: self.commit_logs[name]} if name in self.commit_logs else {},
            store=name,
            starting=self.starting and self.starting.of_store(name),
            ending=self.ending and self.ending.of_store(name),
        )

    def each_store(self) -> list[SourceOptions]:
        """The options for each store: of the named ones, or these."""
        return [self.of_store(name) for name in self.stores] or [self]

    @property
    def chosen(self) -> MessageFilter:
        """The messages that are read: all three options must agree."""
        return MessageFilter(tags=self.tags.tags, expression=self.filter.expression, keys=self.keys.keys)

    @property
    def start_rule(self) -> OffsetRule:
        """Start of a query without a checkpoint. Only the two ``parse_*_options`` know the default."""
        return self.starting or OffsetRule(default=EARLIEST)

    @property
    def on_damage(self) -> OnDamage:
        """How the store treats damage. A missing file is a loss, which failOnDataLoss is about."""
        return "skip-records" if self.skips_corrupt else "raise"

    def fails_on_missing_topic(self, *, ends: bool) -> bool:
        """Whether a named topic or queue that does not exist fails the query. By default where the query ``ends``, as a
        batch and AvailableNow do: another one may wait for a topic that comes later.
        """
        return ends if self.fail_on_missing_topic is None else self.fail_on_missing_topic

    def open_store(self) -> StoreReader:
        """The store, opened as the options say. The errors of ``StoreReader.open``."""
        try:
            return StoreReader.open(
                self.path,
                store_path_commit_log=self.commit_logs.get(None),
                from_log=self.from_log,
                on_damage=self.on_damage,
                **self.remote.of(self.path),
            )
        except StoreNotFound as error:
            raise StoreNotFound(
                f"{error} The option path names the directory that holds 'commitlog' and 'consumequeue'."
                f"{_SEVERAL if ',' in self.path and self.store is None else ''}",
                path=error.path,
            ) from None

    def warn_of_doubts(self) -> None:
        """Log what RocketMQ reads in another way than most readers do. Once for a query: options are parsed several
        times.
        """
        for option, given in (("tags", self.tags), ("filter", self.filter)):
            for doubt in given.doubts:
                _logger.warning("Option %s: %s", option, doubt)

    @property
    def end_rule(self) -> OffsetRule:
        """End of a batch."""
        return self.ending or OffsetRule(default=LATEST)


# Option, as documented -> field, and the parser of its text.
_PLAIN: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", values.parse_positive),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", values.parse_bytes),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", values.parse_positive),
    "maxTriggerDelay": ("max_trigger_delay_s", values.parse_duration),
    "maxRecordsPerPartition": ("max_records_per_partition", values.parse_positive),
    "maxBytesPerPartition": ("max_bytes_per_partition", values.parse_bytes),
    "minPartitions": ("min_partitions", values.parse_positive),
    "startingOffsetsByTimestampStrategy": ("fails_without_match", values.choice({"error": True, "latest": False})),
    "startingGroupStrategy": ("start_without_position", values.choice({"earliest": EARLIEST, "latest": LATEST})),
    "commitGroup": ("commit_group", values.parse_group),
    "failOnDataLoss": ("fail_on_data_loss", values.parse_boolean),
    "failOnMissingTopic": ("fail_on_missing_topic", values.parse_boolean),
    "rowFormat": ("kafka_rows", values.parse_row_format),
    "includeHeaders": ("include_headers", values.parse_boolean),
    "includeProperties": ("include_properties", values.parse_boolean),
    "includeMetadata": ("include_metadata", values.parse_boolean),
    "verifyCrc": ("verify_crc", values.parse_boolean),
    "corruptRecordMode": ("skips_corrupt", values.parse_fail_or_skip),
    "fromLog": ("from_log", values.parse_boolean),
    "onMissingStore": ("skips_missing_stores", values.parse_fail_or_skip),
    "tags": ("tags", values.parse_filter),
    "filter": ("filter", values.parse_filter),
    "keys": ("keys", values.parse_filter),
}
_STRATEGIES: dict[str, Callable[[str, str], Subscription]] = {
    "subscribe": values.parse_subscribe,
    "subscribePattern": values.parse_pattern,
    "assign": values.parse_assign,
}
_WAYS = ("Offsets", "Timestamp", "OffsetsByTimestamp")
_POSITIONS = tuple(f"{which}{way}" for way in _WAYS for which in ("starting", "ending"))
_STARTING_GROUP = "startingGroup"
# ``options.metadata`` parses it, and what goes with it.
_METADATA = "metadata"
_COMMIT_LOG = "storePathCommitLog"
_ARCHIVE = "archive"
OPTION_NAMES: tuple[str, ...] = (
    "path",
    _COMMIT_LOG,
    _ARCHIVE,
    *REMOTE_OPTIONS,
    *_PLAIN,
    *_STRATEGIES,
    *_POSITIONS,
    _STARTING_GROUP,
    _METADATA,
)

# Spark's own options, which it may give to a source along with the user's.
_SPARKS = frozenset({"__paths__", "checkpointlocation"})
_CANONICAL = {name.lower(): name for name in OPTION_NAMES}


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse and check the options, as far as is possible for batches and streams alike. ``OptionError``."""
    given = _canonical(options)
    fields: dict[str, Any] = {
        field: parse(name, given[name]) for name, (field, parse) in _PLAIN.items() if name in given
    }
    if "path" not in given:
        raise OptionError(
            'Option path is missing: name the store directory, as in .load("/data/rocketmq/store").'
            f"{'' if given else ' ' + values.CATALOG_TABLES}",
            option="path",
        )
    stores = parse_stores("path", given["path"])
    logs = parse_commit_logs(_COMMIT_LOG, given[_COMMIT_LOG], stores) if _COMMIT_LOG in given else {}
    path = given["path"] if stores else parse_store("path", given["path"])
    archives = parse_archives(_ARCHIVE, given[_ARCHIVE], path, stores) if _ARCHIVE in given else {}
    # Queues that JSON leaves out: reading starts at their first message and ends at their last, so that nothing is
    # skipped by oversight. Queues that appear later are treated the same.
    starting = _position(given, "starting", EARLIEST, stores)
    ending = _position(given, "ending", LATEST, stores)
    parsed = SourceOptions(
        path=path,
        stores=stores,
        commit_logs=logs,
        remote=parse_remote(given, {None: path} | dict(stores), archives),
        subscription=_strategy(given),
        starting=starting,
        ending=ending,
        **fields,
    )
    _check_stores(parsed, given)
    _check_served(parsed, given)
    for one in parsed.each_store():
        _check_named_queues(one, given)
    _check_limits(parsed, given)
    _check_columns(parsed, given)
    return parsed


def parse_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a batch read: from ``earliest`` to ``latest`` unless they say otherwise. ``OptionError``."""
    parsed = parse_options(options)
    given = _canonical(options)
    _check_batch(parsed, given)
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name in given:
            _logger.warning("Option %s has no effect on a batch read, which reads everything at once.", name)
    _warn_of_strategy(given)
    return parsed


def _warn_of_strategy(given: Mapping[str, str]) -> None:
    name = "startingOffsetsByTimestampStrategy"
    if name in given and given.keys().isdisjoint({"startingTimestamp", "startingOffsetsByTimestamp"}):
        _logger.warning("Option %s has no effect without startingTimestamp or startingOffsetsByTimestamp.", name)
    if "startingGroupStrategy" in given and _STARTING_GROUP not in given:
        _logger.warning("Option startingGroupStrategy has no effect without startingGroup.")


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming read: from ``latest`` unless they say otherwise. ``OptionError``."""
    _refuse_metadata(options)
    parsed = parse_options(options)
    given = _canonical(options)
    _check_stream(parsed, given)
    if "maxTriggerDelay" in given and parsed.min_offsets_per_trigger is None:
        _logger.warning("Option maxTriggerDelay has no effect without minOffsetsPerTrigger.")
    _warn_of_strategy(given)
    return parsed if parsed.starting is not None else replace(parsed, starting=OffsetRule(default=LATEST))


def _refuse_metadata(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name.lower() == _METADATA:
            raise OptionError(
                "Option metadata is for batch reads: it shows the store as it is at one moment.",
                option=_METADATA,
                value=str(value),
            )


def parse_options_of_any_read(options: Mapping[str, str]) -> SourceOptions:
    """The options when Spark asks for the columns, and does not say whether the read is a batch or a stream.

    ``OptionError`` for options that are right for neither.
    """
    parsed = parse_options(options)
    given = _canonical(options)
    try:
        _check_batch(parsed, given)
    except OptionError as of_batch:
        try:
            _check_stream(parsed, given)
        except OptionError as of_stream:
            raise OptionError(
                f"In a stream: {of_stream} In a batch: {of_batch}", option=of_stream.option, value=of_stream.value
            ) from None
    return parsed


def _check_batch(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    if parsed.commit_group:
        raise OptionError(
            "Option commitGroup is for streams: a batch read has no end that Spark reports.",
            option="commitGroup",
            value=given["commitGroup"],
        )
    for one in parsed.each_store():
        _check_ends_of_batch(one, given)


def _check_ends_of_batch(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    if parsed.starting is not None and LATEST in (parsed.starting.default, *parsed.starting.named.values()):
        values.refuse(
            "startingOffsets", given["startingOffsets"], "another start than latest (-1): a batch would read nothing"
        )
    if parsed.ending is not None and EARLIEST in (parsed.ending.default, *parsed.ending.named.values()):
        values.refuse(
            "endingOffsets", given["endingOffsets"], "another end than earliest (-2): a batch would read nothing"
        )


def _check_stream(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    for name in _POSITIONS:
        if name in given and name.startswith("ending"):
            raise OptionError(
                f"Option {name} is for batch reads: a stream has no end. To read all existing messages and stop, use "
                f".trigger(availableNow=True).",
                option=name,
                value=given[name],
            )
    if parsed.from_log:
        raise OptionError(
            "Option fromLog is for batch reads: it shows the log as it is at one moment.",
            option="fromLog",
            value=given["fromLog"],
        )


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their documented names. Spark gives the keys in lower case; unknown ones are refused."""
    if {key.lower() for key in options} >= values.OF_A_CATALOG:
        raise OptionError(
            "A table of a catalog needs its columns, as in CREATE TABLE name (body BINARY, ...) USING commitlog. "
            f"{values.CATALOG_TABLES}",
            option="location",
        )
    for key, value in options.items():
        if key.lower() == "paths":
            raise OptionError(
                f"Several paths were given, {value}; expected one store directory, or stores with names in one "
                f'text: .load("broker-a=/data/a,broker-b=/data/b").',
                option="path",
                value=str(value),
            )
    return values.canonical(options, _CANONICAL, _SPARKS, READ_HINTS, "The options are")


def _strategy(given: Mapping[str, str]) -> Subscription:
    named = [name for name in _STRATEGIES if name in given]
    if len(named) != 1:
        found = f"found {' and '.join(named)}" if named else "found none of them"
        raise OptionError(
            f"Exactly one of the options {', '.join(_STRATEGIES)} says which topics to read; {found}.",
            option=named[-1] if named else "subscribe",
        )
    return _STRATEGIES[named[0]](named[0], given[named[0]])


def _position(given: Mapping[str, str], which: str, default: int, stores: Mapping[str, str]) -> OffsetRule | None:
    found = [name for way in (*_WAYS, "Group") if (name := f"{which}{way}") in given]
    if not found:
        return None
    name, text = found[0], given[found[0]]
    if len(found) > 1:
        raise OptionError(
            f"Options {' and '.join(found)} exclude each other; found {'both' if len(found) == 2 else 'all of them'}.",
            option=found[-1],
            value=given[found[-1]],
        )
    if name == _STARTING_GROUP:
        return OffsetRule(default=default, group=values.parse_group(name, text))
    if stores and not name.endswith("Timestamp"):
        return parse_by_store(values.parse_offsets, name, text, default, stores)
    if name.endswith("OffsetsByTimestamp"):
        if stores:
            return parse_by_store(values.parse_times, name, text, default, stores)
        return values.parse_times(name, text, default)
    if name.endswith("Timestamp"):
        return OffsetRule(default=default, timestamp_ms=values.parse_timestamp(name, text))
    return values.parse_offsets(name, text, default)


def _check_stores(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    """Kafka's rows and a group's positions are of one store, and only a named store may be missing."""
    if parsed.stores and parsed.kafka_rows:
        raise OptionError(
            "Option rowFormat is kafka, whose rows have no place for the store: partition 0 of a topic would be a "
            "queue in each of them. Read the stores one by one, or leave rowFormat out.",
            option="rowFormat",
            value=given["rowFormat"],
        )
    if parsed.stores and parsed.commit_group:
        raise OptionError(
            "Option commitGroup is for one store: the positions of a group in several stores would not be of one "
            "moment. Read the stores one by one, or leave commitGroup out.",
            option="commitGroup",
            value=given["commitGroup"],
        )
    if "onMissingStore" in given:
        parse_skips("onMissingStore", given["onMissingStore"], parsed.stores)


def _check_served(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    """What needs the files of a store is not for one at an address, and an archive has no consumer groups."""
    if parsed.from_log and parsed.remote.archives:
        raise OptionError(
            "Option fromLog shows the log of a store alone, and archive adds what its retention has deleted: give one "
            "of them.",
            option="fromLog",
            value=given["fromLog"],
        )
    paths = [path for path in (parsed.path, *parsed.stores.values()) if is_address(path)]
    needs_files = {_COMMIT_LOG: parsed.commit_logs, "fromLog": parsed.from_log}
    for name, value in needs_files.items():
        if value:
            refuse_at_address(name, given[name], paths)
    if parsed.commit_group and any(map(is_archive, paths)):
        raise OptionError(
            "Option commitGroup is for a store that keeps positions, and path is the address of an archive: leave it "
            "out.",
            option="commitGroup",
            value=given["commitGroup"],
        )


def _check_named_queues(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    """The queues that JSON names are read, and no start lies after its end."""
    for which, rule in (("starting", parsed.starting), ("ending", parsed.ending)):
        if rule is None:
            continue
        for topic, queue_id in (*rule.named, *rule.times):
            if not parsed.subscription.covers(topic, queue_id):
                name = rule_option(which, rule)
                values.refuse(name, given[name], f"only queues that are read; queue {queue_id} of {topic!r} is not")
    start, end = parsed.starting, parsed.ending
    if start is None or end is None:
        return
    name = rule_option("starting", start)
    for topic, queue_id in start.named:
        first, stop = start.named[topic, queue_id], end.named.get((topic, queue_id), LATEST)
        if 0 <= stop < first:
            where = f"queue {queue_id} of {topic!r}"
            values.refuse(name, given[name], f"no start after the end; {where} would go from {first} to {stop}")
    for queue in {*start.times, *end.times} or {("", 0)}:
        begin, until = start.time_of(queue), end.time_of(queue)
        if begin is not None and until is not None and begin > until:
            where = f"queue {queue[1]} of {queue[0]!r}" if queue[0] else "a queue"
            values.refuse(name, given[name], f"no start after the end; {where} would go from {begin} to {until} ms")


def _check_columns(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    """``includeHeaders`` is for Kafka's rows, and the other two are for RocketMQ's."""
    of_kafka = "includeHeaders", parsed.include_headers, "RocketMQ's have includeProperties, or add rowFormat=kafka"
    of_rocketmq = [
        ("includeProperties", parsed.include_properties, "they have includeHeaders"),
        ("includeMetadata", parsed.include_metadata, "leave it out, or leave rowFormat out"),
    ]
    for name, value, way_out in of_rocketmq if parsed.kafka_rows else [of_kafka]:
        if value:
            raise OptionError(
                f"Option {name} is not for the rows of rowFormat={'kafka' if parsed.kafka_rows else 'rocketmq'}: "
                f"{way_out}.",
                option=name,
                value=given[name],
            )


def _check_limits(parsed: SourceOptions, given: Mapping[str, str]) -> None:
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        values.refuse("minOffsetsPerTrigger", given["minOffsetsPerTrigger"], f"at most maxOffsetsPerTrigger, {most}")


def rule_option(which: str, rule: OffsetRule) -> str:
    """The option that gave the ``starting`` or ``ending`` rule."""
    if rule.group:
        return _STARTING_GROUP
    if rule.times:
        return f"{which}OffsetsByTimestamp"
    return f"{which}Timestamp" if rule.timestamp_ms is not None else f"{which}Offsets"
