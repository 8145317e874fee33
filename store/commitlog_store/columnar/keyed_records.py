"""Compares many records with the topic and key that each of them is expected to carry.

An index holds hashes of keys, so a record that it leads to may carry another key. The rules are those of single
messages: KEYS holds keys between spaces, UNIQ_KEY is one key, and text that is not UTF-8 is compared as it is decoded.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import gather_binary, to_text
from commitlog_store.columnar.locate import RecordBlock
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray
from commitlog_store.format.properties import KEY_SEPARATOR, KEYS, UNIQ_KEY


def carry_keys(block: RecordBlock, topic: str, keys: pa.StringArray) -> BoolArray:
    """Whether each record has the topic, and its key of ``keys`` (one a record, no nulls) among its keys."""
    topics = to_text(gather_binary(block.data, block.parts.topic_starts, block.parts.topic_lengths))
    same = pc.equal(topics, pa.scalar(topic, pa.string())).to_numpy(zero_copy_only=False)
    of_records = block.properties.text(KEYS)
    found: BoolArray = same & (_equal(of_records, keys) | _equal(block.properties.text(UNIQ_KEY), keys))
    several = pc.match_substring(of_records, KEY_SEPARATOR).fill_null(False).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(several & same & ~found)
    found[rows] = _among(of_records.take(pa.array(rows)), keys.take(pa.array(rows)))
    return found


def _equal(texts: pa.StringArray, keys: pa.StringArray) -> BoolArray:
    equal: BoolArray = pc.equal(texts, keys).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


def _among(texts: pa.StringArray, keys: pa.StringArray) -> BoolArray:
    """Whether each text, keys between spaces, holds its key."""
    lists = pc.split_pattern(texts, KEY_SEPARATOR)
    owners = np.repeat(np.arange(len(texts)), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    found = np.zeros(len(texts), np.bool_)
    found[owners[_equal(lists.flatten(), keys.take(pa.array(owners)))]] = True
    return found
