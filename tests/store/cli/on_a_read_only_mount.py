"""Commands that look, on a read-only mount: ``python -m tests.store.cli.on_a_read_only_mount STORE MOUNT``.

Run it within mounts of its own (``tests.support.own_mounts``). Prints each command with its exit code.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
from pathlib import Path

from commitlog_store.cli.app import app
from commitlog_store.cli.exit_codes import exit_code
from commitlog_store.errors import CommitLogError

COMMANDS = (
    "doctor {}",
    "doctor --deep {}",
    "info {}",
    "info {} --from-log",
    "cat {} orders --count 3",
    "cat {} orders --from-log --on-damage skip",
    "tail {} orders",
    "query {} k0 --topic orders",
    "offset-at {} 1h",
    "txn ls {}",
    "schedule ls {}",
    "verify {}",
    "repair {}",
    "salvage {}",
    "dump-log {} -n 3",
)


def main() -> None:
    source, mount = Path(sys.argv[1]), Path(sys.argv[2])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(mount)], check=True)
    shutil.copytree(source, mount / "store")
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    for command in COMMANDS:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                app(command.format(mount / "store").split(), prog_name="commitlog")
                code: object = 0
            except SystemExit as error:
                code = error.code
            except CommitLogError as error:
                code = exit_code(error)
        print(f"{command}: {code}" + ("" if code in (0, 1) else output.getvalue()))


if __name__ == "__main__":
    main()
