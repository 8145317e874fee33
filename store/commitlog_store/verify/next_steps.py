"""Next steps after an assessment: commands for a shell, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from commitlog_store.errors import LogLost, LogNotFound, StoreAccessDenied
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.verify.findings import Finding
from commitlog_store.verify.opening import Opening

# Findings elsewhere than in the log's files that say that messages are gone.
_OF_THE_LOG = ("log.", "tail.", "batch.", "checkpoint.ahead")
# Findings that are gone when queues and index are built again, which an opening does by itself only in part.
_BUILT_AGAIN = ("opening.rebuild", "files.", "queue.", "index.", "checkpoint.")
# From that byte on, the checkpoint counts the files of queues and index.
_FILE_COUNTS_AT = 568


def is_of_the_log(paths: StorePaths, finding: Finding) -> bool:
    """Whether a finding of a store shows that its log is damaged or incomplete."""
    if finding.check == "checkpoint.ahead" and (finding.offset or 0) >= _FILE_COUNTS_AT:
        return False
    return paths.holds_log_file(finding.path) or finding.check.startswith(_OF_THE_LOG)


def next_steps(
    paths: StorePaths, opening: Opening, findings: Sequence[Finding], *, lost: bool, deep: bool
) -> list[str]:
    """What to run next; empty where nothing is wrong and everything was read."""
    store = paths.for_shell
    look = [] if deep else [f"commitlog doctor --deep {store}"]
    errors = [one for one in findings if one.severity == "error"]
    if opening.kind == "keptPiece":
        return [_salvage(paths)]
    if isinstance(opening.refusal, LogLost | LogNotFound):
        # Mounting it is in the refusal: no command of ours does that.
        return [f"commitlog doctor {shlex.quote(paths.root)} --commit-log DIR", f"commitlog repair {store}"]
    is_wrong = any(one.check == "opening.refused" for one in errors)
    if opening.kind == "refused" and is_wrong and not isinstance(opening.refusal, StoreAccessDenied | None):
        return [f"commitlog repair {store}", *look]
    denied = [one.path for one in errors if one.check.startswith("access.")]
    if opening.kind == "refused" and isinstance(opening.refusal, StoreAccessDenied):
        denied.append(opening.refusal.path)
    if denied:
        return [f"ls -l {shlex.quote(denied[0])}"]
    damaged = lost or any(is_of_the_log(paths, one) for one in errors)
    if damaged and opening.kind != "inUse":
        return [*look, _salvage(paths)]
    is_built_again = any(one.check.startswith(_BUILT_AGAIN) for one in errors)
    if is_built_again and opening.kind == "refused":
        return [f"commitlog repair {store}", *look]  # it says what to do before the store can be built again
    if is_built_again and opening.kind in ("clean", "scan", "rebuild"):
        return [*look, *([] if opening.unwritable else [f"commitlog repair {store} --rebuild"])]
    return look


def _salvage(paths: StorePaths) -> str:
    """The command that saves the messages: it takes the directory of a log elsewhere as its path."""
    return f"commitlog salvage {shlex.quote(paths.elsewhere or paths.root)}"
