"""Java's ``String.hashCode`` of many texts at once: the hash codes of ``format.java_hash``, with numpy.

Texts are hashed from their ends, eight bytes of ASCII a step. Zeros in front of a text leave its hash code unchanged,
so the first step of one whose length is not a multiple of eight is filled up with them. Eight bytes are one 64-bit
word, in which pairs of neighbours are joined three times: bytes, then 16-bit lanes, then 32-bit lanes::

    b0 b1 b2 b3 b4 b5 b6 b7   ->   31 b0 + b1, ...   ->   31^2 (31 b0 + b1) + (31 b2 + b3), ...   ->   one hash code
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.arrow_bytes import strided_view
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.java_hash import string_hash_code

_Hashes = npt.NDArray[np.uint32]
_Words = npt.NDArray[np.uint64]

_MASK = 0xFFFF_FFFF

_WORD = 8
# The mask for the last 0 to 8 bytes of a text within a word: the highest ones, as words are little-endian.
_KEEP_LAST = np.array([(1 << 64) - (1 << 8 * (_WORD - n)) for n in range(_WORD + 1)], np.uint64)
_EVEN_BYTES = np.uint64(0x00FF_00FF_00FF_00FF)
_EVEN_LANES = np.uint64(0x0000_FFFF_0000_FFFF)
# The number of words hashed together where all texts are equally long: they stay in the processor's cache.
_WORDS_AT_ONCE = 1 << 14
# What is between topic and key in the text that the index hashes.
_SIGN = "#"
# Fewer topics are hashed one by one.
_FEWEST_TOPICS = 16


def string_hash_codes(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Java's ``hashCode()`` of every text; 0 for null, as for the empty text."""
    return _hashes_and_units(texts)[0].view(np.int32)


def tags_codes(tags: pa.StringArray) -> Int64Array:
    """The tags code of every row, 0 where tags are null; each distinct text is hashed once."""
    encoded = tags.dictionary_encode()
    codes = string_hash_codes(encoded.dictionary).astype(np.int64)
    # One code more, for the rows that have no tags.
    which: Int64Array = encoded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
    return np.append(codes, 0)[which]


def index_key_hashes(
    topics: Sequence[str], topic_codes: npt.NDArray[np.integer[Any]], keys: pa.StringArray
) -> npt.NDArray[np.int32]:
    """``index_key_hash(topics[topic_codes[i]] + "#" + keys[i])`` for every row, without joining any of them.

    The hash code of a + b is that of a times 31^(units of b), plus that of b.
    """
    hashes, units = _hashes_and_units(keys)
    if not len(hashes):
        return np.zeros(0, np.int32)
    prefixes = _hashes_of_prefixes(topics)
    powers = np.full(int(units.max()) + 1, 31, np.uint32)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint32)
    joined = (prefixes[topic_codes] * powers[units] + hashes).view(np.int32)
    hashes_of_keys: npt.NDArray[np.int32] = np.abs(joined)
    # numpy's abs leaves the smallest number as it is, like Java's; RocketMQ takes 0 for it.
    hashes_of_keys[hashes_of_keys < 0] = 0
    return hashes_of_keys


def _hashes_of_prefixes(topics: Sequence[str]) -> _Hashes:
    """The hash code of each topic with the sign after it. A block may have messages of ten thousand topics."""
    if len(topics) < _FEWEST_TOPICS or not "".join(topics).isascii():
        return np.array([string_hash_code(topic + _SIGN) & _MASK for topic in topics], np.uint32)
    return _hashes_and_units(pa.array(topics, pa.string()))[0] * np.uint32(31) + np.uint32(ord(_SIGN))


def _hashes_and_units(texts: pa.StringArray) -> tuple[_Hashes, Int64Array]:
    """The hash code of every text, unsigned, and how many UTF-16 units it has; nulls count as empty."""
    if texts.null_count:
        texts = texts.fill_null("")
    if not len(texts):
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    _, offsets, values = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    raw = np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8)
    raw = raw[bounds[0] : bounds[-1]]
    bounds -= bounds[0]
    units = np.diff(bounds)
    # Steps go back from the ends, so the first text needs room in front of it.
    hashes = _ascii_hashes(np.concatenate((np.zeros(_WORD, np.uint8), raw)), bounds[1:] + _WORD, units)
    if len(raw) and int(raw.max()) >= 0x80:
        other = np.unique(np.searchsorted(bounds, np.flatnonzero(raw >= 0x80), side="right") - 1)
        for row, text in zip(other.tolist(), texts.take(pa.array(other)).to_pylist(), strict=True):
            hashes[row] = string_hash_code(text) & _MASK
            units[row] = len(text.encode("utf-16-be")) // 2
    return hashes, units


def _ascii_hashes(data: ByteArray, ends: Int64Array, lengths: Int64Array) -> _Hashes:
    """Hash codes of the texts that end at ``ends``; of those that are not ASCII, any number.

    The texts stand back to back in ``data``, the first one after eight other bytes.
    """
    length = int(lengths[0])
    if (lengths == length).all():
        return _equal_length_hashes(data, len(lengths), length)
    hashes = np.zeros(len(ends), np.uint32)
    rows = np.flatnonzero(lengths)
    done, power = 0, 1
    while len(rows):
        left = lengths[rows] - done
        words = strided_view(data, _WORD)[ends[rows] - (done + _WORD)].view("<u8")
        hashes[rows] += _word_hashes(words & _KEEP_LAST[np.minimum(left, _WORD)]) * np.uint32(power)
        done, power = done + _WORD, power * 31**_WORD & _MASK
        rows = rows[left > _WORD]
    return hashes


def _equal_length_hashes(data: ByteArray, count: int, length: int) -> _Hashes:
    """``_ascii_hashes`` of texts that all have one length: their words make a table."""
    width = -(-length // _WORD)
    if not width:
        return np.zeros(count, np.uint32)
    first = _WORD + length - width * _WORD
    keep = _KEEP_LAST[length - (width - 1) * _WORD]
    hashes = np.zeros(count, np.uint32)
    for place in range(width):
        words = np.ndarray((count,), "<u8", data.data, offset=first + place * _WORD, strides=(length,))
        if place == 0 and keep != _KEEP_LAST[_WORD]:
            words = words & keep
        weight = np.uint32(pow(31, _WORD * (width - 1 - place), 1 << 32))
        # Texts with a beginning in common, as unique keys have, are hashed from where they differ.
        if (words == words[0]).all():
            hashes += _word_hashes(words[:1]) * weight
            continue
        for start in range(0, count, _WORDS_AT_ONCE):
            rows = slice(start, start + _WORDS_AT_ONCE)
            hashes[rows] += _word_hashes(words[rows]) * weight
    return hashes


def _word_hashes(words: _Words) -> _Hashes:
    """The hash codes of eight bytes each, the first of them the lowest of its word. No lane ever overflows."""
    pairs = (words & _EVEN_BYTES) * np.uint64(31) + (words >> np.uint64(8) & _EVEN_BYTES)
    fours = (pairs & _EVEN_LANES) * np.uint64(31**2) + (pairs >> np.uint64(16) & _EVEN_LANES)
    return (fours * np.uint64(31**4) + (fours >> np.uint64(32))).astype(np.uint32)
