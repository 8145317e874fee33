"""Report of a salvage: found and lost by topic, batches, transactions, unreadable stretches, moved queue offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from commitlog_store.paths import BATCH_TOPIC, is_system_topic
from commitlog_store.salvage.log_source import MisnamedFile
from commitlog_store.salvage.positions import half_queue_moved
from commitlog_store.salvage.queue_chains import QueueChain
from commitlog_store.salvage.survey import Survey, Unreadable


class QueueLoss(NamedTuple):
    """Queue offsets ``[start, stop)`` that were given out, by messages around them or by units, without a message."""

    queue_id: int
    start: int
    stop: int


class MovedOffsets(NamedTuple):
    """Messages with the queue offsets ``[start, stop)`` that begin at ``new_start`` in a salvaged store."""

    topic: str
    queue_id: int
    start: int
    stop: int
    new_start: int


@dataclass(frozen=True)
class TopicSalvage:
    """One topic: messages found, messages known to be lost, and their queue offsets.

    Transactions: records that are prepared or rolled back have no queue offset and are not among the messages;
    ``committed`` ones are. ``is_system``: the topic holds RocketMQ's own records.
    """

    topic: str
    is_system: bool
    found: int
    lost: int
    lost_offsets: list[QueueLoss]
    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0


class BatchLoss(NamedTuple):
    """A batch that is not whole: ``rows_found`` of ``rows`` are.

    ``committed``: its rows are taken, as plain messages, and a new run of the batch is skipped. Else it is what a crash
    left of a commit; its rows are taken only if the caller asks for it.
    """

    app_id: str
    version: int
    rows: int
    rows_found: int
    committed: bool
    taken: bool


@dataclass(frozen=True, kw_only=True)
class SalvageReport:
    """What was found and lost, and where the found records are: ``target``, None when the caller only looked.

    ``records`` are all whole records taken, ``record_bytes`` their size. ``lost`` counts queue offsets without a
    message: between found ones, and those before and after them that the units of a store's queues name. Unreadable
    stretches may hold more: messages whose units are lost too, and prepared and rolled-back records.
    ``lost_references`` counts records whose prepared record was not found. ``misnamed`` files were taken for those that
    their records belong into. ``half_messages_settled``: the queue of half messages has moved, so that none counts as
    pending in a new store.
    """

    path: str
    target: str | None
    records: int
    record_bytes: int
    topics: list[TopicSalvage]
    unreadable: list[Unreadable]
    batches: list[BatchLoss] = field(default_factory=list)
    moved: list[MovedOffsets] = field(default_factory=list)
    lost_references: int = 0
    misnamed: list[MisnamedFile] = field(default_factory=list)
    half_messages_settled: bool = False

    @property
    def found(self) -> int:
        """The number of messages found, those of system topics included."""
        return sum(one.found for one in self.topics)

    @property
    def lost(self) -> int:
        """The number of messages known to be lost."""
        return sum(one.lost for one in self.topics)

    @property
    def unreadable_bytes(self) -> int:
        """The bytes of all unreadable stretches."""
        return sum(one.stop - one.start for one in self.unreadable)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is lost, unreadable or out of place, and all batches are whole."""
        return not (self.unreadable or self.lost or self.batches or self.misnamed)


def report_of(
    path: str,
    target: str | None,
    survey: Survey,
    given_out: Mapping[tuple[str, int], tuple[int, int]],
    *,
    uncommitted: bool,
    lost_references: int,
    misnamed: list[MisnamedFile],
) -> SalvageReport:
    """The report on a survey whose records were taken.

    ``given_out``: for each queue, the offsets ``[start, stop)`` that its units name.
    """
    return SalvageReport(
        path=path,
        target=target,
        records=survey.records - len(survey.left_out),
        record_bytes=survey.record_bytes,
        topics=_topics(survey, given_out),
        unreadable=survey.unreadable,
        batches=[
            BatchLoss(
                one.frame.frame.batch.app_id,
                one.frame.frame.batch.version,
                one.frame.frame.rows,
                one.rows_found,
                one.committed,
                one.committed or uncommitted,
            )
            for one in survey.damaged_batches
        ],
        moved=[
            MovedOffsets(chain.topic, chain.queue_id, run.start, run.stop, new)
            for _, chain in sorted(survey.chains.queues.items())
            for run, new in zip(chain.runs, chain.new_starts, strict=True)
            if run.start != new
        ],
        lost_references=lost_references,
        misnamed=misnamed,
        half_messages_settled=half_queue_moved(survey.chains),
    )


def _topics(survey: Survey, given_out: Mapping[tuple[str, int], tuple[int, int]]) -> list[TopicSalvage]:
    queues = sorted({*survey.chains.queues, *given_out})
    found: list[TopicSalvage] = []
    for topic in sorted({*(name for name, _ in queues), *(name for name, _ in survey.transactions)}):
        chains = [chain for (name, _), chain in survey.chains.queues.items() if name == topic]
        holes = [
            QueueLoss(queue[1], *hole)
            for queue in queues
            if queue[0] == topic
            for hole in _holes(survey.chains.queues.get(queue), given_out.get(queue))
        ]
        # Frame records of batches that are not whole: found, and not taken.
        frames = _frames_left_out(survey) if topic == BATCH_TOPIC else set()
        holes = [QueueLoss(one.queue_id, *part) for one in holes for part in _without(one.start, one.stop, frames)]
        counts = survey.transactions
        found.append(
            TopicSalvage(
                topic,
                is_system_topic(topic),
                sum(chain.found for chain in chains) + len(frames),
                sum(one.stop - one.start for one in holes),
                holes,
                prepared=counts[topic, "prepared"],
                committed=counts[topic, "committed"],
                rolled_back=counts[topic, "rolledBack"],
            )
        )
    return found


def _frames_left_out(survey: Survey) -> set[int]:
    """The queue offsets of the frame records of batches that are not whole."""
    places = (one.frame.physical_offset for one in survey.damaged_batches)
    return {survey.frame_offsets[place] for place in places if place in survey.frame_offsets}


def _without(start: int, stop: int, offsets: set[int]) -> Iterator[tuple[int, int]]:
    """The parts of ``[start, stop)`` between some of its offsets."""
    for offset in sorted(one for one in offsets if start <= one < stop):
        if start < offset:
            yield start, offset
        start = offset + 1
    if start < stop:
        yield start, stop


def _holes(chain: QueueChain | None, given_out: tuple[int, int] | None) -> list[tuple[int, int]]:
    """The offsets of a queue without a message: between found ones, and by its units before and after them."""
    if chain is None:
        return [] if given_out is None else [given_out]
    low, high = (chain.runs[0].start, chain.runs[-1].stop) if given_out is None else given_out
    ends = [(low, chain.runs[0].start), *chain.missing(), (chain.runs[-1].stop, high)]
    return [(start, stop) for start, stop in ends if start < stop]
