"""The store's settings, with RocketMQ's names in snake case and RocketMQ's defaults, and a broker's file of them.

Source: RocketMQ ``store/config/MessageStoreConfig.java``, ``store/config/FlushDiskType.java``; for a broker's file
``java.util.Properties.load``, RocketMQ ``broker/BrokerStartup.java``, ``common/MixAll.java`` (``properties2Object``),
``store/DefaultMessageStore.java``.
"""

from __future__ import annotations

import enum
import ipaddress
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta

from commitlog_store.delay_level import parse_delay_levels
from commitlog_store.errors import InvalidValue, ReadFailed
from commitlog_store.java_numbers import MAX_INT, MAX_LONG
from commitlog_store.paths import MOST_QUEUES, checked_commit_log
from commitlog_store.sizes import parse_size

if TYPE_CHECKING:
    import os


_LOG = logging.getLogger(__name__)

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_UNIT_SIZE = 20
_LARGEST_PORT = 65_535
# Where slaves are served under SYNC_MASTER: RocketMQ's port, on this machine only.
_HA_ADDRESS = "127.0.0.1:10912"
# Bytes of an index file's header, of a slot, and of a place for an entry.
_INDEX_HEADER_SIZE, _INDEX_SLOT_SIZE, _INDEX_ENTRY_SIZE = 40, 4, 20
# A record without its body fits 128 KiB: header, a topic and properties of at most 32,767 bytes each.
LARGEST_BODY = MAX_INT - 128 * _KIB

# The types of settings with their ranges, for the fields below. A size may be given as a text with a suffix.
NotNegative = Annotated[int, Meta(ge=0, le=MAX_INT)]
Positive = Annotated[int, Meta(ge=1, le=MAX_INT)]
Share = Annotated[float, Meta(gt=0, le=1)]
_BYTES = Meta(extra={"unit": "bytes"})
Size = Annotated[int, _BYTES]


