"""A store whose owner grows it and deletes its head, in rounds, as one under retention does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.retention.decision import RetentionLimits
from commitlog_store.retention.survey import CleanRequest
from commitlog_store.testing import parts_of
from tests.store.batch.batches import commit, table
from tests.store.owner.owned_store import put_ok, small
from tests.support.between_calls import change_before, spread
from tests.support.long_runs import ONE_IN, TURN, Progress

_FILE = 16 << 10
# The most bytes of the log after a cleaning.
_LEFT = 5 * _FILE


class GrowingStore:
    """Batches in three queues of ``orders``, and messages with the key ``p`` in one queue of ``payments``."""

    # What a stream that has read all messages goes through without loss, and a batch that the log does not hold whole.
    HARMLESS = ("commit", "clean", "commit and clean", "clean the queues", "open the gate and clean")
    KINDS = (*HARMLESS, "open the gate and clean past it")

    def __init__(self, store: MessageStore) -> None:
        self.path = Path(store.path)
        self._store = store
        self._version = 0

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[GrowingStore]:
        settings = small(mapped_file_size_commit_log=_FILE, mapped_file_size_consume_queue=200, max_index_num=40)
        with pytest.MonkeyPatch.context() as patch:
            for sync in ("sync", "sync_directory"):  # thousands of them, and no crash
                patch.setattr(disk, sync, lambda _: None)
            with MessageStore.open(path, settings) as store:
                growing = cls(store)
                growing.grow()
                growing.grow()
                yield growing

    def grow(self) -> None:
        """Some files of the log, and more of each queue."""
        for _ in range(4):
            self._commit()
            put_ok(self._store, "payments", b"p" * 200, keys=["p"])
        self._store.dispatch()

    def check(
        self,
        kind: str,
        call: int,
        begin: Callable[[], Callable[[], Any]],
        truth: Callable[[], Any] | None = None,
        may_raise: type[CommitLogError] | tuple[()] = (),
    ) -> int:
        """Ask, with a change of that kind before a call (0: after all): the answer is that before or after the change.

        ``begin`` gives the question. ``truth`` asks it without what was remembered from before. The number of calls
        that the question made.
        """
        self.grow()
        change = self.prepare(kind)
        before, ask = truth() if truth else begin()(), begin()
        with change_before({call: change}) as calls:
            try:
                found = ask()
            except may_raise as error:
                found = type(error)
        if not 1 <= call <= calls.made:
            change()
        after = truth() if truth else begin()()
        assert found in (before, after) or found is may_raise, (
            f"{kind} before call {call} of {calls.made}:\n{found}\nbefore: {before}\nafter: {after}"
        )
        return calls.made

    def check_some(self, check: Callable[[str, int], int], kinds: Sequence[str] = KINDS) -> None:
        """``check`` with some of the calls, and with all kinds of changes in turns."""
        for turn, call in enumerate(spread(check("clean", 0), len(kinds))):
            check(kinds[turn % len(kinds)], call)

    def check_all(self, check: Callable[[str, int], int], progress: Progress, kinds: Sequence[str] = KINDS) -> None:
        """``check`` with every call twice (of those that a run takes), and with all kinds of changes in turns."""
        done = 0
        for lap in (0, 2):
            call = 1 + TURN
            while check(kinds[(call // ONE_IN + lap) % len(kinds)], call) >= call:
                call += ONE_IN
                done += 1
            progress.count("changes between two calls", done)

    def prepare(self, kind: str) -> Callable[[], None]:
        """Get ready for a change of that kind, and give it."""
        known = {"commit": self._commit, "clean": self._clean, "commit and clean": self._commit_and_clean}
        known["delete a topic"] = self._delete_topic
        if kind in known:
            return known[kind]
        if kind == "clean the queues":  # a moment after the log, as the services of an open store do
            return self._begin_to_clean()
        gate, files = parts_of(self._store).engine.log.gate, parts_of(self._store).engine.log.files
        # As in a batch of which some queues have all units by now: readers do not see it yet.
        hidden_from = files.max_wrote if kind == "open the gate and clean" else self._early_place()
        self._store.put_messages(table("hidden"), topic="orders")
        self._store.dispatch()
        gate.close_from(hidden_from)

        def open_and_clean() -> None:
            gate.open(files.max_wrote)
            self._clean()

        return open_and_clean

    def _commit(self) -> None:
        self._version += 1
        assert commit(self._store, self._version)
        self._store.dispatch()

    def _begin_to_clean(self) -> Callable[[], None]:
        owned = parts_of(self._store)
        request = CleanRequest(limits=RetentionLimits(max_bytes=_LEFT))
        done = owned.engine.run(lambda: owned.retention.cleaner.clean_log(request, 0))
        assert done.decision.doomed
        return lambda: owned.engine.run(lambda: owned.retention.cleaner._with_queues(done))  # type: ignore[return-value]

    def _commit_and_clean(self) -> None:
        self._commit()
        self._clean()

    def _delete_topic(self) -> None:
        self._store.delete_topic("payments", with_messages=True)

    def _clean(self) -> None:
        assert self._store.clean(max_bytes=_LEFT).deleted

    def _early_place(self) -> int:
        """The place of a message, not the first one, in the first file of the log."""
        with StoreReader.open(self.path) as reader:
            queue = reader.queue_info("orders", 0)
            (units,) = reader.units("orders", 0, queue.min_offset + 2, queue.min_offset + 3)
            return int(units["physical_offset"][0])
