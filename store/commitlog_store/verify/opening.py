"""What opening a store would do, as far as it is known, and the findings that this gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import (
    CommitLogError,
    CorruptStoreError,
    NotAStore,
    ReadFailed,
    StoreAccessDenied,
    StoreBusy,
    StoreLocked,
    UnsupportedStore,
)
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.paths import CONSUME_QUEUE
from commitlog_store.progress import Progress
from commitlog_store.queue.saved_ends import SavedEnds
from commitlog_store.recovery.forecast import Forecast, forecast_open
from commitlog_store.recovery.kept import KeptPiece
from commitlog_store.recovery.start import StartKind
from commitlog_store.verify.access import first_unwritable
from commitlog_store.verify.findings import Findings, Severity

OpeningKind = Literal["clean", "scan", "rebuild", "refused", "inUse", "keptPiece"]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What ``MessageStore.open`` would do with a store.

    ``kind``: ``clean`` (nothing), ``scan`` or ``rebuild`` (queues and index too), ``refused``; ``inUse`` while it has
    an owner, or is opened and closed during all looks, when it is not known; ``keptPiece`` for what is never opened.
    ``reason`` is a sentence. ``unscanned``: at least so many bytes of the log would be scanned, and were not scanned
    for this: what the scan finds, and whether the store opens then, is not known.
    ``unwritable``: what this process may not write, so that only another user can open the store; None if it may.
    """

    kind: OpeningKind
    reason: str
    unscanned: int | None = None
    unwritable: str | None = None
    refusal: CommitLogError | None = None
    forecast: Forecast | None = None


def kept_piece(piece: KeptPiece) -> Opening:
    """The opening of a piece that was cut off a log: there is none."""
    return Opening(kind="keptPiece", reason=f"A piece that was cut off a store's log, for reading only: {piece.reason}")


def look_at_opening(
    paths: StorePaths,
    config: MessageStoreConfig | None,
    findings: Findings,
    files: Iterable[str],
    *,
    scan: bool,
    progress: Progress | None = None,
    saved: SavedEnds | None = None,
) -> Opening:
    """Forecast the opening. Its refusal, a cut, and what has to be built again are findings.

    ``files`` are all of log and queues, which a recovery writes. Without ``scan``, no records are read.
    ``saved`` is that of ``forecast_open``.
    """
    unwritable = first_unwritable(paths, ())
    forecast: Forecast | None = None
    try:
        forecast = forecast_open(paths.root, config, scan=scan, progress=progress, saved=saved)
        refusal = forecast.refusal
        if forecast.start.kind in (StartKind.SCAN, StartKind.REBUILD) and unwritable is None and refusal is None:
            refusal = _unwritable_file(paths, files)
    except StoreLocked as error:
        owner = f"Process {error.holder} has" if error.holder else "Another process has"
        reason = f"{owner} the store open: what its next opening would do is not known yet."
        return Opening(kind="inUse", reason=reason, refusal=error)
    except StoreBusy as error:
        reason = "It was opened or closed during all looks at it: what its next opening would do is not known yet."
        return Opening(kind="inUse", reason=reason, refusal=error)
    except (StoreAccessDenied, ReadFailed, NotAStore) as error:  # that it is a store was checked: one of its files
        refusal = error
    if forecast is None or refusal is not None:
        assert refusal is not None
        _report_refusal(paths, refusal, findings)
        return Opening(kind="refused", reason=str(refusal), unwritable=unwritable, refusal=refusal, forecast=forecast)
    _report_cut(paths, forecast, findings)
    start = forecast.start
    kinds: dict[StartKind, OpeningKind] = {StartKind.SCAN: "scan", StartKind.REBUILD: "rebuild"}
    return Opening(
        kind=kinds.get(start.kind, "clean"),
        reason=start.reason,
        unscanned=forecast.unscanned,
        unwritable=unwritable,
        forecast=forecast,
    )


def report_fault(paths: StorePaths, opening: Opening, mark: CheckpointMark | None, findings: Findings) -> None:
    """Report what the opening has to build again, for an assessment that does not read it.

    It is a note where a crash explains it: an owner may be killed before dispatch has made the first queue file.
    """
    forecast = opening.forecast
    if forecast is None or forecast.refusal is not None or not forecast.start.is_fault:
        return
    path = paths.part(CONSUME_QUEUE) if opening.kind == "rebuild" else paths.commit_log
    message = f"{opening.reason} Opening the store builds its queues and index again."
    if opening.kind == "scan":
        message = f"{opening.reason} Opening the store scans for its end."
    is_new = mark is not None and not mark.closed and mark.queue_file_count == 0
    severity: Severity = "note" if is_new else "error"
    findings.add("opening.rebuild", severity, path, message)


def _unwritable_file(paths: StorePaths, files: Iterable[str]) -> StoreAccessDenied | None:
    """The error of a recovery that may not write one of the files."""
    denied = first_unwritable(paths, files)
    if denied is None:
        return None
    return StoreAccessDenied(
        f"No permission to write {denied}, and recovery writes it: run as the store's user, or change its mode.",
        path=denied,
    )


def _report_refusal(paths: StorePaths, refusal: CommitLogError, findings: Findings) -> None:
    path, offset = paths.commit_log, None
    if isinstance(refusal, CorruptStoreError):
        path, offset = refusal.path, refusal.offset
    elif isinstance(refusal, StoreAccessDenied | ReadFailed | NotAStore):
        path = refusal.path
    # A broker's store of a kind that this package does not write has nothing wrong; brokers follow links.
    is_linked = isinstance(refusal, NotAStore) and disk.is_symlink(path) and disk.is_directory(path)
    severity: Severity = "note" if is_linked or isinstance(refusal, UnsupportedStore) else "error"
    message = f"The store does not open: {refusal}"
    findings.add("opening.refused", severity, path, message, offset=offset)


def _report_cut(paths: StorePaths, forecast: Forecast, findings: Findings) -> None:
    cut = forecast.cut
    if cut is None:
        return
    severity: Severity = "note" if cut.uncommitted else "error"
    of = f" of {cut.uncommitted}, which was not committed" if cut.uncommitted else ""
    message = (
        f"Opening the store cuts {cut.messages} whole records ({cut.size} bytes){of} off the log, from physical "
        f"offset {cut.start} on ({cut.reason}). They are kept then. To see which: commitlog repair "
        f"{paths.for_shell}"
    )
    findings.add("opening.cuts", severity, paths.commit_log, message)
