"""Options of the sink: names, defaults, units and parsers. docs/sink.md explains each."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, NoReturn

from commitlog_store import BatchId, BodyCompression, BrokerRole, CompressionType, FlushDiskType, MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.paths import MOST_QUEUES, validate_new_topic
from commitlog_store.stager import no_producers_fault
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options import values
from pyspark_commitlog.options.kafka_options import WRITE_HINTS
from pyspark_commitlog.options.remote import CLIENT_OPTIONS, RemoteOptions, is_remote, parse_remote
from pyspark_commitlog.options.stores import parse_commit_log, parse_one_place


class Flush(enum.Enum):
    """What a committed batch has reached when the commit returns."""

    SYNC = "sync"
    ASYNC = "async"
    REPLICATED = "replicated"


_COMPRESSIONS = {
    "none": None,
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
_LONGEST_LOCK_TIMEOUT_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of one write. Sizes are bytes. ``WRITE_OPTIONS`` has the defaults."""

    path: str
    remote: RemoteOptions
    store_path_commit_log: str | None
    topic: str | None
    kafka_rows: bool
    queues: int
    flush: Flush
    ha_listen_address: str | None
    ha_allow: str | None
    ha_token_file: str | None
    ha_tls_certificate: str | None
    ha_tls_key: str | None
    replica_timeout_s: float
    lock_timeout_s: float
    disk_space_warning_level_ratio: float
    retention_hours: int | None
    retention_bytes: int | None
    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: float
    txn_app_id: str | None
    txn_version: int | None
    max_message_size: int
    body_compression: CompressionType | None
    compress_over: int
    mapped_file_size_commit_log: int
    mapped_file_size_consume_queue: int
    message_index_enable: bool
    max_hash_slot_num: int
    max_index_num: int
    # A streaming query's checkpoint location and name, as far as Spark reports them.
    checkpoint_location: str | None
    query_name: str | None

    @property
    def is_served(self) -> bool:
        """Whether a server owns the store, and ``path`` is its address."""
        return is_remote(self.path)

    @property
    def batch(self) -> BatchId | None:
        """The batch that ``txnAppId`` and ``txnVersion`` name; None without them."""
        if self.txn_app_id is None or self.txn_version is None:
            return None
        return BatchId(self.txn_app_id, self.txn_version)

    @property
    def compression(self) -> BodyCompression | None:
        """The compression of large bodies."""
        return BodyCompression(self.body_compression, self.compress_over) if self.body_compression else None

    @property
    def store_config(self) -> MessageStoreConfig:
        """The configuration of the store. ``InvalidValue``."""
        replication: dict[str, Any] = {}
        if self.flush is Flush.REPLICATED:
            replication = {name: getattr(self, name) or "" for name in _REPLICATION_SETTINGS}
            replication["broker_role"] = BrokerRole.SYNC_MASTER
            replication["slave_timeout_ms"] = max(int(self.replica_timeout_s * 1000), 1)
        return MessageStoreConfig(
            flush_disk_type=FlushDiskType.ASYNC_FLUSH if self.flush is Flush.ASYNC else FlushDiskType.SYNC_FLUSH,
            **replication,
            default_topic_queue_nums=self.queues,
            retention_enable=self.retention_hours is not None,
            file_reserved_time=self.retention_hours or MessageStoreConfig().file_reserved_time,
            retention_bytes=self.retention_bytes or 0,
            **{name: getattr(self, name) for name in _STORE_SETTINGS},
        )


def _parse_topic(option: str, value: str) -> str:
    try:
        validate_new_topic(value)
    except InvalidValue as error:
        raise OptionError(f"Option {option} cannot be a topic: {error}", option=option, value=value) from error
    if fault := no_producers_fault(value):
        raise OptionError(f"Option {option} cannot be a topic of messages: {fault}.", option=option, value=value)
    return value


def _parse_queues(option: str, value: str) -> int:
    number = values.parse_positive(option, value)
    if number > MOST_QUEUES:
        values.refuse(option, value, f"a number of queues from 1 to {MOST_QUEUES}")
    return number


def _number(is_right: Callable[[float], bool], expected: str) -> Callable[[str, str], float]:
    """The parser of a number with a fraction."""

    def parse(option: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not is_right(number):
            values.refuse(option, value, expected)
        return number

    return parse


_parse_seconds = _number(
    lambda seconds: 0 <= seconds <= _LONGEST_LOCK_TIMEOUT_S,
    f"a number of seconds from 0 to {_LONGEST_LOCK_TIMEOUT_S:.0f}, such as 30 or 0.5",
)
_parse_ratio = _number(lambda ratio: 0 < ratio <= 1, "a part of the disk, above 0 and at most 1, such as 0.95")


def _parse_app_id(option: str, value: str) -> str:
    if not value.strip():
        values.refuse(option, value, "a name that is not empty")
    try:
        return BatchId(value).app_id
    except InvalidValue as error:
        raise OptionError(f"Option {option}: {error}", option=option, value=value) from error


def _parse_version(option: str, value: str) -> int:
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= values.MAX_LONG):
        values.refuse(
            option, value, f"a whole number from 0 to {values.MAX_LONG}, one that goes up from write to write"
        )
    return int(text)


