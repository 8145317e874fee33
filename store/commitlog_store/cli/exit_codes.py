"""Exit codes of all commands, and the code for each error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from commitlog_store.errors import InvalidValue, StoreLocked, StoreOpenError

DONE = 0
WRONG = 1
UNREADABLE = 2
INTERRUPTED = 130

EXIT_CODES = {
    DONE: "done, and nothing is wrong",
    WRONG: "something is missing, damaged, lost or refused",
    UNREADABLE: "the store cannot be read at all, or wrong usage",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def exit_code(error: Exception) -> int:
    """2 for a path that cannot be read as a store; 1 for all other errors, a store with another owner among them."""
    unreadable = isinstance(error, StoreOpenError) and not isinstance(error, StoreLocked)
    return UNREADABLE if unreadable else WRONG


@contextmanager
def wrong_usage(param_hint: str | None = None) -> Iterator[None]:
    """A value that the store refuses is wrong usage of the command: ``BadParameter`` for ``InvalidValue``."""
    try:
        yield
    except InvalidValue as error:
        raise typer.BadParameter(str(error), param_hint=param_hint) from error
