"""Times of the command line: zones and times are parsed, and times are printed in a zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from typing import cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
import typer

from commitlog_store import timestamps
from commitlog_store.cli.exit_codes import wrong_usage

TIME_HELP = "ISO 8601 (UTC unless it or --tz says otherwise), milliseconds, or relative: 2h, -1d12h, today, yesterday"

_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
# The last millisecond of the year 9999, with which Python's calendar ends.
_LAST_MS = 253_402_300_799_999


def parse_zone(text: str) -> tzinfo:
    """A time zone: UTC, local, an offset such as +09:00, or a name such as Europe/Berlin. ``BadParameter``."""
    if text.upper() in ("UTC", "Z"):
        return timezone.utc
    if text.lower() == "local":
        return cast("tzinfo", datetime.now().astimezone().tzinfo)
    if found := _OFFSET.fullmatch(text):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset < timedelta(days=1):
            return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise typer.BadParameter(
            f"{text!r} is not a time zone: give UTC, local, +09:00, or a name such as Europe/Berlin.", param_hint="--tz"
        ) from None


def parse_time(text: str, zone: tzinfo = timezone.utc, now: datetime | None = None) -> int:
    """``timestamps.parse_time``. ``BadParameter`` for a text that is not a time, and for seconds.

    Output is in the same zone as input without one, so a time copied from the output means the same.
    """
    with wrong_usage():
        return timestamps.parse_time(text, zone, now)


class Clock:
    """Prints times in one zone. Times are milliseconds since the epoch; those that no calendar has are None."""

    def __init__(self, zone: tzinfo = timezone.utc) -> None:
        self.zone = zone

    @property
    def name(self) -> str:
        """The zone's name, for the heading of a column."""
        return "UTC" if self.zone is timezone.utc else str(self.zone)

    def iso(self, milliseconds: int | None) -> str | None:
        """ISO 8601 with milliseconds and the zone's offset."""
        when = self._datetime(milliseconds)
        return None if when is None else when.isoformat(timespec="milliseconds")

    def short(self, milliseconds: int | None) -> str:
        """Date and time to the second, without the zone. A time that no calendar has is its number."""
        when = self._datetime(milliseconds)
        if when is None:
            return "-" if milliseconds is None else str(milliseconds)
        return when.strftime("%Y-%m-%d %H:%M:%S")

    def texts(self, times: pa.Array) -> tuple[pa.StringArray, str]:
        """``iso`` of an array of timestamps as texts and the end that all share; null where no calendar has the time.

        In UTC without a loop over them.
        """
        milliseconds = pc.divide(times.cast(pa.int64()), pa.scalar(1000, pa.int64()))
        low, high = pc.min_max(milliseconds).as_py().values()
        if self.zone is not timezone.utc or low is None or low < 0 or high > _LAST_MS:
            return pa.array([self.iso(one) for one in milliseconds.to_pylist()], pa.string()), ""
        texts = milliseconds.cast(pa.timestamp("ms")).cast(pa.string())
        return pc.binary_replace_slice(texts, 10, 11, "T"), "+00:00"

    def _datetime(self, milliseconds: int | None) -> datetime | None:
        if milliseconds is None:
            return None
        try:
            return datetime.fromtimestamp(milliseconds / 1000, tz=self.zone)
        except (OverflowError, ValueError, OSError):
            return None
