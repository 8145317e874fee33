"""Commands of mirrors: ``follow`` and ``promote``."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog_store.cli.completion import one_of
from commitlog_store.cli.confirm import DryRun, Yes, do_as_shown
from commitlog_store.cli.options import MIRROR, AsJson, CountOption, LockTimeout, SizeOption, StorePath, examples

__all__ = ["follow", "promote", "register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
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


def follow(
    master: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The master's replication port (10912).")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The mirror: a store directory, or a new one.")],
    start: _Start = "earliest",
    ack: _Ack = "synced",
    config_from: Annotated[
        str | None,
        typer.Option(
            "--config-from",
            metavar="HOST:PORT",
            help="The broker's remoting port (10911): copy topics, groups and settings from there.",
            show_default=False,
        ),
    ] = None,
    access_keys: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --config-from, for a broker with access control: accessKey and secretKey, as in conf/tools.yml.",
            show_default=False,
        ),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Keep the mirror under another name, and begin again in a new directory.")
    ] = False,
    mapped_file_size_commit_log: SizeOption = None,
    mapped_file_size_consume_queue: SizeOption = None,
    max_hash_slot_num: CountOption = None,
    max_index_num: CountOption = None,
    token_file: Annotated[
        str, typer.Option(metavar="FILE", help="The token of a master of this package.", show_default=False)
    ] = "",
    tls_ca: Annotated[
        str, typer.Option(metavar="FILE", help="Connect with TLS; the certificates to trust.", show_default=False)
    ] = "",
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to print how far it is.")] = 5.0,
    lock_timeout: LockTimeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Mirror the log of a live broker, until Ctrl-C or SIGTERM.

    A mirror that exists is continued where it ends. Readers and Spark may read it at the same time. Nothing is changed
    at the broker. Exit code 0 after a signal, 1 when it cannot continue: another log at the address, a hole, log files
    of another size.
    """
    from commitlog_store.cli.follow import FollowRequest, follow_until_stopped

    settings: dict[str, object] = {"ha_token_file": token_file, "ha_tls_ca": tls_ca}
    sizes = {
        "mapped_file_size_commit_log": mapped_file_size_commit_log,
        "mapped_file_size_consume_queue": mapped_file_size_consume_queue,
        "max_hash_slot_num": max_hash_slot_num,
        "max_index_num": max_index_num,
    }
    settings |= {name: size for name, size in sizes.items() if size is not None}
    place = int(start) if start.isdigit() else start
    request = FollowRequest(master, path, place, ack, config_from, access_keys, settings)
    follow_until_stopped(request, reset=reset, every_s=every, lock_timeout_s=lock_timeout, as_json=as_json)


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
    from commitlog_store.cli.follow import promote_and_print, show_promotion

    do_as_shown(
        lambda: show_promotion(path, as_json=as_json),
        "Promote it?",
        lambda shown: promote_and_print(path, lock_timeout, shown, as_json=as_json),
        yes=yes,
        dry_run=dry_run,
        for_program=as_json,
    )
