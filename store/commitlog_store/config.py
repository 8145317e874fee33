"""The store's settings, with RocketMQ's names in snake case and RocketMQ's defaults.

Source: RocketMQ ``store/config/MessageStoreConfig.java``, ``store/config/FlushDiskType.java``.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import MAX_INT, MAX_LONG
from commitlog_store.paths import MOST_QUEUES, checked_commit_log

if TYPE_CHECKING:
    import os

__all__ = [
    "LARGEST_BODY",
    "BrokerRole",
    "FlushDiskType",
    "MessageStoreConfig",
    "delay_level",
    "parse_delay_levels",
    "parse_hours",
    "shown_delay_levels",
]

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_UNIT_SIZE = 20
_LARGEST_PORT = 65_535
# Where slaves are served under SYNC_MASTER: RocketMQ's port, on this machine only.
_HA_ADDRESS = "127.0.0.1:10912"
# Bytes of an index file's header, of a slot, and of a place for an entry.
_INDEX_HEADER_SIZE, _INDEX_SLOT_SIZE, _INDEX_ENTRY_SIZE = 40, 4, 20
# A hundred years: every system can still show such a time of delivery.
_LONGEST_DELAY_MS = 36_500 * 86_400_000
# A record without its body fits 128 KiB: header, a topic and properties of at most 32,767 bytes each.
LARGEST_BODY = MAX_INT - 128 * _KIB


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
    mapped_file_size_commit_log: int = _GIB
    """Size of a CommitLog file."""
    mapped_file_size_consume_queue: int = 300_000 * _UNIT_SIZE
    """Size of a consume-queue file: rounded up to a multiple of 20, as brokers do."""
    message_index_enable: bool = True
    """Whether keys are indexed."""
    max_hash_slot_num: int = 5_000_000
    """Slots of a new index file, at least 1. With its entries it has at most 2**31 - 1 bytes."""
    max_index_num: int = 20_000_000
    """Places for entries in a new index file, at least 2."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Whether a put waits for the device."""
    sync_flush_timeout: int = 5_000
    """How long a put under SYNC_FLUSH waits before it gets FLUSH_DISK_TIMEOUT; at least 1."""
    flush_interval_commit_log: int = 500
    """The interval of the asynchronous flush."""
    flush_commit_log_least_pages: int = 4
    """With fewer dirty pages than this, the asynchronous flush waits for the thorough interval."""
    flush_commit_log_thorough_interval: int = 10_000
    """After this time all dirty pages are flushed."""

    transient_store_pool_enable: bool = False
    """Gather writes in locked buffers and commit them to the files later; with ASYNC_FLUSH only."""
    transient_store_pool_size: int = 5
    """How many buffers (of a CommitLog file's size each) the pool holds."""
    commit_interval_commit_log: int = 200
    """How often the transient pool is committed."""
    commit_commit_log_least_pages: int = 4
    """With fewer pages than this, the commit waits for the thorough interval."""
    commit_commit_log_thorough_interval: int = 200
    """After this time all gathered pages are committed."""

    flush_interval_consume_queue: int = 1_000
    """How often consume queues are flushed, and the checkpoint with them."""
    flush_consume_queue_least_pages: int = 2
    """With fewer dirty pages than this, a queue waits for the thorough interval."""
    flush_consume_queue_thorough_interval: int = 60_000
    """After this time every queue, the index and the checkpoint are flushed."""

    flush_consumer_offset_interval: int = 5_000
    """How often the positions of consumer groups are written; a commit may ask for it at once."""

    max_message_size: int = 4 * _MIB
    """Largest body."""
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delays of the levels 1, 2, ...: a number and s, m, h or d each, at most 36500d."""
    schedule_enable: bool | None = None
    """Whether the owner delivers delayed messages; None: unless the store is a broker's (docs/delayed-messages.md)."""
    flush_delay_offset_interval: int = 10_000
    """How often config/delayOffset.json is written while delayed messages are delivered."""
    properties_trailing_separator: bool = True
    """Whether the last property is followed by a separator, as RocketMQ up to 4.9.1 and from 5.0 on writes it."""

    put_message_timeout: int = 5_000
    """How long a put that needs a new file waits for it before it gets CREATE_MAPEDFILE_FAILED; at least 1."""
    os_page_cache_busy_time_out: int = 1_000
    """A put is refused while another has held the put lock for longer than this."""
    warm_mapped_file_enable: bool = False
    """Write every page of a new CommitLog file, so that it takes all of its space at once, advise the kernel to keep
    it, and lock it into memory."""

    default_topic_queue_nums: int = 4
    """The number of queues to spread messages without a queue over, for a new topic; at most 65,536."""
    broker_ip: str = ""
    """Store host of the messages, part of their message ids: IPv4, or IPv6 without a zone. Empty: the address of this
    machine, as brokers find theirs."""
    listen_port: int = 10_911
    """Port of the store host."""

    transaction_time_out: int = 6_000
    """A half message is not checked before it is this old, unless it has a time of its own."""
    transaction_check_max: int = 15
    """A half message that was checked so many times in vain is given up."""
    transaction_check_interval: int = 60_000
    """How often ``half_messages.start_checks`` asks for the outcome of pending half messages (RocketMQ 5: 30,000)."""

    disk_space_warning_level_ratio: float = 0.90
    """Puts are refused when a larger share of the disk is used; 1.0 never refuses them."""

    retention_enable: bool = False
    """Delete CommitLog files by age and by how full the disk is. Without it, nothing is deleted for these reasons."""
    retention_bytes: int = 0
    """The most bytes that the CommitLog keeps, whatever their age; 0 for no such limit. (This package's own.)"""
    file_reserved_time: int = 72
    """With retention_enable: hours after which a file goes, counted from its newest message."""
    delete_when: str = "04"
    """Hours of the day (local time, with semicolons between) in which old files go, if the disk does not hurry it."""
    disk_max_used_space_ratio: int = 75
    """Percent of the disk: when more is used, old files go at any hour."""
    disk_space_clean_forcibly_ratio: float = 0.85
    """When a larger share of the disk is used, files go whatever their age, if clean_file_forcibly_enable allows it."""
    clean_file_forcibly_enable: bool = True
    """Whether a nearly full disk may delete files that are younger than file_reserved_time."""
    clean_resource_interval: int = 10_000
    """How often to look for files to delete."""
    delete_commit_log_files_interval: int = 100
    """The pause between two CommitLog files."""
    delete_consume_queue_files_interval: int = 100
    """The pause after each queue that lost files."""
    redelete_hanged_file_interval: int = 120_000
    """How long to wait after a file that could not be deleted."""
    delete_file_batch_max: int = 10
    """The most CommitLog files that go in one round; at least 1."""

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    """Whether a put waits for slaves (SYNC_MASTER), or is rejected (SLAVE)."""
    ha_listen_address: str = ""
    """HOST:PORT on which slaves are served; empty: none with ASYNC_MASTER, 127.0.0.1:10912 with SYNC_MASTER.

    HOST is an IP address or localhost; port 0 takes a free one. (RocketMQ has haListenPort.)"""
    ha_allow: str = ""
    """The addresses that may connect as slaves: IP addresses and networks such as 10.0.0.0/8, with commas between.

    Needed where ha_listen_address is not a loopback address. (This package's own.)"""
    in_sync_replicas: int = 2
    """With SYNC_MASTER: the number of copies, the master's included, that have a message when its put returns; 1 to 10.

    (RocketMQ 4 always waits for one slave, as 2 does here; 5 has 1 by default, and does not wait.)"""
    slave_timeout_ms: int = 3_000
    """With SYNC_MASTER: how long a put waits for slaves before it gets FLUSH_SLAVE_TIMEOUT; at least 1."""
    ha_slave_fallbehind_max: int = 256 * _MIB
    """With SYNC_MASTER: a slave with more bytes missing than this does not count: SLAVE_NOT_AVAILABLE."""
    ha_send_heartbeat_interval: int = 5_000
    """After this time without data, a frame without body is sent to a slave; at least 1."""
    ha_housekeeping_interval: int = 20_000
    """A connection on which nothing was received for this time is closed; at least 1."""
    ha_transfer_batch_size: int = 32 * _KIB
    """The most bytes of a frame; 1 KiB to 16 MiB."""
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
        self._take_texts()
        if self.store_path_commit_log is not None:
            object.__setattr__(self, "store_path_commit_log", checked_commit_log(self.store_path_commit_log))
        self._require_types()
        self._require_ranges()
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
        if not 0.0 < self.disk_space_warning_level_ratio <= 1.0:
            raise _bad_setting(
                "disk_space_warning_level_ratio", "above 0 and at most 1", self.disk_space_warning_level_ratio
            )
        if not 0.0 < self.disk_space_clean_forcibly_ratio <= 1.0:
            raise _bad_setting(
                "disk_space_clean_forcibly_ratio", "above 0 and at most 1", self.disk_space_clean_forcibly_ratio
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

    def _take_texts(self) -> None:
        """Replace the texts of sizes and enumerations by their values."""
        for setting in fields(self):
            value: object = getattr(self, setting.name)
            if not isinstance(value, str):
                continue
            if setting.name in _SIZES:
                object.__setattr__(self, setting.name, _parse_size(setting.name, value))
            elif isinstance(setting.default, enum.Enum):
                object.__setattr__(self, setting.name, _parse_enum(setting.name, value, type(setting.default)))

    def _require_types(self) -> None:
        for setting in fields(self):
            value, kind = getattr(self, setting.name), type(setting.default)
            if setting.name == "store_path_commit_log":
                continue  # checked before
            if setting.default is None:
                if value is not None and not isinstance(value, bool):
                    raise _bad_setting(setting.name, "True, False or None", repr(value))
                continue
            takes = (int, float) if kind is float else kind
            if not isinstance(value, takes) or (isinstance(value, bool) and kind is not bool):
                raise _bad_setting(setting.name, f"of type {kind.__name__}", repr(value))

    def _require_ranges(self) -> None:
        for setting in fields(self):
            if type(setting.default) is int:
                low, high = _RANGES.get(setting.name, (0, MAX_INT))
                value = getattr(self, setting.name)
                if not low <= value <= high:
                    raise _bad_setting(setting.name, f"{low} to {high}", value)

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
        from commitlog_store.broker_properties import BrokerProperties  # which needs this class

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


# Sizes in bytes: these may be texts with a suffix.
_SIZES = frozenset(
    {
        "mapped_file_size_commit_log",
        "mapped_file_size_consume_queue",
        "max_message_size",
        "retention_bytes",
        "ha_slave_fallbehind_max",
        "ha_transfer_batch_size",
    }
)
_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)")
_SUFFIXES = ("", "k", "m", "g", "t")

