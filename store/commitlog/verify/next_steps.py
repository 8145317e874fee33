"""Next steps after an assessment: commands for a shell, ready to be copied."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from commitlog.errors import StoreAccessDenied, UnsupportedStore
from commitlog.paths import COMMIT_LOG
from commitlog.verify.findings import Finding
from commitlog.verify.opening import Opening

__all__ = ["is_of_the_log", "next_steps"]

# Findings elsewhere than in the log's files that say that messages are gone.
_OF_THE_LOG = ("log.", "tail.", "batch.", "checkpoint.ahead")
# Findings that are gone when queues and index are built again, which an opening does by itself only in part.
_BUILT_AGAIN = ("opening.rebuild", "queue.", "index.", "checkpoint.")
# From that byte on, the checkpoint counts the files of queues and index.
_FILE_COUNTS_AT = 568


def is_of_the_log(path: str, finding: Finding) -> bool:
    """Whether a finding of a store shows that its log is damaged or incomplete."""
    if finding.check == "checkpoint.ahead" and (finding.offset or 0) >= _FILE_COUNTS_AT:
        return False
    return finding.path.startswith(os.path.join(path, COMMIT_LOG)) or finding.check.startswith(_OF_THE_LOG)


def next_steps(path: str, opening: Opening, findings: Sequence[Finding], *, lost: bool, deep: bool) -> list[str]:
    """What to run next; empty where nothing is wrong and everything was read."""
    store = shlex.quote(path)
    look = [] if deep else [f"commitlog doctor --deep {store}"]
    errors = [one for one in findings if one.severity == "error"]
    if opening.kind == "keptPiece":
        return [f"commitlog salvage {store}"]
    if opening.kind == "refused" and not isinstance(opening.refusal, StoreAccessDenied | UnsupportedStore | None):
        return [f"commitlog repair {store}", *look]
    if denied := next((one.path for one in errors if one.check.startswith("access.")), None):
        return [f"ls -l {shlex.quote(denied)}"]
    damaged = lost or any(is_of_the_log(path, one) for one in errors)
    if damaged and opening.kind != "inUse":
        return [*look, f"commitlog salvage {store}"]
    if any(one.check.startswith(_BUILT_AGAIN) for one in errors) and opening.kind in ("clean", "scan", "rebuild"):
        return [*look, *([] if opening.unwritable else [f"commitlog repair {store} --rebuild"])]
    return look