class FlushDiskType(enum.Enum):
    """When a put is acknowledged: after its bytes were synced, or before."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(enum.Enum):
    """The store's part in replication: puts do not wait for slaves, or wait for them, or are rejected (a slave).

    ::

        config = MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER, ha_listen_address="127.0.0.1:0")
        with MessageStore.open("/data/store", config) as store:
            print(store.put_message(Message(topic="orders", body=b"x")).status)
    """

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, kw_only=True)
class MessageStoreConfig:
    """Settings of a ``MessageStore``. Intervals and timeouts are milliseconds, sizes are bytes, pages are 4 KiB.

    Numbers are at most 2**31 - 1, as in RocketMQ, but for ``retention_bytes``; ``InvalidValue`` names the setting, its
    value and its range, in its text and as ``settings`` and ``expected``.

    File sizes matter for a new store only: an existing one keeps the sizes of its files. ``embedded`` has settings for
    a store within a program.

    Texts are taken as a configuration file has them: the names of ``FlushDiskType``, and sizes such as ``"64m"`` or
    ``"1g"`` (k, m, g and t are powers of 1024). For type checkers, give such texts to ``from_mapping``.

    ::

        MessageStoreConfig(flush_disk_type=FlushDiskType.ASYNC_FLUSH, mapped_file_size_commit_log=64 << 20)
        MessageStoreConfig.from_mapping({"flush_disk_type": "SYNC_FLUSH", "mapped_file_size_commit_log": "64m"})
    """

    store_path_commit_log: str | None = None
    """The directory of the log files, on another disk say. None: ``commitlog`` in the store's directory."""
    mapped_file_size_commit_log: Annotated[Size, Meta(ge=4 * _KIB, le=MAX_INT)] = _GIB
    """Size of a CommitLog file."""
    mapped_file_size_consume_queue: Annotated[Size, Meta(ge=1, le=MAX_INT // _UNIT_SIZE * _UNIT_SIZE)] = (
        300_000 * _UNIT_SIZE
    )
    """Size of a consume-queue file: rounded up to a multiple of 20, as brokers do."""
    message_index_enable: bool = True
    """Whether keys are indexed."""
    max_hash_slot_num: Positive = 5_000_000
    """Slots of a new index file, at least 1. With its entries it has at most 2**31 - 1 bytes."""
    max_index_num: Annotated[int, Meta(ge=2, le=MAX_INT)] = 20_000_000
    """Places for entries in a new index file, at least 2."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Whether a put waits for the device."""
    sync_flush_timeout: Positive = 5_000
    """How long a put under SYNC_FLUSH waits before it gets FLUSH_DISK_TIMEOUT; at least 1."""
    flush_interval_commit_log: Positive = 500
    """The interval of the asynchronous flush."""
    flush_commit_log_least_pages: NotNegative = 4
    """With fewer dirty pages than this, the asynchronous flush waits for the thorough interval."""
    flush_commit_log_thorough_interval: NotNegative = 10_000
    """After this time all dirty pages are flushed."""

    transient_store_pool_enable: bool = False
    """Gather writes in locked buffers and commit them to the files later; with ASYNC_FLUSH only."""
    transient_store_pool_size: NotNegative = 5
    """How many buffers (of a CommitLog file's size each) the pool holds."""
    commit_interval_commit_log: Positive = 200
    """How often the transient pool is committed."""
    commit_commit_log_least_pages: NotNegative = 4
    """With fewer pages than this, the commit waits for the thorough interval."""
    commit_commit_log_thorough_interval: NotNegative = 200
    """After this time all gathered pages are committed."""

    flush_interval_consume_queue: Positive = 1_000
    """How often consume queues are flushed, and the checkpoint with them."""
    flush_consume_queue_least_pages: NotNegative = 2
    """With fewer dirty pages than this, a queue waits for the thorough interval."""
    flush_consume_queue_thorough_interval: NotNegative = 60_000
    """After this time every queue, the index and the checkpoint are flushed."""

    flush_consumer_offset_interval: Positive = 5_000
    """How often the positions of consumer groups are written; a commit may ask for it at once."""

    max_message_size: Annotated[Size, Meta(ge=1, le=LARGEST_BODY)] = 4 * _MIB
    """Largest body."""
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delays of the levels 1, 2, ...: a number and s, m, h or d each, at most 36500d."""
    schedule_enable: bool | None = None
    """Whether the owner delivers delayed messages; None: unless the store is a broker's (docs/delayed-messages.md)."""
    flush_delay_offset_interval: NotNegative = 10_000
    """How often config/delayOffset.json is written while delayed messages are delivered."""
    timer_max_delay_sec: Positive = 3 * 86_400
    """Seconds that a timer message may wait; one for a later time is refused (WHEEL_TIMER_MSG_ILLEGAL). More than 7
    days count as 7."""
    mapped_file_size_timer_log: Annotated[Size, Meta(ge=1_024, le=1 << 30)] = 100 * _MIB
    """Size of a file of the timer log; files that exist keep theirs."""
    timer_flush_interval_ms: Positive = 1_000
    """How often the timer log is synced and config/timercheck written, while either lacks anything."""
    properties_trailing_separator: bool = True
    """Whether the last property is followed by a separator, as RocketMQ up to 4.9.1 and from 5.0 on writes it."""

    put_message_timeout: Positive = 5_000
    """How long a put that needs a new file waits for it before it gets CREATE_MAPEDFILE_FAILED; at least 1."""
    os_page_cache_busy_time_out: NotNegative = 1_000
    """A put is refused while another has held the put lock for longer than this."""
    warm_mapped_file_enable: bool = False
    """Write every page of a new CommitLog file, so that it takes all of its space at once, advise the kernel to keep
    it, and lock it into memory."""

    default_topic_queue_nums: Annotated[int, Meta(ge=1, le=MOST_QUEUES)] = 4
    """The number of queues to spread messages without a queue over, for a new topic; at most 65,536."""
    broker_ip: str = ""
    """Store host of the messages, part of their message ids: IPv4, or IPv6 without a zone (``%eth0``). Empty: the
    address of this machine, as brokers find theirs."""
    listen_port: Annotated[int, Meta(ge=0, le=_LARGEST_PORT)] = 10_911
    """Port of the store host."""

    transaction_time_out: NotNegative = 6_000
    """A half message is not checked before it is this old, unless it has a time of its own."""
    transaction_check_max: NotNegative = 15
    """A half message that was checked so many times in vain is given up."""
    transaction_check_interval: Positive = 60_000
    """How often ``half_messages.start_checks`` asks for the outcome of pending half messages (RocketMQ 5: 30,000)."""

    disk_space_warning_level_ratio: Share = 0.90
    """Puts are refused when a larger share of the disk is used; 1.0 never refuses them."""

    retention_enable: bool = False
    """Delete CommitLog files by age and by how full the disk is. Without it, nothing is deleted for these reasons."""
    retention_bytes: Annotated[Size, Meta(ge=0, le=MAX_LONG)] = 0
    """The most bytes that the CommitLog keeps, whatever their age; 0 for no such limit. (This package's own.)"""
    retention_archive: str = ""
    """The URL of an archive (``s3://bucket/prefix``): files stay until its manifest has them. Empty: nothing waits.

    (This package's own, as is the next one: docs/retention.md.)"""
    retention_archive_hours: NotNegative = 168
    """Files that are older go though the archive does not have them; 0: never, by age."""
    file_reserved_time: NotNegative = 72
    """With retention_enable: hours after which a file goes, counted from its newest message."""
    delete_when: str = "04"
    """Hours of the day (local time, with semicolons between) in which old files go, on a full disk at any."""
    disk_max_used_space_ratio: Annotated[int, Meta(ge=1, le=100)] = 75
    """Percent of the disk: when more is used, old files go at any hour."""
    disk_space_clean_forcibly_ratio: Share = 0.85
    """When a larger share of the disk is used, files go whatever their age, if clean_file_forcibly_enable allows it."""
    clean_file_forcibly_enable: bool = True
    """Whether a nearly full disk may delete files that are younger than file_reserved_time."""
    clean_resource_interval: Positive = 10_000
    """How often to look for files to delete."""
    delete_commit_log_files_interval: NotNegative = 100
    """The pause between two CommitLog files."""
    delete_consume_queue_files_interval: NotNegative = 100
    """The pause after each queue that lost files."""
    redelete_hanged_file_interval: NotNegative = 120_000
    """How long to wait after a file that could not be deleted."""
    delete_file_batch_max: Positive = 10
    """The most CommitLog files that go in one round; at least 1."""

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    """Whether a put waits for slaves (SYNC_MASTER), or is rejected (SLAVE)."""
    ha_listen_address: str = ""
    """HOST:PORT on which slaves are served; empty: none with ASYNC_MASTER, 127.0.0.1:10912 with SYNC_MASTER.

    HOST is an IP address or localhost; port 0 takes a free one. (RocketMQ has haListenPort.)"""
    ha_allow: str = ""
    """The addresses that may connect as slaves: IP addresses and networks such as 10.0.0.0/8, with commas between.

    Needed where ha_listen_address is not a loopback address. (This package's own.)"""
    in_sync_replicas: Annotated[int, Meta(ge=1, le=10)] = 2
    """With SYNC_MASTER: the number of copies, the master's included, that have a message when its put returns; 1 to 10.

    (RocketMQ 4 always waits for one slave, as 2 does here; 5 has 1 by default, and does not wait.)"""
    slave_timeout_ms: Positive = 3_000
    """With SYNC_MASTER: how long a put waits for slaves before it gets FLUSH_SLAVE_TIMEOUT; at least 1."""
    ha_slave_fallbehind_max: Annotated[Size, Meta(ge=0, le=MAX_INT)] = 256 * _MIB
    """With SYNC_MASTER: a slave with more bytes missing than this does not count: SLAVE_NOT_AVAILABLE."""
    ha_send_heartbeat_interval: Positive = 5_000
    """After this time without data, a transfer without bytes of the log is sent to a slave; at least 1."""
    ha_housekeeping_interval: Positive = 20_000
    """A connection on which nothing was received for this time is closed; at least 1."""
    ha_transfer_batch_size: Annotated[Size, Meta(ge=_KIB, le=16 * _MIB)] = 32 * _KIB
    """The most bytes of the log in a transfer; 1 KiB to 16 MiB."""
    ha_token_file: str = ""
    """A file with the token that master and slave share; RocketMQ's slaves have none. (These four are this package's
    own: docs/replication.md.)"""
    ha_tls_certificate: str = ""
    """The master's certificate (PEM, with the chain): slaves connect with TLS."""
    ha_tls_key: str = ""
    """Its private key (PEM)."""
    ha_tls_ca: str = ""
    """The certificates (PEM) that a slave trusts: it connects with TLS."""

    def __post_init__(self) -> None:
        if self.store_path_commit_log is not None:
            object.__setattr__(self, "store_path_commit_log", checked_commit_log(self.store_path_commit_log))
        for setting, annotated in _types().items():
            object.__setattr__(self, setting, _checked(setting, getattr(self, setting), annotated))
        self._require_index_fits()
        units = -(-self.mapped_file_size_consume_queue // _UNIT_SIZE)  # getMappedFileSizeConsumeQueue
        object.__setattr__(self, "mapped_file_size_consume_queue", units * _UNIT_SIZE)
        try:
            if "%" in self.broker_ip:  # a zone, which no message id has room for
                raise ValueError(self.broker_ip)
            if self.broker_ip:
                ipaddress.ip_address(self.broker_ip)
        except ValueError as error:
            raise _bad_setting("broker_ip", "an IPv4 or IPv6 address", repr(self.broker_ip)) from error
        if self.transient_store_pool_enable and self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            raise InvalidValue(
                "transient_store_pool_enable works with ASYNC_FLUSH only.",
                settings=("transient_store_pool_enable", "flush_disk_type"),
                expected="ASYNC_FLUSH with the pool",
            )
        self._require_allowed_slaves()
        parse_hours(self.delete_when)
        parse_delay_levels(self.message_delay_level)

    def _require_allowed_slaves(self) -> None:
        """RocketMQ's slaves have neither token nor TLS: beyond this machine, only named addresses may connect."""
        address = self.ha_address
        if address is not None and not self.ha_allowed and not ipaddress.ip_address(address[0]).is_loopback:
            raise InvalidValue(
                f"ha_listen_address {self.ha_listen_address!r} is not a loopback address: name the addresses that may "
                "connect as slaves in ha_allow, such as 10.0.0.7 or 10.0.0.0/24.",
                settings=("ha_listen_address", "ha_allow"),
                expected="a loopback address, or addresses in ha_allow",
            )

    @property
    def store_host(self) -> str:
        """IP:PORT that new messages hold as their store host, and as their born host."""
        from commitlog_store.files import local_address  # files/ itself imports the leaves

        return f"{self.broker_ip or local_address.local_address()}:{self.listen_port}"

    @property
    def ha_address(self) -> tuple[str, int] | None:
        """Host and port on which slaves are served; None without."""
        text = self.ha_listen_address or (_HA_ADDRESS if self.broker_role is BrokerRole.SYNC_MASTER else "")
        return _parse_address("ha_listen_address", text) if text else None

    @property
    def ha_allowed(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of ha_allow."""
        try:
            return tuple(ipaddress.ip_network(one.strip()) for one in self.ha_allow.split(",") if one.strip())
        except ValueError as error:
            expected = "IP addresses and networks such as 10.0.0.0/8, with commas between"
            raise _bad_setting("ha_allow", expected, repr(self.ha_allow[:100])) from error

    @property
    def retention(self) -> bool:
        """Whether an open store deletes old files by itself."""
        return self.retention_enable or self.retention_bytes > 0

    def _require_index_fits(self) -> None:
        slots, entries = self.max_hash_slot_num, self.max_index_num
        size = _INDEX_HEADER_SIZE + slots * _INDEX_SLOT_SIZE + entries * _INDEX_ENTRY_SIZE
        if size > MAX_INT:
            expected = f"an index file of at most {MAX_INT} bytes"
            raise InvalidValue(
                f"max_hash_slot_num and max_index_num make {expected}, not {size} as {slots} and {entries} do.",
                settings=("max_hash_slot_num", "max_index_num"),
                expected=expected,
            )

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of each level, from level 1 on, in milliseconds."""
        return parse_delay_levels(self.message_delay_level)

    @classmethod
    def embedded(cls, **settings: object) -> MessageStoreConfig:
        """Settings for a store within a program: small files, and every put is on the device when it returns.

        Messages are kept for 72 hours (``file_reserved_time``), for less on a disk that fills up: old files go by
        themselves (``retention_enable``). ``settings`` replace those of this choice, or add others::

            MessageStore.open("/data/store", MessageStoreConfig.embedded(mapped_file_size_commit_log="256m"))
        """
        return cls.from_mapping(_EMBEDDED | settings)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object]) -> MessageStoreConfig:
        """A configuration from names and values; an unknown name raises ``InvalidValue`` with the nearest known one."""
        if not isinstance(settings, Mapping):
            raise InvalidValue(f"Settings are a mapping of names to values, not {settings!r}.")
        known = [setting.name for setting in fields(cls)]
        for name in settings:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else "help(MessageStoreConfig) has all names."
                raise InvalidValue(f"Unknown setting {name!r}. {hint}")
        return cls(**settings)  # type: ignore[arg-type]

    @classmethod
    def from_properties(cls, source: str | os.PathLike[str]) -> MessageStoreConfig:
        """The settings of a broker's configuration file: of its path, or of its text.

        A text has a line end or an equals sign, which a path as ``str`` must not have. The names are RocketMQ's, in
        camel case; percentages become shares where a setting here is one. Keys that only a broker uses are logged, and
        listed by ``BrokerProperties``, which also has ``storePathRootDir``. ``InvalidValue`` names file, line, key,
        value and what is expected; ``ReadFailed``.

        ::

            MessageStoreConfig.from_properties("flushDiskType=SYNC_FLUSH")
        """
        if isinstance(source, str) and ("=" in source or "\n" in source):
            return BrokerProperties.parse(source).config
        return BrokerProperties.read(source).config


def _parse_address(setting: str, text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _LARGEST_PORT:
            raise ValueError(port)
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError as error:
        expected = f"HOST:PORT with an IP address or localhost, and a port of 0 to {_LARGEST_PORT}"
        raise _bad_setting(setting, expected, repr(text[:100])) from error


def _bad_setting(setting: str, expected: str, found: object) -> InvalidValue:
    return InvalidValue(f"{setting} is {expected}, not {found}.", settings=(setting,), expected=expected)


_EMBEDDED: dict[str, object] = {
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    "mapped_file_size_commit_log": 64 * _MIB,
    "mapped_file_size_consume_queue": 20_000 * _UNIT_SIZE,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
    "retention_enable": True,
}


@cache
def _types() -> dict[str, Any]:
    """The type of each setting, with its range."""
    return get_type_hints(MessageStoreConfig, include_extras=True)


def _checked(setting: str, value: object, annotated: Any) -> object:
    """The value of the setting: of its type, also of the text of one, and within its range. ``InvalidValue``."""
    kind: Any = getattr(annotated, "__origin__", annotated)
    constraints: tuple[Meta, ...] = getattr(annotated, "__metadata__", ())
    if isinstance(value, str) and _BYTES in constraints:
        value = _parse_size(setting, value)
    elif isinstance(value, str) and isinstance(kind, enum.EnumMeta):
        value = _parse_enum(setting, value, kind)
    takes = int | float if kind is float else kind
    if not isinstance(value, takes) or (isinstance(value, bool) and kind in (int, float)):
        expected = "True, False or None" if kind == bool | None else f"of type {kind.__name__}"
        raise _bad_setting(setting, expected, repr(value))
    if constraints:
        try:
            msgspec.convert(kind(value), annotated)
        except msgspec.ValidationError:
            least, most = constraints[-1].ge, constraints[-1].le
            expected = f"above 0 and at most {most}" if least is None else f"{least} to {most}"
            raise _bad_setting(setting, expected, value) from None
    return value


def _parse_size(setting: str, text: str) -> int:
    size = parse_size(text)
    if size is None:
        raise _bad_setting(setting, "a number of bytes, or a size such as 64m or 1g", repr(text[:40]))
    return size


def _parse_enum(setting: str, text: str, kind: enum.EnumMeta) -> enum.Enum:
    try:
        found: enum.Enum = kind[text.strip().upper()]
    except KeyError:
        raise _bad_setting(setting, " or ".join(kind.__members__), repr(text[:40])) from None
    return found


def parse_hours(text: str) -> frozenset[int]:
    """Hours of the day such as ``"04;16"``. ``InvalidValue``."""
    hours = [part.strip() for part in text.split(";") if part.strip()]
    if not all(re.fullmatch(r"[0-9]{1,2}", hour) and int(hour) < 24 for hour in hours):
        raise _bad_setting("delete_when", "hours from 00 to 23 with semicolons between", repr(text[:40]))
    return frozenset(map(int, hours))


# Bytes of a file that is still read; brokers' files have a few thousand.
_LARGEST_PROPERTIES = 16 << 20
_STORE_PATH = "storePathRootDir"
_OTHER_NAMES = {
    "osPageCacheBusyTimeOutMills": "os_page_cache_busy_time_out",
    "brokerIP1": "broker_ip",
    "warmMapedFileEnable": "warm_mapped_file_enable",
    "slaveTimeout": "slave_timeout_ms",
    "haMaxGapNotInSync": "ha_slave_fallbehind_max",
}
# Percentages: the lowest and the highest that a broker obeys.
_PERCENT = {
    "disk_space_warning_level_ratio": (35, 90),
    "disk_space_clean_forcibly_ratio": (30, 85),
    "disk_max_used_space_ratio": (10, 95),
}
_HA_SETTING, _HA_PORT = "ha_listen_address", "haListenPort"
# A broker with it ends its log at the first record without the property __CRC32#, and this package writes none.
_CRC_OF_RECORDS = "forceVerifyPropCRC"
_LOOPBACK = "127.0.0.1"
_ALIKE = 0.9

_LINE_END = re.compile(r"\r\n|\r|\n")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_PORT = re.compile(r"[0-9]{1,5}")
_ADDRESS_PORT = re.compile(r":[0-9]*$")


class _Property(NamedTuple):
    key: str
    value: str
    line: int


@dataclass(frozen=True)
class BrokerProperties:
    """A broker's configuration file, such as ``broker.conf``, as settings of a store.

    It is a file of Java properties, whose keys are RocketMQ's names in camel case: a line has key and value, with
    ``=``, ``:`` or a blank between; it is a comment after ``#`` or ``!``; and a backslash at its end continues it.
    What a broker alone uses is kept by its key and changes nothing.

    Some settings have another name or unit here:

    ===============================  ====================================  =============================================
    in the file                      here                                  value
    ===============================  ====================================  =============================================
    ``osPageCacheBusyTimeOutMills``  ``os_page_cache_busy_time_out``       the same
    ``slaveTimeout``                 ``slave_timeout_ms``                  the same
    ``haListenPort``                 ``ha_listen_address``                 the port of 127.0.0.1, or of the address that
                                                                           ``haListenAddress`` names (with ``haAllow``)
    ``haMaxGapNotInSync``            ``ha_slave_fallbehind_max``           the same; so is ``haSlaveFallbehindMax``
    ``warmMapedFileEnable``          ``warm_mapped_file_enable``           the same
    ``brokerIP1``                    ``broker_ip``                         the same
    ``diskSpaceWarningLevelRatio``   ``disk_space_warning_level_ratio``    percent, here a share: 90 is 0.90; 35 to 90
    ``diskSpaceCleanForciblyRatio``  ``disk_space_clean_forcibly_ratio``   percent, here a share: 85 is 0.85; 30 to 85
    ``diskMaxUsedSpaceRatio``        ``disk_max_used_space_ratio``         percent, here too; 10 to 95
    ===============================  ====================================  =============================================

    ``mapedFileSizeCommitLog`` and other names that early versions of RocketMQ spelled with ``maped`` are not settings
    of a broker any more, nor here: a warning says so.

    A percentage beyond its range counts as the end of the range, as in a broker. All other numbers must be in theirs.

    ::

        found = BrokerProperties.parse("storePathRootDir=/data/store\\nbrokerName=broker-a")
        with MessageStore.open(found.store_path_root_dir, found.config):
            assert found.unused == {"brokerName": "broker-a"}
    """

    config: MessageStoreConfig = MessageStoreConfig()
    """The settings; those that are not in the file have this package's defaults."""
    store_path_root_dir: str | None = None
    """The store's directory, as the file names it (``storePathRootDir``)."""
    unused: Mapping[str, str] = field(default_factory=dict)
    """The keys that are not settings here, with their values."""
    given: frozenset[str] = frozenset()
    """The names of the settings that are in the file."""
    given_keys: tuple[str, ...] = ()
    """The keys of these settings, as the file has them."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> BrokerProperties:
        """The content of a file. ``InvalidValue`` names file, line, key, value and what is expected; ``ReadFailed``."""
        from commitlog_store.files import disk  # files/ itself imports the leaves

        place = str(path)
        try:
            data = disk.read_file(place, _LARGEST_PROPERTIES)
        except OSError as error:
            raise ReadFailed("read", path=place, cause=error) from error
        return cls.parse(data.decode("latin-1"), place)  # the encoding of Java properties

    @classmethod
    def parse(cls, text: str, place: str = "the properties") -> BrokerProperties:
        """The content of a text; ``place`` names it in errors."""
        settings = {setting.name: setting for setting in fields(MessageStoreConfig)}
        found: dict[str, _Property] = {}
        unused: dict[str, str] = {}
        for one in _properties(text, place):
            name = _setting_name(one.key)
            if one.key == _HA_PORT or name in settings:
                found[name] = one
            else:
                unused[one.key] = one.value
            if one.key == _CRC_OF_RECORDS and one.value.lower() == "true":
                expected = "false: when it opens a store, a broker with it drops the messages that this package wrote"
                raise _bad_value([one], place, (), expected)
        keys = tuple(one.key for one in found.values())
        port = found.pop(_setting_name(_HA_PORT), None)
        values = {name: _value(settings[name], one, place) for name, one in found.items()}
        if port is not None:
            values[_HA_SETTING] = _with_port(found.get(_HA_SETTING), port, place)
            found.setdefault(_HA_SETTING, port)
        try:
            config = MessageStoreConfig.from_mapping(values)
        except InvalidValue as error:
            at_fault = [found[name] for name in error.settings if name in found]
            if not at_fault:
                raise
            raise _bad_value(at_fault, place, error.settings, error.expected) from error
        _note_unused(unused, settings, place)
        return cls(config, unused.pop(_STORE_PATH, None), unused, frozenset(found), keys)


def _properties(text: str, place: str) -> Iterator[_Property]:
    """The properties of the text, as Java reads them; of a key that comes twice, the last one counts."""
    import javaproperties  # here, since few programs read such a file

    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                yield _Property(element.key, element.value.strip(), line)
            line += len(_LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError as error:
        expected = "4 hexadecimal digits after \\u"
        message = f"{place}, line {line}: expected {expected}, found {error.escape!r}."
        raise InvalidValue(message, expected=expected) from error


def _setting_name(key: str) -> str:
    """``flushDiskType`` is ``flush_disk_type``."""
    return _OTHER_NAMES.get(key) or re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()


def _key(setting: str) -> str:
    """``flush_disk_type`` is ``flushDiskType``."""
    for key, name in _OTHER_NAMES.items():
        if name == setting:
            return key
    first, *others = setting.split("_")
    return first + "".join(part.capitalize() for part in others)


def _value(setting: Field[Any], found: _Property, place: str) -> object:
    """The value of the setting's own type. ``InvalidValue``."""
    kind: type = type(setting.default)
    text = found.value
    if setting.name in _PERCENT:
        low, high = _PERCENT[setting.name]
        if not _INTEGER.fullmatch(text):
            raise _bad_value([found], place, (setting.name,), "a percentage, a whole number")
        percent = min(max(int(text), low), high)
        return percent / 100 if kind is float else percent
    if setting.name == "store_path_commit_log":
        return text or None  # an empty one counts as none given
    if kind is bool or setting.default is None:
        if text.lower() not in ("true", "false"):
            raise _bad_value([found], place, (setting.name,), "true or false")
        return text.lower() == "true"
    if kind is int:
        if not _INTEGER.fullmatch(text):
            raise _bad_value([found], place, (setting.name,), "a whole number")
        return int(text)
    if issubclass(kind, enum.Enum):
        names = [one.name for one in kind]
        if text not in names:
            raise _bad_value([found], place, (setting.name,), " or ".join(names))
        return kind[text]
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise _bad_value([found], place, (setting.name,), "a number") from None
    return text


def _with_port(address: _Property | None, port: _Property, place: str) -> str:
    """HOST:PORT of the host that ``address`` names, if it is there, and the port. ``InvalidValue``."""
    if not _PORT.fullmatch(port.value) or int(port.value) > _LARGEST_PORT:
        raise _bad_value([port], place, (_HA_SETTING,), f"0 to {_LARGEST_PORT}")
    if address is None:
        return f"{_LOOPBACK}:{port.value}"
    return f"{_ADDRESS_PORT.sub('', address.value)}:{port.value}"


def _bad_value(found: list[_Property], place: str, settings: tuple[str, ...], expected: str) -> InvalidValue:
    lines = " and ".join(f"line {one.line}: {one.key}={one.value}" for one in sorted(found, key=lambda one: one.line))
    return InvalidValue(f"{place}, {lines}; expected {expected}.", settings=settings, expected=expected)


def _note_unused(unused: Mapping[str, str], settings: Mapping[str, object], place: str) -> None:
    """Log the keys that are not used here; one that is nearly a setting's may be a slip."""
    keys = {_key(name): name for name in settings}
    for key in unused:
        if near := get_close_matches(key, keys, n=1, cutoff=_ALIKE):
            _LOG.warning("%s: %r is not a setting of a store. Did you mean %r?", place, key, near[0])
    others = [key for key in unused if key != _STORE_PATH]
    if others:
        _LOG.info("%s: not used by a store: %s.", place, ", ".join(others))
