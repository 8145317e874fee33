"""Texts as Java's numbers, one or many: ``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf``, ``compareTo``.

Numbers are compared by their *order keys*: 64-bit integers in the order that Java's ``compareTo`` has. An integer is
its own order key. That of a double is made of its bits, so that -0.0 is less than 0.0, and NaN equal to itself and
greater than all others.

Source: Java SE ``java.lang.Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf``, ``Double.compareTo``.
"""

from __future__ import annotations

import enum
import math
import re
import struct

import numpy as np
import pyarrow as pa

from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, ByteArray, Int64Array
from commitlog_store.java_numbers import MAX_LONG


class JavaType(enum.Enum):
    """The types of number literals."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"


_BITS = {JavaType.INT: 32, JavaType.LONG: 64}
# Java takes the decimal digits of all scripts, as Python's \d and int do, but only from the basic plane.
_INTEGER = re.compile(r"[+-]?\d+")
_MOST_DIGITS = 1000
_LAST_OF_BASIC_PLANE = "\uffff"
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED = re.compile(r"([+-]?)(NaN|Infinity)")
# String.trim of Java: all characters up to the space.
_TRIMMED = "".join(map(chr, range(0x21)))

_LOWER_63 = np.int64(MAX_LONG)


def _of(characters: bytes) -> BoolArray:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


# Texts of these bytes alone are numbers to Arrow only if they are to Java, and the same ones.
_PLAIN = {
    JavaType.INT: _of(b"0123456789-"),
    JavaType.LONG: _of(b"0123456789-"),
    JavaType.DOUBLE: _of(b"0123456789-.eE"),
}


def double_order_key(number: float) -> int:
    """The order key of a double.

    ::

        assert double_order_key(-0.0) < double_order_key(0.0) < double_order_key(float("inf"))
    """
    bits: int = struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(number) else number))[0]
    return bits ^ (bits >> 63 & MAX_LONG)


def parse_order_key(text: str, kind: JavaType) -> int | None:
    """The order key of a text that is such a number to Java; None for any other, a NumberFormatException there.

    ::

        parse_order_key("10.5", JavaType.INT)  # None
    """
    if kind is JavaType.DOUBLE:
        number = _parse_double(text)
        return None if number is None else double_order_key(number)
    if not _INTEGER.fullmatch(text) or max(text) > _LAST_OF_BASIC_PLANE:
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:  # of a size that Python does not convert
        return None
    value = int(digits or "0") * (-1 if text[0] == "-" else 1)
    limit = 1 << (_BITS[kind] - 1)
    return value if -limit <= value < limit else None


def _parse_double(text: str) -> float | None:
    trimmed = text.strip(_TRIMMED)
    if found := _DECIMAL.fullmatch(trimmed):
        return float(found[1])
    if found := _NAMED.fullmatch(trimmed):
        return float(found[1] + ("nan" if found[2] == "NaN" else "inf"))
    if found := _HEX.fullmatch(trimmed):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if trimmed[0] == "-" else math.inf
    return None


def order_keys(texts: pa.StringArray, kind: JavaType) -> tuple[Int64Array, BoolArray]:
    """The order key of every text, and which texts are not such a number; null is, with any key."""
    numbers = _cast(texts, kind)
    if numbers is None:
        return _parse_distinct(texts, kind)
    if kind is JavaType.DOUBLE:
        doubles = numbers.fill_null(0.0).to_numpy(zero_copy_only=False)
        bits = doubles.view(np.int64)
        return bits ^ (bits >> 63 & _LOWER_63), np.zeros(len(texts), np.bool_)
    values: Int64Array = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    bad = np.zeros(len(texts), np.bool_)
    if kind is JavaType.INT:
        bad = (values < -(2**31)) | (values >= 2**31)
    return values, bad


def _cast(texts: pa.StringArray, kind: JavaType) -> pa.Array | None:
    """The numbers that Arrow makes of texts which are all plain; None for others."""
    if not _PLAIN[kind][_data(texts)].all():
        return None
    try:
        return texts.cast(pa.float64() if kind is JavaType.DOUBLE else pa.int64())
    except pa.ArrowInvalid:
        return None


def _data(texts: pa.StringArray) -> ByteArray:
    """The bytes of all texts, back to back."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[bounds[texts.offset] : bounds[texts.offset + len(texts)]]


def _parse_distinct(texts: pa.StringArray, kind: JavaType) -> tuple[Int64Array, BoolArray]:
    encoded = texts.dictionary_encode()
    parsed = [parse_order_key(text, kind) for text in encoded.dictionary.to_pylist()]
    # One value more, for null.
    keys = np.array([0 if key is None else key for key in parsed] + [0], np.int64)
    bad = np.array([key is None for key in parsed] + [False], np.bool_)
    which = pc.fill_null(encoded.indices, len(parsed)).to_numpy(zero_copy_only=False)
    return keys[which], bad[which]
