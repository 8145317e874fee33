"""BrokerProperties: a broker's configuration file, such as ``broker.conf``, as settings of a store.

It is a file of Java properties, whose keys are RocketMQ's names in camel case. What a broker alone uses is kept by its
key and changes nothing. ::

    # comment                       lines that begin with # or !
    flushDiskType = SYNC_FLUSH      also with : or a space in place of =
    messageDelayLevel=1s 5s \\
        10s                         a backslash at the end continues the line

Some settings have another name or unit here:

===============================  ====================================  =================================================
in the file                      here                                  value
===============================  ====================================  =================================================
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
===============================  ====================================  =================================================

``mapedFileSizeCommitLog`` and other names that early versions of RocketMQ spelled with ``maped`` are no settings of a
broker any more, nor here: a warning says so.

A percentage beyond its range counts as the end of the range, as in a broker. All other numbers must be in theirs.

Source: ``java.util.Properties.load``, RocketMQ ``broker/BrokerStartup.java``, ``common/MixAll.java``
(``properties2Object``), ``store/config/MessageStoreConfig.java``, ``store/DefaultMessageStore.java``.
"""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue, ReadFailed

if TYPE_CHECKING:
    import os

__all__ = ["BrokerProperties"]

_LOG = logging.getLogger(__name__)

# Bytes of a file that is still read; brokers' files have a few thousand.
_LARGEST_FILE = 16 << 20
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
_HA_ADDRESS, _HA_PORT = "ha_listen_address", "haListenPort"
_LOOPBACK = "127.0.0.1"
_LARGEST_PORT = 65_535
_ALIKE = 0.9

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
# The key up to the first separator without a backslash; the separator; the value.
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)|\\$", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_PORT = re.compile(r"[0-9]{1,5}")
_ADDRESS_PORT = re.compile(r":[0-9]*$")


class _Property(NamedTuple):
    key: str
    value: str
    line: int


@dataclass(frozen=True)
class BrokerProperties:
    """What a broker's configuration file says.

    ::

        found = BrokerProperties.parse("storePathRootDir=/data/store\\nbrokerName=broker-a")
        with MessageStore.open(found.store_path_root_dir, found.config):
            assert found.unused == {"brokerName": "broker-a"}
    """

    config: MessageStoreConfig
    """The settings; those that are not in the file have this package's defaults."""
    store_path_root_dir: str | None
    """The store's directory, as the file names it (``storePathRootDir``)."""
    unused: Mapping[str, str]
    """The keys that are not settings here, with their values."""
    given: frozenset[str]
    """The names of the settings that are in the file."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> BrokerProperties:
        """The content of a file. ``InvalidValue`` names file, line, key, value and what is expected; ``ReadFailed``."""
        # The one file that a leaf reads: files/ itself imports the leaves.
        from commitlog_store.files import disk

        place = str(path)
        try:
            data = disk.read_file(place, _LARGEST_FILE)
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
        port = found.pop(_setting_name(_HA_PORT), None)
        values = {name: _value(settings[name], one, place) for name, one in found.items()}
        if port is not None:
            values[_HA_ADDRESS] = _with_port(found.get(_HA_ADDRESS), port, place)
            found.setdefault(_HA_ADDRESS, port)
        try:
            config = MessageStoreConfig.from_mapping(values)
        except InvalidValue as error:
            at_fault = [found[name] for name in error.settings if name in found]
            if not at_fault:
                raise
            raise _bad_value(at_fault, place, error.settings, error.expected) from error
        _note_unused(unused, settings, place)
        return cls(config, unused.pop(_STORE_PATH, None), unused, frozenset(found))


def _properties(text: str, place: str) -> Iterator[_Property]:
    """The properties of the text, as Java reads them; of a key that comes twice, the last one counts."""
    for number, line in _logical_lines(text):
        found = _PROPERTY.fullmatch(line)
        key, value = (found[1], found[2]) if found else (line, "")
        yield _Property(_unescaped(key, number, place), _unescaped(value, number, place).strip(), number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, each with the ones that continue it, and the number of its first one from 1 on."""
    first, parts = 0, ""
    for number, with_blanks in enumerate(_LINE_END.split(text), 1):
        line = with_blanks.lstrip(_BLANK)
        if not first and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        first, parts = first or number, parts + (line[:-1] if continues else line)
        if not continues:
            yield first, parts
            first, parts = 0, ""
    if parts:
        yield first, parts


def _unescaped(text: str, line: int, place: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1] or ""
        if code.startswith("u"):
            if len(code) == 1:
                expected = "4 hexadecimal digits after \\u"
                raise InvalidValue(f"{place}, line {line}: expected {expected}, found {text!r}.", expected=expected)
            return chr(int(code[1:], 16))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(one, text)


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
        raise _bad_value([port], place, (_HA_ADDRESS,), f"0 to {_LARGEST_PORT}")
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
