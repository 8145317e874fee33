"""``commitlog follow`` and ``commitlog promote``."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from commitlog_store.cli.completion import one_of
from commitlog_store.cli.confirm import Changed, DryRun, Yes, do_as_shown, print_unread, unread_in, unread_rows
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.kept_output import kept_to_json
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import MIRROR, USUAL_SIZES, AsJson, FileSizes, LockTimeout, StorePath, examples, option
from commitlog_store.cli.render import json_text, say
from commitlog_store.config import MessageStoreConfig
from commitlog_store.follower.log_follower import FollowerStatus, LogFollower
from commitlog_store.follower.promote import move_aside, promotable
from commitlog_store.follower.promote import promote as promote_mirror
from commitlog_store.queries.texts import printable_text
from commitlog_store.reader import StoreReader


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=MIRROR,
        epilog=examples(
            "commitlog follow 10.0.0.7:10912 /data/mirror --ack synced",
            "commitlog follow 10.0.0.7:10912 /data/mirror --config-from 10.0.0.7:10911",
            "commitlog follow 10.0.0.7 /data/mirror --config-from 10.0.0.7 --access-keys conf/tools.yml",
        ),
    )(follow)
    app.command(
        rich_help_panel=MIRROR,
        epilog=examples("commitlog promote /data/mirror --dry-run", "commitlog promote /data/mirror --yes"),
    )(promote)


def _parse_start(text: str) -> str:
    if text not in ("earliest", "latest") and not (text.isascii() and text.isdigit()):
        raise typer.BadParameter("It is earliest, latest, or a physical offset.")
    return text


_Start = Annotated[
    str,
    typer.Option(
        "--from",
        parser=_parse_start,
        metavar="PLACE",
        help="Where a new mirror begins: earliest, latest, OFFSET.",
        autocompletion=one_of("earliest", "latest"),
    ),
]
_Ack = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="What the master hears: none, received, or synced.",
        autocompletion=one_of("none", "received", "synced"),
    ),
]


@takes_groups
def follow(
    master: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The master's replication port (10912).")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The mirror: a store directory, or a new one.")],
    start: _Start = "earliest",
    ack: _Ack = "synced",
    config_from: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "The broker's remoting port (10911): copy topics, groups and settings from there.",
            "--config-from",
        ),
    ] = None,
    access_keys: Annotated[
        str | None,
        option(
            "FILE",
            "With --config-from, for a broker with access control: accessKey and secretKey, as in conf/tools.yml.",
        ),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Keep the mirror under another name, and begin again in a new directory.")
    ] = False,
    sizes: FileSizes = USUAL_SIZES,
    token_file: Annotated[str, option("FILE", "The token of a master of this package.")] = "",
    tls_ca: Annotated[str, option("FILE", "Connect with TLS; the certificates to trust.")] = "",
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to print how far it is.")] = 5.0,
    lock_timeout: LockTimeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Mirror the log of a live broker, until Ctrl-C or SIGTERM.

    A mirror that exists is continued where it ends. Readers and Spark may read it at the same time. Nothing is changed
    at the broker. Exit code 0 after a signal, 1 when it cannot continue: another log at the address, a hole, files
    of other sizes.
    """
    config = MessageStoreConfig.from_mapping({"ha_token_file": token_file, "ha_tls_ca": tls_ca, **sizes.given()})
    if reset:
        say(f"The mirror is kept in {printable_text(move_aside(path, lock_timeout_s=lock_timeout))}.")
    with _signals() as stopped:

        def end_if_stopped(_reason: str) -> None:
            if stopped:
                raise _Stopped

        try:
            with wrong_usage():
                follower = LogFollower(
                    *(master, path, cast("Any", ack)),
                    start=cast("Any", int(start) if start.isdigit() else start),
                    config=config,
                    config_from=config_from,
                    access_keys=access_keys,
                    on_wait=end_if_stopped,
                    lock_timeout_s=lock_timeout,
                )
        except _Stopped:
            return
        with follower:
            _show_until(follower, stopped, every, as_json=as_json)
        _print(_Look(follower), as_json=as_json)
    if follower.failure is not None:
        raise follower.failure


def promote(
    path: StorePath,
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Make a mirror a store of its own, which takes messages. It shows what that means, and asks.

    What is not whole at its end is cut off and reported. Stop its follower before, and see that its master stops:
    two stores of one log would grow apart. Exit code 1 without a terminal and --yes: nothing is changed then.
    """
    do_as_shown(
        lambda: show_promotion(path, as_json=as_json),
        "Promote it?",
        lambda shown: promote_and_print(path, lock_timeout, shown, as_json=as_json),
        yes=yes,
        dry_run=dry_run,
        for_program=as_json,
    )


_LOOK_S = 0.2


class _Stopped(Exception):
    """A signal came before the mirror was begun."""


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
        **{name: getattr(status, name) for name in ("master", "connected", "end", "acknowledged")},
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
        row = {"path": os.path.abspath(path), "dryRun": True, "oldMaster": mark.peer, "end": end}
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
    report = promote_mirror(path, lock_timeout_s=lock_timeout_s)
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
