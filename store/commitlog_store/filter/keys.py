"""Keys that a message must have one of: the words of KEYS, and the unique key, as for a query by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from commitlog_store.errors import FilterError, InvalidValue
from commitlog_store.filter.tags import refuse_surrogates
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray
from commitlog_store.format.properties import KEY_SEPARATOR


@dataclass(frozen=True)
class KeySet:
    """The keys that match, at least one, none with a space."""

    keys: tuple[str, ...]

    @cached_property
    def _values(self) -> pa.StringArray:
        return pa.array(self.keys, pa.string())

    def matches(self, keys: pa.StringArray, unique_keys: pa.StringArray) -> BoolArray:
        """Which rows have one of the keys; ``keys`` are texts of KEYS: words with spaces between them."""
        found: BoolArray = self._has(unique_keys)
        found |= self._has(keys)
        several = np.flatnonzero(
            pc.match_substring(keys, KEY_SEPARATOR).fill_null(False).to_numpy(zero_copy_only=False)
        )
        if len(several):
            words = pc.split_pattern(keys.take(pa.array(several)), KEY_SEPARATOR)
            which = words.value_parent_indices().to_numpy()
            found[several[which[self._has(words.flatten())]]] = True
        return found

    def _has(self, texts: pa.StringArray) -> BoolArray:
        found: BoolArray = pc.is_in(texts, value_set=self._values).to_numpy(zero_copy_only=False)
        return found


def parse_keys(keys: str | Sequence[str]) -> KeySet:
    """The keys of a list, or of a text with spaces between them. ``FilterError`` for none."""
    if not isinstance(keys, Iterable):
        raise InvalidValue(f"keys is a list of keys, or a text with spaces between them, not {keys!r}.")
    given: Sequence[object] = keys.split(KEY_SEPARATOR) if isinstance(keys, str) else list(keys)
    for one in given:
        if not isinstance(one, str):
            raise InvalidValue(f"Keys are texts, not {one!r}.")
    wanted = tuple(dict.fromkeys(key for key in map(str, given) if key))
    text = KEY_SEPARATOR.join(map(str, given))
    if not wanted:
        raise FilterError(text, 0, expected="at least one key", found="none", option="keys")
    for key in wanted:
        if KEY_SEPARATOR in key:
            raise FilterError(text, text.index(key), expected="keys without spaces", found=repr(key), option="keys")
    refuse_surrogates(wanted, text, "keys")
    return KeySet(wanted)
