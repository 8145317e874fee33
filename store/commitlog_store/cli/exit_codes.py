"""Exit codes of all commands, and the code for each error."""

from __future__ import annotations

from commitlog_store.errors import StoreLocked, StoreOpenError

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