_EMBEDDED: dict[str, object] = {
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    "mapped_file_size_commit_log": 64 * _MIB,
    "mapped_file_size_consume_queue": 20_000 * _UNIT_SIZE,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
    "retention_enable": True,
}


def _parse_size(setting: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise _bad_setting(setting, "a number of bytes, or a size such as 64m or 1g", repr(text[:40]))
    return int(match[1]) * int(_KIB ** _SUFFIXES.index(match[2]))


def _parse_enum(setting: str, text: str, kind: type[enum.Enum]) -> enum.Enum:
    try:
        return kind[text.strip().upper()]
    except KeyError:
        raise _bad_setting(setting, " or ".join(kind.__members__), repr(text[:40])) from None


# Settings whose range is not 0 to 2**31 - 1.
_RANGES = {
    "mapped_file_size_commit_log": (4 * _KIB, MAX_INT),
    "mapped_file_size_consume_queue": (1, MAX_INT // _UNIT_SIZE * _UNIT_SIZE),
    "max_hash_slot_num": (1, MAX_INT),
    "max_index_num": (2, MAX_INT),
    "sync_flush_timeout": (1, MAX_INT),
    "flush_interval_commit_log": (1, MAX_INT),
    "commit_interval_commit_log": (1, MAX_INT),
    "flush_interval_consume_queue": (1, MAX_INT),
    "flush_consumer_offset_interval": (1, MAX_INT),
    "transaction_check_interval": (1, MAX_INT),
    "max_message_size": (1, LARGEST_BODY),
    "put_message_timeout": (1, MAX_INT),
    "default_topic_queue_nums": (1, MOST_QUEUES),
    "listen_port": (0, _LARGEST_PORT),
    "retention_bytes": (0, MAX_LONG),
    "disk_max_used_space_ratio": (1, 100),
    "clean_resource_interval": (1, MAX_INT),
    "delete_file_batch_max": (1, MAX_INT),
    "in_sync_replicas": (1, 10),
    "slave_timeout_ms": (1, MAX_INT),
    "ha_send_heartbeat_interval": (1, MAX_INT),
    "ha_housekeeping_interval": (1, MAX_INT),
    "ha_transfer_batch_size": (_KIB, 16 * _MIB),
}

# More digits than any delay needs, and fewer than Python refuses to read.
_MOST_DIGITS = 18
_LEVEL = re.compile(rf"([0-9]{{1,{_MOST_DIGITS}}})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """``"1s 5s 2h"`` as milliseconds, one for each level from 1 on. ``InvalidValue``."""
    levels = []
    for part in text.split():
        match = _LEVEL.fullmatch(part)
        if match is None:
            raise _no_level("a number of up to 18 digits and s, m, h or d", part)
        delay = int(match[1]) * _UNIT_MS[match[2]]
        if delay > _LONGEST_DELAY_MS:
            raise _no_level("0s to 36500d", part)
        levels.append(delay)
    if not levels:
        raise InvalidValue(
            "message_delay_level names no level.", settings=("message_delay_level",), expected="at least one level"
        )
    return tuple(levels)


def delay_level(delay: object, message_delay_level: str) -> int | None:
    """The level of a delay: the number of a level, or the time of one as a text such as ``"10s"`` or a ``timedelta``.

    None stays None, and 0 is no delay. A text of digits is a level's number. ``InvalidValue`` for a delay that no level
    of ``message_delay_level`` has, and for other types.

    >>> delay_level("10s", "1s 5s 10s"), delay_level(timedelta(seconds=5), "1s 5s 10s")
    (3, 2)
    """
    if delay is None:
        return None
    levels = parse_delay_levels(message_delay_level)
    if isinstance(delay, SupportsIndex) and not isinstance(delay, bool):
        level = index(delay)
    elif isinstance(delay, str) and delay.isascii() and delay.isdigit():
        level = int(delay) if len(delay) <= _MOST_DIGITS else -1
    elif isinstance(delay, str | timedelta):
        wanted = delay // timedelta(milliseconds=1) if isinstance(delay, timedelta) else _level_ms(delay)
        exact = not isinstance(delay, timedelta) or delay == timedelta(milliseconds=wanted)
        level = levels.index(wanted) + 1 if exact and wanted in levels else -1
    else:
        raise InvalidValue(
            f"delay is the number of a level, or its time as a text such as '10s' or as a timedelta, not {delay!r}."
        )
    if not 0 <= level <= len(levels):
        shown = str(delay) if isinstance(delay, timedelta) else repr(delay)
        raise InvalidValue(f"delay is one of {shown_delay_levels(message_delay_level)}, not {shown}.")
    return level


def shown_delay_levels(message_delay_level: str) -> str:
    """The levels with their delays, for errors: ``1 (1s), 2 (5s)``."""
    levels = ", ".join(f"{level} ({delay})" for level, delay in enumerate(message_delay_level.split(), 1))
    return f"the levels {levels}"


def _level_ms(text: str) -> int:
    match = _LEVEL.fullmatch(text)
    return int(match[1]) * _UNIT_MS[match[2]] if match else -1


def parse_hours(text: str) -> frozenset[int]:
    """Hours of the day such as ``"04;16"``. ``InvalidValue``."""
    hours = [part.strip() for part in text.split(";") if part.strip()]
    if not all(re.fullmatch(r"[0-9]{1,2}", hour) and int(hour) < 24 for hour in hours):
        raise _bad_setting("delete_when", "hours from 00 to 23 with semicolons between", repr(text[:40]))
    return frozenset(map(int, hours))


def _no_level(expected: str, found: str) -> InvalidValue:
    return InvalidValue(
        f"A level of message_delay_level is {expected}, not {found[:40]!r}.",
        settings=("message_delay_level",),
        expected=f"levels of {expected}",
    )
