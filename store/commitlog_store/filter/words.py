"""The words of a tag subscription or of a list of keys: a check that both need."""

from __future__ import annotations

from collections.abc import Iterable

from commitlog_store.errors import FilterError


def refuse_surrogates(words: Iterable[str], text: str, option: str) -> None:
    """``FilterError`` for a word of ``text`` that is not UTF-8 text, which no message can have."""
    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            place = text.index(word)
            raise FilterError(text, place, expected="text", found="half of a surrogate pair", option=option) from None
