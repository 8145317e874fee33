"""Administration of a store at a server: topics and old files deleted, groups moved and configured, dead letters put
back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from commitlog_store.batch_id import CommittedBatch
from commitlog_store.errors import InvalidValue
from commitlog_store.groups.consumer_offset import check_positions
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.paths import checked_choice, checked_text, checked_topics_to_retain, validate_group
from commitlog_store.queue.get_message import checked_count
from commitlog_store.queue.skipped import SkippedRange, check_skipped
from commitlog_store.reader import OnDamage
from commitlog_store.reading.damage import checked_on_damage
from commitlog_store.remote.session_pool import SessionPool
from commitlog_store.remote.wire import RedriveTo
from commitlog_store.retention.decision import CleanReport
from commitlog_store.retention.survey import KEEP_AT_MOST_HOURS, AgeClock, CleanRequest, clean_request

# Dead letters of one call: a second of the server's time at most.
_MOST_REDRIVEN = 1_000


class RemoteAdministration:
    """Those methods of ``RemoteStore``. All but ``commit_group_offsets`` and ``redrive`` take a token of the role
    ``admin``. Each call is done once; ``PutNotConfirmed`` if no answer came in time: it may have been done."""

    _sessions: SessionPool

    def expired_topics(self) -> list[str]:
        """``MessageStore.expired_topics``."""
        found: list[str] = self._sessions.ask("expired_topics")
        return found

    def delete_topic(self, topic: str, *, with_messages: bool = False) -> None:
        """``MessageStore.delete_topic``."""
        checked_text("topic", topic)
        self._sessions.once("delete_topic", topic, bool(with_messages))

    def clean_unused_topics(self, retain: Iterable[str], *, dry_run: bool = False) -> list[str]:
        """``MessageStore.clean_unused_topics``."""
        kept = checked_topics_to_retain(retain)
        found: list[str] = self._sessions.once("clean_unused_topics", kept, bool(dry_run), is_final=not dry_run)
        return found

    def clean(
        self,
        *,
        dry_run: bool = False,
        older_than_hours: float | None = None,
        max_bytes: int | None = None,
        keep_for: Sequence[str | os.PathLike[str]] = (),
        keep_at_most_hours: float = KEEP_AT_MOST_HOURS,
        clock: AgeClock = "store",
    ) -> CleanReport:
        """``MessageStore.clean``. Checkpoints in ``keep_for`` are directories of the server's host.

        Without limits, by the settings of the server, which hold without ``keep_for``.
        """
        if older_than_hours is None and max_bytes is None:
            if keep_for:
                raise InvalidValue("keep_for goes with older_than_hours or max_bytes.")
            return self._clean(None, dry_run=dry_run)
        request = clean_request(
            older_than_hours=older_than_hours,
            max_bytes=max_bytes,
            keep_for=keep_for,
            keep_at_most_hours=keep_at_most_hours,
            clock=clock,
        )
        return self._clean(request, dry_run=dry_run)

    def clean_as(self, request: CleanRequest, *, dry_run: bool = False) -> CleanReport:
        """``MessageStore.clean_as``."""
        return self._clean(request, dry_run=dry_run)

    def _clean(self, request: CleanRequest | None, *, dry_run: bool) -> CleanReport:
        report: CleanReport = self._sessions.once("clean", request, bool(dry_run), is_final=not dry_run)
        return report

    def forget_batches(self, app_id: str) -> CommittedBatch | None:
        """``MessageStore.forget_batches``."""
        checked_text("application", app_id)
        forgotten: CommittedBatch | None = self._sessions.once("forget_batches", app_id)
        return forgotten

    def set_group_settings(self, settings: SubscriptionGroupConfig) -> None:
        """``MessageStore.set_group_settings``."""
        if not isinstance(settings, SubscriptionGroupConfig):
            raise InvalidValue(f"The settings of a group are a SubscriptionGroupConfig, not {settings!r}.")
        self._sessions.once("set_group_settings", settings)

    def commit_group_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        expected: Mapping[tuple[str, int], int | None] | None = None,
    ) -> bool:
        """``MessageStore.commit_group_offsets``. With ``expected``, the token has the role ``admin``."""
        check_positions(group, offsets)
        if expected is not None:
            check_positions(group, expected)
        places = [(topic, queue_id, offset) for (topic, queue_id), offset in offsets.items()]
        if expected is None:
            self._sessions.once("commit_group_offsets", group, places)
            return True
        former = [(topic, queue_id, offset) for (topic, queue_id), offset in expected.items()]
        done: bool = self._sessions.once("reset_group_offsets", group, places, former)
        return done

    def redrive(
        self,
        group: str,
        *,
        to: RedriveTo = "retry",
        max_messages: int | None = None,
        on_damage: OnDamage = "raise",
        verify_crc: bool = True,
        skipped: list[SkippedRange] | None = None,
    ) -> int:
        """``MessageStore.redrive``, a thousand messages a call."""
        validate_group(group)
        checked_choice("to", to, get_args(RedriveTo))
        left = None if max_messages is None else checked_count("max_messages", max_messages)
        checked_on_damage(on_damage)
        check_skipped(skipped)
        done = 0
        with self._sessions.session() as session:  # one for all parts: a store that is closed lets its calls end
            while left is None or left > done:
                most = _MOST_REDRIVEN if left is None else min(left - done, _MOST_REDRIVEN)
                count, found = session.once("redrive", group, to, most, on_damage, bool(verify_crc))
                done += count
                if skipped is not None:
                    skipped += [one for one in found if one not in skipped]
                if count < most:
                    break
        return done
