"""``commitlog follow`` and ``commitlog promote``."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from commitlog_store.cli.confirm import Changed, print_unread, unread_in, unread_rows
from commitlog_store.cli.kept_output import kept_to_json
from commitlog_store.cli.render import json_text, printable_text, say
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.follower.log_follower import FollowerStatus, LogFollower
from commitlog_store.follower.promote import move_aside, promotable, promote
from commitlog_store.reader import StoreReader

__all__ = ["FollowRequest", "follow_until_stopped", "promote_and_print", "show_promotion"]

_LOOK_S = 0.2


class _Stopped(Exception):
    """A signal came before the mirror was begun."""


class FollowRequest(NamedTuple):
    """What to follow, and where to."""

    master: str
    path: str
    start: Any
    ack: Any
    config_from: str | None
    access_keys: str | None
    settings: dict[str, object]


def follow_until_stopped(
    request: FollowRequest, *, reset: bool, every_s: float, lock_timeout_s: float, as_json: bool
) -> None:
    """Follow until a signal, or raise what ended it."""
    config = MessageStoreConfig.from_mapping(request.settings)
    if reset:
        say(f"The mirror is kept in {printable_text(move_aside(request.path, lock_timeout_s=lock_timeout_s))}.")
    with _signals() as stopped:

        def end_if_stopped(_reason: str) -> None:
            if stopped:
                raise _Stopped

        try:
            follower = LogFollower(
                request.master,
                request.path,
                request.ack,
                start=request.start,
                config=config,
                config_from=request.config_from,
                access_keys=request.access_keys,
                on_wait=end_if_stopped,
                lock_timeout_s=lock_timeout_s,
            )
        except _Stopped:
            return
        except InvalidValue as error:
            raise typer.BadParameter(str(error)) from error
        with follower:
            _show_until(follower, stopped, every_s, as_json=as_json)
        _print(_Look(follower), as_json=as_json)
    if follower.failure is not None:
        raise follower.failure


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that came: Ctrl-C and SIGTERM end the command between two looks, and nothing in the middle."""
    came: list[int] = []
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _show_until(follower: LogFollower, stopped: list[int], every_s: float, *, as_json: bool) -> None:
    console = Console(stderr=True)
    said: str | None = None
    if console.is_terminal and not as_json:
        look = _Look(follower)
        with console.status("connecting") as line:
            while follower.failure is None and not stopped:
                time.sleep(_LOOK_S)
                line.update(escape(printable_text(_text(look))))
                look = _Look(follower, look)
                said = _say_config_error(follower, said)
        return
    printed_at, look = -every_s, _Look(follower)
    while follower.failure is None and not stopped:
        if time.monotonic() - printed_at >= every_s:
            look = _Look(follower, look)
            _print(look, as_json=as_json)
            said = _say_config_error(follower, said)
            printed_at = time.monotonic()
        time.sleep(min(_LOOK_S, every_s))


def _say_config_error(follower: LogFollower, said: str | None) -> str | None:
    """Say each new failure of copying the configuration once."""
    text = None if follower.config_error is None else str(follower.config_error)
    if text is not None and text != said:
        say(printable_text(text))
    return text


class _Look:
    """A follower's status, and its rate since an earlier look."""

    def __init__(self, follower: LogFollower, before: _Look | None = None) -> None:
        self.status: FollowerStatus = follower.status
        self.at = time.monotonic()
        self.bytes_per_second = 0.0
        if before is not None and self.at > before.at:
            self.bytes_per_second = (self.status.end - before.status.end) / (self.at - before.at)


def _print(look: _Look, *, as_json: bool) -> None:
    print(json_text(_to_json(look)) if as_json else printable_text(_text(look)), flush=True)


def _text(look: _Look) -> str:
    status = look.status
    rate = f"{decimal(max(int(look.bytes_per_second), 0))}/s"
    state = f"  {status.error}" if status.error else ""
    return f"{status.master}  end {status.end}  lag {decimal(status.lag_bytes)}  {rate}{state}"


def _to_json(look: _Look) -> dict[str, Any]:
    status = look.status
    return {
        "master": status.master,
        "connected": status.connected,
        "end": status.end,
        "acknowledged": status.acknowledged,
        "masterEnd": status.master_end,
        "lagBytes": status.lag_bytes,
        "bytesPerSecond": round(look.bytes_per_second),
        "error": status.error or None,
    }


def show_promotion(path: str, *, as_json: bool) -> tuple[int, int]:
    """Print what a promotion would do, and what groups have not read. Returns the log's bounds. Takes no lock.

    ``InvalidValue``.
    """
    mark = promotable(path)
    with StoreReader.open(path) as reader:
        bounds = reader.physical_bounds()
        end = bounds[1]
        unread = unread_in(reader, reader.topics())
    if as_json:
        row = {
            "path": os.path.abspath(path),
            "dryRun": True,
            "oldMaster": mark.peer,
            "end": end,
        }
        print(json_text(row | {"unread": unread_rows(unread)}))
        return bounds
    print(
        f"It would make {printable_text(os.path.abspath(path))} a store of its own, which takes messages. Its log ends "
        f"at physical offset {end}: what {printable_text(mark.peer)} has stored after that is not in it, and would "
        "never be. See that this master stops."
    )
    print_unread(unread)
    return bounds


def promote_and_print(path: str, lock_timeout_s: float, shown: tuple[int, int] | None, *, as_json: bool) -> None:
    """Promote a mirror, and print what was cut off. ``Changed`` when the log's bounds are not ``shown``."""
    if shown is not None:
        with StoreReader.open(path) as reader:
            if reader.physical_bounds() != shown:
                raise Changed
    report = promote(path, lock_timeout_s=lock_timeout_s)
    recovered = report.recovered
    kept = None if recovered is None else recovered.kept
    if as_json:
        row = {
            "path": os.path.abspath(path),
            "oldMaster": report.old_master,
            "epoch": report.epoch,
            "end": report.end,
            "cutMessages": 0 if recovered is None or recovered.cut is None else recovered.cut.messages,
            "kept": None if kept is None else kept_to_json(kept),
        }
        print(json_text(row))
        return
    place = printable_text(os.path.abspath(path))
    print(f"{place} is a store of its own now, in epoch {report.epoch}. Its log ended at physical offset {report.end}.")
    if recovered is not None and recovered.cut is not None:
        where = "not kept, since the disk is full" if kept is None else f"kept in {printable_text(kept.path)}"
        print(f"{recovered.cut.messages} records ({decimal(recovered.cut.size)}) were cut off, {where}.")
    sys.stdout.flush()
