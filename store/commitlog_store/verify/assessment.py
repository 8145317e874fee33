"""Assessment of a store: what is wrong with it, what is lost, what opening would do, and what to do next.

Every command shows this one. The quick assessment looks at names, sizes, the ends of queues, marks and JSON files; the
deep one is a verification, which reads everything. Neither changes anything. Decision 0027 has the reasons.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module

from commitlog_store.batch.ledger import saved_batches
from commitlog_store.config import MessageStoreConfig
from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.errors import (
    CommitLogError,
    CorruptConfig,
    InvalidValue,
    LogLost,
    LogNotFound,
    ReadFailed,
    StoreAccessDenied,
)
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.paths import CONFIG, CONSUME_QUEUE, INDEX, REMOTE_SCHEMES, REPLICA_MARK
from commitlog_store.progress import Progress
from commitlog_store.verify.findings import Finding, Findings
from commitlog_store.verify.opening import Opening
from commitlog_store.verify.quick_look import QuickLook, look_quickly
from commitlog_store.verify.store import (
    VerificationReport,
    paths_to_assess,
    read_claims,
    verification_report,
)
from commitlog_store.verify.topics import TopicCount

# What is damage is so at each of so many looks beside an owner.
_LOOKS = 3


class Verdict(str, Enum):
    """The verdict on a store, from best to worst.

    ::

        if assess_store("/data/store").verdict is not Verdict.OK:
            print("run: commitlog doctor /data/store")
    """

    OK = "OK"
    """Nothing wrong is known."""
    WARNING = "WARNING"
    """Something is wrong, and no message is known to be lost."""
    DAMAGED = "DAMAGED"
    """Messages are lost or unreadable, or the log is damaged."""
    DOES_NOT_OPEN = "DOES NOT OPEN"
    """``MessageStore.open`` refuses the store, as damaged or for want of a permission.

    A store of a kind that this package does not write (``UnsupportedStore``) is refused too, and nothing is wrong with
    it: its verdict is that of its files, and ``opening.kind`` is ``refused``.
    """


@dataclass(frozen=True, kw_only=True)
class Assessment(QuickLook):
    """What was found of a store. Places in the log are physical offsets, sizes are bytes.

    ``deep``: everything was read; ``verification`` has the numbers of it. ``topics`` are all topics then, else those
    with lost messages, whose ``found`` is not counted. ``log_end`` is where the last file ends, of a deep one where the
    records end. ``mark`` is this package's mark in the checkpoint: None after a broker. ``batches`` is the number of
    applications in the ledger, None if it cannot be read. ``next_steps`` are commands for a shell. ``paths`` says
    where the log lies.

    ::

        found = assess_store("/data/store", deep=True)
        for topic in found.topics:
            print(topic.topic, topic.found, topic.lost, topic.unreadable, topic.lost_offsets)
    """

    paths: StorePaths
    verdict: Verdict
    deep: bool
    batches: int | None
    next_steps: list[str]
    seconds: float
    verification: VerificationReport | None = None

    @property
    def path(self) -> str:
        """The store's directory."""
        return self.paths.root

    @property
    def lost(self) -> int:
        """The number of messages known to be lost, unreadable ones among them."""
        return sum(topic.lost for topic in self.topics)

    @property
    def unreadable(self) -> int:
        """The number of lost messages whose records are there and cannot be read."""
        return sum(topic.unreadable for topic in self.topics)

    @property
    def found(self) -> int | None:
        """The number of messages found; None for a quick assessment."""
        return sum(topic.found for topic in self.topics) if self.deep else None

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return sum(finding.severity == "error" for finding in self.findings)


