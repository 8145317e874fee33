"""Command that assesses a store: ``doctor``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from commitlog_store.cli.doctor_limits import complete_limit, measure, parse_limits
from commitlog_store.cli.options import (
    LOOK,
    AsJson,
    BrokerConf,
    CommitLogDir,
    Output,
    OutputFormat,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.errors import CommitLogError, InvalidValue

if TYPE_CHECKING:
    from commitlog_store.cli.doctor_limits import Measured
    from commitlog_store.verify.assessment import Assessment

__all__ = ["doctor", "register"]

_Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--warn",
        metavar="LIMITS",
        help="Warn above these: lag=100000,disk=0.85,overdue=60s.",
        autocompletion=complete_limit,
        show_default=False,
    ),
]
_Critical = Annotated[
    list[str] | None,
    typer.Option(
        "--critical",
        metavar="LIMITS",
        help="The same names as --warn: above these, --nagios says CRITICAL.",
        autocompletion=complete_limit,
        show_default=False,
    ),
]


# Wrong usage of any kind: typer has no public name for it.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


class _Doctor(TyperCommand):
    """The command. Wrong usage is UNKNOWN to Nagios, and not exit code 2, which it takes for CRITICAL."""

    def make_context(self, info_name: Any, args: Any, *others: Any, **extra: Any) -> Any:
        with _usage_errors(nagios="--nagios" in args):
            return super().make_context(info_name, args, *others, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors(nagios=bool(ctx.params.get("nagios"))):
            return super().invoke(ctx)


@contextlib.contextmanager
def _usage_errors(*, nagios: bool) -> Iterator[None]:
    from commitlog_store.cli.doctor import NAGIOS_UNKNOWN, nagios_unknown

    try:
        yield
    except _UsageError as error:
        if not nagios:
            raise
        print(nagios_unknown(error.format_message()))
        raise typer.Exit(NAGIOS_UNKNOWN) from error


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        cls=_Doctor,
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog doctor /data/store",
            "commitlog doctor --deep /data/store",
            "commitlog doctor /data/store --warn lag=100000,disk=0.85,overdue=60s",
            "commitlog doctor /data/store --nagios --warn disk=85% --critical disk=95%",
        ),
    )(doctor)


def doctor(
    path: StorePath,
    commit_log: CommitLogDir = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every record, unit and index entry, as verify.")] = False,
    warn: _Limits = None,
    critical: _Critical = None,
    nagios: Annotated[
        bool, typer.Option("--nagios", help="One line, and Nagios' exit codes: 0, 1, 2, 3 (UNKNOWN).")
    ] = False,
    config_file: BrokerConf = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """What is wrong with a store, what is lost, what opening it would do, and what to do next. Changes nothing.

    Quick: no records are read, so it takes a second on any store; --deep reads everything. It works beside a running
    broker, on a read-only mount, and on a copy. -o csv has a line for each finding.

    Verdicts: OK; WARNING, no message is known to be lost; DAMAGED; DOES NOT OPEN. Exit code 0 for OK, else 1.
    """
    from commitlog_store.cli.doctor import NAGIOS_UNKNOWN, nagios_level, nagios_line, nagios_unknown

    if not nagios:
        _print(path, chosen_output(output, as_json), warn, critical, config_file, commit_log, deep=deep)
        return
    if output is not None or as_json:
        raise typer.BadParameter("It prints one line; leave -o and --json out.", param_hint="--nagios")
    try:
        found, limits = _assessed(path, warn, critical, config_file, commit_log, deep=deep)
    except (CommitLogError, OSError) as error:
        print(nagios_unknown(error))
        raise typer.Exit(NAGIOS_UNKNOWN) from error
    print(nagios_line(found, limits))
    raise typer.Exit(nagios_level(found, limits))


def _assessed(
    path: str,
    warn: list[str] | None,
    critical: list[str] | None,
    config_file: str | None,
    commit_log: str | None,
    *,
    deep: bool,
) -> tuple[Assessment, list[Measured]]:
    from commitlog_store.cli.owner_config import owner_config
    from commitlog_store.cli.progress import progress_bar
    from commitlog_store.verify.assessment import assess_store

    limits = parse_limits(warn or ()), parse_limits(critical or ())
    with progress_bar("reading") as progress:
        config = owner_config(path, config_file, commit_log)
        found = assess_store(path, deep=deep, config=config, progress=progress)
    return found, measure(found.paths, *limits)


def _print(
    path: str,
    form: OutputFormat,
    warn: list[str] | None,
    critical: list[str] | None,
    config_file: str | None,
    commit_log: str | None,
    *,
    deep: bool,
) -> None:
    from commitlog_store.cli.doctor import print_json, print_page, with_limits
    from commitlog_store.cli.look_commands import FINDING_COLUMNS
    from commitlog_store.cli.render import ends_wrong
    from commitlog_store.cli.row_output import print_rows
    from commitlog_store.cli.summary import camel_members
    from commitlog_store.verify.assessment import Verdict

    try:
        found, limits = _assessed(path, warn, critical, config_file, commit_log, deep=deep)
    except InvalidValue as error:
        raise typer.BadParameter(str(error)) from error
    with ends_wrong(with_limits(found, limits) is not Verdict.OK):
        if form is OutputFormat.JSON:
            print_json(found, limits)
        elif form is OutputFormat.CSV:
            print_rows(FINDING_COLUMNS, map(camel_members, found.findings), form)
        else:
            print_page(found, limits)