def _as_is(option: str, value: str) -> str:
    del option
    return value.strip()


def _parse_over(option: str, value: str) -> int:
    return 0 if value.strip() == "0" else values.parse_bytes(option, value)


class WriteOption(NamedTuple):
    """One option as users know it. ``default`` is a text as a user would give it, or None."""

    name: str
    field: str
    parse: Callable[[str, str], Any]
    default: str | None
    unit: str
    meaning: str


def _store_setting(name: str, field: str, parse: Callable[[str, str], Any], unit: str, meaning: str) -> WriteOption:
    """A setting of the store, whose default is the store's own."""
    return WriteOption(name, field, parse, str(getattr(MessageStoreConfig(), field)).lower(), unit, meaning)


# The only place of every option's default; a test compares the table in docs/sink.md with this.
WRITE_OPTIONS: tuple[WriteOption, ...] = (
    WriteOption("path", "path", parse_one_place, None, "",
                "the store's directory, created if it does not exist; or the address of a server that owns the store"),
    WriteOption("storePathCommitLog", "store_path_commit_log", parse_commit_log, None, "",
                "the directory of the log, if it is not in the store's"),
    WriteOption("topic", "topic", _parse_topic, None, "", "the topic of rows without one"),
    WriteOption("rowFormat", "kafka_rows", values.parse_row_format, "rocketmq", "",
                "whose columns rows have; or kafka"),
    WriteOption("queues", "queues", _parse_queues, "4", "queues", "number of queues of a new topic"),
    WriteOption("flush", "flush", values.choice({one.value: one for one in Flush}), "sync", "",
                "sync: committed means on the device; replicated: on a second one, too; async"),
    WriteOption("haListenAddress", "ha_listen_address", _as_is, None, "",
                "flush=replicated: where the replica connects"),
    WriteOption("haAllow", "ha_allow", _as_is, None, "", "flush=replicated: addresses that may connect"),
    WriteOption("haTokenFile", "ha_token_file", _as_is, None, "",
                "flush=replicated: the token shared with the replica"),
    WriteOption("haTlsCertificate", "ha_tls_certificate", _as_is, None, "", "flush=replicated: for TLS"),
    WriteOption("haTlsKey", "ha_tls_key", _as_is, None, "", "flush=replicated: the certificate's private key"),
    WriteOption("replicaTimeout", "replica_timeout_s", _parse_seconds, "30", "seconds",
                "flush=replicated: how long a commit waits for the replica"),
    WriteOption("lockTimeout", "lock_timeout_s", _parse_seconds, "30", "seconds",
                "how long a commit waits for another owner"),
    _store_setting("diskSpaceWarningLevelRatio", "disk_space_warning_level_ratio", _parse_ratio, "of the disk",
                   "no commit when more of the disk is used; 1: never refused for that"),
    WriteOption("retentionHours", "retention_hours", values.parse_positive, None, "hours",
                "older log files go after a commit"),
    WriteOption("retentionBytes", "retention_bytes", values.parse_bytes, None, "bytes",
                "the oldest log files beyond this go"),
    _store_setting("diskMaxUsedSpaceRatio", "disk_max_used_space_ratio", values.parse_positive, "percent",
                   "when more of the disk is used, old files go before a commit too"),
    _store_setting("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_ratio", _parse_ratio, "of the disk",
                   "with retentionHours: when more is used, younger files go too"),
    WriteOption("txnAppId", "txn_app_id", _parse_app_id, None, "", "batch writes: whose versions txnVersion counts"),
    WriteOption("txnVersion", "txn_version", _parse_version, None, "", "batch writes: written at most once"),
    _store_setting("maxMessageSize", "max_message_size", values.parse_bytes, "bytes", "the largest body"),
    WriteOption("bodyCompression", "body_compression", values.choice(_COMPRESSIONS), "none", "",
                ", ".join(_COMPRESSIONS)),
    WriteOption("compressOver", "compress_over", _parse_over, "4096", "bytes", "larger bodies are compressed"),
    _store_setting("mappedFileSizeCommitLog", "mapped_file_size_commit_log", values.parse_bytes, "bytes",
                   "new store: a log file"),
    _store_setting("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue", values.parse_bytes, "bytes",
                   "new store: a consume-queue file, rounded up to a multiple of 20"),
    _store_setting("messageIndexEnable", "message_index_enable", values.parse_boolean, "",
                   "whether keys and unique keys are indexed"),
    _store_setting("maxHashSlotNum", "max_hash_slot_num", values.parse_positive, "slots", "of a new index file"),
    _store_setting("maxIndexNum", "max_index_num", values.parse_positive, "entries", "room in a new index file"),
)  # fmt: skip
# The store's name of a setting, where the field has another.
_SETTING_OF = {"retention_hours": "file_reserved_time"}
_REPLICATION_SETTINGS = ("ha_listen_address", "ha_allow", "ha_token_file", "ha_tls_certificate", "ha_tls_key")
# Those that the store takes as they are.
_STORE_SETTINGS = {option.field for option in WRITE_OPTIONS} & {setting.name for setting in fields(MessageStoreConfig)}
_STORE_SETTINGS -= {"retention_bytes", *_REPLICATION_SETTINGS}

