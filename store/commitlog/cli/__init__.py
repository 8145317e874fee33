"""The ``commitlog`` command: look into a store directory.

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 not found or not readable, 2 wrong usage.
"""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

__all__ = ["main"]


def _leave_quietly() -> NoReturn:
    # The reader of our output (head, less) has gone; that is no failure. Python would complain again when it flushes
    # at exit, so what is left goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def main() -> None:
    """Entry point of the console script."""
    # Imported here, so that `import commitlog.cli` costs nothing and a broken terminal library breaks only the command.
    from commitlog.cli.app import ReaderGone, app
    from commitlog.errors import CommitLogError

    # A message may hold what the terminal cannot show; that must not end the command.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="commitlog")
    except ReaderGone:
        _leave_quietly()
    except (CommitLogError, OSError) as error:
        sys.stdout.flush()
        print(f"commitlog: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
