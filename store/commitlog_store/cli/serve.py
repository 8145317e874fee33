"""Commands of serving: ``serve`` and ``token new``."""

from __future__ import annotations

import enum
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.completion import one_of
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import SERVE, BrokerConf, CommitLogDir, CreateStore, examples
from commitlog_store.cli.serve_options import (
    NO_ACCESS_RULES,
    NO_ARCHIVE,
    NO_PAGES,
    NO_ROCKETMQ,
    USUAL_LIMITS,
    Access,
    ArchivingOptions,
    CallLimits,
    PagesOptions,
    RocketMQOptions,
)

if TYPE_CHECKING:
    from commitlog_store.serve.run import ServeRequest


class RoleName(str, enum.Enum):
    """What a token allows; each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=SERVE,
        epilog=examples(
            "commitlog serve /data/store --read-only",
            "commitlog serve a=/data/a b=/data/b --read-only --listen 127.0.0.1:8815",
            "commitlog serve /data/store --http 127.0.0.1:8816",
            "commitlog serve /data/store --http 127.0.0.1:8816 --decode 'orders=avro:/data/schemas'",
            "commitlog serve /data/store --http 127.0.0.1:8816 --tokens tokens.jsonl --trusted-proxies 127.0.0.1",
            "commitlog serve /data/new --create --rocketmq 127.0.0.1:10911",
            "commitlog serve /data/store --archive s3://bucket/orders",
            "commitlog serve /data/store --listen 0.0.0.0:8815 --tls-cert s.crt --tls-key s.key --tokens tokens.jsonl",
        ),
    )(serve)
    tokens = typer.Typer(help="Tokens for `commitlog serve`.", no_args_is_help=True)
    tokens.command("new", epilog=examples("commitlog token new tokens.jsonl --name spark --role read"))(token_new)
    app.add_typer(tokens, name="token", rich_help_panel=SERVE)


_ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Show the store beside its owner: no lock, nothing is written.")
]
# The keys of a broker's file that RocketMQ's clients see, and a store does not use.
_BROKER_NAMES = ("brokerName", "brokerClusterName")
_BROKER_PROPERTIES = (*_BROKER_NAMES, "autoCreateTopicEnable", "autoCreateSubscriptionGroup", "brokerIP2")


@takes_groups
def serve(
    stores: Annotated[list[str], typer.Argument(metavar="PATH", help="A store directory; NAME=PATH for several.")],
    read_only: _ReadOnly = False,
    create: CreateStore = False,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients connect.")] = "127.0.0.1:8815",
    config_file: BrokerConf = None,
    commit_log: CommitLogDir = None,
    access: Access = NO_ACCESS_RULES,
    pages: PagesOptions = NO_PAGES,
    rocketmq: RocketMQOptions = NO_ROCKETMQ,
    archiving: ArchivingOptions = NO_ARCHIVE,
    limits: CallLimits = USUAL_LIMITS,
    access_log: Annotated[bool, typer.Option("--access-log", help="A line for each call.")] = False,
) -> None:
    """Serve a store to other hosts, until Ctrl-C or SIGTERM.

    Clients read it as grpc://HOST:PORT, in Python, in Spark and with the commands that look. Without --read-only this
    process owns the store, as MessageStore does, and programs put into it, too; with --create the store may be a new
    one. Addresses that other hosts reach need TLS and tokens. With --rocketmq, RocketMQ's own clients produce to it and
    consume from it. With --http, browsers show pages about it, where admins with a token of --tokens may change it.
    """
    from commitlog_store.cli.owner_config import broker_settings, refuse_log_of_another
    from commitlog_store.cli.render import say
    from commitlog_store.serve.run import ServeRequest, serve_until_stopped

    for group in (rocketmq, pages, archiving):
        group.check()
    used = _BROKER_PROPERTIES if rocketmq.rocketmq else _BROKER_NAMES if pages.http else ()
    file = broker_settings(config_file, commit_log, used=used)
    log_is_of_file = commit_log is None and config_file is not None
    if access_log:
        logging.getLogger("commitlog_store.serve.flight_server.access").setLevel(logging.INFO)
    request = ServeRequest(
        stores=stores,
        listen=access.listening(listen),
        read_only=read_only,
        commit_log=file.config.store_path_commit_log,
        commit_log_from=f"storePathCommitLog of {config_file}" if log_is_of_file else "--commit-log",
        config=None if read_only else file.config,
        drain_timeout_s=limits.drain_timeout,
        max_calls=limits.max_calls,
        call_timeout_s=limits.call_timeout,
        access_log=access_log,
        max_staged=limits.max_staged,
        rocketmq=rocketmq.rocketmq,
        advertise=rocketmq.advertise,
        name_servers=rocketmq.namesrv,
        broker_properties={key: file.unused[key] for key in _BROKER_PROPERTIES if file.unused.get(key)},
        acl=rocketmq.acl,
        http=pages.http,
        http_downloads=not pages.no_download,
        trusted_proxies=pages.trusted_proxies,
        decode=pages.decode or (),
        archive=archiving.archive,
        archive_max_rate=archiving.max_rate or 0,
    )
    request = _checked(request, create=create)
    unused = [key for key in file.given_keys if key != "storePathCommitLog"] if read_only else []
    if unused:
        say(f"{config_file}: not used with --read-only: {', '.join(unused)}.")
    if log_is_of_file:
        for path in request.named_paths().values():
            refuse_log_of_another(file, config_file, path)
    serve_until_stopped(request, say)


def _checked(request: ServeRequest, *, create: bool) -> ServeRequest:
    """The request, which says then whether its store is new. ``StoreNotFound`` and ``NotAStore`` without ``create``.

    ``BadParameter``, and ``InvalidValue`` for several stores.
    """
    from commitlog_store.cli.owner_config import refuse_missing

    if request.read_only:
        if create:
            raise typer.BadParameter("A store is created by its owner, not with --read-only.", param_hint="--create")
        return request
    (path,) = request.named_paths().values()
    return replace(request, is_new=refuse_missing(path, create=create))


def token_new(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The token file; made if it does not exist.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Whose token it is: the server's log has it.")],
    role: Annotated[
        RoleName,
        typer.Option(
            metavar="ROLE",
            help="read; write, to put and consume too; admin, to delete, clean and reset too.",
            autocompletion=one_of("read", "write", "admin"),
        ),
    ] = RoleName.READ,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="The token is refused after this time: 90d.", show_default="never"),
    ] = None,
) -> None:
    """Make a token, print it once, and add its hash to the file."""
    from commitlog_store.cli.values import parse_seconds
    from commitlog_store.serve.tokens import Role, new_token

    print(new_token(file, name, Role[role.name], expires_in_s=None if expires is None else parse_seconds(expires)))
