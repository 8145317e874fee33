"""``repair_store``: reports what opening a store would lose, without opening it, and cuts a damaged log.

Invariant 5 has the rule.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CommitLogError, DamagedLog, InvalidValue, LogLost, LogShort, StoreBusy, StoreLocked
from commitlog_store.files import disk
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.log.store_directory import check_store_directory, refuse_kept_piece
from commitlog_store.progress import Progress
from commitlog_store.recovery.cut import whole_records_from
from commitlog_store.recovery.forecast import Forecast, forecast_locked
from commitlog_store.recovery.kept import CutOff, KeptPiece, LostMessages, drop_kept, kept_pieces
from commitlog_store.recovery.log_cut import cut_log
from commitlog_store.recovery.log_on_disk import LogOnDisk
from commitlog_store.store import MessageStore
from commitlog_store.verify.assessment import Assessment, Verdict, assess_opening

__all__ = ["KeptPiece", "LostMessages", "RepairReport", "drop_kept", "kept_pieces", "repair_store"]


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """Report of a repair, or of a look at what opening would do.

    ``reason`` says how it is opened, and ``fault`` what stands where opening would end the log, if that cuts anything.
    ``damage`` is the error with which the store does not open; None if it opens. ``cut_at`` is the physical offset at
    which the log would end, or ends now; None if nothing is cut. ``lost`` are the whole messages after it, by queue, in
    ``size`` bytes: a cut removes them, or has removed them. ``kept`` is the piece that keeps them, None as long as
    nothing was cut. ``uncommitted`` names the batch, if ``lost`` is only a part of one that was never committed.
    ``opened``: this was a repair, and the store was opened and closed after it; ``damage`` is what it was before.
    ``rebuilt``: queues were built again; ``index_rebuilt``: so was the index, which the settings can switch off.
    ``assessment`` is the quick assessment of the store before that, with what opening scans.
    """

    path: str
    reason: str
    assessment: Assessment
    fault: str = ""
    damage: CommitLogError | None = None
    cut_at: int | None = None
    size: int = 0
    lost: list[LostMessages] = field(default_factory=list)
    uncommitted: str = ""
    kept: KeptPiece | None = None
    opened: bool = False
    rebuilt: bool = False
    index_rebuilt: bool = False

    @property
    def messages(self) -> int:
        """The number of whole messages that a cut removes, or has removed."""
        return sum(one.messages for one in self.lost)

    @property
    def loses(self) -> bool:
        """Whether the store does not open, its log is damaged, or opening it would cut messages off."""
        cuts = bool(self.lost) and not self.uncommitted
        return not self.opened and (self.damage is not None or cuts or self.assessment.verdict is Verdict.DAMAGED)

    @property
    def loses_nothing(self) -> bool:
        """Whether it is known that no message is lost: every record was read."""
        forecast, log_start = self.assessment.opening.forecast, self.assessment.log_start
        is_read = forecast is not None and forecast.scanned_from == log_start
        return not self.loses and is_read


def repair_store(
    path: str | os.PathLike[str],
    *,
    cut_at: int | None = None,
    accept_lost_log: bool = False,
    rebuild: bool = False,
    config: MessageStoreConfig | None = None,
    lock_timeout_s: float = 0.0,
    progress: Progress | None = None,
) -> RepairReport:
    """Report what opening the store would do: whether it opens, and which messages would be lost. Changes nothing.

    With ``cut_at``, end its log at that physical offset, which must be the ``cut_at`` that a look reports now, or
    ``InvalidValue``; the rest is kept as a store of its own in the directory ``repair``. With ``accept_lost_log``, go
    on with a log whose end, or all of it, is gone (``LogShort``, ``LogLost``). With ``rebuild``, build all queues again
    from the log, and all index files unless ``message_index_enable`` is false; it cuts nothing off the log
    (``CutRefused``). Each opens the store and closes it again, with the errors of ``MessageStore.open``; after a cut
    these include ``DamagedLog`` for further damage before it.

    Records that opening does not scan are not read: ``assess_store(path, deep=True)`` reads all.

    ``StoreLocked`` if the store is open, ``StoreBusy`` if it was opened or closed during all looks; ``StoreNotFound``
    and ``NotAStore`` if the path is not a store; ``DiskFull`` if the copy has no space, and then nothing was cut.

    ::

        report = repair_store("/data/store")
        if report.loses:
            print(report.damage, report.messages, "messages after", report.cut_at)
    """
    where = disk.absolute_path(path)
    config = config or MessageStoreConfig()
    check_store_directory(where)  # or opening would create a store there
    assessment = assess_opening(where, config, progress)
    if assessment.opening.kind == "keptPiece":
        refuse_kept_piece(where)
    if cut_at is None and not accept_lost_log and not rebuild:
        if isinstance(assessment.opening.refusal, StoreLocked | StoreBusy):
            raise assessment.opening.refusal
        return _report(assessment, assessment.opening.forecast, config)
    report, kept = _cut(where, assessment, cut_at, config, lock_timeout_s, progress)
    _refuse_other_damage(report, accept_lost_log=accept_lost_log)
    try:
        store = MessageStore.open(
            where,
            config,
            lock_timeout_s=lock_timeout_s,
            rebuild=rebuild,
            on_cut="refuse" if rebuild and cut_at is None else "keep",
            accept_lost_log=accept_lost_log,
            progress=progress,
        )
        store.close()
    except CommitLogError as error:
        if kept is not None:
            done = f"Before this, the log was cut at physical offset {cut_at}; what was cut off is in {kept.path}."
            error.advised(done)
        raise
    if kept is None and store.recovered is not None:
        kept = store.recovered.kept
    index_rebuilt = rebuild and config.message_index_enable
    return replace(report, kept=kept, opened=True, rebuilt=rebuild, index_rebuilt=index_rebuilt)


def _cut(
    where: str,
    assessment: Assessment,
    cut_at: int | None,
    config: MessageStoreConfig,
    lock_timeout_s: float,
    progress: Progress | None,
) -> tuple[RepairReport, KeptPiece | None]:
    """The report as the store is under its lock, and what was cut off its log, if ``cut_at`` says so."""
    with OwnerDirectory.open(
        where, commit_log=config.store_path_commit_log, lock_timeout_s=lock_timeout_s
    ) as directory:
        report = _report(assessment, forecast_locked(where, config, progress=progress), config)
        if cut_at is None:
            return report, None
        _refuse_other_place(report, cut_at)
        if not isinstance(report.damage, DamagedLog):
            return report, None
        reason = f"commitlog repair cut the log before this: {report.damage}"
        return report, cut_log(directory, cut_at, reason, config.delay_levels_ms)


def _report(assessment: Assessment, forecast: Forecast | None, config: MessageStoreConfig) -> RepairReport:
    refusal = assessment.opening.refusal if forecast is None else forecast.refusal
    cut = None if forecast is None else forecast.cut
    cut_at = None if cut is None else cut.start
    if isinstance(refusal, DamagedLog):
        cut_at = refusal.cut_at
        cut = _after(assessment.paths.commit_log, cut_at, config)
    return RepairReport(
        path=assessment.path,
        assessment=assessment,
        reason=assessment.opening.reason if forecast is None else forecast.start.reason,
        fault="" if cut is None else cut.reason,
        damage=refusal,
        cut_at=cut_at,
        size=0 if cut is None else cut.size,
        lost=[] if cut is None else cut.lost,
        uncommitted="" if cut is None else cut.uncommitted,
    )


def _after(log_path: str, cut_at: int, config: MessageStoreConfig) -> CutOff | None:
    files = LogOnDisk.load(log_path, aborted=True)
    try:
        return whole_records_from(files, cut_at, "", config.delay_levels_ms)
    finally:
        files.close()


def _refuse_other_place(report: RepairReport, cut_at: int) -> None:
    if report.cut_at is None:
        raise InvalidValue(f"Opening the store at {report.path} cuts nothing off its log; nothing was cut.")
    if cut_at != report.cut_at:
        why = "" if report.damage is None else f" What opening says: {report.damage}"
        raise InvalidValue(
            f"The log of {report.path} is to be cut at physical offset {report.cut_at}, not at {cut_at}; nothing was "
            f"cut.{why}"
        )


def _refuse_other_damage(report: RepairReport, *, accept_lost_log: bool) -> None:
    """Raise the damage that neither a cut nor ``accept_lost_log`` ends."""
    accepted = accept_lost_log and isinstance(report.damage, LogShort | LogLost)
    if report.damage is not None and not accepted and not isinstance(report.damage, DamagedLog):
        raise report.damage
