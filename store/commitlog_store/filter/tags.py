"""Tag subscriptions, ``*`` or ``A || B``: decided by the tags codes of queue units, then by the text of TAGS.

Source: RocketMQ ``common/filter/FilterAPI.java`` (``buildSubscriptionData``), ``store/DefaultMessageFilter.java``
(``isMatchedByConsumeQueue``), ``client/impl/consumer/PullAPIWrapper.java`` (``processPullResult``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from commitlog_store.errors import FilterError
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.java_hash import string_hash_code

ANY_TAG = "*"
_SEPARATOR = "||"
# Up to this many hash codes, comparing with each is faster than sorting, which np.isin does.
_FEW_CODES = 16


@dataclass(frozen=True)
class TagSubscription:
    """The tags that match. Without any, no message does."""

    tags: tuple[str, ...]

    @cached_property
    def _codes(self) -> Int64Array:
        return np.unique(np.array([string_hash_code(tag) for tag in self.tags], np.int64))

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        """Which units may lead to a message with one of the tags.

        A code outside the 32-bit range is not a hash code, but a delivery time or an address in ``consumequeue_ext``:
        its message decides.
        """
        if len(self._codes) > _FEW_CODES:
            found = np.isin(tags_codes, self._codes)
        else:
            found = np.zeros(len(tags_codes), np.bool_)
            for code in self._codes:
                found |= tags_codes == code
        # Two comparisons without a copy of the codes; in most queues all of them are hash codes.
        if len(tags_codes) and (int(tags_codes.min()) < -(2**31) or int(tags_codes.max()) >= 2**31):
            found |= (tags_codes < -(2**31)) | (tags_codes >= 2**31)
        return found

    def matches(self, texts: pa.StringArray) -> BoolArray:
        """Which texts of TAGS, null for none, are one of the tags."""
        found: BoolArray = pc.is_in(texts, value_set=pa.array(self.tags, pa.string())).to_numpy(zero_copy_only=False)
        return found


def parse_subscription(text: str) -> TagSubscription | None:
    """The subscription; None for one to all messages: ``*`` or nothing. ``FilterError``.

    ::

        parse_subscription("paid || sent").tags  # ("paid", "sent")
    """
    if text.strip() in ("", ANY_TAG):
        return None
    tags = [tag for part in text.split(_SEPARATOR) if (tag := part.strip())]
    if not tags:
        raise FilterError(text, 0, expected="tags separated by ||, such as A || B", found="no tag", option="tags")
    if ANY_TAG in tags:
        raise FilterError(
            text,
            text.index(ANY_TAG),
            expected=f"tags, or {ANY_TAG} alone",
            found=f"{ANY_TAG} among tags",
            option="tags",
        )
    refuse_surrogates(tags, text, "tags")
    return TagSubscription(tuple(dict.fromkeys(tags)))


def refuse_surrogates(words: Iterable[str], text: str, option: str) -> None:
    """``FilterError`` for a word of ``text`` that is not UTF-8 text, which no message can have."""
    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            place = text.index(word)
            raise FilterError(text, place, expected="text", found="half of a surrogate pair", option=option) from None