# Those that the owner of a store decides: a server has them in its configuration.
_OF_THE_OWNER = (
    {option.name for option in WRITE_OPTIONS if option.field in (*_STORE_SETTINGS, *_REPLICATION_SETTINGS)}
    | {"storePathCommitLog", "replicaTimeout", "lockTimeout", "retentionHours", "retentionBytes"}
) - {"maxMessageSize"}

_BY_LOWER_NAME = {option.name.lower(): option for option in WRITE_OPTIONS}
# Spark's own options, which it gives along with the user's.
_SPARKS = frozenset({"checkpointlocation", "queryname", "__paths__"})
_SPELLING = {lower: option.name for lower, option in _BY_LOWER_NAME.items()}
_SPELLING |= {name.lower(): name for name in CLIENT_OPTIONS}


def parse_batch_write_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of ``df.write``. ``OptionError``."""
    parsed = _parse(options)
    if (parsed.txn_app_id is None) != (parsed.txn_version is None):
        given, missing = ("txnAppId", "txnVersion") if parsed.txn_version is None else ("txnVersion", "txnAppId")
        raise OptionError(
            f"Option {given} is given without {missing}. Only both together identify a write, so that it is stored "
            "exactly once however often it is repeated.",
            option=missing,
        )
    return parsed


def parse_stream_write_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of ``df.writeStream``. ``OptionError``."""
    parsed = _parse(options)
    for name, value in (("txnAppId", parsed.txn_app_id), ("txnVersion", parsed.txn_version)):
        if value is not None:
            raise OptionError(
                f"Option {name} is for batch writes: a streaming query has its own id and numbers its batches. "
                "Leave it out, or give it to the batch write inside foreachBatch.",
                option=name,
                value=str(value),
            )
    return parsed


def _parse(options: Mapping[str, str]) -> SinkOptions:
    given = values.canonical(options, _SPELLING, _SPARKS, WRITE_HINTS, "The options of a write are")
    parsed_values: dict[str, Any] = {
        option.field: None if text is None else option.parse(option.name, text)
        for option in WRITE_OPTIONS
        for text in (given.get(option.name, option.default),)
    }
    if parsed_values["path"] is None:
        raise OptionError(
            'Option path is missing: name the store directory, as in .option("path", "/data/rocketmq/store").'
            f"{'' if given else ' ' + values.CATALOG_TABLES}",
            option="path",
        )
    sparks = {name.lower(): str(value) for name, value in options.items() if name.lower() in _SPARKS}
    if is_remote(parsed_values["path"]):
        _refuse_owners_options(given)
    parsed = SinkOptions(
        **parsed_values,
        remote=parse_remote(given, {None: parsed_values["path"]}),
        checkpoint_location=sparks.get("checkpointlocation"),
        query_name=sparks.get("queryname"),
    )
    try:
        _ = parsed.store_config
    except InvalidValue as error:
        _refuse_settings(error, given)
    return parsed


def _refuse_owners_options(given: Mapping[str, str]) -> None:
    """``OptionError`` for what a client of a server cannot decide."""
    replicated = given.get("flush", "").strip().lower() == Flush.REPLICATED.value
    for name in ["flush"] if replicated else sorted(_OF_THE_OWNER & given.keys()):
        shown = "flush=replicated" if replicated else name
        raise OptionError(
            f"Option {shown} is for the owner of a store, and with an address in path that is the server: give the "
            "setting to commitlog serve, in its --config. Leave the option out here.",
            option=name,
            value=given[name],
        )


def _refuse_settings(error: InvalidValue, given: Mapping[str, str]) -> NoReturn:
    """Raise the store's error about its settings with the names of the options that set them."""
    texts = {
        option.name: str(given.get(option.name, option.default))
        for option in WRITE_OPTIONS
        if _SETTING_OF.get(option.field, option.field) in error.settings
    }
    if not texts:
        raise error
    names, plural = " and ".join(texts), len(texts) > 1
    option = next((name for name in texts if name in given), next(iter(texts)))
    unit = "" if plural else f" {_BY_LOWER_NAME[option.lower()].unit}"
    raise OptionError(
        f"Option{'s' if plural else ''} {names} {'are' if plural else 'is'} {' and '.join(map(repr, texts.values()))}; "
        f"expected {error.expected}{unit}.",
        option=option,
        value=texts[option],
    ) from error
