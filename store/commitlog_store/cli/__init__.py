"""The ``commitlog`` command: inspect, verify, repair and write a store directory.

Data goes to stdout, everything else to stderr. The exit codes are in ``cli/exit_codes.py``.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script."""
    try:
        _main()
    except KeyboardInterrupt:  # while a command ends, or its imports are still running
        sys.exit(130)


def _main() -> None:
    # Imported here: Ctrl-C before ``main`` would end in a traceback.
    import gc
    import io
    import logging
    import os

    if sys.stdout is None:  # closed by the calling process: output is discarded
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    # No command multiplies matrices: numpy's threads for that would only spin for a while.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # imports make no garbage, and a tenth of their time goes into looking for it
    from commitlog_store.cli.app import ReaderGone, app
    from commitlog_store.cli.exit_codes import exit_code
    from commitlog_store.cli.render import drop_output
    from commitlog_store.errors import CommitLogError

    # Warnings of the package, such as a cut or damage that is skipped, look like the command's own sentences.
    logging.basicConfig(format="commitlog: %(message)s", level=logging.WARNING)
    gc.freeze()
    gc.enable()
    # A message may hold characters that the terminal cannot show; they must not end the command.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="commitlog")
    except ReaderGone:
        # The reader of our output (head, less) has gone; that is not a failure.
        drop_output()
        sys.exit(0)
    except (CommitLogError, OSError) as error:
        sys.stdout.flush()
        print(f"commitlog: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
