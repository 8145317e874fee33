"""``MessageFilter``: which messages a read gives, by tags, keys and an SQL92 expression."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from commitlog_store.errors import FilterError, InvalidValue
from commitlog_store.filter.doubts import doubts, tag_doubts
from commitlog_store.filter.expression import BooleanNode, Rows, evaluate, implied_values
from commitlog_store.filter.keys import KeySet, parse_keys
from commitlog_store.filter.tags import TagSubscription, parse_subscription
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.properties import KEYS, TAGS, UNIQ_KEY

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MessageFilter:
    """A condition that messages match or not: all of its parts must hold. Made by ``parse``; may be pickled.

    ::

        wanted = MessageFilter.parse(tags="paid || sent", filter="amount > 100 AND region IN ('eu', 'us')")
        with StoreReader.open("/data/store") as reader:
            for batch in reader.read("orders", 0, 0, filter=wanted):
                ...
    """

    tags: TagSubscription | None = None
    keys: KeySet | None = None
    expression: BooleanNode | None = None
    # What the expression was parsed from, for those who send it on.
    text: str | None = field(default=None, compare=False)

    @classmethod
    def parse(
        cls,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002  # the name that it has everywhere
        keys: str | Sequence[str] | None = None,
    ) -> MessageFilter:
        """The filter of a tag subscription, an SQL92 expression and keys; None for no such condition.

        ``tags`` is ``*`` or ``A || B``: messages with exactly one of these tags. ``filter`` is an expression of
        RocketMQ's SQL92 over properties (``TAGS`` and ``KEYS`` are properties too). ``keys`` is a list of keys, or a
        text with spaces between them: messages with one of these among their keys, or as their unique key.

        Where RocketMQ reads ``tags`` or ``filter`` in another way than most readers do, a warning is logged, once for
        each reading.

        ``FilterError`` names the place, what was expected and what was found.
        """
        made = cls.parse_quietly(tags, filter, keys)
        for doubt in made.doubts:
            _warn_once(doubt)
        return made

    @classmethod
    def parse_quietly(
        cls,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        keys: str | Sequence[str] | None = None,
    ) -> MessageFilter:
        """As ``parse``, for a caller that reports ``doubts`` itself."""
        for name, text in (("tags", tags), ("filter", filter)):
            if not isinstance(text, str | None):
                raise InvalidValue(f"{name} is a text, not {text!r}.")
        return cls(
            tags=None if tags is None else parse_subscription(tags),
            keys=None if keys is None else parse_keys(keys),
            expression=None if filter is None else _parsed(filter),
            text=filter,
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """What RocketMQ reads in another way than most readers do: a sentence with both readings for each."""
        of_tags = () if self.tags is None else tuple(tag_doubts(self.tags.tags))
        return of_tags if self.expression is None else (*of_tags, *doubts(self.expression))

    @property
    def is_all(self) -> bool:
        """Whether every message matches."""
        return self.tags is None and self.keys is None and self.expression is None

    @cached_property
    def _subscriptions(self) -> list[TagSubscription]:
        """Subscriptions that every message that matches is in: the tags, and those that the expression asks for."""
        implied = None if self.expression is None else implied_values(self.expression, TAGS)
        found = [] if self.tags is None else [self.tags]
        return found if implied is None else [*found, TagSubscription(tuple(sorted(implied)))]

    @property
    def tags_of_units(self) -> list[tuple[str, ...]]:
        """The tags of each subscription that decides about units: a message that matches has one of each."""
        return [subscription.tags for subscription in self._subscriptions]

    @property
    def looks_at_units(self) -> bool:
        """Whether the units of a queue decide about some messages."""
        return bool(self._subscriptions)

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        """Which queue units may lead to a message that matches."""
        found = np.ones(len(tags_codes), np.bool_)
        for subscription in self._subscriptions:
            found &= subscription.may_match(tags_codes)
        return found

    def matches(self, rows: Rows) -> BoolArray:
        """Which messages match."""
        found = np.ones(len(rows), np.bool_)
        if self.tags is not None:
            found &= self.tags.matches(rows.text(TAGS))
        if self.keys is not None and found.any():
            found &= self.keys.matches(rows.text(KEYS), rows.text(UNIQ_KEY))
        if self.expression is not None and found.any():
            found &= evaluate(self.expression, rows).true
        return found


@lru_cache(maxsize=128)
def _warn_once(doubt: str) -> None:
    _logger.warning("%s", doubt)


@lru_cache(maxsize=128)
def _parsed(text: str) -> BooleanNode:
    from commitlog_store.filter.sql92 import parse_expression

    if not text.strip():
        raise FilterError(text, 0, expected="an expression, such as amount > 100", found="none")
    return parse_expression(text)