def assess_store(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """Assess the store at ``path``, and change nothing; also beside its owner, and on a read-only mount.

    Quick by default: no records are read, so a damaged record is not found, and what is lost by missing files is.
    ``deep`` reads everything, as ``verify_store``; ``progress`` and ``config`` are as there.
    The log is where ``config`` says (``store_path_commit_log``).
    ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``. ``path`` may be the address of a
    ``commitlog serve``, without a ``config``: the server assesses, and stops when this call is interrupted. It runs one
    verification (``deep``) of a store at a time (``ServerBusy``). ``StoreReader.assess`` does the same, with a token
    that ``open`` is given.

    ::

        from commitlog_store import assess_store

        found = assess_store("/data/store")
        print(found.verdict.value, found.lost, "messages lost;", found.opening.reason)
    """
    if isinstance(path, str) and path.startswith(REMOTE_SCHEMES):
        return _by_server(path, config, deep=deep, progress=progress)
    if deep:
        return assessment_of(verification_report(path, config=config, progress=progress))
    return _quick(path, config)


def _by_server(url: str, config: MessageStoreConfig | None, *, deep: bool, progress: Progress | None) -> Assessment:
    if config is not None:
        raise InvalidValue(f"The server at {url} assesses its store with its own settings: leave config out.")
    with import_module("commitlog_store.reader").StoreReader.open(url) as reader:
        found: Assessment = reader.assess(deep=deep, progress=progress)
        return found


def assess_opening(
    path: str | os.PathLike[str], config: MessageStoreConfig | None = None, progress: Progress | None = None
) -> Assessment:
    """The quick assessment, with the scan that opening the store would do, and what that cuts off."""
    return _quick(path, config, scan=True, progress=progress)


def _quick(
    path: str | os.PathLike[str],
    config: MessageStoreConfig | None,
    *,
    scan: bool = False,
    progress: Progress | None = None,
) -> Assessment:
    started = time.perf_counter()
    paths = paths_to_assess(path, config)
    found = _look(paths, config, scan=scan, progress=progress)
    return Assessment(
        paths=paths,
        verdict=_verdict(paths, found.topics, found.findings),
        deep=False,
        batches=_batches(paths.root),
        next_steps=next_steps(paths, found.opening, found.findings, lost=_any_lost(found.topics), deep=False),
        seconds=time.perf_counter() - started,
        **vars(found),
    )


def _look(paths: StorePaths, config: MessageStoreConfig | None, *, scan: bool, progress: Progress | None) -> QuickLook:
    """The first look that finds nothing wrong beside an owner, of a few: it may remove files during a look."""
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):
            found = look_quickly(paths, config, scan=scan, progress=progress)
            if found.opening.kind != "inUse" or _verdict(paths, found.topics, found.findings) is Verdict.OK:
                return found
    return look_quickly(paths, config, scan=scan, progress=progress)


def assessment_of(report: VerificationReport) -> Assessment:
    """The deep assessment that a verification gives."""
    checkpoint, mark = read_claims(report.path, Findings())
    paths, topics, findings = report.paths, report.topics, report.findings
    return Assessment(
        paths=paths,
        verdict=_verdict(paths, topics, findings),
        deep=True,
        aborted=report.aborted,
        log_files=report.log_files,
        log_start=report.log_start,
        log_end=report.log_start + report.bytes,
        queues=report.queues,
        index_files=report.index_files,
        checkpoint=checkpoint,
        mark=mark,
        batches=_batches(paths.root),
        opening=report.opening,
        topics=topics,
        findings=findings,
        next_steps=next_steps(paths, report.opening, findings, lost=_any_lost(topics), deep=True),
        seconds=report.seconds,
        verification=report,
    )


def _batches(path: str) -> int | None:
    """The number of applications in the ledger's file."""
    try:
        return len(saved_batches(path))
    except CommitLogError:
        return None


def _verdict(paths: StorePaths, topics: Sequence[TopicCount], findings: Sequence[Finding]) -> Verdict:
    errors = [one for one in findings if one.severity == "error"]
    if any(one.check == "opening.refused" for one in errors):
        return Verdict.DOES_NOT_OPEN
    if any(is_of_the_log(paths, one) for one in errors) or _any_lost(topics):
        return Verdict.DAMAGED
    return Verdict.WARNING if errors else Verdict.OK


def _any_lost(topics: Sequence[TopicCount]) -> bool:
    return any(topic.lost for topic in topics)


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
        return [*look, *([] if opening.unwritable else _build_again(paths))]
    return look


def _build_again(paths: StorePaths) -> list[str]:
    """The commands that build queues and index again. No command owns a mirror but ``follow``, which builds what is
    missing."""
    mark: Mapping[str, object] = {}
    with contextlib.suppress(CorruptConfig, ReadFailed):  # which is a finding
        mark = JsonConfigFile(os.path.join(paths.root, CONFIG, REPLICA_MARK), "The mark of a replica").read()
    if mark.get("state") != "mirror":
        return [f"commitlog repair {paths.for_shell} --rebuild"]
    derived = " ".join(shlex.quote(os.path.join(paths.root, name)) for name in (CONSUME_QUEUE, INDEX))
    return [f"rm -rf {derived}", f"commitlog follow {mark.get('peer')} {paths.for_shell}"]


def _salvage(paths: StorePaths) -> str:
    """The command that saves the messages: it takes the directory of a log elsewhere as its path."""
    return f"commitlog salvage {shlex.quote(paths.elsewhere or paths.root)}"
